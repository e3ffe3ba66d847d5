/*
 * Models by name. Every row says where its numbers come from:
 *
 *   GPT3    Brown et al. 2020, "Language Models are Few-Shot Learners", table 2.1, the
 *           tokenizer and 2,048 positions of its section 2.1. The table contradicts
 *           itself for XL and 13B (24 heads of 128 are not 2048 wide; 5140 is not 40
 *           times 128): those sizes are taken from MIST.
 *   GPT2    Radford et al. 2019, "Language Models are Unsupervised Multitask Learners",
 *           table 2; the released config.json (12 heads for 768, 25 for 1600); tied.
 *   MIST    the models of the Mist paper's artifact (EuroSys'25): h, layers, heads; F is
 *           4h for GPT and Falcon, given for Llama; vocabulary 50304; no biases; untied
 *           head. It trains at 2,048 and 4,096 tokens: 4,096 positions here.
 *   LLAMA1  Touvron et al. 2023, "LLaMA", table 2; F from the released config.json.
 *   LLAMA2  Touvron et al. 2023, "Llama 2"; the released config.json.
 *   LLAMA3  Grattafiori et al. 2024, "The Llama 3 Herd of Models", table 3.
 *   FALCON  Almazrouei et al. 2023, "The Falcon Series"; the released config.json.
 *   NEMOTRON  Parmar et al. 2024, "Nemotron-4 15B Technical Report", table 1; Adler et al. 2024,
 *           "Nemotron-4 340B Technical Report", table 1; half of a head is turned.
 *   DEMO    ours: trains on bytes on a CPU in minutes (9.87 M parameters).
 *
 * All GPT-3 rows have an untied head, so that the first and the last stage of a pipeline
 * share no weight; published GPT-3 ties it. Published Falcon rows are tied.
 */
#include "sim/model/model.h"

#include "core/parse.h"
#include "core/text_distance.h"

#include <string.h> /* strcmp */

#define GPT(name_, layers, h, heads, vocab_, positions, bias)                            \
    {                                                                                    \
        .name = name_, .family = MIST_FAMILY_GPT, .n_layers = (layers), .hidden = (h),   \
        .n_heads = (heads), .n_kv_heads = (heads), .head_dim = (h) / (heads),            \
        .ffn = 4 * (h), .vocab = (vocab_), .max_seq = (positions), .has_bias = (bias),   \
        .norm_epsilon = 1e-5                                                             \
    }
#define GPT2(name_, layers, h, heads)                                                    \
    {                                                                                    \
        .name = name_, .family = MIST_FAMILY_GPT, .n_layers = (layers), .hidden = (h),   \
        .n_heads = (heads), .n_kv_heads = (heads), .head_dim = (h) / (heads),            \
        .ffn = 4 * (h), .vocab = 50257, .max_seq = 1024, .has_bias = true,               \
        .ties_embeddings = true, .norm_epsilon = 1e-5                                    \
    }
#define LLAMA(name_, layers, h, heads, kv_heads, ffn_, vocab_, epsilon, theta)           \
    {                                                                                    \
        .name = name_, .family = MIST_FAMILY_LLAMA, .n_layers = (layers), .hidden = (h), \
        .n_heads = (heads), .n_kv_heads = (kv_heads), .head_dim = (h) / (heads),         \
        .ffn = (ffn_), .vocab = (vocab_), .norm_epsilon = (epsilon),                     \
        .rope_theta = (theta)                                                            \
    }
#define FALCON(name_, layers, h, heads, kv_heads, vocab_, ties)                          \
    {                                                                                    \
        .name = name_, .family = MIST_FAMILY_FALCON, .n_layers = (layers),               \
        .hidden = (h), .n_heads = (heads), .n_kv_heads = (kv_heads),                     \
        .head_dim = (h) / (heads), .ffn = 4 * (h), .vocab = (vocab_),                    \
        .ties_embeddings = (ties), .norm_epsilon = 1e-5, .rope_theta = 1e4,              \
        .has_exact_gelu = true                                                           \
    }

#define NEMOTRON(name_, layers, h, heads, kv_heads, ffn_)                                \
    {                                                                                    \
        .name = name_, .family = MIST_FAMILY_NEMOTRON, .n_layers = (layers),             \
        .hidden = (h), .n_heads = (heads), .n_kv_heads = (kv_heads),                     \
        .head_dim = (h) / (heads), .ffn = (ffn_), .vocab = 256000, .norm_epsilon = 1e-5, \
        .rope_theta = 1e4, .rotary_dim = (h) / (heads) / 2                               \
    }

