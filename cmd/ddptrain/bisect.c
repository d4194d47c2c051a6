/* bisect: the first step at which two runs part, and what parts first there. What both have recorded (ledger.jsonl,
 * metrics.jsonl, checkpoints) bounds the search; from the newest checkpoint that is equal in both, or from the
 * beginning, both are repeated by runs of this program that write a line of a ledger for each step. What differs from
 * its own repetition is not what its config gives. Where all steps are equal, evaluations and the ends may differ. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/stop.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "optim/optimizer.h"
#include "train/folder/run_folder.h"

#define NO_STEP INT64_MAX

/* A checkpoint of a run. */
struct own_file {
    const char *name, *path;
    int64_t step;
};

struct side {
    const char *name;   /* the operand */
    const char *prefix; /* of its own overrides */
    char **overrides;   /* (override_count) */
    size_t override_count;
    bool is_run; /* else a config, which has recorded nothing */
    struct config_file *file;
    const char *text;                   /* of [file] */
    struct ledger_file ledger, metrics; /* what it has recorded; count 0: nothing */
    struct own_file *files;             /* (file_count) likewise, in order of names */
    size_t file_count;
    int64_t last;       /* newest step that it has recorded; NO_STEP: a config */
    const char *edited; /* a sentence, if its config.yaml is not that of the run; else NULL */

    int64_t at;               /* the repetition continues after this step */
    const char *state;        /* from this checkpoint; NULL: from the beginning */
    const char *state_folder; /* of the repetition that has saved it; NULL: none */
    const char *config;
    int64_t processes;
    const char *folder;                      /* of the newest repetition */
    struct ledger_file again, again_metrics; /* its lines */
    int64_t known;                           /* newest recorded step that its repetition has confirmed */
    int64_t wrong;                           /* the first one that it has not; NO_STEP: none */
    const char *why;                         /* a sentence about it */
};

/* An epoch or an end whose results differ. */
struct result {
    int64_t step;      /* after which it was; NO_STEP: none */
    const char *words; /* "val_loss of epoch 1 is 0.5 in a and 0.6 in b" */
};

struct bisect {
    const struct command_line *line;
    struct arena *arena;
    struct side sides[2];
    char *temporary;
    size_t runs;          /* repeated ones, which number their folders */
    int64_t equal;        /* newest step that is equal in both */
    int64_t bad;          /* the first that is recorded and differs; NO_STEP: none, or both compute the same there */
    int64_t recorded;     /* the same of runs with the same config, whatever they compute */
    int64_t parted;       /* the first step that differs between the repetitions; NO_STEP: none */
    struct result result; /* the first one that differs before that step */
    bool keeps_start;     /* the next repetition begins where this one has */
    bool is_trusted;      /* what both have recorded is enough: by their own configs and files */
    bool is_one_config;   /* both have the same config */
    struct text headline; /* of the result */
};

static const char *take(struct bisect *b, struct text *text) {
    const char *copy = arena_copy(b->arena, text_string(text));
    text_free(text);
    return copy;
}

/* ---- the two sides ---- */

/* A part of a checkpoint, or of a trace (train/loop/trace.h). */
struct part {
    const char *words;     /* before its name */
    const char *groups[4]; /* of tensors, NULL-terminated */
    const char *others[5]; /* datasets, likewise */
};

static const struct part whole_state = {.groups = {"model", "optimizer", "ema"},
                                        .others = {"state/step", "state/epoch", "state/batch", "state/samples"}};

/* Adds in what a part of two files differs. */
static status compare_parts(const char *const paths[2], const struct part *part, const char *const names[2],
                            struct text *out) {
    return checkpoint_compare(paths, part->groups, part->others, names, out);
}

static status compare_files(const char *const paths[2], const char *const names[2], struct text *out) {
    return compare_parts(paths, &whole_state, names, out);
}

/* Whether the states of two checkpoints differ. */
static status differ_in(const char *const paths[2], bool *differ) {
    SCOPED_TEXT difference = {0};
    status s = compare_files(paths, (const char *const[]){"", ""}, &difference);
    *differ = difference.length > 0;
    return s;
}

/* The checkpoints in the folder, without those before an evaluation, whose counters no repetition has. */
static status list_files(struct bisect *b, struct side *side) {
    const char *folder = arena_printf(b->arena, "%s/checkpoints", side->name);
    SCOPED_NAMES names = {0};
    status s = ledger_has_file(folder) ? io_list(folder, &names) : OK;
    side->files = arena_alloc(b->arena, names.count * sizeof *side->files);
    for (size_t i = 0; !s && i < names.count; i++) {
        int64_t step = 0, pending = 0;
        if (!checkpoint_is_name(names.items[i])) continue;
        const char *path = arena_printf(b->arena, "%s/%s", folder, names.items[i]);
        s = ledger_read_counter(path, "state/step", &step);
        if (!s) s = ledger_read_counter(path, "state/pending_end", &pending);
        if (!s && !pending)
            side->files[side->file_count++] = (struct own_file){arena_copy(b->arena, names.items[i]), path, step};
    }
    return s;
}

static status make_temporary(struct bisect *b) {
    if (b->temporary) return OK;
    TRY(command_make_folder(b->line->run_dir, "bisect", &b->temporary));
    stop_defer(); /* the folder is removed first */
    return OK;
}

/* If config.yaml, in side->text, is not what the newest start has in the ledger, notes how it differs, and uses that.
 * *path: of the file with the text. */
static status use_recorded_config(struct bisect *b, struct side *side, const char **path) {
    const struct ledger_line *newest = ledger_start_at(&side->ledger, INT64_MAX);
    const char *recorded = NULL;
    struct config_file *before = NULL, *now = NULL;
    SCOPED_TEXT lines = {0};
    if (!newest) return OK;
    const char *wanted = ledger_line_word(b->arena, newest, "config_sha256");
    TRY(ledger_find_config(b->arena, side->name, &side->ledger, wanted, &recorded));
    if (!recorded || strcmp(recorded, side->text) == 0) return OK;
    status s = config_parse("the config in ledger.jsonl", recorded, &before);
    if (!s) s = config_parse(*path, side->text, &now);
    size_t count = s ? 0 : schema_diff_keys(&config_schema, NULL, 0, config_of(before), config_of(now), &lines);
    if (count) {
        const char *first = text_string(&lines) + strspn(text_string(&lines), " ");
        const char *more = count > 1 ? arena_printf(b->arena, ", and %zu more", count - 1) : "";
        side->edited = arena_printf(b->arena, "%s is not the config that the run had: %.*s (recorded -> now)%s", *path,
                                    (int)strcspn(first, "\n"), first, more);
    }
    config_free(before), config_free(now);
    TRY(s);
    side->text = recorded;
    TRY(make_temporary(b));
    *path = arena_printf(b->arena, "%s/recorded-%c.yaml", b->temporary, side->prefix[0]);
    return io_replace_text(*path, recorded);
}

