/* Ranks that are killed during each call, several jobs, hosts without shared memory. ctest-labels: dist fault */
#include "ranks.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "base/text.h"
#include "check_main.h"

#define LARGE 100000

/* One call that needs rank 1; rank 0 is its root. */
static status call_once(struct comm *c, int how, float *data, float *more) {
    switch (how) {
    case 0:
        return comm_barrier(c);
    case 1:
        return comm_all_reduce(c, data, 10, COMM_FLOAT32, COMM_SUM);
    case 2:
        return comm_all_reduce(c, data, LARGE, COMM_FLOAT32, COMM_SUM);
    case 3:
        return comm_reduce(c, data, LARGE, COMM_FLOAT32, COMM_SUM, 0);
    case 4:
        return comm_reduce_scatter(c, data, LARGE / 4, COMM_FLOAT32, COMM_SUM, more);
    case 5:
        return comm_broadcast(c, data, LARGE, COMM_FLOAT32, 1);
    case 6:
        return comm_all_gather(c, data, LARGE / 4, COMM_FLOAT32, more);
    case 7:
        return comm_gather(c, data, LARGE / 4, COMM_FLOAT32, more, 0);
    case 8:
        return comm_scatter(c, data, LARGE / 4, COMM_FLOAT32, more, 1);
    case 9:
        return comm_send(c, data, LARGE, COMM_FLOAT32, 1);
    case 10:
        return comm_recv(c, data, LARGE, COMM_FLOAT32, 1);
    default:
        return comm_all_reduce(comm_lane(c, 1), data, LARGE, COMM_FLOAT32, COMM_SUM);
    }
}
#define CALLS 12

/* Rank 1 is killed; the calls of the others end soon with a failure that names it. */
static void killed_body(const struct dist_env *env, void *argument) {
    int how = *(int *)argument;
    struct rank_group g = rank_join(env, 60);
    static float data[LARGE], more[LARGE];
    rank_must(comm_barrier(g.comm));
    if (env->rank == 1) raise(SIGKILL);
    double start = clock_seconds();
    status s = OK;
    while (!s) s = call_once(g.comm, how, data, more);
    RANK_CHECK(status_code(s) == STATUS_PEER);
    RANK_CHECK(clock_seconds() - start < 55); /* the timeout is 60 s */
    if (!strstr(status_message(s), "rank 1 (host ") || !strstr(status_message(s), "exited without reporting an error"))
        rank_must(s);
    status_free(s);
    s = comm_barrier(g.comm); /* the group is unusable */
    RANK_CHECK(status_code(s) == STATUS_PEER && strstr(status_message(s), "rank 1 (host "));
    status_free(s);
    rank_leave(&g);
}

TEST_LOOP(killed_rank_is_reported, 0, 2 * CALLS + 3) {
    struct ranks ranks;
    static const int between_hosts[] = {2, 5, 10};
    int how = _i < 2 * CALLS ? _i % CALLS : between_hosts[_i - 2 * CALLS];
    setenv("TEST_BACKEND", _i < CALLS ? "gloo" : "auto", 1);
    setenv("TEST_HOSTS", _i < 2 * CALLS ? "0" : "2", 1);
    ranks_prepare(&ranks, 3);
    ranks_start(&ranks, killed_body, &how);
    ranks_wait(&ranks);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 128 + SIGKILL);
    ck_assert_int_eq(ranks.codes[2], 0);
}

/* Rank 1 is killed in the middle of a large message: Gloo does not end the call of rank 0. */
#define HALF_BYTES ((size_t)128 << 20)

struct transfer {
    volatile char *received; /* memory of the receiver that both ranks see */
    int sender;
};

static void *die_in_the_middle(void *received) {
    while (((volatile char *)received)[1 << 20] == 0) sched_yield();
    kill(getpid(), SIGKILL);
    return NULL;
}

