/*
 * Preloaded into a tool: makes the Nth call of a libc function fail, counts calls, and
 * tells what memory the tool has not freed.
 *
 * Only calls of Mist's own code count: the return address lies in the program, in Jansson
 * or in libcsv. What MPI or oneDNN do when malloc fails is not ours. Calls on files count
 * below one folder, and for standard output and files without a name. libc's stdio calls
 * write() behind the linker's back, so streams are made here by fopencookie(), around
 * read() and write() that do count. README.md lists the variables of the environment.
 */
#define _GNU_SOURCE
#include "tests/faults/inject.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---------------------------------------------------------------------- what is asked */

enum call {
    CALL_MALLOC, /* and calloc, realloc, aligned_alloc, strdup */
    CALL_OPEN,   /* and fopen, fdopen, opendir, tmpfile */
    CALL_READ,
    CALL_WRITE,
    CALL_FSYNC,
    CALL_CLOSE, /* and fclose */
    CALL_RENAME,
    CALL_MKDIR,
    CALL_UNLINK, /* and rmdir */
    CALL_TRUNCATE,
    CALL_MMAP,
    CALL_SPAWN,
    CALL_THREAD,
    N_CALLS
};

static const char *const call_names[N_CALLS] = {
    "malloc", "open",   "read",     "write", "fsync", "close", "rename",
    "mkdir",  "unlink", "truncate", "mmap",  "spawn", "thread"};

enum mode {
    MODE_ONCE,  /* the Nth call fails */
    MODE_SHORT, /* the Nth write writes half and says so */
    MODE_FULL,  /* the Nth write writes half, all later ones fail */
};

enum { N_FDS = 1024, N_STREAMS = 64, N_SLOTS = 1 << 20, N_RANGES = 8 };

static bool is_active;
static bool counts_here;    /* the rank whose calls are to fail, or no rank at all */
static int fault_call = -1; /* what is to fail; -1: nothing */
static long fault_n;
static enum mode fault_mode;
static int fault_errno = EIO;
static char folder[PATH_MAX]; /* absolute, without a slash at the end */
static int report_fd = -1;

static atomic_long n_seen[N_CALLS];
static _Atomic(char) watched[N_FDS]; /* descriptors that count: 'r', 'w', 'd' (written
                                        to), 't' (no name) */
static struct {
    uintptr_t first, last;
    bool is_csv;
} ranges[N_RANGES];
static int n_ranges;
static uintptr_t program_base;

static __thread int
    depth; /* > 0: within a call of Mist's to libc, which counts as Mist */
static __thread bool is_telling;

/* libcsv asks again for less when it gets nothing; then it goes on getting nothing. */
static atomic_bool csv_starves;

static bool is_csv(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;

    for (int i = 0; i < n_ranges; i++)
        if (ranges[i].is_csv && at >= ranges[i].first && at < ranges[i].last)
            return true;
    return false;
}

static bool is_ours(const void *caller)
{
    uintptr_t at = (uintptr_t)caller;

    if (!is_active || is_telling)
        return false;
    if (depth > 0)
        return true;
    for (int i = 0; i < n_ranges; i++)
        if (at >= ranges[i].first && at < ranges[i].last)
            return true;
    return false;
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    char line[256];
    va_list arguments;

    if (report_fd < 0)
        return;
    va_start(arguments, format);
    int n = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (syscall(SYS_write, report_fd, line, (size_t)n) != n)
        abort();
}

/* Says which call has failed: the first three places in the program, for addr2line. */
static void tell_place(enum call call, long n)
{
    unsigned long places[3] = {0};
    void *frames[32];
    int n_places = 0;

    is_telling = true;
    int n_frames = backtrace(frames, 32);
    for (int i = 0; i < n_frames && n_places < 3; i++) {
        uintptr_t at = (uintptr_t)frames[i];
        if (at >= ranges[0].first && at < ranges[0].last)
            places[n_places++] = at - program_base;
    }
    tell("fired %s %ld at %#lx,%#lx,%#lx\n", call_names[call], n, places[0], places[1],
         places[2]);
    is_telling = false;
}

