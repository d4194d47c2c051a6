/* replay: repeats one step of a run and writes everything of it (train/loop/trace.h), by a run of its own in a
 * temporary folder that starts at the nearest checkpoint before the step, or at the beginning, and stops after it.
 * Nothing is written into the folder of the run. What the run recorded of the step, in metrics.jsonl and in its ledger,
 * is compared with what the repeated step recorded. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/files/sealed.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "optim/optimizer.h"
#include "train/folder/run_folder.h"
#include "train/metrics/metrics.h"

#define FILE_ENDING ".h5"
#define NO_IN_BACKWARD "optimizer.in_backward=false" /* has the same bits, but gradients that are not kept */

struct replay {
    const struct command_line *line;
    struct arena *arena;
    const char *folder, *out;
    int64_t step;
    const char *config; /* text; NULL: not in the folder */
    const char *name;   /* of the config */
    bool is_elastic, is_in_backward;
    char **overrides; /* (override_count) */
    size_t override_count;
    const char *from; /* checkpoint; NULL: the beginning */
    int64_t from_step;
    char *temporary;
    const char *repeated; /* the folder of the repeated run */
};

/* ---- the lines of metrics.jsonl ---- */

struct records {
    struct arena *arena;
    int64_t step;            /* wanted */
    int64_t last;            /* the largest step of all lines */
    int64_t world_size;      /* of the process that computed the step; 0: not known */
    const char *device;      /* its device; NULL: not known */
    struct ledger_line line; /* of the step; text NULL: it has none */
};

static bool visit(void *user, const char *text, size_t size) {
    struct records *r = user;
    struct ledger_line line = {.text = text, .size = size};
    int64_t step = ledger_line_int(&line, "step");
    if (step > r->last) r->last = step;
    bool is_start = metrics_line_is(text, METRICS_START) || metrics_line_is(text, METRICS_RESUME);
    int64_t first = ledger_line_int(&line, "first_step");
    if (is_start && first >= 0 && first <= r->step) {
        r->world_size = ledger_line_int(&line, "world_size");
        r->device = ledger_line_word(r->arena, &line, "device");
    }
    if (step != r->step || !metrics_line_is(text, METRICS_STEP)) return true;
    char *copy = arena_alloc(r->arena, size + 1);
    memcpy(copy, text, size);
    copy[size] = 0;
    r->line = (struct ledger_line){.text = copy, .size = size, .event = METRICS_STEP, .step = step};
    return true;
}

static status read_records(struct arena *arena, const char *folder, int64_t step, struct records *out) {
    struct line_file file = {0};
    bool has_restarted;
    *out = (struct records){.arena = arena, .step = step};
    return line_file_read(&file, arena_printf(arena, "%s/metrics.jsonl", folder), visit, out, &has_restarted);
}

/* ---- where it starts ---- */

/* *name: the checkpoint with the newest state before the step, in r->from_step, of those whose name was not made empty;
 * NULL: there is none. */
static void find_newest(struct replay *r, const struct io_names *names, const char *folder, char **name) {
    int64_t newest = -1;
    *name = NULL;
    for (size_t i = 0; i < names->count; i++) {
        struct seal seal;
        if (!checkpoint_has_ending(names->items[i])) continue;
        status s = sealed_read_seal(arena_printf(r->arena, "%s/%s", folder, names->items[i]), &seal);
        if (!s && (int64_t)seal.order < r->step && (int64_t)seal.order > newest) {
            newest = (int64_t)seal.order;
            *name = names->items[i];
        }
        status_free(s); /* a damaged file is not needed */
    }
    r->from_step = newest;
}

/* The newest valid checkpoint of a state before the step. */
static status find_checkpoint(struct replay *r) {
    const char *folder = arena_printf(r->arena, "%s/checkpoints", r->folder);
    struct io_info info;
    SCOPED_NAMES names = {0};
    char *name = NULL;
    TRY(io_stat(folder, &info));
    if (!info.is_folder) return OK;
    TRY(io_list(folder, &names));
    for (find_newest(r, &names, folder, &name); name; find_newest(r, &names, folder, &name)) {
        struct seal seal;
        const char *path = arena_printf(r->arena, "%s/%s", folder, name);
        status s = sealed_verify(path, &seal);
        if (s) fprintf(stderr, "ddptrain: skipped a checkpoint: %s\n", status_message(s));
        if (!s) r->from = path;
        status_free(s);
        if (r->from) break;
        *name = 0; /* not again */
    }
    return OK;
}