static status open_run(struct bisect *b, struct side *side) {
    const char *path = arena_printf(b->arena, "%s/config.yaml", side->name);
    char *text = NULL;
    struct io_info info;
    TRY(ledger_check_ended(side->name));
    if (ledger_has_file(arena_printf(b->arena, "%s/ledger.jsonl", side->name)))
        TRY(ledger_file_read(side->name, &side->ledger));
    TRY(ledger_file_read_metrics(side->name, &side->metrics));
    TRY(io_read_text(path, 1 << 24, &text, &info));
    if (text) side->text = arena_copy(b->arena, text);
    free(text);
    if (!side->text || (!side->ledger.count && !side->metrics.count))
        return status_data("%s: its config.yaml, or both ledger.jsonl and metrics.jsonl, are missing", side->name);
    TRY(use_recorded_config(b, side, &path));
    TRY(config_load(path, side->overrides, side->override_count, &side->file));
    const struct ledger_file *first = side->metrics.count ? &side->metrics : &side->ledger;
    side->at = first->lines[0].step;
    for (size_t i = 0; i < side->metrics.count; i++)
        if (side->metrics.lines[i].step > side->last) side->last = side->metrics.lines[i].step;
    if (side->ledger.count && side->ledger.lines[side->ledger.count - 1].step > side->last)
        side->last = side->ledger.lines[side->ledger.count - 1].step;
    return list_files(b, side);
}

static status open_config(struct bisect *b, struct side *side) {
    struct text text = {0};
    side->last = NO_STEP;
    TRY(config_load(side->name, side->overrides, side->override_count, &side->file));
    const char *resume = config_of(side->file)->checkpoint.resume;
    schema_write_yaml(&config_schema, config_of(side->file), &text);
    side->text = take(b, &text);
    if (strcmp(resume, "auto") == 0 || strcmp(resume, "never") == 0) return OK;
    return ledger_read_counter(resume, "state/step", &side->at);
}

/* Those of the command line for both sides, or for this one. */
static void find_overrides(struct bisect *b, struct side *side) {
    const struct command_line *line = b->line;
    side->overrides = arena_alloc(b->arena, (line->override_count + 2) * sizeof *side->overrides);
    for (size_t i = 0; i < line->override_count; i++) {
        char *word = line->overrides[i];
        bool is_own = strncmp(word, side->prefix, 2) == 0;
        if (is_own || word[1] != '.') side->overrides[side->override_count++] = is_own ? word + 2 : word;
    }
}

static status open_side(struct bisect *b, struct side *side, const char *name) {
    side->name = name;
    find_overrides(b, side);
    side->wrong = NO_STEP;
    TRY(run_folder_is_readable(name, &side->is_run));
    TRY(side->is_run ? open_run(b, side) : open_config(b, side));
    side->known = side->at;
    return OK;
}

/* ---- causes ---- */

/* Keys that no result depends on; of files the contents are compared. */
static const char *const without_effect[] = {"name",
                                             "dataset.path",
                                             "dataset.prefetch",
                                             "dataset.cache_mb",
                                             "dataset.image.threads",
                                             "sampler.path",
                                             "optimizer.in_backward",
                                             "dist.timeout",
                                             "dist.hang_timeout",
                                             "dist.zero_stage",
                                             "train.log_every",
                                             "train.ledger",
                                             "train.check_state_every",
                                             "train.check_compute",
                                             "train.tensorboard",
                                             "checkpoint.save_every",
                                             "checkpoint.keep"};

/* A key of one of these, or of a section. */
static bool has_effect(const char *key, size_t length) {
    static const char recompute[] = ".recompute"; /* of a layer */
    for (size_t i = 0; i < sizeof without_effect / sizeof *without_effect; i++) {
        size_t known = strlen(without_effect[i]);
        bool begins = length >= known && strncmp(key, without_effect[i], known) == 0;
        if (begins && (length == known || key[known] == '.')) return false;
    }
    size_t end = strlen(recompute);
    return length < end || strncmp(key + length - end, recompute, end) != 0;
}

/* Adds the lines "  key: old -> new" of keys with an effect, without those with a flag of [skipped]. Returns their
 * number. */
static size_t add_keys(const struct config *x, const struct config *y, unsigned skipped, struct text *out) {
    SCOPED_TEXT all = {0};
    size_t count = 0;
    schema_diff_keys(&config_schema, NULL, skipped, x, y, &all);
    for (const char *line = text_string(&all), *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *key = line + strspn(line, " ");
        if (!has_effect(key, strcspn(key, ":"))) continue;
        text_add_bytes(out, line, (size_t)(end + 1 - line));
        count++;
    }
    return count;
}

/* What can change results, with both values. */
static void print_keys(struct bisect *b) {
    const struct side *sides = b->sides;
    const struct config *x = config_of(sides[0].file), *y = config_of(sides[1].file);
    SCOPED_TEXT out = {0}, of_steps = {0};
    size_t differing = add_keys(x, y, 0, &out);
    bool are_known = sides[0].ledger.count && sides[1].ledger.count; /* the configs are those of the runs */
    b->is_trusted = b->line->override_count == 0 && (are_known || add_keys(x, y, SCHEMA_EXTENDS, &of_steps) == 0);
    const struct {
        const char *name;
        int64_t values[2];
        bool differ;
    } others[] = {{"dist.zero_stage",
                   {x->dist.zero_stage, y->dist.zero_stage},
                   config_sums_by_shards(x) != config_sums_by_shards(y)},
                  {"processes", {sides[0].processes, sides[1].processes}, sides[0].processes != sides[1].processes}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i].differ)
            text_printf(&out, "  %s: %lld -> %lld\n", others[i].name, (long long)others[i].values[0],
                        (long long)others[i].values[1]),
                differing++;
    b->is_one_config = differing == 0;
    if (differing) printf("the configs differ (%s -> %s):\n", sides[0].name, sides[1].name);
    if (differing)
        command_print(stdout, &out);
    else
        printf("the configs have the same values\n");
}

