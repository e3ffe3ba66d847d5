/*
 * Linked into programs whose lines are counted. Counts are written at exit; here, at
 * _exit(), too (the programs are linked with --wrap=_exit), and past the limit that a
 * test has set to the size of files.
 */
#include <gcov.h>
#include <sys/resource.h>
#include <unistd.h>

void __real__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code) __attribute__((noreturn));

static __attribute__((destructor)) void lift_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

void __wrap__exit(int code)
{
    lift_limit();
    __gcov_dump();
    __real__exit(code);
}
