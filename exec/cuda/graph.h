/* What the streams of a device get, kept and launched at once; for the table in device.c.
 * See mist_device_begin_capture(). */
#ifndef MIST_EXEC_CUDA_GRAPH_H
#define MIST_EXEC_CUDA_GRAPH_H

#include "exec/device/device.h"

void mist_cuda_graph_begin(struct mist_device *base);
void mist_cuda_graph_end(struct mist_device *base);
void mist_cuda_graph_replay(struct mist_device *base);
void mist_cuda_graph_drop(struct mist_device *base);

/* The end of the device: frees what the others left. */
void mist_cuda_graph_close(struct mist_device *base);

#endif
