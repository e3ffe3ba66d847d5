# Where predicted and measured times of tasks differ: by kind of task, by stage and by rank, largest first.
# $bars: panel row x_low x_high colour; names of rows, notes and edges of panels are set before
set multiplot title title_text font title_font
half = is_text ? 0 : 0.36
set grid noytics
set ytics scale 0
if (!is_text) { set arrow from 0, graph 0 to 0, graph 1 nohead back linecolor rgb '#777777' }
# in the terminal the line at zero is a character in each row, over bars of less than half of one
do for [p = 1 : 3] {
    set tmargin at screen panel_tops[p]
    set bmargin at screen panel_bottoms[p]
    set title panel_titles[p] font ',10' offset 0, (is_text ? 0 : -0.6)
    set xrange [lows[p] : highs[p]]
    # a line of text for each row, and one above and below; the tenth is for numbers that are rounded down
    set yrange [n_rows[p] + (is_text ? 1.1 : 0.5) : (is_text ? 0.1 : 0.5)]
    eval row_names[p]
    eval row_notes[p]
    set xlabel p == 3 ? x_label : ''
    if (p == 1 && !is_text) { set key at screen 0.5, screen keys_top center top horizontal samplen 1.2 } else { unset key }
    plot $bars using ($1 == p ? ($3 + $4) / 2 : NaN):2:3:4:($2 - half):($2 + half):5 with boxxyerror linecolor rgb variable notitle, \
         for [k = 1 : n_keys] keyentry with boxes fillstyle solid linecolor rgb key_colors[k] title key_names[k], \
         for [k = 1 : is_text] $bars using ($1 == p ? 0 : NaN):2:('|') with labels notitle
    unset label
}
unset multiplot
