/* core/command: words of launchers, memory that fails, programs that are looked for. */
#include "tests/unit/fault.h"
#include "tests/unit/test.h"

#include "core/command.h"
#include "tests/unit/scratch.h"

#include <sys/stat.h>

/* The words with a bar behind each. */
static const char *join(struct mist_command *command)
{
    static char text[1024];
    size_t used = 0;

    must(mist_command_end(command, NULL), &(struct mist_err){.message = "no memory"});
    text[0] = '\0';
    for (size_t i = 0; i < command->n; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "%s|", command->words[i]);
    assert_null(command->words[command->n]);
    mist_command_fini(command);
    return text;
}

static const char *split(const char *text, int32_t n_ranks)
{
    struct mist_command command;

    mist_command_init(&command);
    mist_command_add_launcher(&command, text, n_ranks);
    return join(&command);
}

TEST(test_launcher)
{
    assert_string_equal(split("srun -n {ranks}", 12), "srun|-n|12|");
    assert_string_equal(split("  a\tb  \n c ", 1), "a|b|c|");
    assert_string_equal(split("-n{ranks} {ranks}x{ranks} {rank} {ranks", 100),
                        "-n100|100x100|{rank}|{ranks|");
    assert_string_equal(split("{ranks}{ranks}{ranks}", 1000000),
                        "100000010000001000000|");
    assert_string_equal(split("", 1), "");
    assert_string_equal(split(" \t", 1), "");
    assert_string_equal(split("$(x) 'a b' ;", 1), "$(x)|'a|b'|;|");
}

TEST(test_mpirun)
{
    struct mist_command command;
    const char *root = geteuid() == 0 ? "--allow-run-as-root|" : "";
    char expected[256];

    mist_command_init(&command);
    mist_command_add_mpirun(&command, 2, 2);
    mist_command_add(&command, "a program");
    snprintf(expected, sizeof expected, "mpirun|--quiet|%s-n|2|a program|", root);
    assert_string_equal(join(&command), expected);
    mist_command_init(&command);
    mist_command_add_mpirun(&command, 3, 2);
    snprintf(expected, sizeof expected,
             "mpirun|--quiet|%s--oversubscribe|--bind-to|none|-n|3|", root);
    assert_string_equal(join(&command), expected);
}

TEST(test_no_memory)
{
    bool has_failed = true;
    struct mist_err err;

    for (long n = 1; has_failed; n++) {
        struct mist_command command;
        long n_live = fault_n_live();
        fault_arm(FAULT_MALLOC, n);
        mist_command_init(&command);
        mist_command_add_mpirun(&command, 3, 2);
        for (int i = 0; i < 40; i++)
            mist_command_add_launcher(&command, "x {ranks}", 2);
        enum mist_status status = mist_command_end(&command, &err);
        has_failed = fault_disarm();
        assert_int_equal(status, has_failed ? MIST_ERR_MEMORY : MIST_OK);
        mist_command_fini(&command);
        assert_int_equal(fault_n_live(), n_live);
        assert_true(n < 50);
    }
}

TEST(test_finds)
{
    struct scratch scratch;
    char path[256];

    scratch_init(&scratch);
    scratch_write(scratch_path(&scratch, "tool"), "");
    assert_false(mist_command_can_find(scratch.path)); /* may not be run */
    assert_int_equal(chmod(scratch.path, 0755), 0);
    assert_true(mist_command_can_find(scratch.path));
    assert_false(mist_command_can_find("tool"));
    assert_false(mist_command_can_find(scratch.folder));
    assert_true(mist_command_can_find("sh"));
    assert_false(mist_command_can_find(""));
    snprintf(path, sizeof path, "/nowhere:%s", scratch.folder);
    char *old = strdup(getenv("PATH"));
    setenv("PATH", path, 1);
    assert_true(mist_command_can_find("tool"));
    assert_false(mist_command_can_find("sh"));
    setenv("PATH", "", 1);
    assert_false(mist_command_can_find("tool"));
    setenv("PATH", old, 1);
    free(old);
    scratch_fini(&scratch);
}

TEST(test_beside)
{
    struct mist_err err = {0};
    char *path;

    assert_int_equal(mist_command_find_beside("test_command", "", &path, &err), MIST_OK);
    assert_int_equal(path[0], '/');
    assert_true(mist_command_can_find(path));
    free(path);
    assert_int_equal(mist_command_find_beside("missing", "x needs it", &path, &err),
                     MIST_ERR_IO);
    assert_string_equal(err.message, "is not there or may not be run; x needs it");
    free(path);
}

TEST_MAIN(NULL, NULL)
