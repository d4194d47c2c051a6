/* Read in blocks; a line longer than a block makes the buffer grow up to the limit, and what is longer is skipped. */
#include "report/line_file.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"

#define BLOCK ((size_t)1 << 16)

struct reader {
    struct line_file *file;
    const char *path;
    bool (*visit)(void *user, const char *line, size_t size);
    void *user;
    char *buffer;
    size_t filled, capacity;
    bool is_skipping; /* within a line that is too long */
};

static void visit_line(struct reader *r, const char *line, size_t size) {
    r->file->lines++;
    if (r->is_skipping || !r->visit(r->user, line, size)) r->file->malformed++;
    r->is_skipping = false;
}

/* The complete lines of the buffer; what follows them moves to its beginning. */
static void visit_lines(struct reader *r) {
    size_t start = 0;
    char *end;
    while ((end = memchr(r->buffer + start, '\n', r->filled - start))) {
        size_t size = (size_t)(end - (r->buffer + start));
        visit_line(r, r->buffer + start, size);
        r->file->offset += size + 1;
        start += size + 1;
    }
    r->filled -= start;
    memmove(r->buffer, r->buffer + start, r->filled);
    if (r->filled <= LINE_FILE_MAX_LINE) return;
    r->is_skipping = true;
    r->file->offset += r->filled;
    r->filled = 0;
}

static status read_blocks(struct reader *r, int fd) {
    size_t got;
    do {
        if (r->capacity - r->filled < BLOCK) {
            size_t capacity = r->capacity * 2 + BLOCK;
            char *buffer = realloc(r->buffer, capacity);
            if (!buffer) return status_memory("the lines of '%s'", r->path);
            r->buffer = buffer;
            r->capacity = capacity;
        }
        TRY(io_read_at(fd, r->path, r->buffer + r->filled, BLOCK, r->file->offset + r->filled, &got));
        r->filled += got;
        visit_lines(r);
    } while (got == BLOCK);
    r->file->is_torn = r->filled > 0 || r->is_skipping;
    return OK;
}

/* Whether what was read before is still there: the same file, and a line ends at the offset. */
static status is_same(const struct line_file *file, int fd, const char *path, const struct io_info *info, bool *out) {
    char last = '\n';
    size_t got = 1;
    *out = true;
    if (file->inode == 0) return OK;
    if (file->offset > 0) TRY(io_read_at(fd, path, &last, 1, file->offset - 1, &got));
    *out = file->inode == info->inode && file->device == info->device && got == 1 && last == '\n';
    return OK;
}

static status read_file(struct reader *r, int fd, bool *has_restarted) {
    struct io_info info;
    bool same;
    TRY(io_stat_fd(fd, r->path, &info));
    if (!info.is_file) return status_new(STATUS_DATA, "%s: not a regular file", r->path);
    if (info.size > LINE_FILE_MAX_BYTES)
        return status_new(STATUS_DATA, "%s: %.0f GB is more than a report reads", r->path, (double)info.size / 1e9);
    TRY(is_same(r->file, fd, r->path, &info, &same));
    *has_restarted = !same;
    r->file->inode = info.inode;
    r->file->device = info.device;
    return same ? read_blocks(r, fd) : OK;
}

status line_file_read(struct line_file *file, const char *path,
                      bool (*visit)(void *user, const char *line, size_t size), void *user, bool *has_restarted) {
    struct reader r = {.file = file, .path = path, .visit = visit, .user = user};
    struct io_info info;
    int fd;
    *has_restarted = false;
    TRY(io_stat(path, &info));
    if (!info.exists) {
        *has_restarted = file->inode != 0;
        return OK;
    }
    TRY(io_open(path, &fd));
    status s = read_file(&r, fd, has_restarted);
    free(r.buffer);
    return status_first(s, io_close(fd, path));
}
