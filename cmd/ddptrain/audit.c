/* audit, certify: verify a run. audit repeats parts of it and compares them with its ledger (train/loop/ledger.h). An
 * interval is what lies between two checkpoints of the ledger. It is repeated by a run of this program that starts from
 * the file of the first one and stops at the second one; the ledgers of both must have the same lines. Where the files
 * of checkpoints were removed, one run repeats the intervals between them. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/files/sealed.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "recorded_run.h"
#include "train/folder/run_folder.h"
#include "train/loop/trainer.h"

/* ---- the intervals ---- */

/* What lies between lines [first] and [last]: a start or a checkpoint, and a checkpoint. */
struct interval {
    size_t first, last;
    const struct ledger_line *start; /* the start or resume that the steps belong to */
    const char *checkpoint;          /* path of the file at [first]; NULL: the beginning of the run, or [is_removed] */
    bool is_removed;
    const char *config; /* the text; NULL: not in the run folder */
    size_t origin;      /* the first interval that must be repeated for it; SIZE_MAX: it cannot be */
    bool is_needed;     /* it is chosen, or one that is chosen starts from its end */
};

struct audit {
    const struct command_line *line;
    struct arena *arena;
    const char *folder;
    struct recorded_run recorded;
    size_t metrics_at;          /* the first line of metrics.jsonl that may be of the next interval */
    struct interval *intervals; /* (interval_count) */
    size_t interval_count, possible, chosen, repeated; /* possible: those that can be repeated */
    size_t compared;                                   /* lines */
    char *temporary;                                   /* the folder of the repeated runs */
    const char *run, *state;                           /* the newest of them, and the checkpoint at its end */
};

/* The intervals between the start and the checkpoints. A checkpoint at the step of the one before replaces it. */
static void find_intervals(struct audit *a) {
    const struct ledger_file *l = &a->recorded.ledger;
    const struct ledger_line *start = &l->lines[0];
    size_t first = 0;
    a->intervals = arena_alloc(a->arena, l->count * sizeof *a->intervals);
    for (size_t i = 1; i < l->count; i++) {
        if (l->lines[i].event == METRICS_RESUME) start = &l->lines[i];
        if (l->lines[i].event != METRICS_CHECKPOINT || ledger_line_has(&l->lines[i], "pending")) continue;
        if (l->lines[i].step > l->lines[first].step)
            a->intervals[a->interval_count++] = (struct interval){.first = first, .last = i, .start = start};
        first = i;
    }
}

/* The checkpoint with whose state the ledger begins; NULL: it is not in the folder. */
static const char *find_beginning(const struct audit *a) {
    const struct ledger_line *first = &a->recorded.ledger.lines[0];
    long long step = first->step, epoch = ledger_line_int(first, "epoch");
    const char *const paths[] = {arena_printf(a->arena, "%s/checkpoints/step-%08lld.h5", a->folder, step),
                                 arena_printf(a->arena, "%s/checkpoints/epoch-%04lld.h5", a->folder, epoch)};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct seal seal;
        status s = recorded_file(paths[i]) ? sealed_read_seal(paths[i], &seal) : status_data("no file");
        bool is_found = !s && (int64_t)seal.order == step;
        status_free(s);
        if (is_found) return paths[i];
    }
    return NULL;
}

/* Where each interval can start, and with which config. */
static void find_files(struct audit *a) {
    for (size_t i = 0; i < a->interval_count; i++) {
        struct interval *p = &a->intervals[i];
        int64_t step = a->recorded.ledger.lines[p->first].step;
        p->config = recorded_config(&a->recorded, p->start);
        if (step > a->recorded.ledger.lines[0].step) {
            p->checkpoint = recorded_checkpoint(&a->recorded, p->first);
            p->is_removed = !p->checkpoint;
        } else if (step > 0) { /* the beginning of the ledger, but not of the run */
            p->checkpoint = find_beginning(a);
        }
    }
}

/* After find_files. An interval that starts from a file that was removed is repeated after the one before it. */
static void find_origins(struct audit *a) {
    for (size_t i = 0; i < a->interval_count; i++) {
        struct interval *p = &a->intervals[i];
        size_t before = i > 0 ? p[-1].origin : SIZE_MAX;
        p->origin = !p->config ? SIZE_MAX : p->is_removed ? before : i;
        a->possible += p->origin != SIZE_MAX;
    }
}

