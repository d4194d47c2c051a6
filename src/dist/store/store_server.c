/* One thread and one epoll for all connections. What a message costs does not grow with the ranks: a request that
 * cannot be answered yet waits in the list of what it waits for, and only failures, timeouts and heartbeats visit all
 * connections. A connection gets 280 bytes of memory and a few seconds until it has proved the secret; when too many
 * have not, one of them is closed (net_choose_unproven). A few times a second the thread sends a heartbeat to every
 * rank and checks for lost ranks. */
#include "dist/store/store_server.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scoped.h"
#include "base/system/thread.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/net.h"
#include "dist/store/store_frame.h"

#define SLOTS 4096 /* of the gatherings, and of the keys at first */
#define EVENTS 256 /* of one epoll_wait */
#define SAME_PROGRAM "the same ddptrain must be installed on every node"
#define REASON_SECONDS 1.0 /* to send the reason before a connection is closed */
#define SAME_COUNT "--nproc and --nnodes (WORLD_SIZE) must be the same on every node"
#define JOINING_SECONDS 5.0
#define HELLO_SECONDS 0.2 /* without the first message for longer, a connection is silent */
#define REJECTION_SECONDS 1.0
#define FIRST_WAITING_SECONDS 2.0
#define WAITING_SECONDS 5.0
#define REJOIN_SECONDS 3.0 /* for a rank whose first connection ended before the second */
#define LEAVE_SECONDS 2.0  /* for ranks to leave after the failure was sent to them */
/* For ranks to leave without a failure: long enough to detect a stopped one and report it to the others. */
#define STOP_SECONDS(pace) (MEMBERS_STOPPED_SECONDS * (pace) + 2.0)

/* In this order. */
enum stage { STAGE_HELLO, STAGE_PROOF, STAGE_JOINED, STAGE_REJECTED };

/* Connections, each in one list at most: those that wait for the same event, or have not yet proved the secret. */
struct waiting {
    struct connection *first;
    size_t count;
};

struct connection {
    int fd;
    uint32_t events;      /* for which epoll watches it */
    size_t index;         /* in the server's connections */
    struct waiting *list; /* NULL: in none; else: */
    struct connection *before, *after;
    struct connection *next_closed;
    enum stage stage;
    uint8_t version; /* of its protocol, if not STORE_VERSION; else 0 */
    double deadline; /* for joining, or for sending the rejection */
    uint64_t host;   /* of the client; equal numbers: the same host */
    struct message_handshake shake;
    struct message_session session; /* on from PROOF; off for rank 0's own connections */
    uint8_t *in, *out;
    size_t in_size, in_capacity, out_size, out_sent, out_capacity;
    enum store_type pending; /* request without an answer yet: READY, GET, TAKE, GATHER or CAUSE; 0: none */
    double pending_until, pending_seconds;
    char key[STORE_MAX_KEY + 1]; /* of FRAME_GET, FRAME_TAKE and */
    struct gathering *gathering; /* FRAME_GATHER */
    bool has_answered;           /* a frame after its proof has arrived, so the rank has got WELCOME */
    bool has_failure;            /* JOB_FAILURE has been sent on it */
    bool is_closed;              /* to be removed: in the server's list of closed ones */
};

/* Those of struct store_traffic, which other threads may read at any time. */
struct traffic_counters {
    _Atomic uint64_t received, sent, bytes_received, bytes_sent, heartbeats, connections, keys;
};

/* The connection of a rank in this start. Until its first frame has arrived, it may end because WELCOME was lost; the
 * rank then joins again. */
struct join_state {
    bool has_answered, has_link;
    bool is_node_informed;         /* in the state of a node's first rank: one of them has answered */
    double disconnected_at;        /* when its connection ended before it had answered; 0: it has not */
    struct connection *connection; /* NULL: none */
};

struct store_server {
    pthread_t thread;
    pthread_mutex_t mutex;    /* guards what follows up to the next gap */
    double stop_requested_at; /* 0: not yet */
    struct sockaddr_storage address;
    int address_error; /* errno if the address is not known */

    int listener, wake, epoll;
    bool is_listening;   /* epoll watches the listener */
    double accept_after; /* out of descriptors: accepts no connection before this time */
    int world_size, node_size;
    uint32_t restart_count;
    uint64_t job;
    uint8_t secret[32];
    char endpoint[320], hint[400];
    struct log *log;
    double pace, heartbeat_seconds;
    double check_at, heartbeat_at, log_waiting_at; /* next check of ranks, heartbeat, "waiting for ..." */
    bool is_one_host, is_guessable;                /* is_guessable: the secret */
    bool has_logged_waiting, has_logged_joined, has_logged_version, has_logged_secret;
    double failure_sent_at;  /* when JOB_FAILURE was sent; 0: no failure */
    int64_t saved;           /* step of the newest checkpoint, from rank 0 */
    struct join_state *join; /* (world_size) */
    char mismatch[400];      /* failure of a rank that will not join because it has another world size; "": none */
    struct store_keys *keys;
    struct gathering *gatherings[SLOTS];
    struct members *members;
    struct connection **connections;
    size_t count, capacity;
    struct connection *closed, **closed_end; /* to be removed, in order */
    struct waiting unproven;                 /* have not joined */
    struct waiting joining;                  /* READY and CAUSE */
    int spare;                               /* as in the configuration */
    size_t max_unproven;
    struct net_unproven *open;   /* (max_unproven) */
    size_t pending;              /* requests that wait */
    double expires_at;           /* no deadline of a connection is earlier */
    bool has_changed, had_cause; /* a rank has left: requests that wait for it may fail; members_cause was known */
    struct traffic_counters traffic;
};

static inline bool is_member(const struct connection *c) { return c->shake.purpose == FOR_RANK; }

static inline bool is_giving_up(const struct connection *c) { return c->shake.purpose == FOR_GIVING_UP; }

static inline bool is_link(const struct connection *c) { return c->shake.purpose == FOR_LINK; }