static void transfer_body(const struct dist_env *env, void *argument) {
    const struct transfer *t = argument;
    struct rank_group g = rank_join(env, 60);
    char *received = (char *)t->received, *sent = env->rank == t->sender ? malloc(HALF_BYTES) : NULL;
    pthread_t thread;
    if (sent) memset(sent, 1, HALF_BYTES);
    rank_must(comm_barrier(g.comm));
    if (env->rank == 1) RANK_CHECK(pthread_create(&thread, NULL, die_in_the_middle, received) == 0);
    double start = clock_seconds();
    status s = OK;
    while (!s)
        s = sent ? comm_send(g.comm, sent, HALF_BYTES, COMM_UINT8, 1 - env->rank)
                 : comm_recv(g.comm, received, HALF_BYTES, COMM_UINT8, 1 - env->rank);
    if (env->rank == 1) pause(); /* until the thread has ended the process */
    RANK_CHECK(status_code(s) == STATUS_PEER && strstr(status_message(s), "rank 1 (host "));
    RANK_CHECK(clock_seconds() - start < 55); /* the timeout is 60 s */
    status_free(s);
    rank_leave(&g);
    free(sent);
}

TEST_LOOP(half_a_message, 0, 2) {
    struct ranks ranks;
    struct transfer t = {.sender = _i,
                         .received = mmap(NULL, HALF_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)};
    ck_assert(t.received != MAP_FAILED);
    setenv("TEST_BACKEND", "gloo", 1);
    ranks_prepare(&ranks, 2);
    ranks_start(&ranks, transfer_body, &t);
    ranks_wait(&ranks);
    munmap((void *)t.received, HALF_BYTES);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 128 + SIGKILL);
}

/* Two ranks whose messages differ in size: both fail, neither process ends in Gloo. */
static void sizes_body(const struct dist_env *env, void *argument) {
    static float data[LARGE];
    struct rank_group g = rank_join(env, 3);
    size_t count = env->rank == *(int *)argument ? LARGE : LARGE / 2;
    status s = env->rank == 0 ? comm_send(g.comm, data, count, COMM_FLOAT32, 1)
                              : comm_recv(g.comm, data, count, COMM_FLOAT32, 0);
    RANK_CHECK(status_code(s) == STATUS_PEER);
    status_free(s);
    rank_leave(&g);
}

TEST_LOOP(messages_of_different_sizes, 0, 2) {
    setenv("TEST_BACKEND", "gloo", 1);
    ranks_run(2, sizes_body, &_i);
}

/* What a stranger does after it has connected: the last four send a message of Gloo. */
enum stranger { SILENT, CLOSING, NOISE, TEXT, UNKNOWN_KIND, UNKNOWN_SLOT, LONG_MESSAGE, WRONG_PROOF, STRANGERS };

/* A header of Gloo: bytes of the message, kind, slot, offset, bytes of its data, offset there. */
static void send_message(int fd, uint64_t kind, uint64_t slot, uint64_t size) {
    static const unsigned char data[4096] = {1};
    uint64_t header[6] = {48 + size, kind, slot, 0, size, 0};
    send(fd, header, sizeof header, MSG_NOSIGNAL);
    send(fd, data, size < sizeof data ? size : sizeof data, MSG_NOSIGNAL);
}

#define SEND_UNBOUND 1                    /* the kind of a message with data */
#define PROOF_SLOT ((uint64_t)0x60 << 56) /* that of the proofs in links.cc */

static void behave(int fd, enum stranger kind) {
    static const char text[] =
        "GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: a scanner of ports\r\nAccept: */*\r\n\r\n";
    unsigned char noise[4096];
    uint32_t random = 1;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)((random = random * 1664525u + 1013904223u) >> 24);
    if (kind == CLOSING) close(fd);
    if (kind == NOISE) send(fd, noise, sizeof noise, MSG_NOSIGNAL);
    if (kind == TEXT) send(fd, text, sizeof text, MSG_NOSIGNAL);
    if (kind == UNKNOWN_KIND) send_message(fd, 77, PROOF_SLOT, 32);
    if (kind == UNKNOWN_SLOT) send_message(fd, SEND_UNBOUND, 5, 32);
    if (kind == LONG_MESSAGE) send_message(fd, SEND_UNBOUND, PROOF_SLOT, (uint64_t)1 << 40);
    if (kind == WRONG_PROOF) send_message(fd, SEND_UNBOUND, PROOF_SLOT, 32);
}