/* Counts a call of ours; true: it has to fail, and errno is set. */
static bool fires(enum call call)
{
    long n = ++n_seen[call];

    if ((int)call != fault_call || n < fault_n ||
        (n > fault_n && fault_mode != MODE_FULL))
        return false;
    if (n == fault_n)
        tell_place(call, n);
    errno = fault_errno;
    return true;
}

static bool memory_fails(const void *caller)
{
    if (fires(CALL_MALLOC)) {
        csv_starves = is_csv(caller);
        return true;
    }
    errno = csv_starves && is_csv(caller) ? ENOMEM : errno;
    return csv_starves && is_csv(caller);
}

#define CALLER __builtin_return_address(0)

/* ----------------------------------------------------------------------------- memory */

#define ALLOCATOR(prefix, attribute)                                                     \
    void *prefix##malloc(size_t size) attribute;                                         \
    void *prefix##calloc(size_t n, size_t size) attribute;                               \
    void *prefix##realloc(void *memory, size_t size) attribute;                          \
    void *prefix##memalign(size_t alignment, size_t size) attribute;                     \
    void prefix##free(void *memory) attribute;
ALLOCATOR(__libc_, )
ALLOCATOR(__interceptor_, __attribute__((weak)))

/* What would be called without this object: the sanitizer's, where the tool has one. */
#define NEXT(name) (__interceptor_##name ? __interceptor_##name : __libc_##name)

static struct slot {
    void *memory;
    const void *caller;
} * slots; /* [N_SLOTS], by the address: what Mist allocated and nobody freed */
static long n_live;
static atomic_flag slots_lock = ATOMIC_FLAG_INIT;

static size_t home_of(const void *memory)
{
    return (size_t)(((uintptr_t)memory >> 4) * 0x9E3779B97F4A7C15u >> 44) % N_SLOTS;
}

static void lock_slots(void)
{
    while (atomic_flag_test_and_set(&slots_lock)) {
    }
}

static void remember(void *memory, const void *caller)
{
    if (!memory || !slots)
        return;
    lock_slots();
    if (n_live < N_SLOTS / 2) {
        size_t i = home_of(memory);
        while (slots[i].memory)
            i = (i + 1) % N_SLOTS;
        slots[i] = (struct slot){memory, caller};
        n_live++;
    }
    atomic_flag_clear(&slots_lock);
}

/* True when it was one of ours. */
static bool forget(const void *memory)
{
    if (!memory || !slots)
        return false;
    lock_slots();
    size_t i = home_of(memory);
    while (slots[i].memory && slots[i].memory != memory)
        i = (i + 1) % N_SLOTS;
    bool found = slots[i].memory != NULL;
    if (found)
        n_live--;
    for (size_t j = (i + 1) % N_SLOTS; found && slots[j].memory; j = (j + 1) % N_SLOTS) {
        size_t home = home_of(slots[j].memory); /* may it move up to i? */
        if ((j - home) % N_SLOTS < (j - i) % N_SLOTS)
            continue;
        slots[i] = slots[j];
        i = j;
    }
    if (found)
        slots[i].memory = NULL;
    atomic_flag_clear(&slots_lock);
    return found;
}

void *malloc(size_t size)
{
    bool ours = is_ours(CALLER);

    if (ours && memory_fails(CALLER))
        return NULL;
    void *memory = NEXT(malloc)(size);
    if (ours)
        remember(memory, CALLER);
    return memory;
}

void *calloc(size_t n, size_t size)
{
    bool ours = is_ours(CALLER);

    if (ours && memory_fails(CALLER))
        return NULL;
    void *memory = NEXT(calloc)(n, size);
    if (ours)
        remember(memory, CALLER);
    return memory;
}

void *realloc(void *memory, size_t size)
{
    bool ours = is_ours(CALLER);

    if (ours && memory_fails(CALLER))
        return NULL;
    bool was_ours = forget(memory);
    void *grown = NEXT(realloc)(memory, size);
    if (grown && (ours || was_ours))
        remember(grown, CALLER);
    else if (!grown && was_ours && size > 0)
        remember(memory, CALLER);
    return grown;
}

