# How every picture of Mist looks. The program sets terminal, output, is_text and data before this.
# Colours: Okabe and Ito, "Color Universal Design" (2008), told apart with any colour vision.
set encoding utf8
set termoption noenhanced
set border 3 linewidth 1 linecolor rgb '#555555'
set tics out nomirror textcolor rgb '#222222'
set xtics font ',9'
set ytics font ',9'
set style fill solid 1.0 noborder
title_font = ',12'
# in the terminal above the name of the vertical axis
title_rows = is_text ? 1.3 : 0
set title noenhanced font title_font offset 0, title_rows
set key noenhanced Left reverse font ',9' samplen 1.5 spacing 1.15
set linetype 1 linecolor rgb '#0072B2' linewidth 1.5 pointtype 7
set linetype 2 linecolor rgb '#D55E00' linewidth 1.5 pointtype 5
set linetype 3 linecolor rgb '#009E73' linewidth 1.5 pointtype 9
set linetype 4 linecolor rgb '#CC79A7' linewidth 1.5 pointtype 13
set linetype 5 linecolor rgb '#E69F00' linewidth 1.5 pointtype 11
set linetype 6 linecolor rgb '#56B4E9' linewidth 1.5 pointtype 6
set linetype 7 linecolor rgb '#000000' linewidth 1.5 pointtype 4
set linetype 8 linecolor rgb '#999999' linewidth 1.5 pointtype 8
set linetype cycle 8
# colours of one meaning in all pictures: a bar, the chosen one, a band of small errors, changes of time
plain_color = '#56B4E9'
chosen_color = '#E69F00'
band_color = '#E0ECF4'
better_color = '#009E73'
worse_color = '#D55E00'
best_color = '#0072B2'
# dashes and points of lines behind the eighth
dash(i) = (i - 1) / 8 % 4 + 1
# points of curves, which take those of their colour in turns behind the 32nd
shape(i) = int(word('7 5 9 13 11 6 4 8', ((i - 1) + (i - 1) / 32) % 8 + 1))
# what stands beside a row
note = "font ',8' textcolor rgb '#444444'"
# in `plot for` without a turn a title takes room in the key all the same, unless it is ''
# `eval name_y(text)` names the axis; the terminal can't turn letters, and has the name above the axis
name_y(text) = is_text ? sprintf("set label 999 \"%s\" at screen 0, graph 1 left offset 1, 1.3", text) \
                       : sprintf("set ylabel \"%s\"", text)
# grid lines would look like data there
if (!is_text) { set grid xtics ytics linetype 1 linewidth 0.5 linecolor rgb '#DDDDDD' }
