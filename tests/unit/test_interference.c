/* sim/interference: closed forms, published factors and times, recovery by the fit. */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/cost/interference.h"
#include "tests/unit/reference_path.h"

#include <math.h>

#define MAX_SAMPLES 8000

/* Factors that the original system ships, by busy set: bit 0 compute, 1 gpu_gpu, 2 H2D, 3
 * D2H. The published times pin them down: fitting recovers these figures to all printed
 * digits. */
static const struct mist_interference l4 = {.slowdown = {
                                                [0] = {1, 1, 1, 1},
                                                [1] = {1, 1, 1, 1},
                                                [2] = {1, 1, 1, 1},
                                                [3] = {1.1676, 1, 1, 1},
                                                [4] = {1, 1, 1, 1},
                                                [5] = {1.0152, 1, 1.0005, 1},
                                                [6] = {1, 1, 2.1383, 1},
                                                [7] = {2.0865, 1.0009, 2.3930, 1},
                                                [8] = {1, 1, 1, 1},
                                                [9] = {1.0179, 1, 1, 1.0022},
                                                [10] = {1, 1.0780, 1, 2.4380},
                                                [11] = {2.4146, 1.0869, 1, 2.6637},
                                                [12] = {1, 1, 2.4327, 1.0974},
                                                [13] = {1.9381, 1, 3.2653, 1},
                                                [14] = {1, 1.2340, 50, 1.6883},
                                                [15] = {18.9356, 1.2639, 50, 1.6046},
                                            }};
static const struct mist_interference a100 = {.slowdown = {
                                                  [0] = {1, 1, 1, 1},
                                                  [1] = {1, 1, 1, 1},
                                                  [2] = {1, 1, 1, 1},
                                                  [3] = {1.2856, 1.0393, 1, 1},
                                                  [4] = {1, 1, 1, 1},
                                                  [5] = {1.0081, 1, 1.0099, 1},
                                                  [6] = {1, 1.5508, 1.0972, 1},
                                                  [7] = {1.2264, 2.8078, 1.4660, 1},
                                                  [8] = {1, 1, 1, 1},
                                                  [9] = {1.0125, 1, 1, 1.0251},
                                                  [10] = {1, 1.1336, 1, 1.2723},
                                                  [11] = {1.3202, 2.2295, 1, 1.9320},
                                                  [12] = {1, 1, 1.5186, 1.2665},
                                                  [13] = {1.0309, 1, 1.9929, 1.0438},
                                                  [14] = {1, 5.4986, 1.2915, 1.7303},
                                                  [15] = {1.3070, 2.6325, 2.4097, 2.5898},
                                              }};

TEST(test_bundle_closed_forms)
{
    struct mist_interference f;

    mist_interference_init(&f);
    assert_near(mist_interference_bundle_s(&f, (double[]){0, 0, 0, 0}), 0.0, 0.0);
    assert_near(mist_interference_bundle_s(&f, (double[]){0, 0, 7, 0}), 7.0, 0.0);
    assert_near(mist_interference_bundle_s(&f, (double[]){1, 5, 3, 2}), 5.0, 1e-15);
    /* Two channels: the first ends at a * fa, the other has b - a * fa / fb left. */
    f.slowdown[3][0] = 1.5;
    f.slowdown[3][1] = 1.2;
    assert_near(mist_interference_bundle_s(&f, (double[]){2, 10, 0, 0}),
                3.0 + (10.0 - 3.0 / 1.2), 1e-14);
    assert_near(mist_interference_bundle_s(&f, (double[]){4, 5, 0, 0}), 6.0, 1e-14);
    /* Three: H2D ends at 1 * 2 = 2, compute has 4 - 2/4 left, gpu_gpu 4 - 2/2; then the
     * pair, where gpu_gpu ends after 3 * 1.2 = 3.6 and compute has 3.5 - 3.6/1.5 = 1.1
     * left. */
    memcpy(f.slowdown[7], (double[]){4, 2, 2, 1}, sizeof f.slowdown[7]);
    assert_near(mist_interference_bundle_s(&f, (double[]){4, 4, 1, 0}), 2 + 3.6 + 1.1,
                1e-14);
    /* All four alike at a factor 4: one after the other would take as long. */
    for (int c = 0; c < 4; c++)
        f.slowdown[15][c] = 4.0;
    assert_near(mist_interference_bundle_s(&f, (double[]){1, 1, 1, 1}), 4.0, 1e-15);
}

