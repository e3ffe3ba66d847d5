# Times of what-if: a point per replay, of a sweep the first edit on the axis and a curve for each value of the others.
# $points: place time bar, a block per curve; names and the baseline are set before
set title title_text
set key at screen 0.5, screen key_y center bottom vertical
eval name_y(sprintf('iteration (%s)', time_unit))
set xlabel place_name
set xrange [0.5 : n_places + 0.5]
set yrange [0 : high]
set grid noxtics
# the baseline is below the others: in the terminal a character is of one curve, and gives way only in line type 0
set samples 2
plot for [k = 1 : has_baseline] baseline with lines linetype (is_text ? 0 : 1) dashtype 2 linewidth 1.2 linecolor rgb '#444444' title (has_baseline ? 'baseline' : ''), \
     for [i = 1 : n_curves] $points index i - 1 using 1:($2 - $3):(0):(2 * $3) with vectors nohead linetype i linewidth (n_curves > 1 ? 0.5 : 1.5) notitle, \
     for [i = 1 : n_curves] $points index i - 1 using (is_sweep ? $1 : NaN):2 with lines linetype i notitle, \
     for [i = 1 : n_curves] $points index i - 1 using 1:2 with points linetype i pointsize 0.9 title (has_names ? curve_names[i] : '')
