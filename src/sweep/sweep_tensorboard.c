/* Writes the event file of each run of a sweep, with its parameters. TensorBoard takes the name of a folder as the name
 * of the run. */
#include "sweep/sweep_tensorboard.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "train/metrics/event_file.h"

static char *path_of(const char *folder, const struct sweep_config *sweep, int64_t run) {
    int64_t seed = sweep_seed_of(sweep, run % sweep->runs), fold = sweep_fold_of(sweep, run % sweep->runs);
    struct text path = {0};
    text_printf(&path, "%s/tensorboard/%04" PRId64, folder, run / sweep->runs);
    if (seed >= 0) text_printf(&path, "-seed-%" PRId64, seed);
    if (fold >= 0) text_printf(&path, "-fold-%" PRId64, fold);
    return path.data;
}

/* A text that is a number is shown as one. */
static struct hparam hparam_of(const char *name, const char *text) {
    char *end;
    double value = strtod(text, &end);
    bool is_number = end != text && !*end && isfinite(value);
    return (struct hparam){.name = name, .text = is_number ? NULL : text, .value = is_number ? value : 0};
}

/* The values of the parameters (count of the space, or of the words of a list); texts are in [arena]. */
static size_t list_hparams(const struct sweep_config *sweep, const struct trials *trials, int64_t trial,
                           struct arena *arena, struct hparam *out) {
    struct point point;
    size_t count = 0;
    for (; sweep->list && sweep->list[trial][count] && count < SPACE_MAX_PARAMETERS; count++) {
        char *word = arena_copy(arena, sweep->list[trial][count]), *equals = strchr(word, '=');
        *equals = 0;
        out[count] = hparam_of(word, equals + 1);
    }
    if (sweep->list) return count;
    trials_point(trials, trial, &point);
    for (size_t i = 0; i < sweep->space.count; i++) {
        const struct parameter *p = &sweep->space.items[i];
        double value = point.values[i];
        if (!space_is_active(&sweep->space, i, &point)) continue;
        out[count++] = p->kind == PARAMETER_VALUES ? hparam_of(p->path, p->texts[(size_t)value])
                                                   : (struct hparam){.name = p->path, .value = value};
    }
    return count;
}

static status write_run(const char *path, const struct sweep_config *sweep, const struct trials *trials, int64_t run) {
    const struct trial_run *result = trials_run(trials, run);
    struct hparam hparams[SPACE_MAX_PARAMETERS];
    SCOPED_ARENA arena = arena_create();
    struct event_file *file;
    TRY(event_file_open(path, 0, &file));
    size_t count = list_hparams(sweep, trials, run / sweep->runs, arena, hparams);
    event_file_add_session(file, hparams, count, result->state != TRIAL_FAILED);
    if (!isnan(result->value)) event_file_add_scalar(file, "best", sweep->metric.name, result->value);
    event_file_end_event(file, result->best_epoch);
    return event_file_close(file);
}

/* Without fsync: what is lost with the machine is written again by the next start. */
static status make_folder(const char *folder, const char *path, bool *is_new) {
    *is_new = mkdir(path, 0777) == 0;
    if (*is_new || errno == EEXIST) return OK;
    if (errno != ENOENT) return status_errno(STATUS_IO, errno, "cannot make the folder '%s'", path);
    SCOPED_STRING parent = text_path(folder, "tensorboard");
    TRY(io_make_folders(parent));
    *is_new = mkdir(path, 0777) == 0;
    if (*is_new) return OK;
    return status_errno(STATUS_IO, errno, "cannot make the folder '%s'", path);
}

#define EVENT_FILE "events.out.tfevents."

/* *is_written: the folder has an event file with content. Removes those without, which a killed start has left; with
 * [removes] all. */
static status check_files(const char *folder, bool removes, bool *is_written) {
    SCOPED_NAMES names = {0};
    *is_written = false;
    TRY(io_list(folder, &names));
    for (size_t i = 0; i < names.count; i++) {
        struct io_info info;
        if (strncmp(names.items[i], EVENT_FILE, strlen(EVENT_FILE)) != 0) continue;
        SCOPED_STRING path = text_path(folder, names.items[i]);
        TRY(io_stat(path, &info));
        if (removes || info.size == 0) TRY(io_remove(path));
        *is_written = *is_written || info.size > 0;
    }
    return OK;
}

/* Moves the file of [run] of a start with or without repeat.seeds to [path], an empty folder, if there is one. */
static status move_earlier(const char *folder, const struct sweep_config *sweep, int64_t run, const char *path,
                           bool *is_moved) {
    struct sweep_config before = sweep_with_other_seeds(sweep);
    struct io_info info;
    int64_t repeat = run % sweep->runs;
    if (repeat >= sweep->folds) return OK; /* not of the first seed */
    SCOPED_STRING earlier = path_of(folder, &before, run / sweep->runs * before.runs + repeat);
    TRY(io_stat(earlier, &info));
    *is_moved = info.exists;
    return *is_moved ? io_rename(earlier, path) : OK;
}

status sweep_tensorboard_add(const char *folder, const struct sweep_config *sweep, const struct trials *trials,
                             int64_t run, bool *is_done) {
    bool is_new, is_moved = false, is_written = false;
    if (!sweep->tensorboard || *is_done) return OK;
    SCOPED_STRING path = path_of(folder, sweep, run);
    TRY(make_folder(folder, path, &is_new));
    if (is_new) TRY(move_earlier(folder, sweep, run, path, &is_moved));
    if (!is_new || is_moved) TRY(check_files(path, false, &is_written));
    status s = is_written ? OK : write_run(path, sweep, trials, run);
    if (s) status_free(check_files(path, true, &is_written)); /* a part of the events */
    *is_done = s == OK;
    return s;
}
