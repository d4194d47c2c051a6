/* options: the table of the options of the command line, which parsing, --help, the man page and completion read. */
#ifndef CMD_OPTIONS_H
#define CMD_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/text.h"
#include "command.h"

/* VALUE_FOLDER: a text, from which slashes at the end are removed. */
enum value_type { VALUE_NONE, VALUE_TEXT, VALUE_FOLDER, VALUE_NUMBER, VALUE_REAL };

/* "--name VALUE" or "--name=VALUE", at most once, by any of its names; "--name" for a flag (VALUE_NONE). */
struct option {
    const char *name;
    enum value_type type;
    size_t offset;        /* in struct command_line, a bool, const char *, int or double, by type */
    unsigned subcommands; /* its enum subcommand_option; 0: for every command */
    const char *value;    /* of --help: "none|cores", "FILE|best"; lower-case words are accepted values, others describe
                             one; NULL: not in --help */
    const char *help;     /* NULL: that of the next row */
    const char *aliases[2]; /* spellings of torchrun */
};

/* Row [index]; NULL after the last. */
const struct option *option_at(size_t index);
bool option_is_for(const struct option *option, const struct subcommand *subcommand);
/* Adds the commands that accept the option: "eval, predict". */
void option_add_subcommands(const struct option *option, struct text *out);

/* Options that print something about the program and end it; only as the first argument, except --help. */
struct information {
    const char *name, *argument; /* "--help-config", "[SECTION]" or "" */
    const char *help;            /* NULL: not in --help */
    status (*print)(const char *argument);
};
const struct information *information_at(size_t index);

/* Calls [add] for each command that `--help` lists; [name]: NULL for training, which needs none. */
typedef void command_writer(struct text *out, const char *name, const char *arguments, const char *help);
void commands_write(struct text *out, command_writer *add);

/* Environment variables that a user may set, for the man page and the reference page. */
struct variable {
    const char *names, *help;
};
const struct variable *variable_at(size_t index);

#endif
