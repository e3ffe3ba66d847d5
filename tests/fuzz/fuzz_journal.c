/*
 * profile/journal: the records of an earlier session, for 1 to 4 ranks (second byte), as
 * any of them sees them (third byte). What was read, and a record more, is read again.
 *
 * The first byte says whether checksums count and the head of the file is taken as it is;
 * where not, all sums are the same and the head is put right. The journal talks to other
 * ranks; those are made up here.
 */
#include "core/hash.h"
#include "profile/journal.h"
#include "tests/fuzz/fuzz.h"

#include <sys/stat.h>

enum { MAX_RECORDS = 200 };

static bool sums_count;

void __real_mist_hash_add_bytes(struct mist_hash *hash, const void *bytes, size_t n);
void __wrap_mist_hash_add_bytes(struct mist_hash *hash, const void *bytes, size_t n);
void __wrap_mist_hash_add_bytes(struct mist_hash *hash, const void *bytes, size_t n)
{
    if (sums_count)
        __real_mist_hash_add_bytes(hash, bytes, n);
}

/* ---------------------------------------------------------------------- made-up ranks */

struct mist_comm {
    int32_t rank, n_ranks;
};

int32_t mist_comm_rank(const struct mist_comm *comm)
{
    return comm->rank;
}

int32_t mist_comm_n_ranks(const struct mist_comm *comm)
{
    return comm->n_ranks;
}

enum mist_status mist_comm_all_reduce_f64(struct mist_comm *comm,
                                          enum mist_comm_reduction reduction,
                                          double *values, int32_t n, struct mist_err *err)
{
    (void)comm, (void)reduction, (void)values, (void)n, (void)err;
    return MIST_OK;
}

enum mist_status mist_comm_broadcast_bytes(struct mist_comm *comm, int32_t root,
                                           void *bytes, int64_t n_bytes,
                                           struct mist_err *err)
{
    (void)comm, (void)root, (void)bytes, (void)n_bytes, (void)err;
    return MIST_OK;
}

/* Every rank gives the same. */
enum mist_status mist_comm_gather_bytes(struct mist_comm *comm, const void *bytes,
                                        int64_t n_bytes, char **all, int64_t *sizes,
                                        struct mist_err *err)
{
    struct fuzz_buffer buffer = {0};

    (void)err;
    for (int32_t i = 0; i < comm->n_ranks; i++) {
        fuzz_add(&buffer, bytes, (size_t)n_bytes);
        sizes[i] = n_bytes;
    }
    *all = (char *)buffer.bytes;
    return MIST_OK;
}

/* --------------------------------------------------------------------------- records */

/* What rank sees of all records, one behind the other, with their parts and sizes. */
static int take_all(struct mist_journal *journal, struct mist_comm *comm, int32_t rank,
                    struct fuzz_buffer *out)
{
    int n = 0;

    comm->rank = rank;
    for (int part = 0; part < MIST_N_JOURNAL_PARTS && n < MAX_RECORDS;) {
        int64_t n_bytes = -1;
        const char *bytes =
            mist_journal_take(journal, (enum mist_journal_part)part, &n_bytes);
        if (!bytes) {
            part++;
            continue;
        }
        FUZZ_CHECK(n_bytes >= 0, "%lld bytes", (long long)n_bytes);
        fuzz_add(out, &part, sizeof part);
        fuzz_add(out, &n_bytes, sizeof n_bytes);
        fuzz_add(out, bytes, (size_t)n_bytes);
        n++;
        part = 0; /* a record of any part may be next */
    }
    comm->rank = 0;
    return n;
}

static void check_again(struct mist_comm *comm, const char *output, int32_t rank,
                        const struct fuzz_buffer *before, int n_before)
{
    static const char more[] = "more";
    struct mist_journal *journal;
    struct fuzz_buffer after = {0};
    struct mist_err err = {0};

    fuzz_must(mist_journal_open(comm, output, 7, true, &journal, &err), &err);
    fuzz_must(mist_journal_add(journal, MIST_JOURNAL_MIXTURES, more, sizeof more, &err),
              &err);
    mist_journal_close(journal, false);
    fuzz_must(mist_journal_open(comm, output, 7, true, &journal, &err), &err);
    int n_after = take_all(journal, comm, rank, &after);
    FUZZ_CHECK(n_after == (n_before < MAX_RECORDS ? n_before + 1 : MAX_RECORDS),
               "%d records, then %d", n_before, n_after);
    FUZZ_CHECK(after.n >= before->n &&
                   (before->n == 0 || memcmp(after.bytes, before->bytes, before->n) == 0),
               "other records");
    free(after.bytes);
    mist_journal_close(journal, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    struct mist_comm comm = {0, 1};
    struct mist_journal *journal = NULL;
    struct mist_err err = {0};
    char output[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];

    sums_count = fuzz_take(&input) % 2 == 1;
    comm.n_ranks = 1 + (int32_t)(fuzz_take(&input) % 4);
    int32_t rank = (int32_t)fuzz_take(&input) % comm.n_ranks;
    if (input.n == 0)
        return 0;
    struct fuzz_buffer file = {0}, records = {0};
    fuzz_add(&file, input.bytes, input.n);
    if (!sums_count && file.n >= 24) { /* magic, fingerprint, number of ranks */
        uint64_t head[2] = {7, (uint64_t)comm.n_ranks};
        memcpy(file.bytes, "mistjrn1", 8);
        memcpy(file.bytes + 8, head, sizeof head);
    }
    fuzz_path(output, "out");
    mkdir(fuzz_path(path, "out.partial"), 0777);
    fuzz_write(fuzz_path(path, "out.partial/journal"),
               (struct fuzz_bytes){file.bytes, file.n});
    enum mist_status status = mist_journal_open(&comm, output, 7, true, &journal, &err);
    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, true);
    int n_records = status == MIST_OK ? take_all(journal, &comm, rank, &records) : 0;
    mist_journal_close(journal, false);
    if (status == MIST_OK)
        check_again(&comm, output, rank, &records, n_records);
    free(file.bytes);
    free(records.bytes);
    return 0;
}

/* ----------------------------------------------------------------------------- seeds */

static void seed(const char *name, bool counts, int32_t n_ranks)
{
    struct mist_comm comm = {0, n_ranks};
    struct mist_journal *journal;
    struct fuzz_buffer buffer = {0};
    struct mist_err err = {0};
    char output[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];
    char head[] = {counts ? '1' : '0', (char)('0' + (n_ranks - 1)), '1', '\0'};

    sums_count = counts;
    fuzz_path(output, "seed");
    fuzz_must(mist_journal_open(&comm, output, 7, false, &journal, &err), &err);
    for (int part = 0; part < MIST_N_JOURNAL_PARTS; part++)
        fuzz_must(
            mist_journal_add(journal, (enum mist_journal_part)part, "record", part, &err),
            &err);
    mist_journal_close(journal, false);
    fuzz_add_text(&buffer, head);
    fuzz_add_file(&buffer, fuzz_path(path, "seed.partial/journal"));
    fuzz_seed(name, &buffer);
}

void fuzz_write_seeds(void)
{
    seed("one", false, 1);
    seed("three", false, 3);
    seed("sums", true, 2);
}
