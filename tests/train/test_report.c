/* The progress line: what it says, and that it is shorter than the terminal is wide. ctest-labels: unit */
#include "train/metrics/report.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>

#include "base/clock.h"
#include "check_main.h"
#include "files.h"

#define ERASE "\r\033[K"
#define ERASE_ROWS "\r\033[J"
#define END "\a"

/* Standard error is a terminal. Returns its other end. */
static int open_terminal(void) {
    struct termios raw;
    int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    ck_assert_int_ge(terminal, 0);
    ck_assert(grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int end = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(end, 0);
    ck_assert_int_eq(tcgetattr(end, &raw), 0);
    cfmakeraw(&raw);
    ck_assert_int_eq(tcsetattr(end, TCSANOW, &raw), 0);
    ck_assert_int_ge(dup2(end, STDERR_FILENO), 0);
    close(end);
    return terminal;
}

/* What the terminal shows of a step, in [line] (200), on a terminal of [columns]. */
static void show_step(struct report *report, int terminal, int columns, char line[200]) {
    char bytes[200] = "";
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    ck_assert_int_eq(ioctl(terminal, TIOCSWINSZ, &size), 0);
    report->shown = 0; /* or it is too soon for another line */
    report_step(report, 0.5, 3, 42, 1.25, 1000);
    fputs(END, stderr); /* the terminal may deliver what was written in several parts */
    for (size_t length = 0; length == 0 || bytes[length - 1] != *END;) {
        struct pollfd readable = {.fd = terminal, .events = POLLIN};
        ck_assert_int_eq(poll(&readable, 1, 10000), 1);
        ssize_t got = read(terminal, bytes + length, sizeof bytes - length);
        ck_assert_int_gt(got, 0);
        length += (size_t)got;
    }
    *strchr(bytes, *END) = 0;
    const char *rows = strstr(bytes, ERASE_ROWS); /* the terminal has become narrower than the line before */
    if (rows)
        strcpy(line, rows + strlen(ERASE_ROWS));
    else
        strcpy(line, bytes + (strncmp(bytes, ERASE, strlen(ERASE)) == 0 ? strlen(ERASE) : 0));
}

TEST(progress_fits_the_terminal) {
    int terminal = open_terminal();
    char line[200];
    struct log *log = log_create(false, true);
    struct report report = {.log = log, .total = 10};
    report_start(&report, 0);
    report.started = clock_seconds() - 3600;
    show_step(&report, terminal, 150, line);
    const char *rest = strstr(line, "] epoch 3");
    ck_assert_msg(strncmp(line, " 50 % [", 7) == 0 && rest, "%s", line);
    ck_assert_msg(strncmp(rest, "] epoch 3  step 42  loss 1.2500  1000 samples/s  1 h 0 min left", 60) == 0, "%s",
                  line);
    size_t whole = strlen(line);
    for (int columns = 2; columns < 120; columns++) {
        show_step(&report, terminal, columns, line);
        ck_assert_msg(strlen(line) < (size_t)columns, "%d columns: '%s'", columns, line);
        ck_assert_msg(strncmp(line, " 50 % ", strlen(line) < 6 ? strlen(line) : 6) == 0, "%s", line);
        ck_assert(strlen(line) == whole || (size_t)columns <= whole);
    }
    log_destroy(log);
    close(terminal);
}

TEST(durations_are_rounded) {
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0.0042, "4.2 ms"},   {0.25, "250 ms"}, {3.04, "3.0 s"}, {125, "2 min 5 s"},
                 {4350, "1 h 12 min"}, {3e8, "years"},   {-1, "0.0 ms"},  {INFINITY, "0.0 ms"}};
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        report_duration(cases[i].seconds, text);
        ck_assert_str_eq(text, cases[i].text);
    }
}

CHECK_MAIN("report")
