/* comm: checks every collective against a serial reference, then prints a table of times by size, or shows what one
 * call does (comm_show.c). It needs no config and is started like a training. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"
#include "command.h"
#include "device/gpus.h"
#include "dist/comm/comm_backend.h"
#include "dist/comm/comm_check.h"
#include "dist/comm/comm_gpu.h"

#define TIMEOUT 60.0 /* seconds, of the start and of each call */
#define MAX_SIZES 32
#define MAX_SIZE ((size_t)1 << 30)
#define DEFAULT_SIZES "1K,4K,16K,64K,256K,1M,4M,16M,64M"
#define PROGRESS_SECONDS 0.1 /* between progress lines on a terminal */
#define LINE_SECONDS 10.0    /* between lines in a log: with many processes it takes minutes */

struct sizes {
    size_t bytes[MAX_SIZES];
    int count;
};

/* "64K": a number and K, M, G or nothing. */
static bool parse_size(const char *word, size_t *bytes) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(word, &end, 10);
    int shift = *end == 'K' ? 10 : *end == 'M' ? 20 : *end == 'G' ? 30 : 0;
    if (shift) end++;
    *bytes = (size_t)number << shift;
    return errno == 0 && end != word && word[0] != '-' && *end == 0 && number <= MAX_SIZE >> shift && *bytes >= 4;
}

static status parse_sizes(const char *list, struct sizes *sizes) {
    char *copy = strdup(list), *rest = NULL;
    status failure = copy ? OK : status_memory("the list of sizes");
    sizes->count = 0;
    for (char *word = strtok_r(copy, ",", &rest); word && !failure; word = strtok_r(NULL, ",", &rest)) {
        if (sizes->count == MAX_SIZES)
            failure = status_new(STATUS_USAGE, "--sizes: more than %d sizes", MAX_SIZES);
        else if (!parse_size(word, &sizes->bytes[sizes->count++]))
            failure = status_new(STATUS_USAGE, "--sizes: expected sizes from 4 to 1G as in 1K,64K,1M, got '%s'", word);
    }
    if (!failure && sizes->count == 0) failure = status_new(STATUS_USAGE, "--sizes: no size is given");
    free(copy);
    return failure;
}

static const char *sizes_of(const struct command_line *line) { return line->sizes ? line->sizes : DEFAULT_SIZES; }

/* ---- output ---- */

struct progress {
    struct log *log;
    double reported; /* clock_seconds() */
};

static void report_progress(void *context, const char *part, size_t done, size_t total, size_t checks) {
    struct progress *progress = context;
    double now = clock_seconds(), pause = log_has_progress(progress->log) ? PROGRESS_SECONDS : LINE_SECONDS;
    char text[100];
    if (now < progress->reported + pause) return;
    progress->reported = now;
    snprintf(text, sizeof text, "checking %zu/%zu: %s, %zu calls so far", done + 1, total, part, checks);
    if (log_has_progress(progress->log))
        log_progress(progress->log, text);
    else
        log_line(progress->log, "%s", text);
}

static void print_bytes(size_t bytes) {
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        printf("%8zu MiB", bytes >> 20);
    else if (bytes >= 1 << 10 && bytes % (1 << 10) == 0)
        printf("%8zu KiB", bytes >> 10);
    else
        printf("%8zu B  ", bytes);
}

static void print_row(enum comm_measure measure, size_t bytes, double seconds, int world) {
    double rate = (double)bytes / seconds * 1e-9;
    print_bytes(bytes);
    printf(" %14.2f %14.3f %14.3f\n", seconds * 1e6, rate, rate * comm_measure_factor(measure, world));
    fflush(stdout);
}

/* ---- the work of a rank ---- */

static status check(struct comm *comm, struct log *log) {
    double start = clock_seconds();
    struct progress progress = {.log = log, .reported = start};
    int world = comm_world_size(comm);
    size_t checks;
    if (comm_rank(comm) == 0)
        printf("%d process%s, %s\n", world, text_plural((uint64_t)world, "es"), comm_describe(comm));
    fflush(stdout);
    TRY(comm_check(comm, log ? report_progress : NULL, &progress, &checks));
    log_progress(log, NULL);
    if (comm_rank(comm) != 0) return OK;
    printf("%zu calls of every collective, type and operation: all correct, %.2f s\n", checks, clock_seconds() - start);
    fflush(stdout);
    return OK;
}

