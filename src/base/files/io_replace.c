/* Atomic replacement of a file. The order of the steps matters: the temporary file is on disk and was read back equal
 * before the rename, and the rename is synced. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/text.h"

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
    char *folder = io_folder_of(path);
    const char *slash = strrchr(path, '/');
    struct text mark = {0};
    struct io_names names;
    text_printf(&mark, "%s" TEMPORARY_MARK, slash ? slash + 1 : path);
    status s = io_list(folder, &names);
    for (size_t i = 0; s == OK && i < names.count; i++) {
        const char *name = names.items[i];
        if (strncmp(name, text_string(&mark), mark.length) != 0 || !is_abandoned(name + mark.length)) continue;
        struct text whole = {0};
        text_printf(&whole, "%s/%s", folder, name);
        s = io_remove(text_string(&whole));
        text_free(&whole);
    }
    io_names_free(&names);
    text_free(&mark);
    free(folder);
    return s;
}

/* Compares the file with [parts]; [buffer] (COMPARE_CHUNK) is a workspace. */
static status compare(int fd, const char *path, const struct io_part *parts, size_t count, void *buffer) {
    uint64_t offset = 0;
    for (size_t p = 0; p < count; p++)
        for (size_t done = 0; done < parts[p].size;) {
            size_t size = parts[p].size - done < COMPARE_CHUNK ? parts[p].size - done : COMPARE_CHUNK;
            TRY(io_read_at(fd, path, buffer, size, offset, NULL));
            if (memcmp(buffer, (const char *)parts[p].bytes + done, size) != 0)
                return status_new(STATUS_IO,
                                  "'%s' reads back different from what was written: the disk or the memory "
                                  "of this machine is failing",
                                  path);
            done += size;
            offset += size;
        }
    return OK;
}

static status read_back(int fd, const char *path, const struct io_part *parts, size_t count) {
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); /* drops the page cache, so that the disk is read */
    void *buffer;
    TRY(buffer_new(COMPARE_CHUNK, "reading back a saved file", &buffer));
    status s = compare(fd, path, parts, count, buffer);
    buffer_free(buffer);
    return s;
}

static status write_temporary(int fd, const char *path, const struct io_part *parts, size_t count) {
    uint64_t size = 0;
    for (size_t p = 0; p < count; p++) size += parts[p].size;
    TRY(io_reserve(fd, path, size));
    for (size_t p = 0; p < count; p++) TRY(io_write(fd, path, parts[p].bytes, parts[p].size));
    TRY(io_sync(fd, path));
    return read_back(fd, path, parts, count);
}

static status create_temporary(const char *path, struct text *temporary, int *fd) {
    text_printf(temporary, "%s%s%ld", path, TEMPORARY_MARK, (long)getpid());
    /* a killed process with the same pid may have left it; what prevents the removal is said by io_create */
    status_free(io_remove(temporary->data));
    return io_create(temporary->data, fd);
}

status io_check_replace(const char *path) {
    struct text temporary = {0};
    struct io_info info;
    int fd = -1;
    TRY(io_stat(path, &info));
    if (info.is_folder) return status_new(STATUS_IO, "'%s' is a folder", path);
    status s = create_temporary(path, &temporary, &fd);
    if (s == OK) s = status_first(io_close(fd, temporary.data), io_remove(temporary.data));
    text_free(&temporary);
    return s;
}

status io_replace(const char *path, const struct io_part *parts, size_t count) {
    struct text temporary = {0};
    int fd = -1;
    status s = create_temporary(path, &temporary, &fd);
    if (s == OK) {
        s = write_temporary(fd, temporary.data, parts, count);
        s = status_first(s, io_close(fd, temporary.data));
        if (s == OK) s = io_rename(temporary.data, path);
        if (s != OK) status_free(io_remove(temporary.data)); /* the first failure is returned */
        if (s == OK) s = io_sync_folder_of(path);
    }
    text_free(&temporary);
    return s;
}

status io_replace_text(const char *path, const char *text) {
    struct io_part part = {text, strlen(text)};
    status_free(io_remove_temporaries(path)); /* a failure does not matter for the new file */
    return io_replace(path, &part, 1);
}