/* The line with the fingerprint of the data that a side has read; NULL: it has read none yet. */
static const struct ledger_line *start_of(const struct side *side) {
    const struct ledger_file *file = side->ledger.count    ? &side->ledger
                                     : side->metrics.count ? &side->metrics
                                                           : &side->again;
    return file->count ? &file->lines[0] : NULL;
}

/* Where the data differ, if they do. */
static void print_data(const struct bisect *b) {
    const struct ledger_line *x = start_of(&b->sides[0]), *y = start_of(&b->sides[1]);
    if (!x || !y || ledger_line_equals(x, y, "dataset_fingerprint")) return;
    const struct config *configs[] = {config_of(b->sides[0].file), config_of(b->sides[1].file)};
    const struct dataset_config *const data[] = {&configs[0]->dataset, &configs[1]->dataset};
    const bool wants_classes[] = {config_loss(configs[0])->wants_classes, config_loss(configs[1])->wants_classes};
    SCOPED_TEXT out = {0};
    status s = dataset_find_difference(data, wants_classes, &out);
    if (s) text_printf(&out, "they cannot be compared: %s", status_message(s));
    if (!out.length) text_add(&out, "no value that is read differs, but how the rows are read");
    text_add(&out, "\n");
    printf("the data differ: ");
    command_print(stdout, &out);
    status_free(s);
}

/* ---- what both have recorded ---- */

static const char *const recorded[] = {"rows", "loss", "parameters", "state", "state_sha256"};
#define RECORDED (sizeof recorded / sizeof *recorded)

/* The first field in which two lines of one step differ; NULL: none that both have. */
static const char *differing_field(const struct ledger_line *a, const struct ledger_line *b) {
    struct json_line x, y;
    if (!json_line_read(a->text, a->size, &x) || !json_line_read(b->text, b->size, &y)) return NULL;
    for (size_t i = 0; i < RECORDED; i++) {
        const struct json_field *p = json_line_find(&x, recorded[i]), *q = json_line_find(&y, recorded[i]);
        if (p && q && (p->length != q->length || memcmp(p->text, q->text, p->length) != 0)) return recorded[i];
    }
    return NULL;
}

/* Whether two lines are of one step, or of one state: of a start, a checkpoint or an end. States at the end of an epoch
 * have other counters before its evaluation than after it. */
static bool is_comparable(const struct ledger_line *x, const struct ledger_line *y) {
    if (x->step != y->step || (x->event == METRICS_STEP) != (y->event == METRICS_STEP)) return false;
    if (x->event == METRICS_STEP) return true;
    bool have_batches = ledger_line_has(x, "batch") && ledger_line_has(y, "batch");
    return ledger_line_equals(x, y, "epoch") && ledger_line_equals(x, y, "pending") &&
           (!have_batches || ledger_line_equals(x, y, "batch"));
}

/* Whether both lines have a hash of the parameters or of the state. */
static bool show_states(const struct ledger_line *x, const struct ledger_line *y) {
    static const char *const hashes[] = {"parameters", "state", "state_sha256"};
    for (size_t i = 0; i < sizeof hashes / sizeof *hashes; i++)
        if (ledger_line_has(x, hashes[i]) && ledger_line_has(y, hashes[i])) return true;
    return false;
}

/* *bad: the first step, below the one that it was, that both files have and that differs; *equal: the newest before it
 * whose parameters are equal. */
static void compare_records(const struct ledger_file *x, const struct ledger_file *y, int64_t *equal, int64_t *bad) {
    for (size_t i = 0, j = 0; i < x->count && x->lines[i].step < *bad; i++) {
        while (j < y->count && y->lines[j].step < x->lines[i].step) j++;
        for (size_t k = j; k < y->count && y->lines[k].step == x->lines[i].step; k++) {
            if (!is_comparable(&x->lines[i], &y->lines[k])) continue;
            bool differs = differing_field(&x->lines[i], &y->lines[k]) != NULL;
            if (differs && x->lines[i].step < *bad) *bad = x->lines[i].step;
            if (!differs && x->lines[i].step > *equal && show_states(&x->lines[i], &y->lines[k]))
                *equal = x->lines[i].step;
        }
    }
    if (*equal >= *bad) *equal = *bad - 1;
}

/* ---- results: what metrics.jsonl has of evaluations and of the end ---- */

static bool begins_with_any(const struct json_field *field, const char *const *words) {
    for (; *words; words++)
        if (field->key_length >= strlen(*words) && strncmp(field->key, *words, strlen(*words)) == 0) return true;
    return false;
}

/* The first result in which two lines of epochs or of ends differ; NULL: none that both have. */
static const char *differing_result(struct bisect *b, const struct ledger_line *x, const struct ledger_line *y) {
    static const char *const of_epochs[] = {"train_", "val_", NULL}, *const of_ends[] = {"best_epoch", "test_", NULL};
    struct json_line p, q;
    if (!json_line_read(x->text, x->size, &p) || !json_line_read(y->text, y->size, &q)) return NULL;
    for (size_t i = 0; i < p.count; i++) {
        const struct json_field *f = &p.fields[i];
        if (!begins_with_any(f, x->event == METRICS_EPOCH ? of_epochs : of_ends)) continue;
        const char *key = arena_printf(b->arena, "%.*s", (int)f->key_length, f->key);
        const struct json_field *other = json_line_find(&q, key);
        if (other && (f->length != other->length || memcmp(f->text, other->text, f->length) != 0)) return key;
    }
    return NULL;
}

/* "val_loss of epoch 1 is 0.5 in a and 0.6 in b" */
static const char *describe_result(struct bisect *b, const char *key, const struct ledger_line *const lines[2],
                                   const char *const names[2]) {
    struct text out = {0};
    text_add(&out, key);
    if (lines[0]->event == METRICS_EPOCH)
        text_printf(&out, " of epoch %lld", (long long)ledger_line_int(lines[0], "epoch") + 1);
    for (int i = 0; i < 2; i++) {
        text_add(&out, i ? " and " : " is ");
        ledger_line_add(lines[i], key, &out);
        text_printf(&out, " in %s", names[i]);
    }
    return take(b, &out);
}

/* The next line of an epoch from [*at] on, which is not before [epoch]; NULL: there is none. */
static const struct ledger_line *next_epoch(const struct ledger_file *file, size_t *at, int64_t epoch) {
    for (; *at < file->count; ++*at) {
        const struct ledger_line *line = &file->lines[*at];
        if (line->event == METRICS_EPOCH && ledger_line_int(line, "epoch") >= epoch) return line;
    }
    return NULL;
}

/* The first epoch whose results differ. [has_steps]: the lines before those of epochs are of their last steps, without
 * which an epoch that ended within may be compared with a whole one. */
