/* sealed: a file that proves itself. After the image (any bytes; for a checkpoint an HDF5 file) stands a trailer with
 * the image's length and SHA-256 and a SHA-256 of the trailer's own fields, so every flipped bit and every lost or
 * added byte is noticed before the image is looked at. The proof travels with the file (cp, rsync), and because it
 * stands behind the image, libhdf5, h5py and h5dump open a sealed HDF5 file as if it was not there.
 *
 * The trailer, 128 bytes, numbers little-endian:
 *      0  "ddptrain sealed\n"
 *     16  u32 version of the trailer, 1
 *     20  u32 size of the trailer, 128
 *     24  u64 size of the image
 *     32  SHA-256 of the image
 *     64  u64 order: what the owner sorts its files by without reading them (a checkpoint: its step)
 *     72  24 zero bytes
 *     96  SHA-256 of the 96 bytes before */
#ifndef BASE_SEALED_H
#define BASE_SEALED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "base/io.h"
#include "base/status.h"

#define SEALED_TRAILER_SIZE 128

struct seal {
    uint64_t image_size, order;
    uint8_t sha256[DIGEST_SIZE]; /* of the image */
};

/* Writes [image] (size) and its seal to [path] by io_replace. */
status sealed_write(const char *path, const void *image, size_t size, uint64_t order);

/* The same of an image in [count] pieces, one after the other; the array has room for one more, which it uses. */
status sealed_write_parts(const char *path, struct io_part *parts, size_t count, uint64_t order);

/* Reads and verifies all of [path]: *image (seal->image_size) is the caller's (buffer_free). STATUS_DATA naming the
 * file and what is wrong; STATUS_IO when it cannot be read. */
status sealed_read(const char *path, void **image, struct seal *seal);

/* Only the trailer, verified by itself: cheap, but says nothing about the image. */
status sealed_read_seal(const char *path, struct seal *seal);

/* As sealed_read, but keeps nothing: a file of any size in little memory. */
status sealed_verify(const char *path, struct seal *seal);

/* Whether the file ends with a trailer of this kind, good or damaged. */
status sealed_is_marked(const char *path, bool *is_marked);

/* The trailer that seals [image] (size), and the same proof as sealed_read's for bytes (size) in memory; [name] stands
 * for the file in messages. */
void sealed_trailer(const void *image, size_t size, uint64_t order, uint8_t trailer[SEALED_TRAILER_SIZE]);
status sealed_check(const char *name, const void *bytes, size_t size, struct seal *seal);

#endif
