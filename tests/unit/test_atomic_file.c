/* core/atomic_file: whole or not there, whatever step fails. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/atomic_file.h"
#include "tests/unit/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect_text(const char *path, const char *expected)
{
    char text[64];

    scratch_read(path, text, sizeof text);
    assert_string_equal(text, expected);
}

static enum mist_status write_file(const char *path, bool force, const char *text,
                                   struct mist_err *err)
{
    struct mist_atomic_file file;
    enum mist_status status = mist_atomic_file_open(&file, path, force, err);

    if (status)
        return status;
    fputs(text, file.stream);
    return mist_atomic_file_commit(&file, err);
}

TEST(test_overwriting)
{
    struct scratch scratch;
    struct mist_err err;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.txt");
    assert_int_equal(write_file(path, false, "one", &err), MIST_OK);
    assert_int_equal(write_file(path, false, "two", &err), MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "--force"));
    assert_string_equal(err.path, path);
    expect_text(path, "one");
    assert_int_equal(write_file(path, true, "two", &err), MIST_OK);
    expect_text(path, "two");
    assert_int_equal(scratch_count(&scratch), 1);
    assert_int_equal(write_file(scratch.folder, true, "x", &err), MIST_ERR_IO);
    assert_int_equal(write_file("/nowhere/at/all", false, "x", &err), MIST_ERR_IO);
    assert_string_equal(err.path, "/nowhere/at/all");
    scratch_fini(&scratch);
}

/* Links are followed, what they point to is replaced as a whole; one to nothing is only
 * replaced when asked. */
TEST(test_links)
{
    struct scratch scratch;
    struct mist_err err;
    char target[64];

    scratch_init(&scratch);
    char path[128];
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "a.txt"));
    const char *link = scratch_path(&scratch, "link");
    assert_int_equal(symlink("a.txt", link), 0);
    assert_int_equal(write_file(link, false, "one", &err), MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "a link to nothing; --force"));
    scratch_write(path, "theirs");
    assert_int_equal(write_file(link, false, "one", &err), MIST_ERR_USAGE);
    expect_text(path, "theirs");
    assert_int_equal(write_file(link, true, "one", &err), MIST_OK);
    expect_text(path, "one");
    assert_int_equal(readlink(link, target, sizeof target), 5);
    assert_int_equal(scratch_count(&scratch), 2);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(write_file(link, true, "two", &err), MIST_OK);
    assert_int_equal(readlink(link, target, sizeof target), -1);
    expect_text(link, "two");
    scratch_fini(&scratch);
}

/* Outputs of a tool: no two are one file, whatever they are called. */
TEST(test_outputs)
{
    struct scratch scratch;
    struct mist_err err;
    char path[128], other[160];

    scratch_init(&scratch);
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "a.txt"));
    snprintf(other, sizeof other, "%s/./a.txt", scratch.folder);
    const char *link = scratch_path(&scratch, "link");
    struct mist_output outputs[] = {{"log", path}, {"plan", NULL}, {"timeline", other}};
    assert_int_equal(mist_outputs_check(outputs, 3, true, &err), MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "--log and --timeline are both"));
    assert_int_equal(mist_outputs_check(outputs, 2, false, &err), MIST_OK);
    assert_int_equal(scratch_count(&scratch), 0);
    scratch_write(path, "theirs");
    assert_int_equal(mist_outputs_check(outputs, 2, false, &err), MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "--force"));
    assert_int_equal(mist_outputs_check(outputs, 2, true, &err), MIST_OK);
    assert_int_equal(symlink(path, link), 0);
    outputs[2].path = link;
    assert_int_equal(mist_outputs_check(outputs, 3, true, &err), MIST_ERR_USAGE);
    outputs[0].path = outputs[2].path = "/dev/null";
    assert_int_equal(mist_outputs_check(outputs, 3, false, &err), MIST_OK);
    scratch_fini(&scratch);
}

