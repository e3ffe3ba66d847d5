/* Records of a session. See journal.h. */
#include "profile/journal.h"

#include "core/atomic_file.h" /* reading a file, making folders */
#include "core/hash.h"
#include "core/interrupt.h" /* names of signals */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t most_bytes = (size_t)1 << 32;

struct file_head {
    char magic[8];
    uint64_t fingerprint;
    int64_t n_ranks;
};

/* In front of a record's sizes[n_ranks] and bytes; a checksum follows. */
struct record_head {
    int64_t part;
    int64_t n_bytes; /* of all ranks */
};

struct mist_journal {
    struct mist_comm *comm; /* borrowed */
    char path[4096];        /* of the file */
    char folder[4096];
    FILE *stream;                  /* rank 0 */
    char *text;                    /* owned; records of the earlier session */
    int64_t n_text, at;            /* bytes of it, and how many have been taken */
    const atomic_int *stop_signal; /* borrowed; NULL: never */
    int stopped;                   /* by this signal; 0: not */
};

static const char magic[8] = "mistjrn3";

static bool make_paths(const char *output, char *folder, char *path, size_t size)
{
    size_t n = strlen(output);

    while (n > 1 && output[n - 1] == '/')
        n--;
    int used = snprintf(folder, size, "%.*s.partial", (int)n, output);
    int both = snprintf(path, size, "%.*s.partial/journal", (int)n, output);
    return used > 0 && both > 0 && (size_t)both < size;
}

bool mist_journal_exists(const char *output)
{
    char folder[4096], path[4096];

    return make_paths(output, folder, path, sizeof path) && access(path, F_OK) == 0;
}

static uint64_t checksum(const char *bytes, int64_t n)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_bytes(&hash, bytes, (size_t)n);
    return hash.value;
}

/* ---------------------------------------------------------------------------- reading */

/* Bytes of the record at text[n], whole and intact; 0: it is not. */
static int64_t record_bytes(const char *text, int64_t n, int64_t n_ranks)
{
    struct record_head head;
    uint64_t sum;
    int64_t sizes_bytes = n_ranks * (int64_t)sizeof(int64_t);

    if (n < (int64_t)sizeof head + sizes_bytes + (int64_t)sizeof sum)
        return 0;
    memcpy(&head, text, sizeof head);
    int64_t room = n - (int64_t)sizeof head - sizes_bytes - (int64_t)sizeof sum;
    if (head.part < 0 || head.part >= MIST_N_JOURNAL_PARTS || head.n_bytes < 0 ||
        head.n_bytes > room)
        return 0;
    int64_t summed = (int64_t)sizeof head + sizes_bytes + head.n_bytes, total = 0;
    memcpy(&sum, text + summed, sizeof sum);
    if (sum != checksum(text, summed))
        return 0;
    for (int64_t i = 0; i < n_ranks; i++) {
        int64_t size;
        memcpy(&size, text + sizeof head + (size_t)i * sizeof size, sizeof size);
        if (size < 0 || size > head.n_bytes)
            return 0;
        total += size;
    }
    return total == head.n_bytes ? summed + (int64_t)sizeof sum : 0;
}

const char *mist_journal_take(struct mist_journal *journal, enum mist_journal_part part,
                              int64_t *n_bytes)
{
    struct record_head head;

    if (!journal || journal->at >= journal->n_text)
        return NULL;
    const char *record = journal->text + journal->at;
    int32_t n_ranks = mist_comm_n_ranks(journal->comm);
    memcpy(&head, record, sizeof head);
    if (head.part != (int64_t)part)
        return NULL;
    const char *sizes = record + sizeof head;
    const char *bytes = sizes + (size_t)n_ranks * sizeof(int64_t);
    for (int32_t i = 0; i <= mist_comm_rank(journal->comm); i++) {
        bytes += i > 0 ? *n_bytes : 0;
        memcpy(n_bytes, sizes + (size_t)i * sizeof *n_bytes, sizeof *n_bytes);
    }
    journal->at += record_bytes(record, journal->n_text - journal->at, n_ranks);
    return bytes;
}

