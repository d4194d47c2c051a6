/* doctor: looks for what would stop a job here, or make it slow, before it starts. A check is a process of its own with
 * a deadline, so a file system, a driver or a name service that hangs and a library that crashes are findings, too.
 * Nothing is changed: the one file that is written has no name. Where a run makes the same check, its function is
 * called, so that the message is that of the run. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/folder_lock.h"
#include "base/files/io.h"
#include "base/schema/schema.h"
#include "base/system/machine.h"
#include "base/system/module.h"
#include "command.h"
#include "device/cpu/parallel.h"
#include "device/gpus.h"
#include "dist/comm/comm_backend.h"
#include "dist/launch/launch.h"
#include "dist/process/net.h"
#include "dist/store/store.h"
#include "train/folder/run_folder.h"
#include "train/plan/plan.h"
#include "train/run/run.h"

#define GIB 0x1p30
#define MIB 0x1p20
#define MAX_SUBJECT 20
#define SUBJECT_WIDTH 14

/* ---- findings ---- */

enum kind {
    PROBLEM, /* would stop the job */
    NOTE,    /* would not, but may make it slow or surprise */
    FACT,    /* what is here */
    KINDS
};

struct finding {
    enum kind kind;
    enum status_code code; /* of a problem: that of the run */
    char subject[MAX_SUBJECT];
    size_t length; /* of the sentence */
};

/* What later checks need to know of earlier ones. */
struct answers {
    bool has_config;           /* it can be loaded */
    double checkpoint, memory; /* bytes of a checkpoint, and of a rank on the CPU; 0: not known */
};

/* What is checked. */
struct doctor {
    const struct command_line *line;
    struct config_file *file;
    struct sweep_file *sweep;
    const struct config *config; /* NULL: none is given, or it is wrong */
    struct dist_env env;         /* this process is rank env.rank of the job, the first one of this host */
    int threads;                 /* of each rank */
    char *folder;                /* of the run, or where runs/ would be */
    struct answers answers;

    struct finding *findings; /* (count) */
    char **sentences;         /* (count) */
    size_t count;
    int pipe; /* of a check's process: to which findings are sent; else -1 */
};

/* Owns the sentence. A finding that two checks have is kept once. */
static void keep(struct doctor *d, const struct finding *finding, char *sentence) {
    d->findings = status_need(realloc(d->findings, (d->count + 1) * sizeof *d->findings));
    d->sentences = status_need(realloc(d->sentences, (d->count + 1) * sizeof *d->sentences));
    for (size_t i = 0; i < d->count; i++)
        if (d->findings[i].kind == finding->kind && strcmp(d->sentences[i], sentence) == 0) {
            free(sentence);
            return;
        }
    d->findings[d->count] = *finding;
    d->sentences[d->count++] = sentence;
}

static void send_finding(int to, const struct finding *finding, const char *sentence) {
    bool is_sent = write(to, finding, sizeof *finding) == sizeof *finding;
    if (is_sent && write(to, sentence, finding->length) != (ssize_t)finding->length) _exit(1);
}

static __attribute__((format(printf, 5, 6))) void add(struct doctor *d, enum kind kind, enum status_code code,
                                                      const char *subject, const char *format, ...) {
    char *sentence;
    va_list arguments;
    va_start(arguments, format);
    if (vasprintf(&sentence, format, arguments) < 0) status_exit_without_memory();
    va_end(arguments);
    struct finding finding = {.kind = kind, .code = code, .length = strlen(sentence)};
    snprintf(finding.subject, sizeof finding.subject, "%s", subject);
    if (d->pipe < 0) {
        keep(d, &finding, sentence);
        return;
    }
    send_finding(d->pipe, &finding, sentence);
    free(sentence);
}

/* Of a subject, with a format and its arguments. */
#define problem(d, code, ...) add(d, PROBLEM, code, __VA_ARGS__)
#define note(d, ...) add(d, NOTE, STATUS_OK, __VA_ARGS__)
#define fact(d, ...) add(d, FACT, STATUS_OK, __VA_ARGS__)

/* Whether there is no failure; else it is found, between two parts of a sentence. Consumes it. */
static bool expect_or(struct doctor *d, enum kind kind, enum status_code code, const char *subject, const char *before,
                      status s, const char *after) {
    bool is_ok = !s;
    if (s) add(d, kind, code, subject, "%s%s%s", before, status_message(s), after);
    status_free(s);
    return is_ok;
}

/* The same of a failure that a run would have. */
static bool expect(struct doctor *d, const char *subject, status s) {
    return expect_or(d, PROBLEM, s ? status_code(s) : STATUS_OK, subject, "", s, "");
}

/* ---- the process of a check ---- */

/* Adds findings and sets d->answers; other changes of [d] are lost. */
typedef void check_function(struct doctor *d);

struct check {
    const char *subject;
    check_function *run;
    double seconds;
    enum status_code code; /* of a run that meets the same; STATUS_OK: a late end is a note */
    const char *hangs;     /* what it means that it has not ended in time, and what to do */
};

static _Noreturn void run_in_child(struct doctor *d, const struct check *check, int to, pid_t parent) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) dup2(null, STDOUT_FILENO), dup2(null, STDERR_FILENO); /* what libraries print */
    d->pipe = to;
    struct finding end = {.kind = KINDS};
    check->run(d);
    bool is_sent = write(to, &end, sizeof end) == sizeof end && write(to, &d->answers, sizeof d->answers) > 0;
    _exit(is_sent ? 0 : 1);
}

/* Reads all [size] bytes before [deadline]; false: the end, or too late. */
static bool receive(int from, void *bytes, size_t size, double deadline) {
    for (char *at = bytes; size > 0;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        int found = poll(&ready, 1, clock_milliseconds_until(deadline));
        if (found < 0 && errno == EINTR) continue;
        ssize_t got = found > 0 ? read(from, at, size) : 0;
        if (got <= 0) return false;
        at += got;
        size -= (size_t)got;
    }
    return true;
}

/* Keeps the findings and answers of the child. false: it has crashed, or hangs. */
static bool read_findings(struct doctor *d, int from, double deadline) {
    struct finding finding;
    while (receive(from, &finding, sizeof finding, deadline)) {
        if (finding.kind == KINDS) return receive(from, &d->answers, sizeof d->answers, deadline);
        char *sentence = status_need(calloc(finding.length + 1, 1));
        if (!receive(from, sentence, finding.length, deadline)) {
            free(sentence);
            return false;
        }
        keep(d, &finding, sentence);
    }
    return false;
}

/* Ends the child. Its wait status; -1: it cannot be ended, because it hangs in the kernel. */
static int end_child(pid_t child) {
    int ended;
    kill(-child, SIGKILL);
    for (int i = 0; i < 100; i++) {
        pid_t found = waitpid(child, &ended, WNOHANG);
        if (found == child) return ended;
        clock_sleep(0.01);
    }
    return -1;
}

/* Runs a check in a process of its own. false: it has not reached its end, which is a finding. */
static bool run_check(struct doctor *d, const struct check *check) {
    int ends[2], ended = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        problem(d, STATUS_IO, check->subject, "cannot be checked, no pipe: %s", strerror(errno));
        return false;
    }
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
        close(ends[0]);
        run_in_child(d, check, ends[1], parent);
    }
    int error = errno;
    close(ends[1]);
    double deadline = clock_seconds() + check->seconds;
    bool is_complete = child > 0 && read_findings(d, ends[0], deadline);
    close(ends[0]);
    if (child < 0) {
        problem(d, STATUS_IO, check->subject,
                "cannot start a process: %s; a job cannot either: see ulimit -u and pids.max of the control group",
                strerror(error));
        return false;
    }
    bool is_late = clock_seconds() >= deadline;
    if (is_complete) waitpid(child, &ended, 0);
    if (!is_complete) ended = end_child(child);
    if (is_complete) return true;
    if (is_late && check->code == STATUS_OK)
        note(d, check->subject, "not all is checked within %g s: %s", check->seconds, check->hangs);
    else if (is_late)
        problem(d, check->code, check->subject, "no answer within %g s: %s", check->seconds, check->hangs);
    else if (ended > 0 && WIFSIGNALED(ended))
        problem(d, STATUS_BUG, check->subject, "its check was ended by SIG%s; a run probably would be, too",
                sigabbrev_np(WTERMSIG(ended)));
    else
        problem(d, check->code ? check->code : STATUS_IO, check->subject, "its check ended early (exit code %d)",
                ended > 0 ? WEXITSTATUS(ended) : 0);
    return false;
}

