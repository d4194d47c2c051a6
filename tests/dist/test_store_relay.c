/* A relay between rank 1 and the store, which does not know the secret: for each type of frame and direction it alters,
 * drops, repeats, moves, forges or sends back one frame, of those by which rank 1 is not let in every one. The ranks go
 * on or end with a reason, and nothing that the relay made up reaches a message, but for a refusal, which then says
 * that it is not authenticated. ctest-labels: dist fault */
#include "ranks.h"

#include <errno.h>
#include <poll.h>
#include <sys/mman.h>

#include "base/text.h"
#include "check_main.h"
#include "dist/process/launcher_channel.h"
#include "dist/store/store_frame.h"

#define MAX_PIPES 8
#define PATIENCE 4.0 /* seconds */
#define FORGED "FORGED BY THE RELAY"
#define OWN_FAILURE "a failure of its own"
#define DEATH " was ended by a test"
#define TAMPERED "was tampered with or corrupted"
#define NOT_PROVEN "(this answer is not authenticated)"
#define OTHER_COUNT "it counts 2 ranks"
#define OTHER_START "it is of start 1, this rank of start 0"
#define NO_ANSWER "did not answer"

enum tampering { ALTER_HEAD, ALTER_BODY, ALTER_TAG, CUT, DROP, REPEAT, SWAP, FORGE, REFLECT, TAMPERINGS };

/* ---- the relay ---- */

struct stream {
    int from, to;
    bool is_up; /* from the rank to the store */
    uint8_t bytes[STORE_HEADER + STORE_MAX_BODY];
    size_t size;
    uint8_t kept[STORE_HEADER + STORE_MAX_BODY]; /* the frame that goes behind the next one */
    size_t kept_size;
};

struct attack {
    enum store_type type;
    bool is_up;
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

/* As long as the frame it goes in front of, which is then left out or not. */
static void forge(const struct stream *s, const uint8_t *original, size_t size) {
    uint8_t bytes[STORE_HEADER + 200] = {0};
    struct store_frame frame = {.type = (enum store_type)original[5],
                                .rank = store_read_u32(original + 12),
                                .job = store_read_u64(original + 16),
                                .length = 200};
    bool is_watch_tick = original[5] == FRAME_TICK, is_beat = original[5] == FRAME_BEAT;
    (void)size;
    if (is_watch_tick) frame.type = FRAME_NEWS;
    if (is_beat) frame.type = FRAME_DEATH;
    store_frame_header(&frame, bytes);
    store_write_u32(bytes + STORE_HEADER, STATUS_DATA);
    memcpy(bytes + STORE_HEADER + STORE_NEWS, FORGED, sizeof FORGED - 1);
    forward(s, bytes, sizeof bytes);
}

/* The frame itself, or what becomes of it. */
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
    case CUT:
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
        forge(s, frame, size);
        break;
    default: /* REFLECT */
        net_send(s->from, frame, size, clock_seconds() + 5);
        break;
    }
    forward(s, frame, size);
}

/* These are answers to attempts, which are repeated. */
static bool is_no_entry(enum store_type type) { return type == FRAME_REFUSE || type == FRAME_OTHER; }

static void pass_frame(struct relay *r, struct stream *s, size_t size) {
    bool is_wanted = !r->is_done || is_no_entry(r->attack.type);
    bool is_it = is_wanted && s->bytes[5] == r->attack.type && s->is_up == r->attack.is_up;
    if (is_it) {
        r->is_done = true;
        *r->was_done = true;
        tamper(r, s, s->bytes, size);
        return;
    }
    forward(s, s->bytes, size);
    if (s->kept_size) forward(s, s->kept, s->kept_size);
    s->kept_size = 0;
}

static bool pump(struct relay *r, struct stream *s) {
    ssize_t got = recv(s->from, s->bytes + s->size, sizeof s->bytes - s->size, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    s->size += (size_t)got;
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
    r->streams[at] = (struct stream){.from = fd, .to = onward, .is_up = true};
    r->streams[at + 1] = (struct stream){.from = onward, .to = fd};
}

static _Noreturn void relay(struct relay *r, int listener, int port) {
    for (;;) {
        struct pollfd polls[1 + 2 * MAX_PIPES] = {{.fd = listener, .events = POLLIN}};
        int count = r->count;
        for (int i = 0; i < count; i++) polls[1 + i] = (struct pollfd){.fd = r->streams[i].from, .events = POLLIN};
        poll(polls, (nfds_t)count + 1, -1);
        for (int i = 0; i < count; i++)
            if (r->streams[i].from >= 0 && polls[1 + i].revents && !pump(r, &r->streams[i])) end_pipe(r, i);
        if (polls[0].revents) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0) add_pipe(r, fd, port);
        }
    }
}

/* ---- the ranks ---- */

