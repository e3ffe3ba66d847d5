/*
 * A disk that loses power: replays the log of what a tool wrote (inject.h) to any moment
 * and makes the folder as it may be found afterwards.
 *
 * The model is what POSIX promises and no more. What a file held at its last fsync stays;
 * later writes and truncations may have happened or not, each for itself, the last one
 * perhaps in part. A name that was made, renamed or removed stays so after an fsync of
 * its folder; before, each of these steps may have happened or not, but a step on a name
 * not without the earlier ones on that name. An fsync of a file says nothing of its name.
 */
#ifndef MIST_TESTS_FAULTS_DISK_H
#define MIST_TESTS_FAULTS_DISK_H

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/random.h"
#include "tests/faults/inject.h"
#include "tests/unit/test.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DISK_NODES = 1024, DISK_NAMES = 8192, DISK_RECORDS = 65536, DISK_NAME_BYTES = 96 };

/* A change of a file: a write, or a truncation (bytes NULL) to first. */
struct disk_change {
    long record; /* its place in the log; -1: before it */
    int64_t first;
    const unsigned char *bytes;
    int64_t n;
};

struct disk_node {
    bool is_folder;
    uint64_t inode;
    struct disk_change *changes; /* of a file */
    size_t n_changes, capacity;
    long *syncs; /* records of its fsyncs */
    size_t n_syncs, syncs_capacity;
};

/* A step on names of one folder: name gets node (-1: is removed); of a rename, name_from
 * of the same or another folder goes. */
struct disk_step {
    long record;
    int folder, folder_from; /* nodes; folder_from -1: no rename */
    char name[DISK_NAME_BYTES], name_from[DISK_NAME_BYTES];
    int node;
    int removed; /* node that the name had; -1: none */
};

struct disk_entry {
    int folder, node;
    char name[DISK_NAME_BYTES];
};

/* The names at some moment. */
struct disk_tree {
    struct disk_entry entries[DISK_NAMES];
    int n;
};

struct disk {
    unsigned char *log; /* owned: the bytes of all writes */
    size_t n_log;
    size_t at[DISK_RECORDS]; /* of every record */
    long n_records;
    struct disk_node nodes[DISK_NODES]; /* 0: the folder that is watched */
    int n_nodes;
    struct disk_step *steps;
    size_t n_steps, steps_capacity;
    struct disk_tree now; /* while the log is read */
};

/* How much of what was not flushed is there. */
enum disk_loss {
    DISK_LOSES_NOTHING,
    DISK_LOSES_ALL,
    DISK_LOSES_DATA,  /* names are there, contents not */
    DISK_LOSES_NAMES, /* contents are there, names not */
    DISK_N_FIXED_LOSSES,
    DISK_LOSES_SOME = DISK_N_FIXED_LOSSES, /* drawn */
};

/* ------------------------------------------------------------------------------ trees */

static struct disk_entry *disk_find(struct disk_tree *tree, int folder, const char *name)
{
    for (int i = 0; i < tree->n; i++)
        if (tree->entries[i].folder == folder && strcmp(tree->entries[i].name, name) == 0)
            return &tree->entries[i];
    return NULL;
}

static void disk_remove(struct disk_tree *tree, int folder, const char *name)
{
    struct disk_entry *entry = disk_find(tree, folder, name);

    if (entry)
        *entry = tree->entries[--tree->n];
}

static void disk_put(struct disk_tree *tree, int folder, const char *name, int node)
{
    disk_remove(tree, folder, name);
    assert_true(tree->n < DISK_NAMES);
    struct disk_entry *entry = &tree->entries[tree->n++];
    *entry = (struct disk_entry){.folder = folder, .node = node};
    snprintf(entry->name, sizeof entry->name, "%s", name);
}

static void disk_take_step(struct disk_tree *tree, const struct disk_step *step)
{
    if (step->folder_from >= 0)
        disk_remove(tree, step->folder_from, step->name_from);
    if (step->node >= 0)
        disk_put(tree, step->folder, step->name, step->node);
    else
        disk_remove(tree, step->folder, step->name);
}

