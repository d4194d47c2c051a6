/* Each wrapper calls fault_next and then one system call, and retries after EINTR. */
#include "base/files/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/fault.h"
#include "base/scoped.h"

#define MAX_INTERRUPTS 1000         /* EINTR without progress before the call fails */
#define MAX_CHUNK ((size_t)1 << 26) /* bytes of one read or write */

/* Whether the call fails by fault injection; sets errno. */
static bool has_fault(enum fault_call call, const char *path) {
    static const int numbers[] = {
        [FAULT_ENOSPC] = ENOSPC, [FAULT_EIO] = EIO, [FAULT_EINTR] = EINTR, [FAULT_EINVAL] = EINVAL};
    enum fault_kind kind = fault_next(call, path);
    if (kind == FAULT_NONE) return false;
    errno = numbers[kind];
    return true;
}

/* Whether a failed call is to be retried. */
static bool is_interrupted(int *interrupts) { return errno == EINTR && ++*interrupts < MAX_INTERRUPTS; }

static status open_with(enum fault_call call, const char *path, int flags, int *fd) {
    int interrupts = 0;
    do {
        *fd = has_fault(call, path) ? -1 : open(path, flags | O_CLOEXEC, 0666);
    } while (*fd < 0 && is_interrupted(&interrupts));
    if (*fd >= 0) return OK;
    return status_errno(STATUS_IO, errno, "cannot %s '%s'", call == CALL_OPEN ? "open" : "create", path);
}

/* O_NONBLOCK: opening a FIFO without a writer returns at once. */
status io_open(const char *path, int *fd) { return open_with(CALL_OPEN, path, O_RDONLY | O_NOCTTY | O_NONBLOCK, fd); }

/* STATUS_IO for a FIFO, a device or a socket: opening it may block, and it keeps no data. */
static status check_regular(const char *path, int fd) {
    struct stat st;
    if (fd < 0 && stat(path, &st) != 0) return OK; /* opening it says why */
    if (fd >= 0 && fstat(fd, &st) != 0) return status_errno(STATUS_IO, errno, "cannot stat '%s'", path);
    if (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)) return OK; /* of a folder, opening it says so */
    return status_new(STATUS_IO, "cannot write '%s': it is not a regular file, but %s; remove it", path,
                      S_ISFIFO(st.st_mode)   ? "a FIFO"
                      : S_ISSOCK(st.st_mode) ? "a socket"
                                             : "a device");
}

/* Opening a FIFO without a reader fails with O_NONBLOCK, and without it blocks. */
status io_open_append(const char *path, int *fd) {
    *fd = -1;
    TRY(check_regular(path, -1));
    TRY(open_with(CALL_CREATE, path, O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_NONBLOCK, fd));
    status s = check_regular(path, *fd);
    if (!s) return OK;
    close(*fd);
    *fd = -1;
    return s;
}

status io_create(const char *path, int *fd) { return open_with(CALL_CREATE, path, O_RDWR | O_CREAT | O_EXCL, fd); }

/* File systems without O_TMPFILE get a name for a moment. */
status io_create_unnamed(const char *folder, int *fd) {
    char path[PATH_MAX];
    *fd = has_fault(CALL_CREATE, folder) ? -1 : open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    bool is_unsupported = *fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL);
    if (is_unsupported && snprintf(path, sizeof path, "%s/ddptrain-XXXXXX", folder) < (int)sizeof path) {
        *fd = mkostemp(path, O_CLOEXEC);
        if (*fd >= 0) unlink(path);
    }
    return *fd >= 0 ? OK : status_errno(STATUS_IO, errno, "cannot create a file in '%s'", folder);
}

const char *io_temporary_folder(void) {
    const char *folder = getenv("TMPDIR");
    return folder && *folder ? folder : "/var/tmp";
}

status io_close(int fd, const char *path) {
    if (fd < 0) return OK;
    bool is_lost = has_fault(CALL_CLOSE, path);
    int number = errno;
    if (close(fd) != 0 && !is_lost) {
        is_lost = true;
        number = errno;
    }
    /* Linux has closed it also after EINTR. */
    return is_lost && number != EINTR ? status_errno(STATUS_IO, number, "cannot close '%s'", path) : OK;
}

