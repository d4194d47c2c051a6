/* The options that print something about the program: --help, the manual page, completion for shells, the schema and
 * the reference pages. All are written from the same tables: commands and options (options.c), exit codes
 * (base/status.h), keys of a config (its schema), and the two tables below. What stands around the tables is in the
 * files of texts/, where
 * @NAME@ is the place of a table. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/schema/schema.h"
#include "command.h"
#include "train/config/config.h"

/* Options that print something about the program and end it; only as the first argument, except --help. */
struct information {
    const char *name, *argument; /* "--help-config", "[SECTION]" or "" */
    const char *help;            /* NULL: not in --help */
    status (*print)(const char *argument);
};
static const struct information *information_at(size_t index); /* NULL after the last */

/* Environment variables that a user may set. */
static const struct {
    const char *names, *help;
} variables[] = {
    {"RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
     "Read as PyTorch reads them, and so are those that Slurm, MPI, PALS and Flux set."},
    {"OMP_NUM_THREADS", "Threads of each process. Default: 1 for each of several processes of --nproc; else the "
                        "processors that a process may use, divided among the ranks that share them."},
    {"OMP_WAIT_POLICY, GOMP_SPINCOUNT", "How long waiting threads spin. Default: for some 40 us, then they sleep."},
    {"DDPTRAIN_CPU", "The instruction set of the CPU's loops, instead of the best one of this machine: avx512, avx2 or "
                     "baseline, whose results have other bits. oneDNN has ONEDNN_MAX_CPU_ISA."},
    {"DDPTRAIN_SECRET",
     "On several machines: the job's secret, the same text of at least 16 characters on all (`openssl rand -hex 16`). "
     "Without it the secret is derived from the job's number or the port, which others can guess."},
    {"DDPTRAIN_JOB_ID",
     "On several machines without a scheduler: the job's number, the same text on all. Default: from MASTER_PORT."},
    {"CUDA_VISIBLE_DEVICES", "The GPUs that the program may use, as for all programs with CUDA."},
    {"GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME",
     "The network interface of Gloo, of NCCL; default: the one that leads to rank 0."},
    {"TMPDIR", "The folder for large temporary files; default: /var/tmp."},
    {"DDPTRAIN_INCLUDE_DIR", "The folder of the headers for extensions, if they are not where they were installed."},
    {"DDPTRAIN_MODULE_DIR",
     "The folder of the modules (Gloo, MPI, oneDNN, CUDA, NCCL), if they are not where they were installed."},
};
#define VARIABLE_COUNT (sizeof variables / sizeof *variables)

/* ---- texts with tables ---- */

/* @NAME@ in a text, and what writes the table that it stands for. */
struct marker {
    const char *name;
    void (*write)(struct text *out);
};

/* The files of texts/. */
static const struct {
    const char *name, *text;
} texts[] = {
#include "ddptrain/texts.inc"
};

const char *command_text(const char *name) {
    size_t i = 0;
    while (strcmp(texts[i].name, name) != 0) i++;
    return texts[i].text;
}

static const struct marker *marker_at(const char *at, const struct marker *markers) {
    for (; markers->name; markers++) {
        size_t length = strlen(markers->name);
        if (strncmp(at + 1, markers->name, length) == 0 && at[1 + length] == '@') return markers;
    }
    return NULL;
}

/* Adds the file [name] with what its markers stand for; the line end after a marker whose text ends with one is left
 * out. */
static void expand(const char *name, const struct marker *markers, struct text *out) {
    for (const char *at = command_text(name); *at;) {
        const struct marker *marker = *at == '@' ? marker_at(at, markers) : NULL;
        if (!marker) {
            text_add_bytes(out, at++, 1);
            continue;
        }
        marker->write(out);
        at += strlen(marker->name) + 2;
        if (*at == '\n' && out->length && out->data[out->length - 1] == '\n') at++;
    }
}

/* Calls [add] for each command of --help; [name]: NULL for training, which needs none. */
static void each_command(struct text *out,
                         void (*add)(struct text *out, const char *name, const char *arguments, const char *help)) {
    for (size_t i = 0; subcommand_at(i); i++)
        add(out, i == 0 ? NULL : subcommand_at(i)->name, subcommand_at(i)->arguments, subcommand_at(i)->help);
    for (size_t i = 0; information_at(i); i++)
        if (information_at(i)->help)
            add(out, information_at(i)->name, information_at(i)->argument, information_at(i)->help);
}

