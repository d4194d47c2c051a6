/* The store between processes, its failures, and untrusted clients on its port. ctest-labels: dist fault */
#include "store_ranks.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>

#include "base/stop.h"
#include "base/text.h"
#include "check_main.h"
#include "dist/process/launcher_channel.h"
#include "dist/store/store_frame.h"
#include "dist/store/store_server.h"

/* ---- keys ---- */

/* More keys than the table has slots at first: it grows several times, and each value stays. */
TEST(many_keys) {
    struct store_keys *keys = store_keys_create();
    ck_assert_ptr_nonnull(keys);
    char key[32];
    size_t size;
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "k/%d", i);
        ck_assert(store_keys_set(keys, key, &i, sizeof i));
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "k/%d", i);
        const uint8_t *value = store_keys_get(keys, key, &size);
        ck_assert(value && size == sizeof i && memcmp(value, &i, size) == 0);
    }
    ck_assert_ptr_null(store_keys_get(keys, "k/20000", &size));
    for (int i = 0; i < 20001; i += 2) {
        snprintf(key, sizeof key, "k/%d", i);
        store_keys_remove(keys, key);
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "k/%d", i);
        const uint8_t *value = store_keys_get(keys, key, &size);
        ck_assert(i % 2 ? value && memcmp(value, &i, size) == 0 : value == NULL);
    }
    store_keys_destroy(keys);
}

static void keys_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    char key[300], *value;
    size_t size;
    for (int i = 0; i < 50; i++) {
        snprintf(key, sizeof key, "k/%d/%d", env->rank, i);
        rank_must(store_set(store, key, key, strlen(key)));
    }
    for (int r = 0; r < env->world_size; r++)
        for (int i = 49; i >= 0; i--) {
            snprintf(key, sizeof key, "k/%d/%d", r, i);
            rank_must(store_get(store, key, 20, (void **)&value, &size));
            RANK_CHECK(size == strlen(key) && strcmp(value, key) == 0);
            free(value);
        }
    /* the largest value, an empty one, one that is set late and replaced */
    static char large[STORE_MAX_VALUE + 1];
    memset(large, env->rank + 1, sizeof large);
    snprintf(key, sizeof key, "large/%d", env->rank);
    rank_must(store_set(store, key, large, STORE_MAX_VALUE));
    rank_must(store_get(store, key, 60, (void **)&value, &size));
    RANK_CHECK(size == STORE_MAX_VALUE && memcmp(value, large, size) == 0);
    free(value);
    memset(key, 'k', STORE_MAX_KEY);
    key[STORE_MAX_KEY] = 0;
    key[0] = (char)('0' + env->rank);
    rank_must(store_set(store, key, NULL, 0));
    rank_must(store_get(store, key, 60, (void **)&value, &size));
    RANK_CHECK(size == 0 && *value == 0);
    free(value);
    if (env->rank == 0) {
        clock_sleep(0.2);
        rank_must(store_set(store, "late", "1", 1));
        rank_must(store_set(store, "late", "22", 2));
        rank_must(store_set(store, "late done", NULL, 0));
    }
    rank_must(store_get(store, "late done", 60, (void **)&value, NULL));
    free(value);
    rank_must(store_get(store, "late", 60, (void **)&value, &size));
    RANK_CHECK(size == 2 && strcmp(value, "22") == 0);
    free(value);
    double start = clock_seconds();
    rank_expect(store_get(store, "never", 0.2, (void **)&value, &size), STATUS_PEER, "'never'");
    RANK_CHECK(value == NULL && clock_seconds() - start < 60);
    rank_expect(store_set(store, "", "x", 1), STATUS_BUG, "store_set");
    rank_expect(store_set(store, "x", large, STORE_MAX_VALUE + 1), STATUS_BUG, "store_set");
    char long_key[STORE_MAX_KEY + 2];
    memset(long_key, 'x', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = 0;
    rank_expect(store_get(store, long_key, 1, (void **)&value, &size), STATUS_BUG, "store_get");
    /* all ranks are done before one leaves */
    snprintf(key, sizeof key, "done/%d", env->rank);
    rank_must(store_set(store, key, NULL, 0));
    for (int r = 0; r < env->world_size; r++) {
        snprintf(key, sizeof key, "done/%d", r);
        rank_must(store_get(store, key, 20, (void **)&value, NULL));
        free(value);
    }
    store_close(store);
}