static struct result find_result(struct bisect *b, const struct ledger_file *x, const struct ledger_file *y,
                                 bool has_steps) {
    const char *const names[] = {b->sides[0].name, b->sides[1].name};
    const struct ledger_line *lines[2];
    for (size_t i = 0, j = 0; (lines[0] = next_epoch(x, &i, 0)); i++) {
        int64_t epoch = ledger_line_int(lines[0], "epoch");
        if (!(lines[1] = next_epoch(y, &j, epoch))) break;
        if (ledger_line_int(lines[1], "epoch") != epoch || (has_steps && lines[0]->step != lines[1]->step)) continue;
        const char *key = differing_result(b, lines[0], lines[1]);
        if (key) return (struct result){lines[0]->step, describe_result(b, key, lines, names)};
    }
    return (struct result){NO_STEP, NULL};
}

/* Sets where both sides are continued: the newest checkpoint that is equal in both, before step [until] and that which
 * is known to differ, which may be that of another checkpoint. */
static status find_common_checkpoint(struct bisect *b, int64_t until) {
    struct side *x = &b->sides[0], *y = &b->sides[1];
    bool *are_equal = arena_alloc(b->arena, x->file_count + 1);
    size_t *others = arena_alloc(b->arena, (x->file_count + 1) * sizeof *others);
    for (size_t i = 0, j = 0; i < x->file_count; i++) {
        while (j < y->file_count && strcmp(y->files[j].name, x->files[i].name) < 0) j++;
        if (j == y->file_count || strcmp(y->files[j].name, x->files[i].name) != 0) continue;
        bool differ;
        TRY(differ_in((const char *const[]){x->files[i].path, y->files[j].path}, &differ));
        are_equal[i] = !differ, others[i] = j;
        if (!are_equal[i] && x->files[i].step < b->bad) b->bad = x->files[i].step;
    }
    for (size_t i = 0; i < x->file_count; i++) {
        int64_t step = x->files[i].step;
        if (!are_equal[i] || step >= b->bad || step >= until || step < x->at || step < y->at) continue;
        x->at = x->known = y->at = y->known = b->equal = step;
        x->state = x->files[i].path, y->state = y->files[others[i]].path;
    }
    return OK;
}

/* The side that starts earlier may continue from a checkpoint of its own before the other one starts. */
static void find_own_checkpoint(struct side *side, int64_t start) {
    for (size_t i = 0; i < side->file_count; i++)
        if (side->files[i].step > side->at && side->files[i].step <= start)
            side->at = side->known = side->files[i].step, side->state = side->files[i].path;
}

/* ---- repeating ---- */

/* The config and the processes of the steps after side->at; *until: where a resume changes them. */
static status choose_config(struct bisect *b, struct side *side, int64_t *until) {
    const struct side *other = &b->sides[side == b->sides];
    const struct ledger_file *records = ledger_start_at(&side->ledger, side->at) ? &side->ledger : &side->metrics;
    const struct ledger_line *start = ledger_start_at(records, side->at), *of_other = start_of(other);
    bool is_elastic = config_of(side->file)->determinism.mode == DETERMINISM_ELASTIC;
    side->config = side->text;
    if (!start) { /* a config: as many processes as the other side */
        int64_t world = of_other ? ledger_line_int(of_other, "world_size") : 1;
        return ledger_processes(b->line, world < 1 ? 1 : world, true, &side->processes);
    }
    TRY(ledger_processes(b->line, ledger_line_int(start, "world_size"), is_elastic, &side->processes));
    TRY(ledger_check_processor(
        side->name, ledger_line_has(start, "processor") ? ledger_line_word(b->arena, start, "processor") : NULL,
        ledger_line_word(b->arena, start, "device"), config_of(side->file)->determinism.is_portable));
    for (size_t i = (size_t)(start - records->lines) + 1; i < records->count; i++) {
        const struct ledger_line *next = &records->lines[i];
        bool is_other = next->event == METRICS_RESUME && (!ledger_line_equals(start, next, "config_sha256") ||
                                                          !ledger_line_equals(start, next, "world_size"));
        if (is_other && next->step < *until) *until = next->step;
    }
    if (!ledger_line_has(start, "config_sha256")) return OK;
    const char *wanted = ledger_line_word(b->arena, start, "config_sha256");
    TRY(ledger_find_config(b->arena, side->name, &side->ledger, wanted, &side->config));
    if (side->config) return OK;
    return status_data("%s: the config of the start after step %lld is not in the folder", side->name,
                       (long long)start->step);
}

/* Repeats a side from where it is up to step [to]; *out: the folder. [trace]: file for that step; NULL: none. */
static status run_again(struct bisect *b, const struct side *side, int64_t to, const char *trace, const char **out) {
    static char log_every[] = "train.log_every=1", keeps_gradients[] = "optimizer.in_backward=false";
    side->overrides[side->override_count] = log_every; /* neither changes a bit of the state */
    side->overrides[side->override_count + 1] = keeps_gradients;
    bool needs_gradients = trace && optimizer_is_in_backward(&config_of(side->file)->optimizer);
    const struct ledger_line *start = side->is_run ? start_of(side) : NULL;
    *out = arena_printf(b->arena, "%s/%zu", b->temporary, b->runs++);
    const struct repetition r = {.name = side->name,
                                 .config = side->config,
                                 .from = side->state,
                                 .folder = *out,
                                 .device = start ? ledger_line_word(b->arena, start, "device") : NULL,
                                 .temporary = b->temporary,
                                 .trace = trace,
                                 .first = side->at + 1,
                                 .stop = to,
                                 .every = 1,
                                 .processes = side->processes,
                                 .overrides = side->overrides,
                                 .override_count = side->override_count + (needs_gradients ? 2 : 1)};
    return ledger_repeat(&r);
}

/* The checkpoint at the end of a repeated run. */
static status end_of(struct bisect *b, const char *folder, const char **out) {
    struct ledger_file ledger = {0};
    status s = ledger_file_read(folder, &ledger);
    const struct ledger_line *saved = s ? NULL : ledger_find(&ledger, METRICS_CHECKPOINT, -1);
    if (saved) *out = arena_printf(b->arena, "%s/checkpoints/%s.h5", folder, ledger_line_word(b->arena, saved, "name"));
    if (!s && !saved) s = status_new(STATUS_BUG, "%s: a repeated run has saved nothing", folder);
    ledger_file_close(&ledger);
    return s;
}

