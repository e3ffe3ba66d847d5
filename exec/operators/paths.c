/* See paths.h. */
#include "exec/operators/paths.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void mist_paths_describe_collectives(const struct mist_collectives *at,
                                     const struct mist_comm *comm, int32_t i_device,
                                     bool is_alone, struct mist_paths *out)
{
    char *text = out->collectives, mpi[64];

    mist_comm_describe(mpi, sizeof mpi);
    if (mist_comm_n_ranks(comm) == 1)
        snprintf(text, MIST_PATH_BYTES, "none for one rank");
    else if (at->ops->describe)
        at->ops->describe(at, text, MIST_PATH_BYTES);
    else if (strcmp(at->ops->name, "staged") != 0)
        snprintf(text, MIST_PATH_BYTES, "%s", mpi);
    else if (is_alone)
        snprintf(text, MIST_PATH_BYTES,
                 "%s, through memory of the host: other ranks share a GPU", mpi);
    else
        snprintf(text, MIST_PATH_BYTES,
                 "%s, through memory of the host: ranks share GPU %ld", mpi,
                 (long)i_device);
}

/* The text at an offset of each of all[n_ranks]. */
static void join(const struct mist_paths *all, int32_t n_ranks, size_t offset,
                 char text[MIST_PATH_BYTES])
{
    size_t length = 0;

    for (int32_t first = 0, end; first < n_ranks && length < MIST_PATH_BYTES;
         first = end) {
        const char *of = (const char *)&all[first] + offset, *gap = first ? "; " : "";
        for (end = first + 1; end < n_ranks; end++)
            if (strcmp((const char *)&all[end] + offset, of) != 0)
                break;
        char *to = text + length;
        size_t left = MIST_PATH_BYTES - length;
        if (first == 0 && end == n_ranks)
            snprintf(to, left, "%s", of);
        else if (end == first + 1)
            snprintf(to, left, "%srank %ld: %s", gap, (long)first, of);
        else
            snprintf(to, left, "%sranks %ld-%ld: %s", gap, (long)first, (long)end - 1,
                     of);
        length += strlen(to);
    }
}

void mist_paths_join(const struct mist_paths *all, int32_t n_ranks,
                     struct mist_paths *out)
{
    *out = (struct mist_paths){.n_fallbacks = 0};
    join(all, n_ranks, offsetof(struct mist_paths, attention), out->attention);
    join(all, n_ranks, offsetof(struct mist_paths, products), out->products);
    join(all, n_ranks, offsetof(struct mist_paths, collectives), out->collectives);
    join(all, n_ranks, offsetof(struct mist_paths, graphs), out->graphs);
    for (int32_t i = 0; i < n_ranks; i++)
        out->n_fallbacks += all[i].n_fallbacks;
}

enum mist_status mist_paths_gather(struct mist_comm *comm, const struct mist_paths *mine,
                                   struct mist_paths *out, struct mist_err *err)
{
    char *all;
    enum mist_status status =
        mist_comm_gather_bytes(comm, mine, sizeof *mine, &all, NULL, err);

    if (all)
        mist_paths_join((const struct mist_paths *)(void *)all, mist_comm_n_ranks(comm),
                        out);
    free(all);
    return status;
}

void mist_paths_print_one(const char *name, const char *text, FILE *stream)
{
    fprintf(stream, "%-11s %s\n", name, text);
}

void mist_paths_print(const struct mist_paths *paths, FILE *stream)
{
    mist_paths_print_one("attention", paths->attention, stream);
    mist_paths_print_one("products", paths->products, stream);
    mist_paths_print_one("messages", paths->collectives, stream);
    if (paths->graphs[0])
        mist_paths_print_one("graphs", paths->graphs, stream);
}
