/* Lines are added to the buffer of an append_file; those of steps and epochs also to TensorBoard's event file. */
#include "train/metrics/metrics.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/numbers/decimal.h"
#include "base/scoped.h"
#include "train/metrics/append_file.h"
#include "train/metrics/event_file.h"

/* ---- writing ---- */

#define FLUSH_SECONDS 1.0
#define FLUSH_BYTES (1 << 16)

struct metrics {
    struct append_file file;
    _Atomic uint64_t synced; /* of its bytes: these are on the disk */
    double flushed;          /* monotonic time of the last flush */
    char rate_text[32];      /* of the last metrics_rate */
    double rate;
    struct event_file *events; /* TensorBoard's; NULL: none */
    enum metrics_event event;  /* being added */
    size_t line;               /* where its line begins in the buffer */
    int64_t step;              /* updates so far: the x axis of [events] */
    bool is_chained;
    char chain[METRICS_CHAIN_SIZE]; /* of the newest line */
};

#define TAIL 4096 /* bytes read at a time from the end; longer than nearly any line */

static const char *const event_names[] = {
    [METRICS_START] = "start",
    [METRICS_RESUME] = "resume",
    [METRICS_STEP] = "step",
    [METRICS_EPOCH] = "epoch",
    [METRICS_SKIPPED] = "skipped",
    [METRICS_ROLLBACK] = "rollback",
    [METRICS_CHECKPOINT] = "checkpoint",
    [METRICS_CHECKPOINT_FAILED] = "checkpoint_failed",
    [METRICS_STOPPED] = "stopped",
    [METRICS_END] = "end",
};

/* Reads the last bytes of a file of [size] bytes to tail (TAIL). */
static status read_tail(const char *path, uint64_t size, char tail[TAIL], size_t *got) {
    int fd;
    TRY(io_open(path, &fd));
    status s = io_read_at(fd, path, tail, TAIL, size > TAIL ? size - TAIL : 0, got);
    return status_first(s, io_close(fd, path));
}

/* Reduces *size, of the file [path], to the end of its last complete line. */
static status find_last_line_end(const char *path, uint64_t *size) {
    char tail[TAIL];
    int fd;
    TRY(io_open(path, &fd));
    status s = OK;
    bool is_found = false;
    while (!s && !is_found && *size > 0) {
        size_t length = *size < TAIL ? (size_t)*size : TAIL;
        s = io_read_at(fd, path, tail, length, *size - length, NULL);
        while (!s && length > 0 && tail[length - 1] != '\n') length--, --*size;
        is_found = length > 0;
    }
    return status_first(s, io_close(fd, path));
}

/* The number of the line in which the first NUL of the first [bytes] bytes is, or of the last, if they do not end with
 * a line; 0: neither. */
static status find_damage(int fd, const char *path, uint64_t bytes, uint64_t *line, bool *has_nul) {
    char part[1 << 15];
    uint64_t lines = 0;
    bool is_complete = true;
    for (uint64_t done = 0; done < bytes; done += sizeof part) {
        size_t size = bytes - done < sizeof part ? (size_t)(bytes - done) : sizeof part;
        TRY(io_read_at(fd, path, part, size, done, NULL));
        const char *nul = memchr(part, 0, size), *end = nul ? nul : part + size;
        for (const char *c = part; c < end; c++) lines += *c == '\n';
        *has_nul = nul != NULL;
        is_complete = part[size - 1] == '\n';
        if (nul) break;
    }
    *line = *has_nul || !is_complete ? lines + 1 : 0;
    return OK;
}

status metrics_check(const char *path, int64_t bytes, struct text *damage) {
    struct io_info info;
    uint64_t line = 0;
    bool has_nul = false;
    TRY(io_stat(path, &info));
    if (info.size < (uint64_t)bytes) text_printf(damage, "%s is shorter than at the last save", path);
    if (damage->length || bytes == 0) return OK;
    int fd;
    TRY(io_open(path, &fd));
    status s = find_damage(fd, path, (uint64_t)bytes, &line, &has_nul);
    s = status_first(s, io_close(fd, path));
    if (!s && line)
        text_printf(damage, "%s:%llu: %s", path, (unsigned long long)line,
                    has_nul ? "NUL characters in place of lines, as a full disk leaves them"
                            : "the last save ended within this line, so the file was changed");
    return s;
}

