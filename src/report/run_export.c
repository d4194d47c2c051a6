/* Lines of metrics.jsonl become rows of numbers: one for each step and each epoch. What a continued run has computed
 * again replaces what it had before. MLflow's file store: docs/export.md. */
#include "report/report_page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "report/run_data.h"

#define MAX_COLUMNS 512
#define MAX_NAME 240       /* bytes of a name; MLflow takes 250 */
#define MAX_PARAMETER 6000 /* bytes of a value that MLflow takes */

struct row {
    bool is_step; /* else an epoch */
    double epoch, step, seconds;
    size_t first; /* of its cells */
};

struct cell {
    size_t column;
    double value;
};

struct recorded {
    struct arena *arena;
    const char *fields[MAX_COLUMNS], *names[MAX_COLUMNS]; /* (columns): the fields, their names in other programs */
    size_t columns;
    struct row *rows; /* (count) */
    size_t count, capacity;
    struct cell *cells; /* (cell_count) */
    size_t cell_count, cell_capacity;
    double step, seconds; /* so far */
};

/* ---- reading ---- */

static void *grown(void *items, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return items;
    *capacity = *capacity ? 2 * *capacity : 1024;
    items = status_need(realloc(items, *capacity * size));
    return items;
}

static void forget_from(struct recorded *r, double step) {
    while (r->count && r->rows[r->count - 1].step >= step) r->cell_count = r->rows[--r->count].first;
}

/* [name] as MLflow takes it: characters other than letters, digits, _, -, . and blanks become _, of a long name the end
 * is kept, and one that [names] (count) has already gets a number. */
static const char *name_without_others(struct arena *arena, const char *name, const char *const *names, size_t count) {
    size_t length = strlen(name);
    char *clean = arena_copy(arena, length > MAX_NAME ? name + length - MAX_NAME : name);
    for (char *c = clean; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') || strchr("_-. ", *c)))
            *c = '_';
    const char *out = clean;
    for (size_t i = 0, number = 2; i < count;)
        if (strcmp(names[i], out) == 0)
            out = arena_printf(arena, "%s_%zu", clean, number++), i = 0;
        else
            i++;
    return out;
}

static void add_cell(struct recorded *r, const struct json_field *field, double value) {
    size_t column = 0;
    while (column < r->columns && (strlen(r->fields[column]) != field->key_length ||
                                   strncmp(r->fields[column], field->key, field->key_length) != 0))
        column++;
    if (column == MAX_COLUMNS) return;
    if (column == r->columns) {
        r->fields[column] = arena_printf(r->arena, "%.*s", (int)field->key_length, field->key);
        r->names[column] = name_without_others(r->arena, r->fields[column], r->names, column);
        r->columns++;
    }
    r->cells = grown(r->cells, r->cell_count, &r->cell_capacity, sizeof *r->cells);
    r->cells[r->cell_count++] = (struct cell){column, value};
}

static bool is_place(const struct json_field *field) {
    static const char *const names[] = {"epoch", "step", "event", "seconds"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i]) == field->key_length && strncmp(names[i], field->key, field->key_length) == 0) return true;
    return false;
}

static bool add_line(void *user, const char *bytes, size_t size) {
    struct recorded *r = user;
    struct json_line line;
    if (!json_line_read(bytes, size, &line)) return false;
    bool is_step = json_line_is(&line, "event", "step");
    if (json_line_is(&line, "event", "resume") || json_line_is(&line, "event", "rollback")) {
        double step = json_line_number(&line, "step");
        if (isfinite(step)) forget_from(r, step + 0.5);
        return true;
    }
    if (!is_step && !json_line_is(&line, "event", "epoch")) return true;
    double step = json_line_number(&line, "step"), seconds = json_line_number(&line, "seconds");
    if (!is_step && !isfinite(step)) step = r->step; /* as programs wrote epochs before they had one */
    if (!isfinite(step)) return false;
    if (is_step) forget_from(r, step);
    r->step = step;
    if (is_step && isfinite(seconds)) r->seconds += seconds;
    r->rows = grown(r->rows, r->count, &r->capacity, sizeof *r->rows);
    r->rows[r->count++] = (struct row){.is_step = is_step,
                                       .epoch = json_line_number(&line, "epoch"),
                                       .step = step,
                                       .seconds = r->seconds,
                                       .first = r->cell_count};
    for (size_t i = 0; i < line.count; i++)
        if (line.fields[i].kind == KIND_NUMBER && !line.fields[i].has_key_escapes && !is_place(&line.fields[i]))
            add_cell(r, &line.fields[i], json_field_exact(&line.fields[i]));
    return true;
}

