/*
 * Models: published parameter totals, a naive count tensor by tensor, presets,
 * config.json.
 */
#include "tests/unit/test.h"

#include "sim/model/catalog.h"
#include "tests/unit/parameter_counts.h"
#include "tests/unit/scratch.h"

#define CONFIGS "tests/data/configs/"

static struct mist_model load(const char *spec)
{
    struct mist_model model;
    struct mist_err err = {0};
    enum mist_status status = mist_model_load(spec, &model, &err);

    if (status)
        print_message("%s: %s\n", spec, err.message);
    assert_int_equal(status, MIST_OK);
    return model;
}

/* The count again, one weight of a state dict after the other. */
static int64_t count_naively(const struct mist_model *m)
{
    bool is_gated = m->rope_theta > 0 && m->family != MIST_FAMILY_FALCON &&
                    m->family != MIST_FAMILY_NEOX && m->family != MIST_FAMILY_NEMOTRON;
    bool has_qkv_bias = m->has_bias || m->family == MIST_FAMILY_QWEN2;
    int64_t h = m->hidden, d = m->head_dim, n = (int64_t)m->vocab * h;
    int64_t norm = is_gated ? h : 2 * h;
    bool is_one_norm = m->family == MIST_FAMILY_FALCON &&
                       (m->n_kv_heads == 1 || m->n_kv_heads == m->n_heads);

    n += (int64_t)m->max_seq * h;
    for (int32_t i = 0; i < m->n_layers; i++) {
        for (int32_t j = 0; j < m->n_heads; j++)
            n += 2 * d * h + (has_qkv_bias ? d : 0); /* query and output */
        for (int32_t j = 0; j < m->n_kv_heads; j++)
            n += 2 * (d * h + (has_qkv_bias ? d : 0));
        n += m->family == MIST_FAMILY_QWEN3 ? 2 * d : 0; /* norms of their heads */
        n += m->has_bias ? h : 0;                        /* of the output projection */
        for (int k = 0; k < (is_gated ? 3 : 2); k++)
            n += h * m->ffn;
        n += m->has_bias ? m->ffn + h : 0;
        n += is_one_norm ? norm : 2 * norm;
    }
    return n + norm + (m->ties_embeddings ? 0 : (int64_t)m->vocab * h);
}

TEST(test_published_totals)
{
    static const struct {
        const char *spec;
        int64_t n;
    } totals[] = {
        {CONFIGS "gpt2.json", 124439808},
        {CONFIGS "llama-7b/config.json", 6738415616},
        {CONFIGS "llama3-8b.json", 8030261248},
        {CONFIGS "falcon-7b.json", 6921720704},
        {CONFIGS "falcon-40b.json", 41303293952},
        {"gpt2", 124439808},
        {"gpt2-medium", 354823168},
        {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},
        {"llama-7b", 6738415616},
        {"llama-13b", 13015864320},
        {"llama-33b", 32528943616},
        {"llama-65b", 65285660672},
        {"llama2-7b", 6738415616},
        {"llama2-13b", 13015864320},
        {"llama2-70b", 68976648192},
        {"llama3-8b", 8030261248},
        {"llama3-70b", 70553706496},
        {"llama3-405b", 405853388800},
        {"llama-405b", 405853388800},
        {"falcon-7b", 6921720704},
        {"falcon-40b", 41303293952},
    };

    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        struct mist_model model = load(totals[i].spec);
        struct mist_err err = {0};
        struct mist_model_count count = {0};
        must(mist_model_count(&model, 1, &count, &err), &err);
        assert_int_equal(count.n_parameters, totals[i].n);
        assert_int_equal(count_parameters(&model), totals[i].n);
    }
}

TEST(test_presets)
{
    struct mist_model model, again;
    const char *name;
    int32_t i = 0;

    for (; (name = mist_model_preset_name(i)); i++) {
        const char *dash = strchr(name, '-');
        double nominal = 0;
        model = load(name);
        assert_int_equal(mist_model_check(&model, NULL), MIST_OK);
        assert_string_equal(model.name, name);
        assert_int_equal(count_parameters(&model), count_naively(&model));
        for (int32_t j = 0; j < i; j++)
            assert_string_not_equal(name, mist_model_preset_name(j));
        /* The size in the name is the size, give or take the embeddings. */
        if (dash && sscanf(dash + 1, "%lf", &nominal) == 1) {
            const char *last = name + strlen(name) - 1;
            double unit = *last == 'm' ? 1e6 : 1e9;
            double n = (double)count_parameters(&model);
            assert_true(n > 0.9 * nominal * unit && n < 1.32 * nominal * unit);
        }
    }
    assert_true(i >= 30);
    model = load("gpt3-demo");
    assert_in_range(count_parameters(&model), 9500000, 10500000);
    assert_true(model.has_bias && !model.ties_embeddings);
    model = load("gpt3-7b");
    again = load("gpt3-6.7b");
    assert_memory_equal(&model, &again, sizeof model);
}