/* ---- config and job ---- */

static status load(struct doctor *d) {
    const struct command_line *line = d->line;
    if (config_is_sweep(line->config)) {
        TRY(sweep_load(line->config, line->overrides, line->override_count, &d->sweep));
        d->config = sweep_file_base(d->sweep);
        return OK;
    }
    TRY(config_load(line->config, line->overrides, line->override_count, &d->file));
    d->config = config_of(d->file);
    return OK;
}

/* It can be read only once. */
static bool is_pipe(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISFIFO(info.st_mode);
}

static void check_config(struct doctor *d) {
    d->answers.has_config = expect(d, "config", load(d));
    size_t count = d->config ? d->config->extensions.count : 0;
    if (count)
        fact(d, "config", "%zu extension%s: compiled for this check unless the cache has %s, as by a run", count,
             text_plural(count, "s"), count == 1 ? "it" : "them");
}

static bool uses_gpus(const struct doctor *d) { return d->config && d->config->device == DEVICE_CUDA; }
static bool is_several_hosts(const struct doctor *d) { return d->env.world_size > d->env.local_world_size; }
static bool is_host_of_rank_0(const struct doctor *d) { return d->env.rank < d->env.local_world_size; }

/* The number of ranks on this host, and the device, as a run chooses them. */
static status choose_ranks(struct doctor *d, int *nproc) {
    const struct command_line *line = d->line;
    bool is_default = !line->nproc || strcmp(line->nproc, "auto") == 0 || strcmp(line->nproc, "gpu") == 0;
    *nproc = 1;
    if (!is_default || d->env.launcher == LAUNCHER_NONE)
        TRY(command_nproc(line, d->config ? config_device_name(d->config) : "cpu", nproc));
    if (d->file) TRY(command_choose_device(line, d->file, &d->env, nproc));
    if (d->sweep && is_default) *nproc = (int)sweep_file_config(d->sweep)->nproc_per_trial;
    return command_check_launcher(line, &d->env, *nproc);
}

/* Fills d->env for the ranks that --nproc and --nnodes would start, too. */
static void find_job(struct doctor *d, bool has_gpu_answer) {
    const struct command_line *line = d->line;
    bool wants_gpus = line->nproc && strcmp(line->nproc, "gpu") == 0;
    int nproc = 1;
    status s = has_gpu_answer ? choose_ranks(d, &nproc) : wants_gpus ? OK : command_nproc(line, "cpu", &nproc);
    if (!expect(d, "processes", s)) nproc = 1;
    if (d->env.launcher != LAUNCHER_NONE) return;
    d->env.world_size = nproc * line->nnodes;
    d->env.local_world_size = nproc;
    d->env.rank = line->node_rank * nproc;
    d->env.master_port = line->nnodes > 1 ? line->master_port : 0;
    if (!expect(d, "launcher", command_check_nodes(line)) || line->nnodes == 1) return;
    snprintf(d->env.master_addr, sizeof d->env.master_addr, "%s", line->master_addr);
}

/* ---- environment variables ---- */

enum use {
    FOR_USERS,     /* documented by --help */
    FOR_TESTS,     /* must not be set for a run */
    FOR_LAUNCHERS, /* of the ranks of one launcher */
};

static const struct {
    const char *name;
    enum use use;
} own_variables[] = {
    {SECRET_VARIABLE, FOR_USERS},
    {JOB_VARIABLE, FOR_USERS},
    {END_VARIABLE, FOR_USERS},
    {"DDPTRAIN_CPU", FOR_USERS},
    {"DDPTRAIN_MODULE_DIR", FOR_USERS},
    {"DDPTRAIN_INCLUDE_DIR", FOR_USERS},
    {"DDPTRAIN_FAULT", FOR_TESTS},
    {"DDPTRAIN_FAULT_CLOCK", FOR_TESTS},
    {"DDPTRAIN_FAULT_FILTER", FOR_TESTS},
    {"DDPTRAIN_FAULT_FLIP", FOR_TESTS},
    {"DDPTRAIN_FAULT_LATE", FOR_TESTS},
    {GPUS_SHARE_VARIABLE, FOR_TESTS},
    {"DDPTRAIN_GPU_OPERANDS", FOR_TESTS},
    {"DDPTRAIN_HOST", FOR_TESTS},
    {LAUNCHER_VARIABLE, FOR_LAUNCHERS},
    {STORE_FD_VARIABLE, FOR_LAUNCHERS},
    {SECRET_FD_VARIABLE, FOR_LAUNCHERS},
    {REPORT_FD_VARIABLE, FOR_LAUNCHERS},
    {EXITS_FD_VARIABLE, FOR_LAUNCHERS},
    {ACTIVITY_FD_VARIABLE, FOR_LAUNCHERS},
    {LINK_VARIABLE, FOR_LAUNCHERS},
    {RESTART_COUNT_VARIABLE, FOR_LAUNCHERS},
    {BEGUN_VARIABLE, FOR_LAUNCHERS},
    {"DDPTRAIN_DEVICE", FOR_LAUNCHERS},
    {"DDPTRAIN_THREADS", FOR_LAUNCHERS},
};
#define OWN_VARIABLES (sizeof own_variables / sizeof *own_variables)

extern char **environ;

/* [name]: of a variable DDPTRAIN_... */
static void check_own_variable(struct doctor *d, const char *name) {
    const char *names[OWN_VARIABLES + 1] = {NULL};
    for (size_t i = 0; i < OWN_VARIABLES; i++) {
        names[i] = own_variables[i].use == FOR_USERS ? own_variables[i].name : SECRET_VARIABLE;
        if (strcmp(name, own_variables[i].name) != 0) continue;
        if (own_variables[i].use == FOR_TESTS)
            note(d, "environment", "%s is for tests of this program and changes what a run does: unset it", name);
        if (own_variables[i].use == FOR_LAUNCHERS && d->env.launcher != LAUNCHER_OWN)
            note(d, "environment", "%s is left over from another job, whose launcher has set it: unset it", name);
        return;
    }
    if (strncmp(name, "DDPTRAIN_EMULATED", strlen("DDPTRAIN_EMULATED")) == 0) return;
    const char *nearest = schema_nearest(name, names);
    note(d, "environment", "%s is not a variable of this program and has no effect%s%s", name,
         nearest ? "; is it meant to be " : ": see ddptrain --help", nearest ? nearest : "");
}

/* Variables of libraries. [value] NULL: any. */
static const struct {
    const char *name, *value, *effect;
} other_variables[] = {
    {"OMP_WAIT_POLICY", "active", "threads that wait take their processors from other processes: unset it"},
    {"ONEDNN_MAX_CPU_ISA", NULL, "large convolutions are slower, and their last bits differ: unset it"},
    {"DNNL_MAX_CPU_ISA", NULL, "large convolutions are slower, and their last bits differ: unset it"},
    {"NVIDIA_TF32_OVERRIDE", NULL, "products on GPUs have other bits than train.matmul_precision says: unset it"},
    {"CUDA_LAUNCH_BLOCKING", "1", "the host waits for each operation of a GPU, which is slow: unset it"},
    {"MALLOC_CHECK_", NULL, "every allocation is checked, which is slow: unset it"},
    {"MALLOC_PERTURB_", NULL, "every allocation is filled, which is slow: unset it"},
    {"GLIBC_TUNABLES", NULL, "the C library behaves differently: unset it if you do not need it"},
    {"LD_AUDIT", NULL, "a library watches every function call, which may be slow: unset it"},
};

/* Libraries that this program does not use. */
static const char *const foreign_threads[] = {"MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS",
                                              "GOTO_NUM_THREADS"};

