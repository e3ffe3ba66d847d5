# The best plan at each point of a sweep: four figures of it, the best of all in another colour.
# $points: point, then time, tokens/s of a device, MFU and cost, the error bar of the time, whether it is the best;
# the names of points and what stands where there is no plan are set before
set multiplot title title_text font title_font
set grid noxtics
set boxwidth 0.7
set xrange [0.4 : n_points + 0.6]
set xtics scale 0
if (turn > 0) { set xtics rotate by -turn }
panel_width = (right_edge - left_edge - gap_x) / 2
do for [p = 1 : 4] {
    left = left_edge + (p % 2 == 0 ? panel_width + gap_x : 0)
    set lmargin at screen left
    set rmargin at screen left + panel_width
    set tmargin at screen panel_tops[p < 3 ? 1 : 2]
    set bmargin at screen panel_bottoms[p < 3 ? 1 : 2]
    set title panel_names[p] font ',10' offset 0, -0.5
    # gnuplot would put the axis' name below where it takes turned names to end, maybe off the page
    if (p == 3 && !is_text) { set label 998 point_name at graph 0.5, screen point_name_y center }
    set xlabel p > 2 && is_text ? point_name : ''
    set yrange [0 : highs[p]]
    if (p == 1) { set key at screen 0.5, screen keys_top center top horizontal } else { unset key }
    plot $points using 1:($7 == 0 ? column(p + 1) : NaN) with boxes linecolor rgb plain_color title 'best plan', \
         $points using 1:($7 == 1 ? column(p + 1) : NaN) with boxes linecolor rgb chosen_color title 'best point', \
         $points using 1:(p == 1 ? $2 - $6 : NaN):(0):(2 * $6) with vectors nohead linewidth 1.5 linecolor rgb '#444444' notitle
}
unset multiplot