/* The node of a folder of a path of n bytes; name is what comes behind it. */
static int disk_walk(struct disk *disk, const char *path, size_t n,
                     char name[DISK_NAME_BYTES])
{
    int folder = 0;
    const char *end = path + n;

    for (;;) {
        const char *slash = memchr(path, '/', (size_t)(end - path));
        size_t n_name = (size_t)((slash ? slash : end) - path);
        assert_true(n_name > 0 && n_name < DISK_NAME_BYTES);
        memcpy(name, path, n_name);
        name[n_name] = '\0';
        if (!slash)
            return folder;
        struct disk_entry *entry = disk_find(&disk->now, folder, name);
        assert_non_null(entry);
        folder = entry->node;
        path = slash + 1;
    }
}

/* ---------------------------------------------------------------------------- reading */

static int disk_new_node(struct disk *disk, bool is_folder, uint64_t inode)
{
    assert_true(disk->n_nodes < DISK_NODES);
    disk->nodes[disk->n_nodes] =
        (struct disk_node){.is_folder = is_folder, .inode = inode};
    return disk->n_nodes++;
}

/* The newest node of an inode (numbers are used again); NULL: not below the folder. */
static struct disk_node *disk_of_inode(struct disk *disk, uint64_t inode)
{
    for (int i = disk->n_nodes - 1; i >= 0; i--)
        if (disk->nodes[i].inode == inode)
            return &disk->nodes[i];
    return NULL;
}

static void *disk_grow(void *array, size_t *capacity, size_t need, size_t size)
{
    void *grown = mist_grow(array, capacity, need, size);

    assert_non_null(grown);
    return grown;
}

static void disk_change(struct disk_node *node, struct disk_change change)
{
    node->changes =
        disk_grow(node->changes, &node->capacity, node->n_changes + 1, sizeof change);
    node->changes[node->n_changes++] = change;
}

static void disk_step(struct disk *disk, struct disk_step step)
{
    disk->steps =
        disk_grow(disk->steps, &disk->steps_capacity, disk->n_steps + 1, sizeof step);
    struct disk_entry *had = disk_find(&disk->now, step.folder, step.name);
    step.removed = had ? had->node : -1;
    disk->steps[disk->n_steps++] = step;
    disk_take_step(&disk->now, &step);
}

/* What was there before the tool ran: safe. Contents are read when they are asked for. */
static void disk_add_folder(struct disk *disk, const char *path, int folder)
{
    DIR *stream = opendir(path);
    char below[PATH_MAX];
    struct stat info;

    assert_non_null(stream);
    for (struct dirent *file; (file = readdir(stream));) {
        if (strcmp(file->d_name, ".") == 0 || strcmp(file->d_name, "..") == 0)
            continue;
        snprintf(below, sizeof below, "%s/%s", path, file->d_name);
        assert_int_equal(stat(below, &info), 0);
        int node = disk_new_node(disk, S_ISDIR(info.st_mode), info.st_ino);
        disk_put(&disk->now, folder, file->d_name, node);
        if (S_ISDIR(info.st_mode)) {
            disk_add_folder(disk, below, node);
            continue;
        }
        struct disk_change all = {.record = -1, .n = info.st_size};
        unsigned char *bytes = malloc((size_t)info.st_size + 1); /* with the disk */
        int fd = open(below, O_RDONLY | O_CLOEXEC);
        assert_true(bytes && read(fd, bytes, (size_t)info.st_size) == info.st_size);
        close(fd);
        all.bytes = bytes;
        disk_change(&disk->nodes[node], all);
    }
    closedir(stream);
}

/* Before the tool runs. */
static struct disk *disk_new(const char *folder)
{
    struct disk *disk = calloc(1, sizeof *disk);
    struct stat info;

    assert_non_null(disk);
    assert_int_equal(stat(folder, &info), 0);
    disk_new_node(disk, true, info.st_ino);
    disk_add_folder(disk, folder, 0);
    return disk;
}

