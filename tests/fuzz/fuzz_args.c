/*
 * sim/framework_args: arguments of each framework. What is read is a plan that passes its
 * check; where it can be written as arguments, these are read as the same plan.
 */
#include "sim/framework_args/framework_args.h"
#include "tests/fuzz/fuzz.h"

/* As mist-sim reads it; true: *plan is one. */
static bool read_args(enum mist_framework_name framework, bool has_model,
                      const char *path, struct mist_plan *plan)
{
    struct mist_model model;
    struct mist_err err = {0};
    struct mist_args args;

    mist_args_init(&args, framework);
    args.n_devices = 16;
    args.node_devices = 8;
    if (has_model) {
        fuzz_must(mist_model_load_preset("llama3-8b", &model, &err), &err);
        mist_args_set_model(&args, &model);
        mist_args_set(&args, MIST_ARG_SEQ_LEN, 2048);
    }
    enum mist_status status = mist_args_load(&args, path, &err);
    if (status == MIST_OK)
        status = mist_args_make_plan(&args, plan, &err);
    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, true);
    return status == MIST_OK;
}

static void check_round_trip(const struct mist_plan *plan)
{
    static struct mist_plan again;
    struct mist_args_beside beside;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES], once[FUZZ_PATH_BYTES], twice[FUZZ_PATH_BYTES];
    enum mist_status status =
        mist_args_save(plan, 8, fuzz_path(path, "out"), true, &beside, &err);

    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, false);
        return;
    }
    if (beside.model || mist_plan_n_ranks(plan) != 16)
        return; /* another model or cluster than read_args() has */
    FUZZ_CHECK(read_args(plan->job.framework, false, path, &again), "not read");
    memcpy(again.model.name, plan->model.name, sizeof again.model.name);
    fuzz_must(mist_plan_save(plan, fuzz_path(once, "once.json"), true, &err), &err);
    fuzz_must(mist_plan_save(&again, fuzz_path(twice, "twice.json"), true, &err), &err);
    FUZZ_CHECK(fuzz_same_files(once, twice), "another plan");
}

/* The first byte chooses framework and model. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    static struct mist_plan plan;
    struct fuzz_bytes input = {bytes, n};
    unsigned choice = fuzz_take(&input);
    char path[FUZZ_PATH_BYTES];

    fuzz_write(fuzz_path(path, "in"), input);
    if (read_args((enum mist_framework_name)(1 + choice % 3), choice % 2, path, &plan)) {
        struct mist_err err = {0};
        fuzz_must(mist_plan_check(&plan, &err), &err);
        check_round_trip(&plan);
    }
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("megatron",
                   "\x06--num-layers 4 --hidden-size 64 --num-attention-heads 4 "
                   "--seq-length 32\n--micro-batch-size 1 --swiglu "
                   "--normalization RMSNorm \\\n--position-embedding-type "
                   "rope --disable-bias-linear --bf16 # a comment\n"
                   "--pipeline-model-parallel-size 2 "
                   "--num-layers-per-virtual-pipeline-stage 1 "
                   "--global-batch-size 16 --data-path 'a b'");
    fuzz_seed_text("deepspeed", "\x01{\"train_batch_size\": 32, \"bf16\": {\"enabled\": "
                                "true}, \"zero_optimization\": {\"stage\": 3, "
                                "\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": "
                                "0.5}}, \"train_micro_batch_size_per_gpu\": \"auto\"}");
    fuzz_seed_text("torchtitan", "\x02[model]\nname = \"llama3\"\nflavor = '8B' # it\n"
                                 "[training]\nlocal_batch_size = 2\nseq_len = 8_192\n"
                                 "[parallelism]\npipeline_parallel_degree = 2\n"
                                 "pipeline_parallel_schedule = \"Interleaved1F1B\"\n"
                                 "[compile]\ncomponents = [\"model\",\n \"loss\"]\n");
}
