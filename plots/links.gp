# Link measurements with their fits, and below the residuals of the fits.
# $points: name_index bytes measured_us fitted_us, each name in order of bytes
set multiplot title title_text font title_font
# eight colours, then again with other dashes and points, which are hollow behind the 32nd
color(s) = (s - 1) % 8 + 1
mark(s) = 5 + 2 * dash(s) - (s - 1) / 32 % 2
set logscale x 2
set xrange [x_min : x_max]
unset key
do for [p = 1 : 2] {
    set tmargin at screen panel_tops[p]
    set bmargin at screen panel_bottoms[p]
    if (p == 1) {
        set logscale y
        eval name_y("time (us); points measured, lines fitted")
        eval x_tics_blank
        plot for [s = 1 : n_curves] $points using ($1 == s ? $2 : NaN):3 with points linetype color(s) pointtype mark(s) pointsize 0.8, \
             for [s = 1 : n_curves] $points using ($1 == s ? $2 : NaN):4 with lines linetype color(s) dashtype dash(s)
    } else {
        unset logscale y
        eval name_y('fitted - measured (%)')
        set xlabel 'message size'
        eval x_tics
        set yrange [-residual_max : residual_max]
        plot 0 with lines linecolor rgb '#777777' linewidth 1, \
             for [s = 1 : n_curves] $points using ($1 == s ? $2 : NaN):(100 * ($4 / $3 - 1)) with linespoints linetype color(s) dashtype dash(s) pointtype mark(s) pointsize 0.6
    }
}
# the key has as many rows as fit beside its axes, here an empty panel of the height of both
set bmargin at screen panel_bottoms[2]
set tmargin at screen panel_tops[1]
set key at screen right_edge, graph 1 left top vertical
unset logscale
unset border
unset tics
unset grid
unset xlabel
unset ylabel
unset label
plot [0 : 1] [0 : 1] -1 notitle, \
     for [s = 1 : n_curves] keyentry with points linetype color(s) pointtype mark(s) pointsize 0.8 title curve_names[s]
unset multiplot
