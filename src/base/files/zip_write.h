/* zip_write: writes a zip archive of stored members whose contents start at multiples of 64 bytes, as PyTorch's
 * torch.save and memory-mapped readers expect (APPNOTE 6.3.10, with zip64 where a number needs it). The members have no
 * times, so equal contents give equal files. */
#ifndef BASE_ZIP_WRITE_H
#define BASE_ZIP_WRITE_H

#include <stddef.h>

#include "base/status.h"

struct zip_new_member {
    const char *name;
    const void *bytes; /* (size), not owned */
    size_t size;
};

/* Writes [path] with io_replace. */
status zip_write(const char *path, const struct zip_new_member *members, size_t count);

#endif
