/* Options of mist-sim. See sim_options.h. */
#include "sim/sim_options.h"

#include "core/embed.h"
#include "sim/model/framework.h"
#include "sim/replay/packing.h"

#include <string.h>

static const char *const framework_choices[] = {"plan",          "ours",
                                                "megatron",      "deepspeed",
                                                "torchtitan",    "torchtitan-compiled",
                                                "megatron-2021", "deepspeed-2021",
                                                "llm-foundry",   NULL};
static const char *const attention_choices[] = {"plan",   "flash", "fused", "unfused",
                                                "flash1", "cudnn", NULL};
static const char *const recompute_choices[] = {"plan", "none", "selective", "full",
                                                NULL};

static const char *const dtype_choices[] = {"job", "fp32", "bf16", "fp16", NULL};

#define ROW(...)         MIST_OPTION_ROW(struct mist_sim_options, __VA_ARGS__)
#define FLAG(...)        MIST_OPTION_ROW_FLAG(struct mist_sim_options, __VA_ARGS__)
#define TEXT(...)        MIST_OPTION_ROW_TEXT(struct mist_sim_options, __VA_ARGS__)
#define LIST(...)        MIST_OPTION_ROW_LIST(struct mist_sim_options, __VA_ARGS__)
#define FILES(...)       MIST_OPTION_ROW_FILES(struct mist_sim_options, __VA_ARGS__)
#define CHOICE(...)      MIST_OPTION_ROW_CHOICE(struct mist_sim_options, __VA_ARGS__)
#define CHOICE_WITH(...) MIST_OPTION_ROW_CHOICE_WITH(struct mist_sim_options, __VA_ARGS__)
#define WITH(...)        MIST_OPTION_ROW_WITH(struct mist_sim_options, __VA_ARGS__)
#define COUNT(i_name, i_member, i_max, i_help)                                           \
    ROW(i_name, MIST_OPTION_INT64, job.i_member, "Job without a plan", "N", "0", 0,      \
        i_max, i_help)