/* A stranger connects to a socket on which this process listens, after [others] others. */
static void connect_stranger(enum stranger kind, int others) {
    for (double end = clock_seconds() + 5; clock_seconds() < end; clock_sleep(0.01))
        for (int fd = 3, listening = 0; fd < 256; fd++) {
            struct sockaddr_storage address = {0};
            socklen_t size = sizeof address, int_size = sizeof(int);
            int is_listening = 0;
            if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &int_size) != 0 || !is_listening) continue;
            if (getsockname(fd, (struct sockaddr *)&address, &size) != 0 || address.ss_family != AF_INET) continue;
            if (listening++ < others) continue;
            int stranger = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            RANK_CHECK(connect(stranger, (struct sockaddr *)&address, size) == 0);
            behave(stranger, kind);
            return;
        }
}

/* To the first one. [data]: an enum stranger. */
static void *be_a_stranger(void *data) {
    connect_stranger(*(enum stranger *)data, 0);
    return NULL;
}

/* The first call connects: rank 1 comes later than a connection is waited for, and strangers come first. */
static void late_body(const struct dist_env *env, void *argument) {
    (void)argument;
    pthread_t stranger;
    enum stranger kind = SILENT;
    struct rank_group g = rank_join(env, 60);
    if (env->rank != 0) /* rank 0 listens for the store */
        RANK_CHECK(pthread_create(&stranger, NULL, be_a_stranger, &kind) == 0);
    if (env->rank == 1) clock_sleep(11);
    float sum = (float)env->rank;
    rank_must(comm_all_reduce(g.comm, &sum, 1, COMM_FLOAT32, COMM_SUM));
    RANK_CHECK(sum == 3);
    if (env->rank != 0) pthread_join(stranger, NULL);
    rank_leave(&g);
}

TEST(late_rank_and_strangers) {
    setenv("TEST_BACKEND", "gloo", 1);
    ranks_run(3, late_body, NULL);
}

/* A stranger is first: the ranks are connected before the job counts as hung (8 s). Then nothing listens any more. */
static void stranger_body(const struct dist_env *env, void *argument) {
    enum stranger kind = *(enum stranger *)argument;
    pthread_t stranger;
    struct rank_group g = rank_join(env, 60);
    if (env->rank == 1) /* rank 0 listens for the store */
        RANK_CHECK(pthread_create(&stranger, NULL, be_a_stranger, &kind) == 0);
    if (env->rank == 0) clock_sleep(0.2); /* the stranger is before rank 0 */
    double start = clock_seconds();
    float sum = (float)env->rank;
    rank_must(comm_all_reduce(g.comm, &sum, 1, COMM_FLOAT32, COMM_SUM));
    RANK_CHECK(sum == 1 && clock_seconds() - start < 8);
    for (int fd = 3; env->rank == 1 && fd < 256; fd++) {
        int is_listening = 0;
        socklen_t size = sizeof is_listening;
        RANK_CHECK(getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &size) != 0 || !is_listening);
    }
    if (env->rank == 1) pthread_join(stranger, NULL);
    rank_leave(&g);
}

TEST_LOOP(stranger_on_a_port_of_gloo, 0, 2 * STRANGERS) { /* in half of the runs rank 1 is the one that listens */
    enum stranger kind = (enum stranger)(_i / 2);
    setenv("TEST_BACKEND", "gloo", 1);
    ranks_run(2, stranger_body, &kind);
}

/* Rank 2 is lost when a stranger has just sent a malformed message to rank 1, which is connecting: the abort and Gloo's
 * thread close the same connection, and neither waits for the other. */
struct lost_rank {
    volatile pid_t pid; /* of rank 2, in memory that the ranks share */
    double delay;       /* from the message to the end of rank 2 */
};

