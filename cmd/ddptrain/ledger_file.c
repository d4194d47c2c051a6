/* ledger_file: the ledger of a run (train/loop/ledger.h) that a command reads, and runs of this program that repeat a
 * part of it (audit, bisect, replay). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/digest.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/system/machine.h"
#include "checkpoint/checkpoint.h"
#include "command.h"
#include "device/device.h"
#include "train/loop/ledger.h"

#define MAX_LEDGER_GIB 4
#define MAX_LEDGER ((uint64_t)MAX_LEDGER_GIB << 30)

static const enum metrics_event ledger_events[] = {METRICS_START,      METRICS_RESUME,  METRICS_STEP,
                                                   METRICS_CHECKPOINT, METRICS_STOPPED, METRICS_END};

/* ---- fields of a line ---- */

void ledger_line_add(const struct ledger_line *line, const char *key, struct text *out) {
    struct json_line json;
    if (!json_line_read(line->text, line->size, &json)) return;
    const struct json_field *field = json_line_find(&json, key);
    size_t quote = field && field->kind == KIND_TEXT;
    if (field) text_add_bytes(out, field->text - quote, field->length + 2 * quote);
}

int64_t ledger_line_int(const struct ledger_line *line, const char *key) {
    struct json_line json;
    int64_t value = -1;
    const struct json_field *field = json_line_read(line->text, line->size, &json) ? json_line_find(&json, key) : NULL;
    if (field) json_field_int(field, 0, (int64_t)1 << 53, &value);
    return value;
}

bool ledger_line_has(const struct ledger_line *line, const char *key) {
    struct json_line json;
    return json_line_read(line->text, line->size, &json) && json_line_find(&json, key);
}

bool ledger_line_equals(const struct ledger_line *a, const struct ledger_line *b, const char *key) {
    SCOPED_TEXT x = {0}, y = {0};
    ledger_line_add(a, key, &x), ledger_line_add(b, key, &y);
    return strcmp(text_string(&x), text_string(&y)) == 0;
}

void ledger_line_compare(const struct ledger_line *recorded, const struct ledger_line *repeated,
                         const char *const *keys, struct text *equal, struct text *differences) {
    for (size_t i = 0; keys[i]; i++) {
        if (ledger_line_equals(recorded, repeated, keys[i])) {
            text_printf(equal, "%s%s", equal->length ? ", " : "", keys[i]);
            continue;
        }
        text_printf(differences, "%s%s is ", differences->length ? "; " : "", keys[i]);
        ledger_line_add(recorded, keys[i], differences);
        text_add(differences, " as recorded and ");
        ledger_line_add(repeated, keys[i], differences);
        text_add(differences, " when it is repeated");
    }
}

const char *ledger_line_word(struct arena *arena, const struct ledger_line *line, const char *key) {
    struct json_line json;
    const struct json_field *field = json_line_read(line->text, line->size, &json) ? json_line_find(&json, key) : NULL;
    SCOPED_STRING text = field && field->kind == KIND_TEXT ? json_field_text(field) : NULL;
    return arena_copy(arena, text ? text : "");
}

const struct ledger_line *ledger_find(const struct ledger_file *ledger, enum metrics_event event, int64_t step) {
    for (size_t i = ledger->count; i-- > 0;)
        if (ledger->lines[i].event == event && (step < 0 || ledger->lines[i].step == step)) return &ledger->lines[i];
    return NULL;
}

size_t ledger_line_number(const struct ledger_file *ledger, const struct ledger_line *line) {
    size_t number = 1;
    for (const char *at = ledger->text; (at = strchr(at, '\n')) && at < line->text; at++) number++;
    return number;
}

const struct ledger_line *ledger_start_at(const struct ledger_file *ledger, int64_t step) {
    const struct ledger_line *start = NULL;
    for (size_t i = 0; i < ledger->count && ledger->lines[i].step <= step; i++)
        if (ledger->lines[i].event == METRICS_START || ledger->lines[i].event == METRICS_RESUME)
            start = &ledger->lines[i];
    return start;
}

bool ledger_has_file(const char *path) {
    struct io_info info;
    status s = io_stat(path, &info);
    bool exists = !s && info.exists;
    status_free(s);
    return exists;
}

