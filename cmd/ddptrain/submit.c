/* submit: a job script for a queue, which puts itself back into the queue until the run is complete. What differs
 * between queues is in their templates, texts/submit.<queue>. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files/io.h"
#include "command.h"
#include "train/weights/weights.h"

#define MAX_HOURS 10000
#define MIN_SECONDS 60
#define FIRST_LINES "#!/bin/bash\n# Written by ddptrain submit." /* of every template */

static const struct queue {
    const char *name, *template, *program; /* program: that submits */
    bool reads_input;                      /* it reads the script from its standard input */
    const char *variable;                  /* set on hosts of the queue; NULL: the program tells it */
} queues[] = {
    {"sge", "submit.sge", "qsub", false, "SGE_ROOT"}, {"slurm", "submit.slurm", "sbatch", false, NULL},
    {"lsf", "submit.lsf", "bsub", true, NULL},        {"flux", "submit.flux", "flux", false, NULL},
    {"pbs", "submit.pbs", "qsub", false, NULL},
};
#define N_QUEUES (sizeof queues / sizeof *queues)

struct job {
    const struct queue *queue;
    int nproc;
    long seconds;
    const char *name, *script; /* the name of the job, the absolute path of the script */
    bool is_sweep;
};

/* ---- what the command line says ---- */

static bool is_in_path(const char *program) {
    const char *path = getenv("PATH");
    bool is_found = false;
    while (path && *path && !is_found) {
        size_t length = strcspn(path, ":");
        SCOPED_STRING file = text_format("%.*s/%s", (int)length, path, program);
        is_found = access(file, X_OK) == 0;
        path += length + (path[length] == ':');
    }
    return is_found;
}

/* --queue, else the first whose program is there. */
static status find_queue(const char *name, const struct queue **out) {
    for (size_t i = 0; i < N_QUEUES; i++) {
        *out = &queues[i];
        if (name ? strcmp(queues[i].name, name) == 0
                 : is_in_path(queues[i].program) && (!queues[i].variable || getenv(queues[i].variable)))
            return OK;
    }
    if (name) return status_usage("--queue: expected slurm, pbs, lsf, flux or sge, got '%s'", name);
    return status_usage("no queue is found here (sbatch, qsub, bsub, flux); give --queue slurm|pbs|lsf|flux|sge");
}

/* "1:30:00" */
static status read_time(const char *text, long *seconds) {
    int hours, minutes, rest, used = 0;
    if (!text) return status_usage("--time H:MM:SS is missing: the time limit of the job, such as 1:00:00");
    bool is_time = sscanf(text, "%5d:%2d:%2d%n", &hours, &minutes, &rest, &used) == 3 && text[used] == 0;
    if (!is_time || hours < 0 || hours > MAX_HOURS || minutes < 0 || minutes > 59 || rest < 0 || rest > 59)
        return status_usage("--time: expected hours, minutes and seconds, such as 1:00:00, got '%s'", text);
    *seconds = hours * 3600L + minutes * 60L + rest;
    if (*seconds >= MIN_SECONDS) return OK;
    return status_usage("--time %s: a job needs a minute or more", text);
}

static status read_nproc(const char *text, int *nproc) {
    char *end;
    long value = text ? strtol(text, &end, 10) : 1;
    if (text && (*end || value < 1 || value > 4096))
        return status_usage("--nproc: submit needs the processes of a node, 1 to 4096, got '%s'", text);
    *nproc = (int)value;
    return OK;
}

/* Options of a launcher, which a job does not have. */
static status check_launcher(const struct command_line *line) {
    if (!line->is_standalone && !line->node_rank && !line->master_addr && !line->master_port && !line->max_restarts)
        return OK;
    return status_usage("submit does not accept --standalone, --node-rank, --master-addr, --master-port "
                        "and --max-restarts: the queue starts the processes; leave them out");
}

