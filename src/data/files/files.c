/* Checks of the paths that a user gives, with messages that say what is there instead. */
#include "data/files/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/files/io.h"

status file_check(const char *path, uint64_t *bytes) {
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.is_file && access(path, R_OK) == 0) {
        *bytes = info.size;
        return OK;
    }
    char *folder = getcwd(NULL, 0);
    const char *reason = info.is_folder  ? "it is a folder"
                         : !info.exists  ? strerror(ENOENT)
                         : !info.is_file ? "it is not a regular file"
                                         : strerror(errno);
    status s = status_new(
        STATUS_DATA, "cannot read the dataset '%s' (working directory %s%s): %s", path, folder ? folder : "unknown",
        !info.exists && path[0] != '/' ? "; it is also not beside the config or in the parent folder" : "", reason);
    free(folder);
    return s;
}

void files_raise_limit(size_t count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    rlim_t more = limit.rlim_max - limit.rlim_cur;
    limit.rlim_cur += count < more ? count : more;
    setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, opening a file does, too */
}

status files_are_too_many(const char *path, const struct string_list *others, size_t count, const char *format) {
    if (others->count)
        return status_new(STATUS_USAGE, "'%s' and %zu more: format %s reads one file", path, count - 1, format);
    return status_new(STATUS_USAGE, "'%s' matches %zu files, but format %s reads one", path, count, format);
}

status folder_check(const char *path) {
    struct io_info info;
    TRY(io_stat(path, &info));
    bool is_readable = info.is_folder && access(path, R_OK | X_OK) == 0;
    const char *reason = !info.exists      ? strerror(ENOENT)
                         : !info.is_folder ? "it is a file, and format images reads a folder"
                                           : strerror(errno);
    if (is_readable) return OK;
    return status_new(STATUS_DATA, "cannot read the folder of images '%s': %s", path, reason);
}

status file_read(const char *path, char **text, size_t *size) {
    int fd;
    struct io_info info;
    void *bytes = NULL;
    *text = NULL;
    *size = 0;
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (s == OK) s = rows_alloc((size_t)info.size + FILE_PADDING, 1, path, &bytes);
    if (s == OK) s = io_read(fd, path, bytes, (size_t)info.size, size);
    *text = bytes;
    return status_first(s, io_close(fd, path));
}

status rows_alloc(size_t count, size_t size, const char *what, void **out) {
    *out = NULL;
    if (size != 0 && count > PTRDIFF_MAX / size)
        return status_memory("%s: %zu times %zu bytes are more than any machine has", what, count, size);
    return buffer_new(count * size, what, out);
}
