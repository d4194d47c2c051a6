/* growth: the server of the store, unmodified, with all ranks of a large job, in one thread and virtual time. It prints
 * and checks what joining, a failure and the end cost in messages, bytes, connections and time. A rank is a state
 * machine of a few hundred bytes that sends what src/dist/store/store.c and src/dist/comm send; tests/dist/test_store.c
 * counts the same messages between processes. Only the server's system calls on sockets are replaced (README.md). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "dist/process/net.h"
#include "dist/store/store_frame.h"
#include "dist/store/store_server.h"

#define FIRST_FD 1000000 /* of the simulated descriptors; smaller ones are real */
#define EPOLL_FD FIRST_FD
#define LISTENER_FD (FIRST_FD + 1)
#define LINK_FD (FIRST_FD + 2)
#define CALL_SECONDS 2e-6 /* of a system call of the server */
#define START_SECONDS 1.0 /* in which the processes of the job start */
#define STEPS_SECONDS 1.0 /* between joining and the end of the job */
#define LATE_SECONDS 60.0 /* for the late rank */
#define TIMEOUT 120.0     /* dist.timeout */
#define FRAME_LIMIT (1 << 20)

/* ---- the job ---- */

enum bad_case { NOTHING, DEATH, POWER_OFF, LATE, OTHER_JOB, CASES };
static const char *const case_names[CASES] = {"nothing", "a host's processes die while ranks join",
                                              "a host falls silent", "a rank is late by a minute",
                                              "all ranks of another job connect, too"};

/* A connection of a rank with the server. */
struct link {
    struct rank *rank;
    int stage; /* frames of the server so far, up to the first SERVER_HEARTBEAT */
    struct message_handshake shake;
    struct message_session session;
    uint8_t *in; /* (in_size, in_used): has arrived at the server */
    size_t in_size, in_used;
    bool has_end, is_closed, is_ready; /* the rank has closed it; the server has; it is in the list of ready ones */
    uint32_t events;
    void *data; /* of epoll */
};

struct rank {
    int number, host, step; /* step: of its requests */
    bool has_joined, has_ended, is_silent, is_stranger;
    struct link *link;
    char text[200]; /* of the failure that ended it */
};

struct event {
    double at;
    uint64_t order;
    enum { STARTS, CONNECTS, TO_SERVER, TO_RANK, ENDS, BEATS, LEAVES, DIES } kind;
    struct rank *rank;
    struct link *link;
    uint8_t *bytes;
    size_t size;
};

static struct world {
    int hosts, nproc, ranks; /* of the job */
    enum bad_case bad;
    double now, latency; /* latency: one way, seconds */
    uint64_t order;
    struct event *heap; /* (events, capacity) by time */
    size_t events, capacity;
    struct link **links; /* (link_count) by descriptor */
    size_t link_count, link_capacity;
    struct link **queue; /* at the listener: (queue_count) from queue_first */
    size_t queue_first, queue_count, queue_capacity;
    struct link **ready; /* (ready_count) */
    size_t ready_count, ready_capacity;
    void *wake_data, *listener_data;
    int wake_fd;
    bool is_listening;
    int open, max_open;     /* descriptors of the server */
    struct rank *all;       /* (ranks) */
    struct rank *other_job; /* (ranks) of another job with the same port; NULL: none */
    int joined, ended;
    double joined_at, ended_at, failed_at;
    pthread_mutex_t mutex;
    pthread_cond_t over;
    bool is_over;
} w;

static const uint8_t secret[32] = "the secret of this job";

static _Noreturn void fail(const char *what) {
    fprintf(stderr, "growth: %s\n", what);
    exit(1);
}

static void *grow(void *array, size_t count, size_t *capacity, size_t size) {
    if (count < *capacity) return array;
    *capacity = *capacity ? 2 * *capacity : 64;
    array = realloc(array, *capacity * size);
    if (!array) fail("no memory");
    return array;
}

/* ---- events ---- */

