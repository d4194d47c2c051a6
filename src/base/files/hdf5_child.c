/* The child is a fork: it sees the very bytes that the caller is going to parse, and needs no program to start. One
 * lock for all calls of libhdf5 means that no other thread is inside the library at the fork; glibc takes care of
 * malloc. What the child found comes back through a pipe. A file of its own, so that a test that is not about the child
 * can bring another hdf5_try_in_child (tests/hdf5_in_process.h). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/hdf5.h"
#include "base/system/signals.h"

/* The status of [look]; one write of it is not split (PIPE_BUF). */
struct child_report {
    int code;
    char sentence[2048];
};

/* ---- in the child ---- */

/* More than the child has at the fork: with a GPU or a sanitizer that is terabytes of addresses. */
static void limit_memory(void) {
    char text[64] = "";
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    unsigned long long pages;
    struct rlimit limit;
    if (fd >= 0) close(fd);
    if (size <= 0 || sscanf(text, "%llu", &pages) != 1 || getrlimit(RLIMIT_AS, &limit) != 0) return;
    rlim_t max = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + HDF5_MAX_MEMORY;
    if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur <= max) return;
    limit.rlim_cur = max;
    setrlimit(RLIMIT_AS, &limit);
}

/* Where memory runs out for all, the kernel ends the child and not a rank. */
static void be_killed_first(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    ssize_t written = fd < 0 ? 0 : write(fd, "1000", 4);
    (void)written; /* without it the parent may be chosen */
    if (fd >= 0) close(fd);
}

static void send_report(int out, status s) {
    struct child_report report = {.code = (int)status_code(s)};
    snprintf(report.sentence, sizeof report.sentence, "%s", status_message(s));
    ssize_t written = write(out, &report, sizeof report);
    _exit(written == sizeof report ? 0 : 1);
}

/* A sanitizer's report is a crash, too: its exit code is none of ours. */
static void run_child(hdf5_look *look, void *context, int out, pid_t parent, const sigset_t *mask) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU};
    struct rlimit seconds = {HDF5_MAX_SECONDS, HDF5_MAX_SECONDS + 1}, core = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    signals_ignore_stops(); /* they are for the parent, which kills the child when it ends; all but SIGXCPU */
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) signal(crashes[i], SIG_DFL);
    sigset_t own = *mask;
    sigdelset(&own, SIGXCPU);
    signals_restore(&own);
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &core);
    limit_memory();
    be_killed_first();
    send_report(out, status_catch_memory(look, context)); /* not that of the parent, of which this is a copy */
}

/* ---- in the parent ---- */

/* Whether the child has reported or ended before [deadline]. */
static bool wait_for_report(int in, double deadline) {
    for (;;) {
        int left = clock_milliseconds_until(deadline);
        struct pollfd end = {.fd = in, .events = POLLIN};
        int ready = poll(&end, 1, left);
        if (ready > 0) return true;
        if (left == 0 || (ready < 0 && errno != EINTR)) return false;
    }
}

/* Whether the process computes, or would if it had a processor, and waits for nothing. */
static bool is_running(pid_t process) {
    char path[32], text[512] = "";
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    const char *name_end = size > 0 ? strrchr(text, ')') : NULL; /* "12 (name) R ..." */
    return name_end && strncmp(name_end, ") R", 3) == 0;
}

/* A process that waits for a disk cannot always be killed; it is not waited for, either. */
static status give_up(const char *path, pid_t child, double seconds) {
    bool computes = is_running(child);
    kill(child, SIGKILL);
    for (int i = 0; i < 100 && waitpid(child, NULL, WNOHANG) == 0; i++) clock_sleep(0.01);
    if (computes)
        return status_new(STATUS_IO,
                          "%s: the HDF5 library found no end of it in %g s; the file is damaged or crafted, or this "
                          "machine is very busy",
                          path, seconds);
    return status_new(
        STATUS_IO,
        "%s: the process that checks it did not end in %g s; does the disk or the network file system answer?", path,
        seconds);
}

static status describe_end(const char *path, int end) {
    if (WIFSIGNALED(end) && WTERMSIG(end) == SIGXCPU)
        return status_data("%s: the HDF5 library found no end of it in %d s; the file is damaged or crafted", path,
                           HDF5_MAX_SECONDS);
    if (WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL)
        return status_new(STATUS_IO, "%s: the process that checked it was killed; is there too little memory?", path);
    return status_data("%s: it crashed the HDF5 library; the file is damaged or crafted", path);
}

/* 0 or an errno value: ECHILD where the program that uses this code ignores its children or waits for all of them. */
static int wait_for_end(pid_t child, int *end) {
    while (waitpid(child, end, 0) < 0)
        if (errno != EINTR) return errno;
    return 0;
}

static status wait_for(const char *path, pid_t child, int in, double seconds) {
    struct child_report report;
    int end = 0;
    if (!wait_for_report(in, clock_seconds() + seconds)) return give_up(path, child, seconds);
    ssize_t got = read(in, &report, sizeof report); /* 0: it ended without one */
    int error = wait_for_end(child, &end);
    if (got != sizeof report && error)
        return status_errno(STATUS_IO, error, "%s: cannot wait for the process that checks it", path);
    if (got != sizeof report) return describe_end(path, end);
    return report.code == STATUS_OK ? OK : status_new((enum status_code)report.code, "%s", report.sentence);
}

status hdf5_try_for(const char *path, double seconds, hdf5_look *look, void *context) {
    pid_t parent = getpid();
    int ends[2];
    sigset_t mask;
    if (pipe2(ends, O_CLOEXEC) != 0) return OK;
    signals_block_all(&mask);
    pid_t child = fork();
    if (child == 0) run_child(look, context, ends[1], parent, &mask);
    signals_restore(&mask);
    close(ends[1]);
    status s = child < 0 ? OK : wait_for(path, child, ends[0], seconds);
    close(ends[0]);
    return s;
}

status hdf5_try_in_child(const char *path, hdf5_look *look, void *context) {
    return hdf5_try_for(path, HDF5_MAX_WAIT, look, context);
}
