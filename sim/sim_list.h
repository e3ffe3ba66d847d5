/*
 * What mist-sim --list prints: the words of a trace set, and those of --what-if. Operators
 * with their phases, the dimensions of their shapes and what a row's time includes;
 * operations of links with theirs; what edits can be of.
 */
#ifndef MIST_SIM_SIM_LIST_H
#define MIST_SIM_SIM_LIST_H

#include "core/emit.h"

/* Three lists, "operators", "links" and "what_if". */
void mist_sim_list_add(struct mist_emit *emit);

/* The list "links" of a trace set: each measured size, and what the others of its link say
 * of it, as mist-plot links draws it. MIST_ERR_INPUT (also: there is none), MIST_ERR_IO,
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_sim_list_add_links(struct mist_emit *emit,
                                                         const char *cluster,
                                                         struct mist_err *err);

#endif
