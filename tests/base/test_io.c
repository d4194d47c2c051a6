/* io: each wrapper works, and its failure has the path; io_replace leaves the old or the new file whichever call fails;
 * faults are injected at the configured call. ctest-labels: unit fault */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/buffer.h"
#include "base/fault.h"
#include "base/files/io.h"
#include "check_main.h"
#include "files.h"

TEST(buffers_are_aligned_and_zeroed) {
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1 << 20, 5 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *buffer;
        ck_ok(buffer_new(sizes[i], "a test", &buffer));
        ck_assert_uint_eq((uintptr_t)buffer % BUFFER_ALIGNMENT, 0);
        const char *bytes = buffer;
        ck_assert(sizes[i] == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, sizes[i] - 1) == 0));
        memset(buffer, 255, sizes[i]);
        buffer_free(buffer);
    }
    buffer_free(NULL);
}

TEST(a_too_large_buffer_is_a_failure) {
    void *buffer = &buffer;
    ck_failure(buffer_new(SIZE_MAX / 4, "the gradients", &buffer), STATUS_MEMORY, "no memory for the gradients: ");
    ck_assert_ptr_null(buffer);
}

TEST(writes_and_reads) {
    char *folder = make_folder(), path[512], bytes[16];
    snprintf(path, sizeof path, "%s/file", folder);
    int fd;
    size_t got;
    ck_ok(io_create(path, &fd));
    ck_ok(io_reserve(fd, path, 10));
    ck_ok(io_write(fd, path, "0123456789", 10));
    ck_ok(io_sync(fd, path));
    ck_ok(io_close(fd, path));
    ck_failure(io_create(path, &fd), STATUS_IO, path);
    ck_assert_int_eq(fd, -1);
    ck_ok(io_close(fd, path));

    ck_ok(io_open(path, &fd));
    ck_ok(io_read(fd, path, bytes, 4, NULL));
    ck_assert_mem_eq(bytes, "0123", 4);
    ck_ok(io_read(fd, path, bytes, sizeof bytes, &got));
    ck_assert_uint_eq(got, 6);
    ck_ok(io_read_at(fd, path, bytes, 3, 7, NULL));
    ck_assert_mem_eq(bytes, "789", 3);
    ck_failure(io_read_at(fd, path, bytes, 5, 7, NULL), STATUS_IO, "ends 2 bytes early");
    ck_failure(io_write(fd, path, "x", 1), STATUS_IO, path);
    ck_ok(io_close(fd, path));

    ck_ok(io_open_append(path, &fd));
    ck_ok(io_write(fd, path, "ab", 2));
    struct io_info info;
    ck_ok(io_stat(path, &info));
    ck_assert(info.exists && info.is_file && !info.is_folder && info.size == 12);
    ck_ok(io_truncate(fd, path, 3));
    ck_ok(io_stat_fd(fd, path, &info));
    ck_assert_uint_eq(info.size, 3);
    ck_ok(io_close(fd, path));
    remove_folder(folder);
}

TEST(a_text_is_read_up_to_its_limit) {
    char *folder = make_folder(), *path = path_in(folder, "file"), *text;
    struct io_info info;
    ck_ok(io_read_text(path, 100, &text, &info));
    ck_assert(!text && !info.exists);
    ck_ok(io_read_text(folder, 100, &text, &info));
    ck_assert(!text && info.is_folder);
    ck_ok(io_replace_text(path, "12345"));
    ck_ok(io_read_text(path, 4, &text, &info));
    ck_assert(!text && info.is_file && info.size == 5);
    ck_ok(io_read_text(path, 5, &text, &info));
    ck_assert_str_eq(text, "12345");
    free(text);
    free(path);
    remove_folder(folder);
}

TEST(failures_have_the_path) {
    int fd;
    ck_failure(io_open("/nowhere/at/all", &fd), STATUS_IO, "cannot open '/nowhere/at/all'");
    ck_failure(io_create("/nowhere/at/all", &fd), STATUS_IO, "cannot create '/nowhere/at/all'");
}