static size_t row_end(const struct recorded *r, size_t row) {
    return row + 1 < r->count ? r->rows[row + 1].first : r->cell_count;
}

/* ---- CSV ---- */

static void add_csv(const struct recorded *r, struct text *out) {
    text_add(out, "event,epoch,step");
    for (size_t i = 0; i < r->columns; i++) text_printf(out, ",%s", r->names[i]);
    text_add(out, "\n");
    for (size_t row = 0; row < r->count; row++) {
        double values[MAX_COLUMNS];
        for (size_t i = 0; i < r->columns; i++) values[i] = (double)NAN;
        for (size_t i = r->rows[row].first; i < row_end(r, row); i++) values[r->cells[i].column] = r->cells[i].value;
        text_printf(out, "%s,%.0f,%.0f", r->rows[row].is_step ? "step" : "epoch", r->rows[row].epoch,
                    r->rows[row].step);
        for (size_t i = 0; i < r->columns; i++) {
            text_add(out, ",");
            if (!isnan(values[i])) text_add_double(out, values[i]);
        }
        text_add(out, "\n");
    }
}

/* ---- MLflow ---- */

/* Another file of a run of the store is not read before meta.yaml is there, so these need no more than to be written.
 * One that another export of the run is writing at the same time stays. */
static status write_file(const char *folder, const char *name, const struct text *content) {
    struct io_info info = {0};
    int fd;
    SCOPED_STRING path = text_path(folder, name);
    status s = io_remove(path);
    if (!s && (s = io_create(path, &fd))) {
        status_free(io_stat(path, &info));
        if (info.is_file) status_free(s);
        s = info.is_file ? OK : s;
    } else if (!s) {
        s = io_write(fd, path, text_string(content), content->length);
        s = status_first(s, io_close(fd, path));
    }
    return s;
}

/* What an earlier run in the same run folder had. */
static status remove_files(struct arena *arena, const char *folder, const char *kind) {
    SCOPED_NAMES names = {0};
    const char *path = arena_printf(arena, "%s/%s", folder, kind);
    status s = io_list(path, &names);
    for (size_t i = 0; !s && i < names.count; i++) s = io_remove(arena_printf(arena, "%s/%s", path, names.items[i]));
    return s;
}

static status write_metrics(const struct recorded *r, const char *folder, double begin) {
    status s = OK;
    for (size_t column = 0; !s && column < r->columns; column++) {
        SCOPED_TEXT lines = {0};
        double last = -1;
        SCOPED_STRING name = text_format("metrics/%s", r->names[column]);
        for (size_t row = 0; row < r->count; row++)
            for (size_t i = r->rows[row].first; i < row_end(r, row); i++) {
                if (r->cells[i].column != column || r->rows[row].step == last)
                    continue; /* lr of a step and its epoch */
                last = r->rows[row].step;
                text_printf(&lines, "%.0f ", (begin + r->rows[row].seconds) * 1000);
                text_add_double(&lines, r->cells[i].value);
                text_printf(&lines, " %.0f\n", r->rows[row].step);
            }
        s = write_file(folder, name, &lines);
    }
    return s;
}

static status write_value(const char *folder, const char *kind, const char *name, const char *value) {
    SCOPED_TEXT content = {0};
    size_t length = strlen(value);
    SCOPED_STRING path = text_path(kind, name);
    while (length > MAX_PARAMETER || (length < strlen(value) && ((unsigned char)value[length] & 0xc0) == 0x80))
        length--;
    text_add_bytes(&content, value, length);
    return write_file(folder, path, &content);
}

