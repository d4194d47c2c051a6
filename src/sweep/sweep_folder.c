/* The folder of a sweep and the run folders in it: opening it for the same sweep as before, and removing what is no
 * longer kept. sweep.yaml is compared as text, line by line, so that the first difference can be shown; the configs of
 * the trials by their values. */
#include "sweep/sweep_folder.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/document/document.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "checkpoint/checkpoint.h"
#include "train/folder/run_folder.h"
#include "train/metrics/metrics.h"

/* The last lines of metrics.jsonl say how far a run is, without its checkpoints being read. */

#define EVENTS "events.out.tfevents." /* of TensorBoard */

/* ---- the run folder of a trial: how far its run is ---- */

struct progress {
    bool has_ended;      /* its last event */
    bool is_at_rest;     /* its last event is that of a start or a stop */
    int64_t epochs;      /* complete ones */
    int64_t step_epochs; /* complete epochs before its newest step */
    char state_sha256[65];
};

/* [missing] also for a number that no run can have. */
static int64_t epoch_of(const char *line, int64_t missing) {
    json_auto_t *event = line ? json_loads(line, 0, NULL) : NULL;
    const json_t *epoch = json_object_get(event, "epoch");
    int64_t number = json_is_integer(epoch) ? json_integer_value(epoch) : -1;
    return number >= 0 && number < INT64_MAX ? number : missing;
}

static void read_hash(const char *line, struct progress *out) {
    json_auto_t *event = json_loads(line, 0, NULL);
    const char *hash = json_string_value(json_object_get(event, "state_sha256"));
    if (hash && strlen(hash) < sizeof out->state_sha256) memcpy(out->state_sha256, hash, strlen(hash) + 1);
}

static void read_lines(const struct metrics_lines *lines, struct progress *out) {
    static const enum metrics_event events[] = {METRICS_END, METRICS_STOPPED, METRICS_START, METRICS_RESUME};
    int64_t after = epoch_of(lines->epoch, -1) + 1; /* the line of an epoch has its index */
    *out = (struct progress){.step_epochs = epoch_of(lines->step, 0)};
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (!metrics_line_is(lines->other, events[i])) continue;
        out->has_ended = events[i] == METRICS_END && lines->is_other_last;
        out->is_at_rest = events[i] != METRICS_END;
        out->epochs = epoch_of(lines->other, 0);
    }
    if (out->has_ended) read_hash(lines->other, out);
    if (after > out->epochs) out->epochs = after;
}

static status read_metrics(const char *path, struct metrics_lines *out) {
    SCOPED_STRING metrics = text_path(path, "metrics.jsonl");
    return metrics_read(metrics, out);
}

status trial_folder_value(const char *path, const char *name, double *out) {
    SCOPED_LINES lines = {0};
    *out = NAN;
    TRY(read_metrics(path, &lines));
    json_auto_t *end = metrics_line_is(lines.other, METRICS_END) ? json_loads(lines.other, 0, NULL) : NULL;
    const json_t *value = json_object_get(end, name);
    if (json_is_number(value)) *out = json_number_value(value);
    return OK;
}

/* Zeros for a folder without a run. */
static status read_progress(const char *path, struct progress *out) {
    SCOPED_LINES lines = {0};
    *out = (struct progress){0};
    TRY(read_metrics(path, &lines));
    read_lines(&lines, out);
    return OK;
}

/* The folder of a complete run may be that of a worker that was lost before: such a run is not as long. A pruned
 * run has stopped at the end of its last epoch. */
status trial_folder_compare(const char *path, const struct trial_run *result, enum trial_folder_state *out) {
    struct progress now;
    bool is_used, is_complete = result->state == TRIAL_COMPLETE;
    *out = TRIAL_FOLDER_AS_LEFT;
    TRY(folder_lock_is_held(path, &is_used));
    TRY(read_progress(path, &now));
    bool is_same = now.has_ended && is_complete && strcmp(now.state_sha256, result->state_sha256) == 0;
    /* train.steps may end within an epoch, which has a line, too, and may be the best one */
    int64_t all = result->epochs + (result->epochs == 0 || result->best_epoch > result->epochs);
    bool is_beyond = is_complete && (now.step_epochs >= all || (now.is_at_rest && now.epochs >= all));
    bool has_more = !is_same && (is_complete || result->state == TRIAL_PRUNED) && now.epochs > result->epochs;
    if (is_used || has_more || (now.has_ended && !is_complete) || (!now.has_ended && is_beyond))
        *out = TRIAL_FOLDER_EXTENDED;
    else if (now.has_ended && !is_same)
        *out = TRIAL_FOLDER_DIFFERS;
    return OK;
}