static const char *variable(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static void check_binding_variables(struct doctor *d) {
    static const char *const names[] = {"OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "OMP_PLACES"};
    bool binds_cores = d->line->cpu_bind && strcmp(d->line->cpu_bind, "cores") == 0;
    if (d->env.local_world_size == 1 || binds_cores || processors_in_mask() < processors_online()) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = variable(names[i]);
        if (!value || strcasecmp(value, "false") == 0) continue;
        note(d, "environment",
             "%s=%s binds the threads of each of the %d processes to the same processors: unset it, or use --cpu-bind "
             "cores",
             names[i], value, d->env.local_world_size);
        return;
    }
}

static void check_secret(struct doctor *d) {
    uint8_t secret[32];
    if (variable(SECRET_VARIABLE) && d->env.launcher != LAUNCHER_OWN)
        expect(d, "environment", dist_env_secret(&d->env, secret));
    if (is_several_hosts(d) && dist_env_secret_is_guessable(&d->env)) note(d, "network", "%s", dist_env_secret_warning);
}

static void check_library_folders(struct doctor *d) {
    const char *preload = variable("LD_PRELOAD"), *modules = variable("DDPTRAIN_MODULE_DIR");
    if (preload)
        note(d, "environment", "LD_PRELOAD loads %s into every process of the job: unset it if you do not need it",
             preload);
    if (modules && access(modules, X_OK) != 0)
        note(d, "environment",
             "DDPTRAIN_MODULE_DIR=%s cannot be read (%s), so the installed modules are used: correct it, or unset it",
             modules, strerror(errno));
}

static void check_own_variables(struct doctor *d) {
    for (char **v = environ; *v; v++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*v, "="), *v);
        if (strncmp(name, "DDPTRAIN_", strlen("DDPTRAIN_")) == 0) check_own_variable(d, name);
    }
}

static void check_variables(struct doctor *d) {
    for (size_t i = 0; i < sizeof other_variables / sizeof *other_variables; i++) {
        const char *value = variable(other_variables[i].name), *only = other_variables[i].value;
        if (value && (!only || strcasecmp(value, only) == 0))
            note(d, "environment", "%s=%s: %s", other_variables[i].name, value, other_variables[i].effect);
    }
    for (size_t i = 0; i < sizeof foreign_threads / sizeof *foreign_threads; i++)
        if (variable(foreign_threads[i]) && !variable("OMP_NUM_THREADS"))
            note(d, "environment", "%s has no effect here: set OMP_NUM_THREADS for the threads of a process",
                 foreign_threads[i]);
    check_binding_variables(d);
    check_secret(d);
    check_library_folders(d);
}

/* ---- processors ---- */

/* OMP_NUM_THREADS; 0: it is not given, or wrong. */
static int given_threads(struct doctor *d) {
    const char *value = variable("OMP_NUM_THREADS");
    char *end;
    if (!parallel_is_given() || !value) return 0;
    long threads = strtol(value, &end, 10);
    if (end != value && *end == 0 && threads > 0 && threads < 100000) return (int)threads;
    if (end != value && *end == ',' && threads > 0 && threads < 100000) return (int)threads;
    note(d, "threads", "OMP_NUM_THREADS=%s is not a number of threads and has no effect: set it to one, or unset it",
         value);
    return 0;
}

/* The processes that share the processors of this one: another launcher may have bound each to its own. */
static int sharing_ranks(const struct doctor *d) {
    bool is_bound = processors_in_mask() < processors_online();
    return d->env.launcher != LAUNCHER_NONE && is_bound ? 1 : d->env.local_world_size;
}

/* Of each rank, as a run chooses them. */
static void find_threads(struct doctor *d) {
    int given = given_threads(d), ranks = sharing_ranks(d), allowed = processors_allowed();
    bool is_started_here = d->env.launcher == LAUNCHER_NONE && ranks > 1;
    d->threads = given ? given : is_started_here ? 1 : command_threads(&d->env, 1);
    if (is_started_here && !given && !uses_gpus(d) && ranks * 2 <= allowed)
        note(d, "threads",
             "each of the %d processes has 1 thread, so %d of the %d processors that may be used are used: set "
             "OMP_NUM_THREADS=%d",
             ranks, ranks, allowed, allowed / ranks);
    if (given && (long)given * ranks > allowed)
        note(d, "threads",
             "OMP_NUM_THREADS=%d, and %d process%s here, are more threads than the %d processor%s that may be used, so "
             "they wait for each other: set it to %d, or unset it",
             given, ranks, text_plural((uint64_t)ranks, "es"), allowed, text_plural((uint64_t)allowed, "s"),
             allowed / ranks > 0 ? allowed / ranks : 1);
    if (given && !uses_gpus(d) && (long)given * ranks * 2 <= allowed)
        note(d, "threads",
             "OMP_NUM_THREADS=%d, and %d process%s here, use at most %d of the %d processors that may be used%s: raise "
             "it, or unset it",
             given, ranks, text_plural((uint64_t)ranks, "es"), given * ranks, allowed,
             d->env.launcher == LAUNCHER_TORCHRUN && given == 1 ? " (torchrun sets it to 1)" : "");
}

static void check_ranks_on_processors(struct doctor *d, const cpu_set_t *mask, int cores) {
    int ranks = sharing_ranks(d), allowed = processors_allowed();
    bool binds_cores;
    cpu_set_t *parts = NULL;
    if (ranks > allowed)
        note(d, "processors",
             "%d processes on this host, but %d processor%s may be used: each waits for the others; start fewer, or "
             "ask the scheduler for more (srun --cpus-per-task, docker run --cpus)",
             ranks, allowed, text_plural((uint64_t)allowed, "s"));
    else if (ranks > cores && cores > 0)
        note(d, "processors",
             "%d processes on %d core%s, whose %d hardware threads are not as fast as as many cores: start %d", ranks,
             cores, text_plural((uint64_t)cores, "s"), CPU_COUNT(mask), cores);
    if (!expect(d, "processors", command_cpu_bind(d->line, &binds_cores)) || !binds_cores) return;
    expect(d, "processors", launch_split(ranks, &parts));
    free(parts);
}

static void check_load(struct doctor *d) {
    double load = 0;
    FILE *file = fopen("/proc/loadavg", "re");
    bool is_read = file && fscanf(file, "%lf", &load) == 1;
    if (file) fclose(file);
    int online = processors_online();
    if (is_read && load > 1.5 * online && load > online + 1)
        note(d, "processors",
             "other programs keep the processors busy (load %.1f on %d): a run is slower until they end", load, online);
    errno = 0;
    int priority = getpriority(PRIO_PROCESS, 0), policy = sched_getscheduler(0);
    if ((errno == 0 && priority > 0) || policy == SCHED_IDLE || policy == SCHED_BATCH)
        note(d, "processors",
             "this shell has a low priority (nice %d%s): other programs run first; start the job without nice and chrt",
             priority, policy == SCHED_OTHER ? "" : ", a policy for work in the background");
}

static void check_processors(struct doctor *d) {
    cpu_set_t mask;
    double quota = processors_time();
    int online = processors_online(), allowed = processors_allowed();
    if (sched_getaffinity(0, sizeof mask, &mask) != 0) CPU_ZERO(&mask);
    int in_mask = CPU_COUNT(&mask), cores = in_mask ? processors_cores(&mask, CPU_FOLDER) : 0;
    SCOPED_TEXT text = {0}, list = {0};
    processors_list(&mask, &list);
    text_printf(&text, "%d of %d may be used", allowed, online);
    if (in_mask < online) text_printf(&text, " (affinity mask %s)", text_string(&list));
    if (cores && cores < in_mask) text_printf(&text, ", %d core%s", cores, text_plural((uint64_t)cores, "s"));
    if (quota > 0) text_printf(&text, ", the control group allows the time of %.2f", quota);
    text_printf(&text, "; %d process%s with %d thread%s", d->env.local_world_size,
                text_plural((uint64_t)d->env.local_world_size, "es"), d->threads,
                text_plural((uint64_t)d->threads, "s"));
    fact(d, "processors", "%s", text_string(&text));
    if (in_mask < online && in_mask < sharing_ranks(d) * d->threads)
        note(d, "processors",
             "the affinity mask of this shell has %d of %d processors (%s): if the job may have more, start it without "
             "taskset, or with srun --cpu-bind=none",
             in_mask, online, text_string(&list));
    if (quota > 0 && quota < d->env.local_world_size * d->threads)
        note(d, "processors",
             "the control group allows the time of %.2f processors to %d thread%s, which it then stops for parts of "
             "each 0.1 s: raise the limit (docker run --cpus, CPUQuota=), or use fewer threads",
             quota, d->env.local_world_size * d->threads,
             text_plural((uint64_t)d->env.local_world_size * (uint64_t)d->threads, "s"));
    check_ranks_on_processors(d, &mask, cores);
    check_load(d);
}

