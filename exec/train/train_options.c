/* The command line of mist-exec. See train_options.h. */
#include "exec/train/train_options.h"

#include "core/atomic_file.h"
#include "core/embed.h"
#include "exec/comm/comm.h" /* where to print */
#include "exec/train/option_rows.h"

#include <string.h>

#define ROW(...)             MIST_OPTION_ROW(struct mist_exec_options, __VA_ARGS__)
#define FLAG(...)            MIST_OPTION_ROW_FLAG(struct mist_exec_options, __VA_ARGS__)
#define TEXT(...)            MIST_OPTION_ROW_TEXT(struct mist_exec_options, __VA_ARGS__)
#define FILES(...)           MIST_OPTION_ROW_FILES(struct mist_exec_options, __VA_ARGS__)
#define CHOICE(...)          MIST_OPTION_ROW_CHOICE(struct mist_exec_options, __VA_ARGS__)
#define WITH(...)            MIST_OPTION_ROW_WITH(struct mist_exec_options, __VA_ARGS__)
#define WITH_VALIDATION(...) WITH("validation-data validation-frac", __VA_ARGS__)

static const char *const nan_choices[] = {"abort", "skip", NULL};

static const struct mist_option option_table[] = {
    FILES(
        "data", data, "Data", "FILE",
        "text, ids (.u16, .u32), llm.c .bin or Megatron .idx; text: uint16: uint32: "
        "llmc: megatron: in front name the format; repeatable, or a pattern, 'a/*.bin'; "
        "default: this system's licence texts"),
    FILES("validation-data", validation_data, "Data", "FILE",
          "the same, for validation; repeatable"),
    MIST_OPTION_ROW_BUT(struct mist_exec_options, "validation-data", "validation-frac",
                        MIST_OPTION_FRAC, validation_frac, "Data", "FRAC", NULL, 1e-6,
                        0.99, "hold out this part at the end of the data"),
    WITH_VALIDATION("validate-every", MIST_OPTION_INT64, validate_every, "Data", "N", "0",
                    0, 1e9, "validate after every N steps and the last; 0: the last"),
    WITH_VALIDATION("validation-batches", MIST_OPTION_INT64, n_validation_batches, "Data",
                    "M", "0", 0, 1e9,
                    "global batches of a validation, the last with what is left; 0: 8, "
                    "or what there is"),
    ROW("iterations", MIST_OPTION_INT64, settings.n_iterations, "Training", "N", "30", 1,
        1e9, "optimizer steps of the whole run, resumed ones included"),
    ROW("lr", MIST_OPTION_DOUBLE, settings.lr, "Training", "RATE", "0.001", 0, 1e18,
        "learning rate"),
    ROW("lr-min", MIST_OPTION_DOUBLE, settings.lr_min, "Training", "RATE", "0", 0, 1e18,
        "learning rate that half a cosine leads down to"),
    ROW("warm-up", MIST_OPTION_INT64, settings.warm_up_steps, "Training", "N", "0", 0,
        1e9, "steps in which the learning rate grows from 0"),
    ROW("lr-decay-steps", MIST_OPTION_INT64, settings.lr_decay_steps, "Training", "N",
        "0", 0, 1e9,
        "step at which --lr-min is reached; 0: with --lr-min the last one, else never"),
    ROW("clip", MIST_OPTION_DOUBLE, settings.clip_norm, "Training", "NORM", "1", 0, 1e18,
        "scale gradients down to this L2 norm; 0: off"),
    ROW("beta1", MIST_OPTION_DOUBLE, settings.beta1, "Training", "B", "0.9", 0, 0.9999999,
        "AdamW: decay of the first moment"),
    ROW("beta2", MIST_OPTION_DOUBLE, settings.beta2, "Training", "B", "0.95", 0,
        0.9999999, "AdamW: decay of the second moment"),
    ROW("epsilon", MIST_OPTION_DOUBLE, settings.epsilon, "Training", "E", "1e-8", 0, 1,
        "AdamW: added to the denominator"),
    ROW("weight-decay", MIST_OPTION_DOUBLE, settings.weight_decay, "Training", "W", "0.1",
        0, 1e3, "AdamW: decay of matrices"),
    CHOICE("on-nan", on_nan, "Training", "WHAT", "abort", nan_choices,
           "when a loss or gradient is not finite: abort the run, or skip the step; 100 "
           "skipped in a row abort it, too"),
    TEXT("checkpoint", checkpoint, "Checkpoints", "DIR",
         "folder of this run's checkpoints, step-00000001 ..."),
    WITH("checkpoint", "save-every", MIST_OPTION_INT64, save_every, "Checkpoints", "N",
         "0", 0, 1e9, "one after every N steps and the last; 0: the last"),
    WITH("checkpoint", "keep", MIST_OPTION_INT64, keep, "Checkpoints", "K", "3", 0, 1e6,
         "delete all but the newest K; 0: keep all"),
    TEXT("resume", resume, "Checkpoints", "DIR",
         "go on from a checkpoint or the newest in DIR, under any plan of the model; "
         "training options that are not given are the checkpoint's; auto: from the "
         "newest in --checkpoint, or begin where there is none"),
    TEXT("verify", verify, "Checkpoints", "DIR",
         "look through every byte of the checkpoints in DIR, print which are whole, and "
         "end; needs no PLAN"),
    TEXT("import", import, "Checkpoints", "PATH",
         "begin with Hugging Face weights of the plan's model, of any family: folder or "
         ".safetensors"),
    TEXT("export", export, "Checkpoints", "DIR",
         "write model.safetensors and config.json after the run"),
    MIST_OPTION_ROW_CHOICE_WITH(struct mist_exec_options, "export", "export-dtype",
                                export_dtype, "Checkpoints", "TYPE", "fp32",
                                mist_dtype_run_words, "number format of --export"),
    MIST_OPTION_ROW_BACKEND(struct mist_exec_options, "Execution"),
    MIST_OPTION_ROW_BIND(struct mist_exec_options, "Execution"),
    ROW("threads", MIST_OPTION_INT64, n_threads, "Execution", "N", "0", 0, 1024,
        "compute threads of each rank on the CPU; 0: what the plan says, else 1"),
    MIST_OPTION_ROW_ATTENTION(struct mist_exec_options, "Execution"),
    CHOICE("graphs", graphs, "Execution", "WHEN", "auto", mist_graphs_words,
           "replay iterations on a GPU as one graph: on, off, or auto: where one rank "
           "trains and it is faster; same losses, bit for bit"),
    FLAG("allow-atomics", allows_atomics, "Execution",
         "let GPUs add in any order where that is faster (attention's backward, sums in "
         "NVLink switches); losses then differ in their last digits from run to run"),
    FLAG("serial", is_serial, "Execution",
         "one task at a time on each rank; same losses, bit for bit"),
    ROW("delay-seed", MIST_OPTION_INT64, delay_seed, "Execution", "N", "0", 0, 1e18,
        "random delays before tasks, to find races: results must not change; 0: none"),
    ROW("deadline", MIST_OPTION_TIME_S, deadline_s, "Execution", "TIME", "120s", 0.001,
        1e6,
        "how long a rank waits for another before the job ends, and a job for one that "
        "still saves in its folder"),
    FLAG("probe", probes, "Results",
         "time fixed work between steps, and report how fast the machine is, of what it "
         "was when it was profiled, and the prediction at that level"),
    ROW("log-every", MIST_OPTION_INT64, log_every, "Results", "N", "1", 1, 1e9,
        "print every Nth step"),
    TEXT("log", log, "Results", "FILE",
         "append a row for every step as it is done, JSON lines if FILE ends with "
         ".jsonl, else CSV; a resumed run goes on in its file"),
    TEXT("tensorboard", tensorboard, "Results", "DIR",
         "write the same as an event file of TensorBoard"),
    TEXT("timeline", timeline, "Results", "FILE",
         "write the measured tasks of the last iterations as CSV"),
    MIST_OPTION_ROWS_KERNELS(struct mist_exec_options, "Results",
                             " in the last iterations"),
    WITH("timeline kernels kernels-csv", "timed-iterations", MIST_OPTION_INT64, n_timed,
         "Results", "N", "3", 1, 1000,
         "last iterations, in the timeline and in the table of kernels"),
    MIST_OPTION_ROW_DRY_RUN(struct mist_exec_options),
    MIST_OPTION_ROW_FORCE(struct mist_exec_options),
    MIST_OPTION_ROW_JSON(struct mist_exec_options),
    MIST_OPTION_ROW_QUIET(struct mist_exec_options),
    ROW("seed", MIST_OPTION_INT64, settings.seed, MIST_OPTION_GROUP_COMMON, "N", "1", 0,
        0, "seed of everything random"),
};