static void count_up(_Atomic uint64_t *counter, uint64_t by) {
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static void count_frame(_Atomic uint64_t *frames, _Atomic uint64_t *bytes, size_t size) {
    count_up(frames, 1);
    count_up(bytes, size);
}

static double earlier(double a, double b) { return a < b ? a : b; }

static void list_add(struct waiting *list, struct connection *c) {
    c->list = list;
    c->before = NULL;
    c->after = list->first;
    if (list->first) list->first->before = c;
    list->first = c;
    list->count++;
}

static void list_remove(struct connection *c) {
    if (!c->list) return;
    if (c->before) c->before->after = c->after;
    if (c->after) c->after->before = c->before;
    if (c->list->first == c) c->list->first = c->after;
    c->list->count--;
    c->list = NULL;
}

/* ---- keys ---- */

/* A hash table with chaining. It grows: when all hosts connect at once, each link has two keys until its ranks have
 * taken them. */

struct store_value {
    struct store_value *next;
    char *key;
    uint8_t *value;         /* NULL: not set yet, but connections wait for it */
    struct waiting waiting; /* GET, TAKE */
    size_t size;
};

struct store_keys {
    struct store_value **slots; /* (slot_count) */
    size_t slot_count, count;
};

static size_t slot_of(const char *key, size_t slot_count) {
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (; *key; key++) hash = (hash ^ (unsigned char)*key) * 16777619u;
    return hash % slot_count;
}

/* Where the pointer to the entry is; the pointer is NULL without that key. */
static struct store_value **find_slot(const struct store_keys *keys, const char *key) {
    struct store_value **slot = &keys->slots[slot_of(key, keys->slot_count)];
    while (*slot && strcmp((*slot)->key, key) != 0) slot = &(*slot)->next;
    return slot;
}

static struct store_value *find(const struct store_keys *keys, const char *key) { return *find_slot(keys, key); }

static void value_free(struct store_value *e) {
    free(e->key);
    free(e->value);
    free(e);
}

struct store_keys *store_keys_create(void) {
    struct store_keys *keys = calloc(1, sizeof *keys);
    if (!keys) return NULL;
    *keys = (struct store_keys){.slots = calloc(SLOTS, sizeof(struct store_value *)), .slot_count = SLOTS};
    if (keys->slots) return keys;
    free(keys);
    return NULL;
}

void store_keys_destroy(struct store_keys *keys) {
    if (!keys) return;
    for (size_t i = 0; i < keys->slot_count; i++)
        for (struct store_value *e = keys->slots[i], *next; e; e = next) {
            next = e->next;
            value_free(e);
        }
    free(keys->slots);
    free(keys);
}

/* Without memory for more slots the table stays as it is. */
static void grow_keys(struct store_keys *keys) {
    size_t slot_count = 2 * keys->slot_count;
    struct store_value **slots = calloc(slot_count, sizeof(struct store_value *));
    if (!slots) return;
    for (size_t i = 0; i < keys->slot_count; i++)
        for (struct store_value *e = keys->slots[i], *next; e; e = next) {
            struct store_value **slot = &slots[slot_of(e->key, slot_count)];
            next = e->next;
            e->next = *slot;
            *slot = e;
        }
    free(keys->slots);
    keys->slots = slots;
    keys->slot_count = slot_count;
}

static struct store_value *add(struct store_keys *keys, const char *key) {
    struct store_value *e = calloc(1, sizeof *e);
    if (!e || !(e->key = strdup(key))) {
        free(e);
        return NULL;
    }
    if (++keys->count > keys->slot_count) grow_keys(keys);
    struct store_value **slot = &keys->slots[slot_of(key, keys->slot_count)];
    e->next = *slot;
    *slot = e;
    return e;
}

bool store_keys_set(struct store_keys *keys, const char *key, const void *value, size_t size) {
    uint8_t *copy = malloc(size + 1);
    if (!copy) return false;
    if (size) memcpy(copy, value, size);
    struct store_value *e = find(keys, key);
    if (!e) e = add(keys, key);
    if (!e) {
        free(copy);
        return false;
    }
    free(e->value);
    e->value = copy;
    e->size = size;
    return true;
}

const uint8_t *store_keys_get(const struct store_keys *keys, const char *key, size_t *size) {
    const struct store_value *e = find(keys, key);
    if (!e || !e->value) return NULL;
    *size = e->size;
    return e->value;
}

/* Frees an entry without a value for which no connection waits. */
static void drop_unused(struct store_keys *keys, const char *key) {
    struct store_value **slot = find_slot(keys, key), *e = *slot;
    if (!e || e->value || e->waiting.first) return;
    *slot = e->next;
    keys->count--;
    value_free(e);
}

void store_keys_remove(struct store_keys *keys, const char *key) {
    struct store_value *e = find(keys, key);
    if (!e) return;
    free(e->value);
    e->value = NULL;
    drop_unused(keys, key);
}

/* ---- gatherings ---- */

/* The values of a GATHER of several ranks. When the last one has arrived, they are replaced by the answer to all. */

struct gathered {
    uint8_t *value; /* (size); NULL: empty */
    size_t size;
    bool has_arrived;
};

struct gathering {
    struct gathering *next; /* in its slot */
    char key[STORE_MAX_KEY + 1];
    enum store_gather kind;
    uint32_t count, arrived;
    struct gathered *items; /* (count); NULL once all have arrived */
    uint8_t *answer;        /* (size); NULL before */
    size_t size;
    struct waiting waiting;
};

static void items_free(struct gathering *g) {
    for (uint32_t i = 0; g->items && i < g->count; i++) free(g->items[i].value);
    free(g->items);
    g->items = NULL;
}

static void gatherings_free(struct gathering *const slots[SLOTS]) {
    for (size_t i = 0; i < SLOTS; i++)
        for (struct gathering *g = slots[i], *next; g; g = next) {
            next = g->next;
            items_free(g);
            free(g->answer);
            free(g);
        }
}

/* The gathering of that name, which is created by its first value. NULL: no memory, or the ranks do not agree on what
 * they gather. */
static struct gathering *gathering_of(struct gathering *slots[SLOTS], const char *key,
                                      const struct store_gather_request *request) {
    struct gathering **slot = &slots[slot_of(key, SLOTS)], *g = *slot;
    while (g && strcmp(g->key, key) != 0) g = g->next;
    if (g) return g->kind == request->kind && g->count == request->count ? g : NULL;
    g = calloc(1, sizeof *g);
    if (!g) return NULL;
    *g = (struct gathering){.next = *slot,
                            .kind = request->kind,
                            .count = request->count,
                            .items = calloc(request->count, sizeof *g->items)};
    snprintf(g->key, sizeof g->key, "%s", key);
    if (g->items) return *slot = g;
    free(g);
    return NULL;
}

static int compare_values(const void *a, const void *b) {
    const struct gathered *x = *(const struct gathered *const *)a, *y = *(const struct gathered *const *)b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    int order = x->size ? memcmp(x->value, y->value, x->size) : 0;
    return order ? order : x < y ? -1 : 1; /* equal values in order of index */
}

/* Equal values are neighbours after sorting, the first of them has the lowest index. */
static bool number_values(const struct gathering *g, uint32_t *numbers) {
    const struct gathered **sorted = malloc(g->count * sizeof *sorted);
    if (!sorted) return false;
    uint32_t next = 0;
    for (uint32_t i = 0; i < g->count; i++) sorted[i] = &g->items[i];
    qsort(sorted, g->count, sizeof *sorted, compare_values);
    for (uint32_t i = 0, first = 0; i < g->count; i++) {
        const struct gathered *a = sorted[first], *b = sorted[i];
        bool is_equal = a->size == b->size && (a->size == 0 || memcmp(a->value, b->value, a->size) == 0);
        if (!is_equal) first = i;
        numbers[b - g->items] = (uint32_t)(sorted[first] - g->items);
    }
    for (uint32_t i = 0; i < g->count; i++) /* from the index of the first equal value to its number */
        numbers[i] = numbers[i] == i ? next++ : numbers[numbers[i]];
    free(sorted);
    return true;
}

static bool answer_numbers(struct gathering *g) {
    uint32_t *numbers = malloc(g->count * sizeof *numbers);
    g->answer = malloc(STORE_NUMBERS(g->count));
    bool is_done = numbers && g->answer && number_values(g, numbers);
    if (is_done) g->size = store_write_numbers(numbers, g->count, g->answer);
    free(numbers);
    if (is_done) return true;
    free(g->answer);
    g->answer = NULL;
    return false;
}

static bool answer_first(struct gathering *g) {
    uint32_t first = 0;
    while (first < g->count && g->items[first].size == 0) first++;
    bool is_empty = first == g->count;
    g->size = is_empty ? 0 : 4 + g->items[first].size;
    g->answer = malloc(g->size + 1);
    if (!g->answer || is_empty) return g->answer != NULL;
    store_write_u32(g->answer, first);
    memcpy(g->answer + 4, g->items[first].value, g->items[first].size);
    return true;
}

/* Adds the value of a rank; a second one of the same rank is ignored. false: no memory. */
static bool gathering_add(struct gathering *g, const struct store_gather_request *request) {
    struct gathered *item = g->items ? &g->items[request->index] : NULL;
    if (!item || item->has_arrived) return true;
    if (request->size && !(item->value = malloc(request->size))) return false;
    if (request->size) memcpy(item->value, request->value, request->size);
    item->size = request->size;
    item->has_arrived = true;
    if (++g->arrived < g->count) return true;
    bool is_done = g->kind == GATHER_NUMBERS ? answer_numbers(g) : answer_first(g);
    items_free(g);
    return is_done;
}

/* ---- connections: buffers ---- */

static void connection_free(struct connection *c) {
    close(c->fd);
    session_end(&c->session);
    free(c->in);
    free(c->out);
    free(c);
}

/* store_server.c: enlarges a buffer to at least [need] bytes. false: no memory. */
static bool server_reserve(uint8_t **bytes, size_t *capacity, size_t need) {
    if (need <= *capacity) return true;
    uint8_t *more = realloc(*bytes, need);
    if (!more) return false;
    *bytes = more;
    *capacity = need;
    return true;
}

static bool watch_event(struct store_server *s, int operation, int fd, uint32_t events, void *data) {
    struct epoll_event event = {.events = events, .data.ptr = data};
    return epoll_ctl(s->epoll, operation, fd, &event) == 0;
}

static struct connection *connection_add(struct store_server *s, int fd) {
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 16;
        struct connection **more = realloc(s->connections, capacity * sizeof *more);
        if (!more) return NULL;
        s->connections = more;
        s->capacity = capacity;
    }
    struct connection *c = calloc(1, sizeof *c);
    if (!c || !server_reserve(&c->in, &c->in_capacity, STORE_HEADER + STORE_MAX_JOINING) ||
        !watch_event(s, EPOLL_CTL_ADD, fd, EPOLLIN, c)) {
        if (c) free(c->in);
        free(c);
        return NULL;
    }
    c->fd = fd;
    c->events = EPOLLIN;
    c->index = s->count;
    c->deadline = clock_seconds() + JOINING_SECONDS;
    s->expires_at = earlier(s->expires_at, c->deadline);
    count_up(&s->traffic.connections, 1);
    return s->connections[s->count++] = c;
}

