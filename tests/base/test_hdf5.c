/* hdf5_try_in_child: a crash of the child is a failure, and the caller continues. ctest-labels: unit */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/hdf5.h"
#include "base/system/signals.h"
#include "check_main.h"
#include "files.h"

static status end_by(void *context) {
    int number = *(int *)context;
    if (number == 0) return OK;
    if (number < 0) _exit(-number); /* a sanitizer's report */
    signal(number, SIG_DFL);
    raise(number);
    return OK;
}

static status try_end(int number) { return hdf5_try_in_child("a.h5", end_by, &number); }

TEST(the_child_contains_a_crash) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, -1, -99};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        ck_failure(try_end(crashes[i]), STATUS_DATA,
                   "a.h5: it crashed the HDF5 library; the file is damaged or crafted");
    ck_failure(try_end(SIGXCPU), STATUS_DATA, "a.h5: the HDF5 library found no end of it in 60 s");
    ck_failure(try_end(SIGKILL), STATUS_IO, /* not a fault of the file: a retry may succeed */
               "a.h5: the process that checked it was killed; is there too little memory?");
    ck_ok(try_end(0));
}

static int changes;
static status change(void *context) {
    (void)context;
    changes++;
    if (H5Fopen("/nowhere", H5F_ACC_RDONLY, H5P_DEFAULT) >= 0) _exit(1);
    return OK;
}

/* The child uses libhdf5 under the caller's lock, and does not change the caller's memory. */
TEST(the_child_is_a_copy) {
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    ck_ok(hdf5_try_in_child("a.h5", change, NULL));
    hdf5_leave(&silence);
    ck_assert_int_eq(changes, 0);
}

static status be_asked_to_stop(void *unused) {
    (void)unused;
    raise(SIGTERM);
    raise(SIGINT);
    return OK;
}

/* The child ignores stop requests, which a terminal sends to it too. */
TEST(the_child_ignores_stop_requests) { ck_ok(hdf5_try_in_child("a.h5", be_asked_to_stop, NULL)); }

static status exceed_cpu_time(void *unused) {
    (void)unused;
    raise(SIGXCPU);
    return OK;
}

/* SIGXCPU is a stop request of the parent, whose thread may block it; the child ends by it. */
TEST(the_child_ends_by_its_limit_of_time) {
    signals_block_stops();
    ck_failure(hdf5_try_in_child("a.h5", exceed_cpu_time, NULL), STATUS_DATA,
               "a.h5: the HDF5 library found no end of it in 60 s");
}

/* An unknown exit status of the child is a failure. */
TEST(an_unknown_exit_status_is_a_failure) {
    signal(SIGCHLD, SIG_IGN);
    ck_failure(try_end(SIGSEGV), STATUS_IO, "a.h5: cannot wait for the process that checks it");
}

static void reap_all(int number) {
    (void)number;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

/* A program that uses libddptrain_predict.so may ignore its children or wait for all of them: the report suffices. */
TEST(a_report_needs_no_exit_status) {
    for (int i = 0; i < 20; i++) {
        signal(SIGCHLD, i % 2 ? SIG_IGN : reap_all);
        ck_ok(try_end(0));
    }
}

static status find_fault(void *sentence) { return status_new(STATUS_DATA, "%s", (char *)sentence); }

/* The failure of the child is returned, so the caller does not parse the file. */
TEST(a_failure_of_the_child_is_returned) {
    char sentence[5000];
    ck_failure(hdf5_try_in_child("a.h5", find_fault, "a.h5: 100 % wrong"), STATUS_DATA, "a.h5: 100 % wrong");
    memset(sentence, 'x', sizeof sentence);
    sentence[sizeof sentence - 1] = 0;
    ck_failure(hdf5_try_in_child("a.h5", find_fault, sentence), STATUS_DATA, "xxx");
}

/* Simulates a disk that does not respond with a stopped process. */
static status wait_for_ever(void *file) {
    int *out = file;
    pid_t own = getpid();
    if (write(*out, &own, sizeof own) == sizeof own) raise(SIGSTOP);
    return OK;
}

TEST(a_child_that_hangs_is_killed) {
    int ends[2];
    pid_t child;
    ck_assert_int_eq(pipe(ends), 0);
    double start = clock_seconds();
    ck_failure(hdf5_try_for("a.h5", 3, wait_for_ever, &ends[1]), STATUS_IO,
               "a.h5: the process that checks it did not end in 3 s; does the disk or the network file system "
               "answer?");
    ck_assert_double_lt(clock_seconds() - start, 100);
    ck_assert_int_eq(read(ends[0], &child, sizeof child), sizeof child);
    ck_assert(kill(child, 0) != 0); /* the child does not exist any more */
    close(ends[0]), close(ends[1]);
}

static status compute_for_ever(void *unused) {
    volatile unsigned i = 1;
    (void)unused;
    while (i) i |= 1;
    return OK;
}

TEST(a_child_that_computes_without_end_is_named) {
    ck_failure(hdf5_try_for("a.h5", 3, compute_for_ever, NULL), STATUS_IO,
               "a.h5: the HDF5 library found no end of it in 3 s; the file is damaged or crafted, or this machine is "
               "very busy");
}

static status want_memory(void *size) {
    size_t bytes = *(size_t *)size;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory != MAP_FAILED ? OK : status_new(STATUS_DATA, "no memory");
}

TEST(the_child_has_a_limit_of_memory) {
    size_t little = HDF5_MAX_MEMORY / 8, much = HDF5_MAX_MEMORY + 1;
    ck_ok(hdf5_try_in_child("a.h5", want_memory, &little));
    ck_failure(hdf5_try_in_child("a.h5", want_memory, &much), STATUS_DATA, "no memory");
}

static status read_score(void *unused) {
    (void)unused;
    FILE *f = fopen("/proc/self/oom_score_adj", "r");
    int score = 0;
    if (!f || fscanf(f, "%d", &score) != 1) score = -1;
    if (f) fclose(f);
    return score == 1000 ? OK : status_new(STATUS_DATA, "%d", score);
}

/* Without memory the kernel kills the child, not the caller. */
TEST(the_child_is_killed_first) { ck_ok(hdf5_try_in_child("a.h5", read_score, NULL)); }

static void *enter_and_leave(void *unused) {
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    hdf5_leave(&silence);
    return unused;
}

/* Else the other thread would wait for ever. */
TEST(a_lock_that_was_left_behind_is_released) {
    struct hdf5_silence outer, inner;
    pthread_t other;
    hdf5_enter(&outer);
    hdf5_enter(&inner);
    hdf5_leave_all();
    hdf5_leave_all(); /* does nothing */
    ck_assert_int_eq(pthread_create(&other, NULL, enter_and_leave, NULL), 0);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
}

static void *leave_all(void *unused) {
    hdf5_leave_all();
    return unused;
}

/* What another thread has is not released: what it releases itself would be counted twice, and the last call not end.
 */
TEST(the_lock_of_another_thread_stays) {
    struct hdf5_silence silence;
    pthread_t other;
    hdf5_enter(&silence);
    ck_assert_int_eq(pthread_create(&other, NULL, leave_all, NULL), 0);
    ck_assert_int_eq(pthread_join(other, NULL), 0);
    hdf5_leave(&silence);
    hdf5_leave_all();
}

CHECK_MAIN("hdf5")
