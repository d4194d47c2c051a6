/* child: runs of this program that a command starts one after another and looks at (selftest, audit), and the folder
 * that they are in. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/stop.h"
#include "base/system/program.h"
#include "command.h"
#include "dist/process/env.h"
#include "dist/process/launcher_channel.h"

#define NAMED "ddptrain: " /* before a failure */

extern char **environ;

/* Without what would make a child a rank of another job. */
static char **own_environment(void) {
    size_t count = 0, kept = 0;
    while (environ[count]) count++;
    char **own = status_need(calloc(count + 1, sizeof *own));
    for (size_t i = 0; i < count; i++)
        if (!dist_env_is_of_launcher(environ[i])) own[kept++] = environ[i];
    return own;
}

/* What reads the terminal or prints is this process alone. */
static _Noreturn void run(const char *const *arguments, int output, pid_t parent) {
    int nothing = open("/dev/null", O_RDONLY);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* or it would write on into a folder that is removed */
    if (getppid() != parent) _exit(STATUS_PEER);
    dup2(nothing, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    environ = own_environment();
    program_start_again((char *const *)(uintptr_t)arguments);
    fprintf(stderr, NAMED "cannot start the program again by /proc/self/exe: %s; is /proc mounted?\n", strerror(errno));
    _exit(STATUS_IO);
}

status command_run_child(const char *const *arguments, const char *output, int *code) {
    int ended = 0, fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return status_errno(STATUS_IO, errno, "cannot write '%s'", output);
    fflush(NULL); /* or the child may print it, too */
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) run(arguments, fd, parent);
    int failed = errno;
    close(fd);
    if (pid < 0) return status_errno(STATUS_IO, failed, "cannot start a process");
    for (pid_t found = 0; found != pid; found = waitpid(pid, &ended, WNOHANG)) {
        if (found < 0 && errno != EINTR) return status_errno(STATUS_IO, errno, "cannot wait for a process");
        if (stop_is_requested()) kill(pid, SIGTERM);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    if (stop_is_requested()) return status_new(STATUS_STOPPED, "%s", STOPPED_ON_REQUEST);
    *code = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
    return OK;
}

void command_add_reason(const char *path, struct text *out) {
    SCOPED_STRING text = NULL;
    struct io_info info;
    status_free(io_read_text(path, 1 << 20, &text, &info));
    if (!text) return;
    size_t end = strlen(text);
    while (end > 0 && text[end - 1] == '\n') text[--end] = 0;
    const char *named = strncmp(text, NAMED, strlen(NAMED)) == 0 ? text : strstr(text, "\n" NAMED);
    const char *last = strrchr(text, '\n'), *line = named ? named : last ? last : text;
    if (*line == '\n') line++;
    if (named) line += strlen(NAMED);
    SCOPED_TEXT reason = {0};
    text_add_bytes(&reason, line, strcspn(line, "\n"));
    text_add_value(out, text_string(&reason), 400);
}

/* ---- the folder of the runs ---- */

#define FOLDER_NAME "ddptrain-"
#define LOCK_TEXT "temporary runs of ddptrain\n"

/* The process holds the lock of its folder until it ends. */
static struct folder_lock lock_of(struct arena *arena, const char *folder) {
    return (struct folder_lock){.folder = folder,
                                .path = arena_printf(arena, "%s/" FOLDER_LOCK_FILE, folder),
                                .text = LOCK_TEXT,
                                .what = "folder of temporary runs",
                                .busy = "uses this folder",
                                .fd = -1};
}

static bool is_left_behind(struct arena *arena, const char *folder) {
    struct folder_lock lock = lock_of(arena, folder);
    enum folder_lock_state state;
    bool is_held = true;
    status s = folder_lock_read(&lock, &state);
    if (!s && state == FOLDER_LOCK_COMPLETE) s = folder_lock_is_held(folder, &is_held);
    bool is_left = !s && state == FOLDER_LOCK_COMPLETE && !is_held;
    status_free(s);
    return is_left;
}

/* What cannot be read or removed stays: it is of another user, and no reason for this command to fail. */
static void remove_left_behind(struct arena *arena, const char *parent) {
    SCOPED_NAMES names = {0};
    status_free(io_list(parent, &names));
    for (size_t i = 0; i < names.count; i++) {
        const char *folder = arena_printf(arena, "%s/%s", parent, names.items[i]);
        bool is_ours = strncmp(names.items[i], FOLDER_NAME, strlen(FOLDER_NAME)) == 0;
        if (is_ours && is_left_behind(arena, folder)) command_remove_tree(folder);
    }
}

status command_make_folder(const char *parent, const char *name, char **out) {
    SCOPED_ARENA arena = arena_create();
    struct text path = {0};
    bool is_mine;
    if (!parent) parent = ".";
    remove_left_behind(arena, parent);
    text_printf(&path, "%s/" FOLDER_NAME "%s-XXXXXX", parent, name);
    *out = mkdtemp(path.data);
    status s = *out ? OK : status_errno(STATUS_IO, errno, "cannot make a folder for the runs in '%s'", parent);
    struct folder_lock lock = lock_of(arena, path.data);
    status unlocked = s ? OK : folder_lock_try(&lock, &is_mine);
    if (!s && !unlocked) unlocked = folder_lock_write_text(&lock);
    status_free(unlocked); /* a file system without locks: a folder that is left there stays */
    if (!*out) text_free(&path);
    return s;
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

void command_remove_tree(const char *folder) { nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS); }

void command_remove_folder(char *folder) {
    if (folder) command_remove_tree(folder);
    free(folder);
}