/* clang-format off */
static const struct mist_model presets[] = {
    /*   name         layers      h  heads  vocab  positions  biases */
    GPT("gpt3-demo",     12,    256,     4,   256,      1024, true),  /* DEMO */
    GPT("gpt3-125m",     12,    768,    12, 50257,      2048, true),  /* GPT3 "Small" */
    GPT("gpt3-350m",     24,   1024,    16, 50257,      2048, true),  /* GPT3 "Medium" */
    GPT("gpt3-760m",     24,   1536,    16, 50257,      2048, true),  /* GPT3 "Large" */
    GPT("gpt3-1.3b",     24,   2048,    16, 50304,      4096, false), /* MIST gpt2/1.3b */
    GPT("gpt3-2.7b",     32,   2560,    32, 50304,      4096, false), /* MIST gpt2/2.7b */
    GPT("gpt3-6.7b",     32,   4096,    32, 50304,      4096, false), /* MIST gpt2/7b */
    GPT("gpt3-13b",      40,   5120,    40, 50304,      4096, false), /* MIST gpt2/13b */
    GPT("gpt3-22b",      48,   6144,    64, 50304,      4096, false), /* MIST gpt2/22b */
    GPT("gpt3-175b",     96,  12288,    96, 50257,      2048, true),  /* GPT3 "175B" */

    /*    name      layers     h  heads */
    GPT2("gpt2",        12,  768,    12), /* GPT2 */
    GPT2("gpt2-medium", 24, 1024,    16), /* GPT2 */
    GPT2("gpt2-large",  36, 1280,    20), /* GPT2 */
    GPT2("gpt2-xl",     48, 1600,    25), /* GPT2 */

    /*     name              layers      h  heads   kv    ffn   vocab  epsilon  theta */
    LLAMA("llama-1.3b",         24,   2048,    16,  16,  5632,  50304, 1e-6,   1e4), /* MIST */
    LLAMA("llama-2.7b",         32,   2560,    32,  32,  6912,  50304, 1e-6,   1e4), /* MIST */
    LLAMA("llama-6.7b",         32,   4096,    32,  32, 11008,  50304, 1e-6,   1e4), /* MIST */
    LLAMA("llama-13b-mist",     40,   5120,    40,  40, 13824,  50304, 1e-6,   1e4), /* MIST */
    LLAMA("llama-22b",          48,   6144,    64,  64, 16384,  50304, 1e-6,   1e4), /* MIST */
    LLAMA("llama-7b",           32,   4096,    32,  32, 11008,  32000, 1e-6,   1e4), /* LLAMA1 */
    LLAMA("llama-13b",          40,   5120,    40,  40, 13824,  32000, 1e-6,   1e4), /* LLAMA1 */
    LLAMA("llama-33b",          60,   6656,    52,  52, 17920,  32000, 1e-6,   1e4), /* LLAMA1 */
    LLAMA("llama-65b",          80,   8192,    64,  64, 22016,  32000, 1e-5,   1e4), /* LLAMA1 */
    LLAMA("llama2-7b",          32,   4096,    32,  32, 11008,  32000, 1e-5,   1e4), /* LLAMA2 */
    LLAMA("llama2-13b",         40,   5120,    40,  40, 13824,  32000, 1e-5,   1e4), /* LLAMA2 */
    LLAMA("llama2-70b",         80,   8192,    64,   8, 28672,  32000, 1e-5,   1e4), /* LLAMA2 */
    LLAMA("llama3-8b",          32,   4096,    32,   8, 14336, 128256, 1e-5,   5e5), /* LLAMA3 */
    LLAMA("llama3-70b",         80,   8192,    64,   8, 28672, 128256, 1e-5,   5e5), /* LLAMA3 */
    LLAMA("llama3-405b",       126,  16384,   128,   8, 53248, 128256, 1e-5,   5e5), /* LLAMA3 */

    /*      name         layers     h  heads   kv  vocab  tied */
    FALCON("falcon-1.3b",    24, 2048,    16,  16, 50304, false), /* MIST */
    FALCON("falcon-2.7b",    32, 2560,    32,  32, 50304, false), /* MIST */
    FALCON("falcon-6.7b",    32, 4096,    32,  32, 50304, false), /* MIST falcon/7b */
    FALCON("falcon-13b",     40, 5120,    40,  40, 50304, false), /* MIST */
    FALCON("falcon-22b",     48, 6144,    64,  64, 50304, false), /* MIST */
    FALCON("falcon-7b",      32, 4544,    71,   1, 65024, true),  /* FALCON */
    FALCON("falcon-40b",     60, 8192,   128,   8, 65024, true),  /* FALCON */

    /*        name            layers      h  heads kv    ffn */
    NEMOTRON("nemotron4-15b",     32,  6144,    48, 8, 24576), /* NEMOTRON */
    NEMOTRON("nemotron4-340b",    96, 18432,    96, 8, 73728), /* NEMOTRON */
};

/* Other names in use for the same rows; the Mist paper says 2.6B and 7B in its figures. */
static const char *const aliases[][2] = {
    {"gpt3-2.6b", "gpt3-2.7b"},   {"gpt3-7b", "gpt3-6.7b"},
    {"llama-2.6b", "llama-2.7b"}, {"llama-405b", "llama3-405b"},
    {"falcon-2.6b", "falcon-2.7b"},
};
/* clang-format on */

enum {
    N_PRESETS = sizeof presets / sizeof presets[0],
    N_ALIASES = sizeof aliases / sizeof aliases[0],
};

const char *mist_model_preset_name(int32_t i_preset)
{
    return i_preset < N_PRESETS ? presets[i_preset].name : NULL;
}

static enum mist_status refuse_name(const char *name, struct mist_err *err)
{
    char list[sizeof((struct mist_err){0}.message)] = "";
    struct mist_text_near all[N_PRESETS];

    for (int i = 0; i < N_PRESETS; i++)
        all[i] = (struct mist_text_near){i, mist_text_distance(name, strlen(name),
                                                               presets[i].name,
                                                               strlen(presets[i].name))};
    mist_text_sort_near(all, N_PRESETS);
    for (int i = 0; i < N_PRESETS; i++)
        mist_text_add(list, sizeof list, " ", "%s", presets[all[i].i].name);
    return mist_err_set(err, MIST_ERR_INPUT,
                        "model '%.40s' is unknown; presets, the nearest first: %s", name,
                        list);
}

enum mist_status mist_model_load_preset(const char *name, struct mist_model *out,
                                        struct mist_err *err)
{
    for (int i = 0; i < N_ALIASES; i++) {
        if (!strcmp(name, aliases[i][0]))
            name = aliases[i][1];
    }
    for (int i = 0; i < N_PRESETS; i++) {
        if (!strcmp(name, presets[i].name)) {
            *out = presets[i];
            return MIST_OK;
        }
    }
    return refuse_name(name, err);
}
