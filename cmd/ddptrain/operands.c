/* operands: a run folder in place of a config, and a data file after it: `predict runs/a new.csv`. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/files/io.h"
#include "command.h"
#include "train/config/config.h"

#define STDIN_PATH "/dev/stdin"
#define CHUNK ((size_t)1 << 16)

static status is_file(const char *folder, const char *name, bool *out) {
    struct io_info info;
    SCOPED_STRING path = text_path(folder, name);
    status s = io_stat(path, &info);
    *out = !s && info.is_file;
    return s;
}

/* Sets [run] to the path of the first run in [folder], or in the folders in it down to [depth] levels below, as those
 * of a trial with folds; "": there is none. */
static status find_first_run(const char *folder, int depth, struct text *run) {
    struct io_info info;
    SCOPED_NAMES names = {0};
    text_clear(run);
    TRY(io_stat(folder, &info));
    if (!info.is_folder) return OK;
    TRY(io_list(folder, &names));
    status s = OK;
    for (size_t i = 0; i < names.count && !s && !run->length; i++) {
        bool is_run;
        SCOPED_STRING inner = text_path(folder, names.items[i]);
        s = is_file(inner, "config.yaml", &is_run);
        if (!s && is_run) text_add(run, inner);
        if (!s && !is_run && depth > 0) s = find_first_run(inner, depth - 1, run);
    }
    return s;
}

/* A folder without config.yaml: a sweep, a folder of runs, or another one. */
static status reject_folder(const char *folder) {
    SCOPED_TEXT run = {0};
    bool is_sweep;
    TRY(is_file(folder, "sweep.yaml", &is_sweep));
    SCOPED_STRING inside = text_format("%s%s", folder, is_sweep ? "/runs" : "");
    status s = find_first_run(inside, 1, &run);
    if (!s && run.length)
        s = status_usage("%s: this folder is %s; give one of its runs, such as %s", folder,
                         is_sweep ? "a sweep, whose trials.csv has the value of each trial" : "not a run, but has runs",
                         text_string(&run));
    else if (!s)
        s = status_usage("%s: this folder is not a run, because it has no config.yaml", folder);
    return s;
}

status command_find_run(struct command_line *line) {
    struct io_info info;
    if (!line->subcommand->accepts_run || !line->config) return OK;
    TRY(io_stat(line->config, &info));
    if (!info.is_folder) return OK;
    size_t length = strlen(line->config);
    SCOPED_STRING path = text_format("%s%sconfig.yaml", line->config, line->config[length - 1] == '/' ? "" : "/");
    status s = io_stat(path, &info);
    if (!s && !info.is_file) s = reject_folder(line->config);
    if (!s) line->config = line->allocated_config = strdup(path);
    return !s && !line->config ? status_memory("a path") : s;
}

/* Whether the overrides have KEY=..., [key] with its equals sign. */
static bool has_override(const struct command_line *line, const char *key) {
    for (size_t i = 0; i < line->override_count; i++)
        if (strncmp(line->overrides[i], key, strlen(key)) == 0) return true;
    return false;
}

static void add_override(struct command_line *line, const char *key, const char *value) {
    struct text word = {0};
    assert(line->data_override_count < MAX_DATA_OVERRIDES);
    text_printf(&word, "%s%s", key, value);
    line->data_overrides[line->data_override_count++] = line->overrides[line->override_count++] = word.data;
}

static status copy_stdin(int to) {
    SCOPED_STRING bytes = malloc(CHUNK);
    status s = bytes ? OK : status_memory("the rows of the standard input");
    for (size_t got = 1; !s && got > 0;) {
        s = io_read(STDIN_FILENO, STDIN_PATH, bytes, CHUNK, &got);
        if (!s) s = io_write(to, STDIN_PATH, bytes, got);
    }
    return s;
}

/* Makes the standard input a regular file in memory, which this process and the ranks that it starts open by its name
 * as often as they need. */
