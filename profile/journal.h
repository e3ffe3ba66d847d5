/*
 * The journal of a session: what has been measured so far, in a folder beside the one
 * that the trace set will be in (DIR.partial), so that a session that was stopped can go
 * on where it was.
 *
 * A record holds, for every rank, the bytes that the rank gave; it is written in one
 * piece and ends with a checksum, so that one cut off half-way is seen and dropped. The
 * file begins with the fingerprint of what is measured. Records are only read back by the
 * same program on the same machine: they hold numbers as they lie in memory.
 */
#ifndef MIST_PROFILE_JOURNAL_H
#define MIST_PROFILE_JOURNAL_H

#include "core/status.h"
#include "exec/comm/comm.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* What a record is of. Operators, links and mixtures take turns, with probes between. */
enum mist_journal_part {
    MIST_JOURNAL_OPS,      /* a round of operators */
    MIST_JOURNAL_TRIALS,   /* what one repetition of each message takes */
    MIST_JOURNAL_LINKS,    /* repetitions of one message */
    MIST_JOURNAL_AMOUNTS,  /* how much work the channels do in mixtures */
    MIST_JOURNAL_MIXTURES, /* a round of mixtures */
    MIST_JOURNAL_PROBES,   /* probes of one time */
    MIST_JOURNAL_CHECKS,   /* a plan that was run */
    MIST_N_JOURNAL_PARTS
};

struct mist_journal;

/* Whether output (a folder of a trace set) has a journal beside it. */
bool mist_journal_exists(const char *output);

/*
 * All ranks call it. Begins a journal, or with resumes goes on with the one there is (if
 * any). *out is owned by the caller. MIST_OK; MIST_ERR_INPUT: the journal is of something
 * else; MIST_ERR_IO; MIST_ERR_MEMORY; MIST_ERR_RUN. The same result on all ranks.
 */
MIST_MUST_CHECK enum mist_status
mist_journal_open(struct mist_comm *comm, const char *output, uint64_t fingerprint,
                  bool resumes, struct mist_journal **out, struct mist_err *err);

/* Closes it; is_done (on all ranks): it has served its purpose and goes. NULL allowed. */
void mist_journal_close(struct mist_journal *journal, bool is_done);

/* A signal that ends the session, on all ranks, behind the next record that is added:
 * then mist_journal_add() gives MIST_ERR_RUN. stop_signal: not 0 when it has come;
 * borrowed. */
void mist_journal_set_stop(struct mist_journal *journal, const atomic_int *stop_signal);

/* The signal that ended it, 0: none. */
int mist_journal_stopped(const struct mist_journal *journal);

/* What is said of a session that a signal ended. Returns MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status mist_journal_describe_stop(int stop_signal,
                                                            struct mist_err *err);

/* Bytes that this rank gave to the next record, if that is of this part, else NULL (also
 * for a journal NULL); they stay until the journal is closed. */
const char *mist_journal_take(struct mist_journal *journal, enum mist_journal_part part,
                              int64_t *n_bytes);

/* All ranks call it: adds a record. journal NULL: nothing happens. MIST_OK, MIST_ERR_IO,
 * MIST_ERR_MEMORY or MIST_ERR_RUN, on all ranks alike. */
MIST_MUST_CHECK enum mist_status mist_journal_add(struct mist_journal *journal,
                                                  enum mist_journal_part part,
                                                  const void *bytes, int64_t n_bytes,
                                                  struct mist_err *err);

#endif
