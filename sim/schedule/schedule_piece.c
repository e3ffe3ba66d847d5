/* The pieces of work on parameters, and how they become tasks. See schedule_piece.h. */
#include "sim/schedule/schedule_piece.h"

#include "sim/schedule/schedule_internal.h"

/* ------------------------------------------------------------------------ declarations */

#define SHARDS_WEIGHTS   MIST_IF_SHARDS_WEIGHTS
#define SHARDS_GRADIENTS MIST_IF_SHARDS_GRADIENTS
#define SHARDS_STATE     MIST_IF_SHARDS_STATE
#define RANKS            MIST_IF_HAS_RANKS
#define EACH             MIST_IF_SUMS_EACH
#define WEIGHTS_AWAY     MIST_IF_WEIGHTS_AWAY
#define GRADIENTS_AWAY   MIST_IF_GRADIENTS_AWAY
#define STATE_AWAY       MIST_IF_STATE_AWAY
#define ON_HOST          MIST_IF_HOST_UPDATES
#define STEPS            MIST_IF_STEPS
#define BRINGS           MIST_IF_BRINGS
#define FIRST            MIST_IF_FIRST
#define LAST             MIST_IF_LAST

#define PIECE(moment, kind, stream, quantity, extent, from, to, all, none)               \
    {                                                                                    \
        MIST_MOMENT_##moment, MIST_TASK_##kind, MIST_STREAM_##stream, MIST_##quantity,   \
            MIST_EXTENT_##extent, MIST_PLACE_##from, MIST_PLACE_##to, all, none          \
    }