static enum mist_status load_text(const char *text, struct mist_model *model,
                                  struct mist_err *err);

/* Dimensions of the published config.json, by their totals (Hugging Face's model pages). */
TEST(test_totals_of_families)
{
    static const struct {
        const char *text;
        int64_t n;
    } totals[] = {
        {"{\"model_type\":\"mistral\",\"hidden_size\":4096,\"intermediate_size\":14336,"
         "\"num_hidden_layers\":32,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
         "\"vocab_size\":32000,\"sliding_window\":4096}",
         7241732096}, /* Mistral-7B-v0.1 */
        {"{\"model_type\":\"qwen2\",\"hidden_size\":896,\"intermediate_size\":4864,"
         "\"num_hidden_layers\":24,\"num_attention_heads\":14,\"num_key_value_heads\":2,"
         "\"vocab_size\":151936,\"tie_word_embeddings\":true}",
         494032768}, /* Qwen2-0.5B */
        {"{\"model_type\":\"qwen3\",\"hidden_size\":1024,\"intermediate_size\":3072,"
         "\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
         "\"head_dim\":128,\"vocab_size\":151936,\"tie_word_embeddings\":true}",
         596049920}, /* Qwen3-0.6B */
        {"{\"model_type\":\"gemma\",\"hidden_size\":2048,\"intermediate_size\":16384,"
         "\"num_hidden_layers\":18,\"num_attention_heads\":8,\"num_key_value_heads\":1,"
         "\"head_dim\":256,\"vocab_size\":256000,\"hidden_act\":\"gelu\"}",
         2506172416}, /* gemma-2b */
        {"{\"model_type\":\"gpt_neox\",\"hidden_size\":6144,\"intermediate_size\":24576,"
         "\"num_hidden_layers\":44,\"num_attention_heads\":64,\"vocab_size\":50432}",
         20554567680}, /* gpt-neox-20b */
        {"{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,"
         "\"num_hidden_layers\":16,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
         "\"vocab_size\":128256,\"tie_word_embeddings\":true,\"hidden_act\":\"silu\"}",
         1235814400}, /* Llama-3.2-1B */
        {"{\"model_type\":\"qwen2\",\"hidden_size\":3584,\"intermediate_size\":18944,"
         "\"num_hidden_layers\":28,\"num_attention_heads\":28,\"num_key_value_heads\":4,"
         "\"vocab_size\":152064,\"tie_word_embeddings\":false}",
         7615616512}, /* Qwen2-7B */
        {"{\"model_type\":\"qwen2\",\"hidden_size\":64,\"intermediate_size\":128,"
         "\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
         "\"head_dim\":32,\"vocab_size\":100,\"tie_word_embeddings\":true}",
         /* of q and o 2 * 128 * 64, of k and v 2 * 64 * 64, biases 128 + 2 * 64 */
         100 * 64 + 24576 + 256 + 3 * 64 * 128 + 3 * 64}, /* transformers reads it, too */
        {"{\"model_type\":\"qwen3\",\"hidden_size\":4096,\"intermediate_size\":12288,"
         "\"num_hidden_layers\":36,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
         "\"head_dim\":128,\"vocab_size\":151936,\"tie_word_embeddings\":false}",
         8190735360}, /* Qwen3-8B */
        {"{\"model_type\":\"gemma\",\"hidden_size\":3072,\"intermediate_size\":24576,"
         "\"num_hidden_layers\":28,\"num_attention_heads\":16,\"num_key_value_heads\":16,"
         "\"head_dim\":256,\"vocab_size\":256000,\"hidden_act\":\"gelu\"}",
         8537680896}, /* gemma-7b */
        {"{\"model_type\":\"nemotron\",\"hidden_size\":3072,\"intermediate_size\":9216,"
         "\"num_hidden_layers\":32,\"num_attention_heads\":24,\"num_key_value_heads\":8,"
         "\"head_dim\":128,\"vocab_size\":256000,\"hidden_act\":\"relu2\"}",
         4190509056}, /* Minitron-4B-Base, 4.19B */
    };

    for (size_t i = 0; i < sizeof totals / sizeof totals[0]; i++) {
        struct mist_model model;
        struct mist_err err = {0};
        struct mist_model_count count = {0};
        must(load_text(totals[i].text, &model, &err), &err);
        must(mist_model_count(&model, 1, &count, &err), &err);
        assert_int_equal(count.n_parameters, totals[i].n);
        assert_int_equal(count_parameters(&model), totals[i].n);
        assert_int_equal(count_naively(&model), totals[i].n);
    }
}