static const struct mist_option option_table[] = {
    TEXT("cluster", cluster, "Input", "CLUSTER",
         "trace set, or a preset such as h100-sxm:8x8,nic=8x400Gb/s; default: what the "
         "plan was tuned for"),
    FLAG("presets", lists_presets, "Input",
         "list the presets with their figures and sources, and end"),
    FLAG("list", lists_words, "Input",
         "list the operators, links and dimensions of trace sets, and what a time "
         "includes; or the links of --cluster, how far each size is off by the others; "
         "or the arguments of --framework and what becomes of them, and end"),
    CHOICE("framework", framework, "Input", "NAME", "plan", framework_choices,
           "who trains; others can be predicted, not run"),
    CHOICE(
        "attention", attention, "Input", "WAY", "plan", attention_choices,
        "of another framework; plan: what it has usually, which of megatron is fused "
        "(flash with transformer_engine); flash: FlashAttention-2, flash1: that of 2022"),
    CHOICE("recompute", recompute, "Input", "WHAT", "plan", recompute_choices,
           "in all stages; selective: attention, as other frameworks do"),
    LIST("what-if", what_if, "Input", "NAME=VALUE",
         "with another cluster, 2x is twice as fast, or as much: kernel.NAME=2x, "
         "link.nic=400Gb/s, device=h200, launch=none, rank.N=0.8x; --list has all names; "
         "repeatable"),
    LIST("sweep", sweep, "Input", "NAME=V1:V2:..",
         "replay once per value of a what-if; of several, with every combination"),
    FLAG("sensitivity", finds_sensitivity, "Input",
         "rank what would help most: each kind of kernel and link, memory and launches "
         "10 % faster, and slower"),
    WITH("sensitivity", "retune", MIST_OPTION_FLAG, retunes, "Input", NULL, NULL, 0, 0,
         "beside --sensitivity: and how much more if the plan may change, by mist-tune, "
         "which searches once for each"),
    TEXT("model", job.model, "Job without a plan", "NAME",
         "preset, or a Hugging Face config.json"),
    TEXT("from-args", job.from_args, "Job without a plan", "FILE",
         "read Megatron-LM's command line, DeepSpeed's JSON or torchtitan's TOML, as "
         "--framework says; options say the rest"),
    COUNT("tp", tp, 1 << 20, "tensor-parallel size; 0: 1"),
    COUNT("cp", cp, 1 << 20, "context-parallel size; 0: 1"),
    COUNT("pp", pp, MIST_MAX_STAGES, "stages of the pipeline; 0: 1"),
    COUNT("dp", dp, 1 << 20, "data-parallel size; 0: all devices that are left"),
    COUNT("micro-batch", micro_batch, 1 << 24, "samples of a micro-batch"),
    COUNT("global-batch", global_batch, 1 << 24,
          "samples per optimizer step; 0: one micro-batch each"),
    COUNT("seq-len", seq_len, MIST_MODEL_MAX_SEQ, "tokens per sample"),
    COUNT("zero", zero, 3, "level of ZeRO"),
    COUNT("chunks", n_chunks, 1 << 12, "of each stage, of an interleaved pipeline"),
    FLAG("sequence-parallel", job.is_sequence_parallel, "Job without a plan",
         "tensor-parallel ranks share the tokens between products"),
    FLAG("no-dropout", job.has_no_dropout, "Job without a plan",
         "of another framework that has it"),
    FLAG("fp8", job.has_fp8_products, "Job without a plan",
         "another framework's products of blocks, in floats of 8 bits"),
    CHOICE("dtype", job.dtype, "Job without a plan", "TYPE", "job", dtype_choices,
           "of weights and activations; job: what arguments say, else bf16"),
    CHOICE("gradient-dtype", job.gradient_dtype, "Job without a plan", "TYPE", "job",
           dtype_choices, "of gradients; job: what arguments say, else fp32"),
    FILES(
        "replay", replay, "Replay", "FILES",
        "no prediction but what a job recorded, gzip or not: traces of torch.profiler "
        "('rank*.json', or their folder), a pipeline's operations (CSV), or mist-exec's "
        "timeline of PLAN: the causes of its time, and by --what-if what it would have "
        "taken"),
    TEXT("lengths", lengths, "Replay", "LENGTHS",
         "sequences are not all as long as samples: lognormal:median=N,sigma=X, or a "
         "file of lengths in tokens, one a line or length,count, to draw from"),
    CHOICE_WITH("lengths", "packing", packing, "Replay", "RULE", "none",
                mist_packing_names,
                "how they fill samples; none: each is one; pad: each is as long as the "
                "longest of its micro-batch; first-fit, sorted: several make a sample, "
                "in order or the longest first"),
    ROW("iterations", MIST_OPTION_INT64, n_iterations, "Replay", "N", NULL, 1, 1000,
        "iterations in a row, of which the last counts, or with --lengths and --jitter "
        "all but the first; usually 2, with --lengths 101"),
    ROW("jitter", MIST_OPTION_FRAC, jitter_frac, "Replay", "FRAC", "0", 0, 1,
        "relative standard deviation of every task's time"),
    ROW("threads", MIST_OPTION_INT64, n_threads, "Replay", "N", "0", 0, 1024,
        "compute threads of a rank (memory); 0: what the plan says, else 1"),
    FLAG("unfolded", is_unfolded, "Replay",
         "replay every rank, also those that can't differ"),
    FLAG("explain", explains, "Results",
         "where the time goes, and what is in memory at its peak"),
    FLAG("causes", finds_causes, "Results",
         "what slows iterations down when --lengths, --jitter or --what-if rank.N make "
         "them uneven: each cause, stage, rank and micro-batch made even, and alone"),
    TEXT("compare", compare, "Results", "FILE",
         "measured timeline.csv of this plan to put beside the prediction; where they "
         "differ most, by kind of task and rank"),
    TEXT("chrome", chrome, "Results", "FILE",
         "write the timeline as Chrome trace JSON (Perfetto)"),
    TEXT("save-plan", save_plan, "Results", "FILE",
         "write the plan that was replayed as JSON"),
    TEXT("export", export, "Results", "FILE",
         "write the plan as arguments of its framework"),
    MIST_OPTION_ROW_OUTPUT(struct mist_sim_options, "write the predicted timeline as CSV",
                           NULL),
    MIST_OPTION_ROW_DRY_RUN(struct mist_sim_options),
    MIST_OPTION_ROW_FORCE(struct mist_sim_options),
    MIST_OPTION_ROW_JSON(struct mist_sim_options),
    MIST_OPTION_ROW_CSV(struct mist_sim_options),
    MIST_OPTION_ROW_QUIET(struct mist_sim_options),
    MIST_OPTION_ROW_SEED(struct mist_sim_options),
    MIST_OPTION_ROW_PROGRESS(struct mist_sim_options),
    MIST_OPTION_ROW_VERBOSE(struct mist_sim_options),
};

