/*
 * Timelines and their Chrome traces: words, checks, CSV there and back, malformed files.
 */
#include "tests/unit/test.h"

#include "traces/chrome_trace.h"
#include "traces/timeline.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

static const char HEAD[] =
    "rank,stream,kind,layer,micro_batch,iteration,task,start_s,end_s,"
    "bytes,device_live_bytes\n";
static const char HEAD_N_RANKS[] =
    "rank,stream,kind,layer,micro_batch,iteration,task,start_s,end_s,"
    "bytes,device_live_bytes,n_ranks\n";

static struct mist_timeline_row row_of(int rank, enum mist_stream stream, int64_t task,
                                       double start_s, double end_s)
{
    return (struct mist_timeline_row){.rank = rank,
                                      .stream = stream,
                                      .kind = MIST_TASK_FORWARD,
                                      .layer = -1,
                                      .micro_batch = 2,
                                      .task = task,
                                      .start_s = start_s,
                                      .end_s = end_s,
                                      .bytes = 7,
                                      .device_live_bytes = 1000 + task};
}

static void fill(struct mist_timeline *timeline)
{
    const struct mist_timeline_row rows[] = {
        row_of(1, MIST_STREAM_COMPUTE, 0, 0.1, 1.0 / 3),
        row_of(0, MIST_STREAM_COMPUTE, 0, 0, 0.2),
        row_of(0, MIST_STREAM_GPU_GPU, 1, 0.1, 0.3),
        row_of(0, MIST_STREAM_COMPUTE, 2, 0.2, 0.2), /* touches both neighbours */
        row_of(0, MIST_STREAM_COMPUTE, 3, 0.2, 0.25),
    };

    mist_timeline_init(timeline);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(mist_timeline_add(timeline, &rows[i], NULL), MIST_OK);
}

static char *new_path(void)
{
    char *path = strdup("/tmp/mist_test_XXXXXX");
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    return path;
}

TEST(test_words)
{
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(mist_task_kind_name((enum mist_task_kind)i),
                                    mist_task_kind_name((enum mist_task_kind)k));
    for (int i = 0; i < MIST_N_STREAMS; i++)
        for (int k = 0; k < i; k++)
            assert_string_not_equal(mist_stream_name((enum mist_stream)i),
                                    mist_stream_name((enum mist_stream)k));
    assert_string_equal(mist_task_kind_name(MIST_TASK_SWAP_OUT_OPTIMIZER),
                        "swap_out_optimizer");
    assert_string_equal(mist_task_kind_name(MIST_TASK_LOAD_BATCH), "load_batch");
}

TEST(test_check)
{
    struct mist_timeline timeline;
    struct mist_err err = {0};
    double start_s = 9, end_s = 9;

    fill(&timeline);
    assert_int_equal(mist_timeline_check(&timeline, NULL, &err), MIST_OK);
    mist_timeline_span(&timeline, &start_s, &end_s);
    assert_true(start_s == 0 && end_s == 1.0 / 3);

#define REJECTS(i, field, bad, text)                                                     \
    do {                                                                                 \
        struct mist_timeline_row good = timeline.rows[i];                                \
        timeline.rows[i].field = (bad);                                                  \
        assert_int_equal(mist_timeline_check(&timeline, NULL, &err), MIST_ERR_INPUT);    \
        assert_non_null(strstr(err.message, text));                                      \
        timeline.rows[i] = good;                                                         \
    } while (0)
    REJECTS(0, rank, -1, "row 1: rank");
    REJECTS(1, stream, MIST_N_STREAMS, "row 2: stream");
    REJECTS(1, kind, MIST_N_TASK_KINDS, "kind");
    REJECTS(1, layer, -2, "layer");
    REJECTS(1, micro_batch, -2, "micro_batch");
    REJECTS(1, iteration, -1, "iteration");
    REJECTS(1, task, -1, "task");
    REJECTS(1, start_s, -0.5, "start_s");
    REJECTS(1, start_s, (double)NAN, "start_s");
    REJECTS(4, end_s, 0.19, "row 5: end_s");
    REJECTS(4, end_s, (double)INFINITY, "end_s");
    REJECTS(1, bytes, -1, "bytes");
    REJECTS(1, device_live_bytes, -1, "device_live_bytes");
    REJECTS(1, n_ranks, -1, "n_ranks");
    REJECTS(3, task, 3, "row 5: task");                 /* twice in rank 0 */
    REJECTS(1, end_s, 0.2000001, "row 4: start_s");     /* runs into the next one */
    REJECTS(4, start_s, 0.19, "row 5: start_s");        /* starts too early */
    REJECTS(2, stream, MIST_STREAM_COMPUTE, "start_s"); /* was on another stream */
    assert_int_equal(mist_timeline_check(&timeline, NULL, &err), MIST_OK);
    mist_timeline_fini(&timeline);
    mist_timeline_span(&timeline, &start_s, &end_s);
    assert_true(start_s == 0 && end_s == 0);
    assert_int_equal(mist_timeline_check(&timeline, NULL, &err), MIST_OK);
}