/* clang-format off */
const struct mist_piece mist_pieces[] = {
    /* The step on the host works on what is there. Its result comes to the device, unless it does so for the forward. */
    PIECE(WEIGHTS, OPTIMIZER, HOST, STATE, UPDATE, HOST, HOST, STEPS | ON_HOST, 0),
    PIECE(WEIGHTS, SWAP_IN_WEIGHT, HOST_TO_DEVICE, WEIGHTS, UPDATE, HOST, HOME, STEPS | ON_HOST, WEIGHTS_AWAY),
    PIECE(WEIGHTS, SWAP_IN_WEIGHT, HOST_TO_DEVICE, WEIGHTS, HOME, HOME, WORK, BRINGS | WEIGHTS_AWAY, 0),
    /* A step in front of all forwards brings what it writes for itself. */
    PIECE(WEIGHTS, SWAP_IN_WEIGHT, HOST_TO_DEVICE, WEIGHTS, UPDATE, HOME, WORK, STEPS | WEIGHTS_AWAY, BRINGS | ON_HOST),
    PIECE(WEIGHTS, SWAP_IN_WEIGHT, HOST_TO_DEVICE, WEIGHTS, UPDATE, HOME, WORK,
          STEPS | WEIGHTS_AWAY | ON_HOST | SHARDS_STATE, BRINGS | SHARDS_WEIGHTS),
    /* The step on the device brings what it reads ... */
    PIECE(WEIGHTS, SWAP_IN_GRADIENT, HOST_TO_DEVICE, GRADIENTS, UPDATE, HOME, WORK, STEPS | GRADIENTS_AWAY, ON_HOST),
    PIECE(WEIGHTS, SWAP_IN_OPTIMIZER, HOST_TO_DEVICE, STATE, UPDATE, HOME, WORK, STEPS | STATE_AWAY, ON_HOST),
    PIECE(WEIGHTS, OPTIMIZER, COMPUTE, STATE, UPDATE, WORK, WORK, STEPS, ON_HOST),
    /* ... then come the parts that other ranks updated, and all of it goes home. */
    PIECE(WEIGHTS, GATHER_PARAMETER, GPU_GPU, WEIGHTS, WHOLE, WORK, WORK, STEPS | SHARDS_STATE, SHARDS_WEIGHTS),
    PIECE(WEIGHTS, SWAP_OUT_WEIGHT, DEVICE_TO_HOST, WEIGHTS, HOME, WORK, HOME, STEPS | WEIGHTS_AWAY, ON_HOST),
    PIECE(WEIGHTS, SWAP_OUT_WEIGHT, DEVICE_TO_HOST, WEIGHTS, HOME, WORK, HOME,
          STEPS | WEIGHTS_AWAY | ON_HOST | SHARDS_STATE, SHARDS_WEIGHTS),
    PIECE(STEPPED, SWAP_OUT_OPTIMIZER, DEVICE_TO_HOST, STATE, UPDATE, WORK, HOME, STEPS | STATE_AWAY, ON_HOST),
    /* What passes compute with. */
    PIECE(WEIGHTS, GATHER_PARAMETER, GPU_GPU, WEIGHTS, WHOLE, HOME, WORK, BRINGS | SHARDS_WEIGHTS, 0),
    PIECE(GRADIENTS, SWAP_IN_GRADIENT, HOST_TO_DEVICE, GRADIENTS, WHOLE, HOME, WORK, GRADIENTS_AWAY, EACH | FIRST),
    /* What they leave: sums over ranks, added up, and their squares. */
    PIECE(SUM, REDUCE_GRADIENT, GPU_GPU, GRADIENTS, WHOLE, WORK, WORK, RANKS | EACH, 0),
    PIECE(SUM, REDUCE_GRADIENT, GPU_GPU, GRADIENTS, WHOLE, WORK, WORK, RANKS | LAST, EACH),
    PIECE(SUM, SWAP_IN_GRADIENT, HOST_TO_DEVICE, GRADIENTS, UPDATE, HOME, SUM, GRADIENTS_AWAY | EACH, FIRST),
    PIECE(SETTLE, ACCUMULATE_GRADIENT, COMPUTE, GRADIENTS, UPDATE, WORK, SUM, EACH, FIRST),
    PIECE(SETTLE, GRADIENT_NORM, COMPUTE, GRADIENTS, SHARD, SUM, SUM, LAST, 0),
    PIECE(SETTLE, SWAP_OUT_GRADIENT, DEVICE_TO_HOST, GRADIENTS, UPDATE, SUM, HOME, GRADIENTS_AWAY | EACH, 0),
    PIECE(SETTLE, SWAP_OUT_GRADIENT, DEVICE_TO_HOST, GRADIENTS, UPDATE, SUM, HOME, GRADIENTS_AWAY | LAST, EACH),
    PIECE(SETTLE, SWAP_OUT_GRADIENT, DEVICE_TO_HOST, GRADIENTS, WHOLE, SUM, HOME, GRADIENTS_AWAY, EACH | LAST),
    PIECE(SETTLE, SWAP_OUT_GRADIENT, DEVICE_TO_HOST, GRADIENTS, UPDATE, SUM, HOST, ON_HOST | LAST, GRADIENTS_AWAY),
};

#define ROOM(moment, until, quantity, extent, place, all, none)                          \
    {                                                                                    \
        MIST_MOMENT_##moment, MIST_UNTIL_##until, MIST_##quantity, MIST_EXTENT_##extent, \
            MIST_PLACE_##place, all, none                                                \
    }

const struct mist_room mist_rooms[] = {
    /* Weights that are cut over ranks or live in the host, whole, to compute with. */
    ROOM(WEIGHTS, PASSED, WEIGHTS, WHOLE, WORK, BRINGS | SHARDS_WEIGHTS, 0),
    ROOM(WEIGHTS, PASSED, WEIGHTS, WHOLE, WORK, BRINGS | WEIGHTS_AWAY, SHARDS_WEIGHTS),
    /* What a step on the device reads of the host's, and writes of it where it is in front of all forwards. */
    ROOM(WEIGHTS, NEXT_STEPPED, WEIGHTS, HOME, WORK, STEPS | WEIGHTS_AWAY, BRINGS | ON_HOST),
    ROOM(WEIGHTS, NEXT_STEPPED, WEIGHTS, HOME, WORK, STEPS | WEIGHTS_AWAY | ON_HOST | SHARDS_STATE,
         BRINGS | SHARDS_WEIGHTS),
    ROOM(WEIGHTS, STEPPED, GRADIENTS, UPDATE, WORK, STEPS | GRADIENTS_AWAY, ON_HOST),
    ROOM(WEIGHTS, NEXT_STEPPED, STATE, UPDATE, WORK, STEPS | STATE_AWAY, ON_HOST),
    /* A micro-batch's gradients where they can't begin at home ... */
    ROOM(GRADIENTS, SUMMED, GRADIENTS, WHOLE, WORK, GRADIENTS_AWAY, 0),
    ROOM(GRADIENTS, SUMMED, GRADIENTS, WHOLE, WORK, SHARDS_GRADIENTS, GRADIENTS_AWAY),
    ROOM(GRADIENTS, SUMMED, GRADIENTS, WHOLE, WORK, EACH, SHARDS_GRADIENTS | GRADIENTS_AWAY | FIRST),
    /* ... and the sum so far, which comes to be added to. */
    ROOM(SUM, SETTLED, GRADIENTS, UPDATE, SUM, GRADIENTS_AWAY | EACH, FIRST),
};
/* clang-format on */

