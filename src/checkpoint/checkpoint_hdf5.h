/* checkpoint_hdf5: what the files of checkpoint share of libhdf5: opening, walking a tree, describing a dataset, and
 * failures as sentences. Every call is between hdf5_enter and hdf5_leave (base/hdf5.h). */
#ifndef CHECKPOINT_HDF5_H
#define CHECKPOINT_HDF5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hdf5.h"
#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"

#define CHECKPOINT_FORMAT "ddptrain checkpoint"
#define CHECKPOINT_FORMAT_VERSION 1

/* The name of files in memory. libhdf5 wants one that no file on disk has, and nothing can be inside /dev/null. */
#define HDF5_IN_MEMORY "/dev/null/checkpoint"

/* Hard links can make circles, in which every object is met again and again. */
#define HDF5_MAX_OBJECTS 1000000

/* A failure with the library's own reason behind the sentence. Call it right after the call that failed. */
status image_failure(enum status_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3), warn_unused_result));

/* Opens an image (size) in memory for reading, without a copy: the memory must outlive *file. */
status hdf5_open_image(const char *name, void *image, size_t size, hid_t *file);

/* Opens a file for reading, without locks (which network file systems refuse) and without plugins. */
status hdf5_open_file(const char *path, hid_t *file);

/* The positive format_version; 0 when the file has no attribute "format" of a checkpoint, or no version that is one
 * positive integer. */
int64_t hdf5_checkpoint_version(hid_t file);

/* What a dataset is. */
struct hdf5_shape {
    bool is_known;        /* one of the four entry types */
    enum entry_type type; /* when known */
    int dims;
    hsize_t shape[H5S_MAX_RANK];
    size_t item_size; /* bytes; of ENTRY_TEXT: of the whole text */
    char type_name[32];
    bool is_contiguous; /* stored as one piece, at [offset] in the file */
    uint64_t offset;    /* meaningful when contiguous and not empty */
};
/* [name] of the file, for the failure. */
status hdf5_describe(hid_t dataset, const char *name, struct hdf5_shape *shape);
/* The product of the dimensions, 1 for a scalar; and bytes of all values. UINT64_MAX: more than can be counted. */
uint64_t hdf5_values(const struct hdf5_shape *shape);
uint64_t hdf5_bytes(const struct hdf5_shape *shape);

/* Opens the dataset at [path]; below 0 when there is none or a link to elsewhere leads to it. */
hid_t hdf5_open_dataset(hid_t file, const char *path);

/* The type in the file: little-endian IEEE or two's complement; text as UTF-8 of exactly [text_size] bytes. H5Tclose
 * it. */
hid_t hdf5_file_type(enum entry_type type, size_t text_size);

const char *entry_type_name(enum entry_type type);

/* "(64, 13)", "scalar" */
void text_add_shape(struct text *text, int dims, const hsize_t *shape);

/* Calls [visit] with every dataset under [group] ("/" or "model"), its path from the root without the leading '/', in
 * order of names. [name] of the file is for failures. Links to elsewhere are not followed, and more than
 * HDF5_MAX_OBJECTS objects are a failure. A failure of [visit] ends the walk. */
typedef status hdf5_visitor(void *context, const char *path, hid_t dataset);
status hdf5_walk(hid_t file, const char *name, const char *group, hdf5_visitor *visit, void *context);

/* Looks at all of a file, as reading or printing it would, for hdf5_try_in_child. */
status hdf5_look_at_all(hid_t file, const char *name);

#endif
