/* Loaded into the program by LD_PRELOAD: appends a line with the real path to the file $FILE_ORDER for each
 * call that writes, renames or removes a file, before it is made, and for each sync after it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void note(const char *what, const char *path) {
    const char *log = getenv("FILE_ORDER");
    if (!log || path[0] != '/') return;
    int fd = open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) abort();
    if (dprintf(fd, "%s %s\n", what, path) < 0) abort();
    close(fd);
}

static void note_fd(const char *what, int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    if (strncmp(path, "/dev", 4) != 0) note(what, path);
}

static void note_path(const char *what, const char *path) {
    char folder[PATH_MAX], name[PATH_MAX], real[PATH_MAX], whole[2 * PATH_MAX];
    snprintf(folder, sizeof folder, "%s", path);
    snprintf(name, sizeof name, "%s", path);
    if (!realpath(dirname(folder), real)) return;
    snprintf(whole, sizeof whole, "%s/%s", real, basename(name));
    note(what, whole);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int fd, const void *bytes, size_t size) {
    note_fd("write", fd);
    return NEXT(write)(fd, bytes, size);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    note_fd("write", fd);
    return NEXT(pwrite)(fd, bytes, size, at);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    note_fd("write", fd);
    return NEXT(pwrite64)(fd, bytes, size, at);
}

int fsync(int fd) {
    int result = NEXT(fsync)(fd);
    note_fd("sync", fd);
    return result;
}

int fdatasync(int fd) {
    int result = NEXT(fdatasync)(fd);
    note_fd("sync", fd);
    return result;
}

int rename(const char *from, const char *to) {
    note_path("rename", to);
    return NEXT(rename)(from, to);
}

int unlink(const char *path) {
    note_path("remove", path);
    return NEXT(unlink)(path);
}
