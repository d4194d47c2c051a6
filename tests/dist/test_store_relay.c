/* A relay between rank 1 and the store, without the secret: for each type of frame and direction it alters, drops,
 * repeats, reorders, forges or reflects one frame; of frames that reject rank 1, every one. The ranks continue or end
 * with a reason, and no text of the relay reaches a message, except in a REJECT, which is then reported as not
 * authenticated. ctest-labels: dist fault */
#include "ranks.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>

#include "base/text.h"
#include "check_main.h"
#include "dist/process/launcher_channel.h"
#include "dist/store/store_frame.h"

#define MAX_PIPES 8
#define TIMEOUT 4.0 /* seconds */
#define FORGED "FORGED BY THE RELAY"
#define OWN_FAILURE "a failure of its own"
#define EXIT " was ended by a test"
#define TAMPERED "was tampered with or corrupted"
#define NOT_PROVEN "(this answer is not authenticated)"
#define OTHER_WORLD_SIZE "it expects 2 ranks"
#define OTHER_START "it is of start 1, this rank of start 0"
#define NO_ANSWER "did not answer"

enum tampering { ALTER_HEAD, ALTER_BODY, ALTER_TAG, TRUNCATE, DROP, REPEAT, SWAP, FORGE, REFLECT, TAMPERINGS };

/* ---- the relay ---- */

struct stream {
    int from, to;
    bool is_to_store; /* from the rank */
    uint8_t bytes[STORE_HEADER + STORE_MAX_BODY];
    size_t size;
    uint8_t kept[STORE_HEADER + STORE_MAX_BODY]; /* SWAP: the frame that is sent after the next one */
    size_t kept_size;
};

struct attack {
    enum store_type type;
    bool is_to_store;
    enum tampering how;
};

struct relay {
    struct attack attack;
    bool is_done;
    volatile bool *was_done; /* shared with the test */
    struct stream streams[2 * MAX_PIPES];
    int count;
};

static void forward(const struct stream *s, const uint8_t *bytes, size_t size) {
    net_send(s->to, bytes, size, clock_seconds() + 5);
}

/* Sends a forged frame before the original one. */
static void forge(const struct stream *s, const uint8_t *original) {
    uint8_t bytes[STORE_HEADER + 200] = {0};
    struct store_frame frame = {.type = (enum store_type)original[5],
                                .rank = store_read_u32(original + 12),
                                .job = store_read_u64(original + 16),
                                .length = 200};
    if (original[5] == FRAME_SERVER_HEARTBEAT) frame.type = FRAME_JOB_FAILURE;
    if (original[5] == FRAME_HEARTBEAT) frame.type = FRAME_RANK_EXIT;
    store_frame_header(&frame, bytes);
    store_write_u32(bytes + STORE_HEADER, STATUS_DATA);
    memcpy(bytes + STORE_HEADER + STORE_JOB_FAILURE, FORGED, sizeof FORGED - 1);
    forward(s, bytes, sizeof bytes);
}

/* Sends the frame, altered as r->attack.how requires. */
static void tamper(struct relay *r, struct stream *s, uint8_t *frame, size_t size) {
    switch (r->attack.how) {
    case ALTER_HEAD:
        frame[5] = frame[5] == FRAME_DONE ? FRAME_BYE : FRAME_DONE;
        break;
    case ALTER_BODY:
        frame[size > STORE_HEADER + SESSION_TAG ? STORE_HEADER : 12] ^= 1;
        break;
    case ALTER_TAG:
        frame[size - 1] ^= 0x80;
        break;
    case TRUNCATE:
        store_write_u32(frame + 8, (uint32_t)(size - STORE_HEADER) / 2);
        size = STORE_HEADER + (size - STORE_HEADER) / 2;
        break;
    case DROP:
        return;
    case REPEAT:
        forward(s, frame, size);
        break;
    case SWAP:
        memcpy(s->kept, frame, size);
        s->kept_size = size;
        return;
    case FORGE:
        forge(s, frame);
        break;
    default: /* REFLECT */
        net_send(s->from, frame, size, clock_seconds() + 5);
        break;
    }
    forward(s, frame, size);
}

/* Answers to attempts to join, which are repeated. */
static bool is_rejection(enum store_type type) { return type == FRAME_REJECT || type == FRAME_RESTART_COUNT; }

