/* hdf5_check: whether the values of an HDF5 dataset can be read. libhdf5 trusts what a file says of itself; a
 * damaged or hostile one can make it crash, take all memory, or read other files. */
#ifndef DATA_HDF5_CHECK_H
#define DATA_HDF5_CHECK_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"

struct hdf5_shape {
    int dims; /* with the rows */
    hsize_t shape[DATA_MAX_DIMS + 1];
    size_t size;     /* values of one row */
    bool is_float32; /* each value is exact in float32 */
    bool is_bytes;   /* each value is an unsigned integer of one byte */
};

/* Checks type, shape, filters, layout and storage of the open [dataset] called [name] in the file [path] of
 * [file_bytes], before a value of it is read. STATUS_DATA says what is wrong. */
status hdf5_check(hid_t dataset, const char *path, const char *name, uint64_t file_bytes, struct hdf5_shape *shape);

/* "<path>: <sentence>: <what libhdf5 says>" of the call that just failed in this thread. */
status hdf5_failure(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
