# How far predictions are off: a line per run, its name on the left, a note on the right; the band is 15 % to the sides.
# $points: row error bar is_inside, in percent; the labels of rows and notes are set before
set title title_text
if (has_band) { set key horizontal at screen (left_edge + right_edge) / 2, screen 0.01 center bottom }
set lmargin at screen left_edge; set rmargin at screen right_edge
if (has_band) { set bmargin at screen bottom_edge }
set xlabel summary
set xrange [-limit : limit]
set yrange [n_rows + 0.7 : 0.3]
set grid noytics
set arrow from 0, graph 0 to 0, graph 1 nohead back linecolor rgb '#777777'
if (has_band) { set object 1 rectangle from -15, graph 0 to 15, graph 1 behind fillcolor rgb '#E0ECF4' fillstyle solid noborder }
plot $points using ($4 > 0 ? $2 : NaN):1:3 with xerrorbars linetype 1 pointsize 0.9 title 'within 15 %', \
     $points using ($4 > 0 ? NaN : $2):1:3 with xerrorbars linetype 2 pointsize 0.9 title 'further off'
