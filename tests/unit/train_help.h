/* Whole training runs of a small model, for tests of what they say. */
#ifndef MIST_TESTS_UNIT_TRAIN_HELP_H
#define MIST_TESTS_UNIT_TRAIN_HELP_H

#include "exec/train/train.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny_models.h"

enum { SEQ = 16 };

/* One stage of dp ranks, one sample to each micro-batch. */
static inline struct mist_plan small_plan(int32_t n_layers, int32_t n_micro_batches,
                                          int32_t dp)
{
    return (struct mist_plan){
        .model = mist_small_model(MIST_FAMILY_GPT, n_layers, 257),
        .job = {.global_batch = n_micro_batches * dp, .seq_len = SEQ},
        .n_micro_batches = n_micro_batches,
        .n_stages = 1,
        .stages = {mist_tiny_stage(n_layers, 1, dp, 1)},
    };
}

/* n_steps of the job, on the texts that come with Mist; what the job does not say is
 * usual. The report is the caller's to finish. */
static inline enum mist_status run_steps(struct mist_comm *ranks,
                                         struct mist_train_job *job, int64_t n_steps,
                                         const struct mist_train_log *log,
                                         struct mist_train_report *report,
                                         struct mist_err *why)
{
    struct mist_data *data = NULL;
    char **paths = NULL;
    int32_t n = 0;

    must(mist_data_default_paths(&paths, &n, why), why);
    must(mist_data_open((const char *const *)paths, n, &data, why), why);
    job->data = data;
    job->settings = (struct mist_train_settings){.seed = 1,
                                                 .n_iterations = n_steps,
                                                 .lr = 1e-3,
                                                 .beta1 = 0.9,
                                                 .beta2 = 0.95,
                                                 .epsilon = 1e-8};
    job->deadline_s = 60;
    enum mist_status status = mist_train_run(ranks, job, log, report, why);
    mist_data_close(data);
    mist_data_free_paths(paths, n);
    return status;
}

#endif