static status measure(struct comm *comm, const struct sizes *sizes, struct log *log) {
    struct comm_measurer *measurer;
    int rank = comm_rank(comm), world = comm_world_size(comm);
    size_t max = 0;
    for (int i = 0; i < sizes->count; i++)
        if (sizes->bytes[i] > max) max = sizes->bytes[i];
    TRY(comm_measurer_create(comm, max, &measurer));
    status failure = OK;
    for (int m = 0; m < COMM_MEASURE_COUNT && !failure; m++) {
        if (!comm_measure_exists((enum comm_measure)m, comm)) continue;
        if (rank == 0)
            printf("\n%s, float32%s\n%12s %14s %14s %14s\n", comm_measure_name((enum comm_measure)m),
                   m <= MEASURE_REDUCE_SCATTER ? ", sum" : "", "size", "time us", "algbw GB/s", "busbw GB/s");
        for (int i = 0; i < sizes->count && !failure; i++) {
            char text[100];
            double seconds;
            snprintf(text, sizeof text, "measuring %d/%d: %s, %zu bytes", m + 1, COMM_MEASURE_COUNT,
                     comm_measure_name((enum comm_measure)m), sizes->bytes[i]);
            log_progress(log, text);
            failure = comm_measurer_run(measurer, (enum comm_measure)m, sizes->bytes[i], &seconds);
            log_progress(log, NULL);
            if (!failure && rank == 0) print_row((enum comm_measure)m, sizes->bytes[i], seconds, world);
        }
    }
    comm_measurer_destroy(measurer);
    return failure;
}

/* *out: the group, or with a backend that needs GPUs its group of GPUs. */
static status connect(const struct command_line *line, const struct dist_env *env, struct store *store,
                      struct comm **comm, struct comm **out) {
    int backend = command_backend(line);
    struct gpus_process process = dist_env_gpus(env);
    char identity[128];
    int gpu;
    TRY(comm_create(comm_backend_names[backend], env, store, TIMEOUT, comm));
    *out = *comm;
    if (!command_uses_gpus(line)) return OK;
    status s = gpus_choose(&process, &gpu);
    if (!s) s = gpus_identity(gpu, identity);
    if (s) {
        status explained =
            status_new(status_code(s), "--backend %s needs %s", comm_backend_names[backend], status_message(s));
        status_free(s);
        return explained;
    }
    if (env->world_size == 1)
        return status_new(STATUS_USAGE, "--backend %s needs two processes or more, each with its own GPU",
                          comm_backend_names[backend]);
    TRY(comm_open_gpu(*comm, backend, gpu, identity, false));
    *out = comm_gpu(*comm);
    return OK;
}

static status run_rank(const struct command_line *line, const struct config *config, const struct dist_env *env,
                       struct log *log) {
    (void)config;
    struct store *store = NULL;
    struct comm *comm = NULL, *used = NULL;
    struct sizes sizes;
    TRY(parse_sizes(sizes_of(line), &sizes));
    TRY(comm_show_check(line, env->world_size));
    if (env->rank != 0) log = NULL;
    struct store_options options = {.timeout = TIMEOUT, .log = log, .overdue = command_end_overdue};
    if (env->world_size > 1) TRY(store_open_with(env, &options, &store));
    status failure = connect(line, env, store, &comm, &used);
    if (!failure) failure = line->show ? comm_show(line, comm) : check(used, log);
    if (!failure && !line->show && env->world_size > 1) failure = measure(used, &sizes, log);
    if (!failure) failure = comm_barrier(comm); /* no rank closes its connections before the others are done */
    if (failure && store) store_report(store, failure);
    comm_destroy(comm);
    store_close(store);
    return failure;
}

/* Before any process is started, where this launcher starts all of them. */
static status check_show(const struct command_line *line) {
    struct dist_env env;
    int nproc;
    TRY(dist_env_detect(&env));
    TRY(command_nproc(line, "cpu", &nproc));
    bool is_alone = env.launcher == LAUNCHER_NONE && line->nnodes <= 1;
    return is_alone ? comm_show_check(line, nproc) : OK;
}

static status run(const struct command_line *line) {
    struct sizes sizes;
    const char *backend = line->backend;
    status unknown = backend ? comm_backend_find(backend, &(int){0}) : OK;
    if (unknown) return status_prefix(unknown, "--backend");
    if (command_uses_gpus(line)) TRY(comm_gpu_check(command_backend(line)));
    TRY(parse_sizes(sizes_of(line), &sizes)); /* before any process is started */
    TRY(check_show(line));
    return command_on_ranks_without_config(line, run_rank);
}

const struct subcommand subcommand_comm = {
    .name = "comm",
    .arguments = "--nproc N",
    .help = "check every collective; print a table of times by size",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_BACKEND | OPTION_SIZES | OPTION_SHOW,
};
