/* zip: reads and writes zip archives (APPNOTE 6.3.10, with zip64). Read are the members that are stored or deflated.
 * The archive is not trusted: every offset and size is checked against the file. */
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

struct zip_member {
    const char *name;
    bool is_deflated;      /* else stored */
    uint32_t checksum;     /* CRC-32 of the content */
    uint64_t packed, size; /* bytes in the archive, of the content; equal when stored */
    uint64_t start;        /* of the packed bytes in the file; before zip_locate of the header before them */
    unsigned mode;         /* type and permissions of POSIX; 0: not stored */
};

struct zip {
    const char *path; /* of the open file [fd], neither owned */
    int fd;
    uint64_t bytes;             /* of the file */
    struct zip_member *members; /* (count), in the order of the directory */
    size_t count;
};

/* Reads the directory into [arena]. STATUS_DATA for a file that is damaged, encrypted or has members of another kind.
 */
status zip_open(int fd, const char *path, uint64_t bytes, struct arena *arena, struct zip *out);

/* The same without a look at the members themselves, of which an archive of images may have millions: their names are
 * as they are stored, not made printable, and zip_locate is called before one is read. */
status zip_list(int fd, const char *path, uint64_t bytes, struct arena *arena, struct zip *out);
status zip_locate(const struct zip *zip, struct zip_member *member);

/* NULL: there is none of this name. */
const struct zip_member *zip_find(const struct zip *zip, const char *name);

/* The first bytes of a member's content: up to [size], *got of them. */
status zip_read_start(const struct zip *zip, const struct zip_member *member, void *out, size_t size, size_t *got);

/* Checks the checksum of a member against its content [bytes] (member->size). OK for a stored member whose checksum is
 * 0, as torch.save writes it after torch.serialization.set_crc32_options(False). */
status zip_check(const struct zip *zip, const struct zip_member *member, const uint8_t *bytes);

/* The whole content, with a check of its checksum: out (member->size). */
status zip_read_to(const struct zip *zip, const struct zip_member *member, uint8_t *out);
/* The same to *out, to be freed with buffer_free. */
status zip_read_all(const struct zip *zip, const struct zip_member *member, uint8_t **out);

struct zip_new_member {
    const char *name;
    const void *bytes; /* (size), not owned */
    size_t size;
};

/* Writes [path] with io_replace: stored members whose contents start at multiples of 64 bytes, as PyTorch's torch.save
 * and memory-mapped readers expect. The members have no times, so equal contents give equal files. */
status zip_write(const char *path, const struct zip_new_member *members, size_t count);
