/* In place of the emulator, for tests that can do without it: it was not built. */
#include "tests/emulation/backend.h"

const struct mist_backend *mist_emulated_backend(void)
{
    return NULL;
}

int mist_emulated_n_replays(void)
{
    return 0;
}
