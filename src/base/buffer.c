/* Blocks come from calloc, so that fresh zero pages of the kernel are not written a second time and are first touched
 * by their user. A block larger than the machine's memory is rejected at once, because Linux would overcommit and
 * kill the process later. The pointer before a block is the address for free. */
#include "base/buffer.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define HUGE_PAGE (2 * MIB)

#define SMALL (16 * MIB) /* of which every machine has more */

static size_t machine_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (size_t)pages * (size_t)page : SIZE_MAX;
}

status buffer_new(size_t bytes, const char *what, void *out) {
    memset(out, 0, sizeof(void *));
    size_t machine = bytes > SMALL ? machine_bytes() : SIZE_MAX;
    if (bytes > machine)
        return status_memory("%s: %zu MiB are needed, and this machine has %zu MiB", what, bytes / MIB, machine / MIB);
    bool is_large = bytes >= 2 * HUGE_PAGE;
    size_t alignment = is_large ? HUGE_PAGE : BUFFER_ALIGNMENT;
    char *block = calloc(1, sizeof(void *) + alignment - 1 + bytes);
    if (!block)
        return status_memory("%s: %zu MiB are needed, but the system cannot allocate them", what,
                             (bytes + MIB - 1) / MIB);
    char *start = block + sizeof(void *) + alignment - 1;
    start -= (uintptr_t)start % alignment;
    memcpy(start - sizeof(void *), &block, sizeof block);
    if (is_large) madvise(start, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a failure is ignored */
    memcpy(out, &start, sizeof start);
    return OK;
}

void buffer_discard(void *buffer, size_t bytes) {
    long page = sysconf(_SC_PAGESIZE);
    uintptr_t size = page > 0 ? (uintptr_t)page : HUGE_PAGE, first = ((uintptr_t)buffer + size - 1) / size * size;
    uintptr_t end = ((uintptr_t)buffer + bytes) / size * size;
    if (end > first) madvise((void *)first, end - first, MADV_DONTNEED); /* a failure is ignored */
}

void buffer_free(void *buffer) {
    if (!buffer) return;
    char *block;
    memcpy(&block, (char *)buffer - sizeof(void *), sizeof block);
    free(block);
}

status array_grow(void *items, size_t *capacity, size_t count, size_t size, const char *what) {
    void *old, *larger;
    size_t wanted = 2 * *capacity + 16 > count ? 2 * *capacity + 16 : count;
    if (count <= *capacity) return OK;
    memcpy(&old, items, sizeof old);
    larger = wanted > PTRDIFF_MAX / size ? NULL : realloc(old, wanted * size);
    if (!larger) return status_memory("%s", what);
    memcpy(items, &larger, sizeof larger);
    *capacity = wanted;
    return OK;
}
