/*
 * Linked into programs whose lines are counted. Counts are written at exit; here, where a
 * program ends otherwise, too (it is linked with --wrap=_exit and so on), and past the
 * limit that a test has set to the size of files.
 */
#include <errno.h>
#include <gcov.h>
#include <sys/resource.h>
#include <unistd.h>

void __real__exit(int code) __attribute__((noreturn));
void __wrap__exit(int code) __attribute__((noreturn));
int __real_MPI_Abort(void *comm, int code) __attribute__((weak)); /* not all have MPI */
int __wrap_MPI_Abort(void *comm, int code);
int __real_execvp(const char *file, char *const arguments[]);
int __wrap_execvp(const char *file, char *const arguments[]);

/* Returns the limit there was. */
static struct rlimit lift_limit(void)
{
    struct rlimit old, lifted;

    getrlimit(RLIMIT_FSIZE, &old);
    lifted = old;
    lifted.rlim_cur = old.rlim_max;
    setrlimit(RLIMIT_FSIZE, &lifted);
    return old;
}

static __attribute__((destructor)) void end(void)
{
    lift_limit();
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

int __wrap_execvp(const char *file, char *const arguments[])
{
    struct rlimit limit = lift_limit();

    __gcov_dump();
    setrlimit(RLIMIT_FSIZE, &limit);
    int code = __real_execvp(file, arguments), reason = errno;
    __gcov_reset(); /* counts on */
    errno = reason;
    return code;
}
