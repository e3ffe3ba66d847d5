/*
 * mist-exec makes the run that the other tests of whole training runs make by hand (same
 * losses, same parameters), also one task at a time, and keeps to the memory of the
 * cluster that a plan is for: it runs within 1 MiB of the limit, and refuses what is
 * above it before anything is allocated.
 */
#include "tests/unit/test.h"

#include "tests/prop/training_grid.h"

#include <jansson.h>

enum { N_STEPS = 4, SEQ = 32, N_LAYERS = 4 };

/* How a run of the tool ended. */
struct end {
    int code;
    json_t *json; /* NULL: none */
    char errors[2048];
};

/* The bytes that training_open_data reads as token ids: as text, the tool refuses them to
 * a model whose vocabulary is not 256. */
static void save_tokens(const char *path)
{
    char **texts = NULL;
    int32_t n = 0;
    struct mist_err err = {0};
    FILE *out = fopen(path, "wb");

    assert_non_null(out);
    must(mist_data_default_paths(&texts, &n, &err), &err);
    for (int32_t i = 0; i < n; i++) {
        FILE *in = fopen(texts[i], "rb");
        assert_non_null(in);
        for (int byte = fgetc(in); byte != EOF; byte = fgetc(in)) {
            fputc(byte, out);
            fputc(0, out);
        }
        fclose(in);
    }
    mist_data_free_paths(texts, n);
    assert_int_equal(fclose(out), 0);
}

static void run_tool(const struct mist_plan *plan, const char *options, struct end *end)
{
    struct scratch scratch;
    struct mist_err err = {0};
    char tool[1024], start[128] = "", command[4096], errors[128], tokens[128];
    int n_ranks = mist_plan_n_ranks(plan);

    scratch_tool_path(tool, sizeof tool);
    scratch_init(&scratch);
    snprintf(errors, sizeof errors, "%s", scratch_path(&scratch, "errors"));
    snprintf(tokens, sizeof tokens, "%s", scratch_path(&scratch, "tokens.u16"));
    save_tokens(tokens);
    must(mist_plan_save(plan, scratch_path(&scratch, "plan.json"), false, &err), &err);
    if (n_ranks > 1)
        snprintf(start, sizeof start, "mpirun --oversubscribe --bind-to none -n %d",
                 n_ranks);
    snprintf(command, sizeof command,
             "%s '%s' '%s' --json -q --iterations %d --seed %d --lr %g --clip 1 "
             "--data '%s' %s 2>'%s'",
             start, tool, scratch.path, N_STEPS, TRAINING_SEED, TRAINING_LEARNING_RATE,
             tokens, options, errors);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    end->json = json_loadf(pipe, 0, NULL);
    int status = pclose(pipe);
    end->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    scratch_read(errors, end->errors, sizeof end->errors);
    scratch_fini(&scratch);
}

static void run_well(const struct mist_plan *plan, const char *options, struct end *end)
{
    run_tool(plan, options, end);
    if (end->code != 0 || !end->json)
        fail_msg("exit code %d: %s", end->code, end->errors);
}

static void check_same(const struct mist_plan *plan, const char *options,
                       const struct training_outcome *expected)
{
    struct end end;
    char fingerprint[32];

    run_well(plan, options, &end);
    json_t *losses = json_object_get(end.json, "losses");
    assert_int_equal(json_array_size(losses), N_STEPS);
    for (size_t i = 0; i < N_STEPS; i++)
        assert_true(json_number_value(json_array_get(losses, i)) == expected->losses[i]);
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, expected->fingerprints[0]);
    assert_string_equal(
        json_string_value(json_object_get(end.json, "parameters_fingerprint")),
        fingerprint);
    json_decref(end.json);
}

/* Fills grid with one run and makes it. */
static void make_run(struct training_grid *grid, const char *text)
{
    struct training_run *run =
        training_grid_add(grid, TRAINING_GPT_TIED, N_LAYERS, SEQ, MIST_DTYPE_FP32);

    snprintf(run->text, sizeof run->text, "%s", text);
    run->n_steps = N_STEPS;
    run->clip_norm = 1;
    training_read_plan(run);
    training_grid_execute(grid);
}

TEST(test_tool_makes_the_same_run)
{
    static const char *const texts[] = {
        "G4: ck1 ow.5 oa.5", "G4 il2: dp2 z3 og.5 / dp2 z2",
        "G4 zbv: dp2 z2 oa.5 / dp2 ow.5", "G2 zb: tp2 sp / tp2 oo1"};

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct training_grid grid = {0};
        make_run(&grid, texts[i]);
        check_same(&grid.runs[0].plan, "", &grid.outcomes[0]);
        check_same(&grid.runs[0].plan, "--serial", &grid.outcomes[0]);
        check_same(&grid.runs[0].plan, "--delay-seed 5", &grid.outcomes[0]);
        training_grid_fini(&grid);
    }
}

TEST(test_memory_limit)
{
    struct training_grid grid = {0};
    struct end end;
    int64_t largest = 0, second = 0;

    make_run(&grid, "G4: l1 dp2 / l3 dp2 z3");
    struct mist_plan *plan = &grid.runs[0].plan;
    for (int i = 0; i < 4; i++) {
        int64_t bytes = grid.outcomes[0].ranks[i].arena_bytes[MIST_ARENA_DEVICE];
        largest = bytes > largest ? bytes : largest;
        second = i == 0 ? bytes : second;
    }
    plan->device_memory_bytes = largest + (1 << 20) - 1;
    check_same(plan, "", &grid.outcomes[0]);
    plan->device_memory_bytes = largest;
    check_same(plan, "", &grid.outcomes[0]);
    plan->device_memory_bytes = largest - 1;
    run_tool(plan, "", &end);
    assert_int_equal(end.code, 4);
    assert_null(end.json);
    assert_non_null(strstr(end.errors, largest == second ? "stage 0 needs " : "stage "));
    assert_non_null(strstr(end.errors, "on the device, the plan allows "));
    assert_null(strstr(strstr(end.errors, "needs ") + 1, "needs ")); /* said once */
    training_grid_fini(&grid);
}

/* More than there is anywhere: the planner says so, not the allocator. */
TEST(test_beyond_the_limit)
{
    struct training_grid grid = {0};
    struct end end;

    struct training_run *run =
        training_grid_add(&grid, TRAINING_GPT, N_LAYERS, SEQ, MIST_DTYPE_FP32);
    snprintf(run->text, sizeof run->text, "G1:");
    run->plan.model.hidden = 1 << 16;
    run->plan.model.head_dim = 1 << 14;
    run->plan.model.ffn = 1 << 18;
    training_read_plan(run);
    run->plan.device_memory_bytes = INT64_C(80) << 30;
    run_tool(&run->plan, "", &end);
    assert_int_equal(end.code, 4);
    assert_non_null(strstr(end.errors, "stage 0 needs "));
    assert_non_null(strstr(end.errors, "80.0 GiB"));
    training_grid_fini(&grid);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "child") == 0)
        return training_child_main(argv[2]);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    return run_listed_tests(NULL, NULL);
}