/* One pread or read (offset NULL) of up to [size] bytes. */
static ssize_t read_once(int fd, const char *path, void *bytes, size_t size, const uint64_t *offset) {
    if (size > MAX_CHUNK) size = MAX_CHUNK;
    enum fault_kind kind = fault_next(CALL_READ, path);
    if (kind == FAULT_SHORT)
        size = (size + 1) / 2;
    else if (kind != FAULT_NONE) {
        errno = kind == FAULT_EINTR ? EINTR : kind == FAULT_EINVAL ? EINVAL : EIO;
        return -1;
    }
    return offset ? pread(fd, bytes, size, (off_t)*offset) : read(fd, bytes, size);
}

static status read_fully(int fd, const char *path, void *bytes, size_t size, const uint64_t *offset, size_t *got) {
    size_t done = 0;
    int interrupts = 0;
    while (done < size) {
        uint64_t here = offset ? *offset + done : 0;
        ssize_t n = read_once(fd, path, (char *)bytes + done, size - done, offset ? &here : NULL);
        if (n > 0) {
            done += (size_t)n;
            interrupts = 0;
        } else if (n == 0)
            break;
        else if (!is_interrupted(&interrupts))
            return status_errno(STATUS_IO, errno, "cannot read '%s'", path);
    }
    if (got)
        *got = done;
    else if (done < size)
        return status_new(STATUS_IO, "cannot read '%s': it ends %zu bytes early", path, size - done);
    return OK;
}

status io_read(int fd, const char *path, void *bytes, size_t size, size_t *got) {
    return read_fully(fd, path, bytes, size, NULL, got);
}

status io_read_at(int fd, const char *path, void *bytes, size_t size, uint64_t offset, size_t *got) {
    return read_fully(fd, path, bytes, size, &offset, got);
}

status io_read_text(const char *path, uint64_t max, char **text, struct io_info *info) {
    int fd;
    *text = NULL;
    TRY(io_stat(path, info));
    if (!info->is_file || info->size > max) return OK;
    TRY(io_open(path, &fd));
    char *content = malloc(info->size + 1);
    status s = content ? io_read(fd, path, content, info->size, NULL) : status_memory("%s", path);
    s = status_first(s, io_close(fd, path));
    if (s) {
        free(content);
        return s;
    }
    content[info->size] = 0;
    *text = content;
    return OK;
}

static ssize_t put(int fd, const void *bytes, size_t size, const uint64_t *offset) {
    return offset ? pwrite(fd, bytes, size, (off_t)*offset) : write(fd, bytes, size);
}

/* One pwrite or write (offset NULL) of up to [size] bytes. */
static ssize_t write_once(int fd, const char *path, const void *bytes, size_t size, const uint64_t *offset) {
    if (size > MAX_CHUNK) size = MAX_CHUNK;
    switch (fault_next(CALL_WRITE, path)) {
    case FAULT_NONE:
        return put(fd, bytes, size, offset);
    case FAULT_SHORT:
        return put(fd, bytes, (size + 1) / 2, offset);
    case FAULT_KILL:
        if (put(fd, bytes, size / 2, offset) >= -1) fault_kill();
        return -1;
    case FAULT_ENOSPC:
        errno = ENOSPC;
        return -1;
    case FAULT_EIO:
        errno = EIO;
        return -1;
    case FAULT_EINTR:
        errno = EINTR;
        return -1;
    default:
        errno = EINVAL;
        return -1;
    }
}

static status write_fully(int fd, const char *path, const void *bytes, size_t size, const uint64_t *offset) {
    size_t done = 0;
    int interrupts = 0;
    while (done < size) {
        uint64_t here = offset ? *offset + done : 0;
        ssize_t n = write_once(fd, path, (const char *)bytes + done, size - done, offset ? &here : NULL);
        if (n >= 0) {
            done += (size_t)n;
            interrupts = 0;
        } else if (!is_interrupted(&interrupts))
            return status_errno(STATUS_IO, errno, "cannot write '%s'", path);
    }
    return OK;
}