TEST_LOOP(keys, 1, 5) { ranks_run(_i, keys_body, NULL); }

/* The keys in the store, once there are [expected]; fails if there are others for 60 s. */
static void await_keys(const struct store *store, uint64_t expected) {
    struct store_traffic traffic = {.keys = UINT64_MAX};
    for (double end = clock_seconds() + 60; traffic.keys != expected && clock_seconds() < end; clock_sleep(0.001))
        store_count_traffic(store, &traffic);
    if (traffic.keys != expected) fprintf(stderr, "%d keys\n", (int)traffic.keys);
    RANK_CHECK(traffic.keys == expected);
}

/* Values for one rank leave the store when that rank takes them, also if it waits for them; so do the names of values
 * for which a rank has waited in vain. */
static void take_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    char key[64], *value;
    size_t size;
    int numbers[MAX_TEST_RANKS];
    for (int i = 0; i < 100; i++) {
        int from = (env->rank + 1) % env->world_size;
        snprintf(key, sizeof key, "%d/%d", env->rank, i);
        rank_must(store_set(store, key, key, strlen(key)));
        snprintf(key, sizeof key, "%d/%d", from, i);
        rank_must(store_take(store, key, 20, (void **)&value, &size));
        RANK_CHECK(strcmp(value, key) == 0);
        free(value);
    }
    rank_expect(store_take(store, key, 0.1, (void **)&value, &size), STATUS_PEER, "no rank has set");
    rank_must(store_number(store, "taken", NULL, 0, 20, numbers));
    if (env->rank == 0) await_keys(store, 0);
    rank_must(store_number(store, "counted", NULL, 0, 20, numbers));
    const char *got = "none"; /* all others wait for one value: one of them gets it */
    if (env->rank == 0) {
        clock_sleep(0.2);
        rank_must(store_set(store, "one", "x", 1));
    } else {
        status failure = store_take(store, "one", 5, (void **)&value, NULL);
        if (!failure) got = "one";
        status_free(failure);
        free(value);
    }
    rank_must(store_number(store, "one or none", got, strlen(got), 20, numbers));
    int takers = 0;
    for (int r = 0; r < env->world_size; r++) takers += numbers[r] == 1;
    RANK_CHECK(takers == 1);
    if (env->rank == 0) await_keys(store, 0);
    if (env->rank == 0) rank_must(store_set(store, "kept", "y", 1));
    rank_must(store_number(store, "set", NULL, 0, 20, numbers));
    rank_must(store_get(store, "kept", 20, (void **)&value, NULL));
    free(value);
    rank_must(store_number(store, "end", NULL, 0, 20, numbers));
    if (env->rank == 0) await_keys(store, 1);
    store_close(store);
}

TEST_LOOP(taken_keys_leave_the_store, 2, 6) { ranks_run(_i, take_body, NULL); }

TEST(world_of_one) {
    struct dist_env env = {.world_size = 1, .local_world_size = 1};
    struct store *store;
    void *value;
    size_t size;
    char address[64];
    ck_assert(store_open(&env, 1, &store) == OK);
    ck_assert(store_set(store, "a", "1", 2) == OK);
    ck_assert(store_get(store, "a", 1, &value, &size) == OK);
    ck_assert_str_eq(value, "1");
    free(value);
    ck_assert(store_take(store, "a", 1, &value, &size) == OK);
    ck_assert_str_eq(value, "1");
    free(value);
    status s = store_take(store, "a", 1, &value, &size);
    ck_assert_int_eq(status_code(s), STATUS_PEER);
    status_free(s);
    s = store_get(store, "b", 100, &value, &size);
    ck_assert_int_eq(status_code(s), STATUS_PEER);
    store_report(store, s);
    status_free(s);
    ck_assert(store_agree(store, "config", "x", 1) == OK);
    ck_assert(store_address(store, 1, address) == OK);
    ck_assert_str_eq(address, "127.0.0.1");
    struct text text = {0};
    ck_assert(!store_cause(store, 0, &text));
    store_close(store);
    store_close(NULL);
}

struct caller {
    struct store *store;
    int thread, rank;
};

