# Predicted against measured: on the diagonal they are equal, the band is 10 % to its sides.
# $points: measured predicted error_bar; their names are set before
set title title_text
set key top left
set xlabel sprintf('measured (%s)', time_unit)
eval name_y(sprintf('predicted (%s)', time_unit))
if (is_log) {
    set logscale xy
    set format xy '%g'
}
set xrange [low : high]
set yrange [low : high]
set samples 200
set errorbars small
plot for [k = 1 : !is_text] '+' using 1:($1 * 0.9):($1 * 1.1) with filledcurves linecolor rgb band_color title (is_text ? '' : 'within 10 %'), \
     x with lines linecolor rgb '#777777' linewidth 1 title 'equal', \
     $points using 1:2:3 with yerrorbars linetype 1 pointsize point_size linewidth point_size * 1.6 title summary