/* ---- whether this machine can repeat it ---- */

static status count_processes(const struct audit *a, const struct interval *p, int64_t *out) {
    return ledger_processes(a->line, ledger_line_int(p->start, "world_size"), ledger_line_int(p->start, "elastic") == 1,
                            out);
}

static status check_processor(const struct audit *a, const struct interval *p) {
    const char *processor = ledger_line_word(a->arena, p->start, "processor");
    const char *where = ledger_line_word(a->arena, p->start, "device");
    return ledger_check_processor(a->folder, processor, where, ledger_line_int(p->start, "portable") == 1);
}

/* ---- choosing intervals ---- */

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Intervals that can be repeated are chosen with the same probability; they could not be known when the run was made.
 */
static status choose(struct audit *a, uint64_t seed) {
    const struct command_line *line = a->line;
    size_t possible = a->possible, wanted = a->interval_count, left;
    if (a->interval_count == 0)
        return status_data("%s: the run has no checkpoint yet, so there is nothing to repeat", a->recorded.ledger.path);
    if (possible == 0)
        return status_data(
            "%s: no interval of the run can be repeated: the configs of its starts are not in the folder", a->folder);
    double fraction = line->fraction >= 0 ? line->fraction : 0.1;
    if (line->intervals >= 0)
        wanted = (size_t)line->intervals;
    else if (!line->is_all)
        wanted = (size_t)ceil(fraction * (double)a->interval_count);
    wanted = wanted < 1 ? 1 : wanted > possible ? possible : wanted;
    left = possible;
    for (size_t i = 0; i < a->interval_count; i++) {
        if (a->intervals[i].origin == SIZE_MAX) continue;
        bool is_chosen = left > 0 && next_random(&seed) % left < wanted - a->chosen;
        for (size_t k = i + 1; is_chosen && k-- > a->intervals[i].origin && !a->intervals[k].is_needed;)
            a->intervals[k].is_needed = true;
        a->chosen += is_chosen;
        left--;
    }
    if (possible < a->interval_count)
        printf("%zu of %zu intervals cannot be repeated, since the config of their start is not in the folder\n",
               a->interval_count - possible, a->interval_count);
    return OK;
}

/* ---- repeating an interval ---- */

static int64_t first_step(const struct audit *a, const struct interval *p) {
    return a->recorded.ledger.lines[p->first].step + 1;
}
static int64_t last_step(const struct audit *a, const struct interval *p) {
    return a->recorded.ledger.lines[p->last].step;
}

/* STATUS_DIVERGED with the fields of line [index] that [other], its repetition, does not have. */
static status compare(const struct audit *a, size_t index, const struct ledger_line *other, const char *const *keys) {
    const struct ledger_line *line = &a->recorded.ledger.lines[index];
    SCOPED_TEXT differences = {0}, equal = {0};
    ledger_line_compare(line, other, keys, &equal, &differences);
    status s = OK;
    /* data are the same on every processor */
    bool is_portable = ledger_line_int(&a->recorded.ledger.lines[0], "portable") == 1 || strcmp(keys[0], "epoch") != 0;
    if (differences.length)
        s = status_new(STATUS_DIVERGED, "%s:%zu: step %lld differs: %s%s%s%s", a->recorded.ledger.path, index + 1,
                       (long long)line->step, text_string(&differences), equal.length ? "; equal: " : "",
                       text_string(&equal),
                       is_portable ? "" : " (without determinism.portable, bits may depend on the number of threads)");
    return s;
}

static status compare_line(struct audit *a, size_t index, const struct ledger_line *other, const char *const *keys) {
    if (!other)
        return status_new(STATUS_DIVERGED, "%s:%zu: the repeated run has no such line for step %lld",
                          a->recorded.ledger.path, index + 1, (long long)a->recorded.ledger.lines[index].step);
    a->compared++;
    return compare(a, index, other, keys);
}

