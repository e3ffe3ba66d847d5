/*
 * Embeds plots/<name>.gp as mist_script_<name>. See scripts.h.
 *
 * The assembler reads the files, relative to the root, as C17 has no way to. make doesn't
 * see that this file depends on them: touch it after a change of a script.
 */
#include "plots/scripts.h"

#define EMBED(name)                                                                      \
    __asm__(".pushsection .rodata\n"                                                     \
            ".global mist_script_" #name "\n"                                            \
            ".type mist_script_" #name ", @object\n"                                     \
            "mist_script_" #name ":\n"                                                   \
            ".incbin \"plots/" #name ".gp\"\n"                                           \
            ".byte 0\n"                                                                  \
            ".size mist_script_" #name ", . - mist_script_" #name "\n"                   \
            ".popsection\n")

EMBED(style);
EMBED(timeline);
EMBED(memory);
EMBED(ablation);
EMBED(breakdown);
EMBED(compare);
EMBED(errors);
EMBED(pareto);
EMBED(sensitivity);
EMBED(sweep);
EMBED(links);
