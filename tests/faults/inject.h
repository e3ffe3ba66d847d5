/*
 * What the two halves of the preloaded object share: inject.c stands between a tool and
 * libc, record.c keeps the log of what reached the disk. See README.md.
 */
#ifndef MIST_TESTS_FAULTS_INJECT_H
#define MIST_TESTS_FAULTS_INJECT_H

#include <stdint.h>
#include <sys/types.h>

/* What a record of the log is of; the replayer reads the same. */
enum record_kind {
    RECORD_CREATE,   /* path, inode: a file that was not there */
    RECORD_WRITE,    /* inode, offset, bytes */
    RECORD_TRUNCATE, /* inode, offset: its new size */
    RECORD_SYNC,     /* inode: an fsync of a file or a folder has returned */
    RECORD_RENAME,   /* path, path_to */
    RECORD_UNLINK,   /* path */
    RECORD_MKDIR,    /* path, inode */
    RECORD_RMDIR,    /* path */
    RECORD_SAY,      /* bytes that were written to standard error */
    N_RECORD_KINDS
};

/* One record, followed by path, path_to and bytes, without a '\0'. Paths are relative to
 * the folder that is watched. */
struct record {
    uint32_t kind;
    uint32_t n_path, n_path_to, n_bytes;
    uint64_t inode;
    int64_t offset;
};

/* Opens the log; all functions below do nothing before. Records are made between begin
 * and end, with the call that they are of; others wait. */
void record_open(const char *log);
void record_begin(void);
void record_end(void);
void record_path(enum record_kind kind, const char *path, const char *path_to,
                 uint64_t inode);
void record_inode(enum record_kind kind, int fd, int64_t offset, const void *bytes,
                  size_t n_bytes);
int record_is_open(void);

#endif
