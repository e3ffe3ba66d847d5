# What a stage can choose from: stable time t against the extra time d, one line per stage.
# $points: stage_index t d is_chosen, each stage in order of t; behind empty lines what was
# chosen off its stage's frontier
set title title_text
set key at screen right_edge, graph 1 left top vertical
set xlabel sprintf('t, a stable micro-batch (%s)', t_unit)
eval name_y(sprintf('d, extra time of the first and last micro-batch (%s)', d_unit))
set offsets graph 0.03, graph 0.03, graph 0.05, graph 0.03
plot for [s = 1 : n_curves] $points using ($1 == s ? $2 : NaN):3 with linespoints linetype ((s - 1) % 8 + 1) dashtype dash(s) pointtype shape(s) pointsize 0.7 title curve_names[s], \
     for [k = 1 : has_chosen] $points using ($4 > 0 ? $2 : NaN):3 with points pointtype 6 pointsize 2 linewidth 2 linecolor rgb '#000000' title (has_chosen ? 'chosen' : '')