_Static_assert(sizeof mist_pieces / sizeof *mist_pieces == MIST_N_PIECES, "a new piece?");
_Static_assert(sizeof mist_rooms / sizeof *mist_rooms == MIST_N_ROOMS, "a new room?");

/* -------------------------------------------------------------------------- conditions */

static bool sums_each(const struct mist_plan *plan, int32_t i_stage)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];

    return mist_stage_n_replicas(stage) > 1 &&
           (plan->reduces_each_micro_batch || stage->zero >= 2);
}

uint32_t mist_piece_stage_conditions(const struct mist_plan *plan, int32_t i_stage)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];

    if (mist_stage_n_replicas(stage) == 1)
        return 0;
    return MIST_IF_HAS_RANKS | (stage->zero >= 3 ? MIST_IF_SHARDS_WEIGHTS : 0) |
           (stage->zero >= 2 ? MIST_IF_SHARDS_GRADIENTS : 0) |
           (stage->zero >= 1 ? MIST_IF_SHARDS_STATE : 0) |
           (sums_each(plan, i_stage) ? MIST_IF_SUMS_EACH : 0);
}

uint32_t mist_piece_conditions(const struct mist_plan *plan, int32_t i_stage,
                               const struct mist_slab *slab)
{
    uint32_t of_stage = mist_piece_stage_conditions(plan, i_stage);

    /* the gradient of a weight that two stages hold adds up whole until they exchange it */
    if (slab->is_exchanged && !plan->reduces_each_micro_batch)
        of_stage &= ~(uint32_t)(MIST_IF_SHARDS_GRADIENTS | MIST_IF_SUMS_EACH);
    return of_stage | (slab->offloads_weights ? MIST_IF_WEIGHTS_AWAY : 0) |
           (slab->offloads_gradients ? MIST_IF_GRADIENTS_AWAY : 0) |
           (slab->offloads_state ? MIST_IF_STATE_AWAY : 0) |
           (slab->updates_on_host ? MIST_IF_HOST_UPDATES : 0);
}

bool mist_piece_joins_embedding(const struct mist_plan *plan,
                                const struct mist_slab *slab)
{
    return slab->is_alias && (plan->n_micro_batches == 1 || sums_each(plan, 0));
}

static bool is_shard(enum mist_quantity quantity, enum mist_extent extent,
                     uint32_t conditions)
{
    static const uint32_t shards[MIST_N_QUANTITIES] = {
        MIST_IF_SHARDS_WEIGHTS, MIST_IF_SHARDS_GRADIENTS, MIST_IF_SHARDS_STATE};

    switch (extent) {
    case MIST_EXTENT_WHOLE:
        return false;
    case MIST_EXTENT_HOME:
        return conditions & shards[quantity];
    case MIST_EXTENT_UPDATE:
        return conditions & MIST_IF_SHARDS_STATE;
    case MIST_EXTENT_SHARD:
        break;
    }
    return true;
}

/* ------------------------------------------------------------------------------ places */

int64_t mist_piece_elements(const struct mist_slab *slab, enum mist_quantity quantity,
                            enum mist_extent extent, uint32_t conditions,
                            int32_t n_replicas)
{
    return is_shard(quantity, extent, conditions) ? slab->n_elements / n_replicas
                                                  : slab->n_elements;
}

