/* compare: two configs, trained with the same seeds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "command.h"
#include "sweep/compare.h"

/* The name of the file without folder and ending. */
static void add_stem(const char *path, struct text *out) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
    text_add_bytes(out, name, dot && dot > name ? (size_t)(dot - name) : strlen(name));
}

static char *folder_of(const struct command_line *line) {
    struct text path = {0};
    if (line->run_dir) {
        text_add(&path, line->run_dir);
        return path.data;
    }
    text_add(&path, "sweeps/");
    add_stem(line->operands[0], &path);
    text_add(&path, "-or-");
    add_stem(line->operands[1], &path);
    if (line->metric) text_printf(&path, "-%s", line->metric);
    return path.data;
}

static status run(const struct command_line *line) {
    struct sweep_file *file;
    SCOPED_TEXT out = {0};
    if (line->operand_count < 2)
        return status_new(STATUS_USAGE, "compare needs two configs: ddptrain compare A.yaml B.yaml --seeds 30");
    if (line->seeds < 2)
        return status_new(STATUS_USAGE, "--seeds: expected at least 2 pairs of runs, got %d; 30 show most differences",
                          line->seeds);
    TRY(sweep_load_comparison(line->operands[0], line->operands[1], line->overrides, line->override_count, line->seeds,
                              1, line->metric ? line->metric : "val_loss", &file));
    SCOPED_STRING folder = folder_of(line);
    struct command_sweep prepared;
    status s = command_sweep_open(line, file, folder, &prepared);
    if (!s && prepared.env.rank > 0)
        s = sweep_run_worker(file, &prepared.options, sweep_file_base(file)->dist.timeout);
    else if (!s)
        s = compare_run(file, &prepared.options, prepared.log, &out);
    command_sweep_close(&prepared);
    command_print(stdout, &out);
    sweep_free(file);
    return s;
}

const struct subcommand subcommand_compare = {
    .name = "compare",
    .arguments = "A B [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "train two configs with the same seeds and test whether one is better",
    .run = run,
    .options = OPTION_FRESH | OPTION_SEEDS | OPTION_METRIC,
    .operand = "config",
    .max_operands = 2,
    .saves = true,
};
