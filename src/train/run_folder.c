/* The lock is an advisory one on "<path>/.lock": it ends with the process, however that ends. */
#include "train/run_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/io.h"

struct run_folder {
    struct arena *arena;
    const char *path, *config, *metrics, *log, *checkpoints, *lock;
    int lock_fd;
    bool is_new;       /* made by this run, which has not written into it yet */
    char *config_text; /* what config.yaml holds; NULL: no such file */
};

/* A process that was killed holds its lock until the system has taken it apart, and the same command may come at once.
 */
#define DYING_SECONDS 2.0

static status take_lock(struct run_folder *f) {
    bool is_mine = false;
    double until = clock_seconds() + DYING_SECONDS;
    TRY(io_open_append(f->lock, &f->lock_fd));
    do {
        TRY(io_lock(f->lock_fd, f->lock, &is_mine));
        if (is_mine) return OK;
        clock_sleep(0.02);
    } while (clock_seconds() < until);
    return status_new(
        STATUS_USAGE,
        "%s: another ddptrain is training in this folder; wait for it, or give this run its own --run-dir", f->path);
}

static status release_lock(struct run_folder *f) {
    int fd = f->lock_fd;
    f->lock_fd = -1;
    return fd >= 0 ? io_close(fd, f->lock) : OK;
}

/* Renames the folder to the first free "<path>.N". The lock is held while it happens, so a running job is not moved. */
static status move_aside(struct run_folder *f, struct log *log) {
    for (int n = 1; n < 100000; n++) {
        char *target = arena_printf(f->arena, "%s.%d", f->path, n);
        struct io_info info;
        TRY(io_stat(target, &info));
        if (info.exists) continue;
        TRY(take_lock(f));
        TRY(io_rename(f->path, target));
        log_line(log, "moved the earlier run aside: %s", target);
        return release_lock(f);
    }
    return status_new(STATUS_IO, "%s: cannot find a free name to move it aside", f->path);
}

static status read_config(struct run_folder *f) {
    struct io_info info;
    int fd;
    TRY(io_stat(f->config, &info));
    if (!info.exists) return OK;
    if (info.size > DOCUMENT_MAX_BYTES)
        return status_new(STATUS_DATA, "%s: not a config of ddptrain (larger than 1 MiB)", f->config);
    f->config_text = calloc(1, info.size + 1);
    if (!f->config_text) return status_new(STATUS_BUG, "out of memory");
    TRY(io_open(f->config, &fd));
    status s = io_read(fd, f->config, f->config_text, info.size, NULL);
    return status_first(s, io_close(fd, f->config));
}

static status compare_config(struct run_folder *f, const struct config *config) {
    if (!f->config_text) return OK;
    struct config_file *before;
    status s = config_parse(f->config, f->config_text, &before);
    if (s)
        return status_prefix(
            s,
            "%s: the run folder's config cannot be read by this version; use --fresh to start over, or "
            "another --run-dir",
            f->path);
    struct text diff = {0};
    size_t count = schema_diff(&config_schema, config_of(before), config, &diff);
    if (count)
        s = status_new(
            STATUS_USAGE,
            "%s: this run folder belongs to another config; it differs in %zu key%s (run folder -> now):\n%s"
            "use --fresh to start over (the old folder is kept), or give this run another 'name' or --run-dir",
            f->path, count, count == 1 ? "" : "s", text_string(&diff));
    text_free(&diff);
    config_free(before);
    return s;
}

status run_folder_open(const char *path, bool is_fresh, const struct config *config, struct log *log,
                       struct run_folder **out) {
    struct arena *arena = arena_create();
    struct run_folder *f = arena_alloc(arena, sizeof *f);
    *f = (struct run_folder){.arena = arena,
                             .path = arena_copy(arena, path),
                             .config = arena_printf(arena, "%s/config.yaml", path),
                             .metrics = arena_printf(arena, "%s/metrics.jsonl", path),
                             .log = arena_printf(arena, "%s/log.txt", path),
                             .checkpoints = arena_printf(arena, "%s/checkpoints", path),
                             .lock = arena_printf(arena, "%s/.lock", path),
                             .lock_fd = -1};
    struct io_info info;
    status s = io_stat(path, &info);
    if (!s && info.exists && !info.is_folder)
        s = status_new(STATUS_USAGE, "%s: is not a folder; choose another --run-dir", path);
    if (!s && info.exists && is_fresh) s = move_aside(f, log);
    f->is_new = !info.exists || is_fresh;
    if (!s) s = io_make_folders(f->checkpoints);
    if (!s) s = take_lock(f);
    if (s) f->is_new = false; /* another run's, perhaps */
    if (!s) s = read_config(f);
    if (!s) s = compare_config(f, config);
    if (s) {
        run_folder_close(f);
        return s;
    }
    *out = f;
    return OK;
}

/* A start that failed leaves nothing: what is there was made by this run and is empty. */
static void take_back(const struct run_folder *f) {
    status_free(io_remove(f->lock));
    status_free(io_remove_folder(f->checkpoints));
    status_free(io_remove_folder(f->path));
}

void run_folder_close(struct run_folder *folder) {
    if (!folder) return;
    if (folder->is_new && folder->lock_fd >= 0) take_back(folder);
    status_free(release_lock(folder));
    free(folder->config_text);
    arena_destroy(folder->arena);
}

const char *run_folder_metrics(const struct run_folder *folder) { return folder->metrics; }
const char *run_folder_log(const struct run_folder *folder) { return folder->log; }
const char *run_folder_checkpoints(const struct run_folder *folder) { return folder->checkpoints; }

status run_folder_write_config(struct run_folder *folder, const char *text) {
    folder->is_new = false;
    if (folder->config_text && strcmp(folder->config_text, text) == 0) return OK;
    struct io_part part = {text, strlen(text)};
    return io_replace(folder->config, &part, 1);
}
