/* memory_file: the bytes of a fuzz target as a file without system calls, which take half of the time of a small input.
 * tests/CMakeLists.txt links the targets that include this with --wrap, so that they call the functions here instead
 * of those of base/files/io.h; other paths than the ones that were set go to the real functions. For fuzz targets
 * only. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"

#define MEMORY_FILES 2
#define MEMORY_MAX_OPEN 16
#define MEMORY_FIRST_FD (1 << 24) /* above all that the kernel gives */

static struct memory_file {
    const char *path; /* NULL: not set */
    const uint8_t *bytes;
    size_t size;
} memory_files[MEMORY_FILES];

static struct memory_open {
    const struct memory_file *file; /* NULL: closed */
    size_t at;
} memory_opens[MEMORY_MAX_OPEN];

/* File [index] is [bytes] (size), at [path]; both stay the caller's. */
static inline void memory_file_set(int index, const char *path, const uint8_t *bytes, size_t size) {
    memory_files[index] = (struct memory_file){path, bytes, size};
}

/* At the end of an input: every descriptor must have been closed. */
static inline void memory_files_check_closed(void) {
    for (int i = 0; i < MEMORY_MAX_OPEN; i++)
        if (memory_opens[i].file) abort();
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
status __real_io_open(const char *path, int *fd);
status __real_io_close(int fd, const char *path);
status __real_io_read(int fd, const char *path, void *bytes, size_t size, size_t *got);
status __real_io_read_at(int fd, const char *path, void *bytes, size_t size, uint64_t offset, size_t *got);
status __real_io_stat(const char *path, struct io_info *info);
status __real_io_stat_fd(int fd, const char *path, struct io_info *info);
int __real_access(const char *path, int mode);
status __wrap_io_open(const char *path, int *fd);
status __wrap_io_close(int fd, const char *path);
status __wrap_io_read(int fd, const char *path, void *bytes, size_t size, size_t *got);
status __wrap_io_read_at(int fd, const char *path, void *bytes, size_t size, uint64_t offset, size_t *got);
status __wrap_io_stat(const char *path, struct io_info *info);
status __wrap_io_stat_fd(int fd, const char *path, struct io_info *info);
int __wrap_access(const char *path, int mode);

static inline const struct memory_file *memory_file_at(const char *path) {
    for (int i = 0; i < MEMORY_FILES; i++)
        if (memory_files[i].path && strcmp(memory_files[i].path, path) == 0) return &memory_files[i];
    return NULL;
}

/* NULL: not a descriptor of a file in memory. */
static inline struct memory_open *memory_open_of(int fd) {
    if (fd < MEMORY_FIRST_FD) return NULL;
    struct memory_open *open = &memory_opens[fd - MEMORY_FIRST_FD];
    if (!open->file) abort(); /* used after it was closed */
    return open;
}

static inline struct io_info memory_info(const struct memory_file *file) {
    return (struct io_info){.exists = true,
                            .is_file = true,
                            .size = file->size,
                            .device = UINT64_MAX,
                            .inode = (uint64_t)(file - memory_files),
                            .modified = 1};
}

static inline status memory_read(const struct memory_file *file, void *bytes, size_t size, uint64_t offset,
                                 size_t *got) {
    size_t left = offset < file->size ? file->size - (size_t)offset : 0, count = size < left ? size : left;
    if (count) memcpy(bytes, file->bytes + offset, count);
    if (got) *got = count;
    if (got || count == size) return OK;
    return status_new(STATUS_IO, "cannot read '%s': it ends %zu bytes early", file->path, size - count);
}

status __wrap_io_open(const char *path, int *fd) {
    const struct memory_file *file = memory_file_at(path);
    int slot = 0;
    if (!file) return __real_io_open(path, fd);
    while (slot < MEMORY_MAX_OPEN && memory_opens[slot].file) slot++;
    if (slot == MEMORY_MAX_OPEN) abort();
    memory_opens[slot] = (struct memory_open){.file = file};
    *fd = MEMORY_FIRST_FD + slot;
    return OK;
}

status __wrap_io_close(int fd, const char *path) {
    struct memory_open *open = memory_open_of(fd);
    if (!open) return __real_io_close(fd, path);
    open->file = NULL;
    return OK;
}

status __wrap_io_read(int fd, const char *path, void *bytes, size_t size, size_t *got) {
    struct memory_open *open = memory_open_of(fd);
    if (!open) return __real_io_read(fd, path, bytes, size, got);
    size_t at = open->at, left = open->file->size - at;
    open->at += size < left ? size : left;
    return memory_read(open->file, bytes, size, at, got);
}

status __wrap_io_read_at(int fd, const char *path, void *bytes, size_t size, uint64_t offset, size_t *got) {
    const struct memory_open *open = memory_open_of(fd);
    return open ? memory_read(open->file, bytes, size, offset, got)
                : __real_io_read_at(fd, path, bytes, size, offset, got);
}

status __wrap_io_stat(const char *path, struct io_info *info) {
    const struct memory_file *file = memory_file_at(path);
    if (!file) return __real_io_stat(path, info);
    *info = memory_info(file);
    return OK;
}

status __wrap_io_stat_fd(int fd, const char *path, struct io_info *info) {
    const struct memory_open *open = memory_open_of(fd);
    if (!open) return __real_io_stat_fd(fd, path, info);
    *info = memory_info(open->file);
    return OK;
}

int __wrap_access(const char *path, int mode) { return memory_file_at(path) ? 0 : __real_access(path, mode); }
/* NOLINTEND(bugprone-reserved-identifier) */
