/*
 * Linked into programs whose lines are counted. Counts are written at exit; here, where a
 * program ends otherwise, too (it is linked with --wrap=_exit and --wrap=MPI_Abort), and
 * past the limit that a test has set to the size of files.
 */
#include <gcov.h>
#include <sys/resource.h>
#include <unistd.h>

void __real__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code) __attribute__((noreturn));
int __real_MPI_Abort(void *comm, int code) __attribute__((weak)); /* not all have MPI */
int __wrap_MPI_Abort(void *comm, int code);

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

int __wrap_MPI_Abort(void *comm, int code)
{
    lift_limit();
    __gcov_dump();
    return __real_MPI_Abort(comm, code);
}