static void *call_repeatedly(void *argument) {
    struct caller *h = argument;
    for (int i = 0; i < 100; i++) {
        char key[64], *value;
        snprintf(key, sizeof key, "t/%d/%d/%d", h->rank, h->thread, i);
        rank_must(store_set(h->store, key, key, strlen(key)));
        rank_must(store_get(h->store, key, 5, (void **)&value, NULL));
        RANK_CHECK(strcmp(value, key) == 0);
        free(value);
    }
    return NULL;
}

static void threads_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    pthread_t threads[4];
    struct caller callers[4];
    for (int i = 0; i < 4; i++) {
        callers[i] = (struct caller){store, i, env->rank};
        RANK_CHECK(pthread_create(&threads[i], NULL, call_repeatedly, &callers[i]) == 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    store_close(store);
}

TEST(several_threads) { ranks_run(2, threads_body, NULL); }

/* ---- gatherings ---- */

static void gather_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    int world = env->world_size, numbers[MAX_TEST_RANKS], index = -1;
    char *first, text[32];
    snprintf(text, sizeof text, "h%d", env->rank / 2);
    rank_must(store_number(store, "pairs", text, strlen(text), 20, numbers));
    for (int r = 0; r < world; r++) RANK_CHECK(numbers[r] == r / 2);
    snprintf(text, sizeof text, "h%d", env->rank % 2);
    rank_must(store_number(store, "turns", text, strlen(text), 20, numbers));
    for (int r = 0; r < world; r++) RANK_CHECK(numbers[r] == r % 2);
    rank_must(store_number(store, "empty", NULL, 0, 20, numbers));
    for (int r = 0; r < world; r++) RANK_CHECK(numbers[r] == 0);
    snprintf(text, sizeof text, "%d", world - env->rank); /* the highest rank has the lowest text */
    rank_must(store_number(store, "all different", text, strlen(text), 20, numbers));
    for (int r = 0; r < world; r++) RANK_CHECK(numbers[r] == r);
    rank_must(store_first(store, "none", env->rank, world, "", 20, &first, &index));
    RANK_CHECK(!first);
    snprintf(text, sizeof text, "rank %d", env->rank);
    rank_must(store_first(store, "first", world - 1 - env->rank, world, env->rank ? text : "", 20, &first, &index));
    RANK_CHECK(world == 1 ? !first : first && index == 0 && atoi(first + 5) == world - 1);
    free(first);
    rank_must(store_first(store, "second", env->rank, world, env->rank == 0 ? "" : text, 20, &first, &index));
    RANK_CHECK(world == 1 ? !first : index == 1 && strcmp(first, "rank 1") == 0);
    free(first);
    if (world > 1 && env->rank < 2) { /* a group of two; the others do not take part */
        rank_must(store_first(store, "of two", env->rank, 2, text, 20, &first, &index));
        RANK_CHECK(index == 0 && strcmp(first, "rank 0") == 0);
        free(first);
    }
    if (world > 1 && env->rank == 1)
        rank_expect(store_first(store, "alone", 1, 2, "x", 0.2, &first, &index), STATUS_PEER,
                    "1 of 2 ranks did not reach 'alone' within 0.2 s, the first of them is number 0");
    rank_expect(store_first(store, "", 0, 1, "x", 1, &first, &index), STATUS_BUG, "a gathering ''");
    rank_must(store_number(store, "end", NULL, 0, 20, numbers));
    store_close(store);
}

TEST_LOOP(gatherings, 1, 6) { ranks_run(_i, gather_body, NULL); }

/* What a rank adds to the messages of the store is a constant: the handshake of its connection, waiting for all, and
 * one message for each gathering. */
static void count_body(const struct dist_env *env, void *argument) {
    atomic_int *answered = argument; /* shared; INT_MAX: rank 0 has counted */
    struct store *store = rank_open_store(env, 20);
    struct store_traffic traffic;
    int numbers[MAX_TEST_RANKS], index, others = env->world_size - 1;
    char *first, host[16];
    snprintf(host, sizeof host, "h%d", env->rank);
    rank_must(store_agree(store, "the config", "a: 1\n", 20));
    rank_must(store_number(store, "hosts", host, strlen(host), 20, numbers));
    rank_must(store_first(store, "result", env->rank, env->world_size, "", 20, &first, &index));
    if (env->rank > 0) ++*answered;
    while (*answered < (env->rank == 0 ? others : INT_MAX / 2)) clock_sleep(0.001);
    store_count_traffic(store, &traffic);
    if (env->rank == 0) {
        uint64_t messages = 6 * (uint64_t)others + 4;
        /* HELLO and PROOF, READY, three GATHERs; CHALLENGE, WELCOME and the answers */
        RANK_CHECK(traffic.received == messages && traffic.sent == messages);
        RANK_CHECK(traffic.connections == (uint64_t)others + 1 && traffic.heartbeats > 0);
        RANK_CHECK(traffic.bytes_received < 120 * messages && traffic.bytes_sent < 60 * messages);
        *answered = INT_MAX / 2;
    } else {
        RANK_CHECK(traffic.received == 0 && traffic.sent == 0 && traffic.connections == 0);
    }
    rank_must(store_number(store, "end", NULL, 0, 20, numbers));
    store_close(store);
}