status trial_folder_is_complete(const char *path, const struct trial_run *result, bool *out) {
    struct progress now;
    TRY(read_progress(path, &now));
    *out = now.has_ended && strcmp(now.state_sha256, result->state_sha256) == 0;
    return OK;
}

/* ---- the run folder of a trial: what is in it ---- */

static bool is_of_run(const char *name) {
    static const char *const names[] = {"config.yaml",  "metrics.jsonl",     "metrics.jsonl.part",
                                        "ledger.jsonl", "ledger.jsonl.part", "log.txt",
                                        "log.txt.part", "checkpoints",       "logs",
                                        "report.html",  FOLDER_LOCK_FILE,    ".DS_Store"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) return true;
    return strncmp(name, EVENTS, strlen(EVENTS)) == 0 || strncmp(name, ".nfs", 4) == 0 || io_is_temporary(name);
}

static bool is_of_saver(const char *name) {
    bool is_best = strncmp(name, CHECKPOINT_BEST ".", sizeof CHECKPOINT_BEST) == 0 && checkpoint_has_ending(name);
    return is_best || checkpoint_is_name(name) || io_is_temporary(name);
}

static bool is_of_launcher(const char *name) { return strncmp(name, "rank-", strlen("rank-")) == 0; }

/* [within]: "" or "logs/", before the names in [folder]. */
static status find(const char *folder, const char *within, bool (*is_known)(const char *), struct text *name) {
    struct io_info info;
    SCOPED_NAMES names = {0};
    TRY(io_stat(folder, &info));
    if (!info.is_folder || name->length) return OK;
    TRY(io_list(folder, &names));
    for (size_t i = 0; i < names.count && !name->length; i++)
        if (!is_known(names.items[i])) text_printf(name, "%s%s", within, names.items[i]);
    return OK;
}

status trial_folder_find_other(const char *path, struct text *name) {
    SCOPED_STRING checkpoints = text_path(path, "checkpoints"), *logs = text_path(path, "logs");
    TRY(find(path, "", is_of_run, name));
    TRY(find(checkpoints, "checkpoints/", is_of_saver, name));
    return find(logs, "logs/", is_of_launcher, name);
}

/* Content of the lock file, which distinguishes it from a user's file of that name. */
#define LOCK_TEXT "The lock of a sweep of ddptrain.\n"

struct sweep_folder {
    struct arena *arena;
    const char *path, *sweep, *base, *other, *runs, *shared;
    const char *by_fd;     /* of a process that shares the sweep: sweep_folder_by_fd */
    const char *temporary; /* of a process that shares the sweep: in its own folder; NULL: there is one process */
    struct folder_lock lock;
    int fd;                            /* of the folder; -1: not open */
    struct io_info folder_id, lock_id; /* device and inode */
};

#define MAX_CONFIG ((uint64_t)4 * DOCUMENT_MAX_BYTES)

/* *text (malloc'ed): what a config of the folder has; NULL: there is no such file. */
static status read_config(const char *path, char **text) {
    struct io_info info;
    TRY(io_read_text(path, MAX_CONFIG, text, &info));
    return *text || !info.exists ? OK : status_usage("%s: not a file that a sweep has written", path);
}

/* ---- the same sweep as before ---- */

/* Keys of sweep.yaml that may change from one start to the next; what config and overrides say is in the config of the
 * trials. Processes that share a sweep must agree on its runs: repeat.seeds is the last key. */
static bool is_free(const char *line, bool is_shared) {
    static const char *const keys[] = {
        "config: ", "overrides:", "constraints: []", "other_metrics: {}", "  max_epochs: null", "confirm:",
        "trials: ", "budget:",    "keep:",           "tensorboard: ",     "  seeds: "};
    for (size_t i = 0; i + is_shared < sizeof keys / sizeof *keys; i++)
        if (strncmp(line, keys[i], strlen(keys[i])) == 0) return true;
    return false;
}

/* The next line from *at that must not change, with its length; NULL: none. */
static const char *next_line(const char **at, bool is_shared, size_t *length) {
    bool is_in_free_section = false;
    while (**at) {
        const char *line = *at;
        *length = strcspn(line, "\n");
        *at = line + *length + (line[*length] == '\n');
        if (*line != ' ') is_in_free_section = is_free(line, is_shared);
        if (!is_in_free_section && !is_free(line, is_shared)) return line;
    }
    *length = 0;
    return NULL;
}