/* The data and the state that the repetition of [p] started from. */
static status compare_start(struct audit *a, const struct interval *p, const struct ledger_file *again) {
    static const char *const of_state[] = {"epoch", "state", NULL};
    const struct ledger_file *l = &a->recorded.ledger;
    const struct ledger_line *start = ledger_find(again, METRICS_START, -1);
    bool has_file = ledger_line_has(p->start, "sampler_sha256"); /* of the order of the rows */
    const char *const of_data[] = {"dataset_fingerprint", has_file ? "sampler_sha256" : NULL, NULL};
    TRY(compare_line(a, (size_t)(p->start - l->lines), start, of_data));
    if (start && start->step == 0 && p->first == 0 && l->lines[0].step > 0)
        return status_data(
            "%s: it begins after step %lld, and the checkpoint of that step is not in the folder, so the "
            "steps to the next checkpoint cannot be repeated",
            l->path, (long long)l->lines[0].step);
    bool have_states = ledger_line_has(start, "state") && ledger_line_has(&l->lines[p->first], "state");
    return have_states ? compare_line(a, p->first, start, of_state) : OK; /* a sharded one is not whole at a start */
}

/* The line of the repetition for the checkpoint of [line]: after skipped batches a step is that of several states. */
static const struct ledger_line *find_saved(const struct ledger_file *again, const struct ledger_line *line) {
    for (size_t i = 0; i < again->count; i++) {
        const struct ledger_line *other = &again->lines[i];
        if (other->event == METRICS_CHECKPOINT && other->step == line->step &&
            ledger_line_equals(other, line, "epoch") && ledger_line_equals(other, line, "batch"))
            return other;
    }
    return ledger_find(again, METRICS_CHECKPOINT, line->step);
}

/* The lines of an interval with those of its repetition. */
static status compare_interval(struct audit *a, const struct interval *p, const struct ledger_file *again) {
    static const char *const of_step[] = {"epoch", "rows", "loss", "grad_norm", "parameters", NULL};
    static const char *const of_state[] = {"epoch", "batch", "state", NULL}, *const of_end[] = {"epoch", "state_sha256",
                                                                                                NULL};
    const struct ledger_file *l = &a->recorded.ledger;
    size_t steps = 0, steps_again = 0, at = 0;
    for (size_t i = 0; i < again->count; i++) {
        int64_t step = again->lines[i].step;
        steps_again += again->lines[i].event == METRICS_STEP && step >= first_step(a, p) && step <= last_step(a, p);
    }
    for (size_t i = p->first + 1; i <= p->last; i++) {
        int64_t step = l->lines[i].step;
        if (l->lines[i].event != METRICS_STEP) continue;
        while (at < again->count && (again->lines[at].event != METRICS_STEP || again->lines[at].step < step)) at++;
        bool is_found = at < again->count && again->lines[at].step == step;
        TRY(compare_line(a, i, is_found ? &again->lines[at] : NULL, of_step));
        steps++;
    }
    if (steps != steps_again)
        return status_new(STATUS_DIVERGED, "%s: %zu lines for steps %lld to %lld, and %zu when they are repeated",
                          l->path, steps, (long long)first_step(a, p), (long long)last_step(a, p), steps_again);
    TRY(compare_line(a, p->last, find_saved(again, &l->lines[p->last]), of_state));
    bool has_end = p->last + 1 < l->count && ledger_line_has(&l->lines[p->last + 1], "state_sha256");
    return has_end ? compare_line(a, p->last + 1, &again->lines[again->count - 1], of_end) : OK;
}

/* The first line of a step at or after [from], from line [at] on; count: there is none. */
static size_t next_step(const struct ledger_file *m, size_t at, int64_t from) {
    while (at < m->count && (m->lines[at].event != METRICS_STEP || m->lines[at].step < from)) at++;
    return at;
}

#define REPEATED "when it is repeated"

/* The numbers of rows that all starts of metrics.jsonl have, and what each process had, if the repetition has as many.
 */