static void disk_free(struct disk *disk)
{
    for (int i = 0; i < disk->n_nodes; i++) {
        struct disk_node *node = &disk->nodes[i];
        if (node->n_changes > 0 && node->changes[0].record < 0)
            free((void *)(uintptr_t)node->changes[0].bytes);
        free(node->changes);
        free(node->syncs);
    }
    free(disk->steps);
    free(disk->log);
    free(disk);
}

static void disk_read_name(struct disk *disk, const struct record *record, long i,
                           const char *path)
{
    struct disk_step step = {.record = i, .folder_from = -1, .node = -1};

    step.folder = disk_walk(disk, path, record->n_path, step.name);
    if (record->kind == RECORD_CREATE || record->kind == RECORD_MKDIR)
        step.node = disk_new_node(disk, record->kind == RECORD_MKDIR, record->inode);
    if (record->kind == RECORD_RENAME) {
        step.folder_from = step.folder;
        memcpy(step.name_from, step.name, sizeof step.name);
        step.node = disk_find(&disk->now, step.folder, step.name)->node;
        step.folder =
            disk_walk(disk, path + record->n_path, record->n_path_to, step.name);
    }
    disk_step(disk, step);
}

/* Reads the log of the tool that ran. */
static void disk_read_log(struct disk *disk, const char *path)
{
    size_t n;
    struct mist_err err;
    char *text = NULL;
    struct record record;

    must(mist_file_read_all(path, (size_t)1 << 30, &text, &n, &err), &err);
    disk->log = (unsigned char *)text;
    disk->n_log = n;
    for (size_t at = 0; at < n;) {
        memcpy(&record, disk->log + at, sizeof record);
        const char *names = text + at + sizeof record;
        const unsigned char *bytes =
            (const unsigned char *)names + record.n_path + record.n_path_to;
        long i = disk->n_records;
        assert_true(i < DISK_RECORDS);
        disk->at[disk->n_records++] = at;
        struct disk_node *node = record.n_path || record.kind == RECORD_SAY
                                     ? NULL
                                     : disk_of_inode(disk, record.inode);
        if (record.n_path > 0)
            disk_read_name(disk, &record, i, names);
        else if (node && record.kind == RECORD_SYNC) {
            node->syncs = disk_grow(node->syncs, &node->syncs_capacity, node->n_syncs + 1,
                                    sizeof *node->syncs);
            node->syncs[node->n_syncs++] = i;
        } else if (node)
            disk_change(node, (struct disk_change){i, record.offset,
                                                   record.n_bytes ? bytes : NULL,
                                                   record.n_bytes});
        at += sizeof record + record.n_path + record.n_path_to + record.n_bytes;
    }
}

/* The record i; *bytes are its bytes. */
static struct record disk_record(const struct disk *disk, long i, const char **bytes)
{
    struct record record;

    memcpy(&record, disk->log + disk->at[i], sizeof record);
    *bytes = (const char *)disk->log + disk->at[i] + sizeof record + record.n_path +
             record.n_path_to;
    return record;
}

/* -------------------------------------------------------------------- after the crash */

/* The first fsync of a node behind a record, or a place behind the log. */
static long disk_synced_at(const struct disk *disk, int node, long record)
{
    const struct disk_node *at = &disk->nodes[node];

    for (size_t i = 0; i < at->n_syncs; i++)
        if (at->syncs[i] > record)
            return at->syncs[i];
    return LONG_MAX;
}

static bool disk_touches(const struct disk_step *step, int folder, const char *name)
{
    return (step->folder == folder && strcmp(step->name, name) == 0) ||
           (step->folder_from == folder && strcmp(step->name_from, name) == 0);
}

/* Whether two steps are on the same name; a folder's end needs all that was done
 * in it. */
static bool disk_depends(const struct disk_step *later, const struct disk_step *earlier)
{
    if (disk_touches(earlier, later->folder, later->name) ||
        (later->folder_from >= 0 &&
         disk_touches(earlier, later->folder_from, later->name_from)))
        return true;
    return later->removed >= 0 && earlier->folder == later->removed;
}

