/* Searches folders in a fixed order with io_stat. */
#include "base/files/find_file.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/archive.h"
#include "base/files/io.h"
#include "base/scoped.h"

struct search {
    const char *config;
    bool for_file, for_folder;
    struct arena *arena;
};

static bool matches_files(const char *pattern) {
    glob_t found = {0};
    bool has_any = strpbrk(pattern, "*?[{") && glob(pattern, GLOB_NOSORT | GLOB_BRACE, NULL, &found) == 0;
    globfree(&found);
    return has_any;
}

static status is_wanted(const struct search *search, const char *path, bool *out) {
    struct io_info info;
    TRY(io_stat(path, &info));
    bool is_in_archive = search->for_folder && archive_in_path(path);
    *out =
        is_in_archive || (info.exists ? (info.is_folder ? search->for_folder : search->for_file) : matches_files(path));
    return OK;
}

/* *found false: the candidate is the folder of the config. Of a run the parent folder has it, by the name of the run.
 */
static status check_not_own(const struct search *search, const char *candidate, bool *found) {
    struct io_info info, own;
    SCOPED_STRING folder = io_folder_of(search->config);
    status s = io_stat(candidate, &info);
    if (!s) s = io_stat(folder, &own);
    if (!s) *found = !io_is_same(&info, &own);
    return s;
}

static status search_in(const struct search *search, const char *folder, const char **path, bool *found) {
    const char *candidate = arena_printf(search->arena, "%s/%s", folder, *path);
    TRY(is_wanted(search, candidate, found));
    if (*found && search->for_file) TRY(check_not_own(search, candidate, found));
    if (!*found) return OK;
    size_t archive = archive_in_path(candidate), length = archive ? archive : strlen(candidate);
    SCOPED_STRING absolute = realpath(arena_printf(search->arena, "%.*s", (int)length, candidate), NULL);
    *path = absolute ? arena_printf(search->arena, "%s%s", absolute, candidate + length) : candidate;
    return OK;
}

static status search_beside(const struct search *search, const char *config, const char **path, bool *found) {
    SCOPED_STRING folder = io_folder_of(config);
    status s = search_in(search, folder, path, found);
    if (!s && !*found) s = search_in(search, arena_printf(search->arena, "%s/..", folder), path, found);
    return s;
}

static status find(const struct search *search, const char **path) {
    bool found = false;
    if (!*path || !**path || **path == '/') return OK;
    TRY(is_wanted(search, *path, &found));
    if (found) return OK;
    TRY(search_beside(search, search->config, path, &found));
    char *real = found ? NULL : realpath(search->config, NULL); /* a symbolic link */
    status s = real ? search_beside(search, real, path, &found) : OK;
    free(real);
    return s;
}

status find_file(const char **path, const char *config, struct arena *arena) {
    return find(&(struct search){config, true, false, arena}, path);
}

status find_folder(const char **path, const char *config, struct arena *arena) {
    return find(&(struct search){config, false, true, arena}, path);
}

status find_file_or_folder(const char **path, const char *config, struct arena *arena) {
    return find(&(struct search){config, true, true, arena}, path);
}
