/*
 * Loss, gradients and AdamW steps of the catalogue's programs
 * (catalogue_runner.h) against those of PyTorch (tests/data/reference). Every
 * model is run whole, in micro-batches, with recomputed activations, and with
 * the weight gradients as a program of their own.
 */
#include "tests/prop/catalogue_runner.h"

enum { N_THREADS = 2 };

/* float32 with another order of sums; PyTorch's own float32 run is off by 1e-7
 * and 1e-6. */
#define LOSS_TOLERANCE     1e-6
#define GRADIENT_TOLERANCE 1e-5

static void check_loss(const struct catalogue_run *run, const char *when, double loss,
                       double expected)
{
    if (!(fabs(loss / expected - 1.0) <= LOSS_TOLERANCE))
        fail_msg("%s, %s, %s: loss %.9g, expected %.9g", run->model->name,
                 run->variant->name, when, loss, expected);
}

/* Error of the gradient of one parameter, which the reference must have. */
static double gradient_error(const struct reference *reference,
                             const struct catalogue_run *run, int i_module, int i_param)
{
    char name[64];
    const struct catalogue_module *module = &run->modules[i_module];
    const float *gradient = module->gradients + module->layout->params[i_param].offset;
    const struct reference_gradient *expected =
        reference_find(reference, catalogue_name(run, i_module, i_param, name));

    if (!expected || expected->n != module->layout->params[i_param].n_elements)
        fail_msg("%s has no such parameter: %s", run->model->name, name);
    double *values = calloc((size_t)expected->n, sizeof *values);
    assert_non_null(values);
    for (int64_t j = 0; j < expected->n; j++)
        values[j] = (double)gradient[j];
    double error = reference_error(expected, values);
    free(values);
    if (!(error <= GRADIENT_TOLERANCE))
        fail_msg("%s, %s: gradient of %s is off by %g", run->model->name,
                 run->variant->name, name, error);
    return error;
}

/* Worst error of the gradients; every parameter of the reference must come
 * once. */
static double check_gradients(const struct reference *reference,
                              const struct catalogue_run *run)
{
    double worst = 0;
    size_t n_compared = 0;
    char name[64];

    for (int i = 0; i < run->n_modules; i++)
        for (int k = 0; k < run->modules[i].layout->n_params; k++) {
            if (i > 0 && strcmp(catalogue_name(run, i, k, name), "wte") == 0)
                continue; /* the tied one, summed up in the embedding */
            worst = fmax(worst, gradient_error(reference, run, i, k));
            n_compared++;
        }
    assert_int_equal(n_compared, reference->n_gradients);
    return worst;
}

TEST(test_gradients)
{
    static struct catalogue_run run;
    struct reference reference;

    for (int i = 0; i < N_REFERENCES; i++) {
        reference_load(reference_names[i], &reference);
        for (int k = 0; k < N_CATALOGUE_VARIANTS; k++) {
            catalogue_open(&reference, &catalogue_variants[k], MIST_DTYPE_FP32, N_THREADS,
                           &run);
            double loss = catalogue_take_gradient(&run);
            check_loss(&run, "first", loss, reference.loss);
            double worst = check_gradients(&reference, &run);
            print_message("# %s, %s: loss off by %.1e, %zu gradients by %.1e at worst\n",
                          reference_names[i], run.variant->name,
                          fabs(loss / reference.loss - 1.0), reference.n_gradients,
                          worst);
            catalogue_close(&run);
        }
        reference_free(&reference);
    }
}

/* The program that only evaluates gives the loss and leaves the gradients
 * alone. */
TEST(test_evaluation)
{
    static struct catalogue_run run;
    struct reference reference;

    for (int i = 0; i < N_REFERENCES; i++) {
        reference_load(reference_names[i], &reference);
        catalogue_open(&reference, &catalogue_variants[CATALOGUE_WHOLE], MIST_DTYPE_FP32,
                       N_THREADS, &run);
        double loss =
            catalogue_forward(&run, 0, MIST_PROGRAM_EVALUATE) / (run.batch * run.seq);
        check_loss(&run, "evaluated", loss, reference.loss);
        for (int k = 0; k < run.n_modules; k++)
            for (int64_t j = 0; j < run.modules[k].layout->n_parameters; j++)
                assert_true(run.modules[k].gradients[j] == 0);
        catalogue_close(&run);
        reference_free(&reference);
    }
}

TEST(test_steps)
{
    static struct catalogue_run run;
    struct reference reference;

    for (int i = 0; i < N_REFERENCES; i++) {
        reference_load(reference_names[i], &reference);
        catalogue_open(&reference, &catalogue_variants[CATALOGUE_WHOLE], MIST_DTYPE_FP32,
                       N_THREADS, &run);
        for (int t = 0; t <= REFERENCE_STEPS; t++) {
            char when[32];
            snprintf(when, sizeof when, "after %d steps", t);
            check_loss(&run, when, catalogue_take_gradient(&run), reference.losses[t]);
            catalogue_update(&run, t + 1);
        }
        catalogue_close(&run);
        reference_free(&reference);
    }
}

TEST_MAIN(NULL, NULL)
