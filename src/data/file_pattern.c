/* POSIX's glob, sorted by bytes so that the order of rows does not depend on the locale. */
#include "data/file_pattern.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"

static int compare(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static status expand(const char *path, struct arena *arena, struct string_list *files) {
    glob_t found = {0};
    int error = glob(path, GLOB_NOSORT | GLOB_BRACE, NULL, &found);
    status s = OK;
    if (error == GLOB_NOMATCH)
        s = status_new(STATUS_DATA, "'%s': no file matches this pattern", path);
    else if (error == GLOB_NOSPACE)
        s = status_memory("the names of files");
    else if (error)
        s = status_new(STATUS_DATA, "'%s': a folder of this pattern cannot be read", path);
    files->items = arena_alloc(arena, (found.gl_pathc + 1) * sizeof *files->items);
    for (files->count = 0; !s && files->count < found.gl_pathc; files->count++)
        files->items[files->count] = arena_copy(arena, found.gl_pathv[files->count]);
    qsort(files->items, files->count, sizeof *files->items, compare);
    globfree(&found);
    return s;
}

status file_pattern_expand(const char *path, struct arena *arena, struct string_list *files) {
    struct io_info info;
    TRY(io_stat(path, &info));
    if (!info.exists && strpbrk(path, "*?[{")) return expand(path, arena, files);
    files->items = arena_alloc(arena, sizeof *files->items);
    files->items[0] = path;
    files->count = 1;
    return OK;
}

static void append(struct string_list *files, const struct string_list *more, struct arena *arena) {
    const char **items = arena_alloc(arena, (files->count + more->count) * sizeof *items);
    memcpy(items, files->items, files->count * sizeof *items);
    memcpy(items + files->count, more->items, more->count * sizeof *items);
    *files = (struct string_list){items, files->count + more->count};
}

/* A file of two patterns would have its rows twice. */
static status check_unique(const struct string_list *files, struct arena *arena) {
    const char **sorted = arena_alloc(arena, files->count * sizeof *sorted);
    memcpy(sorted, files->items, files->count * sizeof *sorted);
    qsort(sorted, files->count, sizeof *sorted, compare);
    for (size_t i = 1; i < files->count; i++)
        if (strcmp(sorted[i - 1], sorted[i]) == 0)
            return status_new(STATUS_USAGE, "'%s': the list of files has this file twice", sorted[i]);
    return OK;
}

status file_list_expand(const char *path, const struct string_list *others, struct arena *arena,
                        struct string_list *files) {
    TRY(file_pattern_expand(path, arena, files));
    for (size_t i = 0; i < others->count; i++) {
        struct string_list more;
        TRY(file_pattern_expand(others->items[i], arena, &more));
        append(files, &more, arena);
    }
    return others->count ? check_unique(files, arena) : OK;
}