/* It is removed, and counts as ended, in remove_ended. */
static void connection_close(struct store_server *s, struct connection *c) {
    if (c->is_closed) return;
    c->is_closed = true;
    *s->closed_end = c;
    s->closed_end = &c->next_closed;
}

/* Sends what fits into the socket buffer; the rest is sent when epoll reports EPOLLOUT. */
static void send_output(struct store_server *s, struct connection *c) {
    while (c->out_sent < c->out_size) {
        ssize_t done = send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) return;
        if (done <= 0) {
            connection_close(s, c);
            return;
        }
        c->out_sent += (size_t)done;
    }
    c->out_sent = c->out_size = 0;
    if (c->stage == STAGE_REJECTED) connection_close(s, c);
}

static void flush(struct store_server *s, struct connection *c) {
    send_output(s, c);
    uint32_t events = c->stage == STAGE_REJECTED ? 0 : EPOLLIN;
    if (c->out_sent < c->out_size) events |= EPOLLOUT;
    if (c->is_closed || events == c->events) return;
    c->events = events;
    if (!watch_event(s, EPOLL_CTL_MOD, c->fd, events, c)) connection_close(s, c);
}

/* Sends a frame without blocking; what does not fit into the socket buffer is sent later. */
static void server_send(struct store_server *s, struct connection *c, enum store_type type, const void *body,
                        size_t size) {
    struct store_frame frame = {
        .type = type, .rank = 0, .version = c->version, .job = s->job, .body = body, .length = (uint32_t)size};
    if (!server_reserve(&c->out, &c->out_capacity, c->out_size + STORE_HEADER + size + SESSION_TAG)) {
        connection_close(s, c);
        return;
    }
    size_t written = store_frame_write(&c->session, &frame, c->out + c->out_size);
    c->out_size += written;
    if (type == FRAME_SERVER_HEARTBEAT)
        count_up(&s->traffic.heartbeats, 1);
    else
        count_frame(&s->traffic.sent, &s->traffic.bytes_sent, written);
    flush(s, c);
}

/* The same, and then closes the connection. */
static void server_reject(struct store_server *s, struct connection *c, enum store_type type, const void *body,
                          size_t size) {
    c->stage = STAGE_REJECTED;
    c->deadline = clock_seconds() + REJECTION_SECONDS;
    s->expires_at = earlier(s->expires_at, c->deadline);
    server_send(s, c, type, body, size);
}

/* Sets the address of this host to the local address of the connection of a rank. The address that a rank of another
 * host has used is preferred to a loopback address. */
static void server_set_address(struct store_server *s, int fd) {
    struct sockaddr_storage here = {0};
    socklen_t size = sizeof here;
    int error = getsockname(fd, (struct sockaddr *)&here, &size) != 0 ? errno : 0;
    pthread_mutex_lock(&s->mutex);
    if (error)
        s->address_error = error;
    else if (s->address.ss_family == AF_UNSPEC || net_is_loopback(&s->address))
        s->address = here;
    pthread_mutex_unlock(&s->mutex);
}

/* ---- frames ---- */

/* The frames of the server: handshakes, requests, and pending requests, which cannot be answered yet. A connection has
 * at most one pending request. */

static int rank_of(const struct connection *c) { return (int)c->shake.rank; }

/* Answers a request with an error. */
static void send_error(struct store_server *s, struct connection *c, enum status_code code, const char *why) {
    uint8_t body[4 + STORE_MAX_REPORT];
    size_t length = strnlen(why, STORE_MAX_REPORT - 1);
    store_write_u32(body, code);
    memcpy(body + 4, why, length);
    server_send(s, c, FRAME_ERROR, body, 4 + length);
}

/* Sends JOB_FAILURE, the loss of [rank]. */
static void server_send_failure(struct store_server *s, struct connection *c, int rank) {
    uint8_t body[STORE_JOB_FAILURE + STORE_MAX_REPORT];
    SCOPED_TEXT why = {0};
    members_describe(s->members, rank, &why);
    size_t length = why.length < STORE_MAX_REPORT ? why.length : STORE_MAX_REPORT - 1;
    store_write_u32(body, members_code(s->members, rank));
    store_write_u32(body + 4, c->stage == STAGE_REJECTED
                                  ? UINT32_MAX
                                  : (uint32_t)rank); /* not the rank itself: it must get the message */
    store_write_u32(body + 8, members_hung(s->members, rank));
    memcpy(body + STORE_JOB_FAILURE, why.data, length);
    c->has_failure = true;
    server_send(s, c, FRAME_JOB_FAILURE, body, STORE_JOB_FAILURE + length);
}

/* ---- frames: pending requests ---- */

/* The failure would occur again after a restart. */
static bool is_permanent(enum status_code code) { return code == STATUS_USAGE || code == STATUS_DATA; }

/* Whether a failure ends the wait: sets *code and adds the message to [why]. A rank of another node gets the code of a
 * permanent failure, so that its launcher does not restart. */
