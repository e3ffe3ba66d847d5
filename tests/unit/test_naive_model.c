/*
 * The naive reference model against finite differences of its own loss, a closed form at
 * initialisation, and AdamW by hand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/naive_model.h"

#include <stdio.h>

static const struct naive_config configs[] = {
    {NAIVE_GPT, 2, 12, 3, 3, 20, 17, 7, 1, 1e-5, 0.0},
    {NAIVE_GPT, 1, 8, 2, 1, 12, 11, 5, 0, 1e-5, 0.0},
    {NAIVE_LLAMA, 2, 16, 4, 2, 10, 13, 6, 0, 1e-6, 10000.0},
};

enum { BATCH = 2 };

static double next_uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53 - 0.5;
}

static void fill_batch(const struct naive_config *c, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < BATCH * c->seq_len; i++) {
        tokens[i] = (int32_t)((i * i * 5 + i * 3 + 1) % c->vocab);
        targets[i] = (int32_t)((i * i * 7 + 2) % c->vocab);
    }
}

/* Central differences with Richardson's extrapolation: error O(step^4). */
static double loss_slope(const struct naive_config *c, double *params, double *scratch,
                         int64_t i, const int32_t *tokens, const int32_t *targets)
{
    double kept = params[i], slope[2];
    for (int k = 0; k < 2; k++) {
        double step = k == 0 ? 2e-3 : 1e-3;
        params[i] = kept + step;
        double above =
            naive_loss_and_gradient(c, params, scratch, tokens, targets, BATCH);
        params[i] = kept - step;
        double below =
            naive_loss_and_gradient(c, params, scratch, tokens, targets, BATCH);
        slope[k] = (above - below) / (2.0 * step);
    }
    params[i] = kept;
    return slope[1] + (slope[1] - slope[0]) / 3.0;
}

static void test_gradients(void **state)
{
    (void)state;
    for (size_t i_config = 0; i_config < sizeof configs / sizeof *configs; i_config++) {
        const struct naive_config *c = &configs[i_config];
        int64_t n = naive_n_params(c);
        double *params = naive_zeros(n), *grad = naive_zeros(n),
               *scratch = naive_zeros(n);
        int32_t tokens[64], targets[64];
        uint64_t seed = 7 + i_config;
        for (int64_t i = 0; i < n; i++)
            params[i] = next_uniform(&seed);
        fill_batch(c, tokens, targets);
        naive_loss_and_gradient(c, params, grad, tokens, targets, BATCH);
        for (int t = 0; t < (int)NAIVE_N_TENSORS; t++)
            for (int l = 0; l < (naive_is_of_layer((enum naive_tensor)t) ? c->layers : 1);
                 l++) {
                int64_t size = naive_tensor_size(c, (enum naive_tensor)t);
                int64_t begin = naive_tensor_offset(c, (enum naive_tensor)t, l);
                double error2 = 0.0, norm2 = 0.0;
                for (int64_t i = begin; i < begin + size; i++) {
                    double fd = loss_slope(c, params, scratch, i, tokens, targets);
                    error2 += (fd - grad[i]) * (fd - grad[i]);
                    norm2 += fd * fd;
                }
                if (size > 0 && !(sqrt(error2) <= 1e-6 * sqrt(norm2)))
                    fail_msg("config %zu tensor %d layer %d: relative error %g", i_config,
                             t, l, sqrt(error2 / norm2));
            }
        free(params);
        free(grad);
        free(scratch);
    }
}

/* The layout has no holes and no overlaps, and ends at n_params. */
static void test_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const struct naive_config *c = &configs[i];
        int64_t next = 0;
        for (int t = 0; t < (int)NAIVE_NORM1_W; t++) {
            assert_int_equal(naive_tensor_offset(c, (enum naive_tensor)t, 0), next);
            next += naive_tensor_size(c, (enum naive_tensor)t);
        }
        for (int l = 0; l < c->layers; l++)
            for (int t = NAIVE_NORM1_W; t <= (int)NAIVE_FC2_B; t++) {
                assert_int_equal(naive_tensor_offset(c, (enum naive_tensor)t, l), next);
                next += naive_tensor_size(c, (enum naive_tensor)t);
            }
        for (int t = NAIVE_FINAL_W; t < (int)NAIVE_N_TENSORS; t++) {
            assert_int_equal(naive_tensor_offset(c, (enum naive_tensor)t, 0), next);
            next += naive_tensor_size(c, (enum naive_tensor)t);
        }
        assert_int_equal(naive_n_params(c), next);
    }
}

/* With a zero head every token is equally likely: the loss is log(vocab). */
static void test_loss_of_zero_head(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const struct naive_config *c = &configs[i];
        int64_t n = naive_n_params(c);
        double *params = naive_zeros(n), *grad = naive_zeros(n);
        int32_t tokens[64], targets[64];
        uint64_t seed = 3;
        for (int64_t j = 0; j < n - naive_tensor_size(c, NAIVE_HEAD_W); j++)
            params[j] = next_uniform(&seed);
        fill_batch(c, tokens, targets);
        double loss = naive_loss_and_gradient(c, params, grad, tokens, targets, BATCH);
        assert_true(fabs(loss - log(c->vocab)) < 1e-12);
        free(params);
        free(grad);
    }
}

/* First step from zero moments: |update| is lr g / (|g| + eps) + decay, by hand. */
static void test_adamw(void **state)
{
    (void)state;
    double p[2] = {1.0, -2.0}, m[2] = {0}, v[2] = {0}, g[2] = {0.5, -0.25};
    naive_adamw(p, m, v, g, 2, 1, 0.1, 0.9, 0.99, 1e-8, 0.01);
    assert_true(fabs(p[0] - (1.0 - 0.1 * (0.5 / (0.5 + 1e-8) + 0.01))) < 1e-14);
    assert_true(fabs(p[1] - (-2.0 - 0.1 * (-0.25 / (0.25 + 1e-8) - 0.02))) < 1e-14);
    assert_true(fabs(m[0] - 0.05) < 1e-15 && fabs(v[1] - 0.01 * 0.0625) < 1e-15);
    naive_adamw(p, m, v, g, 2, 2, 0.1, 0.9, 0.99, 1e-8,
                0.0); /* constant g: same step again */
    assert_true(fabs(p[0] - (1.0 - 0.1 * 1.01 - 0.1)) < 1e-7);
}

/* A few full steps on one batch must learn it: the loss falls well below its start. */
static void test_training_learns(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const struct naive_config *c = &configs[i];
        int64_t n = naive_n_params(c);
        double *params = naive_zeros(n), *grad = naive_zeros(n);
        double *m = naive_zeros(n), *v = naive_zeros(n), first = 0.0, last = 0.0;
        int32_t tokens[64], targets[64];
        uint64_t seed = 11;
        for (int64_t j = 0; j < n; j++)
            params[j] = next_uniform(&seed);
        fill_batch(c, tokens, targets);
        for (int t = 1; t <= 30; t++) {
            last = naive_loss_and_gradient(c, params, grad, tokens, targets, BATCH);
            first = t == 1 ? last : first;
            naive_adamw(params, m, v, grad, n, t, 2e-2, 0.9, 0.95, 1e-8, 0.0);
        }
        assert_true(last < 0.5 * first);
        free(params);
        free(grad);
        free(m);
        free(v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_loss_of_zero_head),
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_training_learns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