/* Rank 0: the records of an earlier session, as far as they are intact. */
static enum mist_status load(struct mist_journal *journal, uint64_t fingerprint,
                             struct mist_err *err)
{
    struct file_head head = {0};
    int64_t n_ranks = mist_comm_n_ranks(journal->comm);
    char *text = NULL;
    size_t n = 0;
    enum mist_status status =
        mist_file_read_all(journal->path, most_bytes, &text, &n, err);

    if (status != MIST_OK)
        return status;
    if (n >= sizeof head)
        memcpy(&head, text, sizeof head);
    if (n < sizeof head || memcmp(head.magic, magic, sizeof magic) != 0 ||
        head.fingerprint != fingerprint || head.n_ranks != n_ranks) {
        free(text);
        return mist_err_at(err, MIST_ERR_INPUT, journal->path, 0, 0,
                           "is of another session: other model, sizes, ranks or version; "
                           "continue with its options, or start anew with --force");
    }
    journal->text = text;
    memmove(text, text + sizeof head, n - sizeof head);
    int64_t room = (int64_t)(n - sizeof head), step;
    while ((step = record_bytes(text + journal->n_text, room - journal->n_text,
                                n_ranks)) > 0)
        journal->n_text += step;
    if (truncate(journal->path, (off_t)sizeof head + journal->n_text) == 0)
        journal->stream = fopen(journal->path, "ab");
    if (!journal->stream)
        return mist_err_at(err, MIST_ERR_IO, journal->path, 0, 0, "%s", strerror(errno));
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- writing */

static void remove_files(struct mist_journal *journal)
{
    fclose(journal->stream);
    journal->stream = NULL;
    if (remove(journal->path) == 0)
        rmdir(journal->folder);
}

static enum mist_status begin(struct mist_journal *journal, uint64_t fingerprint,
                              struct mist_err *err)
{
    struct file_head head = {.fingerprint = fingerprint,
                             .n_ranks = mist_comm_n_ranks(journal->comm)};
    enum mist_status status = mist_make_directory(journal->folder, err);

    if (status != MIST_OK)
        return status;
    memcpy(head.magic, magic, sizeof magic);
    journal->stream = fopen(journal->path, "wb");
    if (!journal->stream)
        return mist_err_at(err, MIST_ERR_IO, journal->path, 0, 0, "%s", strerror(errno));
    if (fwrite(&head, sizeof head, 1, journal->stream) == 1 &&
        fflush(journal->stream) == 0)
        return MIST_OK;
    status = mist_err_at(err, MIST_ERR_IO, journal->path, 0, 0, "can't write: %s",
                         strerror(errno));
    remove_files(journal); /* not a session to go on with */
    return status;
}

enum mist_status mist_journal_describe_stop(int stop_signal, struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_RUN,
                        "%s: stopped; --resume goes on from what is measured",
                        mist_interrupt_name(stop_signal));
}

/* Rank 0's result, and a signal that came to any rank, on all ranks. */
static enum mist_status share(struct mist_journal *journal, enum mist_status status,
                              struct mist_err *err)
{
    const atomic_int *stop_signal = journal->stop_signal;
    double found[] = {(double)status, stop_signal ? atomic_load(stop_signal) : 0};
    struct mist_err mine;
    enum mist_status shared =
        mist_comm_all_reduce_f64(journal->comm, MIST_COMM_MAX, found, 2, &mine);

    if (status != MIST_OK)
        return status;
    if (shared != MIST_OK)
        return mist_err_set(err, shared, "%s", mine.message);
    if (found[0] > 0)
        return mist_err_set(err, (enum mist_status)found[0],
                            "rank 0 can't keep a journal");
    journal->stopped = (int)found[1];
    return journal->stopped ? mist_journal_describe_stop(journal->stopped, err) : MIST_OK;
}

void mist_journal_set_stop(struct mist_journal *journal, const atomic_int *stop_signal)
{
    journal->stop_signal = stop_signal;
}

