/* The lock (base/files/folder_lock.h) is that of a file, not of its path, so each save verifies that the path is still
 * this file. */
#include "train/folder/run_folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/files/sealed.h"
#include "base/scoped.h"
#include "checkpoint/checkpoint.h"
#include "train/config/extension.h"

struct run_folder {
    struct arena *arena;
    const char *path, *config, *metrics, *ledger, *log, *checkpoints, *checkpoints_by_fd;
    struct folder_lock lock;
    int fd;                            /* of the folder; -1: not open */
    struct io_info folder_id, lock_id; /* device and inode */
    int around_fd;                     /* of the folder around it, in a sweep; else -1 */
    bool is_new;                       /* not the folder of an earlier run; not written to yet */
    bool is_created;                   /* the folder did not exist */
    bool had_lock, had_checkpoints;    /* existed before: not removed when the start fails */
    char *config_text;                 /* content of config.yaml; NULL: no such file */
};

/* Content of the lock file, which distinguishes it from a user's file of that name. */
#define LOCK_TEXT "a run of ddptrain\n"

static void set_path(struct run_folder *f, const char *path) {
    f->path = arena_copy(f->arena, path);
    f->config = arena_printf(f->arena, "%s/config.yaml", path);
    f->metrics = arena_printf(f->arena, "%s/metrics.jsonl", path);
    f->ledger = arena_printf(f->arena, "%s/ledger.jsonl", path);
    f->log = arena_printf(f->arena, "%s/log.txt", path);
    f->checkpoints = arena_printf(f->arena, "%s/checkpoints", path);
    f->checkpoints_by_fd = f->checkpoints;
    f->lock.folder = f->path;
    f->lock.path = arena_printf(f->arena, "%s/" FOLDER_LOCK_FILE, path);
    f->lock.text = LOCK_TEXT;
    f->lock.what = "run";
    f->lock.busy = "is training in this folder; wait for it, or give this run its own --run-dir";
}

/* Uses the path of the open descriptor in /proc (Linux); without /proc the plain path remains. */
static void set_checkpoints_by_fd(struct run_folder *f) {
    struct io_info info;
    const char *link = arena_printf(f->arena, "/proc/self/fd/%d", f->fd);
    status s = io_stat(link, &info);
    if (!s && io_is_same(&info, &f->folder_id)) f->checkpoints_by_fd = arena_printf(f->arena, "%s/checkpoints", link);
    status_free(s);
}

/* Records the identity of the locked folder and of its lock file. */
static status record_identity(struct run_folder *f) {
    if (f->fd < 0) TRY(io_open(f->path, &f->fd));
    TRY(io_stat_fd(f->fd, f->path, &f->folder_id));
    set_checkpoints_by_fd(f);
    return io_stat_fd(f->lock.fd, f->lock.path, &f->lock_id);
}

static status close_descriptors(struct run_folder *f) {
    int fd = f->fd;
    f->fd = -1;
    status s = folder_lock_release(&f->lock);
    return status_first(s, fd >= 0 ? io_close(fd, f->path) : OK);
}

static status read_config(struct run_folder *f) {
    struct io_info info;
    TRY(io_read_text(f->config, DOCUMENT_MAX_BYTES, &f->config_text, &info));
    if (!info.exists || f->config_text) return OK;
    return status_data("%s: not a config of ddptrain (%s)", f->config,
                       info.is_file ? "larger than 1 MiB" : "not a file");
}

static status compare_config(struct run_folder *f, const struct config *config) {
    if (!f->config_text) return OK;
    SCOPED_CONFIG before = NULL;
    TRY(extensions_check_same(&config->extensions, f->config_text, f->path));
    status s = config_parse(f->config, f->config_text, &before);
    if (s)
        return status_prefix(
            s,
            "%s: the run folder's config cannot be read by this version; if only that file is damaged, delete it to "
            "continue (checkpoints have the config, too); else use --fresh to start over, or another --run-dir",
            f->path);
    SCOPED_TEXT diff = {0};
    size_t count = config_diff(config_of(before), config, &diff);
    if (count)
        s = status_new(
            STATUS_USAGE,
            "%s: this run folder belongs to another config; it differs in %zu key%s (run folder -> now):\n%suse "
            "--fresh to start over (the old folder is kept), or give this run another 'name' or --run-dir",
            f->path, count, text_plural(count, "s"), text_string(&diff));
    return s;
}

/* *has_checkpoint: the folder has a checkpoint of a run. *other: the first file with the name of a checkpoint that is
 * none; NULL: none. */
