# How far predictions are off: a line per run, its name on the left, a note on the right; the band is 15 % to the sides.
# $points: row error bar is_inside, in percent; the labels of rows and notes are set before
set title title_text
set key horizontal at screen 0.5, screen key_y center bottom
set xlabel "predicted time against measured (%)\n".summary
set xrange [-limit : limit]
set yrange [n_rows + (is_text ? 1.1 : 0.7) : (is_text ? 0.1 : 0.3)]
set grid noytics
set ytics scale 0
set arrow from 0, graph 0 to 0, graph (is_text ? 0.95 : 1) nohead back linecolor rgb '#777777'
if (!is_text) {
    set ytics font ',8'
    set object 1 rectangle from -15, graph 0 to 15, graph 1 behind fillcolor rgb band_color fillstyle solid noborder
}
plot for [k = 1 : has_inside] $points using ($4 > 0 ? $2 : NaN):1:3 with xerrorbars linetype 1 pointsize 0.9 title (has_inside ? 'within 15 %' : ''), \
     for [k = 1 : has_outside] $points using ($4 > 0 ? NaN : $2):1:3 with xerrorbars linetype 2 pointsize 0.9 title (has_outside ? 'further off' : '')