static bool has_failed(struct store_server *s, const struct connection *c, enum status_code *code, struct text *why) {
    int rank = members_cause(s->members, clock_seconds());
    *code = STATUS_PEER;
    if (rank < 0 && *s->mismatch) {
        *code = STATUS_USAGE;
        text_add(why, s->mismatch);
        return true;
    }
    if (rank < 0) return false;
    enum status_code cause = members_code(s->members, rank);
    bool is_other_node = s->node_size > 0 && rank / s->node_size != rank_of(c) / s->node_size;
    if (cause == STATUS_STOPPED || (is_other_node && is_permanent(cause))) *code = cause;
    members_describe(s->members, rank, why);
    return true;
}

/* Sends the error [why], unless it is empty, and frees it. Returns whether it was sent. */
static bool send_error_text(struct store_server *s, struct connection *c, enum status_code code, struct text *why) {
    bool is_sent = why->length > 0;
    if (is_sent) send_error(s, c, code, why->data);
    text_free(why);
    return is_sent;
}

static bool try_ready(struct store_server *s, struct connection *c, bool is_timed_out) {
    if (members_joined(s->members) == s->world_size) {
        server_send(s, c, FRAME_DONE, NULL, 0);
        return true;
    }
    struct text why = {0};
    enum status_code code;
    if (!has_failed(s, c, &code, &why) && is_timed_out) {
        members_missing(s->members, &why);
        text_printf(&why, " of %d did not join rank 0 at %s within %g s%s", s->world_size, s->endpoint,
                    c->pending_seconds, s->hint);
    }
    return send_error_text(s, c, code, &why);
}

static bool try_get(struct store_server *s, struct connection *c, bool is_timed_out) {
    size_t size;
    const uint8_t *value = store_keys_get(s->keys, c->key, &size);
    if (value) {
        server_send(s, c, FRAME_VALUE, value, size);
        if (c->pending == FRAME_TAKE) store_keys_remove(s->keys, c->key);
        return true;
    }
    struct text why = {0};
    enum status_code code;
    bool has_all_joined = members_joined(s->members) == s->world_size;
    if (!has_failed(s, c, &code, &why) && has_all_joined && members_is_alone(s->members, rank_of(c)))
        text_printf(&why, "every other rank has left before '%s' was set", c->key);
    else if (!why.length && is_timed_out)
        text_printf(&why, "no rank has set '%s' within %g s", c->key, c->pending_seconds);
    return send_error_text(s, c, code, &why);
}

static bool try_gather(struct store_server *s, struct connection *c, bool is_timed_out) {
    const struct gathering *g = c->gathering;
    if (g->answer) {
        server_send(s, c, FRAME_VALUE, g->answer, g->size);
        return true;
    }
    struct text why = {0};
    enum status_code code;
    bool has_all_joined = members_joined(s->members) == s->world_size;
    if (!has_failed(s, c, &code, &why) && has_all_joined && members_is_alone(s->members, rank_of(c)))
        text_printf(&why, "every other rank has left before it reached '%s'", g->key);
    else if (!why.length && is_timed_out) {
        uint32_t missing = 0;
        while (g->items && missing < g->count && g->items[missing].has_arrived) missing++;
        text_printf(&why, "%u of %u ranks did not reach '%s' within %g s, the first of them is number %u of them",
                    g->count - g->arrived, g->count, g->key, c->pending_seconds, missing);
    }
    return send_error_text(s, c, code, &why);
}

static bool try_cause(struct store_server *s, struct connection *c, bool is_timed_out) {
    int rank = members_cause(s->members, clock_seconds());
    if ((rank < 0 || rank == rank_of(c)) && !is_timed_out) return false;
    SCOPED_TEXT why = {0};
    if (rank >= 0 && rank != rank_of(c)) members_describe(s->members, rank, &why);
    server_send(s, c, FRAME_VALUE, text_string(&why), why.length);
    return true;
}

/* The request no longer waits. */
static void end_pending(struct store_server *s, struct connection *c) {
    if (!c->pending) return;
    bool is_key = c->pending == FRAME_GET || c->pending == FRAME_TAKE;
    c->pending = 0;
    s->pending--;
    list_remove(c);
    if (is_key) drop_unused(s->keys, c->key);
}

/* Answers the pending request if that is possible now. */
static void server_try_pending(struct store_server *s, struct connection *c) {
    bool is_timed_out = clock_seconds() >= c->pending_until, is_done = false;
    if (c->pending == FRAME_READY) is_done = try_ready(s, c, is_timed_out);
    if (c->pending == FRAME_GET || c->pending == FRAME_TAKE) is_done = try_get(s, c, is_timed_out);
    if (c->pending == FRAME_GATHER) is_done = try_gather(s, c, is_timed_out);
    if (c->pending == FRAME_CAUSE) is_done = try_cause(s, c, is_timed_out);
    if (is_done) end_pending(s, c);
}

/* Answers those of a list whose event has happened. */
static void try_waiting(struct store_server *s, struct waiting *list) {
    for (struct connection *c = list->first, *after; c; c = after) {
        after = c->after;
        if (!c->is_closed) server_try_pending(s, c);
    }
}

/* [list]: of what the request waits for. */
static bool set_pending(struct store_server *s, struct connection *c, enum store_type type, uint32_t milliseconds,
                        struct waiting *list) {
    c->pending = type;
    c->pending_seconds = milliseconds * 1e-3;
    c->pending_until = clock_seconds() + c->pending_seconds;
    s->pending++;
    s->expires_at = earlier(s->expires_at, c->pending_until);
    list_add(list, c);
    server_try_pending(s, c);
    return true;
}

/* ---- frames: joining ---- */

static void reject(struct store_server *s, struct connection *c, const char *why) {
    server_reject(s, c, FRAME_REJECT, why, strlen(why));
}

/* Rejects a rank of another start and sends the restart count of the server. */
static void reject_restart_count(struct store_server *s, struct connection *c) {
    uint8_t body[8];
    bool is_waiting_for_ranks =
        members_joined(s->members) < s->world_size && members_cause(s->members, clock_seconds()) < 0;
    store_write_u32(body, s->restart_count);
    store_write_u32(body + 4, is_waiting_for_ranks);
    server_reject(s, c, FRAME_RESTART_COUNT, body, sizeof body);
}

static bool on_hello(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    struct store_hello hello;
    if (!store_parse_hello(frame, &hello)) return false;
    if (frame->job != s->job) {
        reject(s, c, "it belongs to another job");
        return true;
    }
    memcpy(c->shake.client_nonce, hello.nonce, MESSAGE_NONCE);
    c->shake.world = hello.world;
    c->shake.restart_count = hello.restart_count;
    c->shake.purpose = hello.purpose;
    c->shake.job = s->job;
    c->shake.rank = frame->rank;
    if (!message_nonce(c->shake.server_nonce)) return false;
    c->stage = STAGE_PROOF;
    server_send(s, c, FRAME_CHALLENGE, c->shake.server_nonce, MESSAGE_NONCE);
    session_begin(&c->session, s->secret, &c->shake, true);
    return true;
}

/* A rank of this job that was started with another world size gives up: ends the wait of the ranks that have joined,
 * unless all have. [process]: from its proof, with the number of ranks that it expects. */
static void on_giving_up(struct store_server *s, const struct connection *c, const char *process) {
    char count[64];
    if (members_joined(s->members) == s->world_size || *s->mismatch) return;
    store_describe_count(s->world_size, s->node_size, count);
    snprintf(s->mismatch, sizeof s->mismatch,
             "rank %u (%s) expects another number of ranks than rank 0 (%s): " SAME_COUNT, c->shake.rank, process,
             count);
    s->has_changed = true;
}