static bool is_before(const struct event *a, const struct event *b) {
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static struct event *at(double seconds, int kind, struct rank *rank, struct link *link) {
    w.heap = grow(w.heap, w.events, &w.capacity, sizeof *w.heap);
    struct event e = {.at = w.now + seconds, .order = w.order++, .kind = kind, .rank = rank, .link = link};
    size_t i = w.events++;
    for (; i > 0 && is_before(&e, &w.heap[(i - 1) / 2]); i = (i - 1) / 2) w.heap[i] = w.heap[(i - 1) / 2];
    w.heap[i] = e;
    return &w.heap[i];
}

static struct event next_event(void) {
    struct event first = w.heap[0], last = w.heap[--w.events];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w.events; i = child) {
        if (child + 1 < w.events && is_before(&w.heap[child + 1], &w.heap[child])) child++;
        if (!is_before(&w.heap[child], &last)) break;
        w.heap[i] = w.heap[child];
    }
    w.heap[i] = last;
    return first;
}

static void carry(int kind, struct link *link, const void *bytes, size_t size) {
    struct event *e = at(w.latency, kind, link->rank, link);
    e->bytes = malloc(size + 1);
    if (!e->bytes) fail("no memory");
    memcpy(e->bytes, bytes, size);
    e->size = size;
}

/* ---- a rank: what it sends ---- */

static void send_frame(struct link *link, enum store_type type, const void *body, size_t size) {
    static uint8_t bytes[STORE_HEADER + STORE_MAX_BODY];
    struct store_frame frame = {.type = type,
                                .rank = (uint32_t)link->rank->number,
                                .job = link->rank->is_stranger ? 8 : 7,
                                .body = body,
                                .length = (uint32_t)size};
    carry(TO_SERVER, link, bytes, store_frame_write(&link->session, &frame, bytes));
}

static struct link *link_new(struct rank *rank) {
    struct link *link = calloc(1, sizeof *link);
    if (!link) fail("no memory");
    *link = (struct link){.rank = rank};
    rank->link = link;
    w.links = grow(w.links, w.link_count, &w.link_capacity, sizeof *w.links);
    return link;
}

static void say_hello(struct rank *rank) {
    struct link *link = link_new(rank);
    uint8_t body[STORE_HELLO];
    link->shake = (struct message_handshake){
        .job = 7, .rank = (uint32_t)rank->number, .world = (uint32_t)w.ranks, .purpose = FOR_RANK};
    message_nonce(link->shake.client_nonce);
    struct store_hello hello = {.nonce = link->shake.client_nonce, .world = (uint32_t)w.ranks, .purpose = FOR_RANK};
    store_write_hello(&hello, body);
    at(w.latency, CONNECTS, rank, link);
    send_frame(link, FRAME_HELLO, body, sizeof body);
}

static void send_gather(struct rank *rank, enum store_gather kind, const char *key, int index, int count,
                        const char *value) {
    uint8_t body[STORE_GATHER + STORE_MAX_KEY + 64];
    struct store_gather_request r = {.kind = kind,
                                     .milliseconds = (uint32_t)(TIMEOUT * 1000),
                                     .index = (uint32_t)index,
                                     .count = (uint32_t)count,
                                     .value = (const uint8_t *)value,
                                     .size = strlen(value)};
    send_frame(rank->link, FRAME_GATHER, body, store_write_gather(&r, key, body));
}

/* The first rank of a host connects for the sums of a step with those of the hosts 1, 2, 4, ... after and before its
 * own (src/dist/comm/collectives.h): the number of these connections. */
static int link_count(void) {
    int count = 0;
    for (int step = 1; step < w.hosts; step *= 2) count += 2;
    return count;
}

/* Publishes where the peer of connection [i] can connect, or takes what the peer has published for it. */
static void send_link(const struct rank *rank, int i, bool takes) {
    uint8_t body[256] = {0};
    char key[64];
    int step = 1 << i / 2, peer = (rank->host + (i % 2 ? w.hosts - step % w.hosts : step)) % w.hosts * w.nproc;
    int from = takes ? peer : rank->number, to = takes ? rank->number : peer;
    snprintf(key, sizeof key, "comm/leaders/link%d/0/%d-%d", takes ? i ^ 1 : i, from, to);
    size_t length = strlen(key);
    if (takes) {
        store_write_u32(body, (uint32_t)(TIMEOUT * 1000));
        memcpy(body + 4, key, length);
        send_frame(rank->link, FRAME_TAKE, body, 4 + length);
    } else {
        body[0] = (uint8_t)length;
        memcpy(body + 1, key, length);
        send_frame(rank->link, FRAME_SET, body, 1 + length + 60); /* a nonce and an address */
    }
}