/* Whether the lines agree; 1e-3 and 0.001 do. */
static bool are_same(const char *a, size_t a_length, const char *b, size_t b_length) {
    static const char ends[] = " ,[]{}:\"\n";
    const char *a_end = a + a_length, *b_end = b + b_length;
    while (a < a_end && b < b_end) {
        size_t one = strcspn(a, ends), other = strcspn(b, ends);
        if (!parameter_is_same_text(a, one, b, other)) return false;
        a += one;
        b += other;
        if (a < a_end && b < b_end && *a++ != *b++) return false;
    }
    return a >= a_end && b >= b_end;
}

/* OK where the texts agree but for lines that may change. */
static status compare_lines(const struct sweep_folder *f, const char *path, const char *before, const char *now) {
    const char *a, *b;
    size_t a_length, b_length;
    do {
        a = next_line(&before, f->temporary != NULL, &a_length);
        b = next_line(&now, f->temporary != NULL, &b_length);
        bool is_same = a && b ? are_same(a, a_length, b, b_length) : a == b;
        if (is_same) continue;
        bool is_goal = a && strncmp(a, "  goal: ", strlen("  goal: ")) == 0; /* that of a metric was once minimize */
        return status_new(
            STATUS_USAGE,
            "%s: this sweep folder belongs to another sweep; %s differs first in\n  folder: %.*s\n  now:    "
            "%.*s\nuse --fresh to start over (the old folder is kept), or another --run-dir%s",
            f->path, strrchr(path, '/') + 1, (int)a_length, a ? a : "", (int)b_length, b ? b : "",
            is_goal ? "; to continue it, give its metric the goal of the folder" : "");
    } while (a || b);
    return OK;
}

/* OK where the configs of the trials agree; a default may be written or not. */
static status compare_configs(const struct sweep_folder *f, const char *path, const char *before, const char *now) {
    SCOPED_CONFIG old = NULL, *new = NULL;
    SCOPED_TEXT differences = {0};
    const char *name = strrchr(path, '/') + 1;
    TRY(status_prefix(
        config_parse(path, before, &old),
        "%s: %s of the sweep folder cannot be read by this version; if only that file is damaged, delete it to "
        "continue (it is written again); else use --fresh to start over (the old folder is kept), or another "
        "--run-dir",
        f->path, name));
    TRY(config_parse(name, now, &new));
    size_t count = schema_diff_keys(&config_schema, NULL, 0, config_of(old), config_of(new), &differences);
    if (!count) return OK;
    return status_usage("%s: this sweep folder belongs to another sweep; %s differs in %zu key%s (folder -> now):\n%s"
                        "use --fresh to start over (the old folder is kept), or another --run-dir",
                        f->path, name, count, text_plural(count, "s"), text_string(&differences));
}

status sweep_folder_publish(const char *temporary, const char *path, const char *text, bool is_durable,
                            bool *is_taken) {
    int fd;
    *is_taken = false;
    TRY(io_remove(temporary)); /* after a failure */
    TRY(io_create(temporary, &fd));
    status s = io_write(fd, temporary, text, strlen(text));
    if (!s) s = io_sync(fd, temporary);
    s = status_first(s, io_close(fd, temporary));
    if (!s) s = io_link(temporary, path, is_taken);
    s = status_first(s, io_remove(temporary));
    return s || *is_taken || !is_durable ? s : io_sync_folder_of(path);
}

/* Replaces or creates a file. The temporary file of io_replace has the name of a process of this host. */
static status write_file(const struct sweep_folder *f, const char *path, const char *text, bool exists) {
    bool is_taken = false;
    if (!f->temporary) return io_replace_text(path, text);
    if (!exists) return sweep_folder_publish(f->temporary, path, text, true, &is_taken);
    return io_replace_by(f->temporary, path, text);
}

typedef status compare_function(const struct sweep_folder *f, const char *path, const char *before, const char *now);

/* Writes the file when it is new or only differs in what may change. */
static status update_config_file(const struct sweep_folder *f, const char *path, const char *now,
                                 compare_function *compare) {
    SCOPED_STRING before = NULL;
    TRY(read_config(path, &before));
    if (!before && f->temporary) { /* another process may be the first */
        TRY(write_file(f, path, now, false));
        TRY(read_config(path, &before));
    }
    if (before && strcmp(before, now) == 0) return OK;
    if (before) TRY(compare(f, path, before, now));
    return write_file(f, path, now, before != NULL);
}