/* ---- memory and limits ---- */

static void check_memory(struct doctor *d) {
    uint64_t available = memory_available(), groups = memory_available_in_groups(CGROUP_ROOT), total, commit, used;
    double needed = d->answers.memory * d->env.local_world_size;
    if (machine_number("/proc/sys/vm/overcommit_memory", "", &total) && total == 2 &&
        machine_number("/proc/meminfo", "CommitLimit:", &commit) &&
        machine_number("/proc/meminfo", "Committed_AS:", &used)) {
        uint64_t left = used < commit ? (commit - used) * 1024 : 0;
        note(d, "memory",
             "this machine allows no overcommitment (vm.overcommit_memory 2), so %.2f GiB can be allocated; libraries "
             "for GPUs and MPI reserve far more than they use",
             (double)left / GIB);
        if (left < available) available = left;
    }
    if (available == UINT64_MAX) return;
    bool is_group = machine_number("/proc/meminfo", "MemAvailable:", &total) && groups < total * 1024;
    const char *whose = is_group ? "of the control group's limit " : "";
    fact(d, "memory", "%.2f GiB %sfree", (double)available / GIB, whose);
    if (needed > (double)available)
        problem(d, STATUS_PEER, "memory", /* the kernel kills a rank */
                "%d process%s of at least %.0f MiB each, but %.0f MiB %sare free: use a smaller sampler.batch_size or "
                "model, fewer processes, or a larger limit",
                d->env.local_world_size, text_plural((uint64_t)d->env.local_world_size, "es"), d->answers.memory / MIB,
                (double)available / MIB, whose);
    else if ((double)available < 256 * MIB)
        note(d, "memory", "only %.0f MiB %sare free: end other programs, or raise the limit", (double)available / MIB,
             whose);
    if (machine_number("/proc/meminfo", "SwapTotal:", &total) && machine_number("/proc/meminfo", "SwapFree:", &used) &&
        total > 0 && used < total / 2 && available < ((uint64_t)1 << 30))
        note(d, "memory", "this machine is swapping: %.2f of %.2f GiB of swap are in use; end other programs",
             (double)(total - used) / 0x1p20, (double)total / 0x1p20);
}

