/* Plans: derived quantities against enumeration, what the check refuses, fingerprints.
 * Files are in test_plan_file.c. */
#include "tests/unit/test.h"

#include "sim/plan/rank_mesh.h"
#include "tests/unit/plan_passes.h"
#include "tests/unit/plan_sample.h"

#include <math.h>

/* Every (stage, dp, tp) in the documented order, numbered one by one. */
TEST(test_ranks)
{
    struct mist_plan plan;
    int32_t rank = 0;

    load_good(&plan);
    for (int32_t i = 0; i < plan.n_stages; i++) {
        const struct mist_rank_mesh mesh = mist_rank_mesh_make(&plan, i);
        assert_int_equal(mist_plan_first_rank(&plan, i), rank);
        for (int32_t d = 0; d < plan.stages[i].dp; d++) {
            for (int32_t t = 0; t < plan.stages[i].tp; t++, rank++) {
                assert_int_equal(mist_plan_stage_of(&plan, rank), i);
                assert_int_equal(mist_rank_mesh_at(&mesh, MIST_AXIS_PP, rank), i);
                assert_int_equal(mist_rank_mesh_at(&mesh, MIST_AXIS_DP, rank), d);
                assert_int_equal(mist_rank_mesh_at(&mesh, MIST_AXIS_TP, rank), t);
            }
        }
    }
    assert_int_equal(rank, 10);
    assert_int_equal(mist_plan_n_ranks(&plan), rank);
}

/* Blocks are dealt out in the order of virtual stages; a plan of one chunk has them
 * stage by stage. */
TEST(test_chunks)
{
    static const int32_t by_hand[2][2] = {{1, 7}, {3, 9}};
    struct mist_plan plan;
    int32_t first, n;

    load_good(&plan);
    for (int32_t i = 0; i < 2; i++) {
        mist_plan_chunk_layers(&plan, i, 0, &first, &n);
        assert_int_equal(first, i == 0 ? 1 : 1 + plan.stages[0].n_layers);
        assert_int_equal(n, plan.stages[i].n_layers);
    }
    plan.n_chunks = 2;
    plan.stages[0].n_layers = 4;
    plan.stages[1].n_layers = 8;
    for (int32_t i = 0; i < 2; i++) {
        for (int32_t c = 0; c < 2; c++) {
            mist_plan_chunk_layers(&plan, i, c, &first, &n);
            assert_int_equal(first, by_hand[i][c]);
            assert_int_equal(n, i ? 4 : 2);
        }
    }
    plan.n_stages = 5;
    for (plan.n_chunks = 1; plan.n_chunks <= 4; plan.n_chunks++) {
        int32_t next = 1;
        plan.model.n_layers = 0;
        for (int32_t i = 0; i < 5; i++)
            plan.model.n_layers += plan.stages[i].n_layers =
                plan.n_chunks * (1 + i * 3 % 4);
        for (int32_t k = 0; k < 5 * plan.n_chunks; k++, next += n) {
            mist_plan_chunk_layers(&plan, k % 5, k / 5, &first, &n);
            assert_int_equal(first, next);
            assert_int_equal(n, 1 + k % 5 * 3 % 4);
        }
        assert_int_equal(next, plan.model.n_layers + 1);
        assert_int_equal(mist_plan_head_stage(&plan), 4);
    }
}

/* Down the stages and back up: 1 and 2 blocks of each chunk in turn. */
TEST(test_folded_chunks)
{
    static const int32_t by_hand[2][5] = {{1, 2, 4, 5, 7}, {14, 12, 11, 9, 8}};
    struct mist_plan plan;
    int32_t first, n;

    load_good(&plan);
    plan.pipeline = MIST_PIPELINE_ZB_V;
    plan.n_stages = 5;
    plan.model.n_layers = 14;
    for (int32_t i = 0; i < 5; i++)
        plan.stages[i].n_layers = 2 * (1 + i % 2);
    for (plan.n_chunks = 0; plan.n_chunks <= 2; plan.n_chunks += 2) {
        assert_int_equal(mist_plan_n_chunks(&plan), 2);
        assert_int_equal(mist_plan_head_stage(&plan), 0);
        for (int32_t i = 0; i < 5; i++)
            for (int32_t c = 0; c < 2; c++) {
                mist_plan_chunk_layers(&plan, i, c, &first, &n);
                assert_int_equal(first, by_hand[c][i]);
                assert_int_equal(n, 1 + i % 2);
            }
    }
}

/* The two holders of a tied weight are as large, unless they are one stage. */
TEST(test_tied_stages)
{
    struct mist_plan plan;

    load_good(&plan);
    plan.stages[0].n_layers = plan.stages[1].n_layers = plan.model.n_layers / 2;
    plan.stages[1].n_checkpointed = 0;
    for (int i = 0; i < MIST_N_PIPELINES; i++) {
        plan.pipeline = (enum mist_pipeline_schedule)i;
        plan.n_chunks = i == MIST_PIPELINE_INTERLEAVED ? 2 : 0;
        set_plan_passes(&plan);
        plan.model.ties_embeddings = false;
        assert_int_equal(mist_plan_check(&plan, NULL), MIST_OK);
        plan.model.ties_embeddings = true;
        assert_int_equal(mist_plan_check(&plan, NULL),
                         i == MIST_PIPELINE_ZB_V ? MIST_OK : MIST_ERR_INPUT);
    }
}

