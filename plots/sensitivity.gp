# A tornado: how much each lever changes the iteration, 10 % faster (or more) and 10 % slower (or less), and
# the best plan's where that is faster, if has_best is 1, as a second bar below.
# $points: row more less best, in percent; the names of rows and the labels of bars are set before
set title title_text
set key at screen 0.5, screen key_y center bottom vertical
if (!has_best) { set key horizontal }
set xlabel 'change of the iteration (%)'
set xrange [low : high]
# a line of text for each bar, and one above and below; the nudge is for numbers that are rounded down
margin = !is_text ? 0.4 : has_best ? 0.25 : 0
nudge = is_text ? 0.05 : 0
set yrange [n_rows + 1 - margin + nudge : margin + nudge]
set grid noytics
set ytics scale 0
if (!is_text) { set arrow from 0, graph 0 to 0, graph 1 nohead back linecolor rgb '#777777' }
# in the terminal the line at zero is a character in each row, over bars of less than half of one
up = has_best ? (is_text ? 0.25 : 0.18) : 0
half = is_text ? 0 : has_best ? 0.17 : 0.36
plot $points using ($2 / 2):($1 - up):(abs($2) / 2):(half) with boxxyerror linecolor rgb better_color \
         title '10 % faster, or more', \
     $points using ($3 / 2):($1 - up):(abs($3) / 2):(half) with boxxyerror linecolor rgb worse_color \
         title '10 % slower, or less', \
     for [k = 1 : has_best] $points using ($4 / 2):($1 + up):(abs($4) / 2):(half) with boxxyerror linecolor rgb best_color \
         title (has_best ? 'faster, with the best plan for it' : ''), \
     for [k = 1 : is_text] $points using (0):($1 - up):('|') with labels notitle, \
     for [k = 1 : is_text && has_best] $points using (0):($1 + up):('|') with labels notitle