/* Streams of one thread: the times of any bundle add up, and communication ends first. */
TEST(test_turns_add_up)
{
    struct mist_interference turns;
    struct mist_interference_sample samples[100];
    struct mist_random random;
    double expected = 0, worst;
    int n_together = 0;

    mist_random_init(&random, 7);
    mist_interference_take_turns(&turns);
    assert_int_equal(mist_interference_check(&turns, NULL), MIST_OK);
    for (int i = 0; i < 100; i++) {
        double sum_s = 0;
        int n_busy = 0;
        for (int c = 0; c < MIST_N_CHANNELS; c++) {
            bool is_busy = mist_random_next(&random) % 3 > 0;
            double time_s =
                is_busy ? 1e-4 * (double)(1 + mist_random_next(&random) % 50) : 0;
            samples[i].isolated_s[c] = time_s;
            sum_s += time_s;
            n_busy += is_busy;
        }
        samples[i].together_s = n_busy > 0 ? sum_s * (i % 2 ? 1.25 : 1) : 1;
        assert_near(mist_interference_bundle_s(&turns, samples[i].isolated_s), sum_s,
                    1e-4 * sum_s);
        if (n_busy > 1) {
            n_together++;
            expected += i % 2 ? 0.2 : 0;
        }
    }
    assert_near(mist_interference_residual_frac(&turns, samples, 100, &worst),
                expected / n_together, 1e-4);
    assert_near(worst, 0.2, 1e-4);
    unsigned all = MIST_N_STREAM_SETS - 1;
    assert_true(mist_interference_of(&turns, all, MIST_STREAM_GPU_GPU) == 1);
    assert_true(mist_interference_of(&turns, all, MIST_STREAM_COMPUTE) > 1e5);
}

/* Transfers between stages disturb, and are disturbed, as collectives are; the three share
 * nothing unless one processor does them all. */
TEST(test_streams_of_a_channel)
{
    static const enum mist_stream streams[] = {MIST_STREAM_GPU_GPU, MIST_STREAM_SEND,
                                               MIST_STREAM_RECEIVE};
    struct mist_interference turns, blocks = a100;

    blocks.blocks_transfers = true;
    for (unsigned set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int some = 1; some < 8; some++) {
            unsigned busy = set & ~(1u << MIST_STREAM_GPU_GPU);
            for (int i = 0; i < 3; i++)
                busy |= (unsigned)(some >> i & 1) << streams[i];
            for (int c = 0; c < MIST_N_STREAMS; c++) {
                enum mist_stream channel = mist_stream_channel((enum mist_stream)c);
                if (busy >> c & 1 && set >> MIST_STREAM_GPU_GPU & 1)
                    assert_true(mist_interference_of(&a100, busy, (enum mist_stream)c) ==
                                a100.slowdown[set][channel]);
                /* blocking transfers let nothing be computed; the rest is as it was */
                bool stands = some > 1 && c == MIST_STREAM_COMPUTE;
                if (busy >> c & 1)
                    assert_true(
                        mist_interference_of(&blocks, busy, (enum mist_stream)c) ==
                        (stands
                             ? MIST_STANDS_STILL
                             : mist_interference_of(&a100, busy, (enum mist_stream)c)));
            }
        }
    mist_interference_take_turns(&turns);
    for (int shares = 0; shares < 2; shares++)
        for (int some = 1; some < 8; some++) {
            unsigned busy = 0;
            int n = 0;
            turns.shares_processors = shares;
            for (int i = 0; i < 3; i++) {
                busy |= (unsigned)(some >> i & 1) << streams[i];
                n += some >> i & 1;
            }
            for (int i = 0; i < 3; i++)
                if (some >> i & 1)
                    assert_true(mist_interference_of(&turns, busy, streams[i]) ==
                                (shares ? n : 1));
        }
}

TEST(test_check_names_the_factor)
{
    struct mist_interference f;
    struct mist_err err = {0};

    mist_interference_init(&f);
    assert_int_equal(mist_interference_check(&f, &err), MIST_OK);
    f.slowdown[5][2] = 0.99;
    assert_int_equal(mist_interference_check(&f, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "host_to_device"));
    f.slowdown[5][2] = NAN;
    assert_int_equal(mist_interference_check(&f, &err), MIST_ERR_INPUT);
}

