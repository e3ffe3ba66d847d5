# What an iteration and the device memory at its peak consist of, a stacked bar for each stage.
# $time, $memory: stage, then sums of the parts from the first to each
set multiplot title title_text font title_font
set xrange [-0.6 : n_stages - 0.4]
set yrange [0 : *]
set grid noxtics
set boxwidth n_stages < 24 ? 0.8 : 1
set xtics scale 0
if (n_stages < 24) { set xtics 1 }
do for [p = 1 : 2] {
    set tmargin at screen panel_tops[p]
    set bmargin at screen panel_bottoms[p]
    # bars of many stages reach the edge, and letters would stick to them
    set key at screen right_edge + (is_text ? 0.02 : 0), graph 1 left top vertical
    set xlabel p == 2 ? 'stage' : ''
    eval name_y(p == 1 ? sprintf('iteration (%s)', time_unit) : sprintf('device memory (%s)', memory_unit))
    if (p == 1) {
        plot for [k = n_times : 1 : -1] $time using 1:(column(k + 1)) with boxes linecolor rgb time_colors[k] title time_names[k]
    } else {
        plot for [k = n_parts : 1 : -1] $memory using 1:(column(k + 1)) with boxes linecolor rgb memory_colors[k] title memory_names[k]
    }
}
unset multiplot
