# Link measurements with their fits, and below the residuals of the fits.
# $points: name_index bytes measured_us fitted_us, each name in order of bytes
set multiplot title title_text
# eight colours, then again with other dashes and points
color(s) = (s - 1) % 8 + 1
dash(s) = (s - 1) / 8 % 4 + 1
set logscale x 2
set xrange [x_min : x_max]
set lmargin at screen left_edge
set rmargin at screen right_edge
set tmargin at screen 0.91
set bmargin at screen 0.42
set logscale y
set ylabel 'time (us); points measured, lines fitted'
set key at screen right_edge, screen 0.91 left top vertical font ',9' spacing 1.1
eval x_tics_blank
plot for [s = 1 : n_names] $points using ($1 == s ? $2 : NaN):3 with points linetype color(s) pointtype 5 + 2 * dash(s) pointsize 0.8 title link_names[s], \
     for [s = 1 : n_names] $points using ($1 == s ? $2 : NaN):4 with lines linetype color(s) dashtype dash(s) notitle
unset logscale y
unset key
set tmargin at screen 0.38
set bmargin at screen 0.12
set ylabel 'fitted - measured (%)'
set xlabel 'message size'
eval x_tics
set yrange [-residual_max : residual_max]
plot 0 with lines linecolor rgb '#777777' linewidth 1 notitle, \
     for [s = 1 : n_names] $points using ($1 == s ? $2 : NaN):(100 * ($4 / $3 - 1)) with linespoints linetype color(s) dashtype dash(s) pointtype 5 + 2 * dash(s) pointsize 0.6 notitle
unset multiplot
