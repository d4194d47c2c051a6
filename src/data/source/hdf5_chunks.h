/* hdf5_chunks: whether compressed chunks of an HDF5 dataset decode to the size of a chunk. libhdf5 1.10 takes as much
 * memory as the compressed data asks for, and reads behind a chunk that decodes to less. Here a chunk is expanded once
 * before libhdf5 does it, a piece at a time, and only its size is kept. */
#ifndef DATA_HDF5_CHUNKS_H
#define DATA_HDF5_CHUNKS_H

#include <hdf5.h>

#include "base/status.h"
#include "data/source/hdf5_check.h"

struct hdf5_chunks;

/* For the open [dataset], which hdf5_check has accepted with [shape]; all but [shape] is borrowed. *out is NULL where
 * nothing is compressed. STATUS_DATA: filters in an order that cannot be followed. Between hdf5_enter and hdf5_leave,
 * as all calls. */
status hdf5_chunks_open(hid_t dataset, const char *path, const char *name, const struct hdf5_rows *shape,
                        struct hdf5_chunks **out);
void hdf5_chunks_close(struct hdf5_chunks *chunks); /* takes NULL */

/* Before rows [first] to [first] + [count] - 1 are read; each chunk is expanded at the first call that needs it. Takes
 * NULL. */
status hdf5_chunks_check(struct hdf5_chunks *chunks, size_t first, size_t count);

#endif