static status compare_starts(const struct audit *a, const struct ledger_file *again) {
    static const char *const keys[] = {"train_rows", "val_rows", "test_rows", "batch_size"};
    const struct ledger_file *m = &a->recorded.metrics;
    const struct ledger_line *repeated = again->count ? &again->lines[0] : NULL;
    for (size_t i = 0; i < m->count && repeated; i++) {
        const struct ledger_line *line = &m->lines[i];
        if (line->event != METRICS_START && line->event != METRICS_RESUME) continue;
        size_t count = sizeof keys / sizeof *keys - !ledger_line_equals(line, repeated, "world_size");
        for (size_t k = 0; k < count; k++)
            if (!ledger_line_equals(line, repeated, keys[k]))
                return recorded_metrics_differ(&a->recorded, line,
                                               arena_printf(a->arena, "%s is not that of its repetition", keys[k]));
    }
    return OK;
}

/* The lines of metrics.jsonl for the steps of [count] intervals, and for the epochs that ended in them, with those of
 * their repetition. */
static status compare_metrics(struct audit *a, const struct interval *p, size_t count,
                              const struct ledger_file *again) {
    const struct ledger_file *m = &a->recorded.metrics;
    size_t at = next_step(m, a->metrics_at, first_step(a, p));
    for (size_t i = 0; i < again->count && m->count > 0; i++) {
        const struct ledger_line *other = &again->lines[i], *line = at < m->count ? &m->lines[at] : NULL;
        bool is_step = other->event == METRICS_STEP;
        if (!is_step && other->event != METRICS_EPOCH) continue;
        int64_t number = is_step ? other->step : ledger_line_int(other, "epoch");
        if (!is_step) line = recorded_find_epoch(&a->recorded, number);
        if (is_step && line && line->step < number)
            return recorded_metrics_differ(&a->recorded, line, "no such line " REPEATED);
        if (!line || (is_step && line->step > number))
            return status_new(STATUS_DIVERGED, "%s: it has no line of %s %lld, which is there " REPEATED, m->path,
                              is_step ? "step" : "epoch", (long long)number);
        TRY(recorded_compare_fields(&a->recorded, line, other, true, REPEATED));
        if (is_step) at = next_step(m, at + 1, 0);
    }
    a->metrics_at = at;
    const struct ledger_line *end = recorded_end(m), *other_end = recorded_end(again);
    bool is_end = end && other_end && end->event == other_end->event && end->step == other_end->step;
    if (is_end && ledger_line_equals(end, other_end, "test_checkpoint"))
        TRY(recorded_compare_fields(&a->recorded, end, other_end, false, REPEATED));
    bool is_more = m->count > 0 && at < m->count && m->lines[at].step <= last_step(a, &p[count - 1]);
    return is_more ? recorded_metrics_differ(&a->recorded, &m->lines[at], "no such line " REPEATED) : OK;
}

/* What the run has saved at the end of [p] with [path], which its repetition has saved there. */
static status compare_saved(struct audit *a, const struct interval *p, const char *path) {
    bool is_best = a->recorded.best_step == last_step(a, p);
    SCOPED_CHECKPOINT repeated = NULL;
    if (a->repeated > 0 && !is_best && !recorded_checkpoint(&a->recorded, p->last)) return OK;
    TRY(checkpoint_open(path, &repeated));
    TRY(recorded_compare_checkpoint(&a->recorded, p->last, repeated));
    return recorded_compare_constants(&a->recorded, repeated);
}

/* Repeats [count] intervals in a new [folder], as one run. */
static status run_intervals(const struct audit *a, const struct interval *p, size_t count, const char *folder) {
    SCOPED_TEXT ends = {0}; /* of all but the last one */
    for (size_t i = 0; i + 1 < count; i++) text_printf(&ends, "%s%lld", i ? "," : "", (long long)last_step(a, &p[i]));
    struct repetition r = {.name = a->folder,
                           .config = p->config,
                           .from = p->is_removed ? a->state : p->checkpoint,
                           .folder = folder,
                           .device = ledger_line_word(a->arena, p->start, "device"),
                           .temporary = a->temporary,
                           .save_at = ends.length ? text_string(&ends) : NULL,
                           .first = first_step(a, p),
                           .stop = last_step(a, &p[count - 1]),
                           .every = ledger_line_int(p->start, "every"),
                           .overrides = a->line->overrides,
                           .override_count = a->line->override_count};
    TRY(count_processes(a, p, &r.processes));
    return ledger_repeat(&r);
}