TEST(test_published_times)
{
    FILE *stream = open_reference("mist/interference_golden.csv");
    char line[512], name[64];
    int n = 0;

    if (!stream)
        skip();
    while (fgets(line, sizeof line, stream)) {
        double t[4], expected;
        if (sscanf(line, "%63[^,],%lf,%lf,%lf,%lf,%lf", name, t, t + 1, t + 2, t + 3,
                   &expected) != 6)
            continue;
        const struct mist_interference *f = strcmp(name, "template-l4") ? &a100 : &l4;
        assert_near(mist_interference_bundle_s(f, t), expected, 1e-12 * expected + 1e-15);
        n++;
    }
    fclose(stream);
    assert_int_equal(n, 732);
}

/* n random samples of each set of two to four channels, with relative noise. */
static int make_samples(const struct mist_interference *f, double noise_frac,
                        int n_per_set, uint64_t seed,
                        struct mist_interference_sample *samples)
{
    struct mist_random random;
    int n = 0;

    mist_random_init(&random, seed);
    for (int set = 1; set < MIST_N_STREAM_SETS; set++)
        for (int k = 0; (set & (set - 1)) && k < n_per_set; k++, n++) {
            for (int c = 0; c < 4; c++)
                samples[n].isolated_s[c] =
                    set >> c & 1 ? 1e-3 + 0.05 * mist_random_uniform(&random) : 0.0;
            samples[n].together_s =
                mist_interference_bundle_s(f, samples[n].isolated_s) *
                (1.0 + noise_frac * (2.0 * mist_random_uniform(&random) - 1.0));
        }
    return n;
}