static const char *hash_of(struct arena *arena, const char *text, int length) {
    char hex[DIGEST_HEX_SIZE];
    digest_hex_of(text, strlen(text), hex);
    return arena_printf(arena, "%.*s", length, hex);
}

/* The number of an experiment: 18 digits of its name, as MLflow's own are. */
static const char *experiment_of(struct arena *arena, const char *name) {
    unsigned long long number = strtoull(hash_of(arena, name, 15), NULL, 16);
    return arena_printf(arena, "%018llu", 100000000000000000u + number % 900000000000000000u);
}

static status write_experiment(struct arena *arena, const char *store, const char *id, const char *name, double time) {
    SCOPED_TEXT text = {0};
    const char *path = arena_printf(arena, "%s/%s/meta.yaml", store, id);
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.exists) return OK;
    text_add(&text, "artifact_location: ");
    text_add_json(&text, arena_printf(arena, "%s/%s", store, id));
    text_printf(&text,
                "\ncreation_time: %.0f\nexperiment_id: '%s'\nlast_update_time: %.0f\nlifecycle_stage: active\nname: ",
                time * 1000, id, time * 1000);
    text_add_json(&text, name);
    text_add(&text, "\n");
    return io_replace_text(path, text_string(&text));
}

/* What is known of a run, last: before, MLflow does not see it. */
static status write_run(const struct run_data *run, const char *folder, const char *experiment, const char *id,
                        double begin) {
    static const int states[] = {
        [RUN_RUNNING] = 1, [RUN_COMPLETE] = 3, [RUN_FAILED] = 4, [RUN_STOPPED] = 5, [RUN_EMPTY] = 4};
    SCOPED_TEXT path = {0}, text = {0};
    text_printf(&path, "%s/artifacts", folder);
    text_add(&text, "artifact_uri: ");
    text_add_json(&text, text_string(&path));
    enum run_state state = run_data_state(run);
    text_printf(&text, "\nend_time: ");
    if (state == RUN_RUNNING)
        text_add(&text, "null");
    else
        text_printf(&text, "%.0f", run->modified * 1000);
    text_printf(&text, "\nentry_point_name: ''\nexperiment_id: '%s'\nlifecycle_stage: active\nrun_id: %s\nrun_name: ",
                experiment, id);
    text_add_json(&text, run->label);
    text_printf(&text,
                "\nrun_uuid: %s\nsource_name: ''\nsource_type: 4\nsource_version: ''\nstart_time: %.0f\nstatus: "
                "%d\ntags: []\nuser_id: ''\n",
                id, begin * 1000, states[state]);
    text_clear(&path);
    text_printf(&path, "%s/meta.yaml", folder);
    return io_replace_text(text_string(&path), text_string(&text));
}

static status write_contents(const struct run_data *run, const struct recorded *r, const char *folder,
                             const char *source, double begin) {
    const char **names = arena_alloc(r->arena, (run->key_count + 1) * sizeof *names);
    size_t count = 0;
    TRY(remove_files(r->arena, folder, "metrics"));
    TRY(remove_files(r->arena, folder, "params"));
    TRY(write_metrics(r, folder, begin));
    for (size_t i = 0; i < run->key_count; i++) {
        if (strcmp(run->keys[i].value, "null") == 0) continue;
        names[count] = name_without_others(r->arena, run->keys[i].key, names, count);
        TRY(write_value(folder, "params", names[count++], run->keys[i].value));
    }
    TRY(write_value(folder, "tags", "mlflow.runName", run->label));
    if (*run->sha256) TRY(write_value(folder, "tags", "state_sha256", run->sha256));
    return write_value(folder, "tags", "run_folder", source);
}

