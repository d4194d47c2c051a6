/* child: runs of this program that a command starts one after another and looks at (selftest, audit), and the folder
 * that they are in. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/files/io.h"
#include "base/stop.h"
#include "command.h"
#include "dist/process/env.h"
#include "dist/process/launcher_channel.h"

#define SELF "/proc/self/exe"
#define NAMED "ddptrain: " /* before a failure */

extern char **environ;

/* Without what would make a child a rank of another job. */
static char **own_environment(void) {
    size_t count = 0, kept = 0;
    while (environ[count]) count++;
    char **own = calloc(count + 1, sizeof *own);
    if (!own) status_exit_without_memory();
    for (size_t i = 0; i < count; i++)
        if (!dist_env_is_of_launcher(environ[i])) own[kept++] = environ[i];
    return own;
}

status command_run_child(const char *const *arguments, const char *output, int *code) {
    posix_spawn_file_actions_t actions;
    char **environment = own_environment();
    pid_t pid;
    int ended = 0, failed;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    failed = posix_spawn(&pid, SELF, &actions, NULL, (char *const *)(uintptr_t)arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    if (failed) return status_errno(STATUS_IO, failed, "cannot start a process");
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
    char *text = NULL;
    struct io_info info;
    status_free(io_read_text(path, 1 << 20, &text, &info));
    if (!text) return;
    size_t end = strlen(text);
    while (end > 0 && text[end - 1] == '\n') text[--end] = 0;
    const char *named = strncmp(text, NAMED, strlen(NAMED)) == 0 ? text : strstr(text, "\n" NAMED);
    const char *last = strrchr(text, '\n'), *line = named ? named : last ? last : text;
    if (*line == '\n') line++;
    if (named) line += strlen(NAMED);
    struct text reason = {0};
    text_add_bytes(&reason, line, strcspn(line, "\n"));
    text_add_value(out, text_string(&reason), 400);
    text_free(&reason);
    free(text);
}

status command_make_folder(const char *parent, const char *name, char **out) {
    struct text path = {0};
    text_printf(&path, "%s/ddptrain-%s-XXXXXX", parent ? parent : ".", name);
    *out = mkdtemp(path.data);
    if (*out) return OK;
    status s = status_errno(STATUS_IO, errno, "cannot make a folder for the runs in '%s'", parent ? parent : ".");
    text_free(&path);
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