static rlim_t limit_of(__rlimit_resource_t resource) {
    struct rlimit limit;
    return getrlimit(resource, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

static void add_limit(struct text *out, const char *name, rlim_t limit) {
    text_printf(out, "%s%s ", out->length ? ", " : "", name);
    if (limit == RLIM_INFINITY)
        text_add(out, "unlimited");
    else
        text_add_int(out, (int64_t)limit);
}

/* Calls visit(user, folder) for the folder in /proc of each process of this user, by its effective id. */
static void visit_processes(void (*visit)(void *user, const char *folder), void *user) {
    SCOPED_NAMES names = {0};
    struct stat info;
    status_free(io_list("/proc", &names)); /* without it there are none */
    for (size_t i = 0; i < names.count; i++) {
        char folder[64];
        bool is_process = strspn(names.items[i], "0123456789") == strlen(names.items[i]);
        snprintf(folder, sizeof folder, "/proc/%.40s", names.items[i]);
        if (is_process && stat(folder, &info) == 0 && info.st_uid == geteuid()) visit(user, folder);
    }
}

static void add_threads(void *sum, const char *folder) {
    char path[80];
    uint64_t threads, *all = sum;
    snprintf(path, sizeof path, "%s/status", folder);
    if (machine_number(path, "Threads:", &threads)) *all += threads;
}

static uint64_t count_threads(void) {
    uint64_t sum = 0;
    visit_processes(add_threads, &sum);
    return sum;
}

#define OTHER_THREADS 4 /* of a rank: it reads ahead, saves, communicates, reports */

static void check_processes_limit(struct doctor *d) {
    rlim_t limit = limit_of(RLIMIT_NPROC);
    uint64_t needed = (uint64_t)d->env.local_world_size * (uint64_t)(d->threads + OTHER_THREADS) + 1;
    uint64_t groups = processes_available_in_groups(CGROUP_ROOT), used = limit < RLIM_INFINITY ? count_threads() : 0;
    if (groups < needed)
        problem(d, STATUS_IO, "processes",
                "the control group allows %llu more processes and threads (pids.max), and the job needs about %llu: "
                "raise it (docker run --pids-limit, TasksMax=)",
                (unsigned long long)groups, (unsigned long long)needed);
    if (limit < RLIM_INFINITY && used + needed > limit && geteuid() != 0)
        problem(d, STATUS_IO, "processes",
                "this user has %llu processes and threads of at most %llu (ulimit -u), and the job needs about %llu "
                "more: end some, or raise the limit",
                (unsigned long long)used, (unsigned long long)limit, (unsigned long long)needed);
}

/* ulimit -f, -t, -v, -l. */
static void check_other_limits(struct doctor *d) {
    rlim_t file = limit_of(RLIMIT_FSIZE), time = limit_of(RLIMIT_CPU), space = limit_of(RLIMIT_AS),
           data = limit_of(RLIMIT_DATA), locked = limit_of(RLIMIT_MEMLOCK);
    if (file < RLIM_INFINITY && d->answers.checkpoint > (double)file)
        problem(d, STATUS_IO, "limits",
                "files may have %llu bytes (ulimit -f), and a checkpoint has %.0f: raise the limit",
                (unsigned long long)file, d->answers.checkpoint);
    else if (file < RLIM_INFINITY)
        note(d, "limits",
             "files may have %llu bytes (ulimit -f): a checkpoint or a log that is larger cannot be written",
             (unsigned long long)file);
    if (time < RLIM_INFINITY)
        note(d, "limits", "each process may use %llu s of processor time (ulimit -t): then a run saves and stops",
             (unsigned long long)time);
    if (data < space) space = data;
    if (space < RLIM_INFINITY && d->answers.memory > (double)space)
        problem(
            d, STATUS_USAGE, "limits",
            "a process may have %.0f MiB of memory (ulimit -v, -d), and a rank needs at least %.0f: raise the limit",
            (double)space / MIB, d->answers.memory / MIB);
    else if (space < RLIM_INFINITY)
        note(d, "limits", "a process may have %.0f MiB of memory (ulimit -v, -d)%s", (double)space / MIB,
             uses_gpus(d) ? ": CUDA needs far more addresses than memory; raise the limit"
                          : ", which may be too little");
    if (locked < RLIM_INFINITY && is_several_hosts(d) && access("/sys/class/infiniband", F_OK) == 0)
        note(d, "limits",
             "this host has InfiniBand, and a process may lock %.0f KiB of memory (ulimit -l): MPI and NCCL need "
             "unlimited",
             (double)locked / 1024);
}

#define SHORT_SECONDS 600.0 /* of an allocation */

/* false: a process may open so few files that other checks would fail for that reason. */
static bool check_limits(struct doctor *d) {
    int spare;
    struct launch_config launch = {
        .nproc = d->env.local_world_size, .nnodes = d->line->nnodes, .node_rank = d->line->node_rank};
    SCOPED_TEXT text = {0};
    add_limit(&text, "open files", limit_of(RLIMIT_NOFILE));
    add_limit(&text, "processes", limit_of(RLIMIT_NPROC));
    add_limit(&text, "locked memory", limit_of(RLIMIT_MEMLOCK));
    add_limit(&text, "core files", limit_of(RLIMIT_CORE));
    fact(d, "limits", "%s", text_string(&text));
    bool is_enough = d->env.launcher != LAUNCHER_NONE || expect(d, "open files", launch_check(&launch));
    is_enough = is_enough && expect(d, "open files", store_check_descriptors(&d->env, &spare));
    check_processes_limit(d);
    check_other_limits(d);
    if (access("/proc/self/exe", X_OK) != 0)
        problem(d, STATUS_IO, "limits",
                "/proc/self/exe cannot be read (%s), by which ranks are started: is /proc mounted?", strerror(errno));
    if (d->env.ends_at > 0 && d->env.ends_at - clock_unix() < SHORT_SECONDS)
        note(d, "limits",
             "the allocation ends in %.0f s (SLURM_JOB_END_TIME, " END_VARIABLE
             "): a run saves and stops before; ask for more time",
             fmax(d->env.ends_at - clock_unix(), 0));
    return is_enough;
}

/* ---- modules ---- */

/* An MPI that has started this process. */
static void check_mpi(struct doctor *d, int backend) {
    const struct comm_backend *mpi;
    bool is_chosen = backend == BACKEND_AUTO && is_several_hosts(d) && comm_mpi_module(d->env.launcher);
    if (d->env.world_size == 1 || !(is_chosen || backend == BACKEND_MPI)) return;
    status s = comm_backend_mpi(d->env.launcher, &mpi);
    if (is_chosen)
        expect_or(d, NOTE, STATUS_OK, "modules", "", s, "; Gloo is used instead");
    else
        expect(d, "modules", s);
}

static bool uses_gloo(const struct doctor *d) {
    int backend = d->config ? d->config->dist.backend : BACKEND_AUTO;
    bool is_between_hosts = backend == BACKEND_AUTO && is_several_hosts(d) && !comm_mpi_module(d->env.launcher);
    return d->env.world_size > 1 && (backend == BACKEND_GLOO || is_between_hosts);
}

static void check_modules(struct doctor *d) {
    static const struct {
        const char *name, *symbol, *what; /* what a run does without it */
    } modules[] = {{"gloo", "ddptrain_comm_gloo", "; it averages between hosts where no MPI has started the ranks"},
                   {"onednn", "ddptrain_onednn_open", "; large convolutions are slower without it"},
                   {"cuda", "ddptrain_cuda_gpus", "; it is needed for GPUs"},
                   {"cudnn", "ddptrain_cudnn_plans", "; it is needed for convolutions on GPUs"},
                   {"nccl", "ddptrain_comm_nccl", "; it averages between GPUs"}};
    SCOPED_TEXT found = {0};
    int backend = d->config ? d->config->dist.backend : BACKEND_AUTO;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        bool is_needed = i == 0 && uses_gloo(d), is_installed = module_is_installed(modules[i].name);
        void *address;
        if (!is_installed && !is_needed) continue;
        status s = module_open(modules[i].name, modules[i].symbol, &address);
        enum status_code code = s ? status_code(s) : STATUS_OK;
        if (expect_or(d, is_needed ? PROBLEM : NOTE, code, "modules", "", s,
                      is_needed ? "; this job needs it" : modules[i].what))
            text_printf(&found, "%s%s", found.length ? ", " : "", modules[i].name);
    }
    fact(d, "modules", "%s", found.length ? text_string(&found) : "none");
    if (d->threads > 1 && parallel_threads() == 1)
        note(d, "modules",
             "each process computes with 1 thread, because libgomp.so.1 cannot be loaded: install it (Debian's "
             "libgomp1)");
    check_mpi(d, backend);
}

/* ---- GPUs ---- */

static void check_gpus(struct doctor *d) {
    struct gpus_driver driver;
    int gpus = 0;
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    gpus_find_driver(&driver);
    if (driver.has_device && !driver.kernel[0])
        note(d, "GPU",
             "there is an NVIDIA GPU, but its driver is not loaded: install it, until nvidia-smi lists the GPU; "
             "without it runs use the CPU");
    if (driver.kernel[0] && !driver.has_library)
        note(d, "GPU",
             "the driver %s is loaded, but libcuda.so.1 is not installed: install that of the same version (Debian's "
             "libcuda1), or give the container access to the GPU (docker run --gpus all)",
             driver.kernel);
    if (driver.has_library && !driver.kernel[0])
        note(d, "GPU",
             "libcuda.so.1 is installed (%s), but the kernel has no NVIDIA driver: load it (modprobe nvidia), or give "
             "the container access to the GPU",
             driver.library);
    if (driver.kernel[0] && driver.version[0] && strcmp(driver.kernel, driver.version) != 0)
        note(d, "GPU",
             "the kernel has version %s of the driver, and libcuda is %s: restart the machine, which loads the version "
             "that was installed last",
             driver.kernel, driver.version);
    bool is_hidden = visible && !*visible && (driver.kernel[0] || driver.has_device);
    if (is_hidden) note(d, "GPU", "CUDA_VISIBLE_DEVICES is empty and hides all GPUs: unset it to use them");
    if (driver.has_library && driver.kernel[0] && !is_hidden) {
        expect_or(d, NOTE, STATUS_OK, "GPU", "the GPUs cannot be used: a run on them needs ", gpus_count(&gpus), "");
    }
    if (gpus > 0)
        fact(d, "GPU", "%d, driver %s", gpus, driver.kernel);
    else
        fact(d, "GPU", "none that can be used");
}

/* ---- data and model ---- */

static void check_plan(struct doctor *d) {
    struct plan_options options = {.purpose = PLAN_CHECK, .env = &d->env};
    struct plan *plan;
    status s = plan_create(d->config, &options, &plan);
    if (!expect(d, status_code(s) == STATUS_DATA ? "data" : "config", s)) return;
    if (plan->missing) problem(d, status_code(plan->missing), "config", "%s", status_message(plan->missing));
    double memory = plan_host_memory(plan);
    d->answers.checkpoint = plan_checkpoint_bytes(plan);
    d->answers.memory = uses_gpus(d) ? 0 : memory;
    fact(d, "data",
         "%zu training rows, %zu validation rows; at least %.2f MiB of memory for each process, %.2f MiB for a "
         "checkpoint",
         plan->info.train_rows, plan->info.validation_rows, memory / MIB, d->answers.checkpoint / MIB);
}

/* The rows, and what the run starts from: weights, the newest checkpoint of its folder, or another file. */
static void check_start(struct doctor *d) {
    const struct run_options options = {
        .folder = d->folder, .is_fresh = d->line->is_fresh, .writes_nothing = d->sweep != NULL};
    status s = run_try_start(d->config, &d->env, &options);
    expect(d, status_code(s) == STATUS_DATA ? "data" : "start", s);
}

/* ---- the run folder and other folders ---- */

#define PROBE_BYTES 4096
#define CLOCK_SECONDS 2.0 /* that two clocks may differ */

/* A file system, as /proc/self/mountinfo describes it. */
struct mount {
    char type[64], options[512]; /* those of the mount and of the file system */
    size_t length;               /* of the mount point; 0: not found */
};

/* In place: the blank is written \040 there. */
static void unescape(char *path) {
    char *to = path;
    for (const char *from = path; *from; to++) {
        unsigned byte;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &byte) == 1) {
            *to = (char)byte;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = 0;
}

/* Of the absolute path, without links: the mount with the longest name that begins it, and of these the last one. */
static struct mount find_mount(const char *path) {
    struct mount found = {0};
    SCOPED_STRING line = NULL;
    size_t size = 0;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file && getline(&line, &size, file) > 0) {
        char point[PATH_MAX], type[64] = "", options[200] = "", more[300] = "";
        const char *dash = strstr(line, " - ");
        if (sscanf(line, "%*s %*s %*s %*s %4095s %199s", point, options) != 2 || !dash) continue;
        if (sscanf(dash, " - %63s %*s %299s", type, more) < 1) continue;
        unescape(point);
        size_t length = strlen(point);
        bool is_root = length == 1, is_in = strncmp(path, point, length) == 0 && (!path[length] || path[length] == '/');
        if (!(is_root || is_in) || length < found.length) continue;
        found.length = length;
        snprintf(found.type, sizeof found.type, "%s", type);
        snprintf(found.options, sizeof found.options, ",%s,%s,", options, more);
    }
    if (file) fclose(file);
    return found;
}

