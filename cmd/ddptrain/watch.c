/* watch: the state of a run or a sweep while it goes on, in place on a terminal; else once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "command.h"
#include "report/watch.h"

#define EVERY 1.0  /* seconds between two drawings */
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

static size_t count_lines(const char *text) {
    size_t lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
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

/* Draws over the [*shown] lines of the last time. */
static void draw(const struct watch *watch, bool has_blocks, size_t *shown) {
    struct winsize size = terminal_size();
    struct text text = {0};
    watch_write(watch, size.ws_col > 1 ? size.ws_col - 1u : 1, has_blocks, &text);
    cut_lines(&text, size.ws_row > 1 ? size.ws_row - 1u : 1);
    if (*shown) printf("\x1b[%zuA", *shown);
    printf("\r\x1b[J%s", text_string(&text));
    fflush(stdout);
    *shown = count_lines(text_string(&text));
    text_free(&text);
}

static status watch_terminal(const struct command_line *line, struct watch *watch) {
    bool has_blocks = has_utf8();
    size_t shown = 0;
    status s = OK;
    printf("\x1b[?25l"); /* no cursor */
    draw(watch, has_blocks, &shown);
    while (!s && !*line->stop && !watch_has_ended(watch)) {
        for (double end = clock_seconds() + EVERY; !*line->stop && clock_seconds() < end;) clock_sleep(POLL);
        s = watch_update(watch);
        if (!s) draw(watch, has_blocks, &shown);
    }
    printf("\x1b[?25h");
    return s;
}

static status run(const struct command_line *line) {
    struct watch *watch;
    TRY(watch_open(line->config, &watch));
    *line->defers_stop = 1; /* Ctrl-C ends it in order */
    status s = OK;
    if (isatty(STDOUT_FILENO)) {
        s = watch_terminal(line, watch);
    } else {
        struct text text = {0};
        watch_write(watch, PLAIN, has_utf8(), &text);
        fputs(text_string(&text), stdout);
        text_free(&text);
    }
    watch_close(watch);
    return s;
}

const struct subcommand subcommand_watch = {
    .name = "watch",
    .arguments = "RUN|SWEEP",
    .help = "progress of a run or a sweep, live on a terminal (Ctrl-C ends it)",
    .run = run,
    .operand = "run or sweep folder",
};
