# A tornado: how much each lever changes the iteration, 10 % faster (or more) and 10 % slower (or less), and
# the best plan's where that is faster, if has_best is 1, as a second bar below.
# $points: row more less best, in percent; the names of rows and the labels of bars are set before
set title title_text
if (is_text) { set key outside bottom center horizontal } else {
    set key at screen 0.5, screen 0.02 center bottom horizontal
    set bmargin at screen bottom_edge
}
set lmargin at screen left_edge
set xlabel 'change of the iteration (%)'
set xrange [low : high]
set yrange [n_rows + 0.6 : 0.4]
set grid noytics
set arrow from 0, graph 0 to 0, graph 1 nohead back linecolor rgb '#777777'
up = has_best ? 0.18 : 0
half = has_best ? 0.17 : 0.36
plot $points using ($2 / 2):($1 - up):(abs($2) / 2):(half) with boxxyerror linecolor rgb '#009E73' \
         title '10 % faster, or more', \
     $points using ($3 / 2):($1 - up):(abs($3) / 2):(half) with boxxyerror linecolor rgb '#D55E00' \
         title '10 % slower, or less', \
     $points using (has_best ? $4 / 2 : NaN):($1 + up):(abs($4) / 2):(half) with boxxyerror linecolor rgb '#0072B2' \
         title (has_best ? 'faster, with the best plan for it' : '')
