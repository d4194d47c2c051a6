/* The lock is on the file, not on its path: whoever keeps it for long verifies that the path is still this file. */
#include "base/files/folder_lock.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/scoped.h"

#define REPORT_SECONDS 1.0
#define CHECK_SECONDS 0.05 /* for a check by another process (io_is_locked), which takes microseconds, to end */
#define STOPPED_SECONDS 30 /* after which a process that checks is taken for stopped */
#define MAX_NAMES 100000

/* *size: how many bytes of the text the file has, or NUL characters in their place. */
static status read_text(const struct folder_lock *lock, enum folder_lock_state *out, size_t *size, bool *are_nul) {
    struct io_info info;
    char text[FOLDER_LOCK_MAX_TEXT] = "";
    size_t length = strlen(lock->text);
    int fd;
    *size = 0;
    *are_nul = false;
    TRY(io_stat(lock->path, &info));
    *out = info.exists ? FOLDER_LOCK_PARTIAL : FOLDER_LOCK_ABSENT;
    if (!info.is_file || info.size == 0) return OK;
    TRY(io_open(lock->path, &fd));
    *size = info.size < sizeof text ? (size_t)info.size : sizeof text;
    status s = io_read(fd, lock->path, text, *size, NULL);
    *are_nul = *size <= length && memcmp(text, (const char[FOLDER_LOCK_MAX_TEXT]){0}, *size) == 0;
    bool is_other = !*are_nul && (*size > length || memcmp(text, lock->text, *size) != 0);
    *out = is_other ? FOLDER_LOCK_OTHER : *size == length && !*are_nul ? FOLDER_LOCK_COMPLETE : FOLDER_LOCK_PARTIAL;
    return status_first(s, io_close(fd, lock->path));
}

status folder_lock_read(const struct folder_lock *lock, enum folder_lock_state *out) {
    size_t size;
    bool are_nul;
    return read_text(lock, out, &size, &are_nul);
}

/* Another process may have renamed or deleted the folder since the file was opened, and made a new one at its path. */
static status is_at_path(const struct folder_lock *lock, bool *out) {
    struct io_info file, path;
    TRY(io_stat_fd(lock->fd, lock->path, &file));
    TRY(io_stat(lock->path, &path));
    *out = io_is_same(&file, &path);
    return OK;
}

/* One try. A file that is no longer at its path is released, locked or not, and the file at the path is the next to
 * try: *is_mine false, and the file is not open. */
static status try_once(struct folder_lock *lock, bool *is_mine) {
    bool is_current, is_locked;
    *is_mine = false;
    if (lock->fd < 0) {
        TRY(io_make_folders(lock->folder));
        TRY(io_open_append(lock->path, &lock->fd));
    }
    TRY(io_lock(lock->fd, lock->path, &is_locked));
    TRY(is_at_path(lock, &is_current));
    *is_mine = is_locked && is_current;
    return is_current ? OK : folder_lock_release(lock);
}

/* Tries until [end], at least once the file that is at the path now. */
static status try_until(struct folder_lock *lock, double end, double pause, bool *is_mine) {
    for (;;) {
        TRY(try_once(lock, is_mine));
        if (*is_mine || (lock->fd >= 0 && clock_seconds() >= end)) return OK;
        if (lock->fd >= 0) clock_sleep(pause);
    }
}

status folder_lock_try(struct folder_lock *lock, bool *is_mine) {
    double end = clock_seconds() + STOPPED_SECONDS;
    bool is_held = false;
    do { /* a check shares the lock: while another one succeeds, nobody has it */
        TRY(try_until(lock, clock_seconds() + CHECK_SECONDS, 0.001, is_mine));
        if (!*is_mine) TRY(io_is_locked(lock->path, &is_held));
    } while (!*is_mine && !is_held && clock_seconds() < end);
    return OK;
}

status folder_lock_wait(struct folder_lock *lock, double seconds, struct log *log, bool *is_mine) {
    double start = clock_seconds(), end = start + seconds, first = start + REPORT_SECONDS;
    TRY(try_until(lock, first < end ? first : end, 0.02, is_mine));
    if (*is_mine || clock_seconds() >= end) return OK;
    if (log) log_line(log, "waiting for %s: another ddptrain has locked it", lock->path);
    return try_until(lock, end, 0.02, is_mine);
}

status folder_lock_write_text(const struct folder_lock *lock) {
    enum folder_lock_state state;
    size_t size, length = strlen(lock->text);
    bool are_nul;
    TRY(read_text(lock, &state, &size, &are_nul));
    if (state == FOLDER_LOCK_OTHER || state == FOLDER_LOCK_COMPLETE) return OK;
    if (are_nul) {
        TRY(io_truncate(lock->fd, lock->path, 0));
        size = 0;
    }
    return io_write(lock->fd, lock->path, lock->text + size, length - size);
}

static status is_busy(const struct folder_lock *lock) {
    return status_usage("%s: another ddptrain %s", lock->folder, lock->busy);
}

status folder_lock_acquire(struct folder_lock *lock, struct log *log) {
    bool is_mine;
    TRY(folder_lock_wait(lock, FOLDER_LOCK_SECONDS, log, &is_mine));
    return is_mine ? folder_lock_write_text(lock) : is_busy(lock);
}

status folder_lock_check(const struct folder_lock *lock) {
    bool is_held;
    TRY(io_is_locked(lock->path, &is_held));
    return is_held ? is_busy(lock) : OK;
}

status folder_lock_rename_folder(struct folder_lock *lock, struct log *log) {
    char *target;
    struct io_info before, now;
    TRY(io_stat(lock->folder, &before));
    TRY(folder_lock_acquire(lock, log));
    TRY(io_stat(lock->folder, &now));
    if (!io_is_same(&before, &now)) return folder_lock_release(lock);
    TRY(folder_free_name(lock->folder, &target)); /* with the lock: another process may have just taken one */
    status s = io_rename(lock->folder, target);
    if (!s) log_line(log, "renamed the folder of the earlier %s: %s", lock->what, target);
    free(target);
    return s ? s : folder_lock_release(lock);
}

status folder_lock_is_held(const char *folder, bool *out) {
    SCOPED_TEXT path = {0};
    text_printf(&path, "%s/" FOLDER_LOCK_FILE, folder);
    return io_is_locked(text_string(&path), out);
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