TEST_LOOP(messages_are_counted, 2, 9) { ranks_run(_i, count_body, shared_count()); }

/* A rank that dies ends the wait of those that have sent their values. */
static void lost_gather_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    int numbers[MAX_TEST_RANKS];
    if (env->rank == 1) {
        clock_sleep(0.2);
        _exit(0);
    }
    rank_expect(store_number(store, "hosts", "x", 1, 20, numbers), STATUS_PEER, "rank 1 (host ");
    store_close(store);
}

TEST(lost_rank_ends_a_gathering) { ranks_run(3, lost_gather_body, NULL); }

/* ---- agreement ---- */

static void agree_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    rank_must(store_agree(store, "the config", "a: 1\nb: 2\n", 10));
    rank_expect(store_agree(store, "the config", env->rank == 1 ? "a: 1\nb: 3\nc: 4\n" : "a: 1\nb: 2\nc: 4\n", 10),
                STATUS_USAGE,
                "the config is not the same on all ranks: rank 1 differs from rank 0\n  rank 0: b: 2\n  "
                "rank 1: b: 3");
    struct text text = {0};
    for (int i = 0; i < 20000; i++) text_printf(&text, "line %d\n", i);
    if (env->rank == 2) text.data[text.length - 2] = 'x';
    status s = store_agree(store, "the model", text.data, 10);
    if (env->world_size > 2)
        rank_expect(s, STATUS_USAGE, "rank 2: line 1999x");
    else
        rank_must(s);
    text_free(&text);
    rank_expect(store_agree(store, "the data", env->rank ? "x" : "x\n", 10), STATUS_USAGE, "newline at the end");
    store_close(store);
}

TEST_LOOP(agreement, 2, 5) { ranks_run(_i, agree_body, NULL); }

/* ---- ranks that do not join, or leave ---- */

static void missing_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store;
    if (env->rank >= 2) return;
    double start = clock_seconds();
    rank_expect(store_open(env, 3, &store), STATUS_PEER, "ranks 2, 3 of 4 did not join");
    RANK_CHECK(clock_seconds() - start < 100);
}

TEST(missing_ranks_are_named) { ranks_run(4, missing_body, NULL); }

TEST(no_rank_0) {
    struct ranks ranks;
    ranks_prepare(&ranks, 2);
    close(ranks.listener);
    struct dist_env env = ranks_env(&ranks, 1);
    struct store *store;
    double start = clock_seconds();
    status s = store_open(&env, 0.5, &store);
    ck_assert_int_eq(status_code(s), STATUS_PEER);
    ck_assert_msg(strstr(status_message(s), "rank 0 did not answer at 127.0.0.1:") &&
                      strstr(status_message(s), "Connection refused"),
                  "%s", status_message(s));
    ck_assert_double_lt(clock_seconds() - start, 60);
    status_free(s);
    snprintf(env.master_addr, sizeof env.master_addr, "no-such-host.invalid");
    s = store_open(&env, 0.5, &store);
    ck_assert_ptr_nonnull(strstr(status_message(s), "no-such-host.invalid"));
    status_free(s);
}

static void late_server_body(const struct dist_env *env, void *argument) {
    (void)argument;
    if (env->rank == 0) clock_sleep(0.7);
    struct store *store = rank_open_store(env, 20);
    store_close(store);
}

TEST(rank_0_starts_late) { ranks_run(2, late_server_body, NULL); }