/* Repeats [count] intervals from [index] on and compares them. The checkpoint at their end stays for what follows. */
static status repeat(struct audit *a, size_t index, size_t count) {
    const struct interval *p = &a->intervals[index], *last = &p[count - 1];
    struct ledger_file again = {0}, metrics = {0};
    const char *folder = arena_printf(a->arena, "%s/interval-%zu", a->temporary, index);
    double start = clock_seconds();
    size_t before = a->compared;
    status s = run_intervals(a, p, count, folder);
    if (!s) s = ledger_file_read(folder, &again);
    if (!s) s = compare_start(a, p, &again);
    for (size_t i = 0; !s && i < count; i++) s = compare_interval(a, &p[i], &again);
    if (!s) s = ledger_file_read_metrics(folder, &metrics);
    if (!s) s = compare_starts(a, &metrics);
    if (!s) s = compare_metrics(a, p, count, &metrics);
    if (!s) {
        const struct ledger_line *end = ledger_find(&again, METRICS_CHECKPOINT, last_step(a, last));
        if (a->run) command_remove_tree(a->run);
        a->run = folder;
        a->state = arena_printf(a->arena, "%s/checkpoints/%s.h5", folder, ledger_line_word(a->arena, end, "name"));
        s = compare_saved(a, last, a->state);
    }
    ledger_file_close(&again), ledger_file_close(&metrics);
    TRY(s);
    a->repeated += count;
    printf("steps %lld to %lld: equal, %zu lines, ", (long long)first_step(a, p), (long long)last_step(a, last),
           a->compared - before);
    if (count > 1) printf("%zu intervals, ", count);
    printf("%.1f s\n", clock_seconds() - start);
    fflush(stdout);
    return OK;
}

/* With 95 % confidence at most so many of all intervals differ when [chosen] of them, chosen at random, do not: the
 * largest number of which a choice of [chosen] misses all with a probability of 5 %. */
static size_t most_differing(size_t intervals, size_t chosen) {
    double missed = 1;
    size_t differing = 0;
    while (differing + chosen < intervals) {
        missed *= (double)(intervals - chosen - differing) / (double)(intervals - differing);
        if (missed < 0.05) break;
        differing++;
    }
    return differing;
}

/* The number of needed intervals from [index] on that one run repeats: none starts from a file, and no file was saved
 * where one ends. At most MAX_SAVE_STEPS, so that a difference is found before the whole run was repeated. */
static size_t count_together(const struct audit *a, size_t index) {
    const struct interval *p = &a->intervals[index];
    size_t count = 1, left = a->interval_count - index;
    while (count < left && count < MAX_SAVE_STEPS && p[count].is_needed && p[count].is_removed &&
           p[count].start == p->start && last_step(a, &p[count - 1]) != a->recorded.best_step)
        count++;
    return count;
}

/* The chosen intervals in order, each with those before it that its start needs. */
static status repeat_chosen(struct audit *a) {
    for (size_t i = 0, count; i < a->interval_count; i += count) {
        count = a->intervals[i].is_needed ? count_together(a, i) : 1;
        if (a->intervals[i].is_needed) TRY(repeat(a, i, count));
    }
    return OK;
}

/* ---- statements ---- */

/* An in-toto statement (version 1 of its specification) about a run that has ended: which files it is about, by their
 * SHA-256, and what they were made from. Its text is a function of the run folder, so a statement is proved by making
 * it again. */

#define STATEMENT "https://in-toto.io/Statement/v1"
#define PREDICATE "urn:ddptrain:training:1"

static status file_sha256(const char *path, char hex[DIGEST_HEX_SIZE]) {
    static char bytes[1 << 16];
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    size_t got;
    int fd;
    digest_start(&digest);
    TRY(io_open(path, &fd));
    status s = OK;
    do {
        s = io_read(fd, path, bytes, sizeof bytes, &got);
        if (!s) digest_add(&digest, bytes, got);
    } while (!s && got == sizeof bytes);
    digest_finish(&digest, hash);
    digest_hex(hash, hex);
    return status_first(s, io_close(fd, path));
}

