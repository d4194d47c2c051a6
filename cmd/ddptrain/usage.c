/* usage: the text of --help. */
#include <string.h>

#include "options.h"

#define USAGE_COLUMN 53  /* of the help of a command */
#define OPTION_COLUMN 23 /* of the help of an option */

/* Adds spaces up to [column] of the line that begins at [start]. */
static void pad(struct text *out, size_t start, size_t column) {
    while (out->length - start < column) text_add(out, " ");
}

static void add_usage(struct text *out, const char *command, const char *arguments, const char *help) {
    size_t start = out->length;
    text_printf(out, "%s ddptrain%s%s %s", start ? "      " : "usage:", command ? " " : "", command ? command : "",
                arguments);
    if (out->length - start > USAGE_COLUMN - 2) text_add(out, "   ");
    pad(out, start, USAGE_COLUMN);
    text_printf(out, "%s\n", help);
}

/* Adds the options from [first] to the next one with a help text; returns the index after it. */
static size_t add_options(struct text *out, size_t first) {
    size_t start = out->length, end = first;
    const struct option *last;
    if (!option_at(first)->value) return first + 1;
    do {
        last = option_at(end);
        text_printf(out, "%s%s%s%s", end == first ? "  " : " ", last->name, *last->value ? " " : "", last->value);
        end++;
    } while (!last->help);
    if (out->length - start > OPTION_COLUMN - 2) {
        text_add(out, "\n");
        start = out->length;
    }
    pad(out, start, OPTION_COLUMN);
    if (last->subcommands) {
        option_add_subcommands(last, out);
        text_add(out, ": ");
    }
    for (const char *c = last->help; *c; c++) {
        text_add_bytes(out, c, 1);
        if (*c == '\n') pad(out, out->length, OPTION_COLUMN);
    }
    text_add(out, "\n");
    return end;
}

void usage_write(struct text *out) {
    for (size_t i = 0; subcommand_at(i); i++)
        add_usage(out, i == 0 ? NULL : subcommand_at(i)->name, subcommand_at(i)->arguments, subcommand_at(i)->help);
    for (size_t i = 0; information_at(i); i++)
        if (information_at(i)->help)
            add_usage(out, information_at(i)->name, information_at(i)->argument, information_at(i)->help);
    text_add(out, "       ddptrain --help | --version\n\noptions\n");
    for (size_t i = 0; option_at(i);) i = add_options(out, i);
    text_add(out, "\nKEY=VALUE overrides a key of the config by its dotted path: optimizer.lr=0.01 train.epochs=5\n"
                  "KEY=null removes one that cannot be null: its default holds.\n"
                  "Running the same command again continues an unfinished run.\n\nexit codes\n");
#define X(name, code, meaning) text_printf(out, "  %2d  %s\n", code, meaning);
    STATUS_CODES(X)
#undef X
}