status io_write(int fd, const char *path, const void *bytes, size_t size) {
    return write_fully(fd, path, bytes, size, NULL);
}

status io_write_at(int fd, const char *path, const void *bytes, size_t size, uint64_t offset) {
    return write_fully(fd, path, bytes, size, &offset);
}

void io_start_sync(int fd, uint64_t offset, uint64_t size) {
    sync_file_range(fd, (off_t)offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
}

void io_drop_cache(int fd) { posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }

void io_read_ahead(int fd, uint64_t offset, uint64_t size) {
    posix_fadvise(fd, (off_t)offset, (off_t)size, POSIX_FADV_WILLNEED);
}

/* 0 or an errno value. */
static int sync_to_disk(int fd, const char *path) {
    int interrupts = 0, result;
    do {
        result = has_fault(CALL_SYNC, path) ? -1 : fsync(fd);
    } while (result != 0 && is_interrupted(&interrupts));
    return result == 0 ? 0 : errno;
}

static status sync_failure(int error, const char *path) {
    return error ? status_errno(STATUS_IO, error, "cannot sync '%s' to disk", path) : OK;
}

status io_sync(int fd, const char *path) { return sync_failure(sync_to_disk(fd, path), path); }

/* EINVAL: the file system has no fsync of folders. */
status io_sync_folder_of(const char *path) {
    SCOPED_STRING folder = io_folder_of(path);
    int fd;
    status s = io_open(folder, &fd);
    if (s == OK) {
        int error = sync_to_disk(fd, folder);
        s = sync_failure(error == EINVAL ? 0 : error, folder);
        s = status_first(s, io_close(fd, folder));
    }
    return s;
}

status io_reserve(int fd, const char *path, uint64_t size) {
    if (size == 0) return OK;
    int interrupts = 0, result;
    do {
        result = has_fault(CALL_RESERVE, path) ? -1 : fallocate(fd, 0, 0, (off_t)size);
    } while (result != 0 && is_interrupted(&interrupts));
    if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return OK;
    return status_errno(STATUS_IO, errno, "cannot reserve %llu bytes for '%s'", (unsigned long long)size, path);
}

status io_truncate(int fd, const char *path, uint64_t size) {
    int interrupts = 0, result;
    do {
        result = has_fault(CALL_TRUNCATE, path) ? -1 : ftruncate(fd, (off_t)size);
    } while (result != 0 && is_interrupted(&interrupts));
    if (result == 0) return OK;
    return status_errno(STATUS_IO, errno, "cannot truncate '%s' to %llu bytes", path, (unsigned long long)size);
}

static status lock_with(int operation, int fd, const char *path, bool *is_mine) {
    int interrupts = 0, result;
    do {
        result = has_fault(CALL_LOCK, path) ? -1 : flock(fd, operation | LOCK_NB);
    } while (result != 0 && is_interrupted(&interrupts));
    *is_mine = result == 0;
    return result == 0 || errno == EWOULDBLOCK ? OK : status_errno(STATUS_IO, errno, "cannot lock '%s'", path);
}

status io_lock(int fd, const char *path, bool *is_mine) { return lock_with(LOCK_EX, fd, path, is_mine); }

static status stat_result(int result, const struct stat *st, const char *path, struct io_info *info) {
    *info = (struct io_info){0};
    if (result != 0 && (errno == ENOENT || errno == ENOTDIR)) return OK;
    if (result != 0) return status_errno(STATUS_IO, errno, "cannot stat '%s'", path);
    *info = (struct io_info){.exists = true,
                             .is_file = S_ISREG(st->st_mode),
                             .is_folder = S_ISDIR(st->st_mode),
                             .size = (uint64_t)st->st_size,
                             .device = (uint64_t)st->st_dev,
                             .inode = (uint64_t)st->st_ino,
                             .modified = (double)st->st_mtim.tv_sec + (double)st->st_mtim.tv_nsec * 1e-9};
    return OK;
}

status io_stat(const char *path, struct io_info *info) {
    struct stat st;
    int result = has_fault(CALL_STAT, path) ? -1 : stat(path, &st);
    return stat_result(result, &st, path, info);
}

status io_stat_fd(int fd, const char *path, struct io_info *info) {
    struct stat st;
    int result = has_fault(CALL_STAT, path) ? -1 : fstat(fd, &st);
    return stat_result(result, &st, path, info);
}

/* A shared lock: two checks do not see each other, and NFS needs no permission to write for it. */
status io_is_locked(const char *path, bool *out) {
    int fd;
    bool is_free = true;
    struct io_info info;
    *out = false;
    TRY(io_stat(path, &info));
    if (!info.is_file) return OK;
    TRY(io_open(path, &fd));
    status s = lock_with(LOCK_SH, fd, path, &is_free);
    *out = !is_free;
    return status_first(s, io_close(fd, path));
}

bool io_is_same(const struct io_info *a, const struct io_info *b) {
    return a->exists && b->exists && a->device == b->device && a->inode == b->inode;
}

char *io_path_of(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || path[0] != '/') return NULL;
    path[length] = 0;
    return strdup(path);
}

