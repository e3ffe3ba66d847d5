/*
 * The questions that a validation asks (validate.h): the whole one, then others with a bit
 * less freedom, which follow from what was looked at for one, and so on from there.
 */
#ifndef MIST_TUNE_QUESTIONS_H
#define MIST_TUNE_QUESTIONS_H

#include "tune/validate.h"

/* What is asked for. */
enum mist_question_sort {
    MIST_QUESTION_1F1B,
    MIST_QUESTION_CHUNKS, /* what is fast with small gaps */
    MIST_QUESTION_HOST,   /* where a stage may take what others leave of a node's host */
    MIST_N_QUESTION_SORTS
};

/* The numbers of micro-batches and of stages that plans have which a question found: all that
 * take no longer than that, by the closed form. */
struct mist_question_found {
    double within_s;
    size_t n;
    struct mist_question_pair {
        int32_t n_micro_batches, n_stages;
    } * of; /* [n], sorted; borrowed */
};

/* A search with no more freedom than the first. */
struct mist_question {
    enum mist_question_sort sort;
    unsigned uses; /* it may: groups of knobs, the four ratios, eighths of them */
    int64_t limit_bytes;
    double least_s; /* no answer is faster by the closed form */
    double hope_s; /* the best answer to the question that this follows from, by passes */
    /* The question of the same sort that this follows from; SIZE_MAX: none. */
    size_t i_from;
    bool is_asked;
    /* what was learnt by asking */
    struct mist_question_found found;
    double answer_s;    /* the best answer, by passes */
    unsigned needs;     /* what candidates that were looked at can't do without */
    int64_t peak_bytes; /* of the best of them; 0: there were none */
};

struct mist_questions {
    struct mist_question *all; /* owned: asked and still to ask, the whole one first */
    size_t n, capacity;
};

/* Begins with the whole question. all is to be freed. MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_questions_init(struct mist_questions *questions,
                    const struct mist_validate_config *config, struct mist_err *err);

/* Whether it may use all that the whole one may. */
bool mist_question_is_whole(const struct mist_questions *questions,
                            const struct mist_question *of);

/* The part of the space that a question is about. */
MIST_MUST_CHECK enum mist_status mist_question_part(const struct mist_space *space,
                                                    const struct mist_question *of,
                                                    struct mist_space *out,
                                                    struct mist_err *err);

/* Leaves those cases of the part alone that may have plans of at most cutoff_s by what the
 * questions have found that question i follows from. */
void mist_questions_narrow(const struct mist_questions *questions, size_t i,
                           double cutoff_s, struct mist_space *part);

/* Notes what was found; to be allocated in arena. All within within_s, with no less freedom
 * than any that follows. MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_question_note_found(struct mist_question *of,
                         const struct mist_search_result *result, double within_s,
                         struct mist_arena *arena, struct mist_err *err);

/* Notes what the n candidates that are looked at need; of memory the best of them. */
void mist_question_note(struct mist_question *of,
                        const struct mist_search_candidate *candidates,
                        const size_t *order, size_t n);

/*
 * Adds the questions that follow from question i, which was asked, unless they are there.
 * With less freedom, whose answer may be another one than what was looked at for it: without
 * a group of knobs or a ratio that some of that needs, and with less memory than the best of
 * it needs. And with more: of what schedules with smaller gaps may make the best. so_far: what
 * was looked at. MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_questions_follow(struct mist_questions *questions, size_t i,
                      const struct mist_validate_config *config,
                      const struct mist_validate_result *so_far, struct mist_err *err);

#endif
