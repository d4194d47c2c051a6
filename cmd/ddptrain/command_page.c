/* The reference page of the command line (Markdown), from the tables of commands, options, exit codes and variables. */
#include <string.h>

#include "options.h"

static const struct variable variables[] = {
    {"RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT",
     "Read as PyTorch reads them, and so are those that Slurm, MPI, PALS and Flux set."},
    {"OMP_NUM_THREADS",
     "Threads of each process. Default: 1 for each of several processes of --nproc; else the processors "
     "that a process may use, divided among the ranks that share them."},
    {"OMP_WAIT_POLICY, GOMP_SPINCOUNT", "How long waiting threads spin. Default: for some 40 us, then they sleep."},
    {"DDPTRAIN_SECRET",
     "On several machines: the job's secret, the same text of at least 16 characters on all (`openssl rand -hex 16`). "
     "Without it the secret is derived from the job's number or the port, which others can guess."},
    {"DDPTRAIN_JOB_ID",
     "On several machines without a scheduler: the job's number, the same text on all. Default: from "
     "MASTER_PORT."},
    {"CUDA_VISIBLE_DEVICES", "The GPUs that the program may use, as for all programs with CUDA."},
    {"GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME", "The network interface of Gloo, of NCCL; default: the one that leads to "
                                               "rank 0."},
    {"TMPDIR", "The folder for large temporary files; default: /var/tmp."},
    {"DDPTRAIN_MODULE_DIR", "The folder of the modules (Gloo, oneDNN, CUDA, NCCL), if they are not where they were "
                            "installed."},
};

const struct variable *variable_at(size_t index) {
    return index < sizeof variables / sizeof *variables ? &variables[index] : NULL;
}

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

static void add_subcommand(struct text *out, const char *name, const char *arguments, const char *help) {
    text_printf(out, "| `ddptrain%s%s%s", name ? " " : "", name ? name : "", *arguments ? " " : "");
    for (const char *c = arguments; *c; c++) text_add(out, *c == '|' ? "\\|" : (char[]){*c, 0});
    text_add(out, "` | ");
    add_cell(out, help);
    text_add(out, " |\n");
}

/* Adds the options from [first] to the next one with a help text; returns the index after it. */
static size_t add_options(struct text *out, size_t first) {
    size_t end = first;
    const struct option *last;
    if (!option_at(first)->value) return first + 1;
    do {
        last = option_at(end);
        text_printf(out, "%s`%s%s", end == first ? "| " : ", ", last->name, *last->value ? " " : "");
        for (const char *c = last->value; *c; c++) text_add(out, *c == '|' ? "\\|" : (char[]){*c, 0});
        text_add(out, "`");
        end++;
    } while (!last->help);
    text_add(out, " | ");
    if (last->subcommands)
        option_add_subcommands(last, out);
    else
        text_add(out, "all");
    text_add(out, " | ");
    add_cell(out, last->help);
    text_add(out, " |\n");
    return end;
}

void command_page_write(struct text *out) {
    text_add(out,
             "# Command reference\n\nThe program generates this page from the tables of `ddptrain --help` and of its "
             "manual page. `CONFIG` is a YAML file\n([config.md](config.md)), `RUN` a run folder. `KEY=VALUE` "
             "overrides a key of the config by its dotted path:\n`optimizer.lr=0.01 train.epochs=5`. `KEY=null` "
             "removes a key that cannot be null: its default holds.\n\n## Commands\n\n"
             "| Command | Meaning |\n|---|---|\n");
    commands_write(out, add_subcommand);
    text_add(out, "\n## Options\n\n| Option | Commands | Meaning |\n|---|---|---|\n");
    for (size_t i = 0; option_at(i);) i = add_options(out, i);
    text_add(out, "\n## Exit codes\n\n| Code | Meaning |\n|---|---|\n");
#define X(name, code, meaning) text_printf(out, "| %d | %s |\n", code, meaning);
    STATUS_CODES(X)
#undef X
    text_add(out, "\n## Environment variables\n\n| Variable | Meaning |\n|---|---|\n");
    for (size_t i = 0; variable_at(i); i++) {
        text_printf(out, "| `%s` | ", variable_at(i)->names);
        add_cell(out, variable_at(i)->help);
        text_add(out, " |\n");
    }
}