/* Calls [add] for each group of options of --help: rows [first] to [last], whose help text is for all of them. */
static void each_group(struct text *out,
                       void (*add)(struct text *out, const struct option *first, const struct option *last)) {
    for (size_t i = 0; option_at(i); i++) {
        const struct option *first = option_at(i);
        if (!first->value) continue;
        while (!option_at(i)->help) i++;
        add(out, first, option_at(i));
    }
}

/* ---- --help ---- */

#define USAGE_COLUMN 53  /* of the help of a command */
#define OPTION_COLUMN 23 /* of the help of an option */

static void add_command(struct text *out, const char *command, const char *arguments, const char *help) {
    size_t start = out->length;
    text_printf(out, "%s ddptrain%s%s %s", start ? "      " : "usage:", command ? " " : "", command ? command : "",
                arguments);
    if (out->length - start > USAGE_COLUMN - 2) text_add(out, "   ");
    text_pad(out, start, USAGE_COLUMN);
    text_printf(out, "%s\n", help);
}

static void add_group(struct text *out, const struct option *first, const struct option *last) {
    size_t start = out->length;
    for (const struct option *o = first; o <= last; o++)
        text_printf(out, "%s%s%s%s", o == first ? "  " : " ", o->name, *o->value ? " " : "", o->value);
    if (out->length - start > OPTION_COLUMN - 2) {
        text_add(out, "\n");
        start = out->length;
    }
    text_pad(out, start, OPTION_COLUMN);
    if (last->subcommands) {
        option_add_subcommands(last, out);
        text_add(out, ": ");
    }
    for (const char *c = last->help; *c; c++) {
        text_add_bytes(out, c, 1);
        if (*c == '\n') text_pad(out, out->length, OPTION_COLUMN);
    }
    text_add(out, "\n");
}

static void write_commands(struct text *out) { each_command(out, add_command); }
static void write_options(struct text *out) { each_group(out, add_group); }

static void write_exit_codes(struct text *out) {
#define X(name, code, meaning) text_printf(out, "  %2d  %s\n", code, meaning);
    STATUS_CODES(X)
#undef X
}

static const struct marker usage_markers[] = {
    {"COMMANDS", write_commands}, {"OPTIONS", write_options}, {"EXIT_CODES", write_exit_codes}, {0}};

/* ---- the manual page, in the macros of man(7) ---- */

/* Adds [string] as text of a page: hyphens are not broken into dashes, a line does not begin with a control character.
 */
static void add_roff(struct text *out, const char *string) {
    for (const char *c = string; *c; c++)
        if (*c == '-')
            text_add(out, "\\-");
        else if (*c == '\\')
            text_add(out, "\\e");
        else if ((*c == '.' || *c == '\'') && (c == string || c[-1] == '\n'))
            text_printf(out, "\\&%c", *c);
        else
            text_add_bytes(out, c, 1);
}

/* A paragraph with a tag: the words of [tag] are bold, or in italics where they are in upper case. */
static void add_roff_tag(struct text *out, const char *tag) {
    text_add(out, ".TP\n");
    for (const char *word = tag; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        SCOPED_TEXT one = {0};
        text_add_bytes(&one, word, length);
        bool is_name = strpbrk(text_string(&one), "abcdefghijklmnopqrstuvwxyz") != NULL;
        text_printf(out, "%s\\f%c", word == tag ? "" : " ", is_name ? 'B' : 'I');
        add_roff(out, text_string(&one));
        text_add(out, "\\fR");
        word += length;
    }
    text_add(out, "\n");
}

static void add_roff_command(struct text *out, const char *name, const char *arguments, const char *help) {
    SCOPED_STRING tag =
        text_format("ddptrain%s%s%s%s", name ? " " : "", name ? name : "", *arguments ? " " : "", arguments);
    add_roff_tag(out, tag);
    add_roff(out, help);
    text_add(out, "\n");
}

static void add_roff_group(struct text *out, const struct option *first, const struct option *last) {
    SCOPED_TEXT tag = {0};
    for (const struct option *o = first; o <= last; o++)
        text_printf(&tag, "%s%s%s%s", o == first ? "" : " ", o->name, *o->value ? " " : "", o->value);
    add_roff_tag(out, text_string(&tag));
    add_roff(out, last->help);
    if (last->subcommands) {
        text_add(out, "\nAccepted by ");
        option_add_subcommands(last, out);
        text_add(out, ".");
    }
    text_add(out, "\n");
}

static void write_version(struct text *out) { text_add(out, DDPTRAIN_VERSION); }
static void write_roff_commands(struct text *out) { each_command(out, add_roff_command); }
static void write_roff_options(struct text *out) { each_group(out, add_roff_group); }