/* Rank 2 leaves: 0: killed, 1: after a report, 2: without a failure. The others wait for a key. */
static void leave_body(const struct dist_env *env, void *argument) {
    int how = *(int *)argument;
    struct store *store = rank_open_store(env, 20);
    char *value;
    if (env->rank == 2) {
        clock_sleep(0.2);
        if (how == 0) raise(SIGKILL);
        if (how == 1) {
            status s = status_new(STATUS_DATA, "cannot read x.h5");
            store_report(store, s);
            status_free(s);
        }
        store_close(store);
        return;
    }
    double start = clock_seconds();
    status s = store_get(store, "never", how == 2 ? 1 : 100, (void **)&value, NULL);
    double seconds = clock_seconds() - start;
    if (how == 0) rank_expect(s, STATUS_PEER, "exited without reporting an error");
    if (how == 1) rank_expect(s, STATUS_PEER, "): cannot read x.h5");
    if (how == 2) rank_expect(s, STATUS_PEER, "'never'"); /* only the timeout: rank 2 has not failed */
    RANK_CHECK(how == 2 ? seconds > 0.8 : seconds < 90);
    struct text cause = {0};
    RANK_CHECK(store_cause(store, 0.1, &cause) == (how != 2));
    RANK_CHECK(how == 2 || strncmp(cause.data, "rank 2 (host ", 13) == 0);
    text_free(&cause);
    store_close(store);
}

TEST_LOOP(lost_rank_ends_waits, 0, 3) {
    struct ranks ranks;
    int how = _i;
    ranks_prepare(&ranks, 3);
    ranks_start(&ranks, leave_body, &how);
    ranks_wait(&ranks);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 0);
    ck_assert_int_eq(ranks.codes[2], how == 0 ? 128 + SIGKILL : 0);
}

/* A rank that only lost a peer is not the cause if another rank reports a failure of its own. */
static void peer_loss_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    struct text cause = {0};
    char *value;
    if (env->rank == 1) {
        rank_must(store_set(store, "go", NULL, 0));
        status s = status_new(STATUS_PEER, "lost a rank");
        store_report(store, s);
        status_free(s);
    } else if (env->rank == 2) {
        rank_must(store_get(store, "go", 20, (void **)&value, NULL));
        free(value);
        status s = status_new(STATUS_NOT_FINITE, "the loss is nan");
        store_report(store, s);
        status_free(s);
    } else {
        RANK_CHECK(store_cause(store, 20, &cause) && strstr(cause.data, "rank 2") &&
                   strstr(cause.data, "the loss is nan"));
        text_free(&cause);
    }
    clock_sleep(0.3);
    store_close(store);
}

/* Rank 0 gets a request to stop after all have joined, while the others wait for a key. They get that reason, not that
 * rank 0 has finished, whether it has joined to train or only to report the request. */
static void stopped_body(const struct dist_env *env, void *argument) {
    bool has_joined_to_train = *(const int *)argument == 0;
    struct dist_env mine = *env;
    struct store *store;
    void *value;
    mine.local_rank = 0;
    mine.local_world_size = 1;
    if (env->rank > 0) {
        store = rank_open_store(&mine, 20);
        rank_expect(store_get(store, "agree/0/text/0", 20, &value, NULL), STATUS_STOPPED, "rank 0 (host ");
        store_close(store);
    } else if (has_joined_to_train) {
        rank_must(store_open_with(&mine, &(struct store_options){.timeout = 20, .forwards_stop = true}, &store));
        RANK_CHECK(stop_request());
        store_close(store);
    } else {
        status stopped = status_new(STATUS_STOPPED, "stopped on request before training began");
        store_report_before_joining(&mine, NULL, 0, NULL, stopped);
        status_free(stopped);
    }
}

TEST_LOOP(stop_of_rank_0_is_reported, 0, 2) { ranks_run(2, stopped_body, &_i); }

TEST(own_failure_is_the_cause) { ranks_run(3, peer_loss_body, NULL); }

static void ignore(void *data) { (void)data; }

/* One more handler than there is place for is a failure, and place is free again after store_off_failure. */
static void handlers_body(const struct dist_env *env, void *argument) {
    (void)argument;
    char handlers[STORE_MAX_HANDLERS + 1];
    struct store *store = rank_open_store(env, 20);
    for (int i = 0; i < STORE_MAX_HANDLERS; i++) rank_must(store_on_failure(store, ignore, &handlers[i]));
    rank_expect(store_on_failure(store, ignore, &handlers[STORE_MAX_HANDLERS]), STATUS_BUG, "more than 32 handlers");
    store_off_failure(store, &handlers[7]);
    rank_must(store_on_failure(store, ignore, &handlers[STORE_MAX_HANDLERS]));
    store_close(store);
}