status io_rename(const char *from, const char *to) {
    if (!has_fault(CALL_RENAME, to) && rename(from, to) == 0) return OK;
    return status_errno(STATUS_IO, errno, "cannot rename '%s' to '%s'", from, to);
}

status io_link(const char *from, const char *to, bool *is_taken) {
    struct stat st;
    *is_taken = false;
    if (!has_fault(CALL_RENAME, to) && link(from, to) == 0) return OK;
    if (errno != EEXIST) return status_errno(STATUS_IO, errno, "cannot link '%s' to '%s'", from, to);
    *is_taken = stat(from, &st) != 0 || st.st_nlink < 2;
    return OK;
}

void io_link_by_name(const char *target, const char *path) {
    if (symlink(target, path) != 0) errno = 0; /* a convenience of users */
}

status io_remove(const char *path) {
    if (!has_fault(CALL_REMOVE, path) && unlink(path) == 0) return OK;
    return errno == ENOENT ? OK : status_errno(STATUS_IO, errno, "cannot remove '%s'", path);
}

status io_remove_folder(const char *path) {
    if (!has_fault(CALL_REMOVE, path) && rmdir(path) == 0) return OK;
    if (errno == ENOENT || errno == ENOTEMPTY || errno == EEXIST) return OK;
    return status_errno(STATUS_IO, errno, "cannot remove the folder '%s'", path);
}

static status make_folder(const char *path, bool *is_new) {
    *is_new = !has_fault(CALL_MKDIR, path) && mkdir(path, 0777) == 0;
    if (*is_new) return OK;
    int number = errno;
    struct stat st;
    if (number == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return OK;
    return status_errno(STATUS_IO, number == EEXIST ? ENOTDIR : number, "cannot make the folder '%s'", path);
}

/* Sets [part] to the first folders of [path], which end at the next '/' or at the end of the path, after [*end]. */
static bool next_folder(const char *path, const char **end, struct text *part) {
    *end += strspn(*end, "/");
    if (!**end) return false;
    *end += strcspn(*end, "/");
    text_clear(part);
    text_add_bytes(part, path, (size_t)(*end - path));
    return true;
}

/* The length of the part of [path] that is a folder around it, as far as that can be seen. */
static size_t existing_length(const char *path) {
    struct text part = {0};
    struct stat st;
    size_t length = strlen(path);
    bool exists = false;
    while (length > 0 && !exists) {
        do length--;
        while (length > 0 && path[length] != '/');
        text_clear(&part);
        text_add_bytes(&part, path, length);
        exists = length > 0 && stat(part.data, &st) == 0 && S_ISDIR(st.st_mode);
    }
    text_free(&part);
    return length;
}

/* All are made before the first is synced, so that a file system with a journal writes it once. */
status io_make_folders(const char *path) {
    SCOPED_TEXT part = {0};
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.is_folder) return OK;
    status s = OK;
    size_t first = SIZE_MAX; /* length of the first part that is new; those after it are new, too */
    size_t existing = existing_length(path);
    for (const char *end = path; !s && next_folder(path, &end, &part);) {
        bool is_new = false;
        if (part.length <= existing) continue;
        s = make_folder(part.data, &is_new);
        if (is_new && part.length < first) first = part.length;
    }
    for (const char *end = path; !s && next_folder(path, &end, &part);)
        if (part.length >= first) s = io_sync_folder_of(part.data);
    return s;
}