static void check_type(struct doctor *d, const char *folder, const struct mount *m) {
    static const char is_memory[] =
        "is in memory: its files take it from runs, and are lost at a restart of the machine";
    static const char keeps_locks[] = "keeps locks on each host, so runs on two hosts may write to one run folder";
    static const char is_soft[] = "is mounted soft: a server that is slow for a while makes saves fail; mount it hard";
    static const struct {
        const char *type, *option; /* NULL: any */
        const char *what;
    } types[] = {
        {"tmpfs", NULL, is_memory},
        {"ramfs", NULL, is_memory},
        {"nfs", ",nolock,",
         "is mounted with nolock, so runs on two hosts may write to one run folder: mount it without"},
        {"nfs", ",local_lock=all,", keeps_locks},
        {"nfs4", ",local_lock=all,", keeps_locks},
        {"nfs", ",local_lock=flock,", keeps_locks},
        {"nfs", ",soft,", is_soft},
        {"nfs4", ",soft,", is_soft},
        {"lustre", ",localflock,", keeps_locks},
        {"overlay", NULL,
         "is the layer of a container, and is lost with it: use a folder that is mounted from outside"},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].type, m->type) == 0 && (!types[i].option || strstr(m->options, types[i].option)))
            note(d, "run folder", "%s: the file system (%s) %s", folder, m->type, types[i].what);
}

static void check_space(struct doctor *d, const char *folder, const struct mount *m) {
    struct statvfs info;
    if (statvfs(folder, &info) != 0) return; /* the probe says why */
    double space = (double)info.f_bavail * (double)info.f_frsize,
           keep = d->config ? (double)d->config->checkpoint.keep : 1;
    double needed = (keep + 2) * d->answers.checkpoint;
    fact(d, "run folder", "%s: %s, %.2f GiB free", folder, m->type[0] ? m->type : "?", space / GIB);
    if (info.f_flag & ST_RDONLY) return; /* the probe says so */
    if (space < needed)
        note(d, "run folder",
             "%s has %.0f MiB free, and %.0f checkpoints of %.0f MiB and a temporary one need %.0f: free some, or name "
             "another folder with --run-dir",
             folder, space / MIB, keep + 1, d->answers.checkpoint / MIB, needed / MIB);
    else if (space < 64 * MIB)
        note(d, "run folder", "%s has only %.1f MiB free: free some, or name another folder with --run-dir", folder,
             space / MIB);
    if (info.f_files > 0 && info.f_favail < 100)
        note(d, "run folder",
             "%s: the file system can take only %llu more files (df -i): delete some, or name another folder with "
             "--run-dir",
             folder, (unsigned long long)info.f_favail);
}

static void check_clock(struct doctor *d, const char *folder, int fd) {
    struct io_info info;
    status s = io_stat_fd(fd, folder, &info);
    double ahead = clock_unix() - info.modified;
    if (!s && fabs(ahead) > CLOCK_SECONDS)
        note(d, "clock",
             "the clock of this host is %.0f s %s that of the file system of %s: the times of files and logs do not "
             "agree; synchronise both (chrony, systemd-timesyncd)",
             fabs(ahead), ahead > 0 ? "ahead of" : "behind", folder);
    status_free(s);
}

/* Whether a lock keeps a second open file out, as it keeps another process out. */
static status check_lock(struct doctor *d, const char *folder, int fd) {
    char path[64];
    bool is_mine, is_also_mine = false;
    int other = -1;
    TRY(io_lock(fd, folder, &is_mine));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    other = open(path, O_RDWR | O_CLOEXEC);
    status s = other >= 0 ? io_lock(other, folder, &is_also_mine) : OK;
    if (is_mine && is_also_mine)
        note(d, "run folder",
             "%s: the file system does not keep locks, so two runs may write to one run folder: use another, or take "
             "care",
             folder);
    if (other >= 0) close(other);
    return s;
}

/* Everything that a save does, with a file without a name. */
static status probe(struct doctor *d, const char *folder) {
    static const char bytes[PROBE_BYTES];
    int fd;
    TRY(io_create_unnamed(folder, &fd));
    status s = io_write(fd, folder, bytes, sizeof bytes);
    if (!s) s = io_sync(fd, folder);
    if (!s) check_clock(d, folder, fd);
    if (!s) s = check_lock(d, folder, fd);
    if (!s && d->answers.checkpoint > 0) s = io_reserve(fd, folder, (uint64_t)d->answers.checkpoint);
    return status_first(s, io_close(fd, folder));
}

/* The folder, or of those around it the first that exists; malloc'ed. */
static char *existing_folder(const char *path) {
    char *folder = status_need(strdup(path));
    struct stat info;
    while (lstat(folder, &info) != 0 && errno == ENOENT && strcmp(folder, ".") != 0 && strcmp(folder, "/") != 0) {
        char *above = status_need(io_folder_of(folder));
        free(folder);
        folder = above;
    }
    return folder;
}

/* A folder must be that of this run, and of no other process. */
static bool check_own_folder(struct doctor *d) {
    enum run_folder_start start = d->line->is_fresh ? RUN_FOLDER_FRESH : RUN_FOLDER_ANY;
    bool is_locked = false;
    if (d->file) return expect(d, "run folder", run_folder_check(d->folder, start, d->config));
    if (!d->sweep || !expect(d, "run folder", folder_lock_is_held(d->folder, &is_locked))) return !d->sweep;
    if (is_locked)
        problem(d, STATUS_USAGE, "run folder",
                "%s: another ddptrain runs a sweep in this folder: wait for it, or name another folder with --run-dir",
                d->folder);
    return !is_locked;
}

/* Files of an earlier start by another user, in a folder of all. */
static bool check_files(struct doctor *d) {
    static const char *const names[] = {FOLDER_LOCK_FILE, "config.yaml", "metrics.jsonl", "log.txt", "checkpoints"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        SCOPED_STRING path = text_path(d->folder, names[i]);
        bool is_wrong = faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) != 0 && errno == EACCES;
        if (is_wrong)
            problem(d, STATUS_IO, "run folder",
                    "cannot write '%s': %s; make it yours (chown), or name another folder with --run-dir", path,
                    strerror(errno));
        if (is_wrong) return false;
    }
    return true;
}

static void check_folder(struct doctor *d) {
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) {
        problem(d, STATUS_IO, "run folder", "the working directory cannot be used (%s): cd into one that exists",
                strerror(errno));
        return;
    }
    if (!check_own_folder(d) || !(d->line->is_fresh || check_files(d))) return;
    SCOPED_STRING folder = existing_folder(d->folder);
    char full[PATH_MAX];
    struct mount m = {0};
    if (realpath(folder, full)) m = find_mount(full);
    check_space(d, folder, &m);
    check_type(d, folder, &m);
    expect(d, "run folder", status_prefix(probe(d, folder), "%s", d->folder));
    if ((umask(077) & 0700) != 0)
        problem(d, STATUS_IO, "run folder",
                "new files cannot be read or written by their owner (umask): set umask 022");
}

static void check_temporary(struct doctor *d) {
    const char *folder = io_temporary_folder();
    int fd;
    status s = io_create_unnamed(folder, &fd);
    if (!s) s = io_close(fd, folder);
    expect_or(d, NOTE, STATUS_OK, "temporary", "", s,
              "; columns that do not fit in memory would go there: set TMPDIR to a folder that exists");
}

/* ---- shared memory ---- */

#define SHARED_MEMORY "/dev/shm"

/* The memory of ranks of a host is anonymous (comm_shm.c); other libraries use files there. */
static void check_anonymous(struct doctor *d) {
    int backend = d->config ? d->config->dist.backend : BACKEND_AUTO, fd = memfd_create("ddptrain-doctor", MFD_CLOEXEC);
    int error = fd < 0 || ftruncate(fd, PROBE_BYTES) != 0 ? errno : 0;
    void *map = error ? MAP_FAILED : mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!error && map == MAP_FAILED) error = errno;
    if (fd >= 0) close(fd);
    if (!error) {
        munmap(map, PROBE_BYTES);
    } else if (fd < 0 && d->env.world_size > 1 && d->env.launcher == LAUNCHER_NONE) {
        problem(d, STATUS_IO, "shared memory",
                "memory without a name cannot be made (memfd_create: %s), by which the launcher passes the job's "
                "secret: allow it in the profile of the container (seccomp)",
                strerror(error));
    } else if (backend == BACKEND_SHM && d->env.world_size > 1) {
        problem(d, STATUS_IO, "shared memory", "dist.backend is shm, and memory cannot be shared: %s", strerror(error));
    } else {
        note(d, "shared memory", "memory cannot be shared between processes, so they send their gradients: %s",
             strerror(error));
    }
}

