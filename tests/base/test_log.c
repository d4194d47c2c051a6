/* log: without memory there is none, and its functions do nothing. ctest-labels: unit */
#include "base/log.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "check_main.h"
#include "files.h"
#include "no_memory.h"

TEST(no_memory_for_a_log) {
    char *folder = make_folder(), *path = path_in(folder, "log.txt");
    struct log *log = NULL;
    if (CAN_FAIL_ALLOCATIONS) {
        allocations_left = 1;
        log = log_create(false, true);
        allocations_left = 0;
    }
    ck_assert_ptr_null(log);
    ck_ok(log_open_file(log, path));
    ck_assert_int_ne(access(path, F_OK), 0);
    log_line(log, "a line");
    log_warning(log, "a line");
    log_progress(log, "a line");
    ck_assert(!log_has_progress(log));
    log_destroy(log);
    free(path);
    remove_folder(folder);
}

/* Makes standard error a terminal of [columns]; returns its other side. */
static int open_terminal(int columns) {
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ck_assert_int_ge(terminal, 0);
    ck_assert_int_eq(grantpt(terminal) || unlockpt(terminal), 0);
    int side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(side, 0);
    ck_assert_int_eq(ioctl(side, TIOCSWINSZ, &size), 0);
    ck_assert_int_eq(dup2(side, STDERR_FILENO), STDERR_FILENO);
    close(side);
    return terminal;
}

static void resize(int columns) {
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ck_assert_int_eq(ioctl(STDERR_FILENO, TIOCSWINSZ, &size), 0);
}

/* The kernel hands over what was written in pieces: reads until as much came as is expected, or nothing more comes. */
static void assert_shown(int terminal, const char *expected) {
    char shown[1024];
    size_t length = 0;
    struct pollfd readable = {.fd = terminal, .events = POLLIN};
    while (length < strlen(expected) && poll(&readable, 1, 10000) == 1) {
        ssize_t count = read(terminal, shown + length, sizeof shown - 1 - length);
        ck_assert_int_gt(count, 0);
        length += (size_t)count;
    }
    shown[length] = 0;
    ck_assert_str_eq(shown, expected);
}

/* A narrower terminal shows the progress line in several rows: all of them are erased. */
TEST(progress_after_a_resize) {
    int before = dup(STDERR_FILENO), terminal = open_terminal(80);
    setenv("TERM", "xterm", 1);
    struct log *log = log_create(false, true);
    ck_assert_int_eq(log_line_width(), 80);
    log_progress(log, "25 % [========>                       ] epoch 2  step 1230  loss 2.3");
    resize(30);
    log_line(log, "a line");
    log_progress(log, "a bar");
    resize(90);
    log_progress(log, NULL);
    dup2(before, STDERR_FILENO);
    assert_shown(terminal, "25 % [========>                       ] epoch 2  step 1230  loss 2.3"
                           "\033[2A\r\033[Ja line\r\na bar\r\033[K");
    log_destroy(log);
    close(before);
    close(terminal);
}

TEST(a_line_in_a_terminal_and_in_the_file) {
    char *folder = make_folder(), *path = path_in(folder, "log.txt"), line[64] = "";
    int before = dup(STDERR_FILENO), terminal = open_terminal(20);
    struct log *log = log_create(false, false);
    ck_ok(log_open_file(log, path));
    log_line_fitted(log, "a line with a number 7", "a line");
    dup2(before, STDERR_FILENO);
    assert_shown(terminal, "a line\r\n");
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_ptr_nonnull(fgets(line, sizeof line, file));
    ck_assert_str_eq(line, "a line with a number 7\n");
    fclose(file);
    log_destroy(log);
    close(before);
    close(terminal);
    free(path);
    remove_folder(folder);
}

CHECK_MAIN("log")