TEST(makes_and_lists_folders) {
    char *folder = make_folder(), path[512], other[600];
    snprintf(path, sizeof path, "%s/a//b/c/", folder);
    ck_ok(io_make_folders(path));
    ck_ok(io_make_folders(path));
    ck_ok(io_make_folders("."));
    struct io_info info;
    ck_ok(io_stat(path, &info));
    ck_assert(info.exists && info.is_folder);

    snprintf(path, sizeof path, "%s/a/2", folder);
    spill(path, "x", 1);
    snprintf(other, sizeof other, "%s/under", path);
    ck_failure(io_make_folders(other), STATUS_IO, path);
    ck_ok(io_stat(other, &info));
    ck_assert(!info.exists);
    snprintf(path, sizeof path, "%s/a/10", folder);
    spill(path, "x", 1);
    snprintf(path, sizeof path, "%s/a", folder);
    struct io_names names;
    ck_ok(io_list(path, &names));
    ck_assert_uint_eq(names.count, 3);
    ck_assert_str_eq(names.items[0], "10");
    ck_assert_str_eq(names.items[1], "2");
    ck_assert_str_eq(names.items[2], "b");
    io_names_free(&names);
    ck_failure(io_list("/nowhere/at/all", &names), STATUS_IO, "/nowhere/at/all");

    snprintf(path, sizeof path, "%s/a/10", folder);
    snprintf(other, sizeof other, "%s/a/11", folder);
    ck_ok(io_rename(path, other));
    ck_failure(io_rename(path, other), STATUS_IO, path);
    ck_ok(io_remove(other));
    ck_ok(io_remove(other));
    ck_failure(io_remove(folder), STATUS_IO, folder);
    remove_folder(folder);
}

/* Where the file system cannot sync a folder (fsync fails with EINVAL: /proc, VirtualBox's shared folders), renaming is
 * as durable as it can be. */
TEST(a_folder_that_cannot_be_synced_is_no_failure) {
    int fd = open("/proc/self", O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert(fsync(fd) != 0 && errno == EINVAL);
    ck_failure(io_sync(fd, "/proc/self"), STATUS_IO, "cannot sync '/proc/self' to disk");
    ck_ok(io_sync_folder_of("/proc/self/status"));
    close(fd);
}

/* An absent or non-empty folder is no failure; a file is one, and is not removed. */
TEST(removes_empty_folders_only) {
    char *folder = make_folder(), *inner = path_in(folder, "a"), *file = path_in(folder, "a/b");
    struct io_info info;
    ck_ok(io_make_folders(inner));
    spill(file, "x", 1);
    ck_ok(io_remove_folder(inner));
    ck_ok(io_stat(file, &info));
    ck_assert(info.exists);
    ck_failure(io_remove_folder(file), STATUS_IO, file);
    ck_ok(io_remove(file));
    errno = 0;
    ck_ok(io_remove_folder(inner));
    ck_ok(io_stat(inner, &info));
    ck_assert(!info.exists);
    ck_ok(io_remove_folder(inner));
    free(inner), free(file);
    remove_folder(folder);
}

/* A killed process may have had the pid of this one. The check changes nothing. */
TEST(a_temporary_of_the_same_pid_is_replaced) {
    char *folder = make_folder(), *file = path_in(folder, "a"), name[300];
    struct io_part part = {"new", 3};
    struct io_names names;
    snprintf(name, sizeof name, "a.tmp-%ld", (long)getpid());
    SCOPED_MEMORY char *temporary = path_in(folder, name), *below = path_in(folder, "none/a");
    spill(temporary, "old", 3);
    ck_ok(io_replace(file, &part, 1));
    spill(temporary, "old", 3);
    ck_ok(io_check_replace(file));
    ck_ok(io_list(folder, &names));
    ck_assert_uint_eq(names.count, 1);
    io_names_free(&names);
    ck_failure(io_check_replace(folder), STATUS_IO, "is a folder");
    ck_failure(io_check_replace(below), STATUS_IO, below);
    free(file);
    remove_folder(folder);
}

/* Removes those of processes that have ended, for relative and absolute paths; no other files. */
TEST(abandoned_temporaries_are_removed) {
    char *folder = make_folder(), name[300], here[4096];
    pid_t gone = fork();
    if (gone == 0) _exit(0);
    ck_assert_int_eq(waitpid(gone, NULL, 0), gone);
    ck_assert_ptr_nonnull(getcwd(here, sizeof here));
    const struct {
        const char *start;
        long pid;
        const char *end;
        bool stays;
    } files[] = {{"log.tmp-", gone, "", false},
                 {"log.tmp-", getpid(), "", true},
                 {"log.tmp-", gone, "x", true},
                 {"log.txt.tmp-", gone, "", true},
                 {"alog.tmp-", gone, "", true},
                 {"log.tmp-0", gone, "", true},
                 {"log.tmp--", gone, "", true},
                 {"log", gone, "", true},
                 {"log.tmp-99999999999999", gone, "", true},
                 {"log.tmp-4294967296", gone, "", true}};
    for (int is_relative = 0; is_relative < 2; is_relative++) {
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(name, sizeof name, "%s/%s%ld%s", folder, files[i].start, files[i].pid, files[i].end);
            spill(name, "x", 1);
        }
        snprintf(name, sizeof name, "%s/log", folder);
        if (is_relative) ck_assert_int_eq(chdir(folder), 0);
        ck_ok(io_remove_temporaries(is_relative ? "log" : name));
        ck_assert_int_eq(chdir(here), 0);
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
            snprintf(name, sizeof name, "%s/%s%ld%s", folder, files[i].start, files[i].pid, files[i].end);
            ck_assert_msg((access(name, F_OK) == 0) == files[i].stays, "%s", name);
        }
    }
    ck_failure(io_remove_temporaries("/nowhere/at/all"), STATUS_IO, "/nowhere/at");
    remove_folder(folder);
}

