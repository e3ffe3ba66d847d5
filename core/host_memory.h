/*
 * How much memory this process may still take, so that work that needs more is refused
 * beforehand instead of ending in the middle.
 */
#ifndef MIST_CORE_HOST_MEMORY_H
#define MIST_CORE_HOST_MEMORY_H

#include <stdint.h>

/*
 * Bytes: the least of what the machine has available (swap included), what the control
 * groups of the process leave (a batch system's limit; what files are cached counts as
 * free) and what its address space may grow by (ulimit -v). INT64_MAX where nothing
 * bounds it or nothing is known.
 */
int64_t mist_host_memory_available_bytes(void);

#endif