/* A failure in its own words, or in those of the rank that failed first. */
static void must_be_honest(const char *words, const struct attack *attack) {
    bool is_named = strstr(words, OWN_FAILURE) || strstr(words, TAMPERED) ||
                    strstr(words, "the secrets differ, or the connection was tampered with") ||
                    strstr(words, "is not rank 0 of this job") || strstr(words, NOT_PROVEN) || strstr(words, DEATH) ||
                    strstr(words, OTHER_COUNT) || strstr(words, OTHER_START) || strstr(words, "counts other ranks") ||
                    strstr(words, "left, or the connection to it broke") || strstr(words, "is lost") ||
                    strstr(words, "exited without reporting an error") ||
                    strstr(words, "hangs: its process has not run") || strstr(words, "within") ||
                    strstr(words, "has left this job already");
    bool is_marked = attack->type == FRAME_REFUSE && strstr(words, NOT_PROVEN);
    if (is_named && (is_marked || !strstr(words, FORGED))) return;
    fprintf(stderr, "frame %d, how %d: '%s'\n", attack->type, attack->how, words);
    _exit(1);
}

/* What must be among the words of a rank; NULL: anything honest. */
static const char *required(const struct attack *attack, int rank) {
    bool is_genuine = attack->how == REPEAT || attack->how == REFLECT;
    bool is_lost = attack->how == DROP || attack->how == SWAP;
    switch (attack->type) {
    case FRAME_DEATH: /* rank 1 may hear first that a frame was wrong; rank 2 is cut off, as one that has died */
        if (is_genuine) return rank == 0 ? DEATH : NULL;
        return TAMPERED;
    case FRAME_NEWS:
        return is_genuine || rank == 0 ? OWN_FAILURE : TAMPERED;
    case FRAME_REFUSE:
        if (rank == 0) return NULL;
        return is_genuine ? OTHER_COUNT : is_lost ? NO_ANSWER : attack->how == ALTER_HEAD ? TAMPERED : NOT_PROVEN;
    case FRAME_OTHER:
        if (rank == 0) return NULL;
        return is_genuine ? OTHER_START : is_lost ? NO_ANSWER : TAMPERED;
    default:
        return NULL;
    }
}

static void must_say_what_is_required(const char *words, const struct attack *attack, int rank) {
    const char *need = required(attack, rank);
    if (!need || strstr(words, need)) return;
    fprintf(stderr, "frame %d, how %d: rank %d says '%s', not '%s'\n", attack->type, attack->how, rank, words, need);
    _exit(1);
}

struct scene {
    struct attack attack;
    int port; /* of the relay */
};