static void *aligned(size_t alignment, size_t size, const void *caller)
{
    bool ours = is_ours(caller);

    if (ours && memory_fails(caller))
        return NULL;
    void *memory = NEXT(memalign)(alignment, size);
    if (ours)
        remember(memory, caller);
    return memory;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return aligned(alignment, size, CALLER);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    void *memory = aligned(alignment, size, CALLER);

    if (!memory)
        return ENOMEM;
    *out = memory;
    return 0;
}

char *strdup(const char *text)
{
    size_t n = strlen(text) + 1;
    bool ours = is_ours(CALLER);

    if (ours && memory_fails(CALLER))
        return NULL;
    char *copy = NEXT(malloc)(n);
    if (ours)
        remember(copy, CALLER);
    return copy ? memcpy(copy, text, n) : NULL;
}

void free(void *memory)
{
    forget(memory);
    NEXT(free)(memory);
}

/* ------------------------------------------------------------------------------ files */

/* The part of a path below the folder; NULL: it is elsewhere. A relative path is below,
 * as tools run in the folder. */
static const char *below(const char *path)
{
    size_t n = strlen(folder);

    if (path[0] != '/')
        return strncmp(path, "./", 2) == 0 ? path + 2 : path;
    if (strncmp(path, folder, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return NULL;
    return path + n + (path[n] == '/');
}

static bool is_watched(int fd)
{
    return fd >= 0 && fd < N_FDS && watched[fd];
}

static void watch(int fd, char how)
{
    if (fd >= 0 && fd < N_FDS)
        watched[fd] = how;
}

/* The end of a call that may have been recorded; errno stays. */
static int end_call(bool counts, int result)
{
    int code = errno;

    if (counts)
        record_end();
    errno = code;
    return result;
}

static int open_file(const char *path, int flags, mode_t mode, const void *caller)
{
    const char *name = below(path);
    bool counts = is_ours(caller) && name;
    struct stat info;

    if (counts && fires(CALL_OPEN))
        return -1;
    if (!counts)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    record_begin();
    bool creates = (flags & O_CREAT) && lstat(path, &info) != 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    int code = errno;
    if (fd >= 0 && creates && fstat(fd, &info) == 0)
        record_path(RECORD_CREATE, name, NULL, info.st_ino);
    else if (fd >= 0 && (flags & O_TRUNC) && (flags & O_ACCMODE) != O_RDONLY)
        record_inode(RECORD_TRUNCATE, fd, 0, NULL, 0);
    watch(fd, (flags & O_ACCMODE) == O_RDONLY ? 'r' : 'w');
    errno = code;
    return end_call(true, fd);
}

int open(const char *path, int flags, ...)
{
    mode_t mode = 0;

    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) {
        va_list arguments;
        va_start(arguments, flags);
        mode = va_arg(arguments, mode_t);
        va_end(arguments);
    }
    return open_file(path, flags, mode, CALLER);
}

static ssize_t read_file(int fd, void *bytes, size_t n, const void *caller)
{
    if (is_ours(caller) && is_watched(fd) && fires(CALL_READ))
        return -1;
    return syscall(SYS_read, fd, bytes, n);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    return read_file(fd, bytes, n, CALLER);
}

static ssize_t write_file(int fd, const void *bytes, size_t n, const void *caller)
{
    bool counts = is_ours(caller) && is_watched(fd);

    if (counts && watched[fd] == 'w')
        watch(fd, 'd');
    if (counts && fires(CALL_WRITE)) {
        if (fault_mode == MODE_ONCE || n < 2 || n_seen[CALL_WRITE] > fault_n)
            return -1;
        n /= 2;
    }
    if (!counts || !record_is_open())
        return syscall(SYS_write, fd, bytes, n);
    record_begin();
    ssize_t done = syscall(SYS_write, fd, bytes, n);
    int code = errno;
    if (done > 0) /* also where the file was opened for appending */
        record_inode(RECORD_WRITE, fd, lseek(fd, 0, SEEK_CUR) - done, bytes,
                     (size_t)done);
    errno = code;
    end_call(true, 0);
    return done;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    return write_file(fd, bytes, n, CALLER);
}

static int sync_file(int fd, long number, const void *caller)
{
    bool counts = is_ours(caller) && is_watched(fd);

    if (counts && fires(CALL_FSYNC))
        return -1;
    if (counts)
        record_begin();
    int code = (int)syscall(number, fd);
    if (counts && code == 0)
        record_inode(RECORD_SYNC, fd, 0, NULL, 0);
    return end_call(counts, code);
}

int fsync(int fd)
{
    return sync_file(fd, SYS_fsync, CALLER);
}

int fdatasync(int fd)
{
    return sync_file(fd, SYS_fdatasync, CALLER);
}

/* A descriptor is closed, whatever close() says. Where nothing was written, nothing can
 * be lost, and no one needs to look. */
static int close_file(int fd, const void *caller)
{
    bool counts = is_ours(caller) && is_watched(fd) && watched[fd] == 'd';
    bool fails = counts && fires(CALL_CLOSE);
    int code = (int)syscall(SYS_close, fd);

    watch(fd, 0);
    if (fails)
        errno = fault_errno;
    return fails ? -1 : code;
}

int close(int fd)
{
    return close_file(fd, CALLER);
}

int ftruncate(int fd, off_t size)
{
    bool counts = is_ours(CALLER) && is_watched(fd);

    if (counts && fires(CALL_TRUNCATE))
        return -1;
    if (counts)
        record_begin();
    int code = (int)syscall(SYS_ftruncate, fd, size);
    if (counts && code == 0)
        record_inode(RECORD_TRUNCATE, fd, size, NULL, 0);
    return end_call(counts, code);
}

int truncate(const char *path, off_t size)
{
    bool counts = is_ours(CALLER) && below(path);

    if (counts && fires(CALL_TRUNCATE))
        return -1;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (counts)
        record_begin();
    int code = (int)syscall(SYS_ftruncate, fd, size);
    if (counts && code == 0)
        record_inode(RECORD_TRUNCATE, fd, size, NULL, 0);
    end_call(counts, code);
    syscall(SYS_close, fd);
    return code;
}

void *mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (is_ours(CALLER) && is_watched(fd) && fires(CALL_MMAP))
        return MAP_FAILED;
    return (void *)syscall(SYS_mmap, address, n, protection, flags, fd, offset);
}

