/* Searches folders in a fixed order with io_stat. */
#include "base/find_file.h"

#include <stdlib.h>

#include "base/io.h"

static status is_file(const char *path, bool *out) {
    struct io_info info;
    TRY(io_stat(path, &info));
    *out = info.exists && !info.is_folder;
    return OK;
}

static status search_in(const char *folder, const char **path, struct arena *arena, bool *found) {
    const char *candidate = arena_printf(arena, "%s/%s", folder, *path);
    TRY(is_file(candidate, found));
    if (!*found) return OK;
    char *absolute = realpath(candidate, NULL);
    *path = absolute ? arena_copy(arena, absolute) : candidate;
    free(absolute);
    return OK;
}

static status search_beside(const char *config, const char **path, struct arena *arena, bool *found) {
    char *folder = io_folder_of(config);
    status s = search_in(folder, path, arena, found);
    if (!s && !*found) s = search_in(arena_printf(arena, "%s/..", folder), path, arena, found);
    free(folder);
    return s;
}

status find_file(const char **path, const char *config, struct arena *arena) {
    bool found = false;
    if (!*path || !**path || **path == '/') return OK;
    TRY(is_file(*path, &found));
    if (found) return OK;
    TRY(search_beside(config, path, arena, &found));
    char *real = found ? NULL : realpath(config, NULL); /* a symbolic link */
    status s = real ? search_beside(real, path, arena, &found) : OK;
    free(real);
    return s;
}