/* The name of a run or a sweep in characters that every queue takes; the config must be one that can run. */
static status read_config(const struct command_line *line, struct job *job, struct arena *arena) {
    struct config_file *config = NULL;
    struct sweep_file *sweep = NULL;
    job->is_sweep = config_is_sweep(line->config);
    const char *slash = strrchr(line->config, '/');
    char *name = arena_copy(arena, slash ? slash + 1 : line->config);
    if (job->is_sweep)
        TRY(sweep_load(line->config, line->overrides, line->override_count, &sweep));
    else
        TRY(config_load(line->config, line->overrides, line->override_count, &config));
    sweep_free(sweep);
    if (config) name = arena_copy(arena, config_of(config)->name);
    config_free(config);
    name[strcspn(name, ".")] = 0;
    for (char *c = name; *c; c++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *c)) *c = '-';
    bool begins_well = *name && !strchr("-0123456789", *name); /* Grid Engine and PBS take no other beginning */
    job->name = begins_well ? name : arena_printf(arena, "run-%s", name);
    return OK;
}

/* ---- the script ---- */

/* A word of a shell. */
static void add_word(struct text *out, const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        text_add(out, word);
        return;
    }
    text_add(out, "'");
    for (; *word; word++) {
        if (*word == '\'')
            text_add(out, "'\\''");
        else
            text_add_bytes(out, word, 1);
    }
    text_add(out, "'");
}

/* The program with the words of the run: "/usr/bin/ddptrain --no-progress config.yaml train.epochs=5". */
static void add_command(const struct command_line *line, const struct job *job, struct text *out) {
    SCOPED_STRING program = realpath("/proc/self/exe", NULL);
    add_word(out, program ? program : line->program);
    text_add(out, job->is_sweep ? " sweep --no-progress " : " --no-progress ");
    add_word(out, line->config);
    for (size_t i = 0; i < line->override_count; i++) {
        text_add(out, " ");
        add_word(out, line->overrides[i]);
    }
    if (line->run_dir) text_add(out, " --run-dir ");
    if (line->run_dir) add_word(out, line->run_dir);
    if (line->grace != DEFAULT_GRACE) text_printf(out, " --grace %g", line->grace);
    if (line->is_quiet) text_add(out, " --quiet");
}

static void add_value(const char *name, size_t length, const struct command_line *line, const struct job *job,
                      struct text *out) {
    const struct {
        const char *name;
        long value;
    } numbers[] = {{"NODES", line->nnodes},
                   {"NPROC", job->nproc},
                   {"RANKS", (long)line->nnodes * job->nproc},
                   {"SECONDS", job->seconds},
                   {"MARGIN", job->seconds < 600 ? job->seconds / 10 : 60}, /* a minute would be all of a short job */
                   {"KILL", !job->is_sweep}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].name) == length && strncmp(numbers[i].name, name, length) == 0)
            text_add_int(out, numbers[i].value);
    long minutes = (job->seconds + 59) / 60;
    if (strncmp(name, "NAME", length) == 0) text_add(out, job->name);
    if (strncmp(name, "SCRIPT", length) == 0) add_word(out, job->script);
    if (strncmp(name, "COMMAND", length) == 0) add_command(line, job, out);
    if (strncmp(name, "HOURS", length) == 0) text_printf(out, "%ld:%02ld", minutes / 60, minutes % 60);
    if (strncmp(name, "TIME", length) == 0)
        text_printf(out, "%ld:%02ld:%02ld", job->seconds / 3600, job->seconds / 60 % 60, job->seconds % 60);
}

