/* core/progress: silence where nobody looks, and not too often where somebody does. */
#include "tests/unit/test.h"

#include "core/progress.h"

struct screen {
    FILE *stream;
    char text[4096];
};

static void open_screen(struct screen *screen)
{
    memset(screen->text, 0, sizeof screen->text);
    screen->stream = fmemopen(screen->text, sizeof screen->text, "w");
    assert_non_null(screen->stream);
}

TEST(test_silence)
{
    struct screen screen;
    struct mist_progress progress;

    for (int mode = MIST_PROGRESS_AUTO; mode <= MIST_PROGRESS_NEVER; mode++) {
        if (mode == MIST_PROGRESS_ALWAYS)
            continue;
        open_screen(&screen); /* no terminal */
        mist_progress_init(&progress, (enum mist_progress_mode)mode, false, screen.stream,
                           "x");
        mist_progress_update_at(&progress, progress.time_start_s + 100, 1, 2);
        mist_progress_fini(&progress);
        fclose(screen.stream);
        assert_string_equal(screen.text, "");
    }
}

/* 10 s of updates every millisecond: at most 6 lines a second. */
TEST(test_rate)
{
    struct screen screen;
    struct mist_progress progress;
    int n_lines = 0;

    open_screen(&screen);
    mist_progress_init(&progress, MIST_PROGRESS_ALWAYS, false, screen.stream,
                       "searching");
    for (int i = 1; i <= 10000; i++)
        mist_progress_update_at(&progress, progress.time_start_s + 0.001 * i, i, 20000);
    mist_progress_fini(&progress);
    mist_progress_fini(&progress);
    fclose(screen.stream);
    for (const char *c = screen.text; *c; c++)
        n_lines += *c == '\r';
    assert_in_range(n_lines, 50, 61); /* and one that erases */
    assert_null(strchr(screen.text, '\n'));
    size_t n = strlen(screen.text);
    assert_string_equal(screen.text + n - 4, "\r\033[K");
}

TEST(test_line)
{
    struct screen screen;
    struct mist_progress progress;

    open_screen(&screen);
    mist_progress_init(&progress, MIST_PROGRESS_ALWAYS, false, screen.stream,
                       "searching");
    mist_progress_update_at(&progress, progress.time_start_s + 10, 1, 4);
    fflush(screen.stream);
    assert_string_equal(screen.text, "\rsearching 1 of 4, 25 %, 30.0 s left\033[K");
    assert_false(progress.has_color); /* no terminal */
    mist_progress_fini(&progress);
    fclose(screen.stream);
}

TEST_MAIN(NULL, NULL)