static status find_checkpoints(const struct run_folder *f, bool *has_checkpoint, char **other) {
    struct io_info folder;
    SCOPED_NAMES names = {0};
    *has_checkpoint = false;
    *other = NULL;
    TRY(io_stat(f->checkpoints, &folder));
    if (!folder.is_folder) return OK;
    status s = io_list(f->checkpoints, &names);
    for (size_t i = 0; !s && i < names.count; i++) {
        if (!checkpoint_has_ending(names.items[i])) continue;
        char *path = arena_printf(f->arena, "%s/%s", f->checkpoints, names.items[i]);
        bool is_sealed = false;
        status_free(sealed_has_trailer(path, &is_sealed)); /* a file that cannot be read is no checkpoint of a run */
        *has_checkpoint = *has_checkpoint || (is_sealed && checkpoint_is_name(names.items[i]));
        if (!is_sealed && !*other) *other = path;
    }
    return s;
}

/* A config of this program, which is on disk before the run begins, unlike the text of the lock file. */
static status has_config(const struct run_folder *f, bool *out) {
    struct io_info info;
    SCOPED_CONFIG config = NULL;
    SCOPED_STRING text = NULL;
    TRY(io_read_text(f->config, DOCUMENT_MAX_BYTES, &text, &info));
    status s = text ? config_parse(f->config, text, &config) : OK;
    *out = text && !s;
    status_free(s);
    return OK;
}

/* Whether the folder is that of a run: its lock file has LOCK_TEXT, or has lost it in a power failure and there is a
 * config, or it has a sealed checkpoint. If not, *other is the first file of another origin that a run would overwrite;
 * NULL: none. */
static status has_run(const struct run_folder *f, bool *out, const char **other) {
    const char *const names[] = {f->config, f->metrics, f->ledger, f->log};
    char *file;
    enum folder_lock_state lock;
    TRY(folder_lock_read(&f->lock, &lock));
    *out = lock == FOLDER_LOCK_COMPLETE;
    if (lock == FOLDER_LOCK_PARTIAL) TRY(has_config(f, out));
    if (*out) return OK;
    TRY(find_checkpoints(f, out, &file));
    *other = lock == FOLDER_LOCK_OTHER ? f->lock.path : file;
    for (size_t i = 0; i < sizeof names / sizeof *names && !*other; i++) {
        struct io_info info;
        TRY(io_stat(names[i], &info));
        if (info.exists) *other = names[i];
    }
    return OK;
}

/* Whether the config and the metrics are those of a run, such as of a copy without hidden files and checkpoints. */
static status has_records(const struct run_folder *f, bool *out) {
    static const char start[] = "{\"event\":\"start\",";
    char text[sizeof start] = "";
    struct io_info info;
    int fd;
    *out = false;
    TRY(io_stat(f->metrics, &info));
    if (!info.is_file) return OK;
    TRY(io_open(f->metrics, &fd));
    status s = io_read(fd, f->metrics, text, sizeof start - 1, &(size_t){0});
    TRY(status_first(s, io_close(fd, f->metrics)));
    return strcmp(text, start) == 0 ? has_config(f, out) : OK;
}

static status is_run(const char *path, bool accepts_metrics, bool *out) {
    SCOPED_ARENA arena = arena_create();
    struct run_folder f = {.arena = arena};
    struct io_info metrics = {0};
    const char *other;
    *out = false;
    set_path(&f, path);
    status s = has_run(&f, out, &other);
    if (!s && !*out) s = has_records(&f, out);
    if (!s && accepts_metrics && !*out) s = io_stat(f.metrics, &metrics);
    *out = *out || metrics.exists;
    return s;
}

status run_folder_is_run(const char *path, bool *out) { return is_run(path, false, out); }

status run_folder_is_readable(const char *path, bool *out) { return is_run(path, true, out); }

static status record_existing(struct run_folder *f) {
    struct io_info lock, checkpoints;
    if (f->is_created) return OK;
    TRY(io_stat(f->lock.path, &lock));
    TRY(io_stat(f->checkpoints, &checkpoints));
    f->had_lock = lock.exists;
    f->had_checkpoints = checkpoints.exists;
    return OK;
}

/* [renames]: the folder, where the start is RUN_FOLDER_FRESH; else nothing is changed. */
static status check_start(struct run_folder *f, enum run_folder_start start, bool renames, struct log *log) {
    struct io_info info;
    bool is_run = false;
    TRY(io_stat(f->path, &info));
    if (!info.exists && start == RUN_FOLDER_REQUIRED)
        return status_usage(
            "%s: the run folder has disappeared since this job began (moved or deleted?); move it back, "
            "or name it with --run-dir, and run the same command again",
            f->path);
    if (info.exists && !info.is_folder) return status_usage("%s: is not a folder; choose another --run-dir", f->path);
    const char *other = NULL;
    bool has_only_records = false;
    if (info.exists) TRY(has_run(f, &is_run, &other));
    if (!is_run && other == f->config) TRY(has_records(f, &has_only_records));
    if (has_only_records && start == RUN_FOLDER_ANY)
        return status_usage("%s: its files are of a run, but .lock and the checkpoints are missing; a run here would "
                            "overwrite them: choose another --run-dir, or --fresh, which renames the folder",
                            f->path);
    is_run = is_run || (has_only_records && start == RUN_FOLDER_FRESH);
    if (!is_run && other && start != RUN_FOLDER_REQUIRED)
        return status_new(
            STATUS_USAGE,
            "%s: a run here would overwrite this file, which does not belong to a run; choose another --run-dir",
            other);
    bool is_moved = is_run && start == RUN_FOLDER_FRESH;
    f->is_new = !is_run || is_moved;
    f->is_created = !info.exists || is_moved;
    TRY(record_existing(f));
    return is_moved && renames ? folder_lock_rename_folder(&f->lock, log) : OK;
}

