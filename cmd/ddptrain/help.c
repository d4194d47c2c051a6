/* help: the options that print something about the program: its usage, and the same schema rows as text, as JSON schema
 * and as the reference pages. */
#include <stdio.h>
#include <string.h>

#include "options.h"
#include "train/config/config.h"

static status print_section(const struct schema *schema, const char *section) {
    struct text out = {0};
    status s = schema_help(schema, section, &out);
    if (!s) fputs(text_string(&out), stdout);
    text_free(&out);
    return s;
}

static status print(const struct schema *schema, void (*write)(const struct schema *, struct text *)) {
    struct text out = {0};
    write(schema, &out);
    fputs(text_string(&out), stdout);
    text_free(&out);
    return OK;
}

static status print_text(void (*write)(struct text *)) {
    struct text out = {0};
    write(&out);
    fputs(text_string(&out), stdout);
    text_free(&out);
    return OK;
}

static status help_config(const char *section) { return print_section(&config_schema, section); }
static status help_sweep(const char *section) { return print_section(&sweep_schema, section); }
static status help_schema(const char *unused) { return (void)unused, print(&config_schema, schema_write_json); }
static status config_page(const char *unused) { return (void)unused, print(&config_schema, schema_write_markdown); }
static status sweep_page(const char *unused) { return (void)unused, print(&sweep_schema, schema_write_markdown); }
static status usage(const char *unused) { return (void)unused, print_text(usage_write); }
static status command_page(const char *unused) { return (void)unused, print_text(command_page_write); }
static status man_page(const char *unused) { return (void)unused, print_text(man_write); }

static status completion(const char *shell) {
    static const struct {
        const char *name;
        void (*write)(struct text *);
    } shells[] = {{"bash", completion_write_bash}, {"zsh", completion_write_zsh}, {"fish", completion_write_fish}};
    for (size_t i = 0; shell && i < sizeof shells / sizeof *shells; i++)
        if (strcmp(shell, shells[i].name) == 0) return print_text(shells[i].write);
    return status_new(STATUS_USAGE, "--completion needs the name of a shell: bash, zsh or fish");
}

static status version(const char *unused) {
    (void)unused;
    printf("ddptrain %s\n", DDPTRAIN_VERSION);
    return OK;
}

/* --help comes first: it is accepted anywhere on the command line. */
static const struct information table[] = {
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

const struct information *information_at(size_t index) {
    return index < sizeof table / sizeof *table ? &table[index] : NULL;
}

void commands_write(struct text *out, command_writer *add) {
    for (size_t i = 0; subcommand_at(i); i++)
        add(out, i == 0 ? NULL : subcommand_at(i)->name, subcommand_at(i)->arguments, subcommand_at(i)->help);
    for (size_t i = 0; information_at(i); i++)
        if (information_at(i)->help)
            add(out, information_at(i)->name, information_at(i)->argument, information_at(i)->help);
}

bool help_print(int argc, char **argv, status *s) {
    bool is_requested = argc > 1 && strcmp(argv[1], "help") == 0;
    for (int i = 1; i < argc; i++)
        is_requested = is_requested || strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0;
    const struct information *found = is_requested ? &table[0] : NULL;
    for (size_t i = 0; argc > 1 && !found && information_at(i); i++)
        if (strcmp(argv[1], table[i].name) == 0) found = &table[i];
    if (found) *s = found->print(!is_requested && argc > 2 ? argv[2] : NULL);
    return found != NULL;
}