int64_t mist_quantity_bytes(const struct mist_job *job, enum mist_quantity quantity,
                            int64_t n_elements)
{
    switch (quantity) {
    case MIST_WEIGHTS:
        return n_elements * mist_dtype_weight_bytes(job->dtype);
    case MIST_GRADIENTS:
        return n_elements * mist_dtype_gradient_bytes(job->gradient_dtype);
    default:
        return n_elements * mist_dtype_state_bytes(job->dtype);
    }
}

/* Whether a piece computes with elements; others move bytes. */
static bool computes(const struct mist_piece *piece)
{
    return piece->stream == MIST_STREAM_COMPUTE || piece->stream == MIST_STREAM_HOST;
}

struct mist_task mist_piece_task(const struct mist_piece *piece,
                                 const struct mist_job *job, int64_t n_elements)
{
    return (struct mist_task){
        .kind = piece->kind,
        .stream = piece->stream,
        .group = piece->stream == MIST_STREAM_GPU_GPU ? MIST_GROUP_DP : MIST_GROUP_NONE,
        .layer = -1,
        .micro_batch = -1,
        .part = -1,
        .peer = -1,
        .bytes =
            computes(piece) ? 0 : mist_quantity_bytes(job, piece->quantity, n_elements),
        .n_elements = computes(piece) ? n_elements : 0,
    };
}

int64_t mist_schedule_elements(const struct mist_schedule_builder *at,
                               const struct mist_slab *slab, enum mist_quantity quantity,
                               enum mist_extent extent, int64_t *first)
{
    uint32_t conditions = mist_piece_conditions(at->plan, at->out->i_stage, slab);
    int64_t n = mist_piece_elements(slab, quantity, extent, conditions,
                                    mist_stage_n_replicas(at->stage));

    *first = is_shard(quantity, extent, conditions) ? at->out->i_replica * n : 0;
    return n;
}

int64_t mist_schedule_quantity_bytes(const struct mist_schedule_builder *at,
                                     enum mist_quantity quantity, int64_t n_elements)
{
    return mist_quantity_bytes(&at->plan->job, quantity, n_elements);
}

enum mist_role mist_schedule_quantity_role(enum mist_quantity quantity, int32_t i_slab)
{
    switch (quantity) {
    case MIST_WEIGHTS:
        return (enum mist_role)(MIST_ROLE_WEIGHTS + i_slab);
    case MIST_GRADIENTS:
        return (enum mist_role)(MIST_ROLE_GRADIENTS + i_slab);
    default:
        return MIST_ROLE_STATE;
    }
}

struct mist_schedule_work mist_schedule_work_on(const struct mist_schedule_builder *at,
                                                int32_t i_module, int32_t i_slab,
                                                int32_t micro_batch)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    const struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    struct mist_schedule_work work = {
        .i_module = i_module,
        .i_slab = i_slab,
        .micro_batch = micro_batch,
        .held = -1,
        .conditions = mist_piece_conditions(at->plan, at->out->i_stage, slab) |
                      (micro_batch == 0 ? MIST_IF_FIRST : 0) |
                      (micro_batch == at->plan->n_micro_batches - 1 ? MIST_IF_LAST : 0),
    };

    for (int q = 0; q < MIST_N_QUANTITIES; q++) {
        for (int p = 0; p < MIST_N_PLACES; p++)
            work.places[q][p] = state->home[q];
        work.places[q][MIST_PLACE_HOST] = state->host[q];
    }
    work.places[MIST_WEIGHTS][MIST_PLACE_WORK] = state->weights;
    return work;
}

/* ------------------------------------------------------------------------------- tasks */

static void use(struct mist_schedule_builder *at, int32_t task,
                const struct mist_schedule_work *work, enum mist_quantity quantity,
                enum mist_place_kind place, bool writes)
{
    (writes ? mist_schedule_write : mist_schedule_read)(
        at, task, mist_schedule_quantity_role(quantity, work->i_slab),
        work->places[quantity][place].buffer);
}

/* Bytes from the beginning of a place's buffer to an element of the slab. */
static int64_t offset_of(const struct mist_schedule_builder *at,
                         const struct mist_schedule_work *work,
                         enum mist_quantity quantity, enum mist_place_kind place,
                         int64_t element)
{
    return mist_schedule_quantity_bytes(at, quantity,
                                        element - work->places[quantity][place].first);
}

