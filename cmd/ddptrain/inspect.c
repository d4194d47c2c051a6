/* inspect: contents of a checkpoint, a data file or a safetensors file, and progress of a run folder. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/archive.h"
#include "base/files/io.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/inspect.h"
#include "checkpoint/safetensors.h"
#include "command.h"
#include "data/dataset/dataset.h"
#include "data/files/files.h"
#include "report/sweep_data.h"
#include "train/folder/run_folder.h"
#include "train/metrics/metrics.h"

/* The newest event of a run's metrics.jsonl other than a step; nothing when there is none. */
static status add_newest_event(const char *folder, struct text *out) {
    SCOPED_LINES lines = {0};
    SCOPED_STRING path = text_path(folder, "metrics.jsonl");
    status s = metrics_read(path, &lines);
    if (lines.other) {
        lines.other[strcspn(lines.other, "\n")] = 0;
        text_add(out, "event   ");
        text_add_value(out, lines.other, 600);
        text_add(out, "\n");
    }
    return s;
}

/* Prints the newest valid checkpoint of a run folder. */
static status inspect_run(const char *folder, struct text *out) {
    SCOPED_CHECKPOINT newest = NULL;
    SCOPED_STRING checkpoints = text_path(folder, "checkpoints"), *path = NULL;
    TRY(checkpoint_open_newest(checkpoints, NULL, &newest, &path));
    text_printf(out, "run     %s\n", folder);
    TRY(add_newest_event(folder, out));
    text_printf(out, "newest  %s\n\n", path ? path : "no checkpoint yet");
    return path ? checkpoint_inspect(path, out) : OK;
}

static status inspect_images(const char *folder, struct text *out) {
    status failure = dataset_inspect(folder, out);
    if (status_code(failure) != STATUS_DATA) return failure;
    status s =
        status_data("%s: neither the folder of a run nor a folder of images: %s", folder, status_message(failure));
    status_free(failure);
    return s;
}

static status inspect_folder(const char *folder, struct text *out) {
    bool is_run, is_sweep;
    TRY(run_folder_is_readable(folder, &is_run));
    if (is_run) return inspect_run(folder, out);
    TRY(sweep_data_is_sweep(folder, &is_sweep));
    if (!is_sweep) return inspect_images(folder, out);
    return status_data(
        "%s: the folder of a sweep; ddptrain runs, report and watch read it, and inspect one of its runs", folder);
}

static status inspect(const char *path, struct text *out) {
    const char *dot = strrchr(path, '.');
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.is_folder) return inspect_folder(path, out);
    bool is_in_archive = !info.exists && archive_in_path(path);
    if (is_in_archive || (info.exists && dataset_is_inspected(path))) return dataset_inspect(path, out);
    if (tensor_index_is_name(path) || (dot && strcmp(dot, ".safetensors") == 0) || foreign_is_torch(path))
        return safetensors_inspect(path, out);
    return checkpoint_inspect(path, out);
}

/* Of a pattern such as part-*.csv the first file, which is typical. */
static status inspect_pattern(const char *path, struct text *out) {
    SCOPED_ARENA arena = arena_create();
    struct string_list files;
    status s = file_pattern_expand(path, arena, &files);
    if (!s && strcmp(files.items[0], path) != 0)
        text_printf(out, "files   %zu of the pattern %s; the first is %s\n", files.count, path, files.items[0]);
    if (!s) s = inspect(files.items[0], out);
    return s;
}

static status run(const struct command_line *line) {
    SCOPED_TEXT out = {0};
    status s = inspect_pattern(line->config, &out);
    if (!s) command_print(stdout, &out);
    return s;
}

const struct subcommand subcommand_inspect = {
    .name = "inspect",
    .arguments = "FILE|RUN",
    .help = "contents of a checkpoint, data file, file of weights, run folder or folder of images",
    .run = run,
    .operand = "file",
    .takes_pattern = true,
};
