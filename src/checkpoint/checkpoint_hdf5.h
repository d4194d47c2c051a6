/* checkpoint_hdf5: common functions for libhdf5: opening files, iterating over datasets, describing a dataset, error
 * messages. Call them between hdf5_enter and hdf5_leave (base/files/hdf5.h). */
#pragma once

#include <hdf5.h>

#include "base/files/hdf5.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

#define CHECKPOINT_FORMAT "ddptrain checkpoint"
#define CHECKPOINT_FORMAT_VERSION 1

/* The name of files in memory: libhdf5 requires one that no file on disk can have. */
#define HDF5_IN_MEMORY "/dev/null/checkpoint"

/* A limit, because hard links can form cycles. */
#define HDF5_MAX_OBJECTS 1000000

/* A failure with libhdf5's reason appended; instead of STATUS_BUG it is STATUS_MEMORY if libhdf5 could not allocate
 * memory. Call it directly after the call that failed. */
status image_failure(enum status_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3), warn_unused_result));

/* Opens an image (size) in memory for reading, without a copy: the memory must outlive *file. */
status hdf5_open_image(const char *name, void *image, size_t size, hid_t *file);

/* Opens a file for reading, without locks (which fail on network file systems) and without plugins. */
status hdf5_open_file(const char *path, hid_t *file);

/* The positive format_version; 0 when the file has no attribute "format" of a checkpoint, or no version that is one
 * positive integer. */
int64_t hdf5_checkpoint_version(hid_t file);

/* Type, shape and storage of a dataset. */
struct hdf5_shape {
    bool is_known;        /* one of the four entry types */
    enum entry_type type; /* when known */
    int dims;
    hsize_t shape[H5S_MAX_RANK];
    size_t item_size; /* bytes; ENTRY_TEXT: of the whole text */
    char type_name[32];
    bool is_contiguous; /* stored contiguously, at [offset] in the file */
    uint64_t offset;    /* valid when contiguous and not empty */
};
/* [name]: of the file, for messages. */
status hdf5_describe(hid_t dataset, const char *name, struct hdf5_shape *shape);
/* The same of a dataset that was found without libhdf5. */
struct hdf5_shape hdf5_describe_plain(const struct hdf5_plain *dataset);
/* The number of values (1 for a scalar), and their size in bytes. UINT64_MAX on overflow. */
uint64_t hdf5_values(const struct hdf5_shape *shape);
uint64_t hdf5_bytes(const struct hdf5_shape *shape);

const char *entry_type_name(enum entry_type type);

/* "(64, 13)", "scalar" */
void text_add_shape(struct text *text, int dims, const hsize_t *shape);

/* Calls [visit] with every dataset and its path from the root without the leading '/', in
 * order of names. [name]: of the file, for messages. Soft and external links are not followed; more than
 * HDF5_MAX_OBJECTS objects are a failure. A failure of [visit] ends the iteration. */
typedef status hdf5_visitor(void *context, const char *path, hid_t dataset);
status hdf5_walk(hid_t file, const char *name, hdf5_visitor *visit, void *context);

/* Parses all metadata of a file, for hdf5_try_in_child. */
status hdf5_parse_all(hid_t file, const char *name);