status metrics_open(const char *path, int64_t bytes, struct metrics **out) {
    struct metrics *m = calloc(1, sizeof *m);
    if (!m) return status_memory("metrics.jsonl");
    m->file = (struct append_file){.path = strdup(path), .fd = -1};
    m->flushed = clock_seconds();
    m->rate = NAN;
    struct io_info info = {0};
    status s = m->file.path ? io_open_append(path, &m->file.fd) : status_memory("metrics.jsonl");
    if (!s) s = io_stat_fd(m->file.fd, path, &info);
    uint64_t size = info.size < (uint64_t)bytes ? info.size : (uint64_t)bytes;
    if (!s && size) s = find_last_line_end(path, &size);
    m->file.size = info.size;
    if (!s) s = append_file_truncate(&m->file, size);
    if (s) status_free(metrics_close(m));
    if (!s) *out = m;
    return s;
}

static status flush(struct metrics *m) {
    m->flushed = clock_seconds();
    TRY(event_file_flush(m->events));
    return append_file_flush(&m->file);
}

static status open_events(struct metrics *m) {
    SCOPED_STRING folder = io_folder_of(m->file.path);
    return folder ? event_file_open(folder, m->step, &m->events) : status_memory("the event file");
}

status metrics_open_events(struct metrics *metrics, int64_t step) {
    metrics->step = step;
    return open_events(metrics);
}

#define CHAIN_NAME ",\"chain\":\""
#define CHAIN_LENGTH (sizeof CHAIN_NAME - 1 + METRICS_CHAIN_SIZE - 1 + 2) /* of the field and the end of the line */

/* That of [size] bytes of a line after [chain], which it replaces. */
static void continue_chain(const char *line, size_t size, char chain[METRICS_CHAIN_SIZE]) {
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    digest_start(&digest);
    digest_add(&digest, chain, strlen(chain));
    digest_add(&digest, line, size);
    digest_finish(&digest, hash);
    digest_hex(hash, hex);
    memcpy(chain, hex, METRICS_CHAIN_SIZE - 1);
    chain[METRICS_CHAIN_SIZE - 1] = 0;
}

/* The text of the field `chain` of a line, METRICS_CHAIN_SIZE - 1 characters; NULL: it has none. */
static const char *chain_of_line(const char *line, size_t size) {
    if (size < CHAIN_LENGTH) return NULL;
    const char *name = line + size - CHAIN_LENGTH, *text = name + sizeof CHAIN_NAME - 1;
    if (memcmp(name, CHAIN_NAME, sizeof CHAIN_NAME - 1) != 0 || memcmp(line + size - 2, "\"}", 2) != 0) return NULL;
    for (size_t i = 0; i < METRICS_CHAIN_SIZE - 1; i++)
        if (!strchr("0123456789abcdef", text[i]) || !text[i]) return NULL;
    return text;
}

bool metrics_line_chain(const char *line, size_t size, char chain[METRICS_CHAIN_SIZE]) {
    const char *text = chain_of_line(line, size);
    if (!text) return false;
    continue_chain(line, size - CHAIN_LENGTH, chain);
    bool is_equal = memcmp(chain, text, METRICS_CHAIN_SIZE - 1) == 0;
    memcpy(chain, text, METRICS_CHAIN_SIZE - 1);
    return is_equal;
}

status metrics_chain(struct metrics *m) {
    char tail[TAIL];
    size_t got = 0;
    m->is_chained = true;
    m->chain[0] = 0;
    if (m->file.size == 0) return OK;
    TRY(read_tail(m->file.path, m->file.size, tail, &got));
    const char *text = got && tail[got - 1] == '\n' ? chain_of_line(tail, got - 1) : NULL;
    if (!text) return status_data("%s: its last line has no chain", m->file.path);
    memcpy(m->chain, text, METRICS_CHAIN_SIZE - 1);
    m->chain[METRICS_CHAIN_SIZE - 1] = 0;
    return OK;
}

status metrics_rewind(struct metrics *metrics, int64_t bytes, int64_t step) {
    metrics->step = step;
    event_file_restart(metrics->events, step);
    TRY(append_file_truncate(&metrics->file, (uint64_t)bytes));
    metrics->synced = 0;
    return metrics->is_chained ? metrics_chain(metrics) : OK;
}

status metrics_close(struct metrics *metrics) {
    if (!metrics) return OK;
    status s = append_file_close(&metrics->file);
    s = status_first(s, event_file_close(metrics->events));
    free(metrics);
    return s;
}

/* A deleted file can be read by its descriptor, through /proc/self/fd, as long as that is open. */
static status copy_lines(const struct metrics *m, const char *path, int to, int64_t *copied) {
    char source[64], bytes[1 << 14];
    int from;
    size_t got;
    snprintf(source, sizeof source, "/proc/self/fd/%d", m->file.fd);
    *copied = 0;
    status s = io_open(source, &from);
    if (s) { /* the lines are lost */
        status_free(s);
        return OK;
    }
    do {
        s = io_read(from, source, bytes, sizeof bytes, &got);
        if (!s) s = io_write(to, path, bytes, got);
        if (!s) *copied += (int64_t)got;
    } while (!s && got == sizeof bytes);
    return status_first(s, io_close(from, source));
}

