/*
 * A driver without a device: libcuda.so.1 for tests on machines that have no GPU.
 *
 * cuDNN compiles a plan's kernels with NVRTC, which needs no device, and then hands them
 * to the driver. This one takes them and forgets them, so that a plan for a described
 * device is built to the end: whether cuDNN supports a shape and with how much workspace
 * can be tested anywhere. There is no device (cuInit fails), so nothing can be launched.
 *
 * libcuda_functions.h is generated when this is built, from the symbols of the toolkit's
 * stub: one line MIST_DRIVER_FUNCTION(cuInit) for each. All are the same function but for
 * the name, with as many arguments as the answers below need; where the real one has
 * more, the calling convention ignores them.
 */
#include <string.h>

enum { SUCCESS = 0, NO_DEVICE = 100, UNKNOWN = 999, DRIVER_VERSION = 13000 };

static int answer(const char *name, void *first, void *second)
{
    static char thing; /* what handles point to; nobody looks */

    if (strcmp(name, "cuDriverGetVersion") == 0) {
        int version = DRIVER_VERSION;
        memcpy(first, &version, sizeof version);
        return SUCCESS;
    }
    if (strcmp(name, "cuLibraryLoadData") == 0 ||
        strcmp(name, "cuLibraryGetKernel") == 0) {
        void *handle = &thing;
        memcpy(first, &handle, sizeof handle);
        return SUCCESS;
    }
    if (strcmp(name, "cuGetErrorString") == 0 || strcmp(name, "cuGetErrorName") == 0) {
        const char *text = "no device";
        memcpy(second, &text, sizeof text);
        return SUCCESS;
    }
    if (strcmp(name, "cuLibraryUnload") == 0)
        return SUCCESS;
    return strcmp(name, "cuInit") == 0 || strcmp(name, "cuDeviceGetCount") == 0
               ? NO_DEVICE
               : UNKNOWN;
}

#define MIST_DRIVER_FUNCTION(name)                                                       \
    int name(void *first, void *second);                                                 \
    int name(void *first, void *second)                                                  \
    {                                                                                    \
        return answer(#name, first, second);                                             \
    }

#include "libcuda_functions.h"
