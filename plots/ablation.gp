# What each group of knobs is worth: a bar for the best plan with it and those before.
# $points: row time bar; the names of rows and the labels above the bars are set before
set title title_text
unset key
eval name_y(sprintf('iteration of the best plan (%s)', time_unit))
set xlabel "groups of knobs, added one by one\nabove them: times faster than the first".(is_text ? '' : ', time of the search') offset 0, -is_staggered
set xrange [0.4 : n_rows + 0.6]
set yrange [0 : high]
set grid noxtics
set boxwidth 0.6
plot $points using 1:2 with boxes linecolor rgb plain_color notitle, \
     $points using 1:($2 - $3):(0):(2 * $3) with vectors nohead linewidth 1.5 linecolor rgb "#444444" notitle