static status store_stdin(const struct command_line *line) {
    struct io_info info;
    struct dist_env env;
    TRY(dist_env_detect(&env));
    if (env.launcher == LAUNCHER_OWN) return OK; /* the launcher has done it */
    if (env.world_size > 1 || line->nnodes > 1)
        return status_usage("-: with several nodes or another launcher not every process has the standard "
                            "input; write the rows to a file");
    TRY(io_stat_fd(STDIN_FILENO, STDIN_PATH, &info));
    if (info.is_file && lseek(STDIN_FILENO, 0, SEEK_CUR) == 0) return OK; /* names open it at its start */
    int file = memfd_create("ddptrain-rows", MFD_CLOEXEC);
    if (file < 0) return status_memory("the rows of the standard input");
    status s = copy_stdin(file);
    if (!s && dup2(file, STDIN_FILENO) < 0) s = status_memory("the rows of the standard input");
    return status_first(s, io_close(file, STDIN_PATH));
}

/* Whether the overrides have a section of [key]: "dataset.image=..." of "dataset.image.labels=". */
static bool has_section_override(const struct command_line *line, const char *key) {
    bool has = false;
    for (const char *dot = strchr(key, '.'); dot && !has; dot = strchr(dot + 1, '.')) {
        SCOPED_STRING section = text_format("%.*s=", (int)(dot - key), key);
        has = has_override(line, section);
    }
    return has;
}

static void add_default_override(struct command_line *line, const char *key, const char *value) {
    if (!has_override(line, key) && !has_section_override(line, key)) add_override(line, key, value);
}

/* The query and the table of the training's database are none of another file's. */
static void use_no_query(struct command_line *line) {
    add_default_override(line, "dataset.query=", "null");
    add_default_override(line, "dataset.table=", "null");
}

static bool has_validation_file(const struct command_line *line) {
    SCOPED_CONFIG config = NULL;
    status s = config_load(line->config, line->overrides, line->override_count, &config);
    bool has = !s && config_of(config)->dataset.validation.path;
    status_free(s); /* a config that is wrong is reported later */
    return has;
}

/* The training's validation file has other rows. [data], as JSON, stands for it where all rows are used, and none of
 * it, because a config may need validation rows (checkpoint.best: val_loss). */
static void use_validation(struct command_line *line, const char *data) {
    bool is_all = !line->part || strcmp(line->part, "all") == 0;
    if (has_override(line, "dataset.validation")) return;
    if (!is_all)
        add_override(line, "dataset.validation=", "null");
    else if (has_validation_file(line))
        add_override(line, "dataset.validation=", data);
}

status command_use_data(struct command_line *line) {
    if (!line->subcommand->accepts_data || line->operand_count < 2) return OK;
    const char *data = line->operands[1];
    bool is_stdin = strcmp(data, "-") == 0;
    if (has_override(line, "dataset.path="))
        return status_usage("the data file is given twice: '%s' and dataset.path", data);
    if (is_stdin) TRY(store_stdin(line));
    SCOPED_TEXT path = {0};
    text_add_json(&path, is_stdin ? STDIN_PATH : data);
    use_validation(line, text_string(&path));
    add_override(line, "dataset.path=", text_string(&path));
    /* those of the training are of its files */
    add_default_override(line, "dataset.text.truncate=", "1");
    add_default_override(line, "dataset.image.labels=", "null");
    add_default_override(line, "dataset.image.masks=", "null");
    if (dataset_has_target_file(data)) add_default_override(line, "dataset.targets=", "[]");
    if (!has_override(line, "dataset.format=")) {
        if (is_stdin)
            add_override(line, "dataset.format=", "csv");
        else if (dataset_knows_extension(data))
            add_override(line, "dataset.format=", "auto");
        if (is_stdin || (dataset_knows_extension(data) && !dataset_has_queries(data))) use_no_query(line);
    }
    if (!line->part) line->part = "all";
    return OK;
}

void command_free_operands(struct command_line *line) {
    for (size_t i = 0; i < line->data_override_count; i++) free(line->data_overrides[i]);
    free(line->allocated_config);
}