/* Everything a rank says to the store, with pauses for beats and ticks. */
static status talk(const struct dist_env *env, struct store *store) {
    char *value, key[32];
    for (int i = 0; i < 3; i++) {
        snprintf(key, sizeof key, "k/%d/%d", env->rank, i);
        TRY(store_set(store, key, "value", 5));
        snprintf(key, sizeof key, "k/%d/%d", !env->rank, i);
        TRY(store_get(store, key, PATIENCE, (void **)&value, NULL));
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

/* The failure of the job that this rank's watch hears of, without asking for it. */
static status hear_failure(struct store *store) {
    static volatile bool is_known;
    struct text why = {0};
    double end = clock_seconds() + PATIENCE;
    store_on_failure(store, raise_flag, (void *)&is_known);
    while (!is_known && clock_seconds() < end) clock_sleep(0.01);
    RANK_CHECK(is_known && store_cause(store, 0.3, &why));
    status failure = status_new(STATUS_PEER, "%s", text_string(&why));
    text_free(&why);
    return failure;
}

/* The launcher of rank 1 will say that rank 2 has died. */
static int give_launcher(void) {
    int ends[2];
    char number[16];
    RANK_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
    snprintf(number, sizeof number, "%d", ends[1]);
    setenv(EXITS_FD_VARIABLE, number, 1);
    snprintf(number, sizeof number, "%d", (int)getppid());
    setenv(LAUNCHER_VARIABLE, number, 1);
    return ends[0];
}

static void say_death(int launcher) {
    struct launcher_packet packet = {.message = MESSAGE_RANK_EXIT, .number = 2, .text = DEATH};
    RANK_CHECK(send(launcher, &packet, sizeof packet, 0) == (ssize_t)sizeof packet);
}

/* What a rank does once it has joined. */
static status act(const struct scene *scene, const struct dist_env *env, struct store *store, int launcher) {
    enum store_type type = scene->attack.type;
    if (type == FRAME_NEWS && env->rank == 0) return status_new(STATUS_DATA, OWN_FAILURE);
    if (type == FRAME_DEATH && env->rank == 1) say_death(launcher);
    if (type == FRAME_NEWS || type == FRAME_DEATH) return hear_failure(store);
    status failure = talk(env, store);
    bool is_reporter = type == FRAME_REPORT && env->rank == 1;
    return !failure && is_reporter ? status_new(STATUS_DATA, OWN_FAILURE) : failure;
}

static void scene_body(const struct dist_env *env, void *argument) {
    const struct scene *scene = argument;
    struct dist_env mine = *env;
    struct store *store = NULL;
    enum store_type type = scene->attack.type;
    int launcher = type == FRAME_DEATH && mine.rank == 1 ? give_launcher() : -1;
    if (mine.rank == 1) mine.master_port = scene->port;
    if (mine.rank == 1 && type == FRAME_REFUSE) mine.world_size = 3;
    if (mine.rank == 0 && type == FRAME_OTHER) mine.incarnation = 1;
    setenv(SECRET_VARIABLE, "not known to the relay", 1);
    status failure = store_open(&mine, PATIENCE, &store);
    if (!failure) failure = act(scene, &mine, store, launcher);
    if (failure) must_be_honest(status_message(failure), &scene->attack);
    must_say_what_is_required(status_message(failure), &scene->attack, mine.rank);
    if (store) store_report(store, failure);
    struct text why = {0};
    if (store && store_cause(store, 0.5, &why)) must_be_honest(text_string(&why), &scene->attack);
    text_free(&why);
    bool is_good_bye = scene->attack.type == FRAME_BYE && !scene->attack.is_up;
    if (is_good_bye && mine.rank == 1) clock_sleep(11); /* rank 0 waits for 10 s */
    store_close(store);
    int code = failure ? 10 : 0;
    status_free(failure);
    exit(code);
}

/* ---- the cases ---- */

static const struct attack frames[] = {
    {FRAME_HELLO, true, 0},      {FRAME_PROOF, true, 0},    {FRAME_READY, true, 0},   {FRAME_SET, true, 0},
    {FRAME_GET, true, 0},        {FRAME_CAUSE, true, 0},    {FRAME_BYE, true, 0},     {FRAME_BEAT, true, 0},
    {FRAME_CHALLENGE, false, 0}, {FRAME_WELCOME, false, 0}, {FRAME_DONE, false, 0},   {FRAME_VALUE, false, 0},
    {FRAME_FAIL, false, 0},      {FRAME_TICK, false, 0},    {FRAME_BYE, false, 0},    {FRAME_REPORT, true, 0},
    {FRAME_DEATH, true, 0},      {FRAME_NEWS, false, 0},    {FRAME_REFUSE, false, 0}, {FRAME_OTHER, false, 0},
};

struct trial {
    struct ranks ranks;
    struct scene scene;
    volatile bool *was_done;
    pid_t relay;
};

static void start_trial(struct trial *t, struct attack attack) {
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    int listener;
    ranks_prepare(&t->ranks, attack.type == FRAME_DEATH ? 3 : 2);
    ck_assert_ptr_null(net_listen("127.0.0.1", 0, true, &listener));
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    t->scene = (struct scene){attack, net_port(&address)};
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
    ranks_start(&t->ranks, scene_body, &t->scene);
}

/* What only one side can notice may leave the other in peace. */
static void end_trial(struct trial *t) {
    const struct attack *a = &t->scene.attack;
    ranks_wait(&t->ranks);
    kill(t->relay, SIGKILL);
    waitpid(t->relay, NULL, 0);
    ck_assert_msg(*t->was_done, "frame %d never came", a->type);
    for (int r = 0; r < t->ranks.world; r++)
        ck_assert_msg(t->ranks.codes[r] == 0 || t->ranks.codes[r] == 10, "frame %d, how %d: rank %d ended with %d",
                      a->type, a->how, r, t->ranks.codes[r]);
    /* joining is tried again; nothing follows the last frame; a swap with nothing to come drops the frame */
    bool is_joining = a->type == FRAME_HELLO || a->type == FRAME_CHALLENGE || a->type == FRAME_PROOF;
    bool is_noticed = t->ranks.codes[0] == 10 || t->ranks.codes[1] == 10;
    if (a->type != FRAME_BYE && !is_joining)
        ck_assert_msg(is_noticed, "frame %d, how %d: nobody noticed", a->type, a->how);
    munmap((void *)t->was_done, sizeof *t->was_done);
}

/* Many at once, since most of the time they wait. */
#define BATCHES 3

START_TEST(no_forged_word_counts) {
    enum { TYPES = sizeof frames / sizeof *frames, COUNT = TYPES * TAMPERINGS / BATCHES };
    static struct trial trials[COUNT];
    for (int i = 0; i < COUNT; i++) {
        struct attack attack = frames[i % TYPES];
        attack.how = (enum tampering)(_i + i / TYPES * BATCHES);
        start_trial(&trials[i], attack);
    }
    for (int i = 0; i < COUNT; i++) end_trial(&trials[i]);
}
END_TEST

LOOP_TESTS("store_relay", LOOP(no_forged_word_counts, 0, BATCHES))