status ledger_read_counter(const char *path, const char *counter, int64_t *out) {
    SCOPED_CHECKPOINT checkpoint = NULL;
    struct entry entry = {.path = counter, .type = ENTRY_INT64, .data = out, .is_optional = true};
    TRY(checkpoint_open(path, &checkpoint));
    return checkpoint_read(checkpoint, &entry, 1, NULL);
}

/* ---- reading ---- */

/* false: the line is none of a ledger. */
static bool read_line(struct ledger_line *line) {
    bool is_known = false;
    for (size_t i = 0; i < sizeof ledger_events / sizeof *ledger_events && !is_known; i++) {
        line->event = ledger_events[i];
        is_known = metrics_line_is(line->text, line->event);
    }
    line->step = ledger_line_int(line, "step");
    return is_known && line->step >= 0;
}

static status alloc_lines(struct ledger_file *l) {
    size_t max = 0;
    for (const char *at = l->text; (at = strchr(at, '\n')); at++) max++;
    l->lines = calloc(max + 1, sizeof *l->lines);
    return l->lines ? OK : status_memory("%s", l->path);
}

/* STATUS_DIVERGED where the chain is broken. A last line without its end, of a run that was killed, is left out. */
static status read_lines(struct ledger_file *l) {
    TRY(alloc_lines(l));
    for (char *at = l->text, *end; (end = strchr(at, '\n')); at = end + 1) {
        struct ledger_line *line = &l->lines[l->count++];
        *line = (struct ledger_line){.text = at, .size = (size_t)(end - at)};
        if (!metrics_line_chain(at, line->size, l->chain))
            return status_new(
                STATUS_DIVERGED,
                "%s:%zu: the chain is broken: this line was changed, or lines before it were changed, removed or moved",
                l->path, l->count);
        if (!read_line(line)) return status_data("%s:%zu: not a line of a ledger", l->path, l->count);
    }
    if (l->count == 0) return status_data("%s: no complete line", l->path);
    if (ledger_line_int(l->lines, "version") > LEDGER_VERSION)
        return status_data("%s: written by a newer version of ddptrain; read it with that", l->path);
    if (l->lines[0].event != METRICS_START && l->lines[0].event != METRICS_RESUME)
        return status_new(STATUS_DIVERGED, "%s:1: the first line is not that of a start: lines were removed", l->path);
    return OK;
}

/* NUL characters at the end are a last line that a power failure has left without its bytes. */
static status check_nul(const struct ledger_file *file, size_t size) {
    size_t length = strlen(file->text), line = 1, rest = length;
    while (rest < size && file->text[rest] == 0) rest++;
    if (rest == size) return OK;
    for (const char *at = file->text; (at = strchr(at, '\n')); at++) line++;
    return status_new(
        STATUS_DATA,
        "%s:%zu: NUL characters in place of lines, as a power failure or a full disk leaves them; without "
        "these lines the run cannot be compared",
        file->path, line);
}

static status read_text(const char *folder, const char *name, struct ledger_file *out) {
    struct io_info info;
    *out = (struct ledger_file){.path = text_path(folder, name)};
    TRY(io_read_text(out->path, MAX_LEDGER, &out->text, &info));
    if (info.exists && !out->text) return status_data("%s: not a file of at most %d GiB", out->path, MAX_LEDGER_GIB);
    return out->text ? check_nul(out, (size_t)info.size) : OK;
}

status ledger_file_read(const char *folder, struct ledger_file *out) {
    TRY(read_text(folder, "ledger.jsonl", out));
    if (out->text) return read_lines(out);
    return status_data("%s: there is no such file; it is not written with train.ledger: off", out->path);
}

status ledger_file_read_metrics(const char *folder, struct ledger_file *out) {
    TRY(read_text(folder, "metrics.jsonl", out));
    if (!out->text) return OK;
    TRY(alloc_lines(out));
    for (char *at = out->text, *end; (end = strchr(at, '\n')); at = end + 1) {
        struct ledger_line line = {.text = at, .size = (size_t)(end - at)};
        bool is_known = read_line(&line), is_epoch = metrics_line_is(at, METRICS_EPOCH);
        if (is_epoch) line.event = METRICS_EPOCH, line.step = out->count ? out->lines[out->count - 1].step : 0;
        bool is_start = line.event == METRICS_START || line.event == METRICS_RESUME;
        if (!is_known && is_start) line.step = ledger_line_int(&line, "first_step") - 1;
        if (is_known || is_epoch || (is_start && line.step >= 0)) out->lines[out->count++] = line;
    }
    return OK;
}