static status read_config(struct replay *r) {
    SCOPED_CONFIG file = NULL;
    struct io_info info;
    const char *path = arena_printf(r->arena, "%s/config.yaml", r->folder);
    SCOPED_STRING text = NULL;
    TRY(io_read_text(path, 1 << 24, &text, &info));
    r->config = arena_copy(r->arena, text ? text : "");
    TRY(config_load(path, r->line->overrides, r->line->override_count, &file));
    const struct config *config = config_of(file);
    r->name = arena_copy(r->arena, config->name);
    r->is_elastic = config->determinism.mode == DETERMINISM_ELASTIC;
    r->overrides = arena_alloc(r->arena, (r->line->override_count + 1) * sizeof *r->overrides);
    for (size_t i = 0; i < r->line->override_count; i++) r->overrides[r->override_count++] = r->line->overrides[i];
    r->is_in_backward = optimizer_is_in_backward(&config->optimizer);
    if (r->is_in_backward) r->overrides[r->override_count++] = arena_copy(r->arena, NO_IN_BACKWARD);
    return OK;
}

/* The config of the start that the step belongs to, as the ledger says. */
static status find_config(struct replay *r) {
    struct ledger_file ledger = {0};
    status damage = ledger_file_read(r->folder, &ledger);
    const struct ledger_line *start = damage ? NULL : ledger_start_at(&ledger, r->step - 1);
    status s = OK;
    if (start)
        s = ledger_find_config(r->arena, r->folder, &ledger, ledger_line_word(r->arena, start, "config_sha256"),
                               &r->config);
    status_free(damage); /* or absent: a later comparison says so */
    ledger_file_close(&ledger);
    if (s || r->config) return s;
    return status_data("step %lld of %s was computed with another config than its config.yaml, which no checkpoint has",
                       (long long)r->step, r->folder);
}

static status check_out(struct replay *r) {
    const char *slash = strrchr(r->folder, '/'), *name = slash ? slash + 1 : r->folder;
    if (!*name || *name == '.') name = r->name; /* the current folder */
    r->out = r->line->out ? r->line->out : arena_printf(r->arena, "%s-step-%lld" FILE_ENDING, name, (long long)r->step);
    const char *stem = strrchr(r->out, '/');
    size_t length = strlen(stem ? stem + 1 : r->out), ending = strlen(FILE_ENDING);
    struct io_info info;
    char *end = arena_printf(r->arena, "-step-%lld" FILE_ENDING, (long long)r->step);
    TRY(io_stat(r->out, &info));
    bool is_own = length > strlen(end) && strcmp(r->out + strlen(r->out) - strlen(end), end) == 0;
    if (info.exists && !(info.is_file && is_own)) return status_usage("--out %s: it exists; name a new file", r->out);
    if (length > ending && strcmp(r->out + strlen(r->out) - ending, FILE_ENDING) == 0) return io_check_replace(r->out);
    return status_usage("--out %s: it is an HDF5 file; give it a name that ends with " FILE_ENDING, r->out);
}

/* ---- the comparison ---- */

struct comparison {
    struct text equal, differences;
};

static void compare(struct comparison *c, const struct ledger_line *recorded, const struct ledger_line *repeated,
                    const char *const *keys) {
    if (recorded && repeated) ledger_line_compare(recorded, repeated, keys, &c->equal, &c->differences);
}

/* The ledger of the run may be absent (train.ledger: off). */
static status compare_ledgers(const struct replay *r, struct comparison *c) {
    static const char *const of_step[] = {"rows", "parameters", NULL}, *const of_state[] = {"state", NULL};
    struct io_info info;
    struct ledger_file recorded = {0}, repeated = {0};
    TRY(io_stat(arena_printf(r->arena, "%s/ledger.jsonl", r->folder), &info));
    if (!info.exists) return OK;
    status s = ledger_file_read(r->folder, &recorded);
    if (!s) s = ledger_file_read(r->repeated, &repeated);
    const enum metrics_event events[] = {METRICS_STEP, METRICS_CHECKPOINT};
    for (int i = 0; !s && i < 2; i++)
        compare(c, ledger_find(&recorded, events[i], r->step), ledger_find(&repeated, events[i], r->step),
                i == 0 ? of_step : of_state);
    ledger_file_close(&recorded), ledger_file_close(&repeated);
    return s;
}

