/* Embeds plots/NAME.gp as mist_script_NAME, a text with an end mark. See internal.h. */
#include "core/embed.h"
#include "plots/internal.h"

#define EMBED(name) MIST_EMBED(mist_script_##name, "plots/" #name ".gp");

EMBED(style)
MIST_PLOT_KINDS(EMBED)