static void end_joining(struct rank *rank) {
    rank->has_joined = true;
    if (++w.joined < w.ranks) return;
    w.joined_at = w.now;
    for (int r = 0; r < w.ranks; r++) at(STEPS_SECONDS, LEAVES, &w.all[r], NULL);
}

/* The requests of a rank, in the order of store_open, store_agree and comm_create; then those of its connections. */
static void send_request(struct rank *rank) {
    uint8_t body[4 + STORE_MAX_KEY];
    char key[64], host[32];
    int local = rank->number % w.nproc, links = link_count();
    snprintf(key, sizeof key, "comm/host%d/map/socket0", rank->host);
    switch (rank->step) {
    case 0:
        store_write_u32(body, (uint32_t)(TIMEOUT * 1000));
        send_frame(rank->link, FRAME_READY, body, 4);
        return;
    case 1:
        send_gather(rank, GATHER_NUMBERS, "agree/0", rank->number, w.ranks, "a digest of 32 bytes ...........");
        return;
    case 2:
        snprintf(host, sizeof host, "host number %d of the job", rank->host);
        send_gather(rank, GATHER_NUMBERS, "hosts", rank->number, w.ranks, host);
        return;
    case 3: /* the first rank of a host publishes where its shared memory is, the others read it */
        body[0] = (uint8_t)strlen(key);
        memcpy(body + 1, key, strlen(key));
        if (local == 0) send_frame(rank->link, FRAME_SET, body, 1 + strlen(key));
        store_write_u32(body, (uint32_t)(TIMEOUT * 1000));
        memcpy(body + 4, key, strlen(key));
        if (local > 0) send_frame(rank->link, FRAME_GET, body, 4 + strlen(key));
        return;
    case 4:
        snprintf(key, sizeof key, "comm/host%d/map/result", rank->host);
        send_gather(rank, GATHER_FIRST, key, local, w.nproc, "");
        return;
    case 5:
        send_gather(rank, GATHER_FIRST, "comm/result", rank->number, w.ranks, "");
        return;
    default:
        if (local > 0 || rank->step - 6 >= 2 * links)
            end_joining(rank);
        else
            send_link(rank, (rank->step - 6) % links, rank->step - 6 >= links);
    }
}

static void send_beat(struct rank *rank) {
    uint8_t body[STORE_HEARTBEAT];
    if (rank->has_ended || rank->is_silent) return;
    store_write_heartbeat(&(struct activity_snapshot){0}, body);
    send_frame(rank->link, FRAME_HEARTBEAT, body, sizeof body);
    at(store_heartbeat_seconds(w.ranks, 1), BEATS, rank, NULL);
}

/* ---- a rank: what it receives ---- */

static void close_link(struct rank *rank) {
    if (rank->link) at(w.latency, ENDS, rank, rank->link);
}

static void end_rank(struct rank *rank) {
    if (rank->has_ended) return;
    rank->has_ended = true;
    w.ended_at = w.now;
    if (!rank->is_stranger) w.ended++;
}

static void on_failure(struct rank *rank, const uint8_t *text, size_t size) {
    if (rank->has_ended) return;
    store_parse_text(text, size, rank->text, sizeof rank->text);
    end_rank(rank);
    close_link(rank);
}

static void on_handshake(struct link *link, const struct store_frame *frame) {
    if (frame->type == FRAME_REJECT) {
        on_failure(link->rank, frame->body, frame->length);
    } else if (frame->type == FRAME_CHALLENGE && link->stage == 0) {
        memcpy(link->shake.server_nonce, frame->body, MESSAGE_NONCE);
        session_begin(&link->session, secret, &link->shake, false);
        send_frame(link, FRAME_PROOF, "host h, pid 1", 13);
        link->stage = 1;
    } else if (frame->type == FRAME_WELCOME && link->stage == 1) {
        link->stage = 2;
        send_beat(link->rank);
    } else if (frame->type == FRAME_SERVER_HEARTBEAT && link->stage == 2) {
        link->stage = 3;
        send_request(link->rank);
    } else {
        fail("an unexpected frame while joining");
    }
}

