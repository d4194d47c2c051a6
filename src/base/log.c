/* One mutex guards the terminal and the file, because the saver's thread and the trainer both log. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/scoped.h"

struct log {
    pthread_mutex_t mutex;
    FILE *file; /* log.txt; NULL before log_open_file */
    bool is_quiet, has_progress;
    size_t progress; /* columns of the progress line that the terminal shows; 0: none */
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

/* As io_open_append (base/files/io.h): a FIFO would block. *fd is -1 after a failure. */
static status open_regular(const char *path, int *fd) {
    struct stat st;
    bool is_regular = stat(path, &st) != 0 || S_ISREG(st.st_mode) || S_ISDIR(st.st_mode);
    *fd = is_regular ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666) : -1;
    if (*fd >= 0 && fstat(*fd, &st) == 0 && S_ISREG(st.st_mode)) return OK;
    if (*fd < 0 && is_regular) return status_errno(STATUS_IO, errno, "cannot open %s", path);
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return status_new(STATUS_IO, "cannot write '%s': it is not a regular file, but %s; remove it", path,
                      S_ISFIFO(st.st_mode) ? "a FIFO" : "a device or socket");
}

status log_open_file(struct log *log, const char *path) {
    int fd;
    if (!log) return OK;
    TRY(open_regular(path, &fd));
    FILE *file = fdopen(fd, "a");
    if (!file) {
        close(fd);
        return status_memory("%s", path);
    }
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

/* A terminal that has become narrower shows the line in several rows, the cursor in the last one. */
static void erase_progress(struct log *log) {
    size_t rows_above = log->progress ? (log->progress - 1) / log_width() : 0;
    if (rows_above)
        fprintf(stderr, "\033[%zuA\r\033[J", rows_above);
    else if (log->progress)
        fputs("\r\033[K", stderr);
    log->progress = 0;
}

/* With the mutex. */
static void write_to_file(struct log *log, const char *text) {
    if (!log->file) return;
    fputs(text, log->file);
    fflush(log->file);
}

/* [terminal]: what standard error shows instead of [line]. */
static void write_line(struct log *log, const char *line, const char *terminal) {
    pthread_mutex_lock(&log->mutex);
    if (!log->is_quiet) {
        erase_progress(log);
        fputs(terminal, stderr);
        fflush(stderr);
    }
    write_to_file(log, line);
    pthread_mutex_unlock(&log->mutex);
}

static void add_line(struct log *log, const char *prefix, const char *format, va_list arguments) {
    SCOPED_TEXT line = {0};
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
    write_line(log, text_string(&line), text_string(&line));
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

void log_line_fitted(struct log *log, const char *line, const char *fitted) {
    SCOPED_TEXT whole = {0}, terminal = {0};
    if (!log) return;
    text_add_printable(&whole, line);
    text_add(&whole, "\n");
    text_add_printable(&terminal, fitted);
    text_add(&terminal, "\n");
    write_line(log, text_string(&whole), text_string(&terminal));
}

void log_file_line(struct log *log, const char *line) {
    if (!log) return;
    pthread_mutex_lock(&log->mutex);
    write_to_file(log, line);
    write_to_file(log, "\n");
    pthread_mutex_unlock(&log->mutex);
}

bool log_has_progress(const struct log *log) { return log && log->has_progress; }

size_t log_line_width(void) { return isatty(STDERR_FILENO) ? log_width() : SIZE_MAX; }

size_t log_width(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

void log_progress(struct log *log, const char *line) {
    if (!log_has_progress(log)) return;
    pthread_mutex_lock(&log->mutex);
    erase_progress(log);
    if (line) {
        SCOPED_TEXT printable = {0};
        text_add_value(&printable, line, TEXT_MAX_LINE);
        fputs(text_string(&printable), stderr);
        log->progress = printable.length;
    }
    fflush(stderr);
    pthread_mutex_unlock(&log->mutex);
}
