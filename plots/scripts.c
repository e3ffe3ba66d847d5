/*
 * Embeds plots/<name>.gp as mist_script_<name>. See scripts.h.
 */
#include "plots/scripts.h"

#include "core/embed.h"

#define EMBED(name) MIST_EMBED(mist_script_##name, "plots/" #name ".gp")

EMBED(style);
EMBED(timeline);
EMBED(memory);
EMBED(ablation);
EMBED(rent);
EMBED(breakdown);
EMBED(compare);
EMBED(differences);
EMBED(errors);
EMBED(pareto);
EMBED(sensitivity);
EMBED(sweep);
EMBED(links);