static status update_config_files(const struct sweep_folder *f, const struct sweep_file *file) {
    SCOPED_TEXT sweep = {0}, base = {0}, other = {0};
    sweep_write(sweep_file_config(file), &sweep);
    sweep_write_base(file, &base);
    bool has_other = sweep_write_other(file, &other);
    TRY(update_config_file(f, f->sweep, text_string(&sweep), compare_lines));
    TRY(update_config_file(f, f->base, text_string(&base), compare_configs));
    return has_other ? update_config_file(f, f->other, text_string(&other), compare_configs) : OK;
}

/* ---- runs of a start with or without seeds ---- */

static status has_lock_file(const char *folder, bool *out) {
    SCOPED_STRING path = text_path(folder, FOLDER_LOCK_FILE);
    struct io_info info;
    TRY(io_stat(path, &info));
    *out = info.exists;
    return OK;
}

static status move_entry(const char *from, const char *to, const char *name) {
    SCOPED_STRING old = text_path(from, name), *new = text_path(to, name);
    return io_rename(old, new);
}

/* Moves all but folders of seeds, one of which may be [to]. The lock file is the last, so that a start after a kill
 * goes on with the rest. */
static status move_entries(const char *from, const char *to) {
    SCOPED_NAMES names = {0};
    TRY(io_make_folders(to));
    TRY(io_list(from, &names));
    for (size_t i = 0; i < names.count; i++) {
        bool stays = strncmp(names.items[i], "seed-", strlen("seed-")) == 0;
        if (!stays && strcmp(names.items[i], FOLDER_LOCK_FILE) != 0) TRY(move_entry(from, to, names.items[i]));
    }
    TRY(move_entry(from, to, FOLDER_LOCK_FILE));
    return io_remove_folder(from);
}

/* Where [from] has a run and [to] none. A run that is being trained stays. */
static status move_run(const char *from, const char *to, int64_t *moved) {
    bool has_run, is_used, is_taken;
    TRY(has_lock_file(from, &has_run));
    if (!has_run) return OK;
    TRY(has_lock_file(to, &is_taken));
    TRY(folder_lock_is_held(from, &is_used));
    if (is_taken || is_used) return OK;
    TRY(move_entries(from, to));
    ++*moved;
    return OK;
}

struct move {
    const char *folder;
    const struct sweep_config *now;
    struct sweep_config before; /* with seeds where now has none, and vice versa */
    int64_t moved;
};

static status move_trial(void *user, int64_t trial) {
    struct move *m = user;
    for (int64_t fold = 0; fold < m->now->folds; fold++) { /* the runs of the first seed */
        SCOPED_STRING from = sweep_run_path(m->folder, &m->before, trial * m->before.runs + fold);
        SCOPED_STRING to = sweep_run_path(m->folder, m->now, trial * m->now->runs + fold);
        TRY(move_run(from, to, &m->moved));
    }
    return OK;
}

/* Without repeat.seeds a run is that of the first seed, but has another folder. */
static status move_runs(const struct sweep_folder *f, const struct sweep_config *now, struct log *log) {
    struct move m = {.folder = f->path, .now = now, .before = sweep_with_other_seeds(now)};
    status s = sweep_folder_visit(f, move_trial, &m);
    if (m.moved)
        log_line(log, "%s: moved %" PRId64 " run%s of the first seed, since repeat.seeds has changed", f->runs, m.moved,
                 text_plural((uint64_t)m.moved, "s"));
    return s;
}

/* ---- the folder ---- */

static void set_path(struct sweep_folder *f, const char *path) {
    f->path = arena_copy(f->arena, path);
    f->lock.folder = f->path;
    f->lock.path = arena_printf(f->arena, "%s/" FOLDER_LOCK_FILE, path);
    f->lock.text = LOCK_TEXT;
    f->lock.what = "sweep";
    f->lock.busy = "is running this sweep; wait for it, stop it, or use another --run-dir";
    f->sweep = arena_printf(f->arena, "%s/sweep.yaml", path);
    f->base = arena_printf(f->arena, "%s/" SWEEP_BASE_CONFIG, path);
    f->other = arena_printf(f->arena, "%s/" SWEEP_OTHER_CONFIG, path);
    f->runs = arena_printf(f->arena, "%s/runs", path);
    f->shared = arena_printf(f->arena, "%s/" SWEEP_SHARED, path);
}

