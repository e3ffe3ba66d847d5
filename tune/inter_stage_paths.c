/* K best paths through the table of inter_stage_table.h. See inter_stage_paths.h. */
#include "tune/inter_stage_paths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The sums of t in limit - rest and in cost are rounded
 * differently by less than this part. */
#define ROUNDING 1e-12

struct mist_stage_path_candidate {
    double cost_s;     /* C at the cell if the edge is taken */
    size_t edge;       /* of the table */
    size_t from_cell;  /* where the edge starts */
    int32_t from_rank; /* which path to there */
};

/* A cell with the paths to it found so far. */
struct mist_stage_path_node {
    size_t cell;
    struct mist_stage_path_candidate *heap;  /* [n_heap] least first */
    struct mist_stage_path_candidate *found; /* [n_found] rising cost, room for n_best */
    size_t n_heap;
    int32_t n_found;
    struct mist_stage_path_node *older; /* list of all nodes */
};

enum mist_status mist_stage_paths_init(struct mist_stage_paths *paths,
                                       const struct mist_stage_table *table,
                                       const struct mist_inter_stage_config *config,
                                       struct mist_err *err)
{
    *paths = (struct mist_stage_paths){.table = table};
    paths->n_best = config->n_best < INT32_MAX ? (int32_t)config->n_best : INT32_MAX;
    paths->node = calloc(table->n_cells, sizeof *paths->node);
    mist_arena_init(&paths->arena);
    if (!paths->node)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for paths through %zu cells",
                            table->n_cells);
    return MIST_OK;
}

void mist_stage_paths_restart(struct mist_stage_paths *paths, double limit_s)
{
    for (struct mist_stage_path_node *node = paths->newest; node; node = node->older)
        paths->node[node->cell] = NULL;
    paths->newest = NULL;
    mist_arena_fini(&paths->arena);
    mist_arena_init(&paths->arena);
    paths->limit_s = limit_s;
}

void mist_stage_paths_fini(struct mist_stage_paths *paths)
{
    mist_arena_fini(&paths->arena);
    free(paths->node);
    free(paths->scratch);
    *paths = (struct mist_stage_paths){0};
}

/* A total order (a cell and an edge have one origin): ties give the same list on every run. */
static bool is_before(const struct mist_stage_path_candidate *a,
                      const struct mist_stage_path_candidate *b)
{
    if (a->cost_s != b->cost_s)
        return a->cost_s < b->cost_s;
    return a->edge != b->edge ? a->edge < b->edge : a->from_rank < b->from_rank;
}

static void sift_down(struct mist_stage_path_candidate *heap, size_t n, size_t i)
{
    struct mist_stage_path_candidate moving = heap[i];
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= n)
            break;
        if (child + 1 < n && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &moving))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = moving;
}

static void push(struct mist_stage_path_node *node,
                 struct mist_stage_path_candidate candidate)
{
    size_t i = node->n_heap++;
    for (; i > 0 && is_before(&candidate, &node->heap[(i - 1) / 2]); i = (i - 1) / 2)
        node->heap[i] = node->heap[(i - 1) / 2];
    node->heap[i] = candidate;
}

static struct mist_stage_path_candidate pop(struct mist_stage_path_node *node)
{
    struct mist_stage_path_candidate least = node->heap[0];
    node->heap[0] = node->heap[--node->n_heap];
    if (node->n_heap > 0)
        sift_down(node->heap, node->n_heap, 0);
    return least;
}

static double point_cost(const struct mist_stage_table *table, size_t point, double c_s)
{
    double d_s = table->d_s[point];
    return table->t_s[point] + (c_s > d_s ? c_s : d_s);
}

static const struct mist_stage_group *group_of(const struct mist_stage_paths *paths,
                                               size_t edge)
{
    return &paths->table->groups[paths->table->edges[edge].i_group];
}

/* Cost of the edge after a prefix of cost c. */
static double edge_cost(const struct mist_stage_paths *paths, size_t edge, double c_s)
{
    return mist_stage_group_cost(paths->table, group_of(paths, edge), c_s);
}

/* Puts an edge from a cell into scratch[n] if it is worth taking; returns the new n. */
static size_t gather_edge(struct mist_stage_paths *paths, size_t edge, size_t from_cell,
                          double limit_s, size_t n)
{
    double c_s = paths->table->cost_s[from_cell];
    if (c_s == INFINITY || group_of(paths, edge)->n_usable == 0)
        return n;
    if (!MIST_RESERVE(paths->scratch, paths->scratch_capacity, n + 1)) {
        paths->out_of_memory = true;
        return n;
    }
    double cost_s = edge_cost(paths, edge, c_s);
    if (cost_s <= limit_s)
        paths->scratch[n++] =
            (struct mist_stage_path_candidate){cost_s, edge, from_cell, 0};
    return n;
}