TEST(handlers_have_a_limit) { ranks_run(2, handlers_body, NULL); }

static void end_rank(enum status_code code, const char *why) {
    bool is_expected = code == STATUS_PEER && strcmp(why, "rank 1: slow() has not returned within 0.5 s: why") == 0;
    if (!is_expected) fprintf(stderr, "%d '%s'\n", code, why);
    _exit(is_expected ? 42 : 1);
}

/* A rank that is too long in a call that blocks ends, and the others get the reason; a call that ends in time, and the
 * time after it, are no failure. */
static void blocked_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct text cause = {0};
    struct store *store;
    int numbers[MAX_TEST_RANKS];
    rank_must(store_open_with(env, &(struct store_options){.timeout = 20, .overdue = end_rank}, &store));
    store_begin_call(store, "fast()", env->rank ? 2 : 20, "why");
    store_end_call(store);
    RANK_CHECK(!store_cause(store, 2.5, &cause));
    rank_must(store_number(store, "waited", NULL, 0, 20, numbers)); /* all have, before one fails */
    if (env->rank == 1) {
        store_begin_call(store, "slow()", 0.5, "why");
        for (;;) pause();
    }
    RANK_CHECK(store_cause(store, 20, &cause) && strstr(cause.data, "rank 1 (host "));
    RANK_CHECK(strstr(cause.data, ": slow() has not returned within 0.5 s: why"));
    text_free(&cause);
    store_close(store);
}

TEST(blocked_call_ends_its_rank) {
    struct ranks ranks;
    ranks_prepare(&ranks, 3);
    ranks_start(&ranks, blocked_body, NULL);
    ranks_wait(&ranks);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 42);
    ck_assert_int_eq(ranks.codes[2], 0);
}

static void rank_0_killed_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 20);
    char *value;
    if (env->rank == 0) {
        clock_sleep(0.2);
        raise(SIGKILL);
    }
    double start = clock_seconds();
    rank_expect(store_get(store, "never", 100, (void **)&value, NULL), STATUS_PEER,
                "exited without reporting an error, or the connection to it broke");
    RANK_CHECK(clock_seconds() - start < 90);
    rank_expect(store_get(store, "never", 20, (void **)&value, NULL), STATUS_PEER, "is lost");
    store_close(store);
}

TEST(rank_0_is_killed) {
    struct ranks ranks;
    ranks_prepare(&ranks, 2);
    ranks_start(&ranks, rank_0_killed_body, NULL);
    ranks_wait(&ranks);
    ck_assert_int_eq(ranks.codes[0], 128 + SIGKILL);
    ck_assert_int_eq(ranks.codes[1], 0);
}

/* ---- untrusted clients ---- */

struct client {
    const char *secret, *job;
    int rank, world;
    const char *expected;
};

static const struct client clients[] = {
    {"the other secret", "test", 1, 2, "the secrets differ"},
    {"the right secret", "another", 1, 2, "another job"},
    {"the right secret", "test", 0, 2, "rank 0 has joined already (host "},
    {"the right secret", "test", 2, 2, "rank 2 does not exist"},
};

static void client_body(const struct dist_env *env, void *argument) {
    const struct client *client = argument;
    setenv(SECRET_VARIABLE, "the right secret", 1);
    if (env->rank == 0) {
        store_close(rank_open_store(env, 30));
        return;
    }
    setenv(SECRET_VARIABLE, client->secret, 1);
    struct dist_env wrong = *env;
    snprintf(wrong.job_id, sizeof wrong.job_id, "%s", client->job);
    wrong.rank = client->rank;
    wrong.world_size = client->world;
    struct store *store;
    if (wrong.rank != 0) { /* by store_open, which retries for 3 s */
        rank_expect(store_open(&wrong, 20, &store), STATUS_USAGE, client->expected);
    } else {
        uint8_t secret[32];
        struct store_join join = rank_connection(&wrong, secret, FOR_RANK);
        int fd;
        struct message_session session;
        uint32_t restart_count = 0;
        rank_expect(store_join(&join, &fd, &session, &restart_count), STATUS_USAGE, client->expected);
        RANK_CHECK(fd == -1);
    }
    setenv(SECRET_VARIABLE, "the right secret", 1); /* the rank itself can still join */
    store_close(rank_open_store(env, 20));
}

