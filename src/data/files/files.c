/* Checks of the paths that a user gives, with messages that say what is there instead, and the files that patterns and
 * lists name. */
#include "data/files/files.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/files/archive.h"
#include "base/files/io.h"
#include "base/scoped.h"

status file_check(const char *path, uint64_t *bytes) {
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.is_file && access(path, R_OK) == 0) {
        *bytes = info.size;
        return OK;
    }
    SCOPED_STRING folder = getcwd(NULL, 0);
    const char *reason = info.is_folder  ? "it is a folder"
                         : !info.exists  ? strerror(ENOENT)
                         : !info.is_file ? "it is not a regular file"
                                         : strerror(errno);
    return status_new(
        STATUS_DATA, "cannot read the dataset '%s' (working directory %s%s): %s", path, folder ? folder : "unknown",
        !info.exists && path[0] != '/' ? "; it is also not beside the config or in the parent folder" : "", reason);
}

void files_raise_limit(size_t count) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    rlim_t more = limit.rlim_max - limit.rlim_cur;
    limit.rlim_cur += count < more ? count : more;
    setrlimit(RLIMIT_NOFILE, &limit); /* if it fails, opening a file does, too */
}

status files_are_too_many(const char *path, const struct string_list *others, size_t count, const char *format) {
    if (others->count) return status_usage("'%s' and %zu more: format %s reads one file", path, count - 1, format);
    return status_usage("'%s' matches %zu files, but format %s reads one", path, count, format);
}

status folder_check(const char *path) {
    struct io_info info;
    if (archive_in_path(path)) return OK;
    TRY(io_stat(path, &info));
    bool is_readable = info.is_folder && access(path, R_OK | X_OK) == 0;
    const char *reason = !info.exists      ? strerror(ENOENT)
                         : !info.is_folder ? "it is a file, and format images reads a folder, or a zip or tar archive"
                                           : strerror(errno);
    if (is_readable) return OK;
    return status_data("cannot read the folder of images '%s': %s", path, reason);
}

status file_read(const char *path, char **text, size_t *size) {
    int fd;
    struct io_info info;
    *text = NULL;
    *size = 0;
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (s == OK) s = rows_alloc((size_t)info.size + FILE_PADDING, 1, path, text);
    if (s == OK) s = io_read(fd, path, *text, (size_t)info.size, size);
    return status_first(s, io_close(fd, path));
}

status rows_alloc(size_t count, size_t size, const char *what, void *out) {
    memset(out, 0, sizeof(void *));
    if (size != 0 && count > PTRDIFF_MAX / size)
        return status_memory("%s: %zu times %zu bytes are more than any machine has", what, count, size);
    return buffer_new(count * size, what, out);
}

/* ---- patterns ---- */

/* POSIX's glob, sorted by bytes so that the order of rows does not depend on the locale. */

static void append(struct string_list *files, const struct string_list *more, struct arena *arena) {
    const char **items = arena_alloc(arena, (files->count + more->count) * sizeof *items);
    if (files->count) memcpy(items, files->items, files->count * sizeof *items);
    if (more->count) memcpy(items + files->count, more->items, more->count * sizeof *items);
    *files = (struct string_list){items, files->count + more->count};
}

/* Adds the files that match [path], which has no braces. */
static status match(const char *path, struct arena *arena, struct string_list *files) {
    glob_t found = {0};
    int error = glob(path, GLOB_NOSORT, NULL, &found);
    status s = OK;
    if (error == GLOB_NOMATCH)
        s = status_data("'%s': no file matches this pattern", path);
    else if (error == GLOB_NOSPACE)
        s = status_memory("the names of files");
    else if (error)
        s = status_data("'%s': a folder of this pattern cannot be read", path);
    struct string_list names = {arena_alloc(arena, (found.gl_pathc + 1) * sizeof *names.items), 0};
    for (; !s && names.count < found.gl_pathc; names.count++)
        names.items[names.count] = arena_copy(arena, found.gl_pathv[names.count]);
    append(files, &names, arena);
    globfree(&found);
    return s;
}

/* The ',' or '}' after the alternative that starts at [at]; NULL: its brace is not closed. */
static const char *end_of(const char *at) {
    for (int depth = 0; *at; at++) {
        if (*at == '\\' && at[1])
            at++;
        else if (*at == '{')
            depth++;
        else if ((*at == ',' && depth == 0) || (*at == '}' && depth-- == 0))
            return at;
    }
    return NULL;
}

static const char *close_of(const char *at) {
    while ((at = end_of(at)) && *at == ',') at++;
    return at;
}

/* The first brace that is closed; NULL: there is none. */
static const char *find_brace(const char *path) {
    for (; *path; path++) {
        if (*path == '\\' && path[1])
            path++;
        else if (*path == '{' && path[1] != '}' && close_of(path + 1))
            return path;
    }
    return NULL;
}

/* Adds the files of each alternative of the braces, which must have one: GLOB_BRACE ignores a file that is missing. */
static status expand(const char *path, struct arena *arena, struct string_list *files) {
    const char *brace = find_brace(path), *close = brace ? close_of(brace + 1) : NULL, *end = brace;
    struct io_info info;
    while (brace && end != close) {
        const char *start = end + 1;
        end = end_of(start);
        TRY(expand(arena_printf(arena, "%.*s%.*s%s", (int)(brace - path), path, (int)(end - start), start, close + 1),
                   arena, files));
    }
    if (brace) return OK;
    TRY(io_stat(path, &info));
    if (!info.exists && strpbrk(path, "*?[\\")) return match(path, arena, files);
    append(files, &(struct string_list){&path, 1}, arena);
    return OK;
}

struct named_file {
    const char *name;
    struct io_info info;
};

/* The same file has adjacent items then, also under two names; a file that does not exist has number 0. */
static int compare_files(const void *left, const void *right) {
    const struct named_file *a = left, *b = right;
    if (a->info.device != b->info.device) return a->info.device < b->info.device ? -1 : 1;
    if (a->info.inode != b->info.inode) return a->info.inode < b->info.inode ? -1 : 1;
    return strcmp(a->name, b->name);
}

static status reject_twice(const char *name, const char *other) {
    if (strcmp(name, other) == 0) return status_usage("'%s': the list of files has this file twice", name);
    return status_usage("'%s': the list of files has this file twice, also as '%s'", name, other);
}

/* A file of two patterns, or with two names, would have its rows twice. */
static status check_unique(const struct string_list *files, struct arena *arena) {
    struct named_file *sorted = arena_alloc(arena, (files->count + 1) * sizeof *sorted);
    for (size_t i = 0; i < files->count; i++) {
        sorted[i] = (struct named_file){.name = files->items[i]};
        TRY(io_stat(sorted[i].name, &sorted[i].info));
    }
    qsort(sorted, files->count, sizeof *sorted, compare_files);
    for (size_t i = 1; i < files->count; i++)
        if (strcmp(sorted[i - 1].name, sorted[i].name) == 0 || io_is_same(&sorted[i - 1].info, &sorted[i].info))
            return reject_twice(sorted[i].name, sorted[i - 1].name);
    return OK;
}

status file_pattern_expand(const char *path, struct arena *arena, struct string_list *files) {
    struct io_info info;
    TRY(io_stat(path, &info));
    *files = (struct string_list){0};
    if (!info.exists && strpbrk(path, "*?[{")) {
        TRY(expand(path, arena, files));
        qsort(files->items, files->count, sizeof *files->items, text_compare);
        return check_unique(files, arena);
    }
    files->items = arena_alloc(arena, sizeof *files->items);
    files->items[0] = path;
    files->count = 1;
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