static status add_subject(const struct audit *a, const char *name, struct text *out) {
    char hex[DIGEST_HEX_SIZE];
    SCOPED_STRING path = text_path(a->folder, name);
    TRY(file_sha256(path, hex));
    text_add(out, "    {\"name\": ");
    text_add_json(out, name);
    text_printf(out, ", \"digest\": {\"sha256\": \"%s\"}},\n", hex);
    return OK;
}

/* The newest checkpoint, and the best one if the run kept it. */
static status add_weights(const struct audit *a, struct text *out) {
    const struct ledger_line *newest = ledger_find(&a->recorded.ledger, METRICS_CHECKPOINT, -1);
    if (!newest) return status_data("%s: no checkpoint", a->recorded.ledger.path);
    TRY(add_subject(a, arena_printf(a->arena, "checkpoints/%s.h5", ledger_line_word(a->arena, newest, "name")), out));
    return a->recorded.best ? add_subject(a, "checkpoints/" CHECKPOINT_BEST ".h5", out) : OK;
}

static void add_copy(const struct ledger_line *line, const char *key, const char *name, const char *after,
                     struct text *out) {
    text_printf(out, "\"%s\": ", name);
    ledger_line_add(line, key, out);
    text_add(out, after);
}

static status write_statement(const struct audit *a, struct text *out) {
    const struct ledger_file *l = &a->recorded.ledger;
    const struct ledger_line *start = ledger_start_at(l, INT64_MAX), *end = &l->lines[l->count - 1];
    if (end->event != METRICS_END) return status_data("%s: the run has not ended", l->path);
    text_add(out, "{\n  \"_type\": \"" STATEMENT "\",\n  \"subject\": [\n");
    TRY(add_weights(a, out));
    TRY(add_subject(a, "config.yaml", out));
    TRY(add_subject(a, "ledger.jsonl", out));
    out->data[out->length -= 2] = 0; /* the comma */
    text_add(out, "\n  ],\n  \"predicateType\": \"" PREDICATE "\",\n  \"predicate\": {\n    ");
    add_copy(start, "program", "program", ", ", out);
    add_copy(start, "world_size", "world_size", ", ", out);
    add_copy(start, "portable", "portable", ", ", out);
    add_copy(start, "elastic", "elastic", ",\n    ", out);
    add_copy(start, "dataset_fingerprint", "dataset_fingerprint", ",\n    ", out);
    text_printf(out, "\"ledger\": {\"lines\": %zu, \"chain\": \"%s\"},\n    ", l->count, l->chain);
    add_copy(end, "epoch", "epoch", ", ", out);
    add_copy(end, "step", "step", ",\n    ", out);
    add_copy(end, "state_sha256", "state_sha256", "\n  }\n}\n", out);
    return OK;
}

/* Whether two values differ; then *a and *b are the first values that do, NULL where there is none, and [path] has
 * where they are: "subject[0].digest". Keys are compared in any order. */
static bool find_difference(const json_t **a, const json_t **b, struct text *path) {
    const json_t *x = *a, *y = *b;
    const char *key;
    json_t *value;
    if (x && y && json_equal(x, y)) return false;
    bool are_objects = json_is_object(x) && json_is_object(y), are_arrays = json_is_array(x) && json_is_array(y);
    size_t count = !are_arrays ? 0 : json_array_size(x) > json_array_size(y) ? json_array_size(x) : json_array_size(y);
    for (int side = 0; side < 2 && are_objects; side++) /* keys of both */
        json_object_foreach((json_t *)(uintptr_t)(side ? y : x), key, value) {
            *a = json_object_get(x, key), *b = json_object_get(y, key);
            size_t before = path->length;
            text_printf(path, "%s%s", before ? "." : "", key);
            if (find_difference(a, b, path)) return true;
            path->data[path->length = before] = 0;
        }
    for (size_t i = 0; i < count; i++) {
        *a = json_array_get(x, i), *b = json_array_get(y, i);
        size_t before = path->length;
        text_printf(path, "[%zu]", i);
        if (find_difference(a, b, path)) return true;
        path->data[path->length = before] = 0;
    }
    *a = x, *b = y;
    return true;
}

static void add_json(const json_t *value, struct text *out) {
    SCOPED_STRING text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    if (text)
        text_add_value(out, text, 400);
    else
        text_add(out, "missing");
}