/* Saves the state of a side after [step]. */
static status save_state(struct bisect *b, const struct side *side, int64_t step, const char **out) {
    const char *folder;
    TRY(run_again(b, side, step, NULL, &folder));
    return end_of(b, folder, out);
}

/* ---- comparing repetitions ---- */

static void note_wrong(struct side *side, int64_t step, const char *why) {
    if (step >= side->wrong) return;
    side->wrong = step;
    side->why = why;
}

static void note_field(struct bisect *b, struct side *side, const struct ledger_file *file,
                       const struct ledger_line *line, const char *field, const struct ledger_line *again) {
    struct text why = {0};
    text_printf(&why, "%s:%zu: step %lld: %s is ", file->path, ledger_line_number(file, line), (long long)line->step,
                field);
    ledger_line_add(line, field, &why);
    text_add(&why, ", and ");
    ledger_line_add(again, field, &why);
    text_add(&why, " when it is repeated");
    note_wrong(side, line->step, take(b, &why));
}

/* What a side has recorded of the state that the repetition started from, and of the data. */
static void check_start(struct bisect *b, struct side *side) {
    const struct ledger_line *again = &side->again.lines[0], *start = ledger_start_at(&side->ledger, side->at);
    if (start && !ledger_line_equals(start, again, "dataset_fingerprint"))
        note_field(b, side, &side->ledger, start, "dataset_fingerprint", again);
    else if (start && ledger_line_has(start, "sampler_sha256") && !ledger_line_equals(start, again, "sampler_sha256"))
        note_field(b, side, &side->ledger, start, "sampler_sha256", again);
    for (size_t i = 0; i < side->ledger.count && side->ledger.lines[i].step <= side->at; i++) {
        const struct ledger_line *line = &side->ledger.lines[i];
        bool is_same = line->event == METRICS_CHECKPOINT && is_comparable(line, again);
        const char *field = is_same ? differing_field(line, again) : NULL;
        if (field) note_field(b, side, &side->ledger, line, field, again);
    }
}

/* What a side has recorded of the steps that were repeated. */
static void check_records(struct bisect *b, struct side *side, const struct ledger_file *records) {
    const struct ledger_file *again = &side->again;
    size_t j = 0;
    for (size_t i = 0; i < records->count; i++) {
        const struct ledger_line *line = &records->lines[i];
        while (j < again->count && again->lines[j].step < line->step) j++;
        for (size_t k = j; k < again->count && again->lines[k].step == line->step && line->step > side->at; k++) {
            if (!is_comparable(line, &again->lines[k])) continue;
            const char *field = differing_field(line, &again->lines[k]);
            if (field) note_field(b, side, records, line, field, &again->lines[k]);
            if (!field && line->step <= side->wrong && show_states(line, &again->lines[k])) side->known = line->step;
        }
    }
}

/* What a side has recorded of the evaluations that were repeated. Of a run that ended within an epoch and was extended
 * this epoch has two lines. */
static void check_results(struct bisect *b, struct side *side) {
    const struct ledger_line *again, *line;
    const char *const names[] = {"the file", "its repetition"};
    for (size_t i = 0, at = 0; (again = next_epoch(&side->again_metrics, &i, 0)); i++) {
        const struct ledger_line *differing = NULL;
        const char *key = NULL;
        int64_t epoch = ledger_line_int(again, "epoch");
        bool is_there = false;
        while (!is_there && (line = next_epoch(&side->metrics, &at, epoch)) &&
               ledger_line_int(line, "epoch") == epoch) {
            const char *found = differing_result(b, line, again);
            if (found) differing = line, key = found;
            is_there = !found;
            at++;
        }
        if (is_there || !differing) continue;
        const struct ledger_line *const lines[] = {differing, again};
        note_wrong(side, again->step,
                   arena_printf(b->arena, "%s:%zu: %s", side->metrics.path,
                                ledger_line_number(&side->metrics, differing), describe_result(b, key, lines, names)));
    }
}

/* A step of which [records], with a line for each [every] steps, must have one, and has none. */
static void check_missing(struct bisect *b, struct side *side, const struct ledger_file *records, int64_t every) {
    const struct ledger_file *again = &side->again;
    size_t i = 0;
    for (size_t k = 0; k < again->count && every > 0; k++) {
        int64_t step = again->lines[k].step;
        if (again->lines[k].event != METRICS_STEP || step % every != 0) continue;
        while (i < records->count && (records->lines[i].step < step || records->lines[i].event != METRICS_STEP)) i++;
        if (i == records->count) return;
        if (records->lines[i].step > step)
            note_wrong(side, step,
                       arena_printf(b->arena, "%s:%zu: there is no line of step %lld before it", records->path,
                                    ledger_line_number(records, &records->lines[i]), (long long)step));
    }
}

/* The checkpoint that a side has after [step]. */
static status check_file(struct bisect *b, struct side *side, int64_t step) {
    for (size_t i = 0; i < side->file_count; i++) {
        if (side->files[i].step != step) continue;
        const char *paths[] = {side->files[i].path, NULL}, *const names[] = {"the file", "its repetition"};
        SCOPED_TEXT why = {0};
        TRY(end_of(b, side->folder, &paths[1]));
        TRY(compare_files(paths, names, &why));
        if (why.length)
            note_wrong(side, step, arena_printf(b->arena, "%s: %s", paths[0], text_string(&why)));
        else if (step < side->wrong)
            side->known = step;
    }
    return OK;
}

/* Whether the states of both after [step], of the steps that were repeated, differ. */
static status compare_states(struct bisect *b, int64_t step, bool *differ) {
    const char *paths[2];
    for (int i = 0; i < 2; i++) {
        const struct side *side = &b->sides[i];
        bool is_end = side->again.lines[side->again.count - 1].step == step;
        TRY(is_end ? end_of(b, side->folder, &paths[i]) : save_state(b, side, step, &paths[i]));
    }
    return differ_in(paths, differ);
}

/* The states before the steps that were repeated. A sharded one has no hash there; with other optimizers the hashes
 * differ, but not what both have. */
static status compare_starts(struct bisect *b, int64_t at) {
    const struct ledger_line *x = &b->sides[0].again.lines[0], *y = &b->sides[1].again.lines[0];
    bool differ = false;
    if (!ledger_line_has(x, "state") || !ledger_line_equals(x, y, "state")) TRY(compare_states(b, at, &differ));
    if (differ) b->parted = at + 1;
    return OK;
}

