/* Which rank is lost, which one hangs, and which one is the root cause, with simulated time. */
#include "dist/store/store_members.h"

#include <stdio.h>
#include <string.h>

#include "check_main.h"

static double link_ages[8];

static double link_age(void *data, int rank) {
    (void)data;
    return link_ages[rank];
}

static struct members *all_joined(int world, double hang) {
    struct members *m = members_create(world, world, (struct members_limits){.hang = hang, .slow = 600}, 0);
    memset(link_ages, 0, sizeof link_ages);
    for (int r = 0; r < world; r++) {
        char process[64];
        snprintf(process, sizeof process, "host n%d, pid %d", r, 70 + r);
        members_join(m, r, process, 0);
    }
    return m;
}

/* The heartbeat of a rank in step 7 with [ticks] of progress. */
static struct activity_snapshot reading_of(enum activity_phase phase, uint64_t ticks, bool is_waiting, double median) {
    return (struct activity_snapshot){.phase = phase,
                                      .step = 7,
                                      .ticks = ticks,
                                      .is_in_collective = is_waiting,
                                      .call = "all_reduce",
                                      .number = is_waiting ? 18 : 17,
                                      .median_step = median};
}

static void send_heartbeat(struct members *m, int rank, enum activity_phase phase, uint64_t ticks, bool is_waiting,
                           double median, double now) {
    struct activity_snapshot r = reading_of(phase, ticks, is_waiting, median);
    r.cpu = now;
    members_heartbeat(m, rank, &r, now);
}

/* Every rank sends the same heartbeat five times a second. Returns the time at which the cause is known; 0: none before
 * [end]. */
static double time_of_cause(struct members *m, int world, struct activity_snapshot *readings, double end) {
    for (int i = 1; i * 0.2 < end; i++) {
        double now = i * 0.2;
        for (int r = 0; r < world; r++) {
            readings[r].cpu = now;
            members_heartbeat(m, r, &readings[r], now);
        }
        members_check(m, now, link_age, NULL);
        if (members_cause(m, now) >= 0) return now;
    }
    return 0;
}

static void expect(struct members *m, int rank, const char *expected) {
    SCOPED_TEXT text = {0};
    members_describe(m, rank, &text);
    ck_assert_msg(strstr(text.data, expected), "%s", text.data);
}

static const struct {
    enum activity_phase phase;
    double median, hang, min, max; /* seconds; max 0: never */
} hangs[] = {
    {ACTIVITY_FORWARD, 0.01, 10, 10, 10.5},
    {ACTIVITY_BACKWARD, 0.01, 10, 10, 10.5},
    {ACTIVITY_UPDATING, 0.01, 3, 3, 3.5},
    {ACTIVITY_FORWARD, 2, 10, 40, 40.5}, /* long steps: 20 of them */
    {ACTIVITY_EVALUATING, 0.01, 10, 60, 60.5},
    {ACTIVITY_LOADING, 0.01, 10, 600, 601}, /* disks and the first step may be slow
                                             */
    {ACTIVITY_SAVING, 0.01, 10, 600, 601},
    {ACTIVITY_LOGGING, 0.01, 10, 600, 601},
    {ACTIVITY_STARTING, 0, 10, 600, 601},
    {ACTIVITY_FORWARD, 0, 10, 600, 601},
    {ACTIVITY_FORWARD, 0.01, 0, 0, 0}, /* switched off */
};

TEST_EACH(hang_is_detected_at_its_limit, hangs) {
    struct members *m = all_joined(3, hangs[_i].hang);
    struct activity_snapshot waiting = reading_of(ACTIVITY_BACKWARD, 41, true, hangs[_i].median);
    struct activity_snapshot readings[] = {waiting, reading_of(hangs[_i].phase, 40, false, hangs[_i].median), waiting};
    double at = time_of_cause(m, 3, readings, 700);
    ck_assert_msg(at >= hangs[_i].min && at <= hangs[_i].max, "%g", at);
    if (hangs[_i].max > 0) {
        ck_assert_int_eq(members_cause(m, at), 1);
        ck_assert(members_hung(m, 1) && !members_hung(m, 0));
        if (hangs[_i].phase == ACTIVITY_STARTING) {
            expect(m, 1, "rank 1 (host n1, pid 71) hangs before its first batch, after all_reduce #17");
        } else {
            expect(m, 1, "rank 1 (host n1, pid 71) hangs in ");
            expect(m, 1, activity_phase_name((int)hangs[_i].phase));
            expect(m, 1, "of step 8, after all_reduce #17");
        }
        expect(m, 1, "2 of 3 wait in all_reduce #18");
    }
    members_destroy(m);
}