static void check_shared(struct doctor *d) {
    static const char who[] = "NCCL and MPI need it (ddptrain itself does not)";
    struct statvfs info;
    check_anonymous(d);
    if (statvfs(SHARED_MEMORY, &info) != 0) {
        note(d, "shared memory", SHARED_MEMORY " is missing: %s; mount a tmpfs there", who);
        return;
    }
    double space = (double)info.f_bavail * (double)info.f_frsize, needed = 32 * MIB * d->env.local_world_size;
    bool is_read_only = info.f_flag & ST_RDONLY;
    fact(d, "shared memory", SHARED_MEMORY ": %.0f MiB free", space / MIB);
    if (is_read_only || access(SHARED_MEMORY, W_OK | X_OK) != 0)
        note(d, "shared memory", SHARED_MEMORY " cannot be written (%s): %s; mount it with rw and mode 1777",
             is_read_only ? "it is read-only" : strerror(errno), who);
    else if (space < needed)
        note(d, "shared memory",
             SHARED_MEMORY " has %.0f MiB free, and NCCL and MPI need about 32 for each process (ddptrain itself "
                           "none): enlarge it (docker run --shm-size), or remove old files there",
             space / MIB);
}

/* ---- the network ---- */

#define SLOW_SECONDS 1.0
#define CONNECT_SECONDS 3.0
#define MAX_NAMED_HOSTS 256

/* The name of this host, and those of a Slurm job. */
static void check_names(struct doctor *d) {
    char host[256];
    const char *list = variable("SLURM_JOB_NODELIST");
    double start = clock_seconds();
    host_name(host, sizeof host);
    status s = net_check_host(host);
    if (s)
        note(d, "network",
             "the name of this host, '%s', has no address; MPI and schedulers use it: add a line to /etc/hosts, or "
             "correct the name (hostname)",
             host);
    if (!s && !net_is_this_host(host))
        note(d, "network",
             "the name of this host, '%s', has an address that is not one of this host: correct /etc/hosts or the name "
             "service",
             host);
    status_free(s);
    if (clock_seconds() - start > SLOW_SECONDS)
        note(d, "network", "looking up a name took %.1f s: check the name servers in /etc/resolv.conf",
             clock_seconds() - start);
    fact(d, "network", "the name of this host is %s%s", host,
         !s && net_is_loopback_host(host) ? ", a loopback address here" : "");
    for (int i = 0; list && i < MAX_NAMED_HOSTS && slurm_host(list, i, host, sizeof host); i++) {
        s = net_check_host(host);
        if (s)
            note(d, "network", "host '%s' of SLURM_JOB_NODELIST has no address here: add it to the name service", host);
        status_free(s);
        if (s) return;
    }
    if (list && !slurm_host_count(list))
        note(d, "network", "SLURM_JOB_NODELIST=%s is not a list of hosts: unset it, or start the job by Slurm", list);
}

/* Ranks of one host meet at a loopback address. */
static void check_loopback(struct doctor *d) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    int listener, connected = -1;
    bool is_final;
    if (!expect(d, "network", status_prefix(net_listen("127.0.0.1", 0, true, &listener), "the loopback interface")))
        return;
    status s = OK;
    if (getsockname(listener, (struct sockaddr *)&address, &size) != 0)
        s = status_errno(STATUS_IO, errno, "cannot find a free port");
    if (!s) s = net_connect("127.0.0.1", net_port(&address), clock_seconds() + CONNECT_SECONDS, &connected, &is_final);
    expect_or(d, PROBLEM, STATUS_PEER, "network", "the processes of a host cannot reach each other at ", s,
              ": is the loopback interface up (ip link set lo up)?");
    if (connected >= 0) close(connected);
    close(listener);
}

/* On the host of rank 0: it must be the one that MASTER_ADDR names, and the port must be free. */
static void check_listener(struct doctor *d) {
    const struct dist_env *env = &d->env;
    char hint[400] = "";
    int fd;
    if (is_several_hosts(d)) store_describe_wrong_host(env, hint);
    bool is_name = *hint && net_is_loopback_host(env->master_addr) && !dist_env_is_loopback_name(env->master_addr);
    if (is_name)
        note(d, "network", "%s is a loopback address here (/etc/hosts): it must be another one for the other hosts",
             env->master_addr);
    else if (*hint)
        problem(d, STATUS_PEER, "network", "%s", hint + strspn(hint, "; "));
    if (expect(d, "network", net_listen(env->master_addr, env->master_port, !is_several_hosts(d), &fd))) close(fd);
}

/* On another host: whether packets reach that of rank 0, which may not have started yet. */
static void check_way(struct doctor *d) {
    const struct dist_env *env = &d->env;
    bool listens;
    if (net_is_loopback_host(env->master_addr)) {
        problem(d, STATUS_PEER, "network",
                "MASTER_ADDR (--master-addr) is %s, a loopback address: this host is not that of rank 0; set it to a "
                "name of that host, the same on all hosts",
                env->master_addr);
        return;
    }
    status s = net_check_way(env->master_addr, env->master_port, clock_seconds() + CONNECT_SECONDS, &listens);
    if (expect_or(d, PROBLEM, STATUS_PEER, "network", "the host of rank 0 does not answer at ", s,
                  ": is it on, is the name that of the right interface, and does a firewall between the hosts allow "
                  "TCP to all ports?"))
        fact(d, "network", "the host of rank 0 answers at %s:%d%s", env->master_addr, env->master_port,
             listens ? "" : "; no program listens there now");
}

static void check_interfaces(struct doctor *d) {
    static const char *const names[] = {INTERFACE_VARIABLE, "NCCL_SOCKET_IFNAME"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *name = variable(names[i]);
        bool is_up, is_pattern = name && (i > 0 || strpbrk(name, ",^="));
        if (!name || (is_pattern && strpbrk(name, ",^"))) continue;
        if (*name == '=' && i > 0) name++;
        bool is_there = net_has_interface(name, &is_up);
        const char *what = is_there ? "which is down or has no address" : "which this host does not have";
        if (is_there && is_up) continue;
        if (i > 0 || !uses_gloo(d))
            note(d, "network", "%s=%s, %s: correct it (ip address), or unset it", names[i], name, what);
        else
            problem(d, STATUS_PEER, "network", "%s=%s, %s: correct it (ip address), or unset it", names[i], name, what);
    }
}

static void check_network(struct doctor *d) {
    check_names(d);
    if (d->env.local_world_size > 1) check_loopback(d);
    check_interfaces(d);
    if (!d->env.master_addr[0] || d->env.master_port == 0) return;
    if (!expect(d, "network", net_check_host(d->env.master_addr))) return;
    if (is_host_of_rank_0(d))
        check_listener(d);
    else
        check_way(d);
    struct timex clock = {0};
    if (is_several_hosts(d) && adjtimex(&clock) == TIME_ERROR)
        note(d, "clock",
             "the clock of this host is not synchronised: times in the logs of hosts may not agree; start chrony or "
             "systemd-timesyncd");
}

/* ---- processes of earlier jobs ---- */

#define OLD_SECONDS 86400.0

struct process {
    long pid, parent;
    char state;
    double age; /* seconds */
};

/* The first line of a file of a process; empty: it cannot be read. */
static void read_line(const char *folder, const char *name, char line[1024]) {
    char path[80];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file || !fgets(line, 1024, file)) line[0] = 0;
    if (file) fclose(file);
}

static bool read_process(const char *folder, struct process *out) {
    char line[1024], uptime[1024];
    unsigned long long start = 0;
    read_line(folder, "stat", line), read_line("/proc", "uptime", uptime);
    const char *after = strrchr(line, ')');
    out->pid = atol(folder + strlen("/proc/"));
    if (!*uptime || !after ||
        sscanf(after, ") %c %ld %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu", &out->state,
               &out->parent, &start) != 3)
        return false;
    out->age = strtod(uptime, NULL) - (double)start / (double)sysconf(_SC_CLK_TCK);
    return true;
}