/* Where no line differs, but the state at the end, such as a moving average: the first step after which it does. */
static status compare_ends(struct bisect *b, int64_t at, int64_t to) {
    bool differ = false;
    TRY(compare_states(b, to, &differ));
    if (!differ) return OK;
    for (int64_t equal = at; to - equal > 1;) {
        int64_t middle = equal + (to - equal) / 2;
        TRY(compare_states(b, middle, &differ));
        *(differ ? &to : &equal) = middle;
    }
    b->parted = to;
    return OK;
}

/* The first step that differs between the newest repetitions. */
static void compare_steps(struct bisect *b) {
    const struct ledger_file *x = &b->sides[0].again, *y = &b->sides[1].again;
    for (size_t i = 0, j = 0; i < x->count; i++) {
        if (x->lines[i].event != METRICS_STEP) continue;
        while (j < y->count && (y->lines[j].event != METRICS_STEP || y->lines[j].step < x->lines[i].step)) j++;
        if (j == y->count) return;
        if (y->lines[j].step != x->lines[i].step || x->lines[i].step >= b->parted) continue;
        if (differing_field(&x->lines[i], &y->lines[j])) b->parted = x->lines[i].step;
    }
}

static status repeat(struct bisect *b, struct side *side, int64_t to) {
    const char *folder;
    TRY(run_again(b, side, to, NULL, &folder));
    side->folder = folder;
    ledger_file_close(&side->again), ledger_file_close(&side->again_metrics);
    TRY(ledger_file_read(folder, &side->again));
    TRY(ledger_file_read_metrics(folder, &side->again_metrics));
    if (side->again.lines[0].step != side->at)
        return status_data("%s: it is continued after step %lld, not after step %lld", side->name,
                           (long long)side->again.lines[0].step, (long long)side->at);
    TRY(check_file(b, side, to)); /* it names the tensor */
    check_start(b, side);
    check_records(b, side, &side->ledger);
    check_records(b, side, &side->metrics);
    check_results(b, side);
    const struct ledger_line *start = ledger_start_at(&side->ledger, side->at);
    int64_t log_every = config_of(side->file)->train.log_every;
    if (start) check_missing(b, side, &side->ledger, ledger_line_int(start, "every"));
    if (start && side->config == side->text) check_missing(b, side, &side->metrics, log_every);
    return OK;
}

/* Whether the repetition of a side, if it continued from a checkpoint, would not end where the run of its config does:
 * what early_stop counts begins anew there. */
static bool needs_beginning(const struct bisect *b) {
    for (int i = 0; i < 2; i++)
        if (!b->sides[i].is_run && early_stop_of(&config_of(b->sides[i].file)->train.early_stop).monitor.metric)
            return true;
    return false;
}

/* Where the next repetition ends. Without records it is not known where it should, so each is twice as long. */
static status choose_end(struct bisect *b, int64_t *steps, int64_t *to) {
    struct side *x = &b->sides[0], *y = &b->sides[1];
    int64_t at = x->at > y->at ? x->at : y->at, last = x->last < y->last ? x->last : y->last;
    bool is_known = b->bad != NO_STEP || last != NO_STEP;
    *to = b->bad < last ? b->bad : last;
    if (*to <= at) *to = at + 1; /* the states that they start from differ */
    if (!is_known || (!x->is_run || !y->is_run)) {
        if (at + *steps < *to) *to = at + *steps;
        *steps *= 2;
    }
    if (x->at != y->at) *to = at;
    int64_t checked = needs_beginning(b) && b->equal > at ? b->equal : at;
    for (int i = 0; i < 2; i++) {
        const struct side *side = &b->sides[i];
        for (size_t k = 0; k < side->file_count; k++)
            if (side->files[k].step > checked && side->files[k].step < *to) *to = side->files[k].step;
    }
    int64_t end = *to;
    for (int i = 0; i < 2; i++) TRY(choose_config(b, &b->sides[i], to));
    b->keeps_start = needs_beginning(b) && *to == end;
    return OK;
}

/* A run that starts from a file may have another state there, whose effect is gone in all that both have recorded. */
static status compare_origins(struct bisect *b) {
    const struct side *x = &b->sides[0], *y = &b->sides[1];
    const char *const resumes[] = {config_of(x->file)->checkpoint.resume, config_of(y->file)->checkpoint.resume};
    const char *paths[2];
    int64_t start = x->at > y->at ? x->at : y->at;
    bool differ;
    if (x->at == y->at && strcmp(resumes[0], resumes[1]) == 0) return OK;
    for (int i = 0; i < 2; i++) TRY(save_state(b, &b->sides[i], start, &paths[i]));
    TRY(differ_in(paths, &differ));
    if (differ) b->parted = start + 1;
    return OK;
}

static bool is_found(const struct bisect *b) {
    return b->parted != NO_STEP || b->result.words || b->sides[0].wrong != NO_STEP || b->sides[1].wrong != NO_STEP;
}

/* Repeats both up to the first difference; the sides are then where the newest repetitions began. */
static status search(struct bisect *b) {
    int64_t steps = 16, to = 0;
    bool is_first = true;
    for (;;) {
        bool has_ended = false;
        TRY(choose_end(b, &steps, &to));
        for (int i = 0; i < 2; i++)
            if (b->sides[i].at < to) TRY(repeat(b, &b->sides[i], to));
        bool are_together = b->sides[0].at == b->sides[1].at && b->sides[0].at < to;
        for (int i = 0; i < 2; i++) {
            const struct ledger_file *again = &b->sides[i].again;
            int64_t end = again->count ? again->lines[again->count - 1].step : to;
            if (b->sides[i].at < to && end < to) has_ended = true, to = end;
        }
        if (are_together && is_first) TRY(compare_starts(b, b->sides[0].at));
        if (are_together) compare_steps(b);
        is_first = is_first && !are_together;
        if (are_together && !is_found(b)) TRY(compare_ends(b, b->sides[0].at, to));
        struct result result = {NO_STEP, NULL};
        if (are_together) result = find_result(b, &b->sides[0].again_metrics, &b->sides[1].again_metrics, true);
        if (result.step < b->parted) b->result = result;
        if (are_together && !is_found(b)) b->equal = to;
        if (are_together && to >= b->bad) b->bad = NO_STEP; /* what is recorded differs, but not what is computed */
        bool is_last = to >= b->sides[0].last || to >= b->sides[1].last;
        if (is_found(b) || has_ended || (are_together && is_last)) return OK;
        for (int i = 0; i < 2; i++) {
            struct side *side = &b->sides[i];
            if (side->at == to || (are_together && b->keeps_start)) continue;
            TRY(end_of(b, side->folder, &side->state));
            if (side->state_folder) command_remove_tree(side->state_folder);
            side->state_folder = side->folder;
            side->at = to;
        }
    }
}

