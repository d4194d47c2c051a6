/* Copies the output of ranks: each line in one write, after "[rank N] ", so that output of several ranks never mixes
 * within a line. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/files/io.h"
#include "dist/launch/launch_internal.h"

#define MAX_LINE 8192
#define MAX_UNLOGGED 65536 /* bytes of output that are kept until the log is open */

static void write_all(int fd, const char *bytes, size_t size) {
    while (size > 0) {
        ssize_t done = write(fd, bytes, size);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return; /* an error, such as a full disk, must not end the job */
        bytes += done;
        size -= (size_t)done;
    }
}

static void write_log(struct launched_rank *r, const char *line, size_t size) {
    if (r->log >= 0)
        write_all(r->log, line, size);
    else if (r->unlogged.length + size <= MAX_UNLOGGED)
        text_add_bytes(&r->unlogged, line, size);
}

static void end_line(struct launched_rank *r) {
    struct text line = {0};
    text_add(&r->line, "\n");
    text_printf(&line, "[rank %d] ", r->rank);
    text_add_bytes(&line, r->line.data, r->line.length);
    write_all(STDERR_FILENO, line.data, line.length);
    write_log(r, r->line.data, r->line.length);
    text_free(&line);
    text_clear(&r->line);
}

void launch_output_read(struct launched_rank *r) {
    char bytes[4096];
    while (r->output >= 0) {
        ssize_t received = read(r->output, bytes, sizeof bytes);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == EAGAIN) return;
        if (received <= 0) {
            close(r->output);
            r->output = -1;
            return;
        }
        for (const char *at = bytes, *end = bytes + received; at < end;) {
            const char *newline = memchr(at, '\n', (size_t)(end - at));
            text_add_bytes(&r->line, at, (size_t)((newline ? newline : end) - at));
            at = newline ? newline + 1 : end;
            if (newline || r->line.length > MAX_LINE) end_line(r);
        }
    }
}

void launch_output_note(struct launched_rank *r, const char *text) {
    char stamp[32] = "";
    struct tm parts;
    time_t now = time(NULL);
    struct text line = {0};
    if (localtime_r(&now, &parts)) strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &parts);
    text_printf(&line, "%s %s\n", stamp, text);
    write_log(r, line.data, line.length);
    text_free(&line);
}

/* Creates the folder if it does not exist: nodes may have no shared file system. */
void launch_output_open(struct launched_rank *r, const char *folder) {
    char path[4096];
    if (r->log >= 0 || r->rank == 0) return;
    snprintf(path, sizeof path, "%s/logs", folder);
    for (char *slash = path; (slash = strchr(slash + 1, '/'));) { /* mkdir -p */
        *slash = 0;
        mkdir(path, 0777);
        *slash = '/';
    }
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/logs/rank-%d.txt", folder, r->rank);
    status_free(io_open_append(path, &r->log)); /* without it, the output is that of the terminal */
    if (r->log >= 0 && r->unlogged.length) write_all(r->log, r->unlogged.data, r->unlogged.length);
    text_clear(&r->unlogged);
}

void launch_output_close(struct launched_rank *r) {
    launch_output_read(r);
    if (r->line.length > 0) end_line(r);
    if (r->output >= 0) close(r->output);
    if (r->log >= 0) close(r->log);
    r->output = r->log = -1;
    text_free(&r->line);
    text_free(&r->unlogged);
}
