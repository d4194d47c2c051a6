/* io: wrappers of the system calls that save and load files. A call is retried after EINTR and continued after a short
 * read or write; a failure is STATUS_IO with the path. A test can make the n-th call fail (base/fault.h).
 *
 * [path] beside a descriptor is used in messages only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct io_info {
    bool exists, is_file, is_folder; /* symbolic links are followed */
    uint64_t size;
    uint64_t device, inode;
    double modified; /* seconds since 1970 */
};

/* Descriptors are closed on exec. On a failure *fd is -1. */
status io_open(const char *path, int *fd); /* for reading; does not block on a FIFO */
status io_open_append(const char *path,
                      int *fd);              /* for appending; created when absent; STATUS_IO: not a regular file */
status io_create(const char *path, int *fd); /* for reading and writing; must not exist */

/* A file without a name in [folder], for reading and writing, which is removed when it is closed. */
status io_create_unnamed(const char *folder, int *fd);
/* The folder for large temporary files: TMPDIR, else /var/tmp. */
const char *io_temporary_folder(void);

/* Takes -1. The descriptor is closed also after a failure (network file systems report lost writes here). */
status io_close(int fd, const char *path);

/* Reads [size] bytes, from the current position or from [offset]; less only at the end of the file. [got] NULL: fewer
 * bytes are a failure. */
status io_read(int fd, const char *path, void *bytes, size_t size, size_t *got);
status io_read_at(int fd, const char *path, void *bytes, size_t size, uint64_t offset, size_t *got);

/* *text: the content of the file, with a zero after it, malloc'ed; NULL: [info] says that it does not exist, is not a
 * file or has more than [max] bytes. */
status io_read_text(const char *path, uint64_t max, char **text, struct io_info *info);

/* Writes all [size] bytes, at the current position or at [offset]. */
status io_write(int fd, const char *path, const void *bytes, size_t size);
status io_write_at(int fd, const char *path, const void *bytes, size_t size, uint64_t offset);

/* fsync. */
status io_sync(int fd, const char *path);

/* Hints, whose failures do not matter: begin to write these bytes to the disk; drop the file's pages from memory, so
 * that the disk is read; begin to read these bytes. */
void io_start_sync(int fd, uint64_t offset, uint64_t size);
void io_drop_cache(int fd);
void io_read_ahead(int fd, uint64_t offset, uint64_t size);

/* Reserves [size] bytes on disk, so that a full disk is detected before the first write. OK on file systems that do not
 * support it. */
status io_reserve(int fd, const char *path, uint64_t size);

status io_truncate(int fd, const char *path, uint64_t size);

/* Tries to take the advisory lock (flock); *is_mine false when another process has it. Closing the descriptor releases
 * it. */
status io_lock(int fd, const char *path, bool *is_mine);

/* Whether a process has the lock of the file [path]; false for an absent file. For a moment the check has a shared lock
 * of the file, which other checks do not notice, but io_lock does. */
status io_is_locked(const char *path, bool *out);

/* OK also for an absent file. */
status io_stat(const char *path, struct io_info *info);
status io_stat_fd(int fd, const char *path, struct io_info *info);

/* The current absolute path of an open file or folder, also after a rename; malloc'ed; NULL: unknown. For a deleted
 * file the path does not exist or is another file's: compare with io_is_same. */
char *io_path_of(int fd);
/* The same file: equal device and inode. */
bool io_is_same(const struct io_info *a, const struct io_info *b);

status io_rename(const char *from, const char *to);
/* Gives the file [from] the second name [to], atomically also on NFS and Lustre; *is_taken: [to] exists, and stays.
 * Only this process may give [from] names: where it has two, an earlier reply of the server was lost, and [to] is its
 * own. */
status io_link(const char *from, const char *to, bool *is_taken);
/* Makes [path] a symbolic link to [target], a path from its folder, unless it exists or the file system has none. */
void io_link_by_name(const char *target, const char *path);
status io_remove(const char *path);        /* a file; OK when absent */
status io_remove_folder(const char *path); /* OK when absent or not empty */

/* mkdir -p with fsync. */
status io_make_folders(const char *path);

/* The names in a folder, without "." and "..", sorted by strcmp. Zero-initialise. */
struct io_names {
    char **items;
    size_t count;
};
status io_list(const char *folder, struct io_names *names);
void io_names_free(struct io_names *names);
#define SCOPED_NAMES __attribute__((cleanup(io_names_free))) struct io_names /* as those of base/scoped.h */

/* fsync of the folder of [path]: makes a rename or a removal durable. OK on file systems that cannot sync a folder. */
status io_sync_folder_of(const char *path);

/* "a/b" of "a/b/c", "." of "c", "/" of "/c". malloc'ed. */
char *io_folder_of(const char *path);

/* The length of [path] without slashes at its end: 1 for "a/", "/" and "//". */
size_t io_length_without_slashes(const char *path);

struct io_part {
    const void *bytes;
    size_t size;
};

/* Replaces [path] atomically with the concatenated [parts]: at any time, also after a power loss, a reader finds the
 * complete new file or the old one. Steps: temporary file "[path].tmp-<pid>", reserve space, write, fsync, read back
 * and compare, rename, fsync of the folder. On a failure the temporary file is removed and the old file stays, unless
 * only the last fsync failed. The file is a new one: a symbolic link at [path] is replaced, not the file that it names,
 * and permissions, owner and hard links of the old file are not kept. */
status io_replace(const char *path, const struct io_part *parts, size_t count);

/* The same; [write] fills the temporary file [fd], whose path is [name]: on return its contents must be on disk and
 * read back. */
typedef status io_writer(void *context, int fd, const char *name);
status io_replace_with(const char *path, io_writer *write, void *context);
/* The STATUS_IO failure of a file that differs from what was written. */
status io_read_back_failure(const char *path);

/* What prevents io_replace from creating its temporary file, such as a folder that does not exist, and STATUS_IO for a
 * device or FIFO at [path], which it would replace: for a file that is written after long work. */
status io_check_replace(const char *path);

/* Whether [name] is a temporary file of io_replace, which a killed process leaves. */
bool io_is_temporary(const char *name);

/* Removes the temporary files of [path] whose processes do not exist on this host. */
status io_remove_temporaries(const char *path);

/* As io_replace, with one text; before, removes what killed processes have left. */
status io_replace_text(const char *path, const char *text);
/* The same by the temporary file [temporary], of this process alone: in a folder that processes of several hosts write,
 * the name that io_replace makes of the process's number may be another one's. */
status io_replace_by(const char *temporary, const char *path, const char *text);
