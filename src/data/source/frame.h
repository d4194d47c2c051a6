/* frame: files whose columns have names and types, such as netCDF, as the records of a table, block by block. Columns,
 * missing values and labels are those of a CSV file (csv_source.h); several files are one table. */
#pragma once

#include "base/files/hdf5.h"
#include "data/source/csv_source.h"
#include "data/source/frame_reader.h"

extern const struct frame_reader netcdf_reader;

/* Checks that the values of an open dataset of HDF5, whose type is the caller's business, can be read and are all in
 * the file; a value has [value_bytes] there. STATUS_DATA if not. Between hdf5_enter and hdf5_leave. */
status hdf5_check_stored(hid_t dataset, const char *path, const char *name, size_t value_bytes);

/* Whether a reader of frames reads the files of [format]; the others take only such a format. */
bool frame_is_format(const struct dataset_format *format);

/* For a format: its records, and inspect. STATUS_DATA: there is no such file; STATUS_USAGE: the reader of Parquet and
 * Arrow is a module, which is not there. */
extern const struct csv_input frame_input;
status frame_inspect(const struct dataset_format *format, const char *path, struct text *out);
