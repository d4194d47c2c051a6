/* sealed: a file with its own checksum. The image (any bytes; for a checkpoint an HDF5 file) is followed by a trailer
 * with the length and a SHA-256 of the image and a SHA-256 of the trailer's own fields. Every flipped, lost or added
 * byte is detected before the image is used. libhdf5, h5py and h5dump ignore the trailer at the end of an HDF5 file.
 *
 * An image of more than SEALED_CHUNK bytes is hashed in chunks of that size, the last of which may be shorter, by
 * several threads while they write or read them; its seal has the SHA-256 of the chunks' SHA-256, 32 bytes each, in
 * order. This is version 2 of the trailer. A smaller image has version 1, as any image that an older ddptrain has
 * sealed: the SHA-256 of its bytes.
 *
 * The trailer, 128 bytes, numbers little-endian:
 *      0  "ddptrain sealed\n"
 *     16  u32 version of the trailer, 1 or 2
 *     20  u32 size of the trailer, 128
 *     24  u64 size of the image
 *     32  SHA-256 of the image, or of the hashes of its chunks
 *     64  u64 order: sort key of the owner's files (for a checkpoint the step)
 *     72  u64 bytes of a chunk in version 2, SEALED_CHUNK; else 0
 *     80  16 zero bytes
 *     96  SHA-256 of the preceding 96 bytes */
#pragma once

#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/status.h"

#define SEALED_TRAILER_SIZE 128
#define SEALED_CHUNK ((uint64_t)4 << 20)
#define SEALED_MAX_THREADS 4 /* that hash one file, or as many as the process has processors */

struct seal {
    uint64_t image_size, order;
    bool is_chunked;             /* version 2 */
    uint8_t sha256[DIGEST_SIZE]; /* of the image, or of the hashes of its chunks */
};

/* Writes [image] (size) and its seal to [path] as io_replace does; what is read back is compared by its hash. */
status sealed_write(const char *path, const void *image, size_t size, uint64_t order);

/* The same for an image in [count] parts. */
status sealed_write_parts(const char *path, const struct io_part *parts, size_t count, uint64_t order);

/* Reads and verifies [path]. The caller owns *image (seal->image_size) and frees it with buffer_free. STATUS_DATA: the
 * file is damaged; STATUS_IO: it cannot be read. */
status sealed_read(const char *path, void **image, struct seal *seal);

/* Reads and verifies only the trailer, not the image. */
status sealed_read_seal(const char *path, struct seal *seal);

/* Verifies a file of any size as sealed_read does, in little memory. */
status sealed_verify(const char *path, struct seal *seal);

/* Whether the file ends with a trailer, valid or damaged. */
status sealed_has_trailer(const char *path, bool *has_trailer);

/* Makes the trailer of [image] (size). */
void sealed_trailer(const void *image, size_t size, uint64_t order, uint8_t trailer[SEALED_TRAILER_SIZE]);
/* Verifies a whole sealed file in memory, bytes (size), as sealed_read does; [name] is the file name in messages. */
status sealed_check(const char *name, const void *bytes, size_t size, struct seal *seal);
