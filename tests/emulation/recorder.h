/* Faults of the recorder's stand-in. */
#ifndef MIST_TESTS_EMULATION_RECORDER_H
#define MIST_TESTS_EMULATION_RECORDER_H

#include "exec/device/device.h"

/* The next n collects have lost what was recorded. */
void mist_emulated_recorder_lose(enum mist_span_loss loss, int n);

/* What was recorded and told so far. */
struct mist_emulated_recorded {
    long n_begins; /* of spans */
    long n_works;  /* that a collect handed out */
    double busy_s; /* sum of their times */
};
extern struct mist_emulated_recorded mist_emulated_recorded;

#endif