/* Copies the lines to a new file [part] and renames that to [path], so that [path] never contains a part of them. */
static status copy_to(const struct metrics *m, const char *path, const char *part, int *to, int64_t *copied) {
    TRY(io_remove(part)); /* of an interrupted attempt */
    TRY(io_open_append(part, to));
    status s = copy_lines(m, part, *to, copied);
    if (!s) s = io_rename(part, path);
    if (!s) return OK;
    status_free(io_close(*to, part));
    status_free(io_remove(part));
    return s;
}

/* Starts a new event file in the new folder. */
static status reopen_events(struct metrics *m) {
    status_free(event_file_close(m->events));
    m->events = NULL;
    return open_events(m);
}

status metrics_move(struct metrics *m, const char *path) {
    int to;
    int64_t copied;
    char *name = strdup(path);
    if (!name) return status_memory("metrics.jsonl");
    SCOPED_STRING part = text_format("%s.part", path);
    status s = flush(m);
    if (!s) s = copy_to(m, path, part, &to, &copied);
    if (s) {
        free(name);
        return s;
    }
    status_free(append_file_close(&m->file));
    m->file = (struct append_file){.path = name, .fd = to, .size = (uint64_t)copied};
    m->synced = 0;
    return m->events ? reopen_events(m) : OK;
}

void metrics_begin(struct metrics *metrics, enum metrics_event event) {
    if (!metrics) return;
    metrics->event = event;
    metrics->line = metrics->file.buffer.length;
    text_add(&metrics->file.buffer, "{\"event\":\"");
    text_add(&metrics->file.buffer, event_names[event]);
    text_add(&metrics->file.buffer, "\"");
}

/* Adds ,"name": */
static void add_name(struct metrics *metrics, const char *name, size_t length) {
    char *end = text_reserve(&metrics->file.buffer, length + 4);
    *end++ = ',', *end++ = '"';
    for (size_t i = 0; i < length; i++) *end++ = name[i];
    *end++ = '"', *end = ':';
    text_extend(&metrics->file.buffer, length + 4);
}

void metrics_add_int(struct metrics *metrics, const char *name, size_t length, int64_t value) {
    if (!metrics) return;
    add_name(metrics, name, length);
    text_add_int(&metrics->file.buffer, value);
}

void metrics_step(struct metrics *metrics, int64_t step) {
    if (!metrics) return;
    metrics->step = step;
    metrics_int(metrics, "step", step);
}

static void add_scalar(struct metrics *metrics, const char *name, double value) {
    if (metrics->event == METRICS_STEP || metrics->event == METRICS_EPOCH)
        event_file_add_scalar(metrics->events, event_names[metrics->event], name, value);
}

void metrics_add_real(struct metrics *metrics, const char *name, size_t length, double value) {
    struct text *line = metrics ? &metrics->file.buffer : NULL;
    if (!metrics) return;
    add_scalar(metrics, name, value);
    add_name(metrics, name, length);
    if (isfinite(value))
        text_extend(line, decimal_write(value, text_reserve(line, DECIMAL_MAX)));
    else
        text_add(line, "null");
}

void metrics_rate(struct metrics *metrics, const char *name, double value) {
    if (!metrics) return;
    add_scalar(metrics, name, value);
    add_name(metrics, name, strlen(name));
    if (value == metrics->rate) {
        text_add(&metrics->file.buffer, metrics->rate_text);
        return;
    }
    size_t start = metrics->file.buffer.length;
    text_add_double(&metrics->file.buffer, value);
    snprintf(metrics->rate_text, sizeof metrics->rate_text, "%s", metrics->file.buffer.data + start);
    metrics->rate = value;
}

void metrics_matrix(struct metrics *metrics, const char *name, const double *values, size_t rows, size_t columns) {
    if (!metrics) return;
    add_name(metrics, name, strlen(name));
    for (size_t i = 0; i < rows; i++) {
        text_add(&metrics->file.buffer, i ? ",[" : "[[");
        for (size_t j = 0; j < columns; j++)
            text_printf(&metrics->file.buffer, "%s%.10g", j ? "," : "", values[i * columns + j]);
        text_add(&metrics->file.buffer, "]");
    }
    text_add(&metrics->file.buffer, "]");
}

void metrics_text(struct metrics *metrics, const char *name, const char *value) {
    if (!metrics) return;
    add_name(metrics, name, strlen(name));
    text_add_json(&metrics->file.buffer, value);
}

void metrics_hash(struct metrics *metrics, const char *name, uint64_t value) {
    if (!metrics) return;
    add_name(metrics, name, strlen(name));
    text_printf(&metrics->file.buffer, "\"%016llx\"", (unsigned long long)value);
}

