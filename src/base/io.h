/* io: every system call that saves or loads goes through here: retried when a signal interrupts it, repeated when it
 * did only a part, and answered with a sentence that names the path (STATUS_IO). A test can fail the n-th of these
 * calls (base/fault.h).
 *
 * [path] beside a descriptor is only for the sentence. Paths are relative to the working directory. */
#ifndef BASE_IO_H
#define BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Opening. Descriptors are closed on exec. On a failure *fd is -1. */
status io_open(const char *path, int *fd);        /* for reading; never waits, also for a FIFO */
status io_open_append(const char *path, int *fd); /* for writing at the end; made when absent */
status io_create(const char *path, int *fd);      /* for reading and writing; must not exist */

/* Takes -1. The descriptor is gone also after a failure (which network file systems use to report lost writes). */
status io_close(int fd, const char *path);

/* Reads up to [size] bytes from the current position; less only at the end of the file. *got may be NULL when
 * fewer bytes are a failure too. */
status io_read(int fd, const char *path, void *bytes, size_t size, size_t *got);
status io_read_at(int fd, const char *path, void *bytes, size_t size, uint64_t offset, size_t *got);

/* Writes all [size] bytes. */
status io_write(int fd, const char *path, const void *bytes, size_t size);

/* fsync. */
status io_sync(int fd, const char *path);

/* Reserves [size] bytes on disk so that a full disk shows before anything is written. File systems that cannot do it
 * are no failure. */
status io_reserve(int fd, const char *path, uint64_t size);

/* Cuts the file to [size] bytes. */
status io_truncate(int fd, const char *path, uint64_t size);

/* The advisory lock (flock) of the file, without waiting: *is_mine false when another process holds it. It ends with
 * the descriptor or the process. */
status io_lock(int fd, const char *path, bool *is_mine);

struct io_info {
    bool exists, is_file, is_folder; /* links are followed */
    uint64_t size;
    uint64_t device, inode; /* together the same for one file under all its names */
};
/* Absent is no failure. */
status io_stat(const char *path, struct io_info *info);
status io_stat_fd(int fd, const char *path, struct io_info *info);

/* Where the open file or folder stands now, also after it was moved: absolute, malloc'ed. NULL: the system does not
 * tell. Of a file that was deleted it is a name that is not there, or another file's: compare with io_is_same. */
char *io_path_of(int fd);
bool io_is_same(const struct io_info *a, const struct io_info *b);

status io_rename(const char *from, const char *to);
status io_remove(const char *path); /* a file; absent is no failure */
/* A folder; absent, or not empty, is no failure. */
status io_remove_folder(const char *path);

/* mkdir -p; what is made is brought to disk. */
status io_make_folders(const char *path);

/* The names in a folder, without "." and "..", sorted by strcmp. Zero-initialise. */
struct io_names {
    char **items;
    size_t count;
};
status io_list(const char *folder, struct io_names *names);
void io_names_free(struct io_names *names);

/* fsync of the folder [path] stands in: makes a rename or a removal last. */
status io_sync_folder_of(const char *path);

/* "a/b" of "a/b/c", "." of "c", "/" of "/c". malloc'ed. */
char *io_folder_of(const char *path);

struct io_part {
    const void *bytes;
    size_t size;
};

/* Makes [path] a file of these [parts], one after the other, such that at every instant, also after a power loss, a
 * reader finds the whole new file or what was there before: temporary file "[path].tmp-<pid>", space reserved, write,
 * fsync, read back and compare, rename, fsync of the folder. On a failure the temporary file is removed and the old
 * file stays (when only the last fsync fails the new one stands there). */
status io_replace(const char *path, const struct io_part *parts, size_t count);

/* Whether [name] is a temporary file of io_replace; those of a killed process stay behind. */
bool io_is_temporary(const char *name);

/* Removes the temporary files of [path] that processes of this host left which are gone now. */
status io_remove_temporaries(const char *path);

#endif