/* The same run has the same number each time, so that it replaces itself. */
static status write_mlflow(const struct run_data *run, const struct recorded *r, const char *experiment,
                           const char *out, struct log *log) {
    static const char *const folders[] = {"metrics", "params", "tags", "artifacts"};
    TRY(io_make_folders(out));
    SCOPED_STRING store = realpath(out, NULL);
    SCOPED_STRING source = realpath(run->path, NULL);
    struct arena *arena = r->arena;
    status s = store && source ? OK : status_new(STATUS_IO, "%s: its path cannot be found", store ? run->path : out);
    if (!s) {
        const char *number = experiment_of(arena, experiment), *id = hash_of(arena, source, 32);
        const char *folder = arena_printf(arena, "%s/%s/%s", store, number, id);
        double begin = run->modified - (isnan(run->seconds) ? r->seconds : run->seconds);
        for (size_t i = 0; !s && i < sizeof folders / sizeof *folders; i++)
            s = io_make_folders(arena_printf(arena, "%s/%s", folder, folders[i]));
        if (!s) s = write_experiment(arena, store, number, experiment, run->modified);
        if (!s) s = write_contents(run, r, folder, source, begin);
        if (!s) s = write_run(run, folder, number, id, begin);
        if (!s) log_line(log, "%s/%s/%s: run %s of experiment %s", out, number, id, run->label, experiment);
    }
    return s;
}

/* ---- runs and sweeps ---- */

static status write_csv(const struct run_data *run, const struct recorded *r, const char *out, struct log *log) {
    SCOPED_TEXT text = {0};
    add_csv(r, &text);
    status s = io_replace_text(out, text_string(&text));
    if (!s) log_line(log, "%s: %zu row%s of %s", out, r->count, text_plural(r->count, "s"), run->label);
    return s;
}

/* [experiment]: NULL: the name of the run's config. */
static status export_one(const char *format, const char *path, const char *experiment, const char *out,
                         struct log *log) {
    struct run_data *run;
    SCOPED_TEXT metrics = {0};
    bool has_restarted;
    struct line_file file = {0};
    TRY(run_data_read(path, &run));
    struct recorded r = {.arena = arena_create()};
    text_printf(&metrics, "%s/metrics.jsonl", run->path);
    status s = line_file_read(&file, text_string(&metrics), add_line, &r, &has_restarted);
    if (!s && r.count == 0) s = status_data("%s: the run has no step or epoch yet", text_string(&metrics));
    if (!experiment) experiment = run_data_key(run, "name");
    if (!s)
        s = strcmp(format, "mlflow") == 0 ? write_mlflow(run, &r, experiment ? experiment : run->label, out, log)
                                          : write_csv(run, &r, out, log);
    free(r.rows);
    free(r.cells);
    arena_destroy(r.arena);
    run_data_free(run);
    return s;
}

/* Each trial that has a run folder, without those that have no step yet or are damaged. The name of the sweep's folder
 * is that of the experiment. */
static status export_sweep(const char *path, const char *runs, const char *out, struct log *log) {
    SCOPED_NAMES names = {0};
    SCOPED_STRING whole = realpath(path, NULL);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    size_t left_out = 0;
    status s = io_list(runs, &names);
    for (size_t i = 0; !s && i < names.count; i++) {
        SCOPED_STRING run = text_path(runs, names.items[i]);
        s = export_one("mlflow", run, slash ? slash + 1 : path, out, log);
        if (s && status_code(s) == STATUS_DATA && ++left_out < names.count) {
            log_line(log, "left out: %s", status_message(s));
            status_free(s);
            s = OK;
        }
    }
    if (!s && names.count == 0) s = status_data("%s: the sweep has kept no run folder (keep)", path);
    return s;
}

bool run_export_has(const char *format) {
    return format && (strcmp(format, "mlflow") == 0 || strcmp(format, "metrics-csv") == 0);
}

status run_export(const char *format, const char *path, const char *out, struct log *log) {
    SCOPED_TEXT history = {0};
    struct io_info sweep;
    if (!out) return status_usage("export needs --out %s", strcmp(format, "mlflow") == 0 ? "FOLDER" : "FILE");
    text_printf(&history, "%s/history.jsonl", path);
    SCOPED_STRING runs = text_path(path, "runs");
    status s = io_stat(text_string(&history), &sweep);
    if (!s && sweep.exists && strcmp(format, "mlflow") != 0)
        s = status_usage("%s: a sweep has trials.csv; metrics-csv is of one run, such as %s/0000", path, runs);
    if (!s) s = sweep.exists ? export_sweep(path, runs, out, log) : export_one(format, path, NULL, out, log);
    return s;
}