int mist_journal_stopped(const struct mist_journal *journal)
{
    return journal ? journal->stopped : 0;
}

enum mist_status mist_journal_open(struct mist_comm *comm, const char *output,
                                   uint64_t fingerprint, bool resumes,
                                   struct mist_journal **out, struct mist_err *err)
{
    struct mist_journal *journal = calloc(1, sizeof *journal);
    bool is_first = mist_comm_rank(comm) == 0;
    enum mist_status status = MIST_OK;

    *out = journal;
    if (!journal)
        return mist_err_memory(err, NULL);
    journal->comm = comm;
    if (!make_paths(output, journal->folder, journal->path, sizeof journal->path))
        status = mist_err_at(err, MIST_ERR_IO, output, 0, 0, "is no path of a folder");
    else if (is_first && resumes && access(journal->path, F_OK) == 0)
        status = load(journal, fingerprint, err);
    else if (is_first)
        status = begin(journal, fingerprint, err);
    status = share(journal, status, err);
    if (status == MIST_OK)
        status = mist_comm_broadcast_bytes(comm, 0, &journal->n_text,
                                           sizeof journal->n_text, err);
    if (status != MIST_OK || journal->n_text == 0)
        return status;
    if (!is_first)
        journal->text = malloc((size_t)journal->n_text);
    if (!journal->text)
        return mist_err_memory(err, NULL);
    return mist_comm_broadcast_bytes(comm, 0, journal->text, journal->n_text, err);
}

void mist_journal_close(struct mist_journal *journal, bool is_done)
{
    if (!journal)
        return;
    if (journal->stream && is_done)
        remove_files(journal);
    else if (journal->stream)
        fclose(journal->stream);
    free(journal->text);
    free(journal);
}

/* Rank 0: all in one piece, so that little can be cut off. */
static enum mist_status write_record(struct mist_journal *journal,
                                     enum mist_journal_part part, const char *all,
                                     const int64_t *sizes, struct mist_err *err)
{
    int32_t n_ranks = mist_comm_n_ranks(journal->comm);
    struct record_head head = {.part = part};
    size_t sizes_bytes = (size_t)n_ranks * sizeof *sizes;

    for (int32_t i = 0; i < n_ranks; i++)
        head.n_bytes += sizes[i];
    size_t n = sizeof head + sizes_bytes + (size_t)head.n_bytes;
    char *record = malloc(n + sizeof(uint64_t));
    if (!record)
        return mist_err_memory(err, NULL);
    memcpy(record, &head, sizeof head);
    memcpy(record + sizeof head, sizes, sizes_bytes);
    if (head.n_bytes > 0)
        memcpy(record + sizeof head + sizes_bytes, all, (size_t)head.n_bytes);
    uint64_t sum = checksum(record, (int64_t)n);
    memcpy(record + n, &sum, sizeof sum);
    bool is_written = fwrite(record, n + sizeof sum, 1, journal->stream) == 1 &&
                      fflush(journal->stream) == 0;
    free(record);
    if (!is_written)
        return mist_err_at(err, MIST_ERR_IO, journal->path, 0, 0, "can't be written: %s",
                           strerror(errno));
    return MIST_OK;
}

enum mist_status mist_journal_add(struct mist_journal *journal,
                                  enum mist_journal_part part, const void *bytes,
                                  int64_t n_bytes, struct mist_err *err)
{
    char *all = NULL;
    int64_t *sizes;

    if (!journal)
        return MIST_OK;
    sizes = calloc((size_t)mist_comm_n_ranks(journal->comm), sizeof *sizes);
    if (!sizes)
        return mist_err_memory(err, NULL);
    enum mist_status status =
        mist_comm_gather_bytes(journal->comm, bytes, n_bytes, &all, sizes, err);
    if (status == MIST_OK) {
        if (journal->stream)
            status = write_record(journal, part, all, sizes, err);
        status = share(journal, status, err);
    }
    free(all);
    free(sizes);
    return status;
}
