# Where predicted and measured times of tasks differ: by kind of task, by stage and by rank, largest first.
# $bars: panel row x_low x_high colour; names of rows, notes and edges of panels are set before
set multiplot title title_text
half = is_text ? 0.2 : 0.36
set lmargin at screen left_edge
set rmargin at screen right_edge
set grid noytics
set ytics scale 0
set arrow from 0, graph 0 to 0, graph 1 nohead back linecolor rgb '#777777'
do for [p = 1 : 3] {
    set tmargin at screen panel_tops[p]
    set bmargin at screen panel_bottoms[p]
    set title panel_titles[p] offset 0, -0.6
    set xrange [lows[p] : highs[p]]
    set yrange [n_rows[p] + 0.5 : 0.5]
    eval row_names[p]
    eval row_notes[p]
    set xlabel p == 3 ? x_label : ''
    if (p == 1 && !is_text) { set key at screen 0.5, screen key_y center top horizontal samplen 1.2 font ',9' } else { unset key }
    plot $bars using ($1 == p ? ($3 + $4) / 2 : NaN):2:3:4:($2 - half):($2 + half):5 with boxxyerror linecolor rgb variable notitle, \
         for [k = 1 : n_keys] keyentry with boxes fillstyle solid linecolor rgb key_colors[k] title key_names[k]
    unset label
}
unset multiplot