/* Whether a rank joins again because it did not receive WELCOME: it has not answered yet, and is the same process, or
 * its connection has ended. */
static bool is_rejoining(const struct store_server *s, const struct connection *c, const char *process) {
    int rank = rank_of(c);
    const struct join_state *state = &s->join[rank];
    bool is_same = state->disconnected_at > 0 || strcmp(process, members_process(s->members, rank)) == 0;
    return is_member(c) && !state->has_answered && rank > 0 && is_same;
}

static void close_earlier(struct store_server *s, struct connection *c) {
    struct connection *other = s->join[rank_of(c)].connection;
    if (other) {
        other->stage = STAGE_REJECTED; /* its end does not count as the end of the rank */
        connection_close(s, other);
    }
    s->join[rank_of(c)].connection = c;
}

/* Whether the connection is accepted; rejects it otherwise. [process]: from its proof. A rank that counts as lost is
 * accepted: its next request is answered with the reason. */
static bool accept_join(struct store_server *s, struct connection *c, const char *process) {
    char why[400] = "", count[64];
    uint32_t rank = c->shake.rank;
    bool exists = c->shake.world == (uint32_t)s->world_size && rank < c->shake.world;
    enum member_state state = exists ? members_state(s->members, (int)rank) : MEMBER_ABSENT;
    store_describe_count(s->world_size, s->node_size, count);
    bool is_same = c->shake.world == (uint32_t)s->world_size;
    if (is_giving_up(c) && !is_same) {
        on_giving_up(s, c, process);
        launcher_send(MESSAGE_JOINED, 0, -1, ""); /* that node needs no report */
    }
    if (!is_same)
        snprintf(why, sizeof why, "it expects %s, this rank %u: " SAME_COUNT, count, c->shake.world);
    else if (!exists)
        snprintf(why, sizeof why, "rank %u does not exist: the world size is %d", rank, s->world_size);
    else if (!is_member(c) && state == MEMBER_ABSENT)
        snprintf(why, sizeof why, "rank %u has not joined", rank);
    else if (is_link(c) && state == MEMBER_JOINED && s->join[rank].has_link)
        snprintf(why, sizeof why, "rank %u has connected the launchers already", rank);
    else if ((is_member(c) || is_giving_up(c)) && state == MEMBER_JOINED && !is_rejoining(s, c, process))
        snprintf(why, sizeof why, "rank %u has joined already (%s)", rank, members_process(s->members, (int)rank));
    else if (state > MEMBER_JOINED && !(is_member(c) && state != MEMBER_LEFT))
        snprintf(why, sizeof why, "rank %u has left this job already (%s)", rank,
                 members_process(s->members, (int)rank));
    if (*why) reject(s, c, why);
    return !*why;
}

/* Passes a link to the launcher. false: the server closes its copy. */
static bool pass_to_launcher(struct store_server *s, const struct connection *c) {
    if (c->out_size > 0) return false;
    launcher_send_link(rank_of(c), c->fd, &c->session, sizeof c->session);
    s->join[rank_of(c)].has_link = true;
    return false;
}

/* The heartbeat, and [lost] if that is not -1. */
static void send_heartbeat(struct store_server *s, struct connection *c, int lost) {
    uint8_t body[STORE_MAX_SERVER_HEARTBEAT];
    const char *process = members_process(s->members, 0);
    size_t length = strnlen(process, STORE_MAX_PROCESS - 1);
    store_write_u64(body, (uint64_t)s->saved);
    store_write_heartbeat(members_last(s->members, 0), body + 8);
    memcpy(body + 8 + STORE_HEARTBEAT, process, length);
    server_send(s, c, FRAME_SERVER_HEARTBEAT, body, 8 + STORE_HEARTBEAT + length);
    if (lost >= 0 && !c->has_failure) server_send_failure(s, c, lost);
}

/* The rank has got WELCOME. From now on its connection informs it of failures, so its launcher needs no report. One
 * message per node: the launcher does not read while it starts ranks, and what does not fit into its channel is lost.
 */
static void on_first_frame(struct store_server *s, struct connection *c) {
    int rank = rank_of(c), size = s->node_size > 0 ? s->node_size : 1;
    struct join_state *node = &s->join[rank - rank % size];
    c->has_answered = true;
    if (!is_member(c) || rank == 0) return;
    if (!node->is_node_informed) launcher_send(MESSAGE_JOINED, 0, rank, "");
    node->is_node_informed = true;
    s->join[rank].has_answered = true;
    send_heartbeat(s, c, members_cause(s->members, clock_seconds()));
}

static bool on_proof(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    char process[STORE_MAX_PROCESS];
    if (!store_parse_proof(frame, process)) return false;
    if (c->shake.restart_count != s->restart_count) {
        reject_restart_count(s, c);
        return true;
    }
    if (!accept_join(s, c, process)) return true;
    c->stage = STAGE_JOINED;
    list_remove(c);
    net_tune(c->fd);
    server_send(s, c, FRAME_WELCOME, NULL, 0);
    if (!is_member(c)) return pass_to_launcher(s, c);
    close_earlier(s, c);
    s->join[rank_of(c)].disconnected_at = 0;
    if (members_state(s->members, rank_of(c)) == MEMBER_ABSENT)
        members_join(s->members, rank_of(c), process, clock_seconds());
    if (members_joined(s->members) == s->world_size) try_waiting(s, &s->joining);
    server_set_address(s, c->fd);
    return true;
}

/* ---- frames: requests ---- */

static bool on_set(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    const uint8_t *value;
    size_t size;
    if (!store_parse_set(frame, c->key, &value, &size) || !store_keys_set(s->keys, c->key, value, size)) return false;
    server_send(s, c, FRAME_DONE, NULL, 0);
    try_waiting(s, &find(s->keys, c->key)->waiting);
    return true;
}

static bool on_get(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    uint32_t milliseconds;
    if (!store_parse_get(frame, &milliseconds, c->key)) return false;
    struct store_value *e = find(s->keys, c->key);
    if (!e) e = add(s->keys, c->key);
    return e && set_pending(s, c, frame->type, milliseconds, &e->waiting);
}

static bool on_gather(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    struct store_gather_request request;
    if (!store_parse_gather(frame, &request, c->key) || request.count > (uint32_t)s->world_size) return false;
    c->gathering = gathering_of(s->gatherings, c->key, &request);
    if (!c->gathering || !gathering_add(c->gathering, &request)) return false;
    if (c->gathering->answer) try_waiting(s, &c->gathering->waiting);
    return set_pending(s, c, FRAME_GATHER, request.milliseconds, &c->gathering->waiting);
}

static bool on_wait(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    uint32_t milliseconds;
    return store_parse_wait(frame, &milliseconds) && set_pending(s, c, frame->type, milliseconds, &s->joining);
}

static bool on_report(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    char text[STORE_MAX_REPORT], reason[STORE_MAX_REPORT + 2];
    uint32_t code;
    if (!store_parse_failure(frame, &code, text) || code > 255) return false;
    snprintf(reason, sizeof reason, ": %s", text);
    members_leave(s->members, rank_of(c), code == STATUS_PEER ? MEMBER_LOST_PEER : MEMBER_FAILED,
                  (enum status_code)code, reason, clock_seconds());
    s->has_changed = true;
    return true;
}

static bool on_bye(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    (void)frame;
    members_leave(s->members, rank_of(c), MEMBER_LEFT, STATUS_OK, NULL, clock_seconds());
    s->has_changed = true;
    return rank_of(c) == 0; /* the end of the connection shows the rank that BYE has arrived */
}

