# Live bytes of the device arena over time, one line per rank; one panel per timeline.
# $memory: panel rank_index x GiB, in order of time; a blank line between lines
set multiplot title title_text font title_font
set xrange [x_min : x_max]
# small devices are read in MiB
per_gib = y_max < 1 ? 1024 : 1
set yrange [0 : y_max * per_gib]
do for [p = 1 : n_panels] {
    set tmargin at screen panel_tops[p]
    set bmargin at screen panel_bottoms[p]
    eval name_y('device arena, live ('.(per_gib > 1 ? 'MiB' : 'GiB').')')
    set title panel_titles[p] font ',10' offset 0, (is_text ? title_rows : -0.6)
    if (p == n_panels) { set xlabel x_label; set format x '%g' } else { set xlabel ''; set format x '' }
    if (p == 1) { set key at screen 0.5, screen keys_top center top horizontal } else { unset key }
    plot for [r = 1 : n_ranks] $memory using ($1 == p && $2 == r ? $3 : NaN):($4 * per_gib) with steps linetype ((r - 1) % 8 + 1) dashtype dash(r) title rank_names[r], \
         for [k = 1 : has_limit] limit_gib * per_gib with lines linecolor rgb '#B00000' linewidth 2 dashtype 2 title (has_limit ? limit_name : '')
}
unset multiplot
