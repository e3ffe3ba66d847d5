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

#define ROW(...)  MIST_OPTION_ROW(struct mist_sim_options, __VA_ARGS__)
#define WITH(...) MIST_OPTION_ROW_WITH(struct mist_sim_options, __VA_ARGS__)
#define JOB_ROW(name_, help_, max_, member_)                                             \
    ROW(name_, MIST_OPTION_INT64, "Job without a plan", "N", help_, "0", 0, max_,        \
        job.member_)

static const struct mist_option option_table[] = {
    ROW("cluster", MIST_OPTION_STRING, "Input", "CLUSTER",
        "trace set, or a preset such as h100-sxm:8x8,nic=8x400Gb/s; default: what the "
        "plan was tuned for",
        NULL, 0, 0, cluster),
    ROW("presets", MIST_OPTION_FLAG, "Input", NULL,
        "list the presets with their figures and sources, and end", NULL, 0, 0,
        lists_presets),
    ROW("list", MIST_OPTION_FLAG, "Input", NULL,
        "list the operators, links and dimensions of trace sets, and what a time "
        "includes; or the links of --cluster, how far each size is off by the others; or "
        "the "
        "arguments of --framework and what becomes of them, and end",
        NULL, 0, 0, lists_words),
    MIST_OPTION_ROW_CHOICE(struct mist_sim_options, "framework", "Input", "NAME",
                           "who trains; others can be predicted, not run", "plan",
                           framework_choices, framework),
    MIST_OPTION_ROW_CHOICE(struct mist_sim_options, "attention", "Input", "WAY",
                           "of another framework; plan: what it has usually, which of "
                           "megatron is fused (flash with transformer_engine); flash: "
                           "FlashAttention-2, flash1: that of 2022",
                           "plan", attention_choices, attention),
    MIST_OPTION_ROW_CHOICE(struct mist_sim_options, "recompute", "Input", "WHAT",
                           "in all stages; selective: attention, as other frameworks do",
                           "plan", recompute_choices, recompute),
    ROW("what-if", MIST_OPTION_LIST, "Input", "NAME=VALUE",
        "with another cluster, 2x is twice as fast, or as much: kernel.NAME=2x, "
        "link.nic=400Gb/s, device=h200, launch=none, rank.N=0.8x; --list has all names; "
        "repeatable",
        NULL, 0, 0, what_if),
    ROW("sweep", MIST_OPTION_LIST, "Input", "NAME=V1:V2:..",
        "replay once per value of a what-if; of several, with every combination", NULL, 0,
        0, sweep),
    ROW("sensitivity", MIST_OPTION_FLAG, "Input", NULL,
        "rank what would help most: each kind of kernel and link, memory and launches "
        "10 % faster, and slower",
        NULL, 0, 0, finds_sensitivity),
    WITH("sensitivity", "retune", MIST_OPTION_FLAG, "Input", NULL,
         "beside --sensitivity: and how much more if the plan may change, by mist-tune, "
         "which searches once for each",
         NULL, 0, 0, retunes),
    ROW("model", MIST_OPTION_STRING, "Job without a plan", "NAME",
        "preset, or a Hugging Face config.json", NULL, 0, 0, job.model),
    ROW("from-args", MIST_OPTION_STRING, "Job without a plan", "FILE",
        "read Megatron-LM's command line, DeepSpeed's JSON or torchtitan's TOML, as "
        "--framework says; options say the rest",
        NULL, 0, 0, job.from_args),
    JOB_ROW("tp", "tensor-parallel size; 0: 1", 1 << 20, tp),
    JOB_ROW("pp", "stages of the pipeline; 0: 1", MIST_MAX_STAGES, pp),
    JOB_ROW("dp", "data-parallel size; 0: all devices that are left", 1 << 20, dp),
    JOB_ROW("micro-batch", "samples of a micro-batch", 1 << 24, micro_batch),
    JOB_ROW("global-batch", "samples per optimizer step; 0: one micro-batch each",
            1 << 24, global_batch),
    JOB_ROW("seq-len", "tokens per sample", MIST_MODEL_MAX_SEQ, seq_len),
    JOB_ROW("zero", "level of ZeRO", 3, zero),
    JOB_ROW("chunks", "of each stage, of an interleaved pipeline", 1 << 12, n_chunks),
    ROW("sequence-parallel", MIST_OPTION_FLAG, "Job without a plan", NULL,
        "tensor-parallel ranks share the tokens between products", NULL, 0, 0,
        job.is_sequence_parallel),
    ROW("no-dropout", MIST_OPTION_FLAG, "Job without a plan", NULL,
        "of another framework that has it", NULL, 0, 0, job.has_no_dropout),
    ROW("fp8", MIST_OPTION_FLAG, "Job without a plan", NULL,
        "another framework's products of blocks, in floats of 8 bits", NULL, 0, 0,
        job.has_fp8_products),
    MIST_OPTION_ROW_CHOICE(
        struct mist_sim_options, "dtype", "Job without a plan", "TYPE",
        "of weights and activations; job: what arguments say, else bf16", "job",
        dtype_choices, job.dtype),
    MIST_OPTION_ROW_CHOICE(struct mist_sim_options, "gradient-dtype",
                           "Job without a plan", "TYPE",
                           "of gradients; job: what arguments say, else fp32", "job",
                           dtype_choices, job.gradient_dtype),
    ROW("replay", MIST_OPTION_LIST, "Replay", "FILES",
        "no prediction but what a job recorded, gzip or not: traces of torch.profiler "
        "('rank*.json', or their folder), a pipeline's operations (CSV), or mist-exec's "
        "timeline of PLAN: the causes of its time, and by --what-if what it would have "
        "taken",
        NULL, 0, 0, replay),
    ROW("lengths", MIST_OPTION_STRING, "Replay", "LENGTHS",
        "sequences are not all as long as samples: lognormal:median=N,sigma=X, or a file "
        "of lengths in tokens, one a line or length,count, to draw from",
        NULL, 0, 0, lengths),
    MIST_OPTION_ROW_CHOICE_WITH(
        struct mist_sim_options, "lengths", "packing", "Replay", "RULE",
        "how they fill samples; none: each is one; pad: each is as "
        "long as the longest of its micro-batch; first-fit, sorted: "
        "several make a sample, in order or the longest first",
        "none", mist_packing_names, packing),
    ROW("iterations", MIST_OPTION_INT64, "Replay", "N",
        "iterations in a row, of which the last counts, or with --lengths and --jitter "
        "all but the first; usually 2, with --lengths 101",
        NULL, 1, 1000, n_iterations),
    ROW("jitter", MIST_OPTION_FRAC, "Replay", "FRAC",
        "relative standard deviation of every task's time", "0", 0, 1, jitter_frac),
    ROW("threads", MIST_OPTION_INT64, "Replay", "N",
        "compute threads of a rank (memory); 0: what the plan says, else 1", "0", 0, 1024,
        n_threads),
    ROW("unfolded", MIST_OPTION_FLAG, "Replay", NULL,
        "replay every rank, also those that can't differ", NULL, 0, 0, is_unfolded),
    ROW("explain", MIST_OPTION_FLAG, "Results", NULL,
        "where the time goes, and what is in memory at its peak", NULL, 0, 0, explains),
    ROW("causes", MIST_OPTION_FLAG, "Results", NULL,
        "what slows iterations down when --lengths, --jitter or --what-if rank.N make "
        "them "
        "uneven: each cause, stage, rank and micro-batch made even, and alone",
        NULL, 0, 0, finds_causes),
    ROW("compare", MIST_OPTION_STRING, "Results", "FILE",
        "measured timeline.csv of this plan to put beside the prediction; where they "
        "differ "
        "most, by kind of task and rank",
        NULL, 0, 0, compare),
    ROW("chrome", MIST_OPTION_STRING, "Results", "FILE",
        "write the timeline as Chrome trace JSON (Perfetto)", NULL, 0, 0, chrome),
    ROW("save-plan", MIST_OPTION_STRING, "Results", "FILE",
        "write the plan that was replayed as JSON", NULL, 0, 0, save_plan),
    ROW("export", MIST_OPTION_STRING, "Results", "FILE",
        "write the plan as arguments of its framework", NULL, 0, 0, export),
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
            job->overlaps =
                job->overlaps ||
                mist_framework_overlaps(of, true, plan->stages[0].shards_weights);
        job->framework = framework;
        job->attention = of->attention;
    }
    if (job->framework ==
        MIST_FRAMEWORK_OURS) /* ours has no dropout and overlaps, anyway */
        job->has_no_dropout = job->overlaps = job->blocks_launches =
            job->has_fp8_products = job->has_fp16_loss = false;
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
