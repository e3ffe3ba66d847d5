/*
 * The gnuplot scripts of this folder, carried inside the program: a tool works wherever
 * it is put. Each is a text with an end mark.
 */
#ifndef MIST_PLOTS_SCRIPTS_H
#define MIST_PLOTS_SCRIPTS_H

extern const char mist_script_style[]; /* plots/style.gp; goes before the others */
extern const char mist_script_timeline[];
extern const char mist_script_memory[];
extern const char mist_script_ablation[];
extern const char mist_script_rent[];
extern const char mist_script_breakdown[];
extern const char mist_script_compare[];
extern const char mist_script_differences[];
extern const char mist_script_errors[];
extern const char mist_script_pareto[];
extern const char mist_script_sensitivity[];
extern const char mist_script_sweep[];
extern const char mist_script_links[];

#endif