void ledger_file_close(struct ledger_file *ledger) {
    free(ledger->path), free(ledger->text), free(ledger->lines);
    *ledger = (struct ledger_file){0};
}

/* ---- configs ---- */

static bool has_sha256(const char *text, const char *wanted) {
    char hex[DIGEST_HEX_SIZE];
    digest_hex_of(text, strlen(text), hex);
    return strcmp(hex, wanted) == 0;
}

/* That of a checkpoint. A damaged file has none: it is reported where it is needed. */
static char *config_of_file(const char *path) {
    SCOPED_CHECKPOINT checkpoint = NULL;
    char *text = NULL;
    status s = checkpoint_open(path, &checkpoint);
    if (!s) s = checkpoint_read_text(checkpoint, "config", &text);
    status_free(s);
    return text;
}

/* That of a start. STATUS_DIVERGED: another one than its line says. */
static status config_of_start(struct arena *arena, const struct ledger_file *ledger, const char *wanted,
                              const char **out) {
    for (size_t i = 0; i < ledger->count && !*out; i++) {
        const struct ledger_line *line = &ledger->lines[i];
        bool is_start = line->event == METRICS_START || line->event == METRICS_RESUME;
        if (!is_start || !ledger_line_has(line, "config")) continue;
        if (strcmp(ledger_line_word(arena, line, "config_sha256"), wanted) != 0) continue;
        *out = ledger_line_word(arena, line, "config");
        if (!has_sha256(*out, wanted))
            return status_new(STATUS_DIVERGED, "%s:%zu: its config is not the one of its config_sha256", ledger->path,
                              i + 1);
    }
    return OK;
}

status ledger_find_config(struct arena *arena, const char *folder, const struct ledger_file *ledger, const char *wanted,
                          const char **out) {
    const char *files = arena_printf(arena, "%s/checkpoints", folder);
    struct io_info info;
    SCOPED_NAMES names = {0};
    SCOPED_STRING yaml = NULL;
    *out = NULL;
    TRY(config_of_start(arena, ledger, wanted, out));
    if (*out) return OK;
    TRY(io_read_text(arena_printf(arena, "%s/config.yaml", folder), 1 << 24, &yaml, &info));
    if (yaml && has_sha256(yaml, wanted)) *out = arena_copy(arena, yaml);
    if (*out) return OK;
    TRY(io_stat(files, &info));
    if (info.is_folder) TRY(io_list(files, &names));
    for (size_t i = 0; i < names.count && !*out; i++) {
        if (!checkpoint_has_ending(names.items[i])) continue;
        SCOPED_STRING text = config_of_file(arena_printf(arena, "%s/%s", files, names.items[i]));
        if (text && has_sha256(text, wanted)) *out = arena_copy(arena, text);
    }
    return OK;
}

/* ---- whether this machine can repeat it ---- */

status ledger_check_ended(const char *folder) {
    bool is_held;
    TRY(folder_lock_is_held(folder, &is_held));
    if (!is_held) return OK;
    return status_usage(
        "%s: this run is still running: wait for its end, stop it (the same command continues it later), "
        "or give a copy of its folder",
        folder);
}

status ledger_processes(const struct command_line *line, int64_t world, bool is_elastic, int64_t *out) {
    *out = world;
    if (!line->nproc) return OK;
    char *end;
    *out = strtol(line->nproc, &end, 10);
    if (*end || *out < 1) return status_usage("--nproc: expected a number of at least 1, got '%s'", line->nproc);
    if (*out == world || is_elastic) return OK;
    return status_usage(
        "--nproc %s: this run had %lld process%s, and only runs with determinism.mode: elastic have the "
        "same bits on another number",
        line->nproc, (long long)world, text_plural((uint64_t)world, "es"));
}

static bool is_cpu(const char *device) { return strncmp(device, "cpu", 3) == 0; }