TEST_EACH(untrusted_clients_are_rejected, clients) {
    struct client client = clients[_i];
    ranks_run(2, client_body, &client);
}

/* Sets the environment of a rank whose launcher is the test. Returns the launcher's end of the socket for reports. */
static int set_launcher_environment(void) {
    int ends[2];
    char text[32];
    RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    snprintf(text, sizeof text, "%d", ends[1]);
    setenv(REPORT_FD_VARIABLE, text, 1);
    snprintf(text, sizeof text, "%ld", (long)getppid());
    setenv(LAUNCHER_VARIABLE, text, 1);
    return ends[0];
}

/* Whether the launcher has got a message that all ranks have joined, so that it need not report this failure. */
static bool is_report_needless(int launcher) {
    struct launcher_packet packet;
    bool is_needless = false;
    while (recv(launcher, &packet, sizeof packet, MSG_DONTWAIT) == (ssize_t)sizeof packet)
        is_needless = is_needless || (packet.message == MESSAGE_JOINED && packet.number == -1);
    return is_needless;
}

/* Rank 2 was started with world size 5. It ends the wait of the others, which report both world sizes. The launchers of
 * ranks 0 and 2 need not inform each other, which would take 60 s where one of them has ended. */
static void other_count_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct dist_env mine = *env;
    struct store *store;
    double start = clock_seconds();
    int launcher = set_launcher_environment();
    if (mine.rank == 2) mine.world_size = 5;
    status s = store_open(&mine, 100, &store);
    if (mine.rank == 2)
        rank_expect(s, STATUS_USAGE, "rejected rank 2: it expects 3 ranks, this rank 5: --nproc");
    else
        rank_expect(s, STATUS_USAGE, ": 5 ranks) expects another number of ranks than rank 0 (3 ranks): --nproc");
    RANK_CHECK(clock_seconds() - start < 55);
    RANK_CHECK(is_report_needless(launcher) == (env->rank != 1));
}

TEST(another_world_size_ends_the_wait) { ranks_run(3, other_count_body, NULL); }

/* Connections that are rejected, or that would have ended the wait, have no effect after all ranks have joined. */
static void late_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct store *store = rank_open_store(env, 30);
    char *value;
    if (env->rank == 1) {
        uint8_t secret[32], bytes[STORE_HEADER + STORE_MAX_JOINING] = {0};
        struct store_join join = rank_connection(env, secret, FOR_GIVING_UP); /* 20 s: a rejection is final after 3 s */
        join.world_size = 5;
        join.node_size = 1;
        struct message_session session;
        int fd;
        rank_expect(store_join(&join, &fd, &session, &(uint32_t){0}), STATUS_USAGE, "it expects 2 ranks, this rank 5");
        join.world_size = 2; /* correct, but it has joined already */
        rank_expect(store_join(&join, &fd, &session, &(uint32_t){0}), STATUS_USAGE, "rank 1 has joined already");
        struct store_frame hello = {.type = FRAME_HELLO, .rank = 1, .version = STORE_VERSION + 7}, reply;
        store_frame_header(&hello, bytes);
        fd = connect_to_port(env->master_port);
        RANK_CHECK(fd >= 0 && send(fd, bytes, STORE_HEADER, 0) == STORE_HEADER);
        RANK_CHECK(net_receive(fd, bytes, STORE_HEADER, clock_seconds() + 10) && bytes[4] == STORE_VERSION + 7);
        bytes[4] = STORE_VERSION; /* the rest is the same in all versions */
        size_t used;
        RANK_CHECK(store_frame_parse(bytes, STORE_HEADER, 200, &reply, &used) == PARSED_INCOMPLETE);
        RANK_CHECK(reply.type == FRAME_REJECT && net_receive(fd, bytes, reply.length, clock_seconds() + 10));
        bytes[reply.length] = 0;
        RANK_CHECK(strstr((const char *)bytes, "it uses version 6 of ddptrain's protocol, this rank version 13"));
        close(fd);
        rank_must(store_set(store, "tried", "x", 1));
    }
    rank_must(store_get(store, "tried", 30, (void **)&value, NULL));
    free(value);
    store_close(store);
}

