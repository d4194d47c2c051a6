/* trials.csv and summary.csv, as RFC 4180 has them. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/files/io.h"
#include "sweep/trials_internal.h"

static void add_field(struct text *out, const char *field) {
    if (!strpbrk(field, ",\"\n\r")) {
        text_add(out, field);
        return;
    }
    text_add(out, "\"");
    for (const char *c = field; *c; c++) {
        if (*c == '"') text_add(out, "\"");
        text_add_bytes(out, c, 1);
    }
    text_add(out, "\"");
}

/* The keys that a list of trials sets, each once, in the order of their first use. */
static struct string_list list_keys(const struct sweep_config *sweep, struct arena *arena) {
    struct string_list keys = {0};
    size_t capacity = 0;
    for (int64_t i = 0; sweep->list && i < sweep->trials; i++)
        for (const char *const *word = sweep->list[i]; *word; word++) {
            size_t length = strcspn(*word, "="), k = 0;
            while (k < keys.count && (strncmp(keys.items[k], *word, length) != 0 || keys.items[k][length])) k++;
            if (k < keys.count) continue;
            if (keys.count == capacity) {
                const char **items = arena_alloc(arena, (capacity * 2 + 16) * sizeof *items);
                for (size_t j = 0; j < keys.count; j++) items[j] = keys.items[j];
                keys.items = items;
                capacity = capacity * 2 + 16;
            }
            keys.items[keys.count++] = arena_printf(arena, "%.*s", (int)length, *word);
        }
    return keys;
}

static void add_list_value(const char *const *words, const char *key, struct text *out) {
    size_t length = strlen(key);
    for (; *words; words++)
        if (strncmp(*words, key, length) == 0 && (*words)[length] == '=') {
            add_field(out, *words + length + 1);
            return;
        }
}

/* The fields of the parameters, each with a comma before it. trial -1: their names. */
static void add_point(const struct trials *t, int64_t trial, const struct string_list *keys, struct text *out) {
    struct point point;
    struct text value = {0};
    if (trial >= 0) trials_point(t, trial, &point);
    for (size_t i = 0; i < t->sweep->space.count; i++) {
        const struct parameter *p = &t->sweep->space.items[i];
        text_clear(&value);
        if (trial >= 0) parameter_write(p, point.values[i], &value);
        text_add(out, ",");
        add_field(out, trial < 0 ? p->path : text_string(&value));
    }
    for (size_t i = 0; i < keys->count; i++) {
        text_add(out, ",");
        if (trial < 0)
            add_field(out, keys->items[i]);
        else
            add_list_value(t->sweep->list[trial], keys->items[i], out);
    }
    text_free(&value);
}

static void add_value(struct text *out, double value) {
    text_add(out, ",");
    if (!isnan(value)) text_add_double(out, value);
}

/* Whether a complete run has a value of test rows: only then the tables have a column for them. */
static bool has_test(const struct trials *t) {
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++)
        if (t->runs[run].state == TRIAL_COMPLETE && !isnan(t->runs[run].test)) return true;
    return false;
}

static void add_test_name(const struct trials *t, struct text *out) {
    text_add(out, ",");
    sweep_add_test_name(t->sweep, out);
}

static void add_run(const struct trials *t, int64_t run, const struct string_list *keys, bool with_test,
                    struct text *out) {
    const struct trial_run *r = &t->runs[run];
    int64_t trial = run / t->sweep->runs, repeat = run % t->sweep->runs;
    text_printf(out, "%" PRId64 ",%s", trial, trial_states[r->state]);
    add_point(t, trial, keys, out);
    if (sweep_seed_of(t->sweep, repeat) >= 0) text_printf(out, ",%" PRId64, sweep_seed_of(t->sweep, repeat));
    if (sweep_fold_of(t->sweep, repeat) >= 0) text_printf(out, ",%" PRId64, sweep_fold_of(t->sweep, repeat));
    add_value(out, r->value);
    if (with_test) add_value(out, r->state == TRIAL_COMPLETE ? r->test : NAN);
    text_printf(out, ",%" PRId64 ",%" PRId64 ",%s,", r->best_epoch, r->epochs, r->state_sha256);
    add_field(out, r->message ? r->message : "");
    text_add(out, "\n");
}

static void write_table(const struct trials *t, const struct string_list *keys, struct text *out) {
    bool with_test = has_test(t);
    text_add(out, "trial,state");
    add_point(t, -1, keys, out);
    if (t->sweep->repeat.seeds != SCHEMA_NO_INT) text_add(out, ",seed");
    if (t->sweep->repeat.folds != SCHEMA_NO_INT) text_add(out, ",fold");
    text_printf(out, ",%s", t->sweep->metric.name);
    if (with_test) add_test_name(t, out);
    text_add(out, ",best_epoch,epochs,state_sha256,message\n");
    for (int64_t run = 0; run < t->sweep->trials * t->sweep->runs; run++)
        if (t->runs[run].state != TRIAL_PENDING) add_run(t, run, keys, with_test, out);
}

static void write_summary(const struct trials *t, const struct string_list *keys, struct text *out) {
    bool with_test = has_test(t);
    text_add(out, "trial,state");
    add_point(t, -1, keys, out);
    text_printf(out, ",%s,standard_error", t->sweep->metric.name);
    if (with_test) add_test_name(t, out);
    text_add(out, ",runs\n");
    for (int64_t trial = 0; trial < t->sweep->trials; trial++) {
        struct trial_summary s = trials_summary(t, trial);
        if (s.state == TRIAL_PENDING && s.complete == 0) continue;
        text_printf(out, "%" PRId64 ",%s", trial, trial_states[s.state]);
        add_point(t, trial, keys, out);
        add_value(out, s.mean);
        add_value(out, s.error);
        if (with_test) add_value(out, trials_test(t, trial));
        text_printf(out, ",%" PRId64 "\n", s.complete);
    }
}

status trials_write(struct trials *t) {
    struct arena *arena = arena_create();
    struct string_list keys = list_keys(t->sweep, arena);
    struct text text = {0};
    status s = io_sync(t->fd, t->history);
    write_table(t, &keys, &text);
    if (!s) s = io_replace_text(t->table, text_string(&text));
    text_clear(&text);
    write_summary(t, &keys, &text);
    if (!s && t->sweep->runs > 1) s = io_replace_text(t->summary, text_string(&text));
    text_free(&text);
    arena_destroy(arena);
    return s;
}