static status check_is_alone(const struct sweep_folder *f) {
    struct io_info info;
    TRY(io_stat(f->shared, &info));
    if (!info.exists) return OK;
    return status_usage("%s: this sweep was started with --share, and other processes may be part of it; continue it "
                        "with --share, or use --fresh to start over (the old folder is kept)",
                        f->path);
}

/* Whether the folder has the lock of a sweep, or nothing at all, or only what another process has just begun. */
static status check_owner(const struct sweep_folder *f, bool *has_sweep) {
    struct io_info info;
    SCOPED_NAMES names = {0};
    enum folder_lock_state lock;
    *has_sweep = false;
    TRY(io_stat(f->path, &info));
    if (!info.exists) return OK;
    if (!info.is_folder) return status_usage("%s: not a folder; choose another --run-dir", f->path);
    TRY(folder_lock_read(&f->lock, &lock));
    *has_sweep = lock == FOLDER_LOCK_COMPLETE || lock == FOLDER_LOCK_PARTIAL;
    if (*has_sweep) return OK;
    TRY(io_list(f->path, &names));
    if (names.count == 0) return OK;
    if (names.count == 1 && strcmp(names.items[0], SWEEP_SHARED) == 0) return f->temporary ? OK : check_is_alone(f);
    return status_usage("%s: this folder is not a sweep's, and has files (%s); choose another --run-dir", f->path,
                        names.items[0]);
}

static status record_identity(struct sweep_folder *f) {
    if (f->fd < 0) TRY(io_open(f->path, &f->fd));
    TRY(io_stat_fd(f->fd, f->path, &f->folder_id));
    return io_stat_fd(f->lock.fd, f->lock.path, &f->lock_id);
}

static struct sweep_folder *folder_at(const char *path) {
    struct arena *arena = arena_create();
    struct sweep_folder *f = arena_alloc(arena, sizeof *f);
    *f = (struct sweep_folder){.arena = arena, .lock = {.fd = -1}, .fd = -1};
    set_path(f, path);
    return f;
}

status sweep_folder_open(const char *path, bool is_fresh, const struct sweep_file *file, struct log *log,
                         struct sweep_folder **out) {
    struct sweep_folder *f = folder_at(path);
    bool has_sweep;
    *out = NULL;
    status s = check_owner(f, &has_sweep);
    if (!s && has_sweep && is_fresh) s = folder_lock_rename_folder(&f->lock, log);
    if (!s) s = status_prefix(io_make_folders(f->path), "the folder of the sweep (--run-dir names another)");
    if (!s) s = folder_lock_acquire(&f->lock, log);
    if (!s) s = record_identity(f);
    if (!s) s = check_is_alone(f);
    if (!s) s = io_make_folders(f->runs);
    if (!s) s = update_config_files(f, file);
    if (!s) s = move_runs(f, sweep_file_config(file), log);
    if (s) sweep_folder_close(f);
    if (!s) *out = f;
    return s;
}

/* The file that says whose the folder is, which no process that shares it locks. */
static status mark_folder(const struct sweep_folder *f) {
    bool is_taken;
    TRY(sweep_folder_publish(f->temporary, f->lock.path, LOCK_TEXT, true, &is_taken));
    return folder_lock_check(&f->lock);
}

static status is_own_folder(const struct sweep_folder *f, const char *path, bool *out) {
    struct io_info info;
    TRY(io_stat(path, &info));
    *out = io_is_same(&info, &f->folder_id);
    return OK;
}

/* The path of the open descriptor in /proc (Linux); without /proc the plain path remains. */
static status set_by_fd(struct sweep_folder *f, const char *member) {
    const char *link = arena_printf(f->arena, "/proc/self/fd/%d", f->fd);
    bool is_own;
    TRY(is_own_folder(f, link, &is_own));
    if (!is_own) return OK;
    f->by_fd = link;
    f->temporary = arena_printf(f->arena, "%s/" SWEEP_MEMBERS "/%s/new", link, member);
    return OK;
}

status sweep_folder_open_shared(const char *path, const char *member, const struct sweep_file *file,
                                struct sweep_folder **out) {
    struct sweep_folder *f = folder_at(path);
    const char *own = arena_printf(f->arena, "%s/" SWEEP_MEMBERS "/%s", path, member);
    bool has_sweep;
    *out = NULL;
    f->by_fd = path;
    f->temporary = arena_printf(f->arena, "%s/new", own);
    status s = check_owner(f, &has_sweep);
    if (!s) s = status_prefix(io_make_folders(own), "the folder of the sweep (--run-dir names another)");
    if (!s) s = mark_folder(f);
    if (!s) s = io_make_folders(f->runs);
    if (!s) s = update_config_files(f, file);
    if (!s) s = io_open(f->path, &f->fd);
    if (!s) s = io_stat_fd(f->fd, f->path, &f->folder_id);
    if (!s) s = set_by_fd(f, member);
    if (s && has_sweep) status_free(io_remove_folder(own));
    if (s) sweep_folder_close(f);
    if (!s) *out = f;
    return s;
}

