/* folder_lock: one process has the lock, the text says whose folder it is, and a free name is found. ctest-labels: unit
 */
#include "base/files/folder_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "check_main.h"
#include "files.h"

#define TEXT "a test of ddptrain\n"
#define NUL "NUL" /* for as many NUL characters */

TEST(its_text) {
    char *folder = make_folder(), *path = path_in(folder, FOLDER_LOCK_FILE);
    struct folder_lock lock = {.folder = folder, .path = path, .text = TEXT, .fd = -1};
    enum folder_lock_state state;
    bool is_mine;
    ck_ok(folder_lock_read(&lock, &state));
    ck_assert_int_eq(state, FOLDER_LOCK_ABSENT);
    static const struct {
        const char *text;
        enum folder_lock_state state;
    } cases[] = {{"", FOLDER_LOCK_PARTIAL},     {"a test", FOLDER_LOCK_PARTIAL},
                 {TEXT, FOLDER_LOCK_COMPLETE},  {TEXT "x", FOLDER_LOCK_OTHER},
                 {"a list", FOLDER_LOCK_OTHER}, {TEXT TEXT TEXT TEXT TEXT, FOLDER_LOCK_OTHER},
                 {NUL, FOLDER_LOCK_PARTIAL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool are_nul = strcmp(cases[i].text, NUL) == 0;
        spill(path, are_nul ? (const char[sizeof TEXT]){0} : cases[i].text,
              are_nul ? sizeof TEXT - 1 : strlen(cases[i].text));
        ck_ok(folder_lock_read(&lock, &state));
        ck_assert_int_eq(state, cases[i].state);
        ck_ok(folder_lock_try(&lock, &is_mine));
        ck_assert(is_mine);
        ck_ok(folder_lock_write_text(&lock));
        ck_ok(folder_lock_release(&lock));
        ck_ok(folder_lock_read(&lock, &state));
        ck_assert_int_eq(state, cases[i].state == FOLDER_LOCK_OTHER ? FOLDER_LOCK_OTHER : FOLDER_LOCK_COMPLETE);
    }
    ck_ok(folder_lock_release(&lock)); /* once more */
    free(path);
    remove_folder(folder);
}

/* Another process has the lock for [seconds]. */
static pid_t hold(struct folder_lock *lock, double seconds) {
    int ends[2];
    bool is_mine;
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        status_free(folder_lock_try(lock, &is_mine));
        if (write(ends[1], "x", 1) == 1) clock_sleep(seconds);
        _exit(!is_mine);
    }
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
    return child;
}

/* Another process has a shared lock of the file, as a check has, for [seconds]. */
static pid_t share(const char *path, double seconds) {
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(path, O_RDONLY);
        if (flock(fd, LOCK_SH) == 0 && write(ends[1], "x", 1) == 1) clock_sleep(seconds);
        _exit(0);
    }
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]), close(ends[1]);
    return child;
}

/* A check has a shared lock for a moment, which is long where the machine takes the processor away from it: whoever
 * locks the folder just then must not take it for another run. Nobody waits longer for it than they want. */
TEST(a_check_at_the_same_moment_is_no_owner) {
    char *folder = make_folder(), *path = path_in(folder, FOLDER_LOCK_FILE);
    struct folder_lock lock = {.folder = folder, .path = path, .text = TEXT, .fd = -1};
    bool is_mine;
    spill(path, TEXT, strlen(TEXT));
    pid_t child = share(path, 0.2);
    ck_ok(folder_lock_try(&lock, &is_mine));
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_assert(is_mine);
    ck_ok(folder_lock_release(&lock));
    child = share(path, 120);
    double start = clock_seconds();
    ck_ok(folder_lock_wait(&lock, 0.1, NULL, &is_mine));
    ck_assert(!is_mine);
    ck_assert_msg(clock_seconds() - start < 25, "%.1f s", clock_seconds() - start);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_ok(folder_lock_release(&lock));
    free(path);
    remove_folder(folder);
}

