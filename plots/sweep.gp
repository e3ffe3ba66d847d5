# Times of what-if: a point per replay, of a sweep the first edit on the axis and a curve for each value of the others.
# $points: place time bar, a block per curve; names and the baseline are set before
set title title_text
if (is_text) { set key outside bottom center horizontal } else {
    set key at screen 0.5, screen 0.02 center bottom horizontal
    set bmargin at screen bottom_edge
}
set ylabel sprintf('iteration (%s)', time_unit)
set xrange [0.5 : n_places + 0.5]
set yrange [0 : high]
set grid noxtics
plot for [i = 1 : n_curves] $points index i - 1 using (is_sweep ? $1 : NaN):2 with lines linetype i notitle, \
     for [i = 1 : n_curves] $points index i - 1 using 1:2:3 with yerrorbars linetype i pointsize 0.9 title (has_names ? curve_names[i] : ''), \
     (has_baseline ? baseline : NaN) with lines dashtype 2 linewidth 1.2 linecolor rgb '#444444' title (has_baseline ? 'baseline' : '')
