/* core/emit: one document in three spellings, full disks, and running out of memory. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/emit.h"
#include "tests/unit/scratch.h"

#include <math.h>

/* Everything that the emitter can hold. */
static enum mist_status emit_all(enum mist_emit_kind kind, FILE *stream,
                                 struct mist_err *err)
{
    static const char *const names[] = {"a,b", "é"};
    struct mist_emit *emit;
    enum mist_status status = mist_emit_begin(&emit, kind, stream, err);

    if (status)
        return status;
    mist_emit_double(emit, "iteration_time_s", "iteration", 0.0032, MIST_HUMAN_TIME_S);
    mist_emit_text(emit, "plan", NULL, NULL);
    mist_emit_object_begin(emit, "device", "Device");
    mist_emit_integer(emit, "memory_bytes", "memory", 85899345920);
    mist_emit_bool(emit, "fits", NULL, true);
    mist_emit_object_end(emit);
    mist_emit_list_begin(emit, "stages", "Stages");
    for (int i = 0; i < 2; i++) {
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "name", NULL, names[i]);
        mist_emit_integer(emit, "layers", NULL, 9 + i);
        mist_emit_object_begin(emit, "ratio", NULL);
        mist_emit_number(emit, "load_frac", "load", i ? (double)NAN : 0.1);
        mist_emit_object_end(emit);
        mist_emit_list_begin(emit, "ranks", "ranks");
        for (int k = 0; k <= i; k++)
            mist_emit_integer(emit, NULL, NULL, k);
        mist_emit_list_end(emit);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
    return mist_emit_end(&emit, err);
}

static const char expected_table[] = "iteration  3.20 ms\n"
                                     "plan       -\n"
                                     "\n"
                                     "Device\n"
                                     "memory  80.0 GiB\n"
                                     "fits    yes\n"
                                     "\n"
                                     "Stages\n"
                                     "name  layers    load  ranks\n"
                                     "a,b        9  10.0 %  0\n"
                                     "é         10       -  0 1\n";
static const char expected_csv[] =
    "iteration_time_s,plan,device.memory_bytes,device.fits,"
    "name,layers,ratio.load_frac,ranks\n"
    "0.0032,,85899345920,true,\"a,b\",9,0.1,0\n"
    "0.0032,,85899345920,true,é,10,,0;1\n";
static const char expected_json[] = "{\n"
                                    "  \"iteration_time_s\": 0.0032,\n"
                                    "  \"plan\": null,\n"
                                    "  \"device\": {\n"
                                    "    \"memory_bytes\": 85899345920,\n"
                                    "    \"fits\": true\n"
                                    "  },\n"
                                    "  \"stages\": [\n"
                                    "    {\n"
                                    "      \"name\": \"a,b\",\n"
                                    "      \"layers\": 9,\n"
                                    "      \"ratio\": {\n"
                                    "        \"load_frac\": 0.1\n"
                                    "      },\n"
                                    "      \"ranks\": [0]\n"
                                    "    },\n"
                                    "    {\n"
                                    "      \"name\": \"é\",\n"
                                    "      \"layers\": 10,\n"
                                    "      \"ratio\": {\n"
                                    "        \"load_frac\": null\n"
                                    "      },\n"
                                    "      \"ranks\": [0, 1]\n"
                                    "    }\n"
                                    "  ]\n"
                                    "}\n";

static void expect(enum mist_emit_kind kind, const char *expected)
{
    char text[2048] = "";
    struct mist_err err;
    FILE *stream = fmemopen(text, sizeof text, "w");

    assert_int_equal(emit_all(kind, stream, &err), MIST_OK);
    fclose(stream);
    assert_string_equal(text, expected);
}

TEST(test_all_kinds)
{
    expect(MIST_EMIT_TABLE, expected_table);
    expect(MIST_EMIT_CSV, expected_csv);
    expect(MIST_EMIT_JSON, expected_json);
}