static void on_frame(struct link *link, const struct store_frame *frame) {
    struct rank *rank = link->rank;
    if (rank->has_ended || rank->is_silent) return;
    if (link->stage < 3)
        on_handshake(link, frame);
    else if (frame->type == FRAME_JOB_FAILURE)
        on_failure(rank, frame->body + STORE_JOB_FAILURE, frame->length - STORE_JOB_FAILURE);
    else if (frame->type == FRAME_ERROR)
        on_failure(rank, frame->body + 4, frame->length - 4);
    else if (frame->type == FRAME_DONE || frame->type == FRAME_VALUE)
        rank->step++, send_request(rank);
    else if (frame->type != FRAME_SERVER_HEARTBEAT && frame->type != FRAME_BYE)
        fail("an unexpected frame");
}

static void receive(struct link *link, const uint8_t *bytes, size_t size) {
    struct store_frame frame;
    for (size_t used = 0; size > 0; bytes += used, size -= used) {
        if (store_frame_parse(bytes, size, FRAME_LIMIT, &frame, &used) != PARSED_FRAME) fail("a part of a frame");
        if (!store_frame_verify(&link->session, &frame)) fail("a wrong tag");
        on_frame(link, &frame);
    }
}

/* ---- the network ---- */

static void make_ready(struct link *link) {
    if (link->is_ready || link->is_closed) return;
    w.ready = grow(w.ready, w.ready_count, &w.ready_capacity, sizeof(struct link *));
    w.ready[w.ready_count++] = link;
    link->is_ready = true;
}

static void arrive(struct link *link, const uint8_t *bytes, size_t size) {
    if (link->is_closed) return;
    link->in = realloc(link->in, link->in_size + size + 1);
    if (!link->in) fail("no memory");
    memcpy(link->in + link->in_size, bytes, size);
    link->in_size += size;
    make_ready(link);
}

static void leave(struct rank *rank) {
    if (rank->has_ended) return;
    send_frame(rank->link, FRAME_BYE, NULL, 0);
    end_rank(rank);
    close_link(rank);
}

static void handle(const struct event *e) {
    switch (e->kind) {
    case STARTS:
        if (!e->rank->has_ended) say_hello(e->rank);
        break;
    case CONNECTS:
        w.queue = grow(w.queue, w.queue_count, &w.queue_capacity, sizeof(struct link *));
        w.queue[w.queue_count++] = e->link;
        break;
    case TO_SERVER:
        arrive(e->link, e->bytes, e->size);
        break;
    case TO_RANK:
        receive(e->link, e->bytes, e->size);
        break;
    case ENDS:
        e->link->has_end = true;
        make_ready(e->link);
        break;
    case BEATS:
        send_beat(e->rank);
        break;
    case LEAVES:
        leave(e->rank);
        break;
    case DIES:
        if (e->rank->has_ended) break;
        if (w.failed_at == 0) w.failed_at = w.now;
        e->rank->is_silent = true;
        end_rank(e->rank);
        if (w.bad == DEATH) close_link(e->rank);
    }
    free(e->bytes);
}

/* ---- system calls of the server ---- */

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_close(int fd);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event);
int __wrap_epoll_wait(int epoll, struct epoll_event *events, int count, int timeout);
int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size);
ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags);
ssize_t __wrap___recv_chk(int fd, void *bytes, size_t size, size_t capacity, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags);
int __real_close(int fd);
int __real_clock_gettime(clockid_t clock, struct timespec *out);

static struct link *link_of(int fd) { return w.links[fd - LINK_FD]; }

