/* slot: jobs that wait for a busy worker are begun in the order in which they were sent, and there are more of them the
 * shorter the last runs were. ctest-labels: unit */
#include "sweep/workers/slot.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check_main.h"
#include "files.h"

/* More than the ring has places, so that it wraps. */
TEST(jobs_are_begun_in_their_order) {
    static struct worker_slot slot;
    int ends[2];
    int64_t sent = 1, begun = 0, runs[SLOT_MAX_AHEAD];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    slot = (struct worker_slot){.pid = 1, .fd = ends[0], .is_busy = true, .job = {.run = 0}};
    while (begun < 100) {
        while (slot.ahead_count < SLOT_MAX_AHEAD - (int)(begun % 5) && sent < 100)
            slot_send_ahead(&slot, &(struct worker_job){.run = sent++});
        int count = slot_list_ahead(&slot, runs);
        ck_assert_int_eq(count, slot.ahead_count);
        for (int i = 0; i < count; i++) ck_assert_int_eq(runs[i], begun + 1 + i);
        ck_assert(slot.is_busy);
        ck_assert_int_eq(slot.job.run, begun++);
        slot_end_job(&slot, 0.001);
        struct worker_job job;
        if (begun < 100) ck_assert(recv(ends[1], &job, sizeof job, 0) > 0);
        if (begun < 100) ck_assert_int_eq(job.run, begun);
    }
    ck_assert(!slot.is_busy && slot.ahead_count == 0);
    close(ends[0]);
    close(ends[1]);
}

TEST(short_runs_have_more_jobs_that_wait) {
    SCOPED_MEMORY struct worker_slot *slot = calloc(1, sizeof *slot);
    ck_assert_int_eq(slot_wanted_ahead(slot), 0); /* nothing is known */
    slot_end_job(slot, 1e-5);
    ck_assert_int_eq(slot_wanted_ahead(slot), SLOT_MAX_AHEAD);
    slot_end_job(slot, 0.04); /* a mean of 0.01 */
    ck_assert_int_eq(slot_wanted_ahead(slot), 9);
    slot_end_job(slot, 10);
    ck_assert_int_eq(slot_wanted_ahead(slot), 0);
    for (int i = 0; i < 40; i++) slot_end_job(slot, 0);
    ck_assert_int_eq(slot_wanted_ahead(slot), SLOT_MAX_AHEAD);
    slot->connection = (void *)slot; /* of another rank */
    ck_assert_int_eq(slot_wanted_ahead(slot), 0);
}

/* A worker that exits with code 0 was stopped between two runs: that is no loss of the job that it was to begin. */
TEST(a_worker_that_ends_with_a_job) {
    static const struct {
        int code;
        const char *how;
    } cases[] = {{0, ""}, {3, "exited with code 3"}, {-1, "was ended by signal 9 (Killed)"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct worker_slot slot;
        struct worker_report report;
        SCOPED_TEXT how = {0};
        bool got, is_lost = false;
        int ends[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
        pid_t pid = fork();
        if (pid == 0 && cases[i].code < 0) raise(SIGKILL);
        if (pid == 0) _exit(cases[i].code);
        slot = (struct worker_slot){.pid = pid, .fd = ends[0], .is_busy = true, .job = {.run = 4}};
        slot_send_ahead(&slot, &(struct worker_job){.run = 5});
        close(ends[1]);
        ck_ok(slot_receive(&slot, &report, &got, &is_lost, &how));
        ck_assert(is_lost && !slot_is_used(&slot) && !slot.is_busy);
        ck_assert_str_eq(text_string(&how), cases[i].how);
    }
}

CHECK_MAIN("slot")
