/* hdf5_file: the bytes of a fuzz target as a file that libhdf5 can open: it wants a name in a folder, which a memfd
 * does not have. In TMPDIR, or in memory; removed at the end of each input, left behind by a crash. For fuzz targets
 * only. */
#pragma once

#include <fcntl.h>
#include <hdf5.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* LeakSanitizer asks this: libhdf5 leaks when it fails to read a file. */
/* NOLINTBEGIN(bugprone-reserved-identifier) */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }
/* NOLINTEND(bugprone-reserved-identifier) */

struct hdf5_file {
    int fd;
    char path[256];
};

/* libhdf5 allocates 512 KiB for each file that it opens and returns them at once, because its lists of free blocks are
 * limited to 64 KiB: half of the time of an input is spent in the kernel. With this limit it uses them again. */
static inline void hdf5_file_keep_blocks(void) {
    static bool is_set;
    int kib = 1024; /* the other limits stay what they are */
    if (!is_set && H5set_free_list_limits(16384 * kib, 4096 * kib, 4096 * kib, 256 * kib, 16384 * kib, 1024 * kib) < 0)
        abort();
    is_set = true;
}

static inline void hdf5_file_add(const struct hdf5_file *file, const void *bytes, size_t size) {
    if (write(file->fd, bytes, size) != (ssize_t)size) abort();
}

static inline void hdf5_file_create(struct hdf5_file *file, const uint8_t *bytes, size_t size) {
    const char *folder = getenv("TMPDIR");
    hdf5_file_keep_blocks();
    snprintf(file->path, sizeof file->path, "%s/fuzz-%d.h5", folder ? folder : "/dev/shm", (int)getpid());
    file->fd = open(file->path, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0600);
    if (file->fd < 0) abort();
    hdf5_file_add(file, bytes, size);
}

static inline void hdf5_file_remove(const struct hdf5_file *file) {
    unlink(file->path);
    close(file->fd);
}