static const char *const examples[] = {
    "mpirun -n 2 mist-exec plan.json --iterations 100",
    "mpirun -n 2 mist-exec plan.json --data train.bin --validation-frac 0.01 "
    "--checkpoint run --save-every 100",
    "mpirun -n 4 mist-exec wider_plan.json --data train.bin --validation-frac 0.01 "
    "--resume run --checkpoint run --save-every 100",
    "srun mist-exec plan.json --data train.bin --checkpoint run --resume auto "
    "--save-every 100    # starts, goes on or ends, however often it is run",
    NULL};

extern const char mist_exec_manual[];
MIST_EMBED(mist_exec_manual, "exec/mist_exec.man");

const struct mist_tool mist_exec_tool = {
    .name = "mist-exec",
    .purpose = "trains what a plan says, one process per device",
    .examples = examples,
    .options = option_table,
    .n_options = sizeof option_table / sizeof *option_table,
    .positional_name = "PLAN",
    .positional_help = "plan.json from mist-tune",
    .positional_min = 0, /* --verify needs none */
    .positional_max = 1,
    .manual = mist_exec_manual,
    .exit_texts = {[4] = "a stage does not fit into the memory that the plan names",
                   [6] = "--verify: not all checkpoints are whole"},
    .signal_text =
        "stopped by signal n: SIGINT, SIGTERM, SIGHUP or SIGUSR1 to any rank, or a "
        "closed pipe behind its output, end the run after its step, saved in "
        "--checkpoint; a second SIGINT ends it at once",
};

