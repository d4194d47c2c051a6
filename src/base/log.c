/* One mutex guards the terminal and the file, because the saver's thread and the trainer both log. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"

struct log {
    pthread_mutex_t mutex;
    FILE *file; /* log.txt; NULL before log_open_file */
    bool is_quiet, has_progress;
    bool shows_progress; /* the terminal shows a progress line */
};

struct log *log_create(bool is_quiet, bool has_progress) {
    struct log *log = calloc(1, sizeof *log);
    if (!log) return NULL;
    pthread_mutex_init(&log->mutex, NULL);
    log->is_quiet = is_quiet;
    const char *term = getenv("TERM");
    log->has_progress = has_progress && !is_quiet && isatty(STDERR_FILENO) && !(term && strcmp(term, "dumb") == 0);
    return log;
}

status log_open_file(struct log *log, const char *path) {
    if (!log) return OK;
    FILE *file = fopen(path, "ae");
    if (!file) return status_errno(STATUS_IO, errno, "cannot open %s", path);
    pthread_mutex_lock(&log->mutex);
    if (log->file) fclose(log->file);
    log->file = file;
    pthread_mutex_unlock(&log->mutex);
    return OK;
}

void log_destroy(struct log *log) {
    if (!log) return;
    log_progress(log, NULL);
    if (log->file) fclose(log->file);
    pthread_mutex_destroy(&log->mutex);
    free(log);
}

static void erase_progress(struct log *log) {
    if (log->shows_progress) fputs("\r\033[K", stderr);
    log->shows_progress = false;
}

/* With the mutex. */
static void write_to_file(struct log *log, const char *text) {
    if (!log->file) return;
    fputs(text, log->file);
    fflush(log->file);
}

static void add_line(struct log *log, const char *prefix, const char *format, va_list arguments) {
    struct text line = {0};
    text_add(&line, prefix);
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *body = length < 0 ? NULL : malloc((size_t)length + 1);
    if (body) {
        vsnprintf(body, (size_t)length + 1, format, arguments);
        text_add_printable(&line, body);
        free(body);
    }
    text_add(&line, "\n");
    pthread_mutex_lock(&log->mutex);
    if (!log->is_quiet) {
        erase_progress(log);
        fputs(text_string(&line), stderr);
        fflush(stderr);
    }
    write_to_file(log, text_string(&line));
    pthread_mutex_unlock(&log->mutex);
    text_free(&line);
}

void log_line(struct log *log, const char *format, ...) {
    if (!log) return;
    va_list arguments;
    va_start(arguments, format);
    add_line(log, "", format, arguments);
    va_end(arguments);
}

void log_warning(struct log *log, const char *format, ...) {
    if (!log) return;
    va_list arguments;
    va_start(arguments, format);
    add_line(log, "warning: ", format, arguments);
    va_end(arguments);
}

void log_file_line(struct log *log, const char *line) {
    if (!log) return;
    pthread_mutex_lock(&log->mutex);
    write_to_file(log, line);
    write_to_file(log, "\n");
    pthread_mutex_unlock(&log->mutex);
}

bool log_has_progress(const struct log *log) { return log && log->has_progress; }

size_t log_width(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void log_progress(struct log *log, const char *line) {
    if (!log_has_progress(log)) return;
    pthread_mutex_lock(&log->mutex);
    erase_progress(log);
    if (line) {
        fputs(line, stderr);
        log->shows_progress = true;
    }
    fflush(stderr);
    pthread_mutex_unlock(&log->mutex);
}