/* A link to the file that standard output is: what is written comes between the rest. */
TEST(test_standard_output)
{
    struct scratch scratch;
    struct mist_err err;

    scratch_init(&scratch);
    char path[128];
    snprintf(path, sizeof path, "%s", scratch_path(&scratch, "out.txt"));
    const char *link = scratch_path(&scratch, "link");
    fflush(stdout);
    int saved = dup(STDOUT_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    assert_true(saved >= 0 && fd >= 0 && dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
    assert_int_equal(write(STDOUT_FILENO, "one ", 4), 4);
    assert_int_equal(symlink(path, link), 0);
    enum mist_status status = write_file(link, true, "two", &err);
    enum mist_status plain = write_file(path, false, "two", &err);
    assert_int_equal(write(STDOUT_FILENO, " three", 6), 6);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(fd);
    assert_int_equal(status, MIST_OK);
    assert_int_equal(plain, MIST_ERR_USAGE);
    expect_text(path, "one two three");
    assert_int_equal(scratch_count(&scratch), 2);
    scratch_fini(&scratch);
}

/* A target that appears while we write is not replaced either. */
TEST(test_late_target_and_abort)
{
    struct scratch scratch;
    struct mist_atomic_file file;
    struct mist_err err;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.txt");
    assert_int_equal(mist_atomic_file_open(&file, path, false, &err), MIST_OK);
    scratch_write(path, "theirs");
    fputs("ours", file.stream);
    assert_int_equal(mist_atomic_file_commit(&file, &err), MIST_ERR_USAGE);
    expect_text(path, "theirs");
    assert_int_equal(mist_atomic_file_open(&file, path, true, &err), MIST_OK);
    assert_int_equal(scratch_count(&scratch), 2);
    fputs("ours", file.stream);
    mist_atomic_file_abort(&file);
    mist_atomic_file_abort(&file); /* closed: nothing happens */
    expect_text(path, "theirs");
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_fini(&scratch);
}

TEST(test_full_disk)
{
    struct mist_err err;

    assert_int_equal(write_file("/dev/full", false, "x", &err), MIST_ERR_IO);
    assert_non_null(strstr(err.message, "No space"));
    assert_int_equal(write_file("/dev/null", false, "x", &err), MIST_OK);
}

/* Blocks that go past stdio's buffer leave nothing to flush: the cause is told all the same. */
TEST(test_no_room_for_blocks)
{
    static const char block[16384];
    struct rlimit before, less;
    struct scratch scratch;
    struct mist_atomic_file file;
    struct mist_err err;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.txt");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    less = before;
    less.rlim_cur = sizeof block + 1;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(mist_atomic_file_open(&file, path, false, &err), MIST_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    while (fwrite(block, 1, sizeof block, file.stream) == sizeof block)
        ;
    enum mist_status status = mist_atomic_file_commit(&file, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(status, MIST_ERR_IO);
    assert_non_null(strstr(err.message, strerror(EFBIG)));
    assert_int_equal(scratch_count(&scratch), 0);
    scratch_fini(&scratch);
}

/* Every malloc, flush, fsync and rename fails once; the old file stays, and nothing
 * beside it. */
TEST(test_faults)
{
    struct scratch scratch;
    struct mist_err err;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.txt");
    for (int fault = FAULT_MALLOC; fault < N_FAULTS; fault++) {
        long n_live = -1;
        for (long n = 1;; n++) {
            scratch_write(path, "old");
            if (n_live < 0)
                n_live = fault_n_live();
            fault_arm((enum fault)fault, n);
            enum mist_status status = write_file(path, true, "new", &err);
            bool has_fired = fault_disarm();
            assert_int_equal(fault_n_live(), n_live);
            assert_int_equal(scratch_count(&scratch), 1);
            if (!has_fired) {
                assert_int_equal(status, MIST_OK);
                /* both the file and the directory are flushed to the disk */
                assert_true(fault == FAULT_FSYNC ? n == 3 : n > 1);
                break;
            }
            assert_true(n < 50);
            if (status == MIST_OK) { /* stdio does without a buffer when it gets none */
                assert_int_equal(fault, FAULT_MALLOC);
                expect_text(path, "new");
                continue;
            }
            assert_string_equal(err.path, path);
            /* The directory is flushed behind the rename: there the new file is whole. */
            bool is_late = strstr(err.message, "directory") != NULL;
            expect_text(path, is_late ? "new" : "old");
            if (fault == FAULT_FSYNC)
                assert_int_equal(is_late, n == 2);
            assert_int_equal(status,
                             fault == FAULT_MALLOC ? MIST_ERR_MEMORY : MIST_ERR_IO);
        }
    }
    scratch_fini(&scratch);
}

TEST(test_reading)
{
    struct scratch scratch;
    struct mist_err err;
    char *text;
    size_t n;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.txt");
    scratch_write(path, "12345");
    assert_int_equal(mist_file_read_all(path, 5, &text, &n, &err), MIST_OK);
    assert_int_equal(n, 5);
    assert_string_equal(text, "12345");
    free(text);
    assert_int_equal(mist_file_read_all(path, 4, &text, &n, &err), MIST_ERR_INPUT);
    assert_int_equal(mist_file_read_all("/nowhere", 4, &text, &n, &err), MIST_ERR_IO);
    assert_int_equal(mist_file_read_all(scratch.folder, 4, &text, &n, &err), MIST_ERR_IO);
    scratch_write(path, "");
    assert_int_equal(mist_file_read_all(path, 4, &text, &n, &err), MIST_OK);
    assert_int_equal(n, 0);
    free(text);
    for (long i = 1;; i++) {
        long n_live = fault_n_live();
        fault_arm(FAULT_MALLOC, i);
        enum mist_status status = mist_file_read_all(path, 4, &text, &n, &err);
        if (!fault_disarm()) {
            assert_int_equal(status, MIST_OK);
            free(text);
            break;
        }
        /* again, success without a buffer of stdio is allowed */
        if (!status)
            free(text);
        else
            assert_int_equal(status, MIST_ERR_MEMORY);
        assert_int_equal(fault_n_live(), n_live);
    }
    scratch_fini(&scratch);
}

TEST(test_directories)
{
    struct scratch scratch;
    struct mist_err err;
    char path[256];
    struct stat info;

    scratch_init(&scratch);
    snprintf(path, sizeof path, "%s/a/b/", scratch.folder);
    assert_int_equal(mist_make_directory(path, &err), MIST_OK);
    assert_int_equal(mist_make_directory(path, &err), MIST_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    assert_int_equal(rmdir(path), 0);
    scratch_write(scratch_path(&scratch, "a/file"), "");
    assert_int_equal(mist_make_directory(scratch.path, &err), MIST_ERR_IO);
    assert_int_equal(remove(scratch.path), 0);
    scratch_fini(&scratch);
}

TEST(test_nameless)
{
    struct scratch scratch;
    struct mist_err err;
    char text[8] = "", missing[128];
    FILE *file;

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.txt");
    scratch_write(path, "old");
    snprintf(missing, sizeof missing, "%s/b.txt", scratch.folder);
    const char *paths[] = {path, missing, "/dev/full"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(mist_file_open_nameless(paths[i], &file, &err), MIST_OK);
        assert_int_equal(scratch_count(&scratch), 1);
        assert_int_equal(fwrite("12345", 1, 5, file), 5);
        assert_int_equal(fseek(file, 0, SEEK_SET), 0);
        assert_int_equal(fread(text, 1, sizeof text, file), 5);
        assert_memory_equal(text, "12345", 5);
        assert_int_equal(fclose(file), 0);
    }
    expect_text(path, "old");
    assert_int_equal(mist_file_open_nameless("/nowhere/at/all", &file, &err),
                     MIST_ERR_IO);
    assert_null(file);
    assert_string_equal(err.path, "/nowhere/at/all");
    for (long n = 1;; n++) {
        long n_live = fault_n_live();
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = mist_file_open_nameless(path, &file, &err);
        bool has_failed = fault_disarm();
        if (!has_failed) {
            assert_int_equal(status, MIST_OK);
            break;
        }
        assert_int_equal(status, MIST_ERR_MEMORY);
        assert_null(file);
        assert_int_equal(fault_n_live(), n_live);
        assert_int_equal(scratch_count(&scratch), 1);
    }
    fclose(file);
    assert_int_equal(scratch_count(&scratch), 1);
    scratch_fini(&scratch);
}

TEST_MAIN(NULL, NULL)