/* The names after a crash behind the first n_records records. initial: before the log. */
static void disk_crash_names(const struct disk *disk, const struct disk_tree *initial,
                             long n_records, enum disk_loss loss, struct mist_random *rng,
                             struct disk_tree *out)
{
    bool *happened = calloc(disk->n_steps + 1, sizeof *happened);
    double share = mist_random_uniform(rng);

    assert_non_null(happened);
    *out = *initial;
    for (size_t i = 0; i < disk->n_steps && disk->steps[i].record < n_records; i++) {
        const struct disk_step *step = &disk->steps[i];
        bool is_safe = disk_synced_at(disk, step->folder, step->record) < n_records;
        bool is_drawn = loss == DISK_LOSES_SOME && mist_random_uniform(rng) < share;
        happened[i] =
            is_safe || is_drawn || loss == DISK_LOSES_NOTHING || loss == DISK_LOSES_DATA;
        for (size_t j = 0; j < i && happened[i] && !is_safe; j++)
            happened[i] = happened[j] || !disk_depends(step, &disk->steps[j]);
        if (happened[i])
            disk_take_step(out, step);
    }
    free(happened);
}

struct disk_text {
    unsigned char *bytes;
    size_t n, capacity;
};

/* Does n of the bytes of a change to text. */
static void disk_apply(struct disk_text *text, const struct disk_change *change,
                       int64_t n)
{
    size_t end = (size_t)(change->first + n);

    if (change->bytes || end > text->n) {
        text->bytes = disk_grow(text->bytes, &text->capacity, end + 1, 1);
        if (end > text->n) {
            memset(text->bytes + text->n, 0, end - text->n);
            text->n = end;
        }
        if (change->bytes)
            memcpy(text->bytes + change->first, change->bytes, (size_t)n);
    } else {
        text->n = end;
    }
}

/* What a file holds after the crash. */
static void disk_crash_file(const struct disk_node *node, long n_records,
                            enum disk_loss loss, struct mist_random *rng,
                            struct disk_text *out)
{
    long safe = -1; /* changes up to this record are on the disk */
    double share = mist_random_uniform(rng);
    int how = (int)(mist_random_uniform(rng) * 4);

    out->n = 0;
    for (size_t i = 0; i < node->n_syncs && node->syncs[i] < n_records; i++)
        safe = node->syncs[i];
    for (size_t i = 0; i < node->n_changes && node->changes[i].record < n_records; i++) {
        const struct disk_change *change = &node->changes[i];
        if (change->record <= safe || loss == DISK_LOSES_NOTHING ||
            loss == DISK_LOSES_NAMES) {
            disk_apply(out, change, change->n);
            continue;
        }
        if (loss != DISK_LOSES_SOME || how == 0)
            continue;
        bool is_there = mist_random_uniform(rng) < share;
        if (is_there || how == 1)
            disk_apply(out, change, change->n);
        else if (change->bytes)
            disk_apply(out, change,
                       (int64_t)((double)change->n * mist_random_uniform(rng)));
        if (!is_there && how != 3)
            break; /* else holes, too */
    }
}

/* Where the crash leaves the files; visit gets every file and folder, folders first. */
typedef void disk_visit_fn(void *context, const char *path, bool is_folder,
                           const struct disk_text *text);

static void disk_visit_folder(struct disk *disk, struct disk_tree *tree, int folder,
                              const char *path, long n_records, enum disk_loss loss,
                              struct mist_random *rng, struct disk_text *text,
                              disk_visit_fn *visit, void *context)
{
    char below[PATH_MAX];

    for (int i = 0; i < tree->n; i++) {
        const struct disk_entry *entry = &tree->entries[i];
        if (entry->folder != folder)
            continue;
        const struct disk_node *node = &disk->nodes[entry->node];
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "/" : "", entry->name);
        if (!node->is_folder)
            disk_crash_file(node, n_records, loss, rng, text);
        visit(context, below, node->is_folder, text);
        if (node->is_folder)
            disk_visit_folder(disk, tree, entry->node, below, n_records, loss, rng, text,
                              visit, context);
    }
}

#endif