static status statement_differs(const struct audit *a, const json_t *then, const json_t *now) {
    SCOPED_TEXT why = {0};
    if (find_difference(&then, &now, &why)) {
        text_add(&why, " is ");
        add_json(then, &why);
        text_add(&why, ", and here it is ");
        add_json(now, &why);
    }
    return status_new(STATUS_DIVERGED, "%s: the statement is not about this folder: %s", a->line->statement,
                      text_string(&why));
}

/* Values are compared: the tools that sign statements write them in their own way. */
static status compare_statement(const struct audit *a) {
    SCOPED_TEXT text = {0};
    SCOPED_STRING file = NULL;
    struct io_info info;
    json_error_t error = {0};
    TRY(io_read_text(a->line->statement, 1 << 20, &file, &info));
    if (!file) return status_new(STATUS_IO, "%s: there is no such file", a->line->statement);
    json_auto_t *then = json_loads(file, JSON_REJECT_DUPLICATES, &error);
    const char *type = json_string_value(json_object_get(then, "predicateType"));
    if (!type || strcmp(type, PREDICATE) != 0)
        return status_data("%s: not a statement of ddptrain certify%s%s", a->line->statement, error.text[0] ? ": " : "",
                           error.text);
    TRY(write_statement(a, &text));
    json_auto_t *now = json_loads(text_string(&text), 0, &error);
    if (!json_equal(then, now)) return statement_differs(a, then, now);
    printf("%s: the statement is about the files of this folder\n", a->line->statement);
    return OK;
}

/* ---- the command ---- */

static status prepare(struct audit *a) {
    const struct ledger_file *l = &a->recorded.ledger;
    TRY(recorded_run_read(a->folder, &a->recorded));
    find_intervals(a);
    if (a->line->statement) TRY(compare_statement(a));
    find_files(a);
    find_origins(a);
    for (size_t i = 0; i < a->interval_count; i++) {
        int64_t processes;
        TRY(count_processes(a, &a->intervals[i], &processes));
        TRY(check_processor(a, &a->intervals[i]));
    }
    const struct ledger_line *last = &l->lines[l->count - 1];
    printf("%s: %zu lines, the chain is whole: %s\n", l->path, l->count, l->chain);
    if (l->lines[0].step > 0)
        printf("it begins after step %lld, with the state of checkpoint.resume or of a time without a ledger\n",
               (long long)l->lines[0].step);
    if (a->recorded.best_since)
        printf("best.h5 is that of the best epoch since the resume of step %lld: it was lost then, or the names of the "
               "best epoch were changed\n",
               (long long)a->recorded.best_since->step + 1);
    if (last->event == METRICS_END) printf("the run ended after step %lld\n", (long long)last->step);
    return OK;
}

static void print_result(const struct audit *a) {
    size_t differing = most_differing(a->possible, a->chosen) + a->interval_count - a->possible;
    size_t left = a->interval_count - a->repeated; /* those that the chosen ones needed are proven, too */
    if (differing > left) differing = left;
    printf("\n%zu of %zu interval%s repeated, all equal (%zu lines): ", a->repeated, a->interval_count,
           text_plural(a->interval_count, "s"), a->compared);
    if (a->repeated == a->interval_count)
        printf("the run is as recorded\n");
    else
        printf("with 95 %% confidence at least %zu %% of its intervals are as recorded\n",
               100 * (a->interval_count - differing) / a->interval_count);
}

static status check_choice(const struct command_line *line) {
    bool has_fraction = line->fraction >= 0, has_intervals = line->intervals >= 0;
    if (line->is_all + has_fraction + has_intervals > 1)
        return status_usage("--all, --fraction and --intervals exclude each other; give one of them");
    if (has_fraction && !(line->fraction > 0 && line->fraction <= 1))
        return status_usage("--fraction: expected a number above 0 and at most 1, got %g", line->fraction);
    return line->intervals == 0 ? status_usage("--intervals: expected at least 1, got 0") : OK;
}