/* A copy of a range. */
static int32_t add_copy(struct mist_schedule_builder *at, const struct mist_piece *piece,
                        const struct mist_schedule_work *work, int32_t micro_batch,
                        int64_t first, int64_t n)
{
    enum mist_quantity quantity = piece->quantity;
    const struct mist_schedule_place *places = work->places[quantity];

    return mist_schedule_add_copy(
        at, piece->kind, piece->stream == MIST_STREAM_DEVICE_TO_HOST,
        at->out->modules[work->i_module], micro_batch, places[piece->from].buffer,
        offset_of(at, work, quantity, piece->from, first), places[piece->to].buffer,
        offset_of(at, work, quantity, piece->to, first),
        mist_schedule_quantity_bytes(at, quantity, n));
}

/* The step, on the device on weights that are there: the home of those that are cut. */
static int32_t add_step(struct mist_schedule_builder *at, const struct mist_piece *piece,
                        const struct mist_schedule_work *work)
{
    int32_t task = mist_schedule_add_task(at, piece->kind, piece->stream,
                                          at->out->modules[work->i_module], -1);
    bool is_home =
        piece->from != MIST_PLACE_HOST && !(work->conditions & MIST_IF_WEIGHTS_AWAY);

    use(at, task, work, MIST_WEIGHTS, is_home ? MIST_PLACE_HOME : piece->from, true);
    use(at, task, work, MIST_GRADIENTS, piece->from, false);
    use(at, task, work, MIST_STATE, piece->from, true);
    if (piece->stream != MIST_STREAM_COMPUTE || !(work->conditions & MIST_IF_STATE_AWAY))
        return task;
    /* of the step before: its room was not this one's */
    mist_schedule_swap_out_state(at);
    at->stepped = *work;
    return task;
}

static int32_t add_collective(struct mist_schedule_builder *at,
                              const struct mist_piece *piece,
                              struct mist_schedule_work *work, int32_t micro_batch,
                              int64_t n)
{
    int32_t task = mist_schedule_add_collective(
        at, piece->kind, MIST_GROUP_DP, at->out->modules[work->i_module], micro_batch,
        mist_schedule_quantity_bytes(at, piece->quantity, n));
    struct mist_schedule_place *places = work->places[piece->quantity];

    use(at, task, work, piece->quantity, MIST_PLACE_WORK, true);
    if (piece->quantity == MIST_WEIGHTS) {
        if (piece->from == MIST_PLACE_HOME && !(work->conditions & MIST_IF_WEIGHTS_AWAY))
            mist_schedule_read(at, task, MIST_ROLE_INPUT, places[MIST_PLACE_HOME].buffer);
    } else if ((work->conditions &
                (MIST_IF_SHARDS_GRADIENTS | MIST_IF_FIRST | MIST_IF_GRADIENTS_AWAY)) ==
               (MIST_IF_SHARDS_GRADIENTS | MIST_IF_FIRST)) {
        /* the first sum goes home by itself */
        mist_schedule_write(at, task, MIST_ROLE_OUTPUT, places[MIST_PLACE_HOME].buffer);
        places[MIST_PLACE_WORK] = places[MIST_PLACE_HOME];
    }
    return task;
}

/* Adds a micro-batch's sum to what there is. */
static int32_t add_accumulation(struct mist_schedule_builder *at,
                                const struct mist_piece *piece,
                                const struct mist_schedule_work *work, int64_t first)
{
    int32_t task =
        mist_schedule_add_task(at, piece->kind, piece->stream,
                               at->out->modules[work->i_module], work->micro_batch);

    if (task < 0)
        return -1;
    at->out->tasks[task].from_offset_bytes =
        offset_of(at, work, MIST_GRADIENTS, piece->from, first);
    at->out->tasks[task].to_offset_bytes =
        offset_of(at, work, MIST_GRADIENTS, piece->to, first);
    mist_schedule_read(at, task, MIST_ROLE_INPUT,
                       work->places[MIST_GRADIENTS][piece->from].buffer);
    mist_schedule_write(at, task, MIST_ROLE_OUTPUT,
                        work->places[MIST_GRADIENTS][piece->to].buffer);
    return task;
}