static bool add_name(struct io_names *names, const char *name) {
    char **items = realloc(names->items, (names->count + 1) * sizeof *items);
    if (!items) return false;
    names->items = items;
    return (names->items[names->count] = strdup(name)) && ++names->count;
}

/* Returns 0 or an errno value. */
static int read_names(DIR *dir, struct io_names *names) {
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        if (!entry) return errno;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        if (!add_name(names, entry->d_name)) return ENOMEM;
    }
}

status io_list(const char *folder, struct io_names *names) {
    *names = (struct io_names){0};
    DIR *dir = has_fault(CALL_LIST, folder) ? NULL : opendir(folder);
    if (!dir) return status_errno(STATUS_IO, errno, "cannot list the folder '%s'", folder);
    int number = read_names(dir, names);
    closedir(dir);
    if (number != 0) {
        io_names_free(names);
        return status_errno(STATUS_IO, number, "cannot list the folder '%s'", folder);
    }
    if (names->count) qsort(names->items, names->count, sizeof *names->items, text_compare);
    return OK;
}

void io_names_free(struct io_names *names) {
    for (size_t i = 0; i < names->count; i++) free(names->items[i]);
    free(names->items);
    *names = (struct io_names){0};
}

/* ---- atomic replacement ---- */

/* The order of the steps matters: the temporary file is on disk and was read back equal before the rename, and the
 * rename is synced. */

#define TEMPORARY_MARK ".tmp-"
#define COMPARE_CHUNK ((size_t)1 << 20)

size_t io_length_without_slashes(const char *path) {
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') length--;
    return length;
}

char *io_folder_of(const char *path) {
    const char *slash = strrchr(path, '/');
    struct text folder = {0};
    if (!slash)
        text_add(&folder, ".");
    else
        text_add_bytes(&folder, path, slash == path ? 1 : (size_t)(slash - path));
    return folder.data;
}

bool io_is_temporary(const char *name) {
    const char *mark = NULL;
    for (const char *next = name; (next = strstr(next, TEMPORARY_MARK)); next++) mark = next;
    if (!mark || mark == name) return false;
    const char *pid = mark + strlen(TEMPORARY_MARK);
    return *pid && pid[strspn(pid, "0123456789")] == 0;
}

/* Whether [number] (the end of a temporary file's name) is a pid that no process of this host has. */
static bool is_abandoned(const char *number) {
    char *end;
    errno = 0;
    long pid = strtol(number, &end, 10);
    bool is_pid = *number >= '1' && *number <= '9' && *end == 0 && errno == 0 && pid <= INT_MAX;
    return is_pid && kill((pid_t)pid, 0) < 0 && errno == ESRCH;
}

status io_remove_temporaries(const char *path) {
    SCOPED_STRING folder = io_folder_of(path);
    const char *slash = strrchr(path, '/');
    SCOPED_TEXT mark = {0};
    struct io_names names;
    text_printf(&mark, "%s" TEMPORARY_MARK, slash ? slash + 1 : path);
    status s = io_list(folder, &names);
    for (size_t i = 0; s == OK && i < names.count; i++) {
        const char *name = names.items[i];
        if (strncmp(name, text_string(&mark), mark.length) != 0 || !is_abandoned(name + mark.length)) continue;
        SCOPED_STRING whole = text_path(folder, name);
        s = io_remove(whole);
    }
    io_names_free(&names);
    return s;
}