/* No two outputs into one file: the second would be found in the way after the run. */
static enum mist_status check_outputs(const struct mist_exec_options *options,
                                      struct mist_err *err)
{
    const struct mist_output outputs[] = {{"timeline", options->timeline},
                                          {"log", options->log},
                                          {"kernels-csv", options->kernels_csv}};

    return mist_outputs_check_names(outputs, sizeof outputs / sizeof *outputs, err);
}

/* Nothing is trained: what says how would be left unread. */
static enum mist_status check_verify(const struct mist_positionals *positionals,
                                     struct mist_err *err)
{
    const char *unused =
        mist_options_find_other(&mist_exec_tool, positionals, "verify json quiet");

    if (positionals->n > 0)
        return mist_err_set(err, MIST_ERR_USAGE, "--verify takes no %s",
                            mist_exec_tool.positional_name);
    if (unused)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--%s: --verify does not use it, as it trains nothing",
                            unused);
    return MIST_OK;
}

static enum mist_status check(const struct mist_exec_options *options,
                              const struct mist_positionals *positionals,
                              struct mist_err *err)
{
    if (options->verify)
        return check_verify(positionals, err);
    if (positionals->n == 0)
        return mist_err_set(err, MIST_ERR_USAGE, "expected %s: %s",
                            mist_exec_tool.positional_name,
                            mist_exec_tool.positional_help);

    bool is_auto = options->resume && strcmp(options->resume, "auto") == 0;
    if (is_auto && !options->checkpoint)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--resume auto needs --checkpoint DIR; a folder of the name "
                            "auto is ./auto");
    if (options->import && options->resume && !is_auto)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--import and --resume can't be given together, but for "
                            "--resume auto");
    return check_outputs(options, err);
}

enum mist_status mist_exec_options_parse(int argc, char **argv,
                                         struct mist_exec_options *out,
                                         struct mist_positionals *positionals,
                                         bool *is_done, struct mist_err *err)
{
    enum mist_status status =
        mist_options_parse(&mist_exec_tool, argc, argv, out, positionals,
                           mist_comm_launched_stdout(), is_done, err);

    if (status != MIST_OK || *is_done)
        return status;
    mist_train_settings_find_given(&mist_exec_tool, positionals, out->is_given);
    return check(out, positionals, err);
}