/* The template with a value for each "@NAME@"; another '@' stays. */
static void add_script(const struct command_line *line, const struct job *job, struct text *out) {
    for (const char *at = command_text(job->queue->template); *at;) {
        size_t length = *at == '@' ? strspn(at + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") : 0;
        if (length > 0 && at[length + 1] == '@') {
            add_value(at + 1, length, line, job, out);
            at += length + 2;
        } else {
            text_add_bytes(out, at++, 1);
        }
    }
}

/* Replaces this process by the program of the queue. */
static status submit(const struct job *job) {
    const char *program = job->queue->program;
    int fd = -1;
    if (job->queue->reads_input) TRY(io_open(job->script, &fd));
    if (fd >= 0 && dup2(fd, STDIN_FILENO) < 0) return status_errno(STATUS_IO, errno, "cannot read '%s'", job->script);
    fflush(NULL);
    if (job->queue->reads_input)
        execlp(program, program, (char *)NULL);
    else if (strcmp(program, "flux") == 0)
        execlp(program, program, "batch", job->script, (char *)NULL);
    else
        execlp(program, program, job->script, (char *)NULL);
    return status_errno(STATUS_IO, errno, "cannot start %s", program);
}

static const char *absolute(const char *path, struct arena *arena) {
    if (*path == '/') return arena_copy(arena, path);
    SCOPED_STRING folder = getcwd(NULL, 0);
    return folder ? arena_printf(arena, "%s/%s", folder, path) : arena_copy(arena, path);
}

/* STATUS_USAGE when [path] is anything but a script of this command: a config, a checkpoint, a device. */
static status check_out(const char *path) {
    char first[sizeof FIRST_LINES] = "";
    struct io_info info;
    size_t got = 0;
    int fd;
    TRY(weights_check_out(path));
    TRY(io_stat(path, &info));
    if (!info.exists || info.size == 0) return OK;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, first, sizeof FIRST_LINES - 1, &got);
    s = status_first(s, io_close(fd, path));
    if (s || strcmp(first, FIRST_LINES) == 0) return s;
    return status_usage(
        "--out %s: the file exists and is no script of submit; it was not overwritten. Give another name", path);
}

static status write_script(const struct command_line *line, struct job *job, struct arena *arena) {
    SCOPED_TEXT script = {0};
    TRY(find_queue(line->queue, &job->queue));
    TRY(read_time(line->time, &job->seconds));
    TRY(read_nproc(line->nproc, &job->nproc));
    TRY(check_launcher(line));
    TRY(read_config(line, job, arena));
    const char *path = line->out ? line->out : arena_printf(arena, "%s.%s.sh", job->name, job->queue->name);
    TRY(check_out(path));
    job->script = absolute(path, arena);
    add_script(line, job, &script);
    status s = io_replace_text(path, text_string(&script));
    if (!s && chmod(path, 0777 & ~umask(0)) != 0)
        s = status_errno(STATUS_IO, errno, "cannot make '%s' a program", path);
    return s;
}

static status run(const struct command_line *line) {
    SCOPED_ARENA arena = arena_create();
    struct job job = {0};
    SCOPED_TEXT said = {0};
    status s = write_script(line, &job, arena);
    if (!s)
        text_printf(&said, "%s: %d node%s, %d process%s on each, %s\n", job.script, line->nnodes,
                    text_plural((uint64_t)line->nnodes, "s"), job.nproc, text_plural((uint64_t)job.nproc, "es"),
                    line->time);
    if (!s && !line->is_now) {
        text_printf(&said, "submit it: %s%s", job.queue->program,
                    job.queue->reads_input                    ? " < "
                    : strcmp(job.queue->program, "flux") == 0 ? " batch "
                                                              : " ");
        add_word(&said, job.script);
        text_add(&said, "\n");
    }
    if (!s) command_print(stdout, &said);
    if (!s && line->is_now) s = submit(&job);
    return s;
}

const struct subcommand subcommand_submit = {
    .name = "submit",
    .arguments = "CONFIG|SWEEP --time T [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "a job script for Slurm, PBS, LSF, Flux or Grid Engine that requeues itself",
    .run = run,
    .options = OPTION_SUBMIT | OPTION_OUT | OPTION_RUN_DIR,
    .operand = "config",
};