static void write_roff_exit_codes(struct text *out) {
#define X(name, code, meaning) text_printf(out, ".TP\n.B %d\n%s\n", code, meaning);
    STATUS_CODES(X)
#undef X
}

static void write_roff_variables(struct text *out) {
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        text_printf(out, ".TP\n.B %s\n", variables[i].names);
        add_roff(out, variables[i].help);
        text_add(out, "\n");
    }
}

static const struct marker man_markers[] = {{"VERSION", write_version},          {"COMMANDS", write_roff_commands},
                                            {"OPTIONS", write_roff_options},     {"EXIT_CODES", write_roff_exit_codes},
                                            {"VARIABLES", write_roff_variables}, {0}};

/* ---- the reference page of the command line, in Markdown ---- */

/* Adds [text] as a cell of a table. */
static void add_cell(struct text *out, const char *text) {
    for (; *text; text++)
        if (*text == '|')
            text_add(out, "\\|");
        else if (*text == '<')
            text_add(out, "&lt;");
        else
            text_add_bytes(out, *text == '\n' ? " " : text, 1);
}

/* Adds the code [text] within a cell, where a bar ends it. */
static void add_code(struct text *out, const char *text) {
    for (; *text; text++) text_add(out, *text == '|' ? "\\|" : (char[]){*text, 0});
}

static void add_row_of_command(struct text *out, const char *name, const char *arguments, const char *help) {
    text_printf(out, "| `ddptrain%s%s%s", name ? " " : "", name ? name : "", *arguments ? " " : "");
    add_code(out, arguments);
    text_add(out, "` | ");
    add_cell(out, help);
    text_add(out, " |\n");
}

static void add_row_of_group(struct text *out, const struct option *first, const struct option *last) {
    for (const struct option *o = first; o <= last; o++) {
        text_printf(out, "%s`%s%s", o == first ? "| " : ", ", o->name, *o->value ? " " : "");
        add_code(out, o->value);
        text_add(out, "`");
    }
    text_add(out, " | ");
    if (last->subcommands)
        option_add_subcommands(last, out);
    else
        text_add(out, "all");
    text_add(out, " | ");
    add_cell(out, last->help);
    text_add(out, " |\n");
}

static void write_rows_of_commands(struct text *out) { each_command(out, add_row_of_command); }
static void write_rows_of_options(struct text *out) { each_group(out, add_row_of_group); }

static void write_rows_of_exit_codes(struct text *out) {
#define X(name, code, meaning) text_printf(out, "| %d | %s |\n", code, meaning);
    STATUS_CODES(X)
#undef X
}

static void write_rows_of_variables(struct text *out) {
    for (size_t i = 0; i < VARIABLE_COUNT; i++) {
        text_printf(out, "| `%s` | ", variables[i].names);
        add_cell(out, variables[i].help);
        text_add(out, " |\n");
    }
}

static const struct marker page_markers[] = {{"COMMANDS", write_rows_of_commands},
                                             {"OPTIONS", write_rows_of_options},
                                             {"EXIT_CODES", write_rows_of_exit_codes},
                                             {"VARIABLES", write_rows_of_variables},
                                             {0}};

/* ---- completion for bash and zsh: functions that print words for a command, an option or a key ---- */

/* Adds the values that an option lists, "none|cores", with [separator] between; words in upper case describe a value.
 */
static void add_values(const char *value, struct text *out, const char *separator) {
    for (const char *at = value; at && *at; at += *at == '|') {
        size_t length = strcspn(at, "|");
        if (islower((unsigned char)*at)) text_printf(out, "%s%.*s", out->length ? separator : "", (int)length, at);
        at += length;
    }
}

/* Adds [word], after a blank if it is not the first one since [start]. */
static void add_word(struct text *out, size_t start, const char *word) {
    text_printf(out, "%s%s", out->length > start ? " " : "", word);
}

static void write_words_of_commands(struct text *out) {
    for (size_t i = 0, start = out->length; subcommand_at(i); i++) add_word(out, start, subcommand_at(i)->name);
}

static void write_words_of_information(struct text *out) {
    for (size_t i = 0, start = out->length; information_at(i); i++) add_word(out, start, information_at(i)->name);
}

static void add_case(struct text *out, const char *name, const char *words) {
    if (*words) text_printf(out, "        %s) echo \"%s\" ;;\n", name, words);
}

static void add_key_case(void *context, const char *path, const char *const *values) {
    SCOPED_TEXT words = {0};
    for (size_t i = 0; values[i]; i++) text_printf(&words, "%s%s", i ? " " : "", values[i]);
    add_case(context, path, text_string(&words));
}