status io_read_back_failure(const char *path) {
    return status_new(
        STATUS_IO, "'%s' reads back different from what was written: the disk or the memory of this machine is failing",
        path);
}

/* Compares the file with [parts]; [buffer] (COMPARE_CHUNK, or the largest part) is a workspace. */
static status compare(int fd, const char *path, const struct io_part *parts, size_t count, void *buffer) {
    uint64_t offset = 0;
    for (size_t p = 0; p < count; p++)
        for (size_t done = 0; done < parts[p].size;) {
            size_t size = parts[p].size - done < COMPARE_CHUNK ? parts[p].size - done : COMPARE_CHUNK;
            TRY(io_read_at(fd, path, buffer, size, offset, NULL));
            if (memcmp(buffer, (const char *)parts[p].bytes + done, size) != 0) return io_read_back_failure(path);
            done += size;
            offset += size;
        }
    return OK;
}

static status read_back(int fd, const char *path, const struct io_part *parts, size_t count) {
    io_drop_cache(fd);
    void *buffer;
    size_t size = 0;
    for (size_t p = 0; p < count; p++)
        if (parts[p].size > size) size = parts[p].size;
    TRY(buffer_new(size < COMPARE_CHUNK ? size : COMPARE_CHUNK, "reading back a saved file", &buffer));
    status s = compare(fd, path, parts, count, buffer);
    buffer_free(buffer);
    return s;
}

struct contents {
    const struct io_part *parts; /* (count) */
    size_t count;
};

static status write_contents(void *context, int fd, const char *path) {
    const struct contents *contents = context;
    const struct io_part *parts = contents->parts;
    uint64_t size = 0;
    for (size_t p = 0; p < contents->count; p++) size += parts[p].size;
    TRY(io_reserve(fd, path, size));
    for (size_t p = 0; p < contents->count; p++) TRY(io_write(fd, path, parts[p].bytes, parts[p].size));
    TRY(io_sync(fd, path));
    return read_back(fd, path, parts, contents->count);
}

static status create_temporary(const char *path, struct text *temporary, int *fd) {
    text_printf(temporary, "%s%s%ld", path, TEMPORARY_MARK, (long)getpid());
    /* a killed process with the same pid may have left it; what prevents the removal is said by io_create */
    status_free(io_remove(temporary->data));
    return io_create(temporary->data, fd);
}

status io_check_replace(const char *path) {
    SCOPED_TEXT temporary = {0};
    struct io_info info;
    int fd = -1;
    TRY(io_stat(path, &info));
    if (info.is_folder) return status_new(STATUS_IO, "'%s' is a folder", path);
    if (info.exists && !info.is_file) return status_new(STATUS_IO, "'%s' is not a regular file", path);
    status s = create_temporary(path, &temporary, &fd);
    if (s == OK) s = status_first(io_close(fd, temporary.data), io_remove(temporary.data));
    return s;
}

status io_replace_with(const char *path, io_writer *write, void *context) {
    SCOPED_TEXT temporary = {0};
    int fd = -1;
    status s = create_temporary(path, &temporary, &fd);
    if (s == OK) {
        s = write(context, fd, temporary.data);
        s = status_first(s, io_close(fd, temporary.data));
        if (s == OK) s = io_rename(temporary.data, path);
        if (s != OK) status_free(io_remove(temporary.data)); /* the first failure is returned */
        if (s == OK) s = io_sync_folder_of(path);
    }
    return s;
}

status io_replace(const char *path, const struct io_part *parts, size_t count) {
    struct contents contents = {parts, count};
    return io_replace_with(path, write_contents, &contents);
}

status io_replace_text(const char *path, const char *text) {
    struct io_part part = {text, strlen(text)};
    status_free(io_remove_temporaries(path)); /* a failure does not matter for the new file */
    return io_replace(path, &part, 1);
}

status io_replace_by(const char *temporary, const char *path, const char *text) {
    TRY(io_replace_text(temporary, text));
    TRY(io_rename(temporary, path));
    return io_sync_folder_of(path);
}
