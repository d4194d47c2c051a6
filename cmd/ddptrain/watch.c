/* watch: the state of a run or a sweep while it goes on, in place on a terminal, also of one that has not begun; else
 * once. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "command.h"
#include "report/report_page.h"

#define EVERY 1.0  /* seconds between two drawings */
#define PAUSES 9   /* times what a look takes: of a sweep of many trials it is a tenth of the time, or less */
#define POLL 0.05  /* between two looks at whether to stop */
#define PLAIN 1000 /* columns where there is no terminal */

/* Whether the terminal shows UTF-8, by the locale as POSIX finds it. */
static bool has_utf8(void) {
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *locale = getenv(names[i]);
        if (!locale || !*locale) continue;
        const char *dot = strchr(locale, '.');
        return dot && (strncasecmp(dot, ".utf-8", 6) == 0 || strncasecmp(dot, ".utf8", 5) == 0);
    }
    return false;
}

static struct winsize terminal_size(void) {
    struct winsize size;
    bool is_known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0;
    return is_known ? size : (struct winsize){.ws_col = 80, .ws_row = 24};
}

static size_t terminal_columns(void) {
    size_t columns = terminal_size().ws_col;
    return columns > 1 ? columns - 1 : 1;
}

/* The rows that [text] has on a terminal of [columns]: more than lines if the terminal has become narrower. */
static size_t count_rows(const char *text, size_t columns) {
    size_t rows = 0, length = 0;
    for (; *text; text++) {
        if (*text == '\n') {
            rows += length ? (length - 1) / columns + 1 : 1;
            length = 0;
        } else {
            length += (*text & 0xc0) != 0x80; /* a character of UTF-8 counts once */
        }
    }
    return rows;
}

/* Leaves as many lines as the terminal has above its last one. */
static void cut_lines(struct text *text, size_t max) {
    char *at = text->data;
    for (size_t i = 0; at && i < max; i++) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    if (at) *at = 0;
}

/* Draws [text] over [shown], the text of the last time, which it then replaces. */
static void draw(struct text *text, struct text *shown) {
    struct winsize size = terminal_size();
    size_t rows = count_rows(text_string(shown), size.ws_col);
    cut_lines(text, size.ws_row > 1 ? size.ws_row - 1u : 1);
    if (rows) printf("\x1b[%zuA", rows);
    printf("\r\x1b[J%s", text_string(text));
    fflush(stdout);
    text_clear(shown);
    text_add(shown, text_string(text));
}

static void draw_watch(const struct watch *watch, bool has_blocks, struct text *shown) {
    SCOPED_TEXT text = {0};
    watch_write(watch, terminal_columns(), has_blocks, &text);
    draw(&text, shown);
}

static void draw_absence(const char *path, struct text *shown) {
    SCOPED_TEXT text = {0};
    size_t columns = terminal_columns();
    text_add_value(&text, path, TEXT_MAX_NAME);
    text_add(&text, ": waiting for this folder (Ctrl-C ends)");
    if (text.length > columns) text.data[columns] = 0;
    text_add(&text, "\n");
    draw(&text, shown);
}

/* Waits until the next look, which is expected to take [seconds]. */
static void wait_for_change(double seconds) {
    double pause = fmax(EVERY, seconds * PAUSES);
    for (double end = clock_seconds() + pause; !stop_is_requested() && clock_seconds() < end;) clock_sleep(POLL);
}

/* Waits until the folder is that of a run or a sweep. *watch NULL: stopped before. */
static status wait_for_folder(const struct command_line *line, struct text *shown, struct watch **watch) {
    bool is_absent;
    *watch = NULL;
    TRY(watch_is_absent(line->config, &is_absent));
    while (is_absent && !stop_is_requested()) {
        draw_absence(line->config, shown);
        wait_for_change(0);
        TRY(watch_is_absent(line->config, &is_absent));
    }
    return is_absent ? OK : watch_open(line->config, watch);
}

static status watch_until_end(struct watch *watch, struct text *shown) {
    bool has_blocks = has_utf8();
    draw_watch(watch, has_blocks, shown);
    for (double seconds = 0; !stop_is_requested() && !watch_has_ended(watch);) {
        wait_for_change(seconds);
        double start = clock_seconds();
        TRY(watch_update(watch));
        draw_watch(watch, has_blocks, shown);
        seconds = clock_seconds() - start;
    }
    return OK;
}

static status watch_terminal(const struct command_line *line) {
    SCOPED_TEXT shown = {0};
    struct watch *watch;
    printf("\x1b[?25l"); /* no cursor */
    status s = wait_for_folder(line, &shown, &watch);
    if (!s && watch) s = watch_until_end(watch, &shown);
    printf("\x1b[?25h");
    watch_close(watch);
    return s;
}

static status run(const struct command_line *line) {
    struct watch *watch;
    status s = OK;
    stop_defer(); /* Ctrl-C ends it in order */
    if (isatty(STDOUT_FILENO)) {
        s = watch_terminal(line);
    } else {
        TRY(watch_open(line->config, &watch));
        SCOPED_TEXT text = {0};
        watch_write(watch, PLAIN, has_utf8(), &text);
        command_print(stdout, &text);
        watch_close(watch);
    }
    return s;
}

const struct subcommand subcommand_watch = {
    .name = "watch",
    .arguments = "RUN|SWEEP",
    .help = "progress of a run or a sweep, live on a terminal (Ctrl-C ends it)",
    .run = run,
    .operand = "run or sweep folder",
};