TEST(test_round_trip)
{
    struct mist_timeline timeline, back;
    struct mist_err err = {0};
    char *path = new_path();

    fill(&timeline);
    assert_int_equal(mist_timeline_save(&timeline, path, false, &err), MIST_ERR_USAGE);
    assert_int_equal(mist_timeline_save(&timeline, path, true, &err), MIST_OK);
    assert_int_equal(mist_timeline_load(&back, path, &err), MIST_OK);
    assert_int_equal(back.n_rows, timeline.n_rows);
    for (size_t i = 0; i < back.n_rows; i++) {
        const struct mist_timeline_row *a = &timeline.rows[i], *b = &back.rows[i];
        assert_true(a->rank == b->rank && a->stream == b->stream && a->kind == b->kind);
        assert_true(a->layer == b->layer && a->micro_batch == b->micro_batch);
        assert_true(a->iteration == b->iteration && a->task == b->task);
        assert_true(a->start_s == b->start_s && a->end_s == b->end_s);
        assert_true(a->bytes == b->bytes && a->device_live_bytes == b->device_live_bytes);
    }
    mist_timeline_fini(&back);
    timeline.rows[1].n_ranks = 3; /* a column of its own, 1 in the other rows */
    assert_int_equal(mist_timeline_save(&timeline, path, true, &err), MIST_OK);
    assert_int_equal(mist_timeline_load(&back, path, &err), MIST_OK);
    for (size_t i = 0; i < back.n_rows; i++)
        assert_int_equal(back.rows[i].n_ranks, i == 1 ? 3 : 1);
    mist_timeline_fini(&back);
    timeline.rows[0].end_s = 0; /* before its start: nothing is written */
    assert_int_equal(mist_timeline_save(&timeline, path, true, &err), MIST_ERR_INPUT);
    assert_int_equal(mist_timeline_load(&back, path, &err), MIST_OK);
    mist_timeline_fini(&back);
    mist_timeline_fini(&timeline);
    unlink(path);
    free(path);
}

TEST(test_malformed)
{
    static const struct {
        const char *head, *rows, *message;
        long line;
    } cases[] = {
        {HEAD, "0,compute,forward,0,0,0,0,0,1,0\n", "", 2},
        {HEAD, "-1,compute,forward,0,0,0,0,0,1,0,0\n", "rank", 2},
        {HEAD, "0,cpu,forward,0,0,0,0,0,1,0,0\n", "stream", 2},
        {HEAD, "0,compute,fwd,0,0,0,0,0,1,0,0\n", "kind", 2},
        {HEAD, "0,compute,forward,-2,0,0,0,0,1,0,0\n", "layer", 2},
        {HEAD, "0,compute,forward,0,0,0,0,0,inf,0,0\n", "end_s", 2},
        {HEAD, "0,compute,forward,0,0,0,0,-1,1,0,0\n", "start_s", 2},
        {HEAD, "0,compute,forward,0,0,0,0,2,1,0,0\n", "end_s", 2},
        {HEAD, "0,compute,forward,0,0,0,0,0,1,1.5,0\n", "bytes", 2},
        {HEAD, "0,compute,forward,0,0,0,0,0,1,0,\n", "device_live_bytes", 2},
        {HEAD_N_RANKS, "0,compute,forward,0,0,0,0,0,1,0,0,0\n", "n_ranks", 2},
        {HEAD,
         "0,compute,forward,0,0,0,0,0,1,0,0\n0,compute,forward,0,0,0,1,1,2,0,0\n"
         "0,compute,forward,0,0,0,2,1.5,2,0,0\n",
         "start_s", 4},
        {HEAD, "0,compute,forward,0,0,0,0,0,1,0,0\n0,gpu_gpu,forward,0,0,0,0,0,1,0,0\n",
         "task", 3},
        {"rank,stream\n", "", "", 1},
        {"", "", "", 1},
    };
    char *path = new_path();

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_timeline timeline;
        struct mist_err err = {0};
        FILE *stream = fopen(path, "w");
        assert_non_null(stream);
        fprintf(stream, "%s%s", cases[i].head, cases[i].rows);
        assert_int_equal(fclose(stream), 0);
        if (mist_timeline_load(&timeline, path, &err) != MIST_ERR_INPUT)
            fail_msg("case %zu was accepted", i);
        if (!strstr(err.message, cases[i].message) || err.line != cases[i].line)
            fail_msg("case %zu: %ld: %s", i, err.line, err.message);
        assert_string_equal(err.path, path);
        assert_null(timeline.rows);
    }
    unlink(path);
    free(path);
}

TEST(test_chrome_trace)
{
    struct mist_timeline timeline;
    struct mist_err err = {0};
    char *path = new_path();
    int n_tasks = 0, n_names = 0, n_counters = 0;
    size_t i;
    json_t *event;

    fill(&timeline);
    assert_int_equal(mist_chrome_trace_save(&timeline, path, true, &err), MIST_OK);
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "traceEvents"), i, event)
    {
        const char *ph = json_string_value(json_object_get(event, "ph"));
        n_names += strcmp(ph, "M") == 0;
        n_counters += strcmp(ph, "C") == 0;
        if (strcmp(ph, "X") != 0)
            continue;
        const struct mist_timeline_row *row = &timeline.rows[n_tasks++];
        double ts = json_real_value(json_object_get(event, "ts"));
        double dur = json_real_value(json_object_get(event, "dur"));
        json_t *args = json_object_get(event, "args");
        assert_int_equal(json_integer_value(json_object_get(event, "pid")), row->rank);
        assert_int_equal(json_integer_value(json_object_get(event, "tid")), row->stream);
        assert_true(fabs(ts - row->start_s * 1e6) < 1e-6);
        assert_true(fabs(ts + dur - row->end_s * 1e6) < 1e-6);
        assert_int_equal(json_integer_value(json_object_get(args, "task")), row->task);
        assert_int_equal(json_integer_value(json_object_get(args, "micro_batch")), 2);
    }
    assert_int_equal(n_tasks, 5);
    assert_int_equal(n_counters, 5);
    assert_int_equal(n_names, 2 * (2 + 2 * MIST_N_STREAMS)); /* two ranks */
    json_decref(root);
    assert_int_equal(mist_chrome_trace_save(&timeline, path, false, &err),
                     MIST_ERR_USAGE);
    mist_timeline_fini(&timeline);
    unlink(path);
    free(path);
}

TEST_MAIN(NULL, NULL)