static bool on_heartbeat(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    struct activity_snapshot reading;
    if (!store_parse_heartbeat(frame, &reading)) return false;
    members_heartbeat(s->members, rank_of(c), &reading, clock_seconds());
    if (rank_of(c) == 0) s->saved = reading.saved;
    return true;
}

/* A rank that ended before it joined: its host is that of the rank that reports it. */
static void add_unjoined(struct store_server *s, const struct connection *c, int rank) {
    const char *reporter = members_process(s->members, rank_of(c));
    char process[STORE_MAX_PROCESS];
    snprintf(process, sizeof process, "%.*s", (int)strcspn(reporter, ","), reporter);
    members_add_unjoined(s->members, rank, process, clock_seconds());
}

static bool on_rank_exit(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    char reason[STORE_MAX_REPORT];
    uint32_t rank;
    if (!store_parse_rank_exit(frame, &rank, reason) || rank >= (uint32_t)s->world_size) return false;
    if (members_state(s->members, (int)rank) == MEMBER_ABSENT) add_unjoined(s, c, (int)rank);
    members_exited(s->members, (int)rank, reason, clock_seconds());
    s->has_changed = true;
    return true;
}

static const struct {
    enum stage stage;
    bool is_request; /* has an answer; one at a time */
    bool (*handle)(struct store_server *s, struct connection *c, const struct store_frame *frame);
} handlers[FRAME_TYPES] = {
    [FRAME_HELLO] = {STAGE_HELLO, false, on_hello},
    [FRAME_PROOF] = {STAGE_PROOF, false, on_proof},
    [FRAME_READY] = {STAGE_JOINED, true, on_wait},
    [FRAME_SET] = {STAGE_JOINED, true, on_set},
    [FRAME_GET] = {STAGE_JOINED, true, on_get},
    [FRAME_TAKE] = {STAGE_JOINED, true, on_get},
    [FRAME_GATHER] = {STAGE_JOINED, true, on_gather},
    [FRAME_CAUSE] = {STAGE_JOINED, true, on_wait},
    [FRAME_REPORT] = {STAGE_JOINED, false, on_report},
    [FRAME_BYE] = {STAGE_JOINED, false, on_bye},
    [FRAME_HEARTBEAT] = {STAGE_JOINED, false, on_heartbeat},
    [FRAME_RANK_EXIT] = {STAGE_JOINED, false, on_rank_exit},
};

/* A ddptrain with another version of the protocol: the header is the same, so a REJECT with its own version can be
 * parsed there. It has proved nothing, so here it is only logged. */
static bool reject_version(struct store_server *s, struct connection *c) {
    char why[200];
    int version = store_frame_version(c->in, c->in_size);
    if (c->stage != STAGE_HELLO || version < 0) return false;
    snprintf(why, sizeof why, "it uses version %d of ddptrain's protocol, this rank version %d: " SAME_PROGRAM,
             STORE_VERSION, version);
    c->version = (uint8_t)version;
    reject(s, c, why);
    if (s->has_logged_version) return true;
    s->has_logged_version = true;
    log_line(s->log, "rejected a rank that uses version %d of ddptrain's protocol, not %d: " SAME_PROGRAM, version,
             STORE_VERSION);
    return true;
}

/* A frame with a wrong tag was changed on the way. Before the rank has joined it may also mean another secret: it is
 * rejected. Later the rank is lost, and gets the reason. */
static bool on_wrong_tag(struct store_server *s, struct connection *c) {
    char reason[STORE_MAX_REPORT];
    if (c->stage == STAGE_PROOF) {
        c->session.is_on = false;
        if (!s->has_logged_secret)
            log_line(s->log,
                     "rejected a connection with another secret (is " SECRET_VARIABLE " the same on every rank?)");
        s->has_logged_secret = true;
        reject(s, c,
               "the secrets differ, or the connection was tampered with (is " SECRET_VARIABLE
               " the same on every rank?)");
        return true;
    }
    snprintf(reason, sizeof reason,
             ": its connection to rank 0 at %s was tampered with or corrupted: a message had a wrong authentication "
             "code; check what is between the hosts",
             s->endpoint);
    members_leave(s->members, rank_of(c), MEMBER_FAILED, STATUS_PEER, reason, clock_seconds());
    s->has_changed = true;
    end_pending(s, c);
    c->stage = STAGE_REJECTED; /* the next frame is the last */
    c->deadline = clock_seconds() + REASON_SECONDS;
    s->expires_at = earlier(s->expires_at, c->deadline);
    server_send_failure(s, c, rank_of(c));
    return true;
}

static bool is_expected(const struct connection *c, const struct store_frame *frame) {
    bool is_of_rank = c->stage < STAGE_JOINED || frame->rank == c->shake.rank;
    bool is_second = c->pending && handlers[frame->type].is_request;
    return is_of_rank && !is_second && handlers[frame->type].handle && handlers[frame->type].stage == c->stage;
}

/* Handles all complete frames in c->in; false: the connection must be closed. */
static bool server_handle_frames(struct store_server *s, struct connection *c) {
    for (;;) {
        struct store_frame frame = {0};
        size_t used = 0, limit = c->stage == STAGE_JOINED ? STORE_MAX_BODY : STORE_MAX_JOINING;
        enum store_parsed parsed = store_frame_parse(c->in, c->in_size, limit, &frame, &used);
        if (parsed == PARSED_INVALID && c->session.is_on) return on_wrong_tag(s, c);
        if (parsed == PARSED_INVALID) return reject_version(s, c);
        if (parsed == PARSED_INCOMPLETE) /* the length is at most the limit */
            return c->in_size < STORE_HEADER ||
                   server_reserve(&c->in, &c->in_capacity, STORE_HEADER + (size_t)frame.length);
        if (!store_frame_verify(&c->session, &frame)) return on_wrong_tag(s, c);
        if (!is_expected(c, &frame)) return false;
        if (c->stage == STAGE_JOINED && !c->has_answered) on_first_frame(s, c);
        if (frame.type == FRAME_HEARTBEAT)
            count_up(&s->traffic.heartbeats, 1);
        else
            count_frame(&s->traffic.received, &s->traffic.bytes_received, used);
        if (!handlers[frame.type].handle(s, c, &frame)) return false;
        if (c->stage == STAGE_REJECTED) return true;
        message_drop(c->in, &c->in_size, used);
    }
}

/* ---- connections that are read, made and ended ---- */

static void read_from(struct store_server *s, struct connection *c) {
    while (!c->is_closed && c->stage != STAGE_REJECTED) {
        enum message_input got = message_read(c->fd, c->in, c->in_capacity, &c->in_size);
        if (got == INPUT_NOTHING) return;
        if (got == INPUT_END || !server_handle_frames(s, c)) connection_close(s, c);
    }
}

/* Closes a connection that has not proved the secret, if there is one. */
static void drop_unproven(struct store_server *s) {
    size_t count = 0, chosen;
    struct connection *c = s->unproven.first;
    double accepted_before = clock_seconds() - HELLO_SECONDS;
    for (; c && count < s->max_unproven; c = c->after) {
        bool is_silent = c->stage == STAGE_HELLO && c->deadline - JOINING_SECONDS < accepted_before;
        s->open[count++] = (struct net_unproven){.host = c->host, .is_silent = is_silent};
    }
    if (count == 0) return;
    chosen = net_choose_unproven(s->open, count);
    for (c = s->unproven.first; chosen > 0; chosen--) c = c->after;
    list_remove(c);
    connection_close(s, c);
}

