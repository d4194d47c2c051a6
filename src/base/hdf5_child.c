/* The child is a fork: it sees the very bytes that the caller is going to parse, and needs no program to start. One
 * lock for all calls of libhdf5 means that no other thread is inside the library at the fork; glibc takes care of
 * malloc. A file of its own, so that a test that is not about the child can bring another hdf5_try_in_child
 * (tests/hdf5_in_process.h). */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/hdf5.h"
#include "base/signals.h"

/* A sanitizer's report is a crash, too: its exit code is none of ours. */
static void run_child(hdf5_look *look, void *context, pid_t parent, const sigset_t *mask) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGXCPU};
    struct rlimit seconds = {HDF5_MAX_SECONDS, HDF5_MAX_SECONDS + 1}, core = {0, 0};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(0);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++) signal(crashes[i], SIG_DFL);
    signals_ignore_stops(); /* they are for the parent, which kills the child when it ends */
    sigprocmask(SIG_SETMASK, mask, NULL);
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_CORE, &core);
    look(context);
    _exit(0);
}

status hdf5_try_in_child(const char *path, hdf5_look *look, void *context) {
    pid_t parent = getpid();
    int end = 0;
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);
    pid_t child = fork();
    if (child == 0) run_child(look, context, parent, &mask);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    if (child < 0) return OK;
    while (waitpid(child, &end, 0) < 0)
        if (errno != EINTR)
            return status_errno(STATUS_IO, errno, "%s: cannot wait for the process that checks it", path);
    if (WIFEXITED(end) && WEXITSTATUS(end) == 0) return OK;
    if (WIFSIGNALED(end) && WTERMSIG(end) == SIGXCPU)
        return status_new(STATUS_DATA,
                          "%s: the HDF5 library found no end of it in %d s; the file is damaged or crafted", path,
                          HDF5_MAX_SECONDS);
    if (WIFSIGNALED(end) && WTERMSIG(end) == SIGKILL)
        return status_new(STATUS_DATA, "%s: the process that checked it was killed; is there too little memory?", path);
    return status_new(STATUS_DATA, "%s: it crashed the HDF5 library; the file is damaged or crafted", path);
}
