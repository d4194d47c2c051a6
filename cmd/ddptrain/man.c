/* man: the manual page in the macros of man(7), from the tables of commands, options and exit codes. */
#include <string.h>

#include "options.h"

/* Adds [string] as text of a page: hyphens are not broken into dashes, a line does not begin with a control character.
 */
static void add(struct text *out, const char *string) {
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
static void add_tag(struct text *out, const char *tag) {
    text_add(out, ".TP\n");
    for (const char *word = tag; *word; word += strspn(word, " ")) {
        size_t length = strcspn(word, " ");
        struct text one = {0};
        text_add_bytes(&one, word, length);
        bool is_name = strpbrk(text_string(&one), "abcdefghijklmnopqrstuvwxyz") != NULL;
        text_printf(out, "%s\\f%c", word == tag ? "" : " ", is_name ? 'B' : 'I');
        add(out, text_string(&one));
        text_add(out, "\\fR");
        text_free(&one);
        word += length;
    }
    text_add(out, "\n");
}

static void add_subcommand(struct text *out, const char *name, const char *arguments, const char *help) {
    struct text tag = {0};
    text_printf(&tag, "ddptrain%s%s%s%s", name ? " " : "", name ? name : "", *arguments ? " " : "", arguments);
    add_tag(out, text_string(&tag));
    add(out, help);
    text_add(out, "\n");
    text_free(&tag);
}

static size_t add_options(struct text *out, size_t first) {
    struct text tag = {0};
    const struct option *last;
    size_t end = first;
    if (!option_at(first)->value) return first + 1;
    do {
        last = option_at(end);
        text_printf(&tag, "%s%s%s%s", end == first ? "" : " ", last->name, *last->value ? " " : "", last->value);
        end++;
    } while (!last->help);
    add_tag(out, text_string(&tag));
    add(out, last->help);
    if (last->subcommands) {
        text_add(out, "\nAccepted by ");
        option_add_subcommands(last, out);
        text_add(out, ".");
    }
    text_add(out, "\n");
    text_free(&tag);
    return end;
}

static const char description[] =
    ".SH DESCRIPTION\n"
    ".B ddptrain\n"
    "trains a neural network that a YAML file describes: its layers, dataset, sampler, optimizer and checkpoints.\n"
    "It starts one process per GPU or per CPU slot, averages the gradients of all processes as PyTorch\\(aqs\n"
    "DistributedDataParallel does, and writes checkpoints, from which the same command continues an unfinished run.\n"
    ".PP\n"
    ".I KEY=VALUE\n"
    "overrides a key of the config by its dotted path:\n"
    ".B optimizer.lr=0.01 train.epochs=5\n"
    "(\n.I KEY=null\nremoves one that cannot be null: its default holds).\n"
    ".PP\n"
    "Under\n"
    ".BR srun (1),\n"
    ".BR mpirun (1)\n"
    "and torchrun it is one rank of the job that they start.\n";

static const char files[] =
    ".SH FILES\n"
    ".TP\n"
    ".I runs/NAME/\n"
    "The folder of a run: config.yaml (with every default), metrics.jsonl (one JSON object per\n"
    "line), log.txt, checkpoints/*.h5 (HDF5 with the names of a PyTorch state_dict).\n";

static const char end[] = ".SH EXAMPLES\n"
                          ".EX\n"
                          "ddptrain /usr/share/doc/ddptrain/examples/wine_mlp.yaml\n"
                          "ddptrain config.yaml \\-\\-nproc 4 optimizer.lr=0.01 \\-\\-run\\-dir runs/fast\n"
                          "ddptrain sweep sweep.yaml\n"
                          "ddptrain \\-\\-help\\-config optimizer\n"
                          ".EE\n";

void man_write(struct text *out) {
    text_add(out, ".TH DDPTRAIN 1 \"\" \"ddptrain " DDPTRAIN_VERSION "\" \"User Commands\"\n"
                  ".SH NAME\nddptrain \\- data\\-parallel training of neural networks from a YAML file\n"
                  ".SH SYNOPSIS\n.B ddptrain\n.I CONFIG\n.RI [ KEY=VALUE \" ...] [\" options ]\n.br\n"
                  ".B ddptrain\n.I COMMAND\n.RI [ arguments \" ...] [\" options ]\n");
    text_add(out, description);
    text_add(out, ".SH COMMANDS\n");
    commands_write(out, add_subcommand);
    text_add(out, ".SH OPTIONS\n");
    for (size_t i = 0; option_at(i);) i = add_options(out, i);
    text_add(out, ".SH EXIT STATUS\n");
#define X(name, code, meaning) text_printf(out, ".TP\n.B %d\n%s\n", code, meaning);
    STATUS_CODES(X)
#undef X
    text_add(out, files);
    text_add(out, ".SH ENVIRONMENT\n");
    for (size_t i = 0; variable_at(i); i++) {
        text_printf(out, ".TP\n.B %s\n", variable_at(i)->names);
        add(out, variable_at(i)->help);
        text_add(out, "\n");
    }
    text_add(out, end);
}
