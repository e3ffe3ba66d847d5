# The best plan at each point of a sweep: four figures of it, the best of all in another colour.
# $points: point, then time, tokens/s of a device, MFU and cost, the error bar of the time, whether it is the best;
# the names of points and what stands where there is no plan are set before
set multiplot layout 2, 2 title title_text
unset key
set grid noxtics
set boxwidth 0.7
set xrange [0.4 : n_points + 0.6]
set xlabel point_name
do for [p = 1 : 4] {
    set title panel_names[p]
    set yrange [0 : highs[p]]
    plot $points using 1:($7 == 0 ? column(p + 1) : NaN) with boxes linecolor rgb '#56B4E9', \
         $points using 1:($7 == 1 ? column(p + 1) : NaN) with boxes linecolor rgb '#E69F00', \
         $points using 1:(p == 1 ? $2 - $6 : NaN):(0):(2 * $6) with vectors nohead linewidth 1.5 linecolor rgb '#444444'
}
unset multiplot
