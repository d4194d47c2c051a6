/* files: temporary folders and small helpers for tests that write files. */
#pragma once

#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/files/io.h"
#include "base/status.h"

/* A fresh folder; remove it with remove_folder. */
static inline char *make_folder(void) {
    const char *root = getenv("TMPDIR");
    char *folder = malloc(256);
    snprintf(folder, 256, "%s/ddptrain-test-XXXXXX", root && *root ? root : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    return folder;
}

/* "folder/name", malloc'ed. */
static inline char *path_in(const char *folder, const char *name) {
    char *path;
    ck_assert_int_gt(asprintf(&path, "%s/%s", folder, name), 0);
    return path;
}

static inline void empty_folder(const char *folder) {
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        char *path = path_in(folder, entry->d_name);
        if (entry->d_type == DT_DIR) {
            empty_folder(path);
            rmdir(path);
        } else
            unlink(path);
        free(path);
    }
    closedir(dir);
}

static inline void remove_folder(char *folder) {
    empty_folder(folder);
    rmdir(folder);
    free(folder);
}

/* Removed where its block ends. */
static inline void remove_scoped(char **folder) { remove_folder(*folder); }
#define SCOPED_FOLDER __attribute__((cleanup(remove_scoped), unused)) char *

/* How many names of the folder are temporary files of io_replace. */
static inline size_t temporaries(const char *folder) {
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    size_t count = 0;
    for (struct dirent *entry; (entry = readdir(dir));) count += io_is_temporary(entry->d_name);
    closedir(dir);
    return count;
}

/* The bytes of a file; *size its size. */
static inline char *slurp(const char *path, size_t *size) {
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file, "cannot open %s", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = malloc(*size + 1);
    ck_assert_uint_eq(fread(bytes, 1, *size, file), *size);
    bytes[*size] = 0;
    fclose(file);
    return bytes;
}

static inline void spill(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file, "cannot create %s", path);
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    fclose(file);
}

/* A write beyond [bytes] of a file writes up to there and fails with EFBIG; RLIM_INFINITY: as far as this process may.
 */
static inline void limit_file_size(rlim_t bytes) {
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* The status is OK; else the test fails with its sentence. */
#define ck_ok(expression)                                                                                              \
    do {                                                                                                               \
        status ck_status_ = (expression);                                                                              \
        ck_assert_msg(ck_status_ == OK, "%s: %s", #expression, status_message(ck_status_));                            \
    } while (0)

/* The status is a failure of [code] whose sentence contains [part]. */
static inline void ck_failure(status s, enum status_code code, const char *part) {
    ck_assert_msg(status_code(s) == code, "code %d, expected %d: %s", status_code(s), code, status_message(s));
    ck_assert_msg(strstr(status_message(s), part), "'%s' is not in: %s", part, status_message(s));
    status_free(s);
}