static double worst_factor_error(const struct mist_interference *a,
                                 const struct mist_interference *b)
{
    double worst = 0.0;

    for (int set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            worst = fmax(worst, fabs(a->slowdown[set][c] / b->slowdown[set][c] - 1.0));
    return worst;
}

TEST(test_fit_recovers_factors)
{
    static struct mist_interference_sample samples[MAX_SAMPLES];
    struct mist_interference_fit_report report;
    struct mist_interference fitted, again;
    int n = make_samples(&a100, 0.0, 40, 1, samples);

    assert_int_equal(mist_interference_fit(&fitted, &report, samples, n, NULL), MIST_OK);
    assert_true(worst_factor_error(&fitted, &a100) < 1e-7);
    assert_true(report.worst_frac < 1e-9);
    assert_int_equal(report.n_not_measured, 0);
    assert_int_equal(report.set[15].n_samples, 40);
    assert_int_equal(mist_interference_fit(&again, NULL, samples, n, NULL), MIST_OK);
    assert_memory_equal(&fitted, &again, sizeof fitted);

    n = make_samples(&a100, 0.02, 400, 2, samples); /* measurements scatter by 2 % */
    assert_int_equal(mist_interference_fit(&fitted, &report, samples, n, NULL), MIST_OK);
    print_message(
        "2 %% noise: factors off by at most %.2g, residual mean %.2g worst %.2g\n",
        worst_factor_error(&fitted, &a100), report.mean_frac, report.worst_frac);
    assert_true(worst_factor_error(&fitted, &a100) < 0.05);
    assert_true(report.mean_frac < 0.0115 && report.mean_frac > 0.0085); /* 0.02 / 2 */
    assert_int_equal(mist_interference_check(&fitted, NULL), MIST_OK);
}

TEST(test_fit_stays_above_one)
{
    static struct mist_interference_sample samples[MAX_SAMPLES];
    struct mist_interference none, fitted;
    int n;

    mist_interference_init(&none);
    n = make_samples(&none, 0.0, 30, 3, samples);
    for (int i = 0; i < n; i++)
        samples[i].together_s *= 0.97; /* faster than possible */
    assert_int_equal(mist_interference_fit(&fitted, NULL, samples, n, NULL), MIST_OK);
    assert_int_equal(mist_interference_check(&fitted, NULL), MIST_OK);
    assert_near(worst_factor_error(&fitted, &none), 0.0, 1e-12);
}

TEST(test_defaults_are_flagged)
{
    static struct mist_interference_sample samples[MAX_SAMPLES], kept[MAX_SAMPLES];
    struct mist_interference_fit_report report;
    struct mist_interference f;
    int n = make_samples(&a100, 0.0, 40, 4, samples), n_kept = 0;

    for (int i = 0; i < n; i++) { /* pairs only, and of those not gpu_gpu with D2H */
        const double *t = samples[i].isolated_s;
        int busy = (t[0] > 0) + (t[1] > 0) + (t[2] > 0) + (t[3] > 0);
        if (busy == 2 && !(t[1] > 0 && t[3] > 0))
            kept[n_kept++] = samples[i];
    }
    assert_int_equal(mist_interference_fit(&f, &report, kept, n_kept, NULL), MIST_OK);
    assert_int_equal(report.n_not_measured, 6);
    assert_true(report.set[3].measured && !report.set[10].measured &&
                !report.set[15].measured);
    assert_near(f.slowdown[10][1], 1.0, 0.0);
    assert_near(f.slowdown[7][1], 1.0393 * 1.5508, 1e-6);
    assert_near(f.slowdown[15][0], 1.2856 * 1.0081 * 1.0125, 1e-6);
    assert_near(f.slowdown[7][3], 1.0, 0.0);

    assert_int_equal(mist_interference_fit(&f, &report, NULL, 0, NULL), MIST_OK);
    assert_int_equal(report.n_not_measured, 11);
}

TEST(test_invalid_samples)
{
    struct mist_interference_sample s[2] = {{{1, 1, 0, 0}, 1.5}, {{1, 0, 0, 0}, 1}};
    struct mist_interference f;
    struct mist_err err = {0};

    s[1].together_s = 0.0;
    assert_int_equal(mist_interference_fit(&f, NULL, s, 2, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "sample 1"));
    s[1] = (struct mist_interference_sample){{0, 0, 0, 0}, 1};
    assert_int_equal(mist_interference_fit(&f, NULL, s, 2, &err), MIST_ERR_INPUT);
    s[1] = (struct mist_interference_sample){{0, -1, 0, 0}, 1};
    assert_int_equal(mist_interference_fit(&f, NULL, s, 2, &err), MIST_ERR_INPUT);
    s[1] = (struct mist_interference_sample){{0, INFINITY, 0, 0}, 1};
    assert_int_equal(mist_interference_fit(&f, NULL, s, 2, &err), MIST_ERR_INPUT);
}

/* Measured on L4 with pageable host memory:
 * the bundles of copies run one after the other. */
static int read_l4_samples(FILE *stream, struct mist_interference_sample *samples)
{
    static double row[MAX_SAMPLES][5];
    char line[512];
    int n_rows = 0, n = 0;

    while (fgets(line, sizeof line, stream) && n_rows < MAX_SAMPLES) {
        double *r = row[n_rows];
        int world, intra, inter;
        if (sscanf(line, "%*[^,],%lf,%*f,%*f,%lf,%lf,%lf,%lf,%*f,%*f,%d,%d,%d", r, r + 1,
                   r + 2, r + 3, r + 4, &world, &intra, &inter) == 8 &&
            world == 8 && intra == 2 && inter == 1)
            n_rows++;
    }
    for (int i = 0; i < n_rows; i++) {
        bool known = true;
        samples[n].together_s = row[i][4] * 1e-3;
        for (int c = 0; c < 4;
             c++) { /* the row in which this channel runs the same alone */
            samples[n].isolated_s[c] = 0.0;
            for (int k = 0; row[i][c] > 0 && k < n_rows; k++)
                if (row[k][c] == row[i][c] &&
                    row[k][0] + row[k][1] + row[k][2] + row[k][3] == row[k][c])
                    samples[n].isolated_s[c] = row[k][4] * 1e-3;
            known = known && (row[i][c] == 0 || samples[n].isolated_s[c] > 0);
        }
        n += known;
    }
    return n;
}

TEST(test_fit_of_measurements)
{
    static struct mist_interference_sample samples[MAX_SAMPLES];
    struct mist_interference_fit_report report;
    struct mist_interference f;
    FILE *stream = open_reference("mist/l4_interference.csv");

    if (!stream)
        skip();
    int n = read_l4_samples(stream, samples);
    fclose(stream);
    assert_true(n > 100);
    assert_int_equal(mist_interference_fit(&f, &report, samples, n, NULL), MIST_OK);
    print_message(
        "L4: %d samples, residual mean %.2g worst %.2g; H2D with D2H %.3f %.3f\n", n,
        report.mean_frac, report.worst_frac, f.slowdown[12][2], f.slowdown[12][3]);
    assert_int_equal(mist_interference_check(&f, NULL), MIST_OK);
    /* Two pageable copies take turns, which is a factor of about 2 for both. */
    assert_true(report.set[12].measured && report.set[12].mean_frac < 0.1);
    assert_true(f.slowdown[12][2] > 1.5 && f.slowdown[12][3] > 1.5);
}

TEST_MAIN(NULL, NULL)