TEST(a_lock_has_one_owner) {
    char *folder = make_folder(), path[512];
    snprintf(path, sizeof path, "%s/lock", folder);
    int first, second;
    bool is_mine, is_locked;
    ck_ok(io_is_locked(path, &is_locked));
    ck_assert(!is_locked);
    ck_ok(io_open_append(path, &first));
    ck_ok(io_open_append(path, &second));
    ck_ok(io_lock(first, path, &is_mine));
    ck_assert(is_mine);
    ck_ok(io_lock(second, path, &is_mine));
    ck_assert(!is_mine);
    ck_ok(io_is_locked(path, &is_locked));
    ck_assert(is_locked);
    ck_ok(io_close(first, path));
    ck_ok(io_is_locked(path, &is_locked));
    ck_assert(!is_locked);
    ck_ok(io_lock(second, path, &is_mine));
    ck_assert(is_mine);
    ck_ok(io_close(second, path));
    ck_ok(io_is_locked(folder, &is_locked));
    ck_assert(!is_locked);
    remove_folder(folder);
}

/* Two checks at the same time, such as two `ddptrain runs`, are not a process that has the lock. */
TEST(checks_of_a_lock_do_not_see_each_other) {
    char *folder = make_folder(), path[512];
    snprintf(path, sizeof path, "%s/lock", folder);
    int other;
    bool is_locked = true;
    spill(path, "x", 1);
    ck_ok(io_open(path, &other));
    ck_assert_int_eq(flock(other, LOCK_SH | LOCK_NB), 0); /* as io_is_locked of another process */
    ck_ok(io_is_locked(path, &is_locked));
    ck_assert(!is_locked);
    ck_ok(io_close(other, path));
    remove_folder(folder);
}