TEST(test_unknown_preset)
{
    struct mist_model model = {.n_layers = 7};
    struct mist_err err;

    assert_int_equal(mist_model_load("gpt5", &model, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "gpt5"));
    assert_non_null(strstr(err.message, "gpt3-demo"));
    assert_non_null(strstr(err.message, "falcon-40b")); /* the last one still fits */
    assert_int_equal(model.n_layers, 7);
    assert_int_equal(mist_model_load("gpt5", &model, NULL), MIST_ERR_INPUT);
}

TEST(test_configs_equal_presets)
{
    static const char *const names[] = {"llama3-8b", "falcon-7b", "falcon-40b"};
    struct mist_model config, preset;
    char path[128];

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, CONFIGS "%s.json", names[i]);
        config = load(path);
        preset = load(names[i]);
        assert_memory_equal(&config, &preset, sizeof config);
    }
    static const char *const folders[] = {"llama-7b/config.json", "llama-7b",
                                          "llama-7b/"};
    preset = load("llama-7b");
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        snprintf(path, sizeof path, CONFIGS "%s", folders[i]); /* named after it */
        config = load(path);
        assert_memory_equal(&config, &preset, sizeof config);
    }
    config = load(CONFIGS "gpt2.json");
    assert_int_equal(config.family, MIST_FAMILY_GPT);
    assert_int_equal(config.ffn, 3072);
    assert_int_equal(config.max_seq, 1024);
    assert_true(config.has_bias && config.ties_embeddings);
}

#define GPT2 "{\"model_type\":\"gpt2\",\n\"n_embd\":64,\n\"n_layer\":2,\n\"vocab_size\":9"
#define LLAMA                                                                            \
    "{\"model_type\":\"llama\",\n\"hidden_size\":64,\n\"intermediate_size\":96,\n"       \
    "\"num_hidden_layers\":2,\n\"vocab_size\":9"
#define FALCON                                                                           \
    "{\"model_type\":\"falcon\",\n\"hidden_size\":64,\n\"num_hidden_layers\":2,\n"       \
    "\"vocab_size\":9"

/* Loads text as the file tiny.json. */
static enum mist_status load_text(const char *text, struct mist_model *model,
                                  struct mist_err *err)
{
    struct scratch scratch;
    enum mist_status status;

    scratch_init(&scratch);
    scratch_write(scratch_path(&scratch, "tiny.json"), text);
    status = mist_model_load(scratch.path, model, err);
    scratch_fini(&scratch);
    return status;
}

TEST(test_config_defaults)
{
    struct mist_model m;

    assert_int_equal(load_text(GPT2 ",\"n_head\":4,\"n_ctx\":32,\"n_inner\":100,"
                                    "\"tie_word_embeddings\":false}",
                               &m, NULL),
                     MIST_OK);
    assert_int_equal(m.ffn, 100);
    assert_int_equal(m.max_seq, 32);
    assert_false(m.ties_embeddings);
    assert_true(m.norm_epsilon == 1e-5);
    assert_string_equal(m.name, "tiny");
    assert_int_equal(count_parameters(&m), count_naively(&m));
    assert_int_equal(load_text(LLAMA
                               ",\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                               "\"tie_word_embeddings\":true,\"head_dim\":16}",
                               &m, NULL),
                     MIST_OK);
    assert_int_equal(m.n_kv_heads, 2);
    assert_true(m.ties_embeddings && m.rope_theta == 1e4 && m.norm_epsilon == 1e-6);
    assert_int_equal(count_parameters(&m), count_naively(&m));
    assert_int_equal(load_text(FALCON ",\"num_attention_heads\":4,\"bias\":true,"
                                      "\"multi_query\":false}",
                               &m, NULL),
                     MIST_OK);
    assert_int_equal(m.n_kv_heads, 4);
    assert_true(m.has_bias);
    assert_int_equal(count_parameters(&m), count_naively(&m));
    assert_int_equal(
        load_text("{\"model_type\":\"gpt_neox\",\"hidden_size\":64,\"vocab_size\":9,"
                  "\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                  "\"intermediate_size\":96,\"rope_parameters\":{\"rope_theta\":500,"
                  "\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}}",
                  &m, NULL),
        MIST_OK);
    assert_int_equal(m.rotary_dim, 8); /* of 16 */
    assert_int_equal(
        load_text("{\"model_type\":\"nemotron\",\"hidden_size\":64,\"vocab_size\":9,"
                  "\"num_hidden_layers\":2,\"num_attention_heads\":4,"
                  "\"intermediate_size\":96,\"norm_eps\":1e-6}",
                  &m, NULL),
        MIST_OK);
    assert_int_equal(m.rotary_dim, 8); /* half, where nothing is said */
    assert_int_equal(m.n_kv_heads, 4);
    assert_true(m.norm_epsilon == 1e-6);
    assert_int_equal(mist_model_activation(&m), MIST_ACTIVATION_SQUARED_RELU);
    assert_int_equal(count_parameters(&m), count_naively(&m));
    m.has_exact_gelu = true;
    assert_int_equal(mist_model_check(&m, NULL), MIST_ERR_INPUT);
}