static void *send_and_kill(void *argument) {
    const struct lost_rank *lost = argument;
    connect_stranger(UNKNOWN_KIND, 1); /* the first one is for rank 0, whose connection is soon made */
    clock_sleep(lost->delay);
    kill(lost->pid, SIGKILL);
    return NULL;
}

static void abort_body(const struct dist_env *env, void *argument) {
    struct lost_rank *lost = argument;
    pthread_t thread;
    struct rank_group g = rank_join(env, 60);
    if (env->rank == 2) {
        lost->pid = getpid();
        pause();
    }
    while (env->rank == 1 && lost->pid == 0) clock_sleep(0.001);
    if (env->rank == 1) RANK_CHECK(pthread_create(&thread, NULL, send_and_kill, lost) == 0);
    float sum = 0;
    double start = clock_seconds();
    status s = comm_all_reduce(g.comm, &sum, 1, COMM_FLOAT32, COMM_SUM);
    RANK_CHECK(status_code(s) == STATUS_PEER && strstr(status_message(s), "rank 2 (host "));
    RANK_CHECK(clock_seconds() - start < 55); /* the timeout is 60 s */
    status_free(s);
    if (env->rank == 1) pthread_join(thread, NULL);
    rank_leave(&g);
}

TEST_LOOP(abort_beside_a_stranger, 0, 4) {
    struct ranks ranks;
    struct lost_rank *lost = mmap(NULL, sizeof *lost, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(lost != MAP_FAILED);
    lost->delay = _i * 0.0002;
    setenv("TEST_BACKEND", "gloo", 1);
    ranks_prepare(&ranks, 3);
    ranks_start(&ranks, abort_body, lost);
    ranks_wait(&ranks);
    munmap(lost, sizeof *lost);
    ck_assert_int_eq(ranks.codes[0], 0);
    ck_assert_int_eq(ranks.codes[1], 0);
    ck_assert_int_eq(ranks.codes[2], 128 + SIGKILL);
}

/* Rank 1 may not open the files that its first call needs. */
static void few_files_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct rank_group g = rank_join(env, 20);
    rlim_t open_now = (rlim_t)open_descriptors();
    struct rlimit limit = {open_now, open_now};
    if (env->rank == 1) RANK_CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    status s = comm_barrier(g.comm);
    RANK_CHECK(status_code(s) == (env->rank == 1 ? STATUS_IO : STATUS_PEER));
    RANK_CHECK(env->rank == 0 || strstr(status_message(s), "too many open files"));
    status_free(s);
    rank_leave(&g);
}

TEST(too_few_files) {
    setenv("TEST_BACKEND", "gloo", 1);
    ranks_run(2, few_files_body, NULL);
}

/* Two jobs with the same job id at the same time. */
static void job_body(const struct dist_env *env, void *argument) {
    struct rank_group g = rank_join(env, 20);
    static float data[20000];
    for (int n = 0; n < 200; n++) {
        size_t count = n % 2 ? 20000 : 10;
        for (size_t i = 0; i < count; i++) data[i] = *(float *)argument + (float)i;
        rank_must(comm_all_reduce(g.comm, data, count, COMM_FLOAT32, COMM_SUM));
        for (size_t i = 0; i < count; i++)
            RANK_CHECK(data[i] == (*(float *)argument + (float)i) * (float)env->world_size);
    }
    rank_leave(&g);
}

TEST(two_jobs_do_not_mix) {
    struct ranks ranks[2];
    float values[] = {1000, 2};
    for (int job = 0; job < 2; job++) {
        ranks_prepare(&ranks[job], 2);
        ranks_start(&ranks[job], job_body, &values[job]);
    }
    for (int job = 0; job < 2; job++) {
        ranks_wait(&ranks[job]);
        for (int r = 0; r < 2; r++) ck_assert_int_eq(ranks[job].codes[r], 0);
    }
}