/* Strangers get none of the descriptors that ranks still need to join. */
static size_t unproven_limit(const struct store_server *s) {
    int missing = s->world_size - members_joined(s->members), limit = s->spare + missing;
    if (limit < 1) limit = 1;
    return (size_t)limit < s->max_unproven ? (size_t)limit : s->max_unproven;
}

static void set_listening(struct store_server *s, bool is_listening) {
    if (is_listening == s->is_listening) return;
    s->is_listening =
        watch_event(s, EPOLL_CTL_MOD, s->listener, is_listening ? EPOLLIN : 0, &s->listener) == is_listening;
}

static void accept_some(struct store_server *s) {
    for (int i = 0; i < 16; i++) {
        uint64_t host;
        int fd = net_accept(s->listener, &host);
        if (fd < 0) {
            if (!net_is_out_of_resources(errno)) return;
            drop_unproven(s);
            s->accept_after = clock_seconds() + 0.1;
            set_listening(s, false);
            return;
        }
        if (s->unproven.count >= unproven_limit(s)) drop_unproven(s);
        struct connection *c = connection_add(s, fd);
        if (!c) {
            close(fd);
            continue;
        }
        c->host = host;
        list_add(&s->unproven, c);
        read_from(s, c); /* the HELLO of a rank has often arrived */
    }
}

/* The connection of a rank has ended. If it has not answered, it may not have received WELCOME and joins again. */
static void on_disconnect(struct store_server *s, int rank) {
    double now = clock_seconds();
    s->has_changed = true;
    if (s->join[rank].has_answered || rank == 0)
        members_leave(s->members, rank, MEMBER_FAILED, STATUS_PEER, NULL, now);
    else
        s->join[rank].disconnected_at = now;
}

static void lose_disconnected_ranks(struct store_server *s, double now) {
    for (int r = 1; r < s->world_size; r++) {
        if (s->join[r].disconnected_at == 0 || now < s->join[r].disconnected_at + REJOIN_SECONDS) continue;
        members_leave(s->members, r, MEMBER_FAILED, STATUS_PEER, NULL, now);
        s->has_changed = true;
    }
}

/* [c] no longer is a connection of its rank. */
static void forget(struct store_server *s, const struct connection *c) {
    if (c->stage < STAGE_JOINED || c->shake.rank >= (uint32_t)s->world_size) return;
    struct join_state *state = &s->join[rank_of(c)];
    if (state->connection == c) state->connection = NULL;
}

static void remove_ended(struct store_server *s) {
    for (struct connection *c = s->closed, *next; c; c = next) {
        next = c->next_closed;
        if (c->stage == STAGE_JOINED && is_member(c)) on_disconnect(s, (int)c->shake.rank);
        forget(s, c);
        end_pending(s, c);
        list_remove(c);
        s->connections[c->index] = s->connections[--s->count];
        s->connections[c->index]->index = c->index;
        watch_event(s, EPOLL_CTL_DEL, c->fd, 0, NULL); /* the launcher may have a duplicate of the descriptor */
        connection_free(c);
    }
    s->closed = NULL;
    s->closed_end = &s->closed;
}

/* ---- heartbeats ---- */

/* Seconds since the host of [rank] last acknowledged data on its connection; 0: it has none. */
static double link_age(void *data, int rank) {
    const struct connection *c = ((const struct store_server *)data)->join[rank].connection;
    return c ? net_link_age(c->fd) : 0;
}

/* With several hosts it also logs the address of rank 0, which shows a wrong interface, and warns of a weak secret. */
static void log_all_joined(struct store_server *s) {
    struct sockaddr_storage address;
    char text[64], interface[64];
    s->has_logged_joined = true;
    if (s->has_logged_waiting) log_line(s->log, "all %d ranks have joined", s->world_size);
    if (s->is_one_host) return;
    if (store_server_address(s, &address)) return;
    net_address_text(&address, text);
    net_interface(text, interface, sizeof interface);
    log_line(s->log, "rank 0 is reached at %s (%s); " INTERFACE_VARIABLE " chooses another interface for the data",
             text, interface);
    if (s->is_guessable && !net_is_loopback(&address)) log_warning(s->log, "%s", dist_env_secret_warning);
}

static void log_missing(struct store_server *s, double now) {
    bool is_waiting = members_joined(s->members) < s->world_size;
    if (!is_waiting || *s->mismatch || now < s->log_waiting_at || members_cause(s->members, now) >= 0) return;
    SCOPED_TEXT missing = {0};
    members_missing_by_node(s->members, &missing);
    log_line(s->log, "waiting for %s%s", missing.data, s->hint);
    s->has_logged_waiting = true;
    s->log_waiting_at = now + WAITING_SECONDS;
}

static void send_heartbeats(struct store_server *s, int lost) {
    for (size_t i = 0; i < s->count; i++) {
        struct connection *c = s->connections[i];
        if (!c->is_closed && c->stage == STAGE_JOINED && c->has_answered) send_heartbeat(s, c, lost);
    }
}

static void check_ranks(struct store_server *s, double now) {
    bool is_due = now >= s->heartbeat_at;
    if (!s->has_logged_joined && members_joined(s->members) == s->world_size) log_all_joined(s);
    if (now >= s->check_at) {
        s->check_at = now + MEMBERS_CHECK_SECONDS;
        members_check(s->members, now, link_age, s);
        lose_disconnected_ranks(s, now);
        log_missing(s, now);
    }
    int lost = members_cause(s->members, now);
    bool has_failure = lost >= 0 && s->failure_sent_at == 0;
    if (!is_due && !has_failure) return;
    if (has_failure) s->failure_sent_at = now;
    send_heartbeats(s, lost);
    if (is_due) s->heartbeat_at = now + s->heartbeat_seconds;
}

/* Closes what has reached its deadline and tries all pending requests. */
static void visit_all(struct store_server *s, double now) {
    s->expires_at = INFINITY;
    for (size_t i = 0; i < s->count; i++) {
        struct connection *c = s->connections[i];
        if (c->stage != STAGE_JOINED && now >= c->deadline) connection_close(s, c);
        if (!c->is_closed && c->pending) server_try_pending(s, c);
        if (c->is_closed) continue;
        if (c->stage != STAGE_JOINED) s->expires_at = earlier(s->expires_at, c->deadline);
        if (c->pending) s->expires_at = earlier(s->expires_at, c->pending_until);
    }
}

/* Handles deadlines and failures, and repeats that until nothing changes: an answer may close a connection, and a
 * closed connection may answer other requests. */
static void handle_pending(struct store_server *s) {
    double now = clock_seconds();
    do {
        bool has_cause = members_cause(s->members, now) >= 0;
        bool may_fail = (s->has_changed || has_cause != s->had_cause) && s->pending > 0;
        s->has_changed = false;
        s->had_cause = has_cause;
        if (may_fail || now >= s->expires_at) visit_all(s, now);
        remove_ended(s);
    } while (s->has_changed);
}

static double next_deadline(const struct store_server *s, double now) {
    double next = members_cause_time(s->members, s->check_at);
    next = earlier(earlier(next, s->check_at), earlier(s->heartbeat_at, s->expires_at));
    if (s->accept_after > now && s->accept_after < next) next = s->accept_after;
    return next;
}