/* The file of a process, without " (deleted)". */
static bool read_program(const char *folder, char program[PATH_MAX]) {
    char path[80];
    snprintf(path, sizeof path, "%s/exe", folder);
    ssize_t length = readlink(path, program, PATH_MAX - 1);
    program[length > 0 ? length : 0] = 0;
    char *deleted = strstr(program, " (deleted)");
    if (deleted) *deleted = 0;
    return length > 0;
}

/* Whether it is a rank whose launcher has ended. */
static bool is_orphan(const struct process *p) {
    char path[64], text[65536];
    snprintf(path, sizeof path, "/proc/%ld/environ", p->pid);
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    for (const char *v = text; v < text + length; v += strlen(v) + 1)
        if (strncmp(v, LAUNCHER_VARIABLE "=", strlen(LAUNCHER_VARIABLE "=")) == 0)
            return atol(v + strlen(LAUNCHER_VARIABLE "=")) != p->parent;
    return false;
}

static void describe_process(struct doctor *d, const struct process *p) {
    if (p->state == 'T')
        note(d, "processes",
             "process %ld of ddptrain is stopped (Ctrl-Z or SIGSTOP) and keeps its memory and locks: kill -CONT %ld "
             "lets it continue, kill -9 %ld ends it",
             p->pid, p->pid, p->pid);
    else if (is_orphan(p))
        note(d, "processes", "process %ld of ddptrain is a rank whose launcher has ended: kill -9 %ld ends it", p->pid,
             p->pid);
    else if (p->parent == 1 && p->age > OLD_SECONDS)
        note(d, "processes",
             "process %ld of ddptrain has run for %.0f days, and what started it has ended: if you do not want it, "
             "kill %ld ends it",
             p->pid, p->age / OLD_SECONDS, p->pid);
}

struct others {
    struct doctor *d;
    char own[PATH_MAX]; /* the file of this program */
    size_t count;
};

static void visit_other(void *user, const char *folder) {
    struct others *others = user;
    struct process p;
    char program[PATH_MAX];
    if (!read_program(folder, program) || strcmp(strrchr(program, '/'), strrchr(others->own, '/')) != 0) return;
    if (!read_process(folder, &p) || p.pid == getpid() || p.pid == getppid()) return;
    others->count++;
    describe_process(others->d, &p);
}

static void check_processes(struct doctor *d) {
    struct others others = {.d = d};
    if (read_program("/proc/self", others.own)) visit_processes(visit_other, &others);
    if (others.count > 0)
        fact(d, "processes", "%zu other process%s of ddptrain by this user", others.count,
             text_plural(others.count, "es"));
}

/* ---- the command ---- */

static size_t count(const struct doctor *d, enum kind kind) {
    size_t found = 0;
    for (size_t i = 0; i < d->count; i++) found += d->findings[i].kind == kind;
    return found;
}

static void add_findings(const struct doctor *d, enum kind kind, struct text *out) {
    static const char *const titles[] = {"problem  ", "note     ", ""};
    for (size_t i = 0; i < d->count; i++) {
        const struct finding *f = &d->findings[i];
        if (f->kind != kind) continue;
        text_add(out, titles[kind]);
        size_t start = out->length;
        text_add(out, f->subject);
        text_pad(out, start, SUBJECT_WIDTH);
        for (const char *line = d->sentences[i]; *line;) {
            size_t length = strcspn(line, "\n");
            text_printf(out, "  %.*s\n", (int)length, line);
            line += length + (line[length] == '\n');
            if (*line) text_printf(out, "%*s", (int)(strlen(titles[kind]) + SUBJECT_WIDTH), "");
        }
    }
}

static void print_findings(const struct doctor *d) {
    SCOPED_TEXT out = {0};
    char host[128];
    size_t problems = count(d, PROBLEM), notes = count(d, NOTE);
    bool is_quiet = d->line->is_quiet;
    host_name(host, sizeof host);
    if (!is_quiet) text_printf(&out, "ddptrain %s on host %s\n\n", DDPTRAIN_VERSION, host);
    add_findings(d, PROBLEM, &out);
    if (!is_quiet) {
        add_findings(d, NOTE, &out);
        if (problems + notes > 0) text_add(&out, "\n");
        add_findings(d, FACT, &out);
        if (problems == 0)
            text_printf(&out, "\ndoctor: nothing stops a job here; %zu note%s\n", notes, text_plural(notes, "s"));
    }
    command_print(stdout, &out);
}

/* The code is that of the first problem, in the order in which a run would meet them. */
static status summary(const struct doctor *d) {
    size_t problems = count(d, PROBLEM), first = 0;
    if (problems == 0) return OK;
    while (d->findings[first].kind != PROBLEM) first++;
    return status_new(d->findings[first].code, "doctor: %zu problem%s, which would stop a job", problems,
                      text_plural(problems, "s"));
}

static const char hanging_files[] =
    "a file system hangs, such as that of a server that is off; df and mount show which";

/* The folder that a run would use; the caller frees it. */
static char *folder_of(const struct doctor *d) {
    const struct command_line *line = d->line;
    const char *given = line->run_dir ? line->run_dir : line->config_run_folder;
    if (d->sweep) return command_sweep_folder(line);
    if (given) return status_need(strdup(given));
    return text_format("runs%s%s", d->config ? "/" : "", d->config ? d->config->name : "");
}

static void check_host(struct doctor *d) {
    static const struct check checks[] = {
        {"modules", check_modules, 60, STATUS_USAGE, hanging_files},
        {"run folder", check_folder, 30, STATUS_IO, hanging_files},
        {"temporary", check_temporary, 30, STATUS_IO, hanging_files},
        {"shared memory", check_shared, 30, STATUS_IO, hanging_files},
        {"network", check_network, 60, STATUS_PEER, "the name service does not answer: see /etc/resolv.conf"},
        {"processes", check_processes, 30, STATUS_IO, "/proc of a process hangs"},
    };
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) run_check(d, &checks[i]);
}

/* false: this process is not the first rank of its host, which checks it alone. */
static bool check_job(struct doctor *d) {
    static const struct check config = {"config", check_config, 30, STATUS_IO, hanging_files};
    static const struct check gpus = {"GPU", check_gpus, 60, STATUS_IO,
                                      "the driver of the GPUs hangs: see dmesg; restart the machine"};
    static const struct check plan = {"data", check_plan, 300, STATUS_IO,
                                      "the dataset is very large, or its file system hangs"};
    static const struct check start = {"data", check_start, 60, STATUS_OK,
                                       "the dataset is large; ddptrain check CONFIG --data reads all of it"};
    bool may_load = d->line->config && (is_pipe(d->line->config) || (run_check(d, &config) && d->answers.has_config));
    if (may_load && !expect(d, "config", load(d))) d->config = NULL;
    bool has_gpu_answer = run_check(d, &gpus);
    if (!expect(d, "launcher", dist_env_detect(&d->env)))
        d->env = (struct dist_env){.world_size = 1, .local_world_size = 1};
    if (d->env.local_rank > 0) return false;
    check_own_variables(d); /* before command_choose_device, which sets one for ranks */
    find_job(d, has_gpu_answer);
    find_threads(d);
    check_variables(d);
    check_processors(d);
    d->folder = folder_of(d);
    if (d->config) run_check(d, &plan);
    check_memory(d);
    if (d->config && count(d, PROBLEM) == 0) run_check(d, &start);
    if (check_limits(d)) check_host(d);
    return true;
}

static status run(const struct command_line *line) {
    struct doctor d = {.line = line, .env = {.world_size = 1, .local_world_size = 1}, .pipe = -1};
    status s = OK;
    if (check_job(&d)) {
        print_findings(&d);
        s = summary(&d);
    }
    for (size_t i = 0; i < d.count; i++) free(d.sentences[i]);
    free(d.findings), free(d.sentences);
    free(d.folder);
    config_free(d.file);
    sweep_free(d.sweep);
    return s;
}

const struct subcommand subcommand_doctor = {
    .name = "doctor",
    .arguments = "[CONFIG|SWEEP] [KEY=VALUE ...]",
    .takes_overrides = true,
    .help = "find what would stop a job here or make it slow, and what to do; change nothing",
    .run = run,
    .options = OPTION_CPU_BIND | OPTION_FRESH | OPTION_RUN_DIR,
    .operand = "config",
    .needs_no_operand = true,
    .accepts_run = true,
};