static void pass_frame(struct relay *r, struct stream *s, size_t size) {
    bool is_due = !r->is_done || is_rejection(r->attack.type);
    if (is_due && s->bytes[5] == r->attack.type && s->is_to_store == r->attack.is_to_store) {
        r->is_done = true;
        *r->was_done = true;
        tamper(r, s, s->bytes, size);
        return;
    }
    forward(s, s->bytes, size);
    if (s->kept_size) forward(s, s->kept, s->kept_size);
    s->kept_size = 0;
}

static bool read_stream(struct relay *r, struct stream *s) {
    ssize_t received = recv(s->from, s->bytes + s->size, sizeof s->bytes - s->size, MSG_DONTWAIT);
    if (received < 0) return errno == EAGAIN || errno == EINTR;
    if (received == 0) return false;
    s->size += (size_t)received;
    while (s->size >= STORE_HEADER) {
        size_t size = STORE_HEADER + store_read_u32(s->bytes + 8);
        if (s->size < size) break;
        uint8_t rest[sizeof s->bytes];
        memcpy(rest, s->bytes + size, s->size - size);
        pass_frame(r, s, size);
        memcpy(s->bytes, rest, s->size - size);
        s->size -= size;
    }
    return true;
}

static void end_pipe(struct relay *r, int i) {
    int first = i & ~1;
    close(r->streams[first].from);
    close(r->streams[first].to);
    r->streams[first].from = r->streams[first + 1].from = -1;
}

static void add_pipe(struct relay *r, int fd, int port) {
    int onward;
    bool is_final;
    int at = 0;
    while (at < r->count && r->streams[at].from >= 0) at += 2;
    status failure = net_connect("127.0.0.1", port, clock_seconds() + 5, &onward, &is_final);
    if (failure || at == 2 * MAX_PIPES) {
        status_free(failure);
        close(fd);
        return;
    }
    if (at == r->count) r->count += 2;
    r->streams[at] = (struct stream){.from = fd, .to = onward, .is_to_store = true};
    r->streams[at + 1] = (struct stream){.from = onward, .to = fd};
}

static _Noreturn void relay(struct relay *r, int listener, int port) {
    for (;;) {
        struct pollfd polls[1 + 2 * MAX_PIPES] = {{.fd = listener, .events = POLLIN}};
        int count = r->count;
        for (int i = 0; i < count; i++) polls[1 + i] = (struct pollfd){.fd = r->streams[i].from, .events = POLLIN};
        poll(polls, (nfds_t)count + 1, -1);
        for (int i = 0; i < count; i++)
            if (r->streams[i].from >= 0 && polls[1 + i].revents && !read_stream(r, &r->streams[i])) end_pipe(r, i);
        if (polls[0].revents) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0) add_pipe(r, fd, port);
        }
    }
}

/* ---- the ranks ---- */

/* The message must be one that the ranks produce, without text of the relay. */
static void check_message(const char *message, const struct attack *attack) {
    bool is_named = strstr(message, OWN_FAILURE) || strstr(message, TAMPERED) ||
                    strstr(message, "the secrets differ, or the connection was tampered with") ||
                    strstr(message, "is not rank 0 of this job") || strstr(message, NOT_PROVEN) ||
                    strstr(message, EXIT) || strstr(message, OTHER_WORLD_SIZE) || strstr(message, OTHER_START) ||
                    strstr(message, "expects another number of ranks") ||
                    strstr(message, "left, or the connection to it broke") || strstr(message, "is lost") ||
                    strstr(message, "exited without reporting an error") ||
                    strstr(message, "hangs: its process has not run") || strstr(message, "within") ||
                    strstr(message, "has left this job already") ||
                    strstr(message, "has accepted the connection and then not answered");
    bool is_marked = attack->type == FRAME_REJECT && strstr(message, NOT_PROVEN);
    if (is_named && (is_marked || !strstr(message, FORGED))) return;
    fprintf(stderr, "frame %d, how %d: '%s'\n", attack->type, attack->how, message);
    _exit(1);
}

/* The text that the message of a rank must contain; NULL: any that check_message accepts. */
static const char *required(const struct attack *attack, int rank) {
    bool is_genuine = attack->how == REPEAT || attack->how == REFLECT;
    bool is_lost = attack->how == DROP || attack->how == SWAP;
    switch (attack->type) {
    case FRAME_RANK_EXIT: /* rank 1 may first get that a frame was wrong; rank 2 is disconnected, as one that has ended
                           */
        if (is_genuine) return rank == 0 ? EXIT : NULL;
        return TAMPERED;
    case FRAME_JOB_FAILURE:
        return is_genuine || rank == 0 ? OWN_FAILURE : TAMPERED;
    case FRAME_REJECT:
        if (rank == 0) return NULL;
        return is_genuine ? OTHER_WORLD_SIZE : is_lost ? NO_ANSWER : attack->how == ALTER_HEAD ? TAMPERED : NOT_PROVEN;
    case FRAME_RESTART_COUNT:
        if (rank == 0) return NULL;
        return is_genuine ? OTHER_START : is_lost ? NO_ANSWER : TAMPERED;
    default:
        return NULL;
    }
}