/* The time at which the thread ends even if other ranks are still connected. 0: not requested. */
static double time_to_stop(struct store_server *s) {
    pthread_mutex_lock(&s->mutex);
    double requested_at = s->stop_requested_at;
    pthread_mutex_unlock(&s->mutex);
    if (requested_at == 0) return 0;
    if (s->failure_sent_at == 0) return requested_at + STOP_SECONDS(s->pace);
    return (s->failure_sent_at > requested_at ? s->failure_sent_at : requested_at) + LEAVE_SECONDS;
}

/* Whether the thread must end now; otherwise *next is at most the time of the next check. */
static bool must_stop(struct store_server *s, double now, double *next) {
    double stop_at = time_to_stop(s);
    if (stop_at == 0 || members_cause_time(s->members, now) > now) return false; /* JOB_FAILURE is sent before BYE */
    if (stop_at < *next) *next = stop_at;
    for (size_t i = 0; i < s->count; i++) {
        const struct connection *c = s->connections[i];
        bool is_awaited = c->stage == STAGE_JOINED && c->shake.rank != 0;
        if (is_awaited && members_state(s->members, (int)c->shake.rank) <= MEMBER_LEFT) return now >= stop_at;
    }
    return true;
}

static void handle_event(struct store_server *s, struct connection *c, uint32_t events) {
    if (c->is_closed) return;
    if (events & EPOLLOUT) flush(s, c);
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read_from(s, c);
    if (c->stage == STAGE_REJECTED && (events & (EPOLLHUP | EPOLLERR))) connection_close(s, c);
}

static void poll_once(struct store_server *s, double now, double next) {
    struct epoll_event events[EVENTS];
    bool has_new = false;
    uint64_t wakes;
    set_listening(s, s->accept_after <= now);
    int count = epoll_wait(s->epoll, events, EVENTS, clock_milliseconds_until(next));
    for (int i = 0; i < count; i++) {
        void *data = events[i].data.ptr;
        if (data == &s->listener)
            has_new = true;
        else if (data != &s->wake)
            handle_event(s, data, events[i].events);
        else if (read(s->wake, &wakes, sizeof wakes) < 0)
            continue;
    }
    if (has_new) accept_some(s);
}

static void *serve(void *argument) {
    struct store_server *s = argument;
    for (;;) {
        handle_pending(s);
        s->traffic.keys = s->keys->count;
        double now = clock_seconds();
        check_ranks(s, now);
        double next = next_deadline(s, now);
        if (must_stop(s, now, &next)) break;
        poll_once(s, now, next);
    }
    for (size_t i = 0; i < s->count;
         i++) /* the end of the server is not a failure for ranks that are still connected */
        if (s->connections[i]->stage == STAGE_JOINED) server_send(s, s->connections[i], FRAME_BYE, NULL, 0);
    return NULL;
}

/* ---- start and stop ---- */

static void server_free(struct store_server *s) {
    for (size_t i = 0; i < s->count; i++) connection_free(s->connections[i]);
    if (s->listener >= 0) close(s->listener);
    if (s->wake >= 0) close(s->wake);
    if (s->epoll >= 0) close(s->epoll);
    store_keys_destroy(s->keys);
    gatherings_free(s->gatherings);
    free(s->join);
    pthread_mutex_destroy(&s->mutex);
    members_destroy(s->members);
    free(s->connections);
    free(s->open);
    explicit_bzero(s->secret, sizeof s->secret);
    free(s);
}

/* The connection of rank 0 itself, which needs no proof. */
static bool add_local(struct store_server *s, int fd) {
    struct connection *c = connection_add(s, fd);
    if (!c) return false;
    c->stage = STAGE_JOINED;
    c->shake.purpose = FOR_RANK;
    c->has_answered = true;
    s->join[0].connection = c;
    return true;
}

/* false: no memory, or no descriptor (wake or epoll is -1). */
static bool init_server(struct store_server *s, const struct store_server_config *config) {
    double now = clock_seconds();
    pthread_mutex_init(&s->mutex, NULL);
    s->listener = config->listener;
    s->world_size = config->world_size;
    s->node_size = config->node_size;
    s->restart_count = config->restart_count;
    s->job = config->job;
    s->log = config->log;
    s->is_one_host = config->node_size == config->world_size;
    s->is_guessable = config->is_guessable;
    s->log_waiting_at = now + FIRST_WAITING_SECONDS;
    s->pace = config->limits.pace > 1 ? config->limits.pace : 1;
    s->heartbeat_seconds = config->heartbeat_seconds;
    memcpy(s->secret, config->secret, sizeof s->secret);
    snprintf(s->endpoint, sizeof s->endpoint, "%s", config->endpoint);
    snprintf(s->hint, sizeof s->hint, "%s", config->hint);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->epoll = s->wake < 0 ? -1 : epoll_create1(EPOLL_CLOEXEC);
    s->closed_end = &s->closed;
    s->expires_at = INFINITY;
    s->spare = config->spare;
    s->max_unproven = (size_t)net_max_unproven(s->world_size);
    s->open = calloc(s->max_unproven, sizeof *s->open);
    s->join = calloc((size_t)s->world_size, sizeof *s->join);
    s->keys = store_keys_create();
    s->members = members_create(s->world_size, config->node_size, config->limits, now);
    if (!s->open || !s->join || !s->keys || !s->members || s->epoll < 0) return false;
    s->is_listening = watch_event(s, EPOLL_CTL_ADD, s->listener, EPOLLIN, &s->listener);
    if (!s->is_listening || !watch_event(s, EPOLL_CTL_ADD, s->wake, EPOLLIN, &s->wake)) return false;
    members_join(s->members, 0, config->process, now);
    for (int r = 1; config->informed && r < s->world_size; r++) {
        if (!config->informed[r / config->node_size]) continue;
        members_join(s->members, r, config->process, now);
        members_leave(s->members, r, MEMBER_LEFT, STATUS_OK, NULL, now);
    }
    return true;
}

status store_server_start(const struct store_server_config *config, struct store_server **out) {
    struct store_server *s = calloc(1, sizeof *s);
    if (!s) {
        close(config->listener);
        close(config->local);
        return status_memory("the store");
    }
    bool has_all = init_server(s, config);
    bool has_local = has_all && add_local(s, config->local);
    if (!has_local) close(config->local);
    status failure = has_local      ? thread_start(&s->thread, "store", "the store", serve, s)
                     : s->epoll < 0 ? status_errno(STATUS_IO, EMFILE, "cannot start the store")
                                    : status_memory("the store");
    if (failure) server_free(s);
    if (!failure) *out = s;
    return failure;
}

void store_server_stop(struct store_server *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->stop_requested_at = clock_seconds();
    pthread_mutex_unlock(&s->mutex);
    uint64_t one = 1;
    while (write(s->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
    pthread_join(s->thread, NULL);
    server_free(s);
}

int store_server_address(struct store_server *s, struct sockaddr_storage *address) {
    pthread_mutex_lock(&s->mutex);
    *address = s->address;
    int error = address->ss_family == AF_UNSPEC ? s->address_error : 0;
    pthread_mutex_unlock(&s->mutex);
    return error;
}

void store_server_traffic(const struct store_server *s, struct store_traffic *out) {
    *out = (struct store_traffic){.received = s->traffic.received,
                                  .sent = s->traffic.sent,
                                  .bytes_received = s->traffic.bytes_received,
                                  .bytes_sent = s->traffic.bytes_sent,
                                  .heartbeats = s->traffic.heartbeats,
                                  .connections = s->traffic.connections,
                                  .keys = s->traffic.keys};
}
