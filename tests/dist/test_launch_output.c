/* The launcher prints the output of a rank, and writes it to the rank's log, in whole lines and without loss.
 * ctest-labels: unit */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check_main.h"
#include "dist/launch/launch_internal.h"
#include "files.h"

#define MAX_UNLOGGED 65536 /* as in launch.c */

/* Rank 3, the pipe that it writes to, and the file that replaces standard error of this process. */
struct printed {
    struct launched_rank rank;
    int input, shown;
    char *folder;
};

static struct printed printed_create(void) {
    struct printed p = {.rank = {.rank = 3, .log = -1}, .folder = make_folder()};
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_NONBLOCK), 0);
    p.rank.output = ends[0];
    p.input = ends[1];
    p.shown = memfd_create("shown", 0);
    ck_assert_int_ge(dup2(p.shown, STDERR_FILENO), 0);
    return p;
}

static void print(const struct printed *p, const char *text) {
    ck_assert_int_eq(write(p->input, text, strlen(text)), (ssize_t)strlen(text));
}

/* The contents of [fd] from its beginning; valid until the next call. */
static const char *contents(int fd) {
    static char text[2 * MAX_UNLOGGED];
    ssize_t size = pread(fd, text, sizeof text - 1, 0);
    ck_assert_int_ge(size, 0);
    text[size] = 0;
    return text;
}

static const char *log_of(const struct printed *p) {
    char *path = path_in(p->folder, "run/logs/rank-3.txt");
    int fd = open(path, O_RDONLY);
    free(path);
    if (fd < 0) return "no log";
    const char *text = contents(fd);
    close(fd);
    return text;
}

static void open_log(struct printed *p) {
    SCOPED_MEMORY char *run = path_in(p->folder, "run");
    launch_output_open(&p->rank, run);
}

static void printed_destroy(struct printed *p) {
    remove_folder(p->folder);
    close(p->input);
    close(p->shown);
}

TEST(lines_are_whole) {
    struct printed p = printed_create();
    print(&p, "one\ntw");
    launch_output_read(&p.rank);
    ck_assert_str_eq(contents(p.shown), "[rank 3] one\n");
    print(&p, "o\n\n");
    launch_output_read(&p.rank);
    ck_assert_str_eq(contents(p.shown), "[rank 3] one\n[rank 3] two\n[rank 3] \n");
    ck_assert_str_eq(log_of(&p), "no log");
    open_log(&p);
    ck_assert_str_eq(log_of(&p), "one\ntwo\n\n"); /* output from before the log was open */
    print(&p, "last\nwithout an end");
    launch_output_close(&p.rank);
    ck_assert_str_eq(contents(p.shown),
                     "[rank 3] one\n[rank 3] two\n[rank 3] \n[rank 3] last\n[rank 3] without an end\n");
    ck_assert_str_eq(log_of(&p), "one\ntwo\n\nlast\nwithout an end\n");
    ck_assert_int_eq(p.rank.output, -1);
    ck_assert_int_eq(p.rank.log, -1);
    printed_destroy(&p);
}

/* An unfinished line is printed when it is longer than the limit. */
TEST(long_line_is_split) {
    struct printed p = printed_create();
    char text[10001];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    print(&p, text);
    launch_output_read(&p.rank);
    const char *shown = contents(p.shown);
    ck_assert_msg(strlen(shown) > 8192 && shown[strlen(shown) - 1] == '\n', "%zu bytes", strlen(shown));
    launch_output_close(&p.rank);
    size_t count = 0;
    for (shown = contents(p.shown); (shown = strchr(shown, 'x')); shown++) count++;
    ck_assert_uint_eq(count, sizeof text - 1);
    printed_destroy(&p);
}

TEST(the_end_of_the_pipe_ends_the_output) {
    struct printed p = printed_create();
    print(&p, "one\n");
    launch_output_read(&p.rank);
    ck_assert_int_ge(p.rank.output, 0);
    print(&p, "two");
    close(p.input);
    launch_output_read(&p.rank);
    ck_assert_int_eq(p.rank.output, -1);
    ck_assert_str_eq(contents(p.shown), "[rank 3] one\n");
    launch_output_close(&p.rank);
    ck_assert_str_eq(contents(p.shown), "[rank 3] one\n[rank 3] two\n");
    p.input = -1;
    printed_destroy(&p);
}

/* Before the log is open, output is kept up to a limit. */
TEST(unlogged_output_has_a_limit) {
    struct printed p = printed_create();
    char line[1025], expected[MAX_UNLOGGED + 1] = "";
    memset(line, 'x', sizeof line - 2);
    line[sizeof line - 2] = '\n';
    line[sizeof line - 1] = 0;
    for (int i = 0; i < 70; i++) {
        line[0] = (char)('0' + i);
        if (strlen(expected) + strlen(line) <= MAX_UNLOGGED) strcat(expected, line);
        print(&p, line);
        launch_output_read(&p.rank);
    }
    ck_assert_uint_eq(strlen(expected), MAX_UNLOGGED);
    open_log(&p);
    ck_assert_str_eq(log_of(&p), expected);
    launch_output_close(&p.rank);
    printed_destroy(&p);
}

/* Notes of the launcher are written to the log only, after the time. */
TEST(notes_are_in_the_log) {
    struct printed p = printed_create();
    launch_output_note(&p.rank, "killed by SIGKILL");
    open_log(&p);
    launch_output_note(&p.rank, "and again");
    launch_output_close(&p.rank);
    ck_assert_str_eq(contents(p.shown), "");
    const char *log = log_of(&p);
    ck_assert_uint_eq(strlen(log), 2 * strlen("2000-01-01 00:00:00 ") + strlen("killed by SIGKILL\nand again\n"));
    ck_assert_ptr_nonnull(strstr(log, " killed by SIGKILL\n2"));
    ck_assert_ptr_nonnull(strstr(log, " and again\n"));
    printed_destroy(&p);
}

static mode_t mode_of(const struct printed *p, const char *name) {
    struct stat info;
    char *path = path_in(p->folder, name);
    ck_assert_int_eq(stat(path, &info), 0);
    free(path);
    return info.st_mode & 07777;
}

/* Others may read the logs, unless the umask forbids it. */
TEST(the_umask_decides_who_may_read) {
    struct printed p = printed_create();
    umask(027);
    open_log(&p);
    ck_assert_uint_eq(mode_of(&p, "run"), 0750);
    ck_assert_uint_eq(mode_of(&p, "run/logs"), 0750);
    ck_assert_uint_eq(mode_of(&p, "run/logs/rank-3.txt"), 0640);
    launch_output_close(&p.rank);
    printed_destroy(&p);
}

/* Rank 0 writes log.txt of the run. */
TEST(rank_0_has_no_log) {
    struct printed p = printed_create();
    p.rank.rank = 0;
    open_log(&p);
    ck_assert_int_eq(p.rank.log, -1);
    launch_output_close(&p.rank);
    printed_destroy(&p);
}

CHECK_MAIN("launch_output")