/* ------------------------------------------------------------------------------ names */

int rename(const char *from, const char *to)
{
    const char *name = below(from), *name_to = below(to);
    bool counts = is_ours(CALLER) && name && name_to;

    if (counts && fires(CALL_RENAME))
        return -1;
    if (counts)
        record_begin();
    int code = (int)syscall(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
    if (counts && code == 0)
        record_path(RECORD_RENAME, name, name_to, 0);
    return end_call(counts, code);
}

static int remove_name(const char *path, int flags, enum record_kind kind,
                       const void *caller)
{
    const char *name = below(path);
    bool counts = is_ours(caller) && name;

    if (counts && fires(CALL_UNLINK))
        return -1;
    if (counts)
        record_begin();
    int code = (int)syscall(SYS_unlinkat, AT_FDCWD, path, flags);
    if (counts && code == 0)
        record_path(kind, name, NULL, 0);
    return end_call(counts, code);
}

int unlink(const char *path)
{
    return remove_name(path, 0, RECORD_UNLINK, CALLER);
}

int rmdir(const char *path)
{
    return remove_name(path, AT_REMOVEDIR, RECORD_RMDIR, CALLER);
}

/* Random numbers are the same in all runs, so that their files can be compared. */
ssize_t getrandom(void *buffer, size_t n, unsigned flags)
{
    if (!is_ours(CALLER))
        return syscall(SYS_getrandom, buffer, n, flags);
    memset(buffer, 0x5a, n);
    return (ssize_t)n;
}

int mkdir(const char *path, mode_t mode)
{
    const char *name = below(path);
    bool counts = is_ours(CALLER) && name;
    struct stat info;

    if (counts && fires(CALL_MKDIR))
        return -1;
    if (counts)
        record_begin();
    int code = (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
    if (counts && code == 0 && stat(path, &info) == 0)
        record_path(RECORD_MKDIR, name, NULL, info.st_ino);
    return end_call(counts, code);
}

DIR *opendir(const char *path)
{
    static DIR *(*next)(const char *);
    bool counts = is_ours(CALLER) && below(path);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "opendir");
    if (counts && fires(CALL_OPEN))
        return NULL;
    depth += counts;
    DIR *stream = next(path);
    depth -= counts;
    return stream;
}

/* ---------------------------------------------------------------------------- streams */

static struct {
    FILE *stream;
    int fd;
} streams[N_STREAMS];

static int fd_of(const void *cookie)
{
    return (int)(intptr_t)cookie - 1;
}

static ssize_t read_cookie(void *cookie, char *bytes, size_t n)
{
    depth++;
    ssize_t got = read_file(fd_of(cookie), bytes, n, NULL);
    depth--;
    return got;
}

/* As libc's own streams do: on until all is written or something fails. */
static ssize_t write_cookie(void *cookie, const char *bytes, size_t n)
{
    size_t written = 0;
    int fd = fd_of(cookie);

    if (fd == STDERR_FILENO)
        record_inode(RECORD_SAY, fd, 0, bytes, n);
    depth++;
    while (written < n) {
        ssize_t done = write_file(fd, bytes + written, n - written, NULL);
        if (done < 0)
            break;
        written += (size_t)done;
    }
    depth--;
    return (ssize_t)written;
}

static int seek_cookie(void *cookie, off64_t *offset, int whence)
{
    off_t at = lseek(fd_of(cookie), *offset, whence);

    *offset = at;
    return at < 0 ? -1 : 0;
}

static int close_cookie(void *cookie)
{
    int fd = fd_of(cookie);

    for (int i = 0; i < N_STREAMS; i++)
        if (streams[i].stream && streams[i].fd == fd)
            streams[i].stream = NULL;
    depth++;
    int code = close_file(fd, NULL);
    depth--;
    return code;
}

static FILE *make_stream(int fd, const char *mode)
{
    const cookie_io_functions_t functions = {read_cookie, write_cookie, seek_cookie,
                                             close_cookie};
    int i = 0;

    while (i < N_STREAMS && streams[i].stream)
        i++;
    if (i == N_STREAMS)
        abort();
    depth++;
    FILE *stream = fopencookie((void *)(intptr_t)(fd + 1), mode, functions);
    depth--;
    streams[i].fd = fd;
    return streams[i].stream = stream;
}

FILE *fdopen(int fd, const char *mode)
{
    static FILE *(*next)(int, const char *);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fdopen");
    return is_ours(CALLER) && is_watched(fd) ? make_stream(fd, mode) : next(fd, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    static FILE *(*next)(const char *, const char *);
    int flags = strchr(mode, '+') ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fopen");
    if (!is_ours(CALLER) || !below(path))
        return next(path, mode);
    flags |= mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : 0;
    flags |= (strchr(mode, 'e') ? O_CLOEXEC : 0) | (strchr(mode, 'x') ? O_EXCL : 0);
    int fd = open_file(path, flags, 0666, CALLER);
    FILE *stream = fd < 0 ? NULL : make_stream(fd, mode);
    if (fd >= 0 && !stream)
        syscall(SYS_close, fd);
    return stream;
}

FILE *tmpfile(void)
{
    static FILE *(*next)(void);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "tmpfile");
    if (!is_ours(CALLER))
        return next();
    if (fires(CALL_OPEN))
        return NULL;
    FILE *whole = next();
    int fd = whole ? dup(fileno(whole)) : -1;
    if (whole)
        fclose(whole);
    watch(fd, 't');
    FILE *stream = fd < 0 ? NULL : make_stream(fd, "w+");
    if (fd >= 0 && !stream)
        syscall(SYS_close, fd);
    return stream;
}

int fileno(FILE *stream)
{
    static int (*next)(FILE *);

    for (int i = 0; i < N_STREAMS; i++)
        if (stream && streams[i].stream == stream)
            return streams[i].fd;
    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "fileno");
    return next(stream);
}