struct sweep_folder *sweep_folder_of_member(const char *own) {
    return folder_at(own);
}

void sweep_folder_close(struct sweep_folder *f) {
    if (!f) return;
    status_free(folder_lock_release(&f->lock));
    status_free(io_close(f->fd, f->path));
    arena_destroy(f->arena);
}

static status lost(const struct sweep_folder *f, const char *why) {
    return status_new(STATUS_IO,
                      "%s: %s during this sweep, which ends without writing there; run the same command again, with "
                      "--run-dir where another sweep has begun in that folder",
                      f->path, why);
}

/* The lock file was deleted or replaced. */
static status lock_again(struct sweep_folder *f, struct log *log) {
    bool is_mine;
    TRY(folder_lock_release(&f->lock));
    TRY(folder_lock_try(&f->lock, &is_mine));
    if (!is_mine) return lost(f, "another ddptrain has locked the folder");
    log_warning(log, "%s: its lock file was deleted during this sweep; it is written again", f->path);
    TRY(folder_lock_write_text(&f->lock));
    return record_identity(f);
}

static status follow_move(struct sweep_folder *f, struct log *log, bool *has_moved) {
    SCOPED_STRING now = io_path_of(f->fd);
    SCOPED_TEXT word = {0};
    if (now) TRY(is_own_folder(f, now, has_moved));
    if (!*has_moved) return lost(f, "the folder was deleted, replaced or moved out of reach");
    text_add_shell(&word, now);
    log_warning(log,
                "%s was moved to %s during this sweep, which continues there; the runs in progress continue from "
                "their checkpoints. For the next command move it back, or give --run-dir %s",
                f->path, now, text_string(&word));
    set_path(f, now);
    return OK;
}

/* A process that shares the sweep does not follow it: those that start later would not know the new path. */
static status lost_shared(const struct sweep_folder *f) {
    SCOPED_STRING now = io_path_of(f->fd);
    SCOPED_TEXT word = {0};
    bool has_moved = false;
    if (now) TRY(is_own_folder(f, now, &has_moved));
    if (!has_moved) return lost(f, "the folder was deleted, replaced or moved out of reach");
    text_add_shell(&word, now);
    return status_new(STATUS_IO,
                      "%s: the folder was moved to %s while processes share its sweep, and this one ends; start it "
                      "again with --run-dir %s",
                      f->path, now, text_string(&word));
}

status sweep_folder_follow(struct sweep_folder *f, struct log *log, bool *has_moved) {
    struct io_info lock;
    bool is_own;
    *has_moved = false;
    TRY(is_own_folder(f, f->path, &is_own));
    if (f->temporary) return is_own ? OK : lost_shared(f); /* its paths are used by others, too */
    if (!is_own) TRY(follow_move(f, log, has_moved));
    TRY(io_stat(f->lock.path, &lock));
    return io_is_same(&lock, &f->lock_id) ? OK : lock_again(f, log);
}

const char *sweep_folder_by_fd(const struct sweep_folder *f) { return f->by_fd; }

status sweep_folder_explain(const struct sweep_folder *f, status failure) {
    SCOPED_TEXT text = {0}, link = {0};
    if (!failure || !f || !f->by_fd) return failure;
    text_printf(&link, "%s/", f->by_fd);
    const char *at = status_message(failure);
    for (const char *found; (found = strstr(at, text_string(&link))); at = found + link.length) {
        text_add_bytes(&text, at, (size_t)(found - at));
        text_printf(&text, "%s/", f->path);
    }
    text_add(&text, at);
    status named = status_new(status_code(failure), "%s", text_string(&text));
    status_free(failure);
    return named;
}

const char *sweep_folder_temporary(const struct sweep_folder *f) { return f->temporary; }

uint64_t sweep_folder_inode(const struct sweep_folder *f) { return f->folder_id.inode; }

const char *sweep_folder_path(const struct sweep_folder *f) { return f->path; }

/* ---- run folders ---- */