/* All edges into a cell that are worth taking, into scratch; returns how many. */
static size_t gather_edges(struct mist_stage_paths *paths, size_t cell)
{
    const struct mist_stage_table *table = paths->table;
    size_t row = (size_t)table->n_layers + 1, state = cell / row, n = 0;
    int32_t layers = (int32_t)(cell % row);
    double limit_s =
        paths->limit_s + fabs(paths->limit_s) * ROUNDING - table->rest_s[cell];
    for (size_t e = table->edge_first[state]; e < table->edge_first[state + 1]; e++) {
        int32_t n_layers = group_of(paths, e)->n_layers;
        if (n_layers <= layers)
            n = gather_edge(
                paths, e,
                mist_stage_table_cell(table, table->edges[e].from, layers - n_layers),
                limit_s, n);
    }
    return n;
}

static struct mist_stage_path_node *visit(struct mist_stage_paths *paths, size_t cell)
{
    if (paths->node[cell])
        return paths->node[cell];
    size_t n = gather_edges(paths, cell);
    /* At most one candidate is pushed for each one popped:
     * the heap never outgrows its start. */
    size_t n_found = cell == 0 ? 1 : (size_t)paths->n_best;
    struct mist_stage_path_node *node = mist_arena_alloc(&paths->arena, sizeof *node);
    struct mist_stage_path_candidate *heap =
        mist_arena_alloc(&paths->arena, (n + 1) * sizeof *heap);
    struct mist_stage_path_candidate *found =
        mist_arena_alloc(&paths->arena, n_found * sizeof *found);
    if (paths->out_of_memory || !node || !heap || !found) {
        paths->out_of_memory = true;
        return NULL;
    }
    if (n > 0)
        memcpy(heap, paths->scratch, n * sizeof *heap);
    *node = (struct mist_stage_path_node){cell, heap, found, n, 0, paths->newest};
    for (size_t i = n / 2; i-- > 0;)
        sift_down(heap, n, i);
    if (cell == 0) /* nothing placed: the one path with no edge */
        node->n_found = 1;
    paths->newest = node;
    paths->node[cell] = node;
    return node;
}

/* The path number rank to the cell, NULL when there is none (or no memory). */
static const struct mist_stage_path_candidate *find_path(struct mist_stage_paths *paths,
                                                         size_t cell, int32_t rank)
{
    struct mist_stage_path_node *node = visit(paths, cell);
    while (node && node->n_found <= rank) {
        if (cell == 0)
            return NULL;
        if (node->n_found >
            0) { /* the edge used last comes back with the next path to it */
            struct mist_stage_path_candidate next = node->found[node->n_found - 1];
            next.from_rank++;
            const struct mist_stage_path_candidate *from =
                next.from_rank < paths->n_best
                    ? find_path(paths, next.from_cell, next.from_rank)
                    : NULL;
            if (from) {
                next.cost_s = edge_cost(paths, next.edge, from->cost_s);
                push(node, next);
            }
        }
        if (node->n_heap == 0)
            return NULL;
        node->found[node->n_found++] = pop(node);
    }
    return node && !paths->out_of_memory ? &node->found[rank] : NULL;
}

/* The point an edge stands for after a prefix of cost c. */
static size_t find_point(const struct mist_stage_paths *paths,
                         const struct mist_stage_path_candidate *path, double c_s)
{
    size_t point = group_of(paths, path->edge)->first; /* ties: the least t */
    while (point_cost(paths->table, point, c_s) > path->cost_s)
        point++;
    return point;
}

enum mist_status mist_stage_paths_get(struct mist_stage_paths *paths, int32_t rank,
                                      int32_t *i_option, double *c_s,
                                      struct mist_err *err)
{
    const struct mist_stage_table *table = paths->table;
    const struct mist_stage_path_candidate *path =
        find_path(paths, table->n_cells - 1, rank);
    *c_s = path ? path->cost_s : INFINITY;
    for (int32_t i = table->n_stages - 1; path && i >= 0; i--) {
        const struct mist_stage_path_candidate *from =
            find_path(paths, path->from_cell, path->from_rank);
        if (from)
            i_option[i] = table->i_option[find_point(paths, path, from->cost_s)];
        path = from;
    }
    if (paths->out_of_memory)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for the best %d solutions",
                            paths->n_best);
    return MIST_OK;
}