/* Without a list, CSV is the values in one row. */
TEST(test_csv_of_values)
{
    char text[256] = "";
    struct mist_emit *emit;
    FILE *stream = fmemopen(text, sizeof text, "w");

    assert_int_equal(mist_emit_begin(&emit, MIST_EMIT_CSV, stream, NULL), MIST_OK);
    mist_emit_double(emit, "time_s", NULL, 0.333333333333333, MIST_HUMAN_TIME_S);
    mist_emit_object_begin(emit, "device", NULL);
    mist_emit_bool(emit, "fits", NULL, false);
    mist_emit_object_end(emit);
    assert_int_equal(mist_emit_end(&emit, NULL), MIST_OK);
    assert_null(emit);
    fclose(stream);
    assert_string_equal(text, "time_s,device.fits\n0.333333333333333,false\n");
}

/* People see a number in the unit of its key. */
TEST(test_units)
{
    char text[512] = "";
    struct mist_emit *emit;
    FILE *stream = fmemopen(text, sizeof text, "w");

    assert_int_equal(mist_emit_begin(&emit, MIST_EMIT_TABLE, stream, NULL), MIST_OK);
    mist_emit_integer(emit, "arena_bytes", NULL, 1 << 30);
    mist_emit_integer(emit, "bytes", NULL, 3 << 20);
    mist_emit_number(emit, "link_bytes_per_s", NULL, 25e9);
    mist_emit_number(emit, "peak_flop_per_s", NULL, 312e12);
    mist_emit_number(emit, "frac", NULL, 0.413);
    mist_emit_number(emit, "launch_us", NULL, 3200);
    mist_emit_number(emit, "time_s", NULL, 0.0032);
    mist_emit_number(emit, "tokens_per_s", NULL, 2.5);
    mist_emit_number(emit, "cost", NULL, 1180416.25);
    mist_emit_number(emit, "device_hours", NULL, 9999.46);
    mist_emit_number(emit, "hours", NULL, 9999.54);
    mist_emit_integer(emit, "bus", NULL, 7);
    assert_int_equal(mist_emit_end(&emit, NULL), MIST_OK);
    fclose(stream);
    assert_string_equal(text, "arena_bytes       1.00 GiB\n"
                              "bytes             3.00 MiB\n"
                              "link_bytes_per_s  25.0 GB/s\n"
                              "peak_flop_per_s   312 TFLOP/s\n"
                              "frac              41.3 %\n"
                              "launch_us         3.20 ms\n"
                              "time_s            3.20 ms\n"
                              "tokens_per_s      2.5\n"
                              "cost              1180416\n"
                              "device_hours      9999\n"
                              "hours             10000\n"
                              "bus               7\n");
}

TEST(test_full_disk)
{
    struct mist_err err;

    for (int kind = MIST_EMIT_TABLE; kind <= MIST_EMIT_JSON; kind++) {
        FILE *stream = fopen("/dev/full", "w");
        assert_non_null(stream);
        assert_int_equal(emit_all((enum mist_emit_kind)kind, stream, &err), MIST_ERR_IO);
        fclose(stream);
    }
}

TEST(test_faults)
{
    struct mist_err err;
    FILE *stream = fopen("/dev/null", "w");

    assert_non_null(stream);
    setvbuf(stream, NULL, _IONBF, 0);
    for (int kind = MIST_EMIT_TABLE; kind <= MIST_EMIT_JSON; kind++) {
        long n_live = fault_n_live();
        for (long n = 1; n < 1000; n++) {
            fault_arm(FAULT_MALLOC, n);
            enum mist_status status = emit_all((enum mist_emit_kind)kind, stream, &err);
            bool has_fired = fault_disarm();
            assert_int_equal(fault_n_live(), n_live);
            assert_int_equal(status, has_fired ? MIST_ERR_MEMORY : MIST_OK);
            if (!has_fired) {
                assert_true(n > 2);
                break;
            }
        }
    }
    fclose(stream);
}

TEST_MAIN(NULL, NULL)