char *sweep_trial_path(const char *folder, int64_t trial) { return text_format("%s/runs/%04" PRId64, folder, trial); }

char *sweep_run_path(const char *folder, const struct sweep_config *sweep, int64_t run) {
    int64_t seed = sweep_seed_of(sweep, run % sweep->runs), fold = sweep_fold_of(sweep, run % sweep->runs);
    struct text path = {0};
    text_printf(&path, "%s/runs/%04" PRId64 "%s", folder, run / sweep->runs, seed >= 0 || fold >= 0 ? "/" : "");
    if (seed >= 0) text_printf(&path, "seed-%" PRId64 "%s", seed, fold >= 0 ? "-" : "");
    if (fold >= 0) text_printf(&path, "fold-%" PRId64, fold);
    return path.data;
}

/* The files of [folder], but no folders, and then the folder itself where nothing else is in it. */
static status remove_files(const char *folder) {
    struct io_info info;
    SCOPED_NAMES names = {0};
    TRY(io_stat(folder, &info));
    if (!info.is_folder) return OK;
    TRY(io_list(folder, &names));
    for (size_t i = 0; i < names.count; i++) {
        SCOPED_STRING path = text_path(folder, names.items[i]);
        TRY(io_stat(path, &info));
        if (!info.is_folder) TRY(io_remove(path));
    }
    return io_remove_folder(folder);
}

/* The folders that runs make, and then the run folder. */
static status remove_run(const char *path) {
    SCOPED_STRING checkpoints = text_path(path, "checkpoints"), *logs = text_path(path, "logs");
    TRY(remove_files(checkpoints));
    TRY(remove_files(logs));
    return remove_files(path);
}

/* Adds to [why] what has become of the folder since, a clause; nothing: it is as the sweep has left it. */
static status check_run(const char *path, const struct trial_run *result, struct text *why) {
    SCOPED_TEXT other = {0};
    enum trial_folder_state state;
    TRY(trial_folder_compare(path, result, &state));
    TRY(trial_folder_find_other(path, &other));
    if (state == TRIAL_FOLDER_EXTENDED)
        text_add(why, "its run was trained further than the sweep's");
    else if (state == TRIAL_FOLDER_DIFFERS)
        text_add(why, "its run has ended with another state than the sweep's");
    else if (other.length)
        text_printf(why, "it contains %s, which no run writes", text_string(&other));
    return OK;
}

/* *is_left: one of the run folders has become the user's. */
static status check_trial(const struct sweep_folder *f, const struct sweep_config *sweep, int64_t trial,
                          const struct trial_run *results, struct log *log, bool *is_left) {
    *is_left = false;
    for (int64_t repeat = 0; repeat < sweep->runs && !*is_left; repeat++) {
        SCOPED_STRING path = sweep_run_path(f->path, sweep, trial * sweep->runs + repeat);
        SCOPED_TEXT why = {0};
        TRY(check_run(path, &results[repeat], &why));
        *is_left = why.length > 0;
        if (*is_left && log)
            log_line(log, "%s is not among the trials to keep, but %s; the folder is left as it is", path,
                     text_string(&why));
    }
    return OK;
}

status sweep_folder_remove_trial(const struct sweep_folder *f, const struct sweep_config *sweep, int64_t trial,
                                 const struct trial_run *results, struct log *log) {
    SCOPED_STRING runs = text_path(f->path, "runs"), *path = sweep_trial_path(f->path, trial);
    struct io_info info;
    bool is_left;
    TRY(io_stat(runs, &info)); /* the same name for all trials, which the kernel finds sooner */
    if (info.exists) TRY(io_stat(path, &info));
    if (!info.exists) return OK; /* most short runs have no folder */
    TRY(check_trial(f, sweep, trial, results, log, &is_left));
    if (is_left) return OK;
    for (int64_t repeat = 0; repeat < sweep->runs; repeat++) {
        SCOPED_STRING run = sweep_run_path(f->path, sweep, trial * sweep->runs + repeat);
        TRY(remove_run(run));
    }
    return io_remove_folder(path);
}

/* The node at a dotted path, of a section with a type the type; NULL: there is none. */
static const struct node *node_at(const struct node *node, const char *path) {
    while (node && *path) {
        SCOPED_STRING key = text_format("%.*s", (int)strcspn(path, "."), path);
        char *end;
        size_t index = strtoul(key, &end, 10);
        if (node->kind == NODE_SEQUENCE)
            node = end != key && !*end && index < node->count ? node->items[index] : NULL;
        else
            node = node_get(node, key);
        path += strlen(key);
        path += *path == '.';
    }
    return node && node->kind == NODE_MAPPING ? node_get(node, "type") : node;
}