TEST(waits_for_another_process) {
    char *folder = make_folder(), *path = path_in(folder, FOLDER_LOCK_FILE);
    struct folder_lock lock = {.folder = folder, .path = path, .text = TEXT, .fd = -1};
    bool is_mine;
    int how;
    pid_t child = hold(&lock, 3);
    ck_ok(folder_lock_wait(&lock, 0.05, NULL, &is_mine));
    ck_assert(!is_mine);
    ck_ok(folder_lock_wait(&lock, 30, NULL, &is_mine));
    ck_assert(is_mine);
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_assert(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    ck_ok(folder_lock_release(&lock));
    free(path);
    remove_folder(folder);
}

TEST(a_free_name) {
    char *folder = make_folder(), *path = path_in(folder, "run"), *first = path_in(folder, "run.1"), *name;
    ck_ok(folder_free_name(path, &name));
    ck_assert_str_eq(name, first);
    free(name);
    spill(first, "", 0);
    ck_ok(folder_free_name(path, &name));
    ck_assert_str_eq(name + strlen(name) - 6, "/run.2");
    free(name);
    free(path);
    free(first);
    remove_folder(folder);
}

TEST(renames_the_folder_unless_another_process_has_it) {
    char *folder = make_folder(), *run = path_in(folder, "run"), *path = path_in(run, FOLDER_LOCK_FILE),
         *renamed = path_in(folder, "run.1");
    struct folder_lock lock = {
        .folder = run, .path = path, .text = TEXT, .what = "run", .busy = "trains here; wait for it", .fd = -1};
    struct log *log = log_create(true, false);
    struct io_info info;
    int how;
    ck_ok(io_make_folders(run));
    pid_t child = hold(&lock, FOLDER_LOCK_SECONDS + 3);
    ck_failure(folder_lock_rename_folder(&lock, log), STATUS_USAGE, "another ddptrain trains here; wait for it");
    ck_ok(io_stat(run, &info));
    ck_assert(info.is_folder);
    ck_assert_int_eq(waitpid(child, &how, 0), child);
    ck_ok(folder_lock_rename_folder(&lock, log));
    ck_ok(io_stat(run, &info));
    ck_assert(!info.exists);
    ck_ok(io_stat(renamed, &info));
    ck_assert(info.is_folder);
    log_destroy(log);
    free(run);
    free(path);
    free(renamed);
    remove_folder(folder);
}

/* Another process has the lock of [lock]; after 0.2 s it renames the folder to [renamed], or puts the file of folder
 * [next], whose lock it has, in place of that of [lock], and only then releases the first. */
static pid_t hold_and_replace(struct folder_lock *lock, const char *renamed, const char *next) {
    int ends[2];
    bool is_mine = true;
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char *path = next ? path_in(next, FOLDER_LOCK_FILE) : NULL;
        struct folder_lock second = {.folder = next, .path = path, .text = TEXT, .fd = -1};
        status_free(folder_lock_try(lock, &is_mine));
        if (!is_mine || write(ends[1], "x", 1) != 1) _exit(1);
        clock_sleep(0.2);
        if (next) status_free(folder_lock_try(&second, &is_mine));
        if (!is_mine || (next ? rename(path, lock->path) : rename(lock->folder, renamed)) != 0) _exit(1);
        status_free(folder_lock_release(lock));
        if (next) pause();
        _exit(0);
    }
    ck_assert_int_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]), close(ends[1]);
    return child;
}

static void check_is_at_path(const struct folder_lock *lock) {
    struct io_info file, path;
    ck_ok(io_stat_fd(lock->fd, lock->path, &file));
    ck_ok(io_stat(lock->path, &path));
    ck_assert(io_is_same(&file, &path));
}

/* --fresh by another process, while this one waits: the lock of the file before is not that of the new one. */
TEST(waits_for_the_file_at_the_path) {
    char *folder = make_folder(), *run = path_in(folder, "run"), *path = path_in(run, FOLDER_LOCK_FILE),
         *next = path_in(folder, "next");
    struct folder_lock lock = {.folder = run, .path = path, .text = TEXT, .fd = -1};
    bool is_mine;
    pid_t child = hold_and_replace(&lock, NULL, next);
    ck_ok(folder_lock_wait(&lock, 0.6, NULL, &is_mine));
    ck_assert_msg(!is_mine, "the lock of the replaced file was taken for that of the new one");
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_ok(folder_lock_wait(&lock, 30, NULL, &is_mine));
    ck_assert(is_mine);
    check_is_at_path(&lock);
    ck_ok(folder_lock_release(&lock));
    free(run), free(path), free(next);
    remove_folder(folder);
}

/* The process that has the lock keeps it in the renamed folder, whose file this one has open. */
TEST(takes_the_folder_in_place_of_a_locked_one) {
    char *folder = make_folder(), *run = path_in(folder, "run"), *path = path_in(run, FOLDER_LOCK_FILE),
         *renamed = path_in(folder, "run.1");
    struct folder_lock lock = {.folder = run, .path = path, .text = TEXT, .fd = -1};
    bool is_mine;
    pid_t child = hold(&lock, 120);
    ck_ok(folder_lock_try(&lock, &is_mine));
    ck_assert(!is_mine);
    ck_assert_int_eq(rename(run, renamed), 0);
    ck_ok(folder_lock_try(&lock, &is_mine));
    ck_assert(is_mine);
    check_is_at_path(&lock);
    ck_assert_int_eq(kill(child, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ck_ok(folder_lock_release(&lock));
    free(run), free(path), free(renamed);
    remove_folder(folder);
}

/* The process that renames it has made no new one yet: a start makes it, and another --fresh has nothing to rename. */
TEST(makes_a_folder_that_was_renamed) {
    char *folder = make_folder(), *run = path_in(folder, "run"), *path = path_in(run, FOLDER_LOCK_FILE),
         *renamed = path_in(folder, "run.1"), *second = path_in(folder, "run.2");
    struct folder_lock lock = {.folder = run, .path = path, .text = TEXT, .what = "run", .busy = "trains", .fd = -1};
    struct log *log = log_create(true, false);
    struct io_info info;
    for (int is_fresh = 0; is_fresh < 2; is_fresh++) {
        pid_t child = hold_and_replace(&lock, is_fresh ? second : renamed, NULL);
        if (is_fresh)
            ck_ok(folder_lock_rename_folder(&lock, log));
        else
            ck_ok(folder_lock_acquire(&lock, log));
        if (!is_fresh) check_is_at_path(&lock);
        ck_ok(folder_lock_release(&lock));
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        ck_ok(io_stat(run, &info));
        ck_assert(info.is_folder);
    }
    log_destroy(log);
    free(run), free(path), free(renamed), free(second);
    remove_folder(folder);
}

CHECK_MAIN("folder_lock")
