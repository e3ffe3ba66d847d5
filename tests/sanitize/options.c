/*
 * Linked into every program of a sanitized build: options of the sanitizers, and what
 * they excuse. They stand here, not in the environment, so that the programs run as
 * always.
 *
 * Excused are libraries only, never a function of ours.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *__asan_default_options(void);
const char *__lsan_default_options(void);
const char *__lsan_default_suppressions(void);
const char *__ubsan_default_options(void);
const char *__tsan_default_options(void);
const char *__tsan_default_suppressions(void);
int dlclose(void *handle);
void *__interceptor_malloc(size_t size);
__attribute__((format(printf, 3, 0))) int
__vasprintf_chk(char **out, int flag, const char *format, va_list list);
__attribute__((format(printf, 3, 4))) int __asprintf_chk(char **out, int flag,
                                                         const char *format, ...);

/* Open MPI unloads its components before leaks are looked for, which then have
 * no name. */
int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

/* As malloc does: a test asks for 2^63 - 1 bytes. */
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:strict_string_checks=1:handle_segv=2";
}

const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}

/* Open MPI makes names with these, as fortified programs do. Behind glibc's a stack can't
 * be followed, behind ours it can. The memory is theirs, not the program's, for what
 * counts the program's own (tests/faults). */
int __vasprintf_chk(char **out, int flag, const char *format, va_list list)
{
    va_list again;

    (void)flag;
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, again);
    va_end(again);
    *out = n < 0 ? NULL : __interceptor_malloc((size_t)n + 1);
    return *out ? vsnprintf(*out, (size_t)n + 1, format, list) : -1;
}

int __asprintf_chk(char **out, int flag, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    int n = __vasprintf_chk(out, flag, format, list);
    va_end(list);
    return n;
}

/*
 * Open MPI and what it loads keep tables after MPI_Finalize(). The dynamic linker keeps
 * its own, which is seen when a test has a malloc() of its own.
 */
const char *__lsan_default_suppressions(void)
{
    return "leak:libmpi.so\n"
           "leak:libopen-pal.so\n"
           "leak:libopen-rte.so\n"
           "leak:mca_\n"
           "leak:libpmix.so\n"
           "leak:libhwloc.so\n"
           "leak:asprintf_chk\n"
           "leak:ld-linux-x86-64.so\n";
}

const char *__ubsan_default_options(void)
{
    return "print_stacktrace=1";
}

/* The order in which Open MPI takes its locks is not ours to judge. A crash is told with
 * its stack, not left to cmocka. */
const char *__tsan_default_options(void)
{
    return "detect_deadlocks=0:handle_segv=2:halt_on_error=1:allocator_may_return_null=1";
}

/* OpenMP copies what it hands to its threads, and tells of them only
 * through libarcher. */
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libomp.so.5\n";
}