/* Whether a run on [device], such as "cpu (avx512, bfloat16)", had the instructions of [own], "cpu (avx512)". */
static bool has_instructions(const char *device, const char *own) {
    size_t length = strlen(own), bracket = length > 0 && own[length - 1] == ')' ? length - 1 : length;
    if (strcmp(device, own) == 0) return true;
    return strncmp(device, own, bracket) == 0 && strcmp(device + bracket, ", bfloat16)") == 0;
}

status ledger_check_processor(const char *folder, const char *processor, const char *where, bool is_portable) {
    char name[128];
    struct device *device;
    if (is_portable || !is_cpu(where)) return OK;
    if (!processor_model(name, sizeof name)) name[0] = 0;
    TRY(device_create("cpu", &device));
    bool is_same = (!processor || strcmp(name, processor) == 0) && has_instructions(where, device_describe(device));
    status s = OK;
    if (!is_same)
        s = status_usage(
            "%s: trained on %s%s%s, without determinism.portable, so that this processor (%s, %s) may have "
            "other bits; repeat it there, or train with determinism: {portable: true}",
            folder, processor ? processor : "", processor ? ", " : "", where, name, device_describe(device));
    device_destroy(device);
    return s;
}

/* ---- repeating ---- */

/* The stage of ZeRO of a repetition, if it has another one than the run. On CPUs 0, whose states are whole, or 2 where
 * that has other bits. On GPUs NCCL may sum in another order for 0; a trace of 3, whose processes have a part of the
 * parameters, needs 2. */
static const char *stage_of(const struct repetition *r) {
    SCOPED_CONFIG file = NULL;
    status s = config_parse("config.yaml", r->config, &file);
    bool is_by_shards = !s && config_sums_by_shards(config_of(file));
    bool is_divided = !s && config_of(file)->dist.zero_stage == 3;
    status_free(s); /* the repetition reports it */
    if (!is_cpu(r->device)) return is_divided && r->trace ? "dist.zero_stage=2" : NULL;
    return is_by_shards ? "dist.zero_stage=2" : "dist.zero_stage=0";
}

status ledger_repeat(const struct repetition *r) {
    SCOPED_TEXT resume = {0};
    SCOPED_ARENA arena = arena_create();
    const char **words = arena_alloc(arena, (32 + r->override_count) * sizeof *words);
    const char *config = arena_printf(arena, "%s/config.yaml", r->temporary);
    const char *output = arena_printf(arena, "%s/output.txt", r->temporary);
    size_t count = 0;
    int code = 0;
    text_add(&resume, "checkpoint.resume=");
    text_add_json(&resume, r->from ? r->from : ""); /* a value of YAML in quotes */
    const char *const fixed[] = {"ddptrain",
                                 config,
                                 "--quiet",
                                 "--no-progress",
                                 "--nproc",
                                 arena_printf(arena, "%lld", (long long)r->processes),
                                 "--run-dir",
                                 r->folder,
                                 "--stop-after",
                                 arena_printf(arena, "%lld", (long long)r->stop),
                                 arena_printf(arena, "train.ledger={mode: auto, every: %lld}", (long long)r->every),
                                 "checkpoint.keep=1",
                                 "checkpoint.save_every={steps: 4503599627370496}",
                                 "train.tensorboard=false"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) words[count++] = fixed[i];
    if (r->device) words[count++] = is_cpu(r->device) ? "train.device=cpu" : "train.device=cuda";
    const char *stage = r->device ? stage_of(r) : NULL;
    if (stage) words[count++] = stage;
    if (r->trace) words[count++] = "--trace", words[count++] = r->trace;
    if (r->save_at) words[count++] = "--save-at", words[count++] = r->save_at;
    for (size_t i = 0; i < r->override_count; i++) words[count++] = r->overrides[i];
    if (r->from) words[count++] = text_string(&resume); /* the last one counts */
    TRY(io_replace_text(config, r->config));
    TRY(command_run_child(words, output, &code));
    if (code == 0 || code == STATUS_STOPPED) return OK;
    SCOPED_TEXT reason = {0};
    command_add_reason(output, &reason);
    return status_new(code > 128 ? STATUS_BUG : (enum status_code)code,
                      "steps %lld to %lld of %s cannot be repeated: %s", (long long)r->first, (long long)r->stop,
                      r->name, text_string(&reason));
}