/* ----------------------------------------------------------------------------- check */

TEST(test_check)
{
    struct mist_plan good, p;
    struct mist_plan_fault fault;
    struct mist_err err;

    load_good(&good);
#define REFUSED(status, change, word, key_)                                              \
    do {                                                                                 \
        p = good;                                                                        \
        p.change;                                                                        \
        assert_int_equal(mist_plan_find_fault(&p, &fault, &err), status);                \
        if (!strstr(err.message, word) || strcmp(fault.key ? fault.key : "", key_) != 0) \
            fail_msg("%s: %s: %s", #change, fault.key, err.message);                     \
        assert_int_equal(mist_plan_check(&p, NULL), status);                             \
    } while (0)
    REFUSED(MIST_ERR_INPUT, stages[1].zero = 4, "stage 1: ", "zero");
    REFUSED(MIST_ERR_INPUT, stages[0].zero = -1, "stage 0: zero is -1, expected 0 to 3",
            "zero");
    REFUSED(MIST_ERR_INPUT, stages[1].offload_weights = NAN, "nan",
            "offload_weights_frac");
    REFUSED(MIST_ERR_INPUT, stages[0].offload_optimizer = INFINITY, "inf",
            "offload_optimizer_frac");
    p = good;
    p.stages[0].offload_optimizer = 0;
    p.stages[0].updates_on_host = true;
    assert_int_equal(mist_plan_find_fault(&p, &fault, &err), MIST_ERR_INPUT);
    assert_string_equal(err.message,
                        "stage 0: update_on host with offload_optimizer_frac "
                        "0, expected above 0");
    assert_string_equal(fault.key, "update_on");
    REFUSED(MIST_ERR_INPUT, n_stages = 0, "stages is 0", "");
    REFUSED(MIST_ERR_INPUT, n_stages = MIST_MAX_STAGES + 1, "513", "");
    REFUSED(MIST_ERR_INPUT, n_stages = 1, "5 layers", "");
    REFUSED(MIST_ERR_INPUT, job.dtype = (enum mist_dtype)9, "9", "dtype");
    REFUSED(MIST_ERR_INPUT, job.gradient_dtype = (enum mist_dtype)9, "9",
            "gradient_dtype");
    REFUSED(MIST_ERR_INPUT, job.gradient_dtype = MIST_DTYPE_BF16, "expected dtype bf16",
            "gradient_dtype");
    REFUSED(MIST_ERR_INPUT, job.gradient_dtype = MIST_DTYPE_FP16, "expected dtype fp16",
            "gradient_dtype");
    REFUSED(MIST_ERR_INPUT, pipeline = (enum mist_pipeline_schedule)9, "9", "");
    REFUSED(MIST_ERR_INPUT, model.family = (enum mist_family)9, "9", "");
    REFUSED(MIST_ERR_INPUT, predicted.error_s = NAN, "nan", "iteration_s");
    REFUSED(MIST_ERR_INPUT, predicted.probe_s = -0.01, "-0.01", "probe_s");
    REFUSED(MIST_ERR_INPUT, predicted.probe_s = INFINITY, "inf", "probe_s");
    REFUSED(MIST_ERR_INPUT, predicted.alone_frac = 1.5, "1.5", "alone_frac");
    REFUSED(MIST_ERR_INPUT, predicted.alone_frac = NAN, "nan", "alone_frac");
    REFUSED(MIST_ERR_INPUT, predicted.extra_s[1] = INFINITY, "stage 1", "");
    REFUSED(MIST_ERR_INPUT, predicted.stable_s[0] = -1, "stage 0", "");
    /* each size that tp must divide, alone */
    REFUSED(MIST_ERR_INPUT, model.ffn = 1023, "ffn 1023", "tp");
    /* one stage can't have chunks, whatever else is wrong */
    good.n_chunks = 2;
    for (int i = 0; i < 2; i++) {
        good.pipeline = i ? MIST_PIPELINE_ZB_V : MIST_PIPELINE_INTERLEAVED;
        REFUSED(MIST_ERR_INPUT, n_stages = 1, "needs at least 2 stages, the plan has 1",
                "");
        assert_string_equal(fault.section, "pipeline");
    }
    load_good(&good);
#undef REFUSED
    p = good;
    memset(p.trace_set, 'x', sizeof p.trace_set);
    assert_int_equal(mist_plan_check(&p, &err), MIST_ERR_INPUT);
    p = good;
    assert_int_equal(mist_model_load_preset("llama3-8b", &p.model, &err), MIST_OK);
    p.stages[1].n_layers = 27;
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
    p.job.seq_len = 1 << 20; /* no learned positions, no limit */
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
}

/* What tp must divide, and what it need not. */
TEST(test_check_tp)
{
    struct mist_plan p;
    struct mist_err err;

    load_good(&p);
    assert_int_equal(mist_model_load_preset("llama3-8b", &p.model, &err), MIST_OK);
    p.stages[1].n_layers = 27;
    p.model.n_kv_heads = 1; /* every rank has a copy */
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
    p.model.n_kv_heads = 2;
    p.model.vocab = 50257; /* the last rank's part is padded */
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
    p.stages[1].tp = 4;
    p.stages[1].n_devices = 8;
    assert_int_equal(mist_plan_check(&p, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "stage 1: tp 4 does not divide n_kv_heads 2"));
    p.model.n_kv_heads = 4;
    p.stages[1].is_sequence_parallel = true; /* 1 sample of seq_len tokens */
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
    p.job.seq_len = 510;
    assert_int_equal(mist_plan_check(&p, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "stage 1: sequence_parallel: tp 4 does not "
                                        "divide the 510 tokens of micro_batch 1"));
    for (int i = 0; i < 2; i++) { /* the same with 2 samples is divisible */
        p.stages[i].micro_batch *= 2;
        p.job.global_batch = 32;
    }
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
}

/* Tied embeddings on two stages need partners for all ranks; on one stage they don't. */
TEST(test_check_tied)
{
    struct mist_plan p;
    struct mist_plan_fault fault;
    struct mist_err err;

    load_good(&p);
    p.model.ties_embeddings = true;
    p.stages[2] = p.stages[0];
    p.n_stages = 3; /* 5 + 7 + 5 layers; the one in the middle is free */
    p.model.n_layers = 17;
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
    p.stages[2].tp = 2;
    p.stages[2].n_devices = 4;
    assert_int_equal(mist_plan_find_fault(&p, &fault, &err), MIST_ERR_INPUT);
    assert_string_equal(fault.section, "stages");
    assert_int_equal(fault.i_stage, 2);
    assert_string_equal(fault.key, "tp");
    assert_non_null(strstr(err.message, "stage 2: tp is 2, expected stage 0's 1: "));
    assert_non_null(strstr(err.message, "gradient of the shared weight rank by rank"));
    p.model.ties_embeddings = false;
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
    p.n_stages = 1;
    p.model.n_layers = 5;
    p.model.ties_embeddings = true;
    assert_int_equal(mist_plan_check(&p, &err), MIST_OK);
}

TEST(test_range)
{
    struct mist_plan p;
    struct mist_err err;

    load_good(&p);
    assert_int_equal(mist_model_load_preset("llama3-8b", &p.model, &err), MIST_OK);
    p.stages[1].n_layers = 27;
    p.job.seq_len = INT32_MAX; /* 2 samples of it are too many tokens for 31 bits */
    assert_int_equal(mist_plan_check(&p, &err), MIST_ERR_RANGE);
    assert_non_null(strstr(err.message, "4294967294 tokens"));
    p.job.seq_len = 8;
    p.job.global_batch =
        INT32_MAX; /* one micro-batch, a sample on each of 2^31-1 ranks */
    p.n_micro_batches = 1;
    for (int i = 0; i < 2; i++) {
        p.stages[i].n_nodes = p.stages[i].dp = INT32_MAX;
        p.stages[i].n_devices = p.stages[i].tp = p.stages[i].micro_batch = 1;
    }
    assert_int_equal(mist_plan_check(&p, &err), MIST_ERR_RANGE);
    assert_non_null(strstr(err.message, "4294967294 ranks"));
}

/* Every field but the name changes the fingerprint, and no two changes give the same. */
TEST(test_fingerprint)
{
    struct mist_model m;
    struct mist_job job = {.global_batch = 16, .seq_len = 512};
    uint64_t seen[32];
    int n = 0;

    assert_int_equal(mist_model_load_preset("llama3-8b", &m, NULL), MIST_OK);
    seen[n++] = mist_plan_fingerprint(&m, &job, 0);
    strcpy(m.name, "other");
    assert_int_equal(mist_plan_fingerprint(&m, &job, 0), seen[0]);
    seen[n++] = mist_plan_fingerprint(&m, &job, 1);
#define CHANGED(field, value)                                                            \
    do {                                                                                 \
        field = value;                                                                   \
        seen[n++] = mist_plan_fingerprint(&m, &job, 0);                                  \
    } while (0)
    CHANGED(m.family, MIST_FAMILY_FALCON);
    CHANGED(m.n_layers, 7);
    CHANGED(m.hidden, 7);
    CHANGED(m.n_heads, 7);
    CHANGED(m.n_kv_heads, 7);
    CHANGED(m.head_dim, 7);
    CHANGED(m.ffn, 7);
    CHANGED(m.vocab, 7);
    CHANGED(m.max_seq, 7);
    CHANGED(m.has_bias, true);
    CHANGED(m.ties_embeddings, true);
    CHANGED(m.norm_epsilon, 0.5);
    CHANGED(m.rope_theta, 7);
    CHANGED(job.global_batch, 7);
    CHANGED(job.seq_len, 7);
    CHANGED(job.dtype, MIST_DTYPE_BF16);
#undef CHANGED
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            assert_true(seen[i] != seen[j]);
    }
}

TEST_MAIN(NULL, NULL)