/* -------------------------------------------------------------- processes and threads */

int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const arguments[],
                 char *const environment[])
{
    static int (*next)(pid_t *, const char *, const posix_spawn_file_actions_t *,
                       const posix_spawnattr_t *, char *const[], char *const[]);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "posix_spawnp");
    if (is_ours(CALLER) && fires(CALL_SPAWN))
        return fault_errno;
    return next(pid, file, actions, attributes, arguments, environment);
}

int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int from,
                                     int to)
{
    static int (*next)(posix_spawn_file_actions_t *, int, int);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "posix_spawn_file_actions_adddup2");
    if (is_ours(CALLER) && fires(CALL_SPAWN))
        return fault_errno;
    return next(actions, from, to);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                   void *(*start)(void *), void *context)
{
    static int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_create");
    if (is_ours(CALLER) && fires(CALL_THREAD))
        return fault_errno;
    return next(thread, attributes, start, context);
}

/* --------------------------------------------------------------------- start and end */

/* Notes where the program's code, Jansson's and libcsv's lie. */
static int add_range(struct dl_phdr_info *info, size_t size, void *context)
{
    const char *name = info->dlpi_name;

    (void)size;
    (void)context;
    if (name[0] && !strstr(name, "/libjansson.") && !strstr(name, "/libcsv."))
        return 0;
    if (!name[0])
        program_base = info->dlpi_addr;
    for (int i = 0; i < info->dlpi_phnum && n_ranges < N_RANGES; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type != PT_LOAD || !(part->p_flags & PF_X))
            continue;
        ranges[n_ranges].is_csv = strstr(name, "/libcsv.") != NULL;
        ranges[n_ranges].first = info->dlpi_addr + part->p_vaddr;
        ranges[n_ranges++].last = info->dlpi_addr + part->p_vaddr + part->p_memsz;
    }
    return 0;
}