/* `eval` and `predict` have no steps. */
TEST(phases_without_steps) {
    static const struct {
        enum activity_phase phase;
        int64_t step;
        const char *expected;
    } cases[] = {{ACTIVITY_PREDICTING, 0, "; last seen in predicting, after all_gather #2"},
                 {ACTIVITY_EVALUATING, 0, "; last seen in evaluating, after all_gather #2"},
                 {ACTIVITY_EVALUATING, 6, "; last seen in evaluating of step 7, after all_gather #2"},
                 {ACTIVITY_SAVING, 0, "; last seen in saving, after all_gather #2"},
                 {ACTIVITY_SAVING, 6, "; last seen in saving of step 7, after all_gather #2"},
                 {ACTIVITY_LOADING, 0, "; last seen in loading data of step 1, after all_gather #2"},
                 {ACTIVITY_STARTING, 0, "; last seen before its first batch, after all_gather #2"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED_TEXT text = {0};
        struct activity_snapshot reading = {
            .phase = cases[i].phase, .step = cases[i].step, .ticks = 3, .call = "all_gather", .number = 2};
        members_last_seen(&reading, &text);
        ck_assert_str_eq(text_string(&text), cases[i].expected);
    }
}

/* The launcher has not reported how the rank ended; the last heartbeat shows where. */
TEST(last_heartbeat_is_in_the_message) {
    struct members *m = all_joined(2, 10);
    struct activity_snapshot reading = {.phase = ACTIVITY_FORWARD, .step = 4, .ticks = 3};
    struct text text = {0};
    members_heartbeat(m, 1, &reading, 0.1);
    members_leave(m, 1, MEMBER_FAILED, STATUS_PEER, NULL, 0.2);
    members_describe(m, 1, &text);
    ck_assert_msg(strstr(text_string(&text), ") exited without reporting an error; last seen in forward of step 5"),
                  "%s", text.data);
    text_free(&text);
    members_destroy(m);
}

/* A slow rank that makes progress does not hang, nor does a job in which no rank waits. */
TEST(progress_is_no_hang) {
    struct members *m = all_joined(2, 10);
    for (int i = 1; i < 500; i++) {
        double now = i * 0.2;
        send_heartbeat(m, 0, ACTIVITY_BACKWARD, 41, true, 0.01, now);
        send_heartbeat(m, 1, ACTIVITY_EVALUATING, 40 + (uint64_t)(i / 40), false, 0.01, now); /* a batch every 8 s */
        members_check(m, now, link_age, NULL);
    }
    for (int i = 500; i < 1000; i++) {
        double now = i * 0.2;
        for (int r = 0; r < 2; r++) send_heartbeat(m, r, ACTIVITY_FORWARD, 50, false, 0.01, now);
        members_check(m, now, link_age, NULL);
    }
    ck_assert_int_eq(members_cause(m, 200), -1);
    members_destroy(m);
}

/* Both wait, but rank 1 in an earlier collective. */
TEST(rank_that_is_behind_hangs) {
    struct members *m = all_joined(2, 10);
    struct activity_snapshot waiting = reading_of(ACTIVITY_BACKWARD, 40, true, 0.01), readings[] = {waiting, waiting};
    readings[1].number = 17;
    ck_assert_int_eq(members_cause(m, time_of_cause(m, 2, readings, 20)), 1);
    members_destroy(m);
}

TEST(all_wait_for_each_other) {
    struct members *m = all_joined(2, 10);
    struct activity_snapshot waiting = reading_of(ACTIVITY_BACKWARD, 41, true, 0.01), readings[] = {waiting, waiting};
    double at = time_of_cause(m, 2, readings, 20);
    ck_assert(at >= 10 && at < 11);
    expect(m, members_cause(m, at), "hangs after backward of step 8, in all_reduce #18");
    members_destroy(m);
}

/* Rank 1 sends its last heartbeat at 1 s. Returns the time at which it is lost; 0: never. */
static double time_of_loss(struct members *m, bool has_link) {
    for (int i = 1; i < 100; i++) {
        double now = i * 0.2;
        send_heartbeat(m, 0, ACTIVITY_FORWARD, (uint64_t)i, false, 0.01, now);
        if (now <= 1) send_heartbeat(m, 1, ACTIVITY_SAVING, (uint64_t)i, false, 0.01, now);
        link_ages[1] = has_link || now < 1 ? 0.1 : now - 1;
        members_check(m, now, link_age, NULL);
        if (members_cause(m, now) >= 0) return now;
    }
    return 0;
}

TEST(unreachable_and_stopped_ranks_differ) {
    struct members *m = all_joined(2, 10);
    double at = time_of_loss(m, false);
    ck_assert(at > 4.4 && at < 5);
    expect(m, 1, "is unreachable: its host has not answered for 3.");
    expect(m, 1, "last seen in saving of step 8, after all_reduce #17");
    members_destroy(m);
    m = all_joined(2, 10);
    at = time_of_loss(m, true);
    ck_assert(at > 8.9 && at < 9.5);
    expect(m, 1, "hangs: its process has not run for 8.");
    members_destroy(m);
}

/* This process did not run for a minute (a suspended machine). */
TEST(pause_of_the_server_loses_no_rank) {
    struct members *m = all_joined(2, 10);
    for (int i = 1; i < 100; i++) {
        double now = i < 50 ? i * 0.2 : 60 + i * 0.2;
        if (i != 50) /* the heartbeats are read after the check */
            for (int r = 0; r < 2; r++) send_heartbeat(m, r, ACTIVITY_FORWARD, 5 + (uint64_t)i, r == 0, 0.01, now);
        members_check(m, now, link_age, NULL);
        if (i <= 50) ck_assert_int_eq(members_cause(m, now), -1);
    }
    members_destroy(m);
}

/* Rank 0 waits for rank 1, which hangs, before and after the pause. */
TEST(pause_of_the_server_is_no_time_of_a_hang) {
    struct members *m = all_joined(2, 10);
    double found = 0;
    for (int i = 1; i < 100 && found == 0; i++) {
        double now = i <= 25 ? i * 0.2 : 60 + i * 0.2;
        if (i != 26) /* the heartbeats are read after the check */
            for (int r = 0; r < 2; r++) send_heartbeat(m, r, ACTIVITY_FORWARD, 5, r == 0, 0.01, now);
        members_check(m, now, link_age, NULL);
        if (members_cause(m, now) >= 0) found = now;
    }
    ck_assert_msg(found > 60 + 10 && found < 60 + 11, "found at %g", found);
    ck_assert_int_eq(members_cause(m, found), 1);
    members_destroy(m);
}

TEST(first_cause_is_final) {
    struct members *m = all_joined(4, 10);
    members_leave(m, 0, MEMBER_LOST_PEER, STATUS_PEER, ": lost a peer", 1.0);
    ck_assert_int_eq(members_cause(m, 1.1), -1); /* the cause may still be reported */
    members_leave(m, 2, MEMBER_FAILED, STATUS_PEER, NULL, 1.2);
    ck_assert_int_eq(members_cause(m, 1.25), -1);
    members_exited(m, 2, " was killed by SIGKILL", 1.27);
    ck_assert_int_eq(members_cause(m, 1.28), 2);
    expect(m, 2, "rank 2 (host n2, pid 72) was killed by SIGKILL");
    members_leave(m, 1, MEMBER_FAILED, STATUS_DATA, ": bad data", 1.29); /* too late */
    ck_assert_int_eq(members_cause(m, 2), 2);
    members_destroy(m);

    m = all_joined(2, 10); /* no other report: the rank that lost a peer is the cause */
    members_leave(m, 1, MEMBER_LOST_PEER, STATUS_PEER, ": lost a peer", 1.0);
    ck_assert(members_cause_time(m, 99) < 1.31);
    ck_assert_int_eq(members_cause(m, 1.31), 1);
    members_destroy(m);

    m = all_joined(3, 10); /* the launcher reports before the connection ends */
    members_exited(m, 1, " was killed by SIGSEGV", 1.0);
    members_leave(m, 1, MEMBER_FAILED, STATUS_PEER, NULL, 1.1);
    ck_assert_int_eq(members_cause(m, 1.1), 1);
    expect(m, 1, "SIGSEGV");
    members_leave(m, 0, MEMBER_LEFT, STATUS_OK, NULL, 1.2);
    members_destroy(m);

    m = all_joined(3, 10); /* leaving without a failure is not a cause */
    for (int r = 1; r < 3; r++) members_leave(m, r, MEMBER_LEFT, STATUS_OK, NULL, 1.0);
    ck_assert_int_eq(members_cause(m, 5), -1);
    ck_assert(members_is_alone(m, 0));
    members_destroy(m);

    m = all_joined(2, 10); /* a request to stop of rank 0 is not final at once */
    members_leave(m, 0, MEMBER_FAILED, STATUS_STOPPED, ": stopped on request", 1.0);
    ck_assert_int_eq(members_cause(m, 1.1), -1);
    ck_assert(!members_is_alone(m, 1));
    members_destroy(m);
}

TEST(failure_precedes_request_to_stop) {
    static const char reason[] = ": stopped on request before training began";
    struct members *m = all_joined(4, 10); /* a failure that is reported after a request to stop */
    members_leave(m, 1, MEMBER_FAILED, STATUS_STOPPED, reason, 1.0);
    ck_assert_int_eq(members_cause(m, 1.1), -1);
    members_leave(m, 2, MEMBER_FAILED, STATUS_DATA, ": bad data", 1.2);
    ck_assert_int_eq(members_cause(m, 1.2), 2);
    members_destroy(m);

    m = all_joined(4, 10); /* the connection of another rank ends before the failure is reported */
    members_leave(m, 1, MEMBER_FAILED, STATUS_PEER, NULL, 1.0);
    members_leave(m, 2, MEMBER_FAILED, STATUS_DATA, ": bad data", 1.2);
    ck_assert_int_eq(members_cause(m, 1.2), 2);
    members_destroy(m);

    m = all_joined(4, 10); /* the end of a rank is reported after a request to stop */
    members_leave(m, 2, MEMBER_FAILED, STATUS_PEER, NULL, 1.0);
    members_leave(m, 1, MEMBER_FAILED, STATUS_STOPPED, reason, 1.1);
    members_exited(m, 2, " was killed by SIGKILL", 1.2);
    ck_assert_int_eq(members_cause(m, 1.2), 2);
    members_destroy(m);

    m = all_joined(4, 10); /* a request to stop to all, and one exits without reporting an error */
    members_leave(m, 2, MEMBER_FAILED, STATUS_PEER, NULL, 1.0);
    members_leave(m, 1, MEMBER_FAILED, STATUS_STOPPED, reason, 1.1);
    ck_assert_int_eq(members_cause(m, 1.31), 1);
    members_destroy(m);
}

TEST(rank_without_heartbeat_is_lost) {
    struct members *m = all_joined(2, 10);
    double now = 0;
    for (int i = 1; members_cause(m, now) < 0 && i < 100; i++) {
        now = i * 0.2;
        send_heartbeat(m, 0, ACTIVITY_STARTING, 1, false, 0, now);
        members_check(m, now, link_age, NULL);
    }
    ck_assert_double_eq_tol(now, MEMBERS_STOPPED_SECONDS, 0.21);
    expect(m, 1,
           "hangs: its process has not run for 8.0 s although its host answers (is it stopped?); last seen when it "
           "joined the other ranks");
    members_destroy(m);
}

TEST(missing_ranks_are_listed) {
    struct members *m = members_create(4, 2, (struct members_limits){.slow = 600}, 0);
    struct text text = {0};
    members_join(m, 0, "host a, pid 1", 0);
    members_join(m, 1, "host a, pid 2", 0);
    members_missing_by_node(m, &text);
    ck_assert_str_eq(text.data, "2 of 4 ranks: 2 (node 1), 3 (node 1)");
    text_clear(&text);
    members_missing(m, &text);
    ck_assert_str_eq(text.data, "ranks 2, 3");
    text_free(&text);
    members_destroy(m);
}

/* Its launcher reports how it ended; it does not count as joined. */
TEST(rank_that_ended_before_it_joined_is_the_cause) {
    struct members *m = members_create(3, 3, (struct members_limits){.slow = 600}, 0);
    struct text text = {0};
    members_join(m, 0, "host a, pid 1", 0);
    members_join(m, 1, "host b, pid 2", 0);
    members_add_unjoined(m, 2, "host b", 1);
    members_exited(m, 2, " was killed by SIGKILL; last seen starting", 1);
    members_leave(m, 1, MEMBER_LOST_PEER, STATUS_PEER, ": ended by its launcher", 1);
    ck_assert_int_eq(members_cause(m, 1), 2);
    members_describe(m, 2, &text);
    ck_assert_str_eq(text.data, "rank 2 (host b) was killed by SIGKILL; last seen starting");
    ck_assert_int_eq(members_joined(m), 2);
    text_free(&text);
    members_destroy(m);
}

CHECK_MAIN("store_members")