/* The options of each command. */
static void write_cases_of_options(struct text *out) {
    for (size_t v = 0; subcommand_at(v); v++) {
        SCOPED_TEXT words = {0};
        for (size_t i = 0; option_at(i); i++)
            if (option_is_for(option_at(i), subcommand_at(v))) add_word(&words, 0, option_at(i)->name);
        add_case(out, subcommand_at(v)->name, text_string(&words));
    }
}

/* The values of each option and of each key that has a list of them. */
static void write_cases_of_values(struct text *out) {
    for (size_t i = 0; option_at(i); i++) {
        SCOPED_TEXT words = {0};
        add_values(option_at(i)->value, &words, " ");
        add_case(out, option_at(i)->name, text_string(&words));
    }
    add_case(out, "--completion", "bash zsh fish");
    schema_each_key(&config_schema, add_key_case, out);
}

static void write_options_with_values(struct text *out) {
    const char *separator = "";
    for (size_t i = 0; option_at(i); i++)
        if (option_at(i)->type != VALUE_NONE) {
            text_printf(out, "%s%s", separator, option_at(i)->name);
            separator = " | ";
        }
}

static void add_key(void *context, const char *path, const char *const *values) {
    (void)values;
    text_printf(context, "%s= ", path);
}

static void write_words_of_keys(struct text *out) { schema_each_key(&config_schema, add_key, out); }

static void write_functions(struct text *out) {
    static const struct marker markers[] = {
        {"OPTIONS", write_cases_of_options}, {"INFORMATION", write_words_of_information},
        {"VALUES", write_cases_of_values},   {"OPTIONS_WITH_VALUES", write_options_with_values},
        {"KEYS", write_words_of_keys},       {0}};
    expand("completion_functions.txt", markers, out);
}