static long number_of(const char *name, long otherwise)
{
    const char *text = getenv(name);

    return text ? strtol(text, NULL, 10) : otherwise;
}

static void read_wishes(void)
{
    const char *call = getenv("MIST_FAULT_CALL"), *mode = getenv("MIST_FAULT_MODE");

    for (int i = 0; call && i < N_CALLS; i++)
        if (strcmp(call, call_names[i]) == 0)
            fault_call = i;
    fault_n = number_of("MIST_FAULT_N", 0);
    fault_errno = (int)number_of("MIST_FAULT_ERRNO", EIO);
    if (mode && strcmp(mode, "once") != 0)
        fault_mode = strcmp(mode, "short") == 0 ? MODE_SHORT : MODE_FULL;
}

static __attribute__((constructor)) void begin(void)
{
    const char *program = getenv("MIST_FAULT_PROGRAM"),
               *where = getenv("MIST_FAULT_FOLDER");
    const char *report = getenv("MIST_FAULT_REPORT"), *log = getenv("MIST_FAULT_LOG");

    if (!program || !where || strcmp(program, program_invocation_short_name) != 0)
        return;
    snprintf(folder, sizeof folder, "%s", where);
    read_wishes();
    dl_iterate_phdr(add_range, NULL);
    slots = mmap(NULL, N_SLOTS * sizeof *slots, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (report)
        report_fd = (int)syscall(SYS_openat, AT_FDCWD, report,
                                 O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log)
        record_open(log);
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    counts_here = !rank || number_of("MIST_FAULT_RANK", 0) == strtol(rank, NULL, 10);
    if (!counts_here)
        fault_call = -1;
    watch(STDOUT_FILENO, 'w');
    stdout = make_stream(STDOUT_FILENO, "w");
    if (log) {
        stderr = make_stream(STDERR_FILENO, "w");
        setvbuf(stderr, NULL, _IONBF, 0);
    }
    is_active = true;
}

static __attribute__((destructor)) void end(void)
{
    if (!is_active)
        return;
    is_active = false;
    for (int i = 0; i < N_CALLS && counts_here; i++)
        tell("seen %s %ld\n", call_names[i], (long)n_seen[i]);
    tell("live %ld\n", n_live);
    for (size_t i = 0, n = 0; i < N_SLOTS && n_live > 0 && n < 8; i++)
        if (slots[i].memory) {
            tell("leak %#lx\n",
                 (unsigned long)((uintptr_t)slots[i].caller - program_base));
            n++;
        }
}