/* Shared memory does not need /dev/shm, which has one page here. */
static void tiny_body(const struct dist_env *env, void *argument) {
    (void)argument;
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0)
        RANK_CHECK(mount("tiny", "/dev/shm", "tmpfs", 0, "size=4096") == 0);
    struct rank_group g = rank_join(env, 20);
    void *buffer;
    RANK_CHECK(strcmp(comm_backend(g.comm), "shm") == 0);
    rank_must(comm_alloc(g.comm, 4 << 20, &buffer));
    float *data = buffer;
    for (size_t i = 0; i < 1 << 20; i++) data[i] = (float)env->rank;
    rank_must(comm_all_reduce(g.comm, data, 1 << 20, COMM_FLOAT32, COMM_SUM));
    for (size_t i = 0; i < 1 << 20; i++) RANK_CHECK(data[i] == 3);
    rank_leave(&g);
}

TEST(tiny_dev_shm) { ranks_run(3, tiny_body, NULL); }

/* Memory of comm_alloc, parts of it, and other memory. */
static void alloc_body(const struct dist_env *env, void *argument) {
    (void)argument;
    enum { COUNT = 50000 };
    struct rank_group g = rank_join(env, 20);
    static float own[COUNT];
    void *buffer;
    rank_must(comm_alloc(g.comm, COUNT * sizeof(float), &buffer));
    float *shared = buffer;
    for (size_t i = 0; i < COUNT; i++) RANK_CHECK(shared[i] == 0);
    for (int turn = 0; turn < 30; turn++) {
        size_t begin = (size_t)turn * 333, count = COUNT - begin - (size_t)turn;
        /* in some calls one rank uses other memory, or another offset */
        float *data =
            turn % 3 == 1 && env->rank == 0 ? own : shared + (turn % 3 == 2 && env->rank == 1 ? begin / 2 : begin);
        for (size_t i = 0; i < count; i++) data[i] = sinf((float)i + 0.1f * (float)env->rank);
        rank_must(comm_all_reduce(comm_lane(g.comm, turn % 2), data, count, COMM_FLOAT32, COMM_SUM));
        for (size_t i = 0; i < count; i++) {
            float sum = sinf((float)i);
            for (int r = 1; r < env->world_size; r++) sum += sinf((float)i + 0.1f * (float)r);
            RANK_CHECK(data[i] == sum);
        }
    }
    rank_leave(&g);
}

TEST_LOOP(allocated_memory, 0, 4) {
    setenv("TEST_BACKEND", _i == 0 ? "gloo" : "auto", 1);
    ranks_run(_i + 1, alloc_body, NULL);
}

/* Rank 0 cannot create shared memory: all ranks use Gloo, or fail with the reason. */
static void no_memory_body(const struct dist_env *env, void *argument) {
    struct comm *comm;
    struct store *store;
    struct rlimit limit = {4096, 4096};
    signal(SIGXFSZ, SIG_IGN);
    if (env->rank == 0) RANK_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    rank_must(store_open(env, 20, &store));
    status s = comm_create(argument, env, store, 20, &comm);
    if (strcmp(argument, "shm") == 0) {
        RANK_CHECK(status_code(s) == STATUS_IO && strstr(status_message(s), "File too large"));
        status_free(s);
    } else {
        rank_must(s);
        RANK_CHECK(strcmp(comm_backend(comm), "gloo") == 0);
        RANK_CHECK(strcmp(comm_describe(comm), "gloo (no shared memory: File too large)") == 0);
        rank_must(comm_barrier(comm));
    }
    comm_destroy(comm);
    store_close(store);
}

TEST_LOOP(no_shared_memory, 0, 2) { ranks_run(3, no_memory_body, _i ? "shm" : "auto"); }

/* The backend shm requires one host. */
static void two_hosts_body(const struct dist_env *env, void *argument) {
    (void)argument;
    struct comm *comm;
    struct store *store;
    setenv("TEST_HOSTS", "2", 1);
    rank_set_host(env);
    rank_must(store_open(env, 20, &store));
    status s = comm_create("shm", env, store, 20, &comm);
    RANK_CHECK(status_code(s) == STATUS_USAGE && strstr(status_message(s), "on 2 hosts"));
    status_free(s);
    store_close(store);
}

TEST(shm_needs_one_host) { ranks_run(3, two_hosts_body, NULL); }

CHECK_MAIN("comm_faults")