status run_folder_open(const char *path, enum run_folder_start start, const struct config *config, struct log *log,
                       struct run_folder **out) {
    struct arena *arena = arena_create();
    struct run_folder *f = arena_alloc(arena, sizeof *f);
    *f = (struct run_folder){.arena = arena, .fd = -1, .around_fd = -1, .lock = {.fd = -1}};
    set_path(f, path);
    status s = check_start(f, start, true, log);
    if (!s) s = status_prefix(io_make_folders(f->checkpoints), "the run folder (--run-dir names another)");
    if (!s) s = folder_lock_acquire(&f->lock, log);
    if (s) f->is_new = false; /* it may belong to another run */
    if (!s) s = record_identity(f);
    if (!s) s = read_config(f);
    if (!s) s = compare_config(f, config);
    if (s) run_folder_close(f);
    if (!s) *out = f;
    return s;
}

status run_folder_check(const char *path, enum run_folder_start start, const struct config *config) {
    SCOPED_ARENA arena = arena_create();
    struct run_folder f = {.arena = arena, .fd = -1, .around_fd = -1, .lock = {.fd = -1}};
    set_path(&f, path);
    status s = check_start(&f, start, false, NULL);
    if (!s) s = folder_lock_check(&f.lock);
    if (!s && start != RUN_FOLDER_FRESH) s = read_config(&f);
    if (!s) s = compare_config(&f, config);
    free(f.config_text);
    return s;
}

/* Removes what this run created, after a start that failed; the folders are empty. */
static void remove_created(const struct run_folder *f) {
    if (!f->had_lock) status_free(io_remove(f->lock.path));
    if (!f->had_checkpoints) status_free(io_remove_folder(f->checkpoints));
    if (f->is_created) status_free(io_remove_folder(f->path));
}

void run_folder_close(struct run_folder *folder) {
    if (!folder) return;
    if (folder->is_new && folder->lock.fd >= 0) remove_created(folder);
    status_free(close_descriptors(folder));
    if (folder->around_fd >= 0) status_free(io_close(folder->around_fd, folder->path));
    free(folder->config_text);
    arena_destroy(folder->arena);
}

const char *run_folder_metrics(const struct run_folder *folder) { return folder->metrics; }
const char *run_folder_ledger(const struct run_folder *folder) { return folder->ledger; }

const char *run_folder_log(const struct run_folder *folder) { return folder->log; }
const char *run_folder_checkpoints(const struct run_folder *folder) { return folder->checkpoints; }
const char *run_folder_checkpoints_by_fd(const struct run_folder *folder) { return folder->checkpoints_by_fd; }

status run_folder_write_config(struct run_folder *folder, const char *text) {
    folder->is_new = false;
    if (folder->config_text && strcmp(folder->config_text, text) == 0) return OK;
    free(folder->config_text);
    folder->config_text = strdup(text);
    if (!folder->config_text) return status_memory("the config of the run folder");
    struct io_part part = {text, strlen(text)};
    if (folder->is_created) return io_replace(folder->config, &part, 1); /* without a look for temporary files */
    return io_replace_text(folder->config, text);
}

status run_folder_set_in_sweep(struct run_folder *folder) {
    SCOPED_STRING around = io_folder_of(folder->path);
    return io_open(around, &folder->around_fd);
}

/* ---- a folder that is moved or deleted during the run ---- */

/* Locks this run's folder again if its lock file was removed or replaced. *is_mine false: another run has the lock. */
static status reacquire_lock(struct run_folder *f, bool *is_mine) {
    struct io_info info;
    *is_mine = true;
    TRY(io_stat(f->lock.path, &info));
    if (io_is_same(&info, &f->lock_id)) return OK;
    TRY(folder_lock_release(&f->lock));
    TRY(folder_lock_try(&f->lock, is_mine));
    if (!*is_mine) return folder_lock_release(&f->lock);
    status_free(folder_lock_write_text(&f->lock)); /* if it fails, the checkpoints identify the folder */
    return record_identity(f);
}