static status compare_records(const struct replay *r, const struct records *recorded, const struct records *repeated) {
    static const char *const keys[] = {"loss", "lr", "samples", "grad_norm", NULL};
    static const char *const without_norm[] = {"loss", "lr", "samples", NULL}; /* optimizer.in_backward rounds it */
    struct comparison c = {0};
    if (recorded->line.text && repeated->line.text)
        compare(&c, &recorded->line, &repeated->line, r->is_in_backward ? without_norm : keys);
    status s = compare_ledgers(r, &c);
    if (!s && c.differences.length)
        s = status_new(STATUS_DIVERGED,
                       "step %lld is not the one of %s: %s%s%s. Another processor, version or number of threads can be "
                       "the reason, or data that have changed (docs/verify.md)",
                       (long long)r->step, r->folder, text_string(&c.differences), c.equal.length ? "; equal: " : "",
                       text_string(&c.equal));
    else if (!s && c.equal.length)
        printf("equal to what %s has recorded of it: %s\n", r->folder, text_string(&c.equal));
    else if (!s)
        printf("%s has recorded nothing of it, so it is not compared\n", r->folder);
    text_free(&c.equal), text_free(&c.differences);
    return s;
}

/* ---- the command ---- */

static status repeat(struct replay *r, int64_t processes, const char *device, struct records *repeated) {
    double start = clock_seconds();
    r->repeated = arena_printf(r->arena, "%s/run", r->temporary);
    status s = ledger_repeat(&(struct repetition){.name = r->folder,
                                                  .config = r->config,
                                                  .from = r->from,
                                                  .folder = r->repeated,
                                                  .device = device,
                                                  .temporary = r->temporary,
                                                  .trace = r->out,
                                                  .first = r->from ? r->from_step + 1 : 1,
                                                  .stop = r->step,
                                                  .every = r->step,
                                                  .processes = processes,
                                                  .overrides = r->overrides,
                                                  .override_count = r->override_count});
    TRY(s);
    TRY(read_records(r->arena, r->repeated, r->step, repeated));
    if (repeated->last < r->step)
        return status_data("the run that repeats %s ended before step %lld", r->folder, (long long)r->step);
    printf("step %lld of %s, from %s: %.1f s, %s\n", (long long)r->step, r->folder, r->from ? r->from : "the beginning",
           clock_seconds() - start, r->out);
    return OK;
}

static status replay(struct replay *r) {
    struct records records, repeated;
    int64_t processes;
    TRY(read_config(r));
    TRY(check_out(r));
    TRY(read_records(r->arena, r->folder, r->step, &records));
    if (r->step > records.last)
        return status_usage("--step %lld: %s has %lld step%s", (long long)r->step, r->folder, (long long)records.last,
                            text_plural((uint64_t)records.last, "s"));
    if (records.last > 0 && records.world_size <= 0)
        return status_usage("--step %lld: %s begins after it, with the state of another file", (long long)r->step,
                            r->folder);
    TRY(ledger_processes(r->line, records.world_size > 0 ? records.world_size : 1, r->is_elastic, &processes));
    TRY(find_checkpoint(r));
    TRY(find_config(r));
    TRY(command_make_folder(r->line->run_dir, "replay", &r->temporary));
    stop_defer(); /* the folder is removed first */
    TRY(repeat(r, processes, records.device, &repeated));
    return compare_records(r, &records, &repeated);
}

static status run(const struct command_line *line) {
    struct replay r = {.line = line, .folder = line->config, .step = line->step, .arena = arena_create()};
    bool is_run;
    status s = run_folder_is_readable(line->config, &is_run);
    if (!s && !is_run) s = status_usage("%s: not the folder of a run", line->config);
    if (!s && line->step < 1) s = status_usage("replay needs --step N: which update of the run, from 1");
    if (!s) s = replay(&r);
    command_remove_folder(r.temporary);
    arena_destroy(r.arena);
    return s;
}

const struct subcommand subcommand_replay = {
    .name = "replay",
    .arguments = "RUN --step N [--out FILE.h5] [KEY=FILE ...]",
    .help = "repeat a step of a run; write its rows, activations, gradients, update",
    .run = run,
    .options = OPTION_REPLAY | OPTION_OUT | OPTION_RUN_DIR,
    .operand = "folder",
    .takes_overrides = true,
    .override_prefixes = (const char *const[]){FILE_KEYS(""), NULL},
};
