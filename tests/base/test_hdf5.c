/* hdf5_try_in_child: what a file does to the child is a sentence, and the caller lives on. ctest-labels: unit */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hdf5.h"
#include "check_main.h"
#include "files.h"

static void end_by(void *context) {
    int number = *(int *)context;
    if (number == 0) return;
    if (number < 0) _exit(-number); /* a sanitizer's report */
    signal(number, SIG_DFL);
    raise(number);
}

static status try_end(int number) { return hdf5_try_in_child("a.h5", end_by, &number); }

START_TEST(the_child_contains_a_crash) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL, -1, -99};
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        ck_failure(try_end(crashes[i]), STATUS_DATA,
                   "a.h5: it crashed the HDF5 library; the file is damaged or crafted");
    ck_failure(try_end(SIGXCPU), STATUS_DATA, "a.h5: the HDF5 library found no end of it in 60 s");
    ck_failure(try_end(SIGKILL), STATUS_DATA,
               "a.h5: the process that checked it was killed; is there too little memory?");
    ck_ok(try_end(0));
}
END_TEST

static int changes;
static void change(void *context) {
    (void)context;
    changes++;
    if (H5Fopen("/nowhere", H5F_ACC_RDONLY, H5P_DEFAULT) >= 0) _exit(1);
}

/* The child uses the library within the caller's lock, and changes nothing of the caller. */
START_TEST(the_child_is_a_copy) {
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    ck_ok(hdf5_try_in_child("a.h5", change, NULL));
    hdf5_leave(&silence);
    ck_assert_int_eq(changes, 0);
}
END_TEST

static void be_asked_to_stop(void *unused) {
    (void)unused;
    raise(SIGTERM);
    raise(SIGINT);
}

/* A request to stop is the parent's, also when the terminal sends it to the child. */
START_TEST(the_child_ignores_requests_to_stop) { ck_ok(hdf5_try_in_child("a.h5", be_asked_to_stop, NULL)); }
END_TEST

/* An end that nobody reports is no proof that the file is good. */
START_TEST(an_end_that_is_not_reported_is_a_failure) {
    signal(SIGCHLD, SIG_IGN);
    ck_failure(try_end(SIGSEGV), STATUS_IO, "a.h5: cannot wait for the process that checks it");
}
END_TEST

TESTS("hdf5", the_child_contains_a_crash, the_child_is_a_copy, the_child_ignores_requests_to_stop,
      an_end_that_is_not_reported_is_a_failure)