TEST(test_bad_configs)
{
    static const struct {
        const char *text;
        long line;
        const char *message;
    } cases[] = {
        {"{", 1, "expected"},
        {"[]", 1, "an object"},
        {"{\"n_embd\": 5}", 1, "model_type"},
        {"{\n\"model_type\": \"bert\"}", 2,
         "expected one of gpt2, llama, falcon, mistral"},
        {GPT2 ",\n\"n_head\":4}", 1, "n_positions"},
        {GPT2 ",\n\"n_ctx\":8}", 1, "n_head"},
        {GPT2 ",\n\"n_ctx\":8,\"n_head\":5}", 5, "does not divide"},
        {GPT2 ",\n\"n_ctx\":8,\n\"n_head\":4.5}", 6, "whole number"},
        {GPT2 ",\"n_ctx\":8,\n\"n_head\":0}", 5, "n_head"},
        {GPT2 ",\"n_ctx\":8,\"n_head\":4,\n\"activation_function\":\"relu\"}", 5, "relu"},
        {GPT2 ",\"n_ctx\":8,\"n_head\":4,\"layer_norm_epsilon\":1}", 0, "norm_epsilon"},
        {LLAMA "}", 1, "num_attention_heads"},
        {LLAMA ",\"num_attention_heads\":4,\n\"num_key_value_heads\":8}", 6, "8"},
        {LLAMA ",\"num_attention_heads\":4,\"num_key_value_heads\":3}", 0,
         "n_kv_heads 3"},
        {LLAMA ",\"num_attention_heads\":1024,\"head_dim\":2048}", 0, "at most 1048576"},
        {LLAMA ",\"num_attention_heads\":4,\n\"num_experts\":8}", 6, "experts"},
        {LLAMA ",\"num_attention_heads\":4,\"rope_scaling\":\n{\"type\":\"linear\"}}", 5,
         "factor"},
        {LLAMA ",\"num_attention_heads\":4,\"rope_scaling\":{\"rope_type\":\"llama3\","
               "\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":1,"
               "\"original_max_position_embeddings\":64}}",
         0, "rope_high_frequency_factor 1"},
        {LLAMA ",\"num_attention_heads\":4,\n\"hidden_act\":\"gelu\"}", 6, "silu"},
        {LLAMA ",\"num_attention_heads\":64}", 0, "head_dim is 1"},
        {FALCON ",\"num_attention_heads\":4,\n\"parallel_attn\":false}", 5,
         "side by side"},
        {FALCON ",\"num_attention_heads\":4,\n\"new_decoder_architecture\":true}", 5,
         "2 norms"},
    };
    struct mist_model model = {.n_layers = 7};
    struct mist_err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(load_text(cases[i].text, &model, &err), MIST_ERR_INPUT);
        if (err.line != cases[i].line || !strstr(err.message, cases[i].message))
            fail_msg("case %zu: line %ld: %s", i, err.line, err.message);
        assert_non_null(strstr(err.path, "tiny.json"));
        assert_int_equal(model.n_layers, 7);
    }
    assert_int_equal(mist_model_load(CONFIGS "falcon-rw-1b.json", &model, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(err.line, 2);
    assert_non_null(strstr(err.message, "ALiBi"));
    assert_int_equal(mist_model_load("no/such/config.json", &model, &err), MIST_ERR_IO);
}

TEST(test_check)
{
    struct mist_model good = load("gpt3-demo"), llama = load("llama3-8b"), m;
    struct mist_err err;

#define REFUSED(base, change, word)                                                      \
    do {                                                                                 \
        m = base;                                                                        \
        m.change;                                                                        \
        assert_int_equal(mist_model_check(&m, &err), MIST_ERR_INPUT);                    \
        if (!strstr(err.message, word))                                                  \
            fail_msg("%s: %s", #change, err.message);                                    \
    } while (0)
    REFUSED(good, n_layers = 0, "n_layers is 0");
    REFUSED(good, n_layers = MIST_MODEL_MAX_LAYERS + 1, "8193");
    REFUSED(good, hidden = 257, "expected hidden 257");
    REFUSED(good, ffn = -1, "ffn");
    REFUSED(good, vocab = 0, "vocab");
    REFUSED(good, max_seq = 0, "max_seq is 0");
    REFUSED(good, n_kv_heads = 2, "n_kv_heads is 2");
    REFUSED(good, rope_theta = 1, "rope_theta is 1");
    REFUSED(good, norm_epsilon = 0, "norm_epsilon is 0");
    REFUSED(good, norm_epsilon = 0.0 / 0.0, "norm_epsilon");
    REFUSED(good, name[0] = 0, "name");
    REFUSED(llama, max_seq = 8, "max_seq is 8");
    REFUSED(llama, n_kv_heads = 5, "n_kv_heads 5");
    REFUSED(llama, n_kv_heads = 64, "n_kv_heads is 64");
    REFUSED(llama, rope_theta = 0, "rope_theta is 0");
    REFUSED(llama, has_bias = true, "has_bias");
    REFUSED(llama, has_exact_gelu = true, "has_exact_gelu");
    REFUSED(llama, rope_scaling = MIST_ROPE_LINEAR, "rope_factor is 0");
    REFUSED(llama, rope_scaling = MIST_N_ROPE_SCALINGS, "rope_scaling 3");
    REFUSED(llama, rope_factor = 2, "expected 0 with rope_scaling default");
    REFUSED(llama, rope_low_frequency_factor = 2, "rope_low_frequency_factor is 2");
    REFUSED(llama, rope_original_positions = 2, "rope_original_positions is 2");
    REFUSED(llama, rotary_dim = 3, "rotary_dim is 3");
    REFUSED(llama, rotary_dim = 130, "rotary_dim is 130");
    REFUSED(llama, rotary_dim = 64, "rotary_dim is 64, expected 0: a llama model");
    REFUSED(llama, window = -1, "window is -1");
    REFUSED(good, rotary_dim = 2, "no RoPE");
    memset(llama.unsupported, 'x', sizeof llama.unsupported);
    REFUSED(llama, window = 0, "unsupported is longer");
#undef REFUSED
}

TEST(test_dtypes)
{
    for (int i = 0; i < MIST_N_DTYPES; i++) {
        enum mist_dtype dtype = (enum mist_dtype)i;
        assert_non_null(mist_dtype_words[i]);
        assert_int_equal(mist_dtype_weight_bytes(dtype) +
                             mist_dtype_gradient_bytes(MIST_DTYPE_FP32) +
                             mist_dtype_state_bytes(dtype),
                         dtype == MIST_DTYPE_FP32 ? 16 : 18);
        assert_int_equal(mist_dtype_weight_bytes(dtype) +
                             mist_dtype_gradient_bytes(dtype) +
                             mist_dtype_state_bytes(dtype),
                         16);
    }
    assert_int_equal(mist_dtype_weight_bytes(MIST_DTYPE_BF16), 2);
    assert_int_equal(mist_dtype_state_bytes(MIST_DTYPE_BF16), 12);
    assert_int_equal(mist_dtype_state_bytes(MIST_DTYPE_FP32), 8);
    assert_null(mist_dtype_words[MIST_N_DTYPES]);
    assert_null(mist_dtype_run_words[MIST_N_RUN_DTYPES]);
    for (int i = 0; i < MIST_N_RUN_DTYPES; i++)
        assert_string_equal(mist_dtype_run_words[i], mist_dtype_words[i]);
    for (int i = 0; i < MIST_N_FAMILIES; i++)
        assert_non_null(mist_family_words[i]);
    assert_null(mist_family_words[MIST_N_FAMILIES]);
}

TEST_MAIN(NULL, NULL)