TEST(late_connections_have_no_effect) { ranks_run(2, late_body, NULL); }

/* Opens connections and sends invalid data until it is killed. */
static _Noreturn void attack_port(int port) {
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static const char tls[] = "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    int slow[64];
    unsigned seed = 1;
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < 64; i++) slow[i] = -1;
    for (unsigned n = 0;; n++) {
        uint8_t bytes[512];
        struct store_frame frame = {.type = FRAME_HELLO, .rank = 1, .length = n % 3 == 0 ? 0xfffffff0u : 64 << 10};
        int fd = connect_to_port(port);
        if (fd < 0) {
            clock_sleep(0.001);
            continue;
        }
        ssize_t sent = 0; /* whether it arrives does not matter */
        switch (n % 8) {
        case 0:
            sent = send(fd, http, sizeof http - 1, 0);
            break;
        case 1:
            sent = send(fd, tls, sizeof tls - 1, 0);
            break;
        case 2:
            for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)rand_r(&seed);
            sent = send(fd, bytes, sizeof bytes, 0);
            break;
        case 3: /* too large a length */
            store_frame_header(&frame, bytes);
            sent = send(fd, bytes, STORE_HEADER, 0);
            break;
        case 4: /* a request without joining */
            frame.type = FRAME_BYE;
            frame.length = 0;
            store_frame_header(&frame, bytes);
            sent = send(fd, bytes, STORE_HEADER, 0);
            break;
        case 5:
            sent = send(fd, "DDPS", 4, 0);
            break;
        default:
            break; /* sends nothing and stays open */
        }
        if (n % 8 >= 5 && sent >= 0) {
            if (slow[n % 64] >= 0) close(slow[n % 64]);
            slow[n % 64] = fd;
        } else {
            close(fd);
        }
    }
}

static long resident_kib(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long size, resident;
    RANK_CHECK(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void attacked_body(const struct dist_env *env, void *argument) {
    (void)argument;
    if (env->rank == 1) clock_sleep(0.5); /* joins when the maximum number of unauthenticated connections is open */
    struct store *store = rank_open_store(env, 30);
    long before = resident_kib();
    for (int i = 0; i < 300; i++) {
        char key[64], *value;
        snprintf(key, sizeof key, "k/%d/%d", env->rank, i);
        rank_must(store_set(store, key, "v", 1));
        snprintf(key, sizeof key, "k/%d/%d", !env->rank, i);
        rank_must(store_get(store, key, 20, (void **)&value, NULL));
        free(value);
    }
    if (!getenv("DDPTRAIN_SANITIZER") || !*getenv("DDPTRAIN_SANITIZER")) RANK_CHECK(resident_kib() - before < 4096);
    store_close(store);
}

TEST(untrusted_clients) {
    struct ranks ranks;
    ranks_prepare(&ranks, 2);
    pid_t pids[3];
    fflush(NULL);
    for (int i = 0; i < 3; i++)
        if ((pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(ranks.listener);
            attack_port(ranks.port);
        }
    ranks_start(&ranks, attacked_body, NULL);
    ranks_wait(&ranks);
    for (int i = 0; i < 3; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 0);
}

/* A rank reports that another program listens on the port. */
static void *http_server(void *argument) {
    int fd = accept(*(int *)argument, NULL, NULL);
    char bytes[100];
    if (recv(fd, bytes, sizeof bytes, 0) > 0) send(fd, "HTTP/1.1 400 Bad Request\r\n\r\n", 28, MSG_NOSIGNAL);
    close(fd);
    return NULL;
}

TEST(another_program_is_reported) {
    struct ranks ranks;
    ranks_prepare(&ranks, 2);
    fcntl(ranks.listener, F_SETFL, 0); /* blocking */
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, http_server, &ranks.listener), 0);
    struct dist_env env = ranks_env(&ranks, 1);
    struct store *store;
    status s = store_open(&env, 5, &store);
    pthread_join(thread, NULL);
    ck_assert_msg(status_code(s) == STATUS_USAGE && strstr(status_message(s), "another program"), "%s",
                  status_message(s));
    status_free(s);
}

int main(void) {
    signal(SIGPIPE, SIG_IGN);
    return check_suite("store");
}