TEST(names_of_files) {
    static const char *const folders[][2] = {{"a/b/c", "a/b"}, {"c", "."}, {"/c", "/"}, {"/a/c", "/a"}};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        SCOPED_MEMORY char *folder = io_folder_of(folders[i][0]);
        ck_assert_str_eq(folder, folders[i][1]);
    }
    static const struct {
        const char *path;
        size_t length;
    } lengths[] = {{"", 0}, {"/", 1}, {"//", 1}, {"a", 1}, {"a/", 1}, {"/a//", 2}, {"a/b", 3}, {"a//b///", 4}};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        ck_assert_uint_eq(io_length_without_slashes(lengths[i].path), lengths[i].length);
    ck_assert(io_is_temporary("epoch-0001.h5.tmp-17"));
    ck_assert(io_is_temporary("a.tmp-x.tmp-1"));
    ck_assert(!io_is_temporary("epoch-0001.h5"));
    ck_assert(!io_is_temporary("epoch-0001.h5.tmp-"));
    ck_assert(!io_is_temporary("epoch-0001.h5.tmp-1a"));
    ck_assert(!io_is_temporary(".tmp-17"));
}

static status replace(const char *path) {
    struct io_part parts[] = {{"new ", 4}, {"", 0}, {"content", 7}};
    return io_replace(path, parts, 3);
}

TEST(replaces_a_file) {
    char *folder = make_folder(), path[512];
    size_t size;
    snprintf(path, sizeof path, "%s/file", folder);
    for (int i = 0; i < 2; i++) {
        ck_ok(replace(path));
        char *bytes = slurp(path, &size);
        ck_assert_str_eq(bytes, "new content");
        free(bytes);
        ck_assert_uint_eq(temporaries(folder), 0);
    }
    remove_folder(folder);
    ck_failure(replace("/nowhere/at/all"), STATUS_IO, "/nowhere/at/all");
}

/* Simulates a failing disk or memory: changes one byte of the temporary file before it is read back. */
static void change_a_byte(void *context, enum fault_call call, const char *path) {
    if (call != CALL_SYNC || !strstr(path, ".tmp-")) return;
    int fd = open(path, O_WRONLY);
    ck_assert_int_eq(pwrite(fd, "X", 1, *(off_t *)context), 1);
    close(fd);
}

TEST(written_bytes_are_read_back) {
    char *folder = make_folder(), path[512];
    size_t size;
    snprintf(path, sizeof path, "%s/file", folder);
    for (off_t at = 0; at < 11; at++) { /* "new content" */
        spill(path, "old", 3);
        fault_set(&(struct fault){.kind = FAULT_NONE, .watch = change_a_byte, .context = &at});
        status s = replace(path);
        fault_set(NULL);
        ck_failure(s, STATUS_IO, "reads back different from what was written");
        char *bytes = slurp(path, &size);
        ck_assert_str_eq(bytes, "old");
        free(bytes);
        ck_assert_uint_eq(temporaries(folder), 0);
    }
    remove_folder(folder);
}

struct calls {
    size_t count;
    enum fault_call calls[32];
    char paths[32][200];
};

static void note_call(void *context, enum fault_call call, const char *path) {
    struct calls *c = context;
    ck_assert_uint_lt(c->count, 32);
    c->calls[c->count] = call;
    snprintf(c->paths[c->count++], sizeof c->paths[0], "%s", path);
}

/* A new folder survives a power loss: its parent folder is synced after it is made. */
TEST(new_folders_are_synced) {
    char *folder = make_folder(), path[512];
    static struct calls seen;
    snprintf(path, sizeof path, "%s/a/b", folder);
    fault_set(&(struct fault){.kind = FAULT_NONE, .watch = note_call, .context = &seen});
    status s = io_make_folders(path);
    fault_set(NULL);
    ck_ok(s);
    size_t made = 0;
    for (size_t i = 0; i < seen.count; i++) {
        if (seen.calls[i] != CALL_MKDIR || strncmp(seen.paths[i], folder, strlen(folder)) != 0 ||
            !seen.paths[i][strlen(folder)])
            continue;
        made++;
        SCOPED_MEMORY char *parent = io_folder_of(seen.paths[i]);
        size_t later = i + 1;
        while (later < seen.count && (seen.calls[later] != CALL_SYNC || strcmp(seen.paths[later], parent) != 0))
            later++;
        ck_assert_msg(later < seen.count, "%s is not synced", parent);
    }
    ck_assert_uint_eq(made, 2);
    remove_folder(folder);
}