/* ---- what parts first ---- */

static const struct part of_rows = {"its rows: ", .others = {"rows/number"}};
static const struct part of_inputs = {"its inputs: ", {"rows"}, {"rows/inputs", "rows/targets"}};
static const struct part of_activations = {"its activations: ", {"activations"}, {NULL}};
static const struct part of_gradients = {"its gradients: ", {"gradients"}, {NULL}};

/* What is computed in a step, in this order. */
static const struct quantity {
    const char *name;        /* where it is equal */
    const struct part *part; /* of a trace */
    const char *field;       /* else a field of the line of the ledger */
    const char *words;       /* before its value */
} quantities[] = {
    {"rows", &of_rows, NULL, NULL},
    {"inputs", &of_inputs, NULL, NULL},
    {"activations", &of_activations, NULL, NULL},
    {"loss", NULL, "loss", "its loss is "},
    {"gradients", &of_gradients, NULL, NULL},
    {"learning rate", NULL, "lr", "its learning rate is "},
};
#define QUANTITIES (sizeof quantities / sizeof *quantities)

/* Adds a field in which the lines of a step differ. */
static void add_field(const struct bisect *b, int64_t step, const struct quantity *q, struct text *out) {
    const struct ledger_line *lines[2];
    for (int k = 0; k < 2; k++) lines[k] = ledger_find(&b->sides[k].again_metrics, METRICS_STEP, step);
    if (!lines[0] || !lines[1] || ledger_line_equals(lines[0], lines[1], q->field)) return;
    for (int k = 0; k < 2; k++) {
        text_add(out, k ? " and " : q->words);
        ledger_line_add(lines[k], q->field, out);
        text_printf(out, " in %s", b->sides[k].name);
    }
}

/* Saves the states of both after [step], from which they then continue, and with [traces] all of that step. */
static status go_to(struct bisect *b, int64_t step, const char *traces[2]) {
    for (int i = 0; i < 2; i++) {
        struct side *side = &b->sides[i];
        const char *folder;
        if (side->at == step && side->state) continue;
        if (traces) traces[i] = arena_printf(b->arena, "%s/trace-%d.h5", b->temporary, i);
        TRY(run_again(b, side, step, traces ? traces[i] : NULL, &folder));
        TRY(end_of(b, folder, &side->state));
        ledger_file_close(&side->again_metrics);
        TRY(ledger_file_read_metrics(folder, &side->again_metrics));
        side->at = step;
    }
    return OK;
}

/* Adds a line for each quantity of the step that differs, the words of the first to [headline], and one of those that
 * are equal before it. */
static status compare_quantities(struct bisect *b, int64_t step, const char *const traces[2], struct text *headline,
                                 struct text *lines) {
    const char *const names[] = {b->sides[0].name, b->sides[1].name};
    SCOPED_TEXT equal = {0};
    bool have_other_rows = false;
    for (size_t i = 0; i < QUANTITIES; i++) {
        const struct quantity *q = &quantities[i];
        SCOPED_TEXT one = {0};
        if (have_other_rows && (q->part == &of_inputs || q->part == &of_activations)) continue;
        if (q->part) TRY(compare_parts(traces, q->part, names, &one));
        if (q->field) add_field(b, step, q, &one);
        const char *words = q->part ? q->part->words : "";
        have_other_rows = have_other_rows || (q->part == &of_rows && one.length);
        if (one.length) text_printf(lines, "step %lld: %s%s\n", (long long)step, words, text_string(&one));
        if (one.length && !headline->length) text_printf(headline, "%s%s", words, text_string(&one));
        if (!one.length && !headline->length) text_printf(&equal, "%s%s", equal.length ? ", " : "", q->name);
    }
    if (equal.length) printf("step %lld: equal: %s\n", (long long)step, text_string(&equal));
    return OK;
}

/* The first step that differs between the repetitions, and what of it. */
static status report_parting(struct bisect *b) {
    long long step = (long long)b->parted;
    const char *traces[2] = {0}, *before[2], *after[2];
    const char *const names[] = {b->sides[0].name, b->sides[1].name};
    SCOPED_TEXT headline = {0}, lines = {0}, update = {0};
    TRY(go_to(b, b->parted - 1, NULL));
    for (int i = 0; i < 2; i++) before[i] = b->sides[i].state;
    TRY(go_to(b, b->parted, traces));
    for (int i = 0; i < 2; i++) after[i] = b->sides[i].state;
    status s = compare_files(before, names, &update);
    if (update.length) text_printf(&headline, "the states before it differ: %s", text_string(&update));
    printf("step %lld: the states before it %s\n", step, update.length ? "differ" : "are equal");
    text_clear(&update);
    if (!s) s = compare_quantities(b, b->parted, traces, &headline, &lines);
    if (!s) s = compare_files(after, names, &update);
    if (update.length) text_printf(&lines, "step %lld: its update: %s\n", step, text_string(&update));
    if (update.length && !headline.length) text_printf(&headline, "its update: %s", text_string(&update));
    if (!s) command_print(stdout, &lines);
    text_printf(&b->headline, "%s and %s part at step %lld: %s", names[0], names[1], step, text_string(&headline));
    return s;
}

/* A run that is not what its config gives. */
static void report_wrong(struct bisect *b, const struct side *side) {
    struct text *out = &b->headline;
    text_printf(out, "%s%s is not what its config gives", out->length ? "; " : "", side->name);
    if (side->wrong > side->known + 1)
        text_printf(out, " in steps %lld to %lld", (long long)side->known + 1, (long long)side->wrong);
    else
        text_printf(out, " %s step %lld", side->wrong > side->known ? "in" : "after", (long long)side->wrong);
    bool is_portable = config_of(side->file)->determinism.is_portable;
    text_printf(out, ": %s%s", side->why,
                is_portable ? "" : " (without determinism.portable, bits may depend on the number of threads)");
}

/* The end of a side; NULL: it goes on, or was stopped. */
static const struct ledger_line *finish_of(const struct side *side) {
    const struct ledger_file *file = !side->is_run         ? &side->again_metrics
                                     : side->metrics.count ? &side->metrics
                                                           : &side->ledger;
    const struct ledger_line *last = file->count ? &file->lines[file->count - 1] : NULL;
    return last && last->event == METRICS_END ? last : NULL;
}

/* Where all steps are equal that both have: what differs in their ends, which may be after other steps (early_stop). A
 * repetition that begins within a run does not know which epoch is the best. */
