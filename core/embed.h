/*
 * A file as a text inside the program, so that a tool works wherever it is installed.
 *
 *     extern const char mist_sim_manual[];
 *     MIST_EMBED(mist_sim_manual, "sim/mist_sim.man");
 *
 * The assembler reads the file, relative to the root, as C17 has no way to. The compiler
 * doesn't see that the object depends on it: the Makefile says so, under "Embedded files".
 */
#ifndef MIST_CORE_EMBED_H
#define MIST_CORE_EMBED_H

/* Defines symbol: the content of the file, ended by '\0'. */
#define MIST_EMBED(symbol, path)                                                         \
    __asm__(".pushsection .rodata\n"                                                     \
            ".global " #symbol "\n"                                                      \
            ".type " #symbol ", @object\n" #symbol ":\n"                                 \
            ".incbin \"" path "\"\n"                                                     \
            ".byte 0\n"                                                                  \
            ".size " #symbol ", . - " #symbol "\n"                                       \
            ".popsection\n")

#endif
