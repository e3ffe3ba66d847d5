/*
 * Makes every call of a kind that a command makes fail, one run for each, and looks at
 * what is left.
 *
 *   $ sweep TEMPLATE -- mist-sim plan.json -q -f -o out.csv
 *   sweep: malloc 200 of 502, open 8, read 10, write 2 x 3, fsync 2, ...
 *   sweep: 241 runs, 0 complaints
 *
 * The command runs in a copy of TEMPLATE: once as it is, which tells how often it calls
 * what and which files it makes, then once for every call that is to fail (of more than
 * 400, the first 200 and a sample, whose seed is MIST_SEED; all with MIST_FAULTS=all),
 * and for one call more than there are. Each run ends with the exit code of the kind of
 * failure, one line on standard error, every file as it was before or as the undisturbed
 * run leaves it, no other file, and no memory that was not freed. Exit 1 with complaints.
 *
 *   -x PATTERN  files (and stdout) that differ from run to run: lines or bytes count
 *   -t CALL     calls whose failure the command may survive, silently
 *   -g PATTERN  files of -x that grow line by line: a failed run may leave those so far
 *   -l PATTERN  names that a failed run may leave
 *   -c CALL,..  these calls alone
 *   -n N        for slow commands: about N of each call
 *   -r N        the rank whose calls fail, of a command that begins with mpirun
 *   -s N        seconds that a run may take (60)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <ftw.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FILES = 256, MAX_PATTERNS = 16, N_ALL = 400, N_FIRST = 150, N_SAMPLE = 50 };

/* What is made to fail, and the exit code that belongs to it. */
static const struct kind {
    const char *call;
    const char *mode;
    int error;
    int code;
} kinds[] = {
    {"malloc", "once", ENOMEM, 1}, {"open", "once", EIO, 5},
    {"read", "once", EIO, 5},      {"write", "once", EIO, 5},
    {"write", "full", ENOSPC, 5},  {"write", "short", 0, 0},
    {"fsync", "once", EIO, 5},     {"close", "once", EIO, 5},
    {"rename", "once", EIO, 5},    {"mkdir", "once", ENOSPC, 5},
    {"unlink", "once", EIO, 5},    {"truncate", "once", EIO, 5},
    {"mmap", "once", EACCES, 5},   {"spawn", "once", EAGAIN, 1},
    {"thread", "once", EAGAIN, 1},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

struct patterns {
    const char *items[MAX_PATTERNS];
    int n;
};

struct file {
    char name[200];
    uint64_t key; /* of its contents */
};

struct snapshot {
    struct file files[MAX_FILES];
    int n;
};

static struct {
    const char *template;
    struct patterns loose, survivable, growing, left, chosen;
    char **command;
    const char *tool; /* the word of command that begins with mist-, without folders */
    char shim[PATH_MAX];
    char root[PATH_MAX]; /* scratch, removed at the end */
    int limit_s;
    long n_few; /* > 0: at most about so many calls of a kind */
    int rank;   /* the one whose calls fail, under mpirun; -1: no mpirun */
    bool takes_all;
    unsigned long seed;
} at = {.limit_s = 60, .rank = -1, .seed = 1};

struct outcome {
    int status;     /* of waitpid() */
    bool has_fired; /* the call that was to fail happened */
    bool has_ended; /* the tool came to its end */
    long n_live;
    long n_seen[N_KINDS];
    char said[8000];  /* beginning of standard error */
    char leak[32];    /* where something not freed was allocated */
    char place[80];   /* of the failed call, in the program: for addr2line */
    uint64_t printed; /* key of standard output */
    struct snapshot after;
};

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static bool matches(const struct patterns *patterns, const char *name)
{
    for (int i = 0; i < patterns->n; i++)
        if (fnmatch(patterns->items[i], name, 0) == 0)
            return true;
    return false;
}

/* -------------------------------------------------------------------------- snapshots */

static struct snapshot *snapshot_now; /* nftw() passes nothing on */
static size_t snapshot_skip;

/* Of a file that differs from run to run: its lines, or its size if it is no text. */
static uint64_t key_of(const char *path, const char *name)
{
    static unsigned char block[1 << 16];
    uint64_t key = 0xcbf29ce484222325, n_lines = 0, n_bytes = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is_text = true;
    ssize_t n;

    while (fd >= 0 && (n = read(fd, block, sizeof block)) > 0) {
        is_text = is_text && !memchr(block, '\0', (size_t)n);
        for (ssize_t i = 0; i < n; i++) {
            key = (key ^ block[i]) * 0x100000001b3;
            n_lines += block[i] == '\n';
        }
        n_bytes += (uint64_t)n;
    }
    close(fd);
    if (!matches(&at.loose, name))
        return key;
    return is_text ? n_lines : n_bytes;
}

static int add_file(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    const char *name = path + snapshot_skip;
    if (ftw->level == 0)
        return 0;
    if (snapshot_now->n == MAX_FILES || strlen(name) >= sizeof snapshot_now->files->name)
        die("too many files");
    struct file *file = &snapshot_now->files[snapshot_now->n++];
    snprintf(file->name, sizeof file->name, "%s%s", name,
             S_ISDIR(info->st_mode) ? "/" : "");
    file->key = type == FTW_F ? key_of(path, name) : 0;
    return 0;
}

static void take_snapshot(const char *folder, struct snapshot *out)
{
    out->n = 0;
    snapshot_now = out;
    snapshot_skip = strlen(folder) + 1;
    if (nftw(folder, add_file, 16, FTW_PHYS) != 0)
        die(folder);
}

static const struct file *find(const struct snapshot *snapshot, const char *name)
{
    for (int i = 0; i < snapshot->n; i++)
        if (strcmp(snapshot->files[i].name, name) == 0)
            return &snapshot->files[i];
    return NULL;
}

static bool is_same(const struct file *a, const struct file *b)
{
    return a && b ? a->key == b->key : !a && !b;
}

/* --------------------------------------------------------------------------- one run */

static int remove_one(const char *path, const struct stat *info, int type,
                      struct FTW *ftw)
{
    (void)info;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_tree(const char *path)
{
    if (nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        die(path);
}

static char copy_to[PATH_MAX + 16];
static size_t copy_skip;

static int copy_one(const char *path, const struct stat *info, int type, struct FTW *ftw)
{
    static char block[1 << 16];
    char to[PATH_MAX + 512];
    ssize_t n;

    (void)ftw;
    snprintf(to, sizeof to, "%s%s", copy_to, path + copy_skip);
    if (type == FTW_D)
        return mkdir(to, 0777);
    int in = open(path, O_RDONLY),
        out = open(to, O_WRONLY | O_CREAT, info->st_mode & 0777);
    while ((n = read(in, block, sizeof block)) > 0)
        if (write(out, block, (size_t)n) != n)
            return -1;
    close(in);
    return close(out);
}

static void copy_tree(const char *from, const char *to)
{
    snprintf(copy_to, sizeof copy_to, "%s", to);
    copy_skip = strlen(from);
    if (nftw(from, copy_one, 16, FTW_PHYS) != 0)
        die(to);
}

static void set_number(const char *name, long value)
{
    char text[32];

    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

static int open_or_die(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0666);

    if (fd < 0)
        die(path);
    return fd;
}

/* In the child: never returns. */
static void exec_tool(const char *folder, const char *side, const struct kind *kind,
                      long n)
{
    char path[PATH_MAX + 32];
    const char *names[] = {"stdin", "stdout", "stderr"};

    setpgid(0, 0);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", side, names[i]);
        int fd = i == 0 ? open_or_die("/dev/null", O_RDONLY)
                        : open_or_die(path, O_WRONLY | O_CREAT | O_TRUNC);
        dup2(fd, i);
    }
    snprintf(path, sizeof path, "%s/report", side);
    setenv("MIST_FAULT_REPORT", path, 1);
    snprintf(path, sizeof path, "%s/tmp", side);
    setenv("TMPDIR", path, 1);
    setenv("MIST_FAULT_FOLDER", folder, 1);
    setenv("MIST_FAULT_PROGRAM", at.tool, 1);
    setenv("MIST_FAULT_CALL", kind ? kind->call : "none", 1);
    setenv("MIST_FAULT_MODE", kind ? kind->mode : "once", 1);
    set_number("MIST_FAULT_N", n);
    set_number("MIST_FAULT_ERRNO", kind ? kind->error : 0);
    set_number("MIST_FAULT_RANK", at.rank);
    setenv("LD_PRELOAD", at.shim, 1);
    if (chdir(folder) == 0)
        execvp(at.command[0], at.command);
    _exit(127);
}

static void wait_for(pid_t pid, struct outcome *out)
{
    struct timespec step = {.tv_nsec = 2000000};
    time_t end = time(NULL) + at.limit_s;

    while (waitpid(pid, &out->status, WNOHANG) == 0) {
        if (time(NULL) > end)
            kill(-pid, SIGKILL); /* told by its status */
        nanosleep(&step, NULL);
    }
}

static void read_report(const char *path, struct outcome *out)
{
    char line[300], name[32];
    FILE *stream = fopen(path, "r");
    long n;

    while (stream && fgets(line, sizeof line, stream)) {
        if (strncmp(line, "fired ", 6) == 0) {
            out->has_fired = true;
            sscanf(line, "%*s %*s %*s at %79s", out->place);
        } else if (sscanf(line, "live %ld", &n) == 1) {
            out->n_live += n;
            out->has_ended = true;
        } else if (sscanf(line, "seen %31s %ld", name, &n) == 2) {
            for (int i = 0; i < N_KINDS; i++)
                if (strcmp(kinds[i].call, name) == 0)
                    out->n_seen[i] += n;
        } else if (strncmp(line, "leak ", 5) == 0) {
            sscanf(line, "leak %31s", out->leak);
        }
    }
    if (stream)
        fclose(stream);
}

/* Runs the command in side/here, a fresh copy of the template. */
static void run(const char *side, const struct kind *kind, long n, struct outcome *out)
{
    char folder[PATH_MAX + 16], path[PATH_MAX + 16];

    *out = (struct outcome){0};
    remove_tree(side);
    snprintf(folder, sizeof folder, "%s/here", side);
    snprintf(path, sizeof path, "%s/tmp", side);
    if (mkdir(side, 0777) != 0 || mkdir(path, 0777) != 0)
        die(side);
    copy_tree(at.template, folder);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        exec_tool(folder, side, kind, n);
    wait_for(pid, out);
    take_snapshot(folder, &out->after);
    snprintf(path, sizeof path, "%s/stdout", side);
    out->printed = key_of(path, "stdout");
    snprintf(path, sizeof path, "%s/report", side);
    read_report(path, out);
    snprintf(path, sizeof path, "%s/stderr", side);
    int fd = open_or_die(path, O_RDONLY);
    ssize_t got = read(fd, out->said, sizeof out->said - 1);
    out->said[got > 0 ? got : 0] = '\0';
    close(fd);
}

/* -------------------------------------------------------------------------- judgement */

struct point {
    const struct kind *kind;
    long n;
};

static int n_complaints;

__attribute__((format(printf, 3, 4))) static void
complain(const struct point *point, const struct outcome *got, const char *format, ...)
{
    char text[600];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    n_complaints++;
    printf("sweep: %s %s %ld (at %s): %s; stderr: %.300s%s", point->kind->call,
           point->kind->mode, point->n, got->place, text, got->said,
           got->said[0] ? "" : "nothing\n");
}

static void judge_files(const struct point *point, const struct outcome *got,
                        const struct snapshot *old, const struct snapshot *new,
                        bool succeeded)
{
    for (int i = 0; i < got->after.n; i++) {
        const struct file *file = &got->after.files[i];
        const struct file *before = find(old, file->name), *after = find(new, file->name);
        bool may_be_old = !succeeded || strcmp(point->kind->call, "unlink") == 0;
        if (is_same(file, after) || (may_be_old && is_same(file, before)))
            continue;
        if (!succeeded && after && matches(&at.growing, file->name) && file->key > 0 &&
            file->key < after->key)
            continue;
        if (!before && !after && matches(&at.left, file->name))
            continue;
        if (!before && !after && strcmp(point->kind->call, "unlink") == 0)
            continue; /* it could not be removed */
        complain(point, got, "%s is %s", file->name,
                 before || after ? "neither the old nor the new one" : "left");
    }
    for (int i = 0; i < new->n; i++)
        if (!find(&got->after, new->files[i].name) &&
            (succeeded || find(old, new->files[i].name)))
            complain(point, got, "%s is missing", new->files[i].name);
}

/* One line, of the tool's, that says what happened; mpirun adds its own. */
static bool is_good_message(const char *text)
{
    size_t n = strlen(at.tool), n_long = 0;
    int n_lines = 0, n_own = 0;

    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        n_lines++;
        if (strncmp(line, at.tool, n) != 0 || line[n] != ':')
            continue;
        n_own++;
        n_long += end - line > (ptrdiff_t)n + 5;
    }
    return !strstr(text, "Success") && n_own == 1 && n_long == 1 &&
           (at.rank >= 0 || n_lines == 1);
}

static void judge(const struct point *point, const struct outcome *got,
                  const struct outcome *plain, const struct snapshot *old)
{
    int code = WIFEXITED(got->status) ? WEXITSTATUS(got->status) : -1;
    bool must_succeed = !got->has_fired || point->kind->code == 0;

    if (code < 0 || code >= 126)
        complain(point, got, "ended by signal %d, code %d",
                 WIFSIGNALED(got->status) ? WTERMSIG(got->status) : 0, code);
    else if (must_succeed && code != 0)
        complain(point, got, "exit code %d, expected success", code);
    else if (!must_succeed && code == 0 && !matches(&at.survivable, point->kind->call) &&
             strcmp(point->kind->call, "unlink") != 0)
        complain(point, got, "exit code 0 although a call failed");
    else if (code != 0 && code != point->kind->code)
        complain(point, got, "exit code %d, expected %d", code, point->kind->code);
    else if (code != 0 && !is_good_message(got->said))
        complain(point, got, "expected one line");
    else if (must_succeed && got->said[0])
        complain(point, got, "expected no message");
    if (got->has_ended ? got->n_live > plain->n_live : code == 0)
        complain(point, got, "%ld allocations were not freed, one of %s", got->n_live,
                 got->leak);
    if (code == 0 && got->printed != plain->printed)
        complain(point, got, "prints something else");
    judge_files(point, got, old, &plain->after, code == 0);
}

/* ------------------------------------------------------------------------------ sweep */

static bool is_chosen(const struct kind *kind)
{
    return at.chosen.n == 0 || matches(&at.chosen, kind->call);
}

/* Which calls of n fail: all of few, else the first ones, a sample, the last ones and the
 * one that does not happen. Returns how many; out has room for n + 1. */
static long choose(long n, long *out)
{
    long n_out = 0;
    uint64_t state = at.seed * 0x9E3779B97F4A7C15u + 1;

    for (long i = 1; i <= n + 1; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        long draw = (long)((state >> 33) % (uint64_t)n);
        bool is_taken = n <= N_ALL || i <= N_FIRST || i > n - 10 || draw < N_SAMPLE;
        if (at.n_few > 0)
            is_taken = n <= at.n_few || i > n - 2 || draw < at.n_few - 2;
        if (at.takes_all || is_taken)
            out[n_out++] = i;
    }
    return n_out;
}

static struct point *make_points(const struct outcome *plain, long *n_points)
{
    struct point *points = NULL;
    long n = 0;

    printf("sweep:");
    for (int k = 0; k < N_KINDS; k++) {
        long seen = plain->n_seen[k];
        if (!is_chosen(&kinds[k]))
            continue;
        if (seen == 0)
            continue;
        long *chosen = malloc((size_t)(seen + 1) * sizeof *chosen);
        long n_chosen = chosen ? choose(seen, chosen) : 0;
        struct point *grown = realloc(points, (size_t)(n + n_chosen) * sizeof *points);
        if (!grown || !chosen)
            die("memory");
        points = grown;
        for (long i = 0; i < n_chosen; i++)
            points[n++] = (struct point){&kinds[k], chosen[i]};
        printf(" %s/%s %ld of %ld,", kinds[k].call, kinds[k].mode, n_chosen - 1, seen);
        free(chosen);
    }
    printf(" seed %lu\n", at.seed);
    *n_points = n;
    return points;
}

/* Every n_workers-th point from first on; exits with the number of complaints. */
static void work(const struct point *points, long n_points, int first, int n_workers,
                 const struct outcome *plain, const struct snapshot *old)
{
    static struct outcome got;
    char side[PATH_MAX + 16];

    snprintf(side, sizeof side, "%.4000s/%d", at.root, first);
    for (long i = first; i < n_points; i += n_workers) {
        run(side, points[i].kind, points[i].n, &got);
        judge(&points[i], &got, plain, old);
    }
    fflush(stdout);
    _exit(n_complaints > 200 ? 200 : n_complaints);
}

static int sweep(void)
{
    static struct outcome plain;
    static struct snapshot old;
    char side[PATH_MAX + 16];
    long n_points;
    int n_workers = (int)sysconf(_SC_NPROCESSORS_ONLN);

    snprintf(side, sizeof side, "%.4000s/plain", at.root);
    take_snapshot(at.template, &old);
    run(side, NULL, 0, &plain);
    if (!WIFEXITED(plain.status) || WEXITSTATUS(plain.status) != 0 || plain.said[0] ||
        !plain.has_ended || plain.n_live > 0) {
        printf("sweep: undisturbed: status %x, %ld allocations not freed, said: %s\n",
               (unsigned)plain.status, plain.n_live, plain.said);
        return 1;
    }
    struct point *points = make_points(&plain, &n_points);
    fflush(stdout);
    n_workers = n_workers < 1 ? 2 : n_workers > 16 ? 32 : 2 * n_workers; /* some sleep */
    for (int i = 0; i < n_workers; i++)
        if (fork() == 0)
            work(points, n_points, i, n_workers, &plain, &old);
    int status;
    while (wait(&status) > 0)
        n_complaints += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    printf("sweep: %ld runs, %d complaints\n", n_points, n_complaints);
    free(points);
    return n_complaints > 0;
}

/* ------------------------------------------------------------------------------- main */

static void add_patterns(struct patterns *patterns, char *list)
{
    for (char *p = strtok(list, ","); p && patterns->n < MAX_PATTERNS;
         p = strtok(NULL, ","))
        patterns->items[patterns->n++] = p;
}

static void parse(int argc, char **argv)
{
    int option;
    const char *seed = getenv("MIST_SEED"), *all = getenv("MIST_FAULTS");
    char *slash;

    while ((option = getopt(argc, argv, "+x:t:g:l:c:n:r:s:")) != -1) {
        switch (option) {
        case 'x':
            add_patterns(&at.loose, optarg);
            break;
        case 't':
            add_patterns(&at.survivable, optarg);
            break;
        case 'g':
            add_patterns(&at.growing, optarg);
            break;
        case 'l':
            add_patterns(&at.left, optarg);
            break;
        case 'c':
            add_patterns(&at.chosen, optarg);
            break;
        case 'n':
            at.n_few = atol(optarg);
            break;
        case 'r':
            at.rank = atoi(optarg);
            break;
        case 's':
            at.limit_s = atoi(optarg);
            break;
        default:
            exit(2);
        }
    }
    if (argc - optind < 2) { /* a template and a command */
        fprintf(stderr, "usage: sweep [OPTIONS] TEMPLATE COMMAND...\n");
        exit(2);
    }
    at.template = argv[optind];
    at.command = argv + optind + 1;
    for (char **word = at.command; *word && !at.tool; word++) {
        slash = strrchr(*word, '/');
        if (strncmp(slash ? slash + 1 : *word, "mist-", 5) == 0)
            at.tool = slash ? slash + 1 : *word;
    }
    at.seed = seed ? strtoul(seed, NULL, 10) : 1;
    at.takes_all = all && strcmp(all, "all") == 0;
    /* the object lies beside this program */
    ssize_t n = readlink("/proc/self/exe", at.shim, sizeof at.shim - 16);
    if (n < 0)
        die("/proc/self/exe");
    at.shim[n] = '\0';
    snprintf(strrchr(at.shim, '/'), 16, "/inject.so");
}

int main(int argc, char **argv)
{
    const char *tmp = getenv("TMPDIR");

    parse(argc, argv);
    snprintf(at.root, sizeof at.root, "%.4000s/mist_sweep_XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(at.root))
        die(at.root);
    int code = sweep();
    remove_tree(at.root);
    return code;
}