static void compare_finishes(struct bisect *b) {
    const struct side *x = &b->sides[0], *y = &b->sides[1];
    const struct ledger_line *const ends[] = {finish_of(x), finish_of(y)};
    const struct train_config *p = &config_of(x->file)->train, *q = &config_of(y->file)->train;
    const char *const names[] = {x->name, y->name};
    bool have_ended = ends[0] && ends[1], is_same_length = p->epochs == q->epochs && p->steps == q->steps;
    if (have_ended && ends[0]->step == ends[1]->step && x->is_run && y->is_run) {
        const char *key = differing_result(b, ends[0], ends[1]);
        if (key) b->result = (struct result){ends[0]->step, describe_result(b, key, ends, names)};
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct side *other = &b->sides[!i];
        if (!ends[i] || !is_same_length || b->result.words) continue;
        bool goes_on = other->is_run ? other->last > ends[i]->step : !ends[!i] || ends[!i]->step > ends[i]->step;
        if (goes_on)
            b->result = (struct result){ends[i]->step,
                                        arena_printf(b->arena, "%s ends there, and %s goes on", names[i], names[!i])};
    }
}

static void print_equal(const struct bisect *b) {
    const struct side *x = &b->sides[0], *y = &b->sides[1];
    const bool have_average[] = {config_of(x->file)->train.ema.decay > 0, config_of(y->file)->train.ema.decay > 0};
    int64_t last = x->last < y->last ? x->last : y->last;
    if (have_average[0] != have_average[1])
        printf("only %s has a moving average of the weights, with which nothing is compared\n",
               b->sides[have_average[1]].name);
    for (int i = 0; i < 2; i++)
        if (b->sides[i].is_run && !b->sides[i].metrics.count)
            printf("%s has no metrics.jsonl, so its evaluations are not compared\n", b->sides[i].name);
    printf("no difference up to step %lld", (long long)b->equal);
    if (b->equal == last && x->is_run && y->is_run)
        printf(", the last of %s", x->last == y->last ? "both" : b->sides[y->last < x->last].name);
    printf("\n");
}

static status report(struct bisect *b) {
    const struct side *x = &b->sides[0], *y = &b->sides[1];
    int64_t wrong = x->wrong < y->wrong ? x->wrong : y->wrong;
    print_data(b);
    if (!is_found(b)) compare_finishes(b);
    if (b->result.words && b->result.step <= wrong)
        text_printf(&b->headline, "%s and %s part after step %lld: %s", x->name, y->name, (long long)b->result.step,
                    b->result.words);
    else if (b->parted != NO_STEP && b->parted <= wrong)
        TRY(report_parting(b));
    for (int i = 0; i < 2; i++)
        if (b->sides[i].wrong != NO_STEP) report_wrong(b, &b->sides[i]);
    for (int i = 0; i < 2; i++)
        if (b->sides[i].edited) text_printf(&b->headline, "%s%s", b->headline.length ? "; " : "", b->sides[i].edited);
    if (b->headline.length) return status_new(STATUS_DIVERGED, "%s", text_string(&b->headline));
    if (b->recorded <= b->equal)
        return status_new(STATUS_DIVERGED,
                          "what %s and %s have recorded at step %lld differs, but both compute the same there: a file "
                          "of one of them was changed; 'ddptrain audit' names it",
                          x->name, y->name, (long long)b->recorded);
    print_equal(b);
    return OK;
}

/* ---- the command ---- */

static status bisect(struct bisect *b) {
    struct side *x = &b->sides[0], *y = &b->sides[1];
    TRY(open_side(b, x, b->line->operands[0]));
    status s = open_side(b, y, b->line->operands[1]);
    if (s && config_of(x->file)->has_extensions)
        s = status_prefix(s, "%s beside %s, whose extensions are loaded, too: types of both must have different names",
                          b->line->operands[1], x->name);
    TRY(s);
    compare_records(&x->ledger, &y->ledger, &b->equal, &b->bad);
    compare_records(&x->metrics, &y->metrics, &b->equal, &b->bad);
    bool has_steps = config_of(x->file)->train.log_every == 1 && config_of(y->file)->train.log_every == 1;
    struct result in_both = find_result(b, &x->metrics, &y->metrics, has_steps);
    if (in_both.step < b->bad) b->bad = in_both.step;
    find_own_checkpoint(x, y->at), find_own_checkpoint(y, x->at);
    int64_t until = NO_STEP, last = x->last < y->last ? x->last : y->last;
    for (int i = 0; i < 2; i++) TRY(choose_config(b, &b->sides[i], &until));
    print_keys(b);
    fflush(stdout);
    TRY(make_temporary(b));
    TRY(compare_origins(b));
    if (b->parted != NO_STEP) return report(b);
    TRY(find_common_checkpoint(b, b->is_trusted ? NO_STEP : last));
    if (b->bad == NO_STEP && b->equal == last && b->is_trusted) return report(b);
    if (b->is_one_config) b->recorded = b->bad;
    if (b->bad != NO_STEP) printf("what both have recorded differs at step %lld\n", (long long)b->bad);
    fflush(stdout);
    TRY(search(b));
    return report(b);
}

static void close_side(struct side *side) {
    ledger_file_close(&side->ledger), ledger_file_close(&side->metrics);
    ledger_file_close(&side->again), ledger_file_close(&side->again_metrics);
    config_free(side->file);
}

static status run(const struct command_line *line) {
    if (line->operand_count != 2) return status_usage("bisect: expected two run folders, or a run folder and a config");
    struct bisect b = {.line = line,
                       .arena = arena_create(),
                       .sides = {{.prefix = "A."}, {.prefix = "B."}},
                       .bad = NO_STEP,
                       .recorded = NO_STEP,
                       .parted = NO_STEP,
                       .result = {NO_STEP, NULL}};
    status s = bisect(&b);
    command_remove_folder(b.temporary);
    for (int i = 0; i < 2; i++) close_side(&b.sides[i]);
    text_free(&b.headline);
    arena_destroy(b.arena);
    return s;
}

const struct subcommand subcommand_bisect = {
    .name = "bisect",
    .arguments = "A B [[A.|B.]KEY=FILE ...] [options]",
    .help = "the first step at which two runs part, and what parts first",
    .run = run,
    .options = OPTION_RUN_DIR,
    .operand = "folder",
    .max_operands = 2,
    .takes_overrides = true,
    .override_prefixes = (const char *const[]){FILE_KEYS(""), FILE_KEYS("A."), FILE_KEYS("B."), NULL},
};