static void end_chained_line(struct metrics *m) {
    struct text *buffer = &m->file.buffer;
    continue_chain(buffer->data + m->line, buffer->length - m->line, m->chain);
    text_add(buffer, CHAIN_NAME);
    text_add(buffer, m->chain);
    text_add(buffer, "\"");
}

status metrics_end(struct metrics *metrics) {
    if (!metrics) return OK;
    if (metrics->is_chained) end_chained_line(metrics);
    text_add(&metrics->file.buffer, "}\n");
    event_file_end_event(metrics->events, metrics->step);
    bool is_due = clock_recent_seconds() - metrics->flushed >= FLUSH_SECONDS;
    if (!is_due && (metrics->file.is_torn || metrics->file.buffer.length < FLUSH_BYTES)) return OK;
    status s = flush(metrics);
    if (!status_is_system(s) || metrics->file.buffer.length >= APPEND_FILE_MAX_BUFFER) return s;
    status_free(s); /* metrics_flush reports it if it persists */
    return OK;
}

int64_t metrics_size(const struct metrics *metrics) {
    return (int64_t)(metrics->file.size + metrics->file.buffer.length);
}

status metrics_flush(struct metrics *metrics, int64_t *bytes) {
    TRY(flush(metrics));
    *bytes = (int64_t)metrics->file.size;
    return OK;
}

void metrics_start_sync(const struct metrics *metrics) {
    if (metrics->file.size != metrics->synced) io_start_sync(metrics->file.fd, 0, 0);
}

status metrics_sync(struct metrics *metrics) {
    uint64_t size = metrics->file.size;
    if (size == metrics->synced) return OK;
    TRY(io_sync(metrics->file.fd, metrics->file.path));
    metrics->synced = size;
    return OK;
}

/* ---- reading ---- */

/* Lines are compared by their beginning; JSON is not parsed here. */

bool metrics_line_is(const char *line, enum metrics_event event) {
    static const char start[] = "{\"event\":\"";
    size_t length = strlen(event_names[event]);
    if (!line || strncmp(line, start, sizeof start - 1) != 0) return false;
    return strncmp(line + sizeof start - 1, event_names[event], length) == 0 && line[sizeof start - 1 + length] == '"';
}

static status open_file(const char *path, FILE **out) {
    struct io_info info;
    int fd;
    *out = NULL;
    TRY(io_stat(path, &info));
    if (!info.exists) return OK;
    if (!info.is_file) return status_data("%s: not a regular file", path);
    TRY(io_open(path, &fd));
    *out = fdopen(fd, "r");
    if (*out) return OK;
    status_free(io_close(fd, path));
    return status_memory("metrics.jsonl");
}

/* The buffer of getline. */
struct line {
    char *text;
    size_t size;
};

static void swap(struct line *a, struct line *b) {
    struct line old = *a;
    *a = *b;
    *b = old;
}

static status copy(const char *line, char **out) {
    free(*out);
    *out = strdup(line);
    return *out ? OK : status_memory("metrics.jsonl");
}

status metrics_read(const char *path, struct metrics_lines *out) {
    struct line line = {0}, step = {0}, other = {0};
    FILE *file;
    *out = (struct metrics_lines){0};
    TRY(open_file(path, &file));
    if (!file) return OK;
    status s = OK;
    ssize_t length;
    while (!s && (length = getline(&line.text, &line.size, file)) > 0) {
        bool is_complete =
            line.text[length - 1] == '\n'; /* else the last: it is being written, or its run was killed */
        bool is_step = metrics_line_is(line.text, METRICS_STEP);
        out->is_other_last = is_complete && !is_step;
        if (!is_complete) break;
        if (metrics_line_is(line.text, METRICS_EPOCH)) s = copy(line.text, &out->epoch);
        swap(&line, is_step ? &step : &other);
    }
    if (!s && ferror(file)) s = status_errno(STATUS_IO, errno, "cannot read '%s'", path);
    fclose(file);
    free(line.text);
    out->step = step.text;
    out->other = other.text;
    if (s) metrics_lines_free(out);
    return s;
}

void metrics_lines_free(struct metrics_lines *lines) {
    free(lines->step);
    free(lines->epoch);
    free(lines->other);
    *lines = (struct metrics_lines){0};
}

status metrics_ends_with(const char *path, enum metrics_event event, bool *out) {
    char tail[TAIL];
    struct io_info info;
    size_t got = 0;
    *out = false;
    TRY(io_stat(path, &info));
    if (!info.exists) return OK;
    TRY(read_tail(path, info.size, tail, &got));
    if (got == 0 || tail[got - 1] != '\n') return OK;
    tail[got - 1] = 0;
    const char *newline = strrchr(tail, '\n');
    *out = metrics_line_is(newline ? newline + 1 : tail, event);
    return OK;
}
