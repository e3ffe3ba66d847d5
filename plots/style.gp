# How every picture of Mist looks. The program sets terminal, output and data before this.
# Colours: Okabe and Ito, "Color Universal Design" (2008), told apart with any colour vision.
set encoding utf8
set termoption noenhanced
set border 3 linewidth 1 linecolor rgb '#555555'
set tics out nomirror textcolor rgb '#222222'
set grid xtics ytics linetype 1 linewidth 0.5 linecolor rgb '#DDDDDD'
set style fill solid 1.0 noborder
set key noenhanced Left reverse
set title noenhanced
set linetype 1 linecolor rgb '#0072B2' linewidth 1.5 pointtype 7
set linetype 2 linecolor rgb '#D55E00' linewidth 1.5 pointtype 5
set linetype 3 linecolor rgb '#009E73' linewidth 1.5 pointtype 9
set linetype 4 linecolor rgb '#CC79A7' linewidth 1.5 pointtype 13
set linetype 5 linecolor rgb '#E69F00' linewidth 1.5 pointtype 11
set linetype 6 linecolor rgb '#56B4E9' linewidth 1.5 pointtype 6
set linetype 7 linecolor rgb '#000000' linewidth 1.5 pointtype 4
set linetype 8 linecolor rgb '#999999' linewidth 1.5 pointtype 8
set linetype cycle 8
