/*
 * sim/plan: a plan that loads is saved, loads, and is saved as the same file; what is
 * derived from it stays in its bounds.
 */
#include "sim/plan/plan.h"
#include "tests/fuzz/fuzz.h"

/* Ranks and layers of the stages, one behind the other, are those of the plan. */
static void check_parts(const struct mist_plan *plan)
{
    int32_t n_ranks = mist_plan_n_ranks(plan), n_layers = 0;

    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        int32_t first = mist_plan_first_rank(plan, i);
        FUZZ_CHECK(0 <= first && first < mist_plan_first_rank(plan, i + 1), "stage %d",
                   i);
        FUZZ_CHECK(mist_plan_stage_of(plan, first) == i, "rank %d", first);
        for (int32_t c = 0; c < mist_plan_n_chunks(plan); c++) {
            int32_t from, n;
            mist_plan_chunk_layers(plan, i, c, &from, &n);
            FUZZ_CHECK(n > 0 && from >= 1 && from + n - 1 <= plan->model.n_layers,
                       "stage %d, chunk %d", i, c);
            n_layers += n;
        }
        FUZZ_CHECK(stage->dp * stage->tp == mist_plan_first_rank(plan, i + 1) - first,
                   "stage %d", i);
    }
    FUZZ_CHECK(mist_plan_first_rank(plan, plan->n_stages) == n_ranks, "%d ranks",
               n_ranks);
    FUZZ_CHECK(n_layers == plan->model.n_layers, "%d layers", n_layers);
}

static void check_round_trip(const struct mist_plan *plan)
{
    static struct mist_plan again;
    char once[FUZZ_PATH_BYTES], twice[FUZZ_PATH_BYTES];
    struct mist_err err = {0};

    fuzz_must(mist_plan_save(plan, fuzz_path(once, "once.json"), true, &err), &err);
    fuzz_must(mist_plan_load(once, &again, &err), &err);
    FUZZ_CHECK(mist_plan_fingerprint(&plan->model, &plan->job, 7) ==
                   mist_plan_fingerprint(&again.model, &again.job, 7),
               "another model or job");
    fuzz_must(mist_plan_save(&again, fuzz_path(twice, "twice.json"), true, &err), &err);
    FUZZ_CHECK(fuzz_same_files(once, twice), "another file");
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct mist_plan plan, untouched;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    if (n == 0)
        return 0;
    memset(&plan, 0xa5, sizeof plan);
    memset(&untouched, 0xa5, sizeof untouched);
    fuzz_write(fuzz_path(path, "in.json"), (struct fuzz_bytes){bytes, n});
    enum mist_status status = mist_plan_load(path, &plan, &err);
    if (status == MIST_OK) {
        check_parts(&plan);
        check_round_trip(&plan);
    } else {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(memcmp(&plan, &untouched, sizeof plan) == 0, "out was touched");
    }
    return 0;
}

void fuzz_write_seeds(void)
{
    static const char *const names[] = {"plan.json", "plan2.json"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct fuzz_buffer buffer = {0};
        char path[64];
        snprintf(path, sizeof path, "tests/data/cli/%s", names[i]);
        fuzz_add_file(&buffer, path);
        fuzz_seed(names[i], &buffer);
    }
}
