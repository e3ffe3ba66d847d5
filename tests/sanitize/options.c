/*
 * Linked into every program of a sanitized build: options of the sanitizers, and what
 * they excuse. They stand here, not in the environment, so that the programs run as
 * always.
 *
 * Excused are libraries only, never a function of ours.
 */
const char *__asan_default_options(void);
const char *__lsan_default_options(void);
const char *__lsan_default_suppressions(void);
const char *__ubsan_default_options(void);
const char *__tsan_default_options(void);
const char *__tsan_default_suppressions(void);
int dlclose(void *handle);

/* Open MPI unloads its components before leaks are looked for, which then have no name.
 */
int dlclose(void *handle)
{
    (void)handle;
    return 0;
}

/* As malloc does: a test asks for 2^63 - 1 bytes. */
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:strict_string_checks=1";
}

const char *__lsan_default_options(void)
{
    return "print_suppressions=0";
}

/*
 * Open MPI and what it loads keep tables after MPI_Finalize(). It makes names with
 * asprintf(), which we don't use, and behind that its frames can't be told.
 */
const char *__lsan_default_suppressions(void)
{
    return "leak:libmpi.so\n"
           "leak:libopen-pal.so\n"
           "leak:libopen-rte.so\n"
           "leak:mca_\n"
           "leak:libpmix.so\n"
           "leak:libhwloc.so\n"
           "leak:__vasprintf_internal\n"
           "leak:_dl_\n"; /* the dynamic linker, when a test has a malloc of its own */
}

const char *__ubsan_default_options(void)
{
    return "print_stacktrace=1";
}

/* What is not compiled by us is not looked at: it can't be told how it synchronises. */
const char *__tsan_default_options(void)
{
    return "ignore_noninstrumented_modules=1:halt_on_error=1";
}

const char *__tsan_default_suppressions(void)
{
    return "";
}