static int open_link(struct link *link) {
    w.links = grow(w.links, w.link_count, &w.link_capacity, sizeof *w.links);
    w.links[w.link_count++] = link;
    if (++w.open > w.max_open) w.max_open = w.open;
    return LINK_FD + (int)w.link_count - 1;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
    (void)fd;
    (void)flags;
    w.now += CALL_SECONDS;
    if (w.queue_first == w.queue_count) {
        errno = EAGAIN;
        return -1;
    }
    struct link *link = w.queue[w.queue_first++];
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x0a000001u + (uint32_t)link->rank->host)};
    memcpy(address, &from, sizeof from);
    *size = sizeof from;
    return open_link(link);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *out) {
    if (clock != CLOCK_MONOTONIC) return __real_clock_gettime(clock, out);
    double seconds = 1000 + w.now;
    *out = (struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    return 0;
}

int __wrap_close(int fd) {
    if (fd < FIRST_FD) return __real_close(fd);
    if (fd < LINK_FD) return 0;
    struct link *link = link_of(fd);
    link->is_closed = true;
    free(link->in);
    link->in = NULL;
    w.open--;
    return 0;
}

int __wrap_epoll_create1(int flags) {
    (void)flags;
    return EPOLL_FD;
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    (void)epoll;
    if (fd < FIRST_FD) {
        w.wake_fd = fd;
        w.wake_data = event->data.ptr;
    } else if (fd == LISTENER_FD) {
        w.is_listening = event->events != 0;
        w.listener_data = event->data.ptr;
    } else if (operation != EPOLL_CTL_DEL) {
        link_of(fd)->events = event->events;
        link_of(fd)->data = event->data.ptr;
        if (link_of(fd)->in_size > link_of(fd)->in_used || link_of(fd)->has_end) make_ready(link_of(fd));
    }
    return 0;
}

static int take_ready(struct epoll_event *events, int count) {
    int taken = 0;
    if (w.is_listening && w.queue_first < w.queue_count)
        events[taken++] = (struct epoll_event){.events = EPOLLIN, .data.ptr = w.listener_data};
    while (taken < count && w.ready_count > 0) {
        struct link *link = w.ready[--w.ready_count];
        link->is_ready = false;
        uint32_t happened = link->events & EPOLLIN;
        if (link->has_end) happened |= EPOLLHUP;
        if (link->is_closed || !link->data || !happened) continue; /* not accepted yet, or closed */
        events[taken++] = (struct epoll_event){.events = happened, .data.ptr = link->data};
    }
    return taken;
}

/* The job is over for the ranks: lets the main thread stop the server, whose wake is then readable. */
static void report_over(void) {
    if (w.is_over || w.ended < w.ranks) return;
    pthread_mutex_lock(&w.mutex);
    w.is_over = true;
    pthread_cond_signal(&w.over);
    pthread_mutex_unlock(&w.mutex);
    poll(&(struct pollfd){.fd = w.wake_fd, .events = POLLIN}, 1, -1);
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int count, int timeout) {
    double until = w.now + timeout * 1e-3;
    (void)epoll;
    for (;;) {
        int ready = take_ready(events, count);
        report_over();
        if (!ready && w.is_over && poll(&(struct pollfd){.fd = w.wake_fd, .events = POLLIN}, 1, 0) > 0) {
            events[0] = (struct epoll_event){.events = EPOLLIN, .data.ptr = w.wake_data};
            ready = 1;
        }
        w.now += CALL_SECONDS;
        if (ready) return ready;
        if (w.events == 0 || w.heap[0].at > until) {
            if (until > w.now) w.now = until;
            return 0;
        }
        struct event e = next_event();
        if (e.at > w.now) w.now = e.at;
        handle(&e);
    }
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size) {
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x0a000001u)};
    (void)fd;
    memcpy(address, &here, sizeof here);
    *size = sizeof here;
    return 0;
}

/* TCP_INFO: a silent host acknowledges nothing. */
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size) {
    (void)level;
    (void)name;
    memset(value, 0, *size);
    struct { /* struct tcp_info of <netinet/tcp.h> up to the field that net_link_age reads */
        uint8_t bytes[8];
        uint32_t words[13];
    } info = {{0}, {0}};
    if (link_of(fd)->rank->is_silent) info.words[12] = (uint32_t)((w.now - w.failed_at) * 1000);
    memcpy(value, &info, sizeof info < *size ? sizeof info : *size);
    return 0;
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags) {
    struct link *link = link_of(fd);
    size_t left = link->in_size - link->in_used;
    (void)flags;
    w.now += CALL_SECONDS;
    if (left == 0 && link->has_end) return 0;
    if (left == 0) {
        errno = EAGAIN;
        return -1;
    }
    if (size > left) size = left;
    memcpy(bytes, link->in + link->in_used, size);
    link->in_used += size;
    if (link->in_used == link->in_size) link->in_used = link->in_size = 0;
    return (ssize_t)size;
}

