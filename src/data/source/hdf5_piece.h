/* hdf5_piece: the rows of an HDF5 dataset that is one piece of the file: neither chunks nor filters. They are read with
 * pread, as those of .npy files, because libhdf5 takes longer for a row than the disk, and only one thread at a time.
 */
#ifndef DATA_HDF5_PIECE_H
#define DATA_HDF5_PIECE_H

#include "data/source/hdf5_check.h"
#include "data/source/npy_header.h"

struct hdf5_piece {
    const char *path; /* not owned, as [fd] */
    int fd;
    uint64_t start;       /* of the values in the file */
    struct npy_header of; /* type, byte order and values of a row; type NULL: read the dataset with libhdf5 */
};

/* Sets [out] for an open dataset that hdf5_check accepted. Call it between hdf5_enter and hdf5_leave. */
void hdf5_piece_find(hid_t dataset, const struct hdf5_rows *rows, int fd, const char *path, struct hdf5_piece *out);

/* The type has the name [type] ("float32") and the byte order of this machine. */
bool hdf5_piece_is(const struct hdf5_piece *piece, const char *type);

/* Reads rows first .. first + count - 1: as doubles, or their bytes as they are in the file. STATUS_DATA when the file
 * has become shorter. Thread-safe. */
status hdf5_piece_read(const struct hdf5_piece *piece, size_t first, size_t count, double *out);
status hdf5_piece_read_raw(const struct hdf5_piece *piece, size_t first, size_t count, void *out);

/* Tells the operating system that the row will be read soon. */
void hdf5_piece_will_read(const struct hdf5_piece *piece, size_t row);

#endif
