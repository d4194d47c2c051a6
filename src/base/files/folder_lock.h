/* folder_lock: a folder that one process at a time writes. The lock is an advisory lock (flock) on the file ".lock" in
 * it, which the kernel releases when the process ends; the text of that file says what wrote the folder, so that a
 * user's folder is never taken for one. */
#pragma once

#include "base/log.h"
#include "base/status.h"

#define FOLDER_LOCK_FILE ".lock"
#define FOLDER_LOCK_MAX_TEXT 64 /* bytes */

struct folder_lock {
    const char *folder; /* not owned */
    const char *path;   /* of the lock file, not owned */
    const char *text;   /* below FOLDER_LOCK_MAX_TEXT */
    const char *what;   /* "run" or "sweep": what the folder is of, for messages */
    const char *busy; /* what another process that has the lock does, and what to do then: "is training in this folder;
                         wait for it, or ..." */
    int fd;           /* -1: not open */
};

enum folder_lock_state {
    FOLDER_LOCK_ABSENT,
    FOLDER_LOCK_PARTIAL, /* empty, a part of the text or NUL characters: the process was killed at its start, a power
                            failure lost the text, or an early version */
    FOLDER_LOCK_COMPLETE,
    FOLDER_LOCK_OTHER, /* another text: the file belongs to something else */
};

/* What the file says; it need not be locked. */
status folder_lock_read(const struct folder_lock *lock, enum folder_lock_state *out);

/* Opens (creates) the file and tries to lock it, until no check by another process (folder_lock_is_held) has it, or 30
 * s have passed. What is locked is the file at the path: if another process has renamed or deleted the folder
 * meanwhile, the lock is that of the new folder, which is created when absent. */
status folder_lock_try(struct folder_lock *lock, bool *is_mine);

/* Tries for [seconds], because a killed process keeps its lock until the kernel has freed its memory; after a second
 * [log] (may be NULL) gets a line. */
status folder_lock_wait(struct folder_lock *lock, double seconds, struct log *log, bool *is_mine);

/* Tries for FOLDER_LOCK_SECONDS and completes the text of the file. STATUS_USAGE with [busy]: another process has it.
 */
#define FOLDER_LOCK_SECONDS 3.0
status folder_lock_acquire(struct folder_lock *lock, struct log *log);
/* The same failure, if another process has the lock now; changes nothing. The file need not exist. */
status folder_lock_check(const struct folder_lock *lock);

/* Renames the folder to the first free name. It is locked meanwhile, so that the folder of a running job is not
 * renamed. Where another process has renamed it meanwhile, the new folder stays. STATUS_USAGE as folder_lock_acquire.
 */
status folder_lock_rename_folder(struct folder_lock *lock, struct log *log);

/* Completes the text of the file, which this process has locked. */
status folder_lock_write_text(const struct folder_lock *lock);

/* Whether a process has locked [folder]; false when it has no such file. */
status folder_lock_is_held(const char *folder, bool *out);

status folder_lock_release(struct folder_lock *lock); /* if it is open */

/* The first of "<path>.1", ".2" ... that does not exist, malloc'ed. */
status folder_free_name(const char *path, char **out);