static status is_own_folder(const struct run_folder *f, const char *path, bool *out) {
    struct io_info info;
    TRY(io_stat(path, &info));
    *out = io_is_same(&info, &f->folder_id);
    return OK;
}

/* If the folder was moved within its file system, continues with the new path. */
static status follow_move(struct run_folder *f, struct log *log, bool *is_mine) {
    SCOPED_STRING now = io_path_of(f->fd);
    bool is_found = false;
    status s = now ? is_own_folder(f, now, &is_found) : OK;
    if (!s && is_found) {
        const char *before = f->path;
        set_path(f, now);
        set_checkpoints_by_fd(f);
        s = reacquire_lock(f, is_mine);
        if (!s && *is_mine) {
            SCOPED_TEXT word = {0};
            text_add_shell(&word, now);
            log_warning(log,
                        "%s was moved to %s during this run; the run continues there. For the next command move it "
                        "back, or give --run-dir %s",
                        before, now, text_string(&word));
        }
        if (!*is_mine) set_path(f, before);
    }
    return s;
}

/* Creates and locks a new folder [base], or with the first free name "<base>.1" ... */
static status create_new(struct run_folder *f, const char *base) {
    bool is_mine = false;
    TRY(close_descriptors(f));
    while (!is_mine) {
        struct io_info info;
        char *name = NULL;
        TRY(io_stat(base, &info));
        if (info.exists) TRY(folder_free_name(base, &name));
        set_path(f, name ? name : base);
        free(name);
        f->is_created = true;
        f->had_lock = f->had_checkpoints = false;
        TRY(io_make_folders(f->checkpoints));
        TRY(folder_lock_try(&f->lock, &is_mine));
        if (!is_mine) TRY(folder_lock_release(&f->lock)); /* another run has just created it */
    }
    status_free(folder_lock_write_text(&f->lock));
    return record_identity(f);
}

static status check_place(const struct run_folder *f) {
    struct io_info there, own;
    if (f->around_fd < 0) return OK;
    SCOPED_STRING around = io_folder_of(f->path);
    status s = io_stat(around, &there);
    if (!s) s = io_stat_fd(f->around_fd, around, &own); /* open, so that no other folder gets its number */
    if (!s && !io_is_same(&there, &own))
        s = status_new(STATUS_IO, "%s was deleted during the run, with the folder of its sweep", f->path);
    return s;
}

static status replace_folder(struct run_folder *f, struct log *log) {
    const char *before = f->path;
    TRY(check_place(f));
    status s = create_new(f, before);
    if (!s) s = io_replace_text(f->config, f->config_text);
    if (!s) s = log_open_file(log, f->log);
    if (s) { /* the next save retries */
        if (f->lock.fd >= 0) remove_created(f);
        status_free(close_descriptors(f));
        set_path(f, before);
        return s;
    }
    if (strcmp(before, f->path) == 0)
        log_warning(log, "%s was deleted, or moved out of reach, during this run; the run saves into a new folder %s",
                    before, f->path);
    else {
        SCOPED_TEXT word = {0};
        text_add_shell(&word, f->path);
        log_warning(log,
                    "%s is no longer this run's folder (it was deleted or moved, and another run began there); this "
                    "run saves into a new folder %s from now on. For the next command give --run-dir %s",
                    before, f->path, text_string(&word));
    }
    return OK;
}

/* Writes deleted files of the run folder again; the folder of checkpoints is created by each save. */
static status restore_files(struct run_folder *f, struct log *log, bool *is_new) {
    struct io_info config, file, metrics;
    TRY(io_stat(f->config, &config));
    TRY(io_stat(f->log, &file));
    TRY(io_stat(f->metrics, &metrics));
    if (config.exists && file.exists && metrics.exists) return OK;
    if (!config.exists) TRY(io_replace_text(f->config, f->config_text));
    if (!file.exists) TRY(log_open_file(log, f->log));
    *is_new = !metrics.exists;
    log_warning(log, "%s: files of this run were deleted during the run; they are written again", f->path);
    return OK;
}

status run_folder_follow(struct run_folder *f, struct log *log, bool *has_changed, bool *is_new) {
    struct io_info info;
    bool is_same, is_mine = false;
    const char *before = f->path;
    *is_new = *has_changed = false;
    if (f->lock.fd >= 0) TRY(io_stat(f->lock.path, &info));
    if (f->lock.fd >= 0 && io_is_same(&info, &f->lock_id)) return restore_files(f, log, is_new);
    if (f->fd >= 0) {
        TRY(is_own_folder(f, f->path, &is_same));
        TRY(is_same ? reacquire_lock(f, &is_mine) : follow_move(f, log, &is_mine));
    }
    *is_new = !is_mine;
    TRY(is_mine ? restore_files(f, log, is_new) : replace_folder(f, log));
    *has_changed = f->path != before;
    return OK;
}
