/* checkpoint_hdf5: what the files of checkpoint share of libhdf5: opening, walking a tree, describing a dataset, and
 * failures as sentences. libhdf5 prints its own error stack unless told otherwise, so every call stands between
 * hdf5_begin and hdf5_end. */
#ifndef TRAIN_CHECKPOINT_HDF5_H
#define TRAIN_CHECKPOINT_HDF5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "train/checkpoint.h"

#define CHECKPOINT_FORMAT "ddptrain checkpoint"
#define CHECKPOINT_FORMAT_VERSION 1

/* The name of files in memory. libhdf5 wants one that no file on disk has, and nothing can be inside /dev/null. */
#define HDF5_IN_MEMORY "/dev/null/checkpoint"

/* This thread's error printer, switched off meanwhile. */
struct hdf5_silence {
    H5E_auto2_t print;
    void *data;
};
/* STATUS_USAGE when the library is not thread-safe: the trainer and the loader use it at the same time. */
status hdf5_begin(struct hdf5_silence *silence);
void hdf5_end(const struct hdf5_silence *silence);

/* A failure with the library's own reason behind the sentence. Call it right after the call that failed. */
status image_failure(enum status_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3), warn_unused_result));

/* Opens an image (size) in memory for reading, without a copy: the memory must outlive *file. */
status hdf5_open_image(const char *name, void *image, size_t size, hid_t *file);

/* Opens a file for reading, without locks (which network file systems refuse) and without plugins. */
status hdf5_open_file(const char *path, hid_t *file);

/* 0: the file has no attribute "format" of a checkpoint; else its format_version. */
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
status hdf5_describe(hid_t dataset, struct hdf5_shape *shape);
uint64_t hdf5_values(const struct hdf5_shape *shape); /* product of the dimensions; 1 for a scalar */

/* The type in the file: little-endian IEEE or two's complement; text as UTF-8 of exactly [text_size] bytes. H5Tclose
 * it. */
hid_t hdf5_file_type(enum entry_type type, size_t text_size);

const char *entry_type_name(enum entry_type type);

/* "(64, 13)", "scalar" */
void text_add_shape(struct text *text, int dims, const hsize_t *shape);

/* Calls [visit] with every dataset under [group] ("/" or "model"), its path from the root without the leading '/', in
 * order of names. Links to elsewhere are not followed. A failure of [visit] ends the walk. */
typedef status hdf5_visitor(void *context, const char *path, hid_t dataset);
status hdf5_walk(hid_t file, const char *group, hdf5_visitor *visit, void *context);

#endif