static void check_required(const char *message, const struct attack *attack, int rank) {
    const char *expected = required(attack, rank);
    if (!expected || strstr(message, expected)) return;
    fprintf(stderr, "frame %d, how %d: the message of rank %d is '%s', without '%s'\n", attack->type, attack->how, rank,
            message, expected);
    _exit(1);
}

struct scenario {
    struct attack attack;
    int port; /* of the relay */
};

/* Makes all requests of a rank, with pauses for heartbeats. */
static status make_requests(const struct dist_env *env, struct store *store) {
    char *value, key[32];
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "k/%d/%d", env->rank, i);
        TRY(store_set(store, key, "value", 5));
        snprintf(key, sizeof key, "k/%d/%d", !env->rank, i);
        TRY(store_get(store, key, TIMEOUT, (void **)&value, NULL));
        RANK_CHECK(strcmp(value, "value") == 0);
        free(value);
        clock_sleep(0.45);
    }
    status missing = store_get(store, "never", 0.05, (void **)&value, NULL);
    bool is_expected = missing && strstr(status_message(missing), "no rank has set 'never'");
    if (!is_expected) return missing;
    status_free(missing);
    struct text why = {0};
    if (!store_cause(store, 0.3, &why)) return OK;
    status failure = status_new(STATUS_PEER, "%s", text_string(&why));
    text_free(&why);
    return failure;
}

static void raise_flag(void *flag) { *(volatile bool *)flag = true; }

/* The failure of the job that this rank's heartbeat receives. */
static status wait_for_failure(struct store *store) {
    static volatile bool is_known;
    struct text why = {0};
    double end = clock_seconds() + TIMEOUT;
    RANK_CHECK(store_on_failure(store, raise_flag, (void *)&is_known) == OK);
    while (!is_known && clock_seconds() < end) clock_sleep(0.01);
    RANK_CHECK(is_known && store_cause(store, 0.3, &why));
    status failure = status_new(STATUS_PEER, "%s", text_string(&why));
    text_free(&why);
    return failure;
}

/* Sets the environment of a rank whose launcher is the test. Returns the launcher's end of the socket. */
static int set_launcher_environment(void) {
    int ends[2];
    char number[16];
    RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    setenv(EXITS_FD_VARIABLE, number, 1);
    snprintf(number, sizeof number, "%d", (int)getppid());
    setenv(LAUNCHER_VARIABLE, number, 1);
    return ends[0];
}

/* The launcher reports that rank 2 has ended. */
static void send_exit(int launcher) {
    struct launcher_packet packet = {.message = MESSAGE_RANK_EXIT, .number = 2, .text = EXIT};
    RANK_CHECK(send(launcher, &packet, sizeof packet, 0) == (ssize_t)sizeof packet);
}

/* Runs a rank after it has joined. */
static status run_rank(const struct scenario *scenario, const struct dist_env *env, struct store *store, int launcher) {
    enum store_type type = scenario->attack.type;
    if (type == FRAME_JOB_FAILURE && env->rank == 0) return status_new(STATUS_DATA, OWN_FAILURE);
    if (type == FRAME_RANK_EXIT && env->rank == 1) send_exit(launcher);
    if (type == FRAME_JOB_FAILURE || type == FRAME_RANK_EXIT) return wait_for_failure(store);
    status failure = make_requests(env, store);
    bool is_reporter = type == FRAME_REPORT && env->rank == 1;
    return !failure && is_reporter ? status_new(STATUS_DATA, OWN_FAILURE) : failure;
}