ssize_t __wrap___recv_chk(int fd, void *bytes, size_t size, size_t capacity, int flags) {
    (void)capacity;
    return __wrap_recv(fd, bytes, size, flags);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    (void)flags;
    w.now += CALL_SECONDS;
    carry(TO_RANK, link_of(fd), bytes, size);
    return (ssize_t)size;
}

/* ---- a run ---- */

struct result {
    struct store_traffic traffic;
    double joined, ended; /* virtual seconds: until all had joined; from the failure until the last rank had ended */
    double processor;     /* seconds of the server and of all ranks */
    int open;             /* descriptors of the server for connections, at most */
    int failed;           /* ranks that ended with a failure */
    int turned_away;      /* ranks of the other job */
    char text[200];       /* of the last of them */
};

static void start_ranks(void) {
    struct rank *first = &w.all[0];
    for (int r = 0; r < w.ranks; r++) w.all[r] = (struct rank){.number = r, .host = r / w.nproc};
    link_new(first)->stage = 3;
    for (int r = 1; r < w.ranks; r++) {
        double when = START_SECONDS * (double)((uint32_t)r * 2654435761u) / 4294967296.0;
        if (w.bad == LATE && r == w.ranks - 1) when = LATE_SECONDS;
        at(when, STARTS, &w.all[r], NULL);
        bool dies = (w.bad == DEATH || w.bad == POWER_OFF) && w.all[r].host == w.hosts - 1;
        if (dies) at(START_SECONDS / 2, DIES, &w.all[r], NULL);
    }
    send_request(first);
    send_beat(first);
}

/* The ranks of another job, on the same hosts, that was given the same port; its rank 0 could not listen. */
static void start_other_job(void) {
    w.other_job = calloc((size_t)w.ranks, sizeof *w.other_job);
    if (!w.other_job) fail("no memory");
    for (int r = 1; r < w.ranks; r++) {
        w.other_job[r] = (struct rank){.number = r, .host = r / w.nproc, .is_stranger = true};
        at(START_SECONDS * r / w.ranks, STARTS, &w.other_job[r], NULL);
    }
}