/* Sum of squares of this rank's shard of the finished gradients. */
static int32_t add_norm(struct mist_schedule_builder *at, const struct mist_piece *piece,
                        const struct mist_schedule_work *work, int64_t first)
{
    int32_t task =
        mist_schedule_add_task(at, piece->kind, piece->stream,
                               at->out->modules[work->i_module], work->micro_batch);

    if (task >= 0)
        at->out->tasks[task].from_offset_bytes =
            offset_of(at, work, MIST_GRADIENTS, piece->from, first);
    use(at, task, work, MIST_GRADIENTS, piece->from, false);
    return task;
}

static void add_piece(struct mist_schedule_builder *at, const struct mist_piece *piece,
                      struct mist_schedule_work *work)
{
    const struct mist_slab *slab =
        mist_schedule_plan_slab(at, work->i_module, work->i_slab);
    bool is_update = piece->if_all & MIST_IF_STEPS;
    int32_t k = is_update ? -1 : work->micro_batch, task;
    int64_t first,
        n = mist_schedule_elements(at, slab, piece->quantity, piece->extent, &first);

    switch (piece->kind) {
    case MIST_TASK_OPTIMIZER:
        task = add_step(at, piece, work);
        break;
    case MIST_TASK_ACCUMULATE_GRADIENT:
        task = add_accumulation(at, piece, work, first);
        break;
    case MIST_TASK_GRADIENT_NORM:
        task = add_norm(at, piece, work, first);
        break;
    default:
        task = piece->stream == MIST_STREAM_GPU_GPU
                   ? add_collective(at, piece, work, k, n)
                   : add_copy(at, piece, work, k, first, n);
    }
    if (task < 0)
        return;
    at->out->tasks[task].slab = (int8_t)work->i_slab;
    at->out->tasks[task].n_elements = computes(piece) ? n : 0;
    at->out->tasks[task].is_update = is_update;
    if (!(piece->if_all & MIST_IF_BRINGS))
        return;
    at->out->tasks[task].is_forward = work->is_forward;
    /* what the host has updated comes for the forward alone, unless ranks gather it */
    at->out->tasks[task].feeds_update =
        piece->stream != MIST_STREAM_GPU_GPU && (work->conditions & MIST_IF_STEPS) &&
        (!(work->conditions & MIST_IF_HOST_UPDATES) ||
         (work->conditions & (MIST_IF_SHARDS_STATE | MIST_IF_SHARDS_WEIGHTS)) ==
             MIST_IF_SHARDS_STATE);
}

static void add_room(struct mist_schedule_builder *at, const struct mist_room *room,
                     struct mist_schedule_work *work)
{
    const struct mist_slab *slab =
        mist_schedule_plan_slab(at, work->i_module, work->i_slab);
    struct mist_schedule_place *place = &work->places[room->quantity][room->place];
    bool is_update = room->if_all & MIST_IF_STEPS;
    int64_t n =
        mist_schedule_elements(at, slab, room->quantity, room->extent, &place->first);

    place->buffer = mist_schedule_add_buffer(
        at, MIST_ARENA_DEVICE, mist_schedule_quantity_role(room->quantity, work->i_slab),
        at->out->modules[work->i_module], is_update ? -1 : work->micro_batch,
        mist_schedule_quantity_bytes(at, room->quantity, n), false);
}

void mist_schedule_add_pieces(struct mist_schedule_builder *at, enum mist_moment moment,
                              struct mist_schedule_work *work)
{
    for (int i = 0; i < MIST_N_ROOMS; i++)
        if (mist_rooms[i].moment == moment &&
            mist_is_due(mist_rooms[i].if_all, mist_rooms[i].if_none, work->conditions))
            add_room(at, &mist_rooms[i], work);
    for (int i = 0; i < MIST_N_PIECES; i++)
        if (mist_pieces[i].moment == moment &&
            mist_is_due(mist_pieces[i].if_all, mist_pieces[i].if_none, work->conditions))
            add_piece(at, &mist_pieces[i], work);
}
