/* Lines are compared by their beginning; JSON is not parsed here. */
#include "train/metrics/metrics_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"

#define TAIL 4096 /* longer than nearly any line */

bool metrics_line_is(const char *line, enum metrics_event event) {
    char start[64];
    int length = snprintf(start, sizeof start, "{\"event\":\"%s\"", metrics_event_name(event));
    return line && strncmp(line, start, (size_t)length) == 0;
}

static status open_file(const char *path, FILE **out) {
    struct io_info info;
    int fd;
    *out = NULL;
    TRY(io_stat(path, &info));
    if (!info.exists) return OK;
    if (!info.is_file) return status_new(STATUS_DATA, "%s: not a regular file", path);
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
    char tail[TAIL + 1];
    struct io_info info;
    size_t got = 0;
    int fd;
    *out = false;
    TRY(io_stat(path, &info));
    if (!info.exists) return OK;
    TRY(io_open(path, &fd));
    uint64_t offset = info.size > TAIL ? info.size - TAIL : 0;
    status s = io_read_at(fd, path, tail, TAIL, offset, &got);
    TRY(status_first(s, io_close(fd, path)));
    if (got == 0 || tail[got - 1] != '\n') return OK;
    tail[got - 1] = 0;
    const char *newline = strrchr(tail, '\n');
    *out = metrics_line_is(newline ? newline + 1 : tail, event);
    return OK;
}
