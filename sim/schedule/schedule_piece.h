/*
 * What is done to the parameters of a slab beside computing with them, declared once: a
 * table of pieces of work and one of the rooms that they need on the device, each under a
 * condition on the plan's knobs and the place in the iteration.
 *
 * Weights, gradients and optimizer state of a slab have places: a home that lasts, on the
 * device or in the host, and buffers that come and go. A piece moves a range of elements
 * from one place to another, or works on places. What it waits for follows from the
 * buffers that it names (schedule_internal.h), and its offsets from the first element
 * that each place holds. A room is a place that is not the home: a buffer that comes with
 * a moment, before its pieces, and goes with what it is for. The schedule makes the rooms
 * and runs the pieces of a moment whose conditions hold, in the order of the tables; the
 * closed form (sim/closed_form) sums the same rows, seconds of pieces and bytes of rooms.
 */
#ifndef MIST_SIM_SCHEDULE_PIECE_H
#define MIST_SIM_SCHEDULE_PIECE_H

#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"

/* What a slab consists of. */
enum mist_quantity {
    MIST_WEIGHTS,
    MIST_GRADIENTS,
    MIST_STATE, /* of the optimizer */
    MIST_N_QUANTITIES
};

enum mist_place_kind {
    MIST_PLACE_HOME, /* lasts over iterations */
    MIST_PLACE_WORK, /* on the device, to work with: the home where that is there, whole
                        where it must be */
    MIST_PLACE_HOST, /* in the host, for an update there: the home, or this rank's part of
                        what has its home on the device */
    MIST_PLACE_SUM,  /* gradients over micro-batches and ranks */
    MIST_N_PLACES
};

/* When pieces are dispatched. */
enum mist_moment {
    MIST_MOMENT_WEIGHTS,   /* before a pass reads weights, and in an optimizer step */
    MIST_MOMENT_STEPPED,   /* behind an optimizer step, when the next has its room */
    MIST_MOMENT_GRADIENTS, /* before a pass adds to gradients */
    MIST_MOMENT_SUM,       /* behind the pass that completes gradients of a micro-batch */
    MIST_MOMENT_SETTLE,    /* on their sum over ranks */
};

/* Conditions: of the stage, where it has data-parallel ranks; of the slab; of the
 * moment. */
enum {
    MIST_IF_SHARDS_WEIGHTS = 1 << 0,
    MIST_IF_SHARDS_GRADIENTS = 1 << 1,
    MIST_IF_SHARDS_STATE = 1 << 2,
    MIST_IF_HAS_RANKS = 1 << 3,    /* data-parallel ones, more than this */
    MIST_IF_SUMS_EACH = 1 << 4,    /* over ranks after every micro-batch */
    MIST_IF_WEIGHTS_AWAY = 1 << 5, /* their home is in the host; so of the next two */
    MIST_IF_GRADIENTS_AWAY = 1 << 6,
    MIST_IF_STATE_AWAY = 1 << 7,
    MIST_IF_HOST_UPDATES = 1 << 8,
    MIST_IF_STEPS = 1 << 9,   /* the optimizer step is taken now */
    MIST_IF_BRINGS = 1 << 10, /* weights are brought for a pass */
    MIST_IF_FIRST = 1 << 11,  /* first, last micro-batch */
    MIST_IF_LAST = 1 << 12
};

/* Elements of a slab that a piece is about. */
enum mist_extent {
    MIST_EXTENT_WHOLE,
    MIST_EXTENT_HOME,   /* what the home of the quantity has */
    MIST_EXTENT_UPDATE, /* what this rank updates */
    MIST_EXTENT_SHARD   /* an equal part for each data-parallel rank */
};

struct mist_piece {
    enum mist_moment moment;
    enum mist_task_kind kind;
    enum mist_stream stream;
    enum mist_quantity quantity;
    enum mist_extent extent;
    enum mist_place_kind from, to;
    uint32_t if_all, if_none; /* bits */
};

/* How long a room lasts. What a pass needs is brought in front of the pass before it. */
enum mist_until {
    MIST_UNTIL_PASSED,  /* the pass that computes with it has */
    MIST_UNTIL_SUMMED,  /* the pass has; where gradients wait for their sum over ranks
                              or micro-batches, or leave for the host, the next one and
                              what is computed on the sum have */
    MIST_UNTIL_SETTLED, /* what is computed on the sum, behind the next pass, has */
    MIST_UNTIL_STEPPED, /* the optimizer step of the slab has */
    MIST_UNTIL_NEXT_STEPPED, /* the next step has: it leaves beside that one */
};

struct mist_room {
    enum mist_moment moment;
    enum mist_until until;
    enum mist_quantity quantity;
    enum mist_extent extent;
    enum mist_place_kind place;
    uint32_t if_all, if_none; /* bits */
};

/* The tables. */
enum { MIST_N_PIECES = 23, MIST_N_ROOMS = 10 };
extern const struct mist_piece mist_pieces[];
extern const struct mist_room mist_rooms[];

/* Whether a piece is done, or a room made, where these conditions hold. */
static inline bool mist_is_due(uint32_t if_all, uint32_t if_none, uint32_t conditions)
{
    return (conditions & if_all) == if_all && !(conditions & if_none);
}

/* Conditions of a stage, and of a slab there but for the moment. */
uint32_t mist_piece_stage_conditions(const struct mist_plan *plan, int32_t i_stage);
uint32_t mist_piece_conditions(const struct mist_plan *plan, int32_t i_stage,
                               const struct mist_slab *slab);

/* Whether the gradients of a slab are in the room of the embedding's, which adds to them:
 * a tied head's on the same rank, where those of a micro-batch are complete by
 * themselves. Elsewhere they are added up apart, as on two stages. */
bool mist_piece_joins_embedding(const struct mist_plan *plan,
                                const struct mist_slab *slab);

/* Elements of a slab that an extent of a quantity has where these conditions hold. */
int64_t mist_piece_elements(const struct mist_slab *slab, enum mist_quantity quantity,
                            enum mist_extent extent, uint32_t conditions,
                            int32_t n_replicas);
int64_t mist_quantity_bytes(const struct mist_job *job, enum mist_quantity quantity,
                            int64_t n_elements);

/* A piece on n elements as a task: what its price depends on. */
struct mist_task mist_piece_task(const struct mist_piece *piece,
                                 const struct mist_job *job, int64_t n_elements);

#endif
