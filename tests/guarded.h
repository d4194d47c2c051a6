/* guarded: memory whose end is the end of a page, with a page behind it that no access is allowed to, so that a read or
 * write of one element too many is a SIGSEGV in any build. Bytes before it are checked when it is freed. Fresh memory
 * is NaN as floats and doubles: what is not written shows. For tests only. */
#pragma once

#include <check.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARD_BYTE 0xa5

static inline size_t guarded_page(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static inline size_t guarded_pages(size_t bytes) { return (bytes + guarded_page() - 1) / guarded_page(); }

/* At least one byte, so that each block has its own address. The block's alignment is that of its size. */
static inline void *guarded_malloc(size_t bytes) {
    size_t page = guarded_page(), size = bytes ? bytes : 1, pages = guarded_pages(size);
    /* a page with the size, the block, a page that is inaccessible */
    char *start = mmap(NULL, (pages + 2) * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(start != MAP_FAILED);
    ck_assert_int_eq(mprotect(start + (1 + pages) * page, page, PROT_NONE), 0);
    char *block = start + (1 + pages) * page - size;
    memcpy(start, &size, sizeof size);
    memset(start + page, GUARD_BYTE, (size_t)(block - start) - page);
    memset(block, 0xff, size);
    return block;
}

/* Zeroed. */
static inline void *guarded_calloc(size_t count, size_t bytes) {
    ck_assert(bytes == 0 || count <= SIZE_MAX / bytes);
    return memset(guarded_malloc(count * bytes), 0, count * bytes);
}

static inline void *guarded_copy(const void *from, size_t bytes) {
    void *block = guarded_malloc(bytes);
    if (bytes) memcpy(block, from, bytes);
    return block;
}

/* Takes NULL. */
static inline void guarded_free(void *memory) {
    if (!memory) return;
    size_t page = guarded_page(), size;
    char *block = memory, *first = block - (uintptr_t)block % page, *start = first - page;
    memcpy(&size, start, sizeof size);
    for (char *byte = first; byte < block; byte++) /* each ck_assert writes to a file */
        if (*byte != (char)GUARD_BYTE) ck_abort_msg("byte %td before a block of %zu was written", byte - block, size);
    ck_assert_int_eq(munmap(start, (2 + guarded_pages(size)) * page), 0);
}