static void rank_body_of_scenario(const struct dist_env *env, void *argument) {
    const struct scenario *scenario = argument;
    struct dist_env mine = *env;
    struct store *store = NULL;
    enum store_type type = scenario->attack.type;
    int launcher = type == FRAME_RANK_EXIT && mine.rank == 1 ? set_launcher_environment() : -1;
    if (mine.rank == 1) mine.master_port = scenario->port;
    if (mine.rank == 1 && type == FRAME_REJECT) mine.world_size = 3;
    if (mine.rank == 0 && type == FRAME_RESTART_COUNT) mine.restart_count = 1;
    setenv(SECRET_VARIABLE, "the secret of the relays", 1);
    status failure = store_open(&mine, TIMEOUT, &store);
    if (!failure) failure = run_rank(scenario, &mine, store, launcher);
    if (failure) check_message(status_message(failure), &scenario->attack);
    check_required(status_message(failure), &scenario->attack, mine.rank);
    if (store) store_report(store, failure);
    struct text why = {0};
    if (store && store_cause(store, 0.5, &why)) check_message(text_string(&why), &scenario->attack);
    text_free(&why);
    bool is_bye_of_server = scenario->attack.type == FRAME_BYE && !scenario->attack.is_to_store;
    if (is_bye_of_server && mine.rank == 1) clock_sleep(11); /* rank 0 waits for 10 s */
    store_close(store);
    int code = failure ? 10 : 0;
    status_free(failure);
    exit(code);
}

/* ---- the cases ---- */

static const struct attack frames[] = {
    {FRAME_HELLO, true, 0},      {FRAME_PROOF, true, 0},
    {FRAME_READY, true, 0},      {FRAME_SET, true, 0},
    {FRAME_GET, true, 0},        {FRAME_CAUSE, true, 0},
    {FRAME_BYE, true, 0},        {FRAME_HEARTBEAT, true, 0},
    {FRAME_CHALLENGE, false, 0}, {FRAME_WELCOME, false, 0},
    {FRAME_DONE, false, 0},      {FRAME_VALUE, false, 0},
    {FRAME_ERROR, false, 0},     {FRAME_SERVER_HEARTBEAT, false, 0},
    {FRAME_BYE, false, 0},       {FRAME_REPORT, true, 0},
    {FRAME_RANK_EXIT, true, 0},  {FRAME_JOB_FAILURE, false, 0},
    {FRAME_REJECT, false, 0},    {FRAME_RESTART_COUNT, false, 0},
};

struct trial {
    struct ranks ranks;
    struct scenario scenario;
    volatile bool *was_done;
    pid_t relay;
};

static void start_trial(struct trial *t, struct attack attack) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int listener;
    ranks_prepare(&t->ranks, attack.type == FRAME_RANK_EXIT ? 3 : 2);
    ck_assert_ptr_null(net_listen("127.0.0.1", 0, true, &listener));
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    t->scenario = (struct scenario){attack, net_port(&address)};
    t->was_done = mmap(NULL, sizeof *t->was_done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne((void *)t->was_done, MAP_FAILED);
    fflush(NULL);
    t->relay = fork();
    if (t->relay == 0) {
        static struct relay r;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        close(t->ranks.listener);
        r.attack = attack;
        r.was_done = t->was_done;
        relay(&r, listener, t->ranks.port);
    }
    close(listener);
    ranks_start(&t->ranks, rank_body_of_scenario, &t->scenario);
}

/* A change that only one side can detect may leave the other without a failure. */
static void end_trial(struct trial *t) {
    const struct attack *a = &t->scenario.attack;
    ranks_wait(&t->ranks);
    kill(t->relay, SIGKILL);
    waitpid(t->relay, NULL, 0);
    ck_assert_msg(*t->was_done, "frame %d was not sent", a->type);
    for (int r = 0; r < t->ranks.world; r++)
        ck_assert_msg(t->ranks.codes[r] == 0 || t->ranks.codes[r] == 10, "frame %d, how %d: rank %d ended with %d",
                      a->type, a->how, r, t->ranks.codes[r]);
    /* joining is retried; BYE is the last frame */
    bool is_joining = a->type == FRAME_HELLO || a->type == FRAME_CHALLENGE || a->type == FRAME_PROOF;
    bool is_detected = t->ranks.codes[0] == 10 || t->ranks.codes[1] == 10;
    if (a->type != FRAME_BYE && !is_joining)
        ck_assert_msg(is_detected, "frame %d, how %d: not detected", a->type, a->how);
    munmap((void *)t->was_done, sizeof *t->was_done);
}

/* Many trials at once, since they wait most of the time. */
#define BATCHES 3

TEST_LOOP(tampered_frames_have_no_effect, 0, BATCHES) {
    enum { TYPES = sizeof frames / sizeof *frames, COUNT = TYPES * TAMPERINGS / BATCHES };
    static struct trial trials[COUNT];
    for (int i = 0; i < COUNT; i++) {
        struct attack attack = frames[i % TYPES];
        attack.how = (enum tampering)(_i + i / TYPES * BATCHES);
        start_trial(&trials[i], attack);
    }
    for (int i = 0; i < COUNT; i++) end_trial(&trials[i]);
}

CHECK_MAIN("store_relay")