static double processor_seconds(void) {
    struct timespec used;
    __real_clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static void free_world(void) {
    while (w.events > 0) free(next_event().bytes);
    for (int r = 0; r < w.ranks; r++) free(w.all[r].link);
    for (int r = 0; w.other_job && r < w.ranks; r++) free(w.other_job[r].link);
    free(w.other_job);
    free(w.heap);
    free(w.links);
    free(w.queue);
    free(w.ready);
    free(w.all);
    pthread_mutex_destroy(&w.mutex);
    pthread_cond_destroy(&w.over);
}

static struct result run(int hosts, int nproc, double latency, enum bad_case bad) {
    struct store_server *server;
    w = (struct world){.hosts = hosts, .nproc = nproc, .ranks = hosts * nproc, .bad = bad, .latency = latency};
    w.all = calloc((size_t)w.ranks, sizeof *w.all);
    if (!w.all) fail("no memory");
    pthread_mutex_init(&w.mutex, NULL);
    pthread_cond_init(&w.over, NULL);
    struct result result = {.processor = -processor_seconds()};
    start_ranks();
    if (bad == OTHER_JOB) start_other_job();
    struct store_server_config config = {.listener = LISTENER_FD,
                                         .local = open_link(w.all[0].link),
                                         .world_size = w.ranks,
                                         .node_size = nproc,
                                         .spare = net_max_unproven(w.ranks),
                                         .limits = {.slow = TIMEOUT, .pace = store_pace(w.ranks, 1)},
                                         .heartbeat_seconds = store_heartbeat_seconds(w.ranks, 1),
                                         .job = 7,
                                         .secret = secret,
                                         .endpoint = "n0:29500",
                                         .hint = "",
                                         .process = "host h0, pid 1"};
    if (store_server_start(&config, &server)) fail("the server did not start");
    pthread_mutex_lock(&w.mutex);
    while (!w.is_over) pthread_cond_wait(&w.over, &w.mutex);
    pthread_mutex_unlock(&w.mutex);
    store_server_traffic(server, &result.traffic);
    store_server_stop(server);
    result.processor += processor_seconds();
    result.joined = w.joined_at;
    result.ended = w.ended_at - (w.failed_at > 0 ? w.failed_at : w.joined_at + STEPS_SECONDS);
    result.open = w.max_open;
    for (int r = 0; r < w.ranks; r++) {
        if (!*w.all[r].text) continue;
        result.failed++;
        snprintf(result.text, sizeof result.text, "%s", w.all[r].text);
    }
    for (int r = 1; w.other_job && r < w.ranks; r++) {
        result.turned_away += strcmp(w.other_job[r].text, "it belongs to another job") == 0;
        snprintf(result.text, sizeof result.text, "%s", w.other_job[r].text);
    }
    free_world();
    return result;
}

/* ---- tables and checks ---- */

static int problems;

static void expect(bool condition, const char *what) {
    if (condition) return;
    problems++;
    printf("FAILED: %s\n", what);
}

/* Messages and bytes for each rank are constants. */
static void check_growth(const struct result *r, int hosts, int links) {
    uint64_t all = 8 * (uint64_t)hosts, requests = 2 * (uint64_t)links; /* SET and TAKE */
    expect(r->traffic.received <= 8 * all + requests, "a rank sends more than 8 messages and 2 for each connection");
    expect(r->traffic.sent <= 8 * all + requests, "a rank gets more than 8 messages and 2 for each connection");
    expect(r->traffic.bytes_received <= 700 * all + 120 * requests, "a rank sends more bytes");
    expect(r->traffic.bytes_sent <= 480 * all + 80 * requests, "a rank gets more bytes");
    expect(r->traffic.keys == (uint64_t)hosts, "more than one key for a host is left");
    expect((uint64_t)r->open <= all, "more than one connection for a rank");
    expect(r->failed == 0 && r->joined > 0, "a rank failed");
}

static void print_growth(int max_hosts) {
    puts("| hosts | ranks | messages of a rank, sent, got | bytes of a rank, sent, got | connections | links | keys "
         "left | "
         "joined | ended | processor |");
    for (int hosts = 10; hosts <= max_hosts; hosts *= 10) {
        struct result r = run(hosts, 8, 5e-5, NOTHING);
        double ranks = 8.0 * hosts;
        int links = hosts * link_count();
        printf("| %d | %d | %.2f, %.2f | %.0f, %.0f | %d | %d | %d | %.2f s | %.2f s | %.2f s |\n", hosts, 8 * hosts,
               (double)r.traffic.received / ranks, (double)r.traffic.sent / ranks,
               (double)r.traffic.bytes_received / ranks, (double)r.traffic.bytes_sent / ranks, r.open, links,
               (int)r.traffic.keys, r.joined, r.ended, r.processor);
        check_growth(&r, hosts, links);
    }
}

static void print_case(enum bad_case bad, double latency, const char *text, double seconds) {
    struct result r = run(125, 8, latency, bad);
    printf("%s, round trip %g ms: joined after %.2f s, ended after %.2f s, %d of 1000 ranks failed%s%s\n",
           case_names[bad], 2000 * latency, r.joined, r.ended, r.failed, *r.text ? ": " : "", r.text);
    expect(strstr(r.text, text) != NULL, "another message");
    expect(r.ended <= seconds, "it takes too long");
    bool has_failure = bad == DEATH || bad == POWER_OFF;
    expect(has_failure == (r.joined == 0), "joining");
    expect(r.failed == (has_failure ? 992 : 0), "ranks that failed");
    expect(r.turned_away == (bad == OTHER_JOB ? 999 : 0), "ranks of another job that were turned away");
}

int main(int argc, char **argv) {
    int hosts = argc > 1 ? atoi(argv[1]) : 1000;
    setvbuf(stdout, NULL, _IOLBF, 0);
    print_growth(hosts);
    print_case(NOTHING, 0.1, "", 1); /* a round trip of 200 ms */
    print_case(LATE, 5e-5, "", 1);
    print_case(DEATH, 5e-5, "exited without reporting an error", 4);
    print_case(POWER_OFF, 5e-5, "is unreachable: its host has not answered for 3.", 5);
    print_case(OTHER_JOB, 5e-5, "it belongs to another job", 1);
    return problems ? 1 : 0;
}
