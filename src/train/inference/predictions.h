/* predictions: writes a table of outputs as a CSV or HDF5 file, atomically. */
#ifndef TRAIN_PREDICTIONS_H
#define TRAIN_PREDICTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* [path] must end in .csv, .h5 or .hdf5; else STATUS_USAGE. */
status predictions_check_name(const char *path);

/* outputs (rows, size); row_of (rows): their row numbers in the dataset, from 0, written as `row`. [has_classes]: the
 * index of each row's largest output is also written, as `prediction`. CSV numbers have all digits of a float32. */
status predictions_write(const char *path, const int64_t *row_of, const float *outputs, size_t rows, size_t size,
                         bool has_classes);

#endif
