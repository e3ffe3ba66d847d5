# Streams of ranks over time; one panel per timeline, all with the same axes.
# $boxes:  panel x_low x_high y_low y_high colour; later ones cover earlier ones
# $labels: panel x y text colour, the micro-batch of a pass in its widest box
set multiplot title title_text font title_font
set grid noytics
set ytics scale 0
set yrange [y_max : 0]
set xrange [x_min : x_max]
do for [p = 1 : n_panels] {
    set tmargin at screen panel_tops[p]
    set bmargin at screen panel_bottoms[p]
    set title panel_titles[p] font ',10' offset 0, -0.6
    if (p == n_panels) { set xlabel x_label; set format x '%g' } else { set xlabel ''; set format x '' }
    if (p == 1) { set key at screen 0.5, screen keys_top center top horizontal samplen 1.2 } else { unset key }
    plot $boxes using ($1 == p ? $2 : NaN):4:2:3:4:5:6 with boxxyerror linecolor rgb variable notitle, \
         $labels using ($1 == p ? $2 : NaN):3:4:5 with labels font ',8' textcolor rgb variable notitle, \
         for [k = 1 : n_keys] keyentry with boxes fillstyle solid linecolor rgb key_colors[k] title key_names[k]
}
unset multiplot
