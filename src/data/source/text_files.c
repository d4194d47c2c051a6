/* All files are read to one buffer, because a token may begin in one file and end in the next. */
#include "data/source/text_files.h"

#include <stdlib.h>

#include "base/files/io.h"
#include "base/utf8.h"

void files_describe(const char *path, const struct string_list *others, struct text *out) {
    text_add(out, path);
    if (others->count) text_printf(out, " and %zu more file%s", others->count, text_plural(others->count, "s"));
}

/* Byte [at] of the text is in file *index, which begins at byte *start. */
static void find_file(const struct text_files *files, size_t at, size_t *index, size_t *start) {
    *index = *start = 0;
    while (*index + 1 < files->count && files->ends[*index] <= at) *start = files->ends[(*index)++];
}

status text_files_prefix(const struct text_files *files, size_t at, status cause) {
    size_t index, start, line = 1;
    find_file(files, at, &index, &start);
    for (size_t i = start; i < at; i++) line += files->text[i] == '\n';
    return status_prefix(cause, "%s: line %zu", files->paths[index], line);
}

static status check_text(struct text_files *files) {
    uint32_t code;
    for (size_t at = 0, length, index, start; at < files->size; at += length) {
        length = utf8_decode(files->text + at, files->size - at, &code);
        files->characters++;
        if (length > 0 && code != 0) continue;
        find_file(files, at, &index, &start);
        size_t byte = at - start + 1;
        return text_files_prefix(
            files, at,
            length ? status_new(STATUS_DATA, "byte %zu of the file is 0; this is not text", byte)
                   : status_new(STATUS_DATA,
                                "byte %zu of the file is not valid UTF-8; convert the file (iconv -f latin1 -t utf-8)",
                                byte));
    }
    return OK;
}

/* Appends the contents of a file, at most [max] bytes. */
static status append_file(struct text_files *files, const char *path, size_t max) {
    int fd;
    size_t got = 0;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, files->text + files->size, max, &got);
    files->size += got;
    files->paths[files->count] = path;
    files->ends[files->count++] = files->size;
    return status_first(s, io_close(fd, path));
}

static status read_all(struct text_files *files, const char *path, const struct string_list *others, uint64_t *sizes) {
    uint64_t total = 0;
    for (size_t i = 0; i <= others->count; i++) {
        TRY(file_check(i ? others->items[i - 1] : path, &sizes[i]));
        total += sizes[i];
    }
    void *bytes;
    TRY(rows_alloc((size_t)total + FILE_PADDING, 1, text_string(&files->what_files), &bytes));
    files->text = bytes;
    for (size_t i = 0; i <= others->count; i++)
        TRY(append_file(files, i ? others->items[i - 1] : path, (size_t)sizes[i]));
    return check_text(files);
}

status text_files_read(struct text_files *files, const char *path, const struct string_list *others) {
    size_t count = others->count + 1;
    files_describe(path, others, &files->what_files);
    uint64_t *sizes = calloc(count, sizeof *sizes);
    files->paths = calloc(count, sizeof *files->paths);
    files->ends = calloc(count, sizeof *files->ends);
    bool has_memory = sizes && files->paths && files->ends;
    status s = has_memory ? read_all(files, path, others, sizes) : status_memory("the names of text files");
    free(sizes);
    return s;
}

void text_files_free(struct text_files *files) {
    buffer_free(files->text);
    free(files->paths);
    free(files->ends);
    text_free(&files->what_files);
    *files = (struct text_files){0};
}