static status repeat_parts(struct audit *a) {
    uint64_t seed = (uint64_t)a->line->seed;
    TRY(check_choice(a->line));
    TRY(ledger_check_ended(a->folder));
    TRY(prepare(a));
    if (a->line->seed < 0 && getrandom(&seed, sizeof seed, 0) != sizeof seed)
        return status_new(STATUS_IO, "the system gives no random numbers");
    seed &= INT32_MAX;
    if (!a->line->is_all && a->interval_count > 1)
        printf("intervals are chosen with --seed %llu\n", (unsigned long long)seed);
    TRY(choose(a, seed));
    TRY(command_make_folder(a->line->run_dir, "audit", &a->temporary));
    stop_defer(); /* the folder is removed first */
    TRY(repeat_chosen(a));
    if (a->recorded.late) return OK;
    if (a->recorded.lacks_end)
        return status_new(STATUS_DIVERGED,
                          "%s/metrics.jsonl: it does not end with the end of the run, which the ledger has: lines were "
                          "removed, or the file was",
                          a->folder);
    print_result(a);
    return OK;
}

/* What is known without a repetition is reported after it, unless that has found a difference, too. */
static status take_late(struct audit *a, status s) {
    if (!a->recorded.late || status_code(s) == STATUS_DIVERGED) return s;
    status late = a->recorded.late;
    a->recorded.late = OK;
    status_free(s);
    return late;
}

static status audit(struct audit *a) { return take_late(a, repeat_parts(a)); }

/* Only an earlier statement is replaced. */
static status check_out(const char *path) {
    struct io_info info;
    SCOPED_STRING text = NULL;
    TRY(io_stat(path, &info));
    if (!info.exists) return OK;
    if (info.is_file) TRY(io_read_text(path, 1 << 20, &text, &info));
    bool is_statement = text && strstr(text, PREDICATE);
    return is_statement ? OK : status_usage("--out %s: it exists and is no statement; name a new file", path);
}

/* What a statement is about although no hash of the ledger says it. */
static void print_gaps(const struct recorded_run *r) {
    if (r->ledger.lines[0].step > 0)
        fprintf(stderr, "the ledger begins after step %lld\n", (long long)r->ledger.lines[0].step);
    if (r->best && !r->is_best_compared)
        fprintf(stderr,
                "%s: the ledger has no hash of step %lld, so its weights are not compared; ddptrain audit --all does\n",
                r->best, (long long)r->best_step);
}

static status certify(struct audit *a) {
    SCOPED_TEXT text = {0};
    status s = take_late(a, recorded_run_read(a->folder, &a->recorded));
    if (!s) s = write_statement(a, &text);
    if (!s) print_gaps(&a->recorded);
    const char *out = a->line->out && strcmp(a->line->out, "-") != 0 ? a->line->out : NULL;
    if (!s && out) s = check_out(out);
    if (!s && out) s = io_replace_text(out, text_string(&text));
    if (!s && !out) fputs(text_string(&text), stdout);
    return s;
}

static status run(const struct command_line *line, status (*work)(struct audit *a)) {
    struct audit a = {.line = line, .folder = line->config, .arena = arena_create()};
    bool is_run;
    status s = run_folder_is_readable(line->config, &is_run);
    if (!s && !is_run) s = status_usage("%s: not the folder of a run", line->config);
    if (!s) s = work(&a);
    command_remove_folder(a.temporary);
    recorded_run_close(&a.recorded);
    arena_destroy(a.arena);
    return s;
}

static status run_audit(const struct command_line *line) { return run(line, audit); }
static status run_certify(const struct command_line *line) { return run(line, certify); }

const struct subcommand subcommand_audit = {
    .name = "audit",
    .arguments = "RUN [KEY=FILE ...] [options]",
    .help = "repeat parts of a run and compare them with its ledger",
    .run = run_audit,
    .options = OPTION_AUDIT | OPTION_SEED | OPTION_RUN_DIR,
    .operand = "folder",
    .takes_overrides = true,
    .override_prefixes = (const char *const[]){FILE_KEYS(""), NULL},
};

const struct subcommand subcommand_certify = {
    .name = "certify",
    .arguments = "RUN [--out FILE]",
    .help = "an in-toto statement about a run that has ended, which audit --statement proves",
    .run = run_certify,
    .options = OPTION_OUT,
    .writes_stdout = true,
    .operand = "folder",
};