static const char *const examples[] = {
    "mist-sim plan.json",
    "mist-sim plan.json --explain",
    "mist-sim plan.json --what-if link.all=2x,kernel.attention=1.5x",
    "mist-sim plan.json --sweep link.all=0.5x:1x:2x --csv",
    "mist-sim plan.json --sensitivity --retune",
    "mist-sim plan.json --lengths lognormal:median=600,sigma=1 --packing first-fit",
    "mist-sim plan.json --what-if rank.1=0.8x --jitter 0.05 --iterations 50 --causes",
    "mist-sim plan.json --compare measured.csv -o predicted.csv",
    "mist-sim plan.json --cluster h100-sxm:8x8,nic=8x400Gb/s",
    "mist-sim plan.json --framework megatron --recompute selective",
    "mist-sim --model gpt3-7b --seq-len 2048 --tp 8 --micro-batch 2 --cluster l4:4x8",
    "mist-sim --framework torchtitan --from-args train.toml --cluster h100-sxm:8x8",
    "mist-sim --replay operations.csv.gz --what-if launch=none",
    "mist-sim --replay 'rank*.json.gz' --what-if kernel.matmul=2x",
    "mist-sim plan.json --replay measured.csv --what-if rank.1=0.8x",
    NULL};

extern const char mist_sim_manual[];
MIST_EMBED(mist_sim_manual, "sim/mist_sim.man");

const struct mist_tool mist_sim_tool = {
    .name = "mist-sim",
    .purpose = "predicts time and memory of a plan by replaying its schedule",
    .examples = examples,
    .options = option_table,
    .n_options = sizeof option_table / sizeof *option_table,
    .positional_name = "PLAN",
    .positional_help = "plan.json from mist-tune",
    .positional_min = 0, /* --presets and --list take none */
    .positional_max = 1,
    .manual = mist_sim_manual,
    .exit_texts = {[4] = "a replay takes more memory than there is"},
};

enum mist_status mist_sim_choose_framework(const struct mist_sim_options *options,
                                           struct mist_plan *plan, struct mist_err *err)
{
    struct mist_job *job = &plan->job;

    if (options->framework > 0) {
        enum mist_framework_name framework =
            (enum mist_framework_name)(options->framework - 1);
        const struct mist_framework *of = mist_framework_get(framework);
        if (framework != job->framework)
            job->overlaps = job->overlaps ||
                            mist_framework_overlaps(of, true, plan->stages[0].zero >= 3);
        job->framework = framework;
        job->attention = of->attention;
    }
    if (job->framework ==
        MIST_FRAMEWORK_OURS) /* ours has no dropout and overlaps, anyway */
        job->has_no_dropout = job->overlaps = job->blocks_launches =
            job->has_fp8_products = job->has_fp16_loss = job->has_fused_loss =
                job->cuts_products = job->steps_apart = false;
    if (options->attention > 0)
        job->attention = (enum mist_attention)(options->attention - 1);
    if (options->recompute > 0) {
        const char *word = recompute_choices[options->recompute];
        job->recomputes_attention = strcmp(word, "selective") == 0;
        for (int32_t i = 0; i < plan->n_stages; i++)
            plan->stages[i].n_checkpointed =
                strcmp(word, "full") == 0 ? plan->stages[i].n_layers : 0;
    }
    return mist_plan_check(plan, err);
}
