/* The lock is on the file, not on its path: whoever keeps it for long verifies that the path is still this file. */
#include "base/files/folder_lock.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/text.h"

#define REPORT_SECONDS 1.0
#define CHECK_SECONDS 0.05 /* for a check by another process (io_is_locked), which takes microseconds, to end */
#define MAX_NAMES 100000

/* *size: how many bytes of the text the file has. */
static status read_text(const struct folder_lock *lock, enum folder_lock_state *out, size_t *size) {
    struct io_info info;
    char text[FOLDER_LOCK_MAX_TEXT] = "";
    size_t length = strlen(lock->text);
    int fd;
    *size = 0;
    TRY(io_stat(lock->path, &info));
    *out = info.exists ? FOLDER_LOCK_PARTIAL : FOLDER_LOCK_ABSENT;
    if (!info.is_file || info.size == 0) return OK;
    TRY(io_open(lock->path, &fd));
    *size = info.size < sizeof text ? (size_t)info.size : sizeof text;
    status s = io_read(fd, lock->path, text, *size, NULL);
    bool is_other = *size > length || memcmp(text, lock->text, *size) != 0;
    *out = is_other ? FOLDER_LOCK_OTHER : *size == length ? FOLDER_LOCK_COMPLETE : FOLDER_LOCK_PARTIAL;
    return status_first(s, io_close(fd, lock->path));
}

status folder_lock_read(const struct folder_lock *lock, enum folder_lock_state *out) {
    size_t size;
    return read_text(lock, out, &size);
}

status folder_lock_try(struct folder_lock *lock, bool *is_mine) {
    double end = clock_seconds() + CHECK_SECONDS;
    if (lock->fd < 0) TRY(io_open_append(lock->path, &lock->fd));
    for (;;) {
        TRY(io_lock(lock->fd, lock->path, is_mine));
        if (*is_mine || clock_seconds() >= end) return OK;
        clock_sleep(0.001);
    }
}

status folder_lock_wait(struct folder_lock *lock, double seconds, struct log *log, bool *is_mine) {
    bool is_reported = false;
    double start = clock_seconds();
    TRY(folder_lock_try(lock, is_mine));
    while (!*is_mine && clock_seconds() < start + seconds) {
        clock_sleep(0.02);
        TRY(io_lock(lock->fd, lock->path, is_mine));
        if (*is_mine || is_reported || clock_seconds() < start + REPORT_SECONDS) continue;
        log_line(log, "waiting for %s: another ddptrain has locked it", lock->path);
        is_reported = true;
    }
    return OK;
}

status folder_lock_write_text(const struct folder_lock *lock) {
    enum folder_lock_state state;
    size_t size, length = strlen(lock->text);
    TRY(read_text(lock, &state, &size));
    if (state == FOLDER_LOCK_OTHER || size == length) return OK;
    return io_write(lock->fd, lock->path, lock->text + size, length - size);
}

status folder_lock_acquire(struct folder_lock *lock, struct log *log) {
    bool is_mine;
    TRY(folder_lock_wait(lock, FOLDER_LOCK_SECONDS, log, &is_mine));
    if (is_mine) return folder_lock_write_text(lock);
    return status_new(STATUS_USAGE, "%s: another ddptrain %s", lock->folder, lock->busy);
}

status folder_lock_rename_folder(struct folder_lock *lock, struct log *log) {
    char *target;
    TRY(folder_free_name(lock->folder, &target));
    status s = folder_lock_acquire(lock, log);
    if (!s) s = io_rename(lock->folder, target);
    if (!s) log_line(log, "renamed the folder of the earlier %s: %s", lock->what, target);
    free(target);
    return s ? s : folder_lock_release(lock);
}

status folder_lock_is_held(const char *folder, bool *out) {
    struct text path = {0};
    text_printf(&path, "%s/" FOLDER_LOCK_FILE, folder);
    status s = io_is_locked(text_string(&path), out);
    text_free(&path);
    return s;
}

status folder_lock_release(struct folder_lock *lock) {
    int fd = lock->fd;
    lock->fd = -1;
    return fd >= 0 ? io_close(fd, lock->path) : OK;
}

status folder_free_name(const char *path, char **out) {
    struct text name = {0};
    *out = NULL;
    for (int n = 1; n < MAX_NAMES; n++) {
        struct io_info info;
        text_clear(&name);
        text_printf(&name, "%s.%d", path, n);
        status s = io_stat(text_string(&name), &info);
        if (!s && info.exists) continue;
        if (!s) *out = name.data;
        if (s) text_free(&name);
        return s;
    }
    text_free(&name);
    return status_new(STATUS_IO, "%s: none of the names \"%s.1\", \"%s.2\" ... is free", path, path, path);
}