/* 'NAME:HELP' for each command, as _describe of zsh takes them. */
static void write_descriptions(struct text *out) {
    for (size_t i = 0; subcommand_at(i); i++) {
        text_printf(out, "        '%s:", subcommand_at(i)->name);
        for (const char *c = subcommand_at(i)->help; *c; c++)
            text_add_bytes(out, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
        text_add(out, "'\n");
    }
}

static const struct marker bash_markers[] = {
    {"FUNCTIONS", write_functions}, {"COMMANDS", write_words_of_commands}, {0}};
static const struct marker zsh_markers[] = {{"FUNCTIONS", write_functions}, {"DESCRIPTIONS", write_descriptions}, {0}};

/* ---- completion for fish ---- */

/* Adds [string] in single quotes. */
static void add_quoted(struct text *out, const char *string) {
    text_add(out, "'");
    for (const char *c = string; *c && *c != '\n'; c++)
        text_printf(out, "%s%c", *c == '\'' || *c == '\\' ? "\\" : "", *c);
    text_add(out, "'");
}

#define FISH "complete -c ddptrain"

static void add_fish_option(struct text *out, const struct option *option) {
    const struct option *with_help = option;
    SCOPED_TEXT words = {0}, values = {0};
    while (!with_help->help && with_help->value) with_help++;
    bool is_for_training = option_is_for(option, subcommand_at(0)); /* which needs no command */
    for (size_t i = 0; option->subcommands && subcommand_at(i); i++)
        if (option_is_for(option, subcommand_at(i)) != is_for_training)
            text_printf(&words, " %s", subcommand_at(i)->name);
    text_add(out, FISH);
    if (option->subcommands)
        text_printf(out, " -n '%s__fish_seen_subcommand_from%s'", is_for_training ? "not " : "", text_string(&words));
    text_printf(out, " -l %s", option->name + 2);
    add_values(option->value, &values, " ");
    bool is_listed = values.length && !strpbrk(option->value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (option->type != VALUE_NONE) text_add(out, is_listed ? " -x" : " -r");
    if (values.length) {
        text_add(out, " -a ");
        add_quoted(out, text_string(&values));
    }
    if (with_help->help) {
        text_add(out, " -d ");
        add_quoted(out, with_help->help);
    }
    text_add(out, "\n");
}

static void add_fish_key(void *context, const char *path, const char *const *values) {
    if (!values[0]) text_printf(context, "    echo %s=\n", path);
    for (size_t i = 0; values[i]; i++) text_printf(context, "    echo %s=%s\n", path, values[i]);
}

static void write_fish_keys(struct text *out) { schema_each_key(&config_schema, add_fish_key, out); }

static void write_fish_commands(struct text *out) {
    for (size_t i = 0; subcommand_at(i); i++) {
        text_printf(out, FISH " -n __fish_use_subcommand -a %s -d ", subcommand_at(i)->name);
        add_quoted(out, subcommand_at(i)->help);
        text_add(out, "\n");
    }
}

static void write_fish_information(struct text *out) {
    for (size_t i = 0; information_at(i); i++) {
        const struct information *information = information_at(i);
        SCOPED_TEXT values = {0};
        add_values(information->argument, &values, " ");
        text_printf(out, FISH " -n __fish_use_subcommand -l %s", information->name + 2);
        if (values.length) text_printf(out, " -x -a '%s'", text_string(&values));
        if (information->help) {
            text_add(out, " -d ");
            add_quoted(out, information->help);
        }
        text_add(out, "\n");
    }
}

static void write_fish_options(struct text *out) {
    for (size_t i = 0; option_at(i); i++) add_fish_option(out, option_at(i));
}

static const struct marker fish_markers[] = {{"KEYS", write_fish_keys},
                                             {"COMMANDS", write_fish_commands},
                                             {"INFORMATION", write_fish_information},
                                             {"OPTIONS", write_fish_options},
                                             {0}};

/* ---- the options ---- */

static status print_section(const struct schema *schema, const char *section) {
    SCOPED_TEXT out = {0};
    status s = schema_help(schema, section, &out);
    if (!s) fputs(text_string(&out), stdout);
    return s;
}

static status print(const struct schema *schema, void (*write)(const struct schema *, struct text *)) {
    SCOPED_TEXT out = {0};
    write(schema, &out);
    fputs(text_string(&out), stdout);
    return OK;
}

static status print_text(const char *name, const struct marker *markers) {
    SCOPED_TEXT out = {0};
    expand(name, markers, &out);
    fputs(text_string(&out), stdout);
    return OK;
}

static status help_config(const char *section) { return print_section(&config_schema, section); }
static status help_sweep(const char *section) { return print_section(&sweep_schema, section); }
static status help_schema(const char *unused) { return (void)unused, print(&config_schema, schema_write_json); }
static status config_page(const char *unused) { return (void)unused, print(&config_schema, schema_write_markdown); }
static status sweep_page(const char *unused) { return (void)unused, print(&sweep_schema, schema_write_markdown); }
static status usage(const char *unused) { return (void)unused, print_text("help.txt", usage_markers); }
static status command_page(const char *unused) { return (void)unused, print_text("commands.txt", page_markers); }
static status man_page(const char *unused) { return (void)unused, print_text("ddptrain.1", man_markers); }

static status completion(const char *shell) {
    static const struct {
        const char *name, *text;
        const struct marker *markers;
    } shells[] = {{"bash", "completion.bash", bash_markers},
                  {"zsh", "completion.zsh", zsh_markers},
                  {"fish", "completion.fish", fish_markers}};
    for (size_t i = 0; shell && i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shell, shells[i].name) == 0) return print_text(shells[i].text, shells[i].markers);
    return status_usage("--completion needs the name of a shell: bash, zsh or fish");
}

static status version(const char *unused) {
    (void)unused;
    printf("ddptrain %s\n", DDPTRAIN_VERSION);
    return OK;
}

/* --help comes first: it is accepted anywhere on the command line. */
static const struct information informations[] = {
    {"--help", "", NULL, usage},
    {"--help-config", "[SECTION]", "every key of a config", help_config},
    {"--help-sweep", "[SECTION]", "every key of a sweep except its parameters", help_sweep},
    {"--schema", "", "JSON schema of a config, for editors", help_schema},
    {"--completion", "bash|zsh|fish", "completion of commands, options and keys, for a shell to read", completion},
    {"--man", "", "the manual page", man_page},
    {"--version", "", NULL, version},
    {"--reference", "", NULL, config_page},
    {"--sweep-reference", "", NULL, sweep_page},
    {"--command-reference", "", NULL, command_page},
};

static const struct information *information_at(size_t index) {
    return index < sizeof informations / sizeof *informations ? &informations[index] : NULL;
}

bool help_print(int argc, char **argv, status *s) {
    bool is_requested = argc > 1 && strcmp(argv[1], "help") == 0;
    for (int i = 1; i < argc; i++)
        is_requested = is_requested || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    const struct information *found = is_requested ? &informations[0] : NULL;
    for (size_t i = 0; argc > 1 && !found && information_at(i); i++)
        if (strcmp(argv[1], informations[i].name) == 0) found = &informations[i];
    if (found) *s = found->print(!is_requested && argc > 2 ? argv[2] : NULL);
    return found != NULL;
}
