/* hdf5_check: checks that the values of an HDF5 dataset can be read safely. libhdf5 trusts the metadata of a file; a
 * damaged or crafted file can make it crash, allocate all memory, or read other files. */
#ifndef DATA_HDF5_CHECK_H
#define DATA_HDF5_CHECK_H

#include <hdf5.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "data/source/source.h"

struct hdf5_rows {
    int dims; /* with the rows */
    hsize_t shape[MAX_DIMS + 1];
    size_t size;     /* values of one row */
    bool is_float32; /* each value is exact in float32 */
    bool is_bytes;   /* each value is an unsigned integer of one byte */
};

/* Checks type, shape, filters, layout and storage of the open [dataset], [name] in the file [path] of [file_bytes].
 * STATUS_DATA with the first error. */
status hdf5_check(hid_t dataset, const char *path, const char *name, uint64_t file_bytes, struct hdf5_rows *shape);

/* The type of the values of [dataset], for H5Tclose; of booleans, as h5py writes them (an enumeration of FALSE and
 * TRUE), that of their numbers, 0 and 1. Negative on failure. */
hid_t hdf5_value_type(hid_t dataset);

/* STATUS_DATA, "<path>: <sentence>: <libhdf5's error>", for the call that just failed in this thread; STATUS_MEMORY
 * where libhdf5 had too little memory. */
status hdf5_failure(const char *path, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