/* Calls io_replace of "old" with [fault]. */
static void replace_with(const char *folder, struct fault fault) {
    char path[512];
    size_t size;
    snprintf(path, sizeof path, "%s/file", folder);
    spill(path, "old", 3);
    fault_set(&fault);
    status s = replace(path);
    fault_set(NULL);
    char *bytes = slurp(path, &size);
    bool is_new = strcmp(bytes, "new content") == 0;
    ck_assert_msg(is_new || strcmp(bytes, "old") == 0, "'%s' after call %d", bytes, (int)fault.at);
    ck_assert_msg(s != OK || is_new, "success without the new content, call %d", (int)fault.at);
    if (s) ck_assert_msg(status_code(s) == STATUS_IO && strstr(status_message(s), folder), "%s", status_message(s));
    /* A temporary file may remain only when its removal failed. */
    bool cannot_remove = fault.kind == FAULT_EIO && fault.is_permanent;
    ck_assert_msg(temporaries(folder) == 0 || cannot_remove, "a temporary file after call %d", (int)fault.at);
    if (fault.kind == FAULT_SHORT || (fault.kind == FAULT_EINTR && !fault.is_permanent)) ck_ok(s);
    status_free(s);
    free(bytes);
    empty_folder(folder);
}

TEST(any_failing_call_leaves_old_or_new) {
    char *folder = make_folder(), path[512];
    snprintf(path, sizeof path, "%s/file", folder);
    fault_set(&(struct fault){.kind = FAULT_NONE});
    ck_ok(replace(path));
    int64_t calls = fault_calls();
    ck_assert_int_gt(calls, 10);
    for (enum fault_kind kind = FAULT_ENOSPC; kind <= FAULT_SHORT; kind++)
        for (int64_t at = 1; at <= calls + 1; at++)
            for (int ever = 0; ever < 2; ever++)
                replace_with(folder, (struct fault){.kind = kind, .at = at, .is_permanent = ever});
    remove_folder(folder);
}

TEST(a_kill_at_any_call_leaves_old_or_new) {
    char *folder = make_folder(), path[512];
    snprintf(path, sizeof path, "%s/file", folder);
    bool is_over = false;
    for (int64_t at = 1; !is_over; at++) {
        ck_assert_int_lt(at, 100);
        spill(path, "old", 3);
        pid_t child = fork();
        if (child == 0) {
            fault_set(&(struct fault){.kind = FAULT_KILL, .at = at});
            _exit(replace(path) != OK);
        }
        int how;
        size_t size;
        waitpid(child, &how, 0);
        is_over = WIFEXITED(how) && WEXITSTATUS(how) == 0;
        ck_assert(is_over || (WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL));
        char *bytes = slurp(path, &size);
        ck_assert_msg(strcmp(bytes, "new content") == 0 || (!is_over && strcmp(bytes, "old") == 0), "%s", bytes);
        free(bytes);
        empty_folder(folder);
    }
    remove_folder(folder);
}

TEST(the_environment_sets_a_fault) {
    setenv("DDPTRAIN_FAULT", "2:eio:once", 1);
    setenv("DDPTRAIN_FAULT_FILTER", "chosen", 1);
    struct io_info info;
    ck_ok(io_stat("/other", &info));
    ck_ok(io_stat("/other", &info));
    ck_ok(io_stat("/chosen", &info));
    ck_failure(io_stat("/chosen", &info), STATUS_IO, "'/chosen': Input/output error");
    ck_ok(io_stat("/chosen", &info));
    ck_assert_int_eq(fault_calls(), 3);
}

TEST_LOOP(a_malformed_environment_fails_every_call, 0, 7) {
    static const char *const wrong[] = {"eio", "0:eio", "1:", "1:eioo", "1:eio:often", "1:eio:", "1 eio"};
    setenv("DDPTRAIN_FAULT", wrong[_i], 1);
    struct io_info info;
    ck_failure(io_stat("/", &info), STATUS_IO, "Invalid argument");
    ck_failure(io_stat("/", &info), STATUS_IO, "Invalid argument");
}

CHECK_MAIN("io")