/* The values of the parameters in the config of a run folder. Lists and mappings, which it has with their defaults, are
 * [unread] (*count). */
static bool read_point(const struct space *space, const char *path, struct point *out, size_t *unread, size_t *count) {
    SCOPED_PROBLEMS problems = {0};
    SCOPED_DOCUMENT document = NULL;
    SCOPED_STRING file = text_path(path, "config.yaml");
    status s = document_read(file, &problems, &document);
    bool is_good = !s && document && !problems.count;
    status_free(s);
    *count = 0;
    for (size_t i = 0; is_good && i < space->count; i++) {
        const struct parameter *p = &space->items[i];
        const struct node *node = node_at(document_root(document), p->keys ? p->keys[0] : p->path);
        bool is_text = node && node->kind == NODE_SCALAR;
        is_good = space_read(space, i, is_text ? node->text : "", &out->values[i]);
        if (is_good || p->kind != PARAMETER_VALUES) continue;
        unread[(*count)++] = i;
        is_good = true;
    }
    return is_good;
}

/* run_folder_check of a run of [trial] with [point]. */
static status check_point(const struct sweep_config *sweep, int64_t run, const struct point *point, const char *no_gpu,
                          enum run_folder_start start, const char *path) {
    SCOPED_CONFIG file = NULL;
    TRY(sweep_trial_config(sweep, run / sweep->runs, point, run % sweep->runs, &file));
    if (config_device_is_auto(config_of(file))) TRY(config_set_auto_device(file, no_gpu));
    return run_folder_check(path, start, config_of(file));
}

#define MAX_TRIES 1000

/* [point] becomes that of the run folder; false: it is not known. Values that cannot be read are tried. */
static bool find_point(const struct sweep_config *sweep, int64_t run, const char *no_gpu, const char *path,
                       struct point *point) {
    const struct space *space = &sweep->space;
    struct point before = *point;
    size_t unread[SPACE_MAX_PARAMETERS], count, tries = 1;
    if (!read_point(space, path, &before, unread, &count)) return false;
    for (size_t i = 0; i < count && tries <= MAX_TRIES; i++) tries *= space->items[unread[i]].count;
    for (size_t n = 0; tries <= MAX_TRIES && n < tries; n++) {
        struct point tried = before;
        for (size_t i = 0, rest = n; i < count; rest /= space->items[unread[i++]].count)
            tried.values[unread[i]] = (double)(rest % space->items[unread[i]].count);
        space_normalize(space, &tried);
        status s = check_point(sweep, run, &tried, no_gpu, RUN_FOLDER_ANY, path);
        status_free(s);
        if (s) continue;
        *point = tried;
        return true;
    }
    return false;
}

static status continue_run(const struct sweep_config *sweep, int64_t run, const char *no_gpu, const char *path,
                           struct log *log, struct point *point) {
    status s = check_point(sweep, run, point, no_gpu, RUN_FOLDER_ANY, path);
    if (!s) return OK;
    status_free(s);
    if (find_point(sweep, run, no_gpu, path, point)) return OK;
    s = check_point(sweep, run, point, no_gpu, RUN_FOLDER_FRESH, path);
    if (s) { /* another process is training there: the run says so */
        status_free(s);
        return OK;
    }
    log_line(log, "%s: was begun with values that cannot be read; the run starts again", path);
    return remove_run(path);
}

status sweep_folder_continue_trial(const struct sweep_folder *f, const struct sweep_config *sweep, int64_t trial,
                                   const char *no_gpu, struct log *log, struct point *point) {
    for (int64_t run = trial * sweep->runs; run < (trial + 1) * sweep->runs; run++) {
        SCOPED_STRING path = sweep_run_path(f->path, sweep, run);
        struct io_info info;
        TRY(io_stat(path, &info));
        if (info.is_folder) TRY(continue_run(sweep, run, no_gpu, path, log, point));
    }
    return OK;
}

status sweep_folder_visit(const struct sweep_folder *f, status (*visit)(void *user, int64_t trial), void *user) {
    SCOPED_NAMES names = {0};
    TRY(io_list(f->runs, &names));
    for (size_t i = 0; i < names.count; i++) {
        char *end;
        int64_t trial = strtoll(names.items[i], &end, 10);
        if (end != names.items[i] && !*end && trial >= 0) TRY(visit(user, trial));
    }
    return OK;
}
