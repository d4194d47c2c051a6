/* One thread and one poll(2) for all connections. A connection gets 280 bytes of memory and a few seconds until it has
 * proved the secret; when too many have not, one of them is closed (net_choose_unproven). Five times a second the
 * thread sends a heartbeat to every rank and checks for lost ranks. */
#include "dist/store/store_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/thread.h"
#include "base/text.h"
#include "dist/process/net.h"
#include "dist/process/variables.h"
#include "dist/store/store_secret.h"
#include "dist/store/store_server_internal.h"

#define JOINING_SECONDS 5.0
#define REJECTION_SECONDS 1.0
#define HEARTBEAT_SECONDS 0.2
#define FIRST_WAITING_SECONDS 2.0
#define WAITING_SECONDS 5.0
#define REJOIN_SECONDS 3.0 /* for a rank whose first connection ended before the second */
#define LEAVE_SECONDS 2.0  /* for ranks to leave after the failure was sent to them */
/* For ranks to leave without a failure: long enough to detect a stopped one and report it to the others. */
#define STOP_SECONDS (MEMBERS_STOPPED_SECONDS + 2.0)

/* ---- connections ---- */

static void connection_free(struct connection *c) {
    close(c->fd);
    session_end(&c->session);
    free(c->in);
    free(c->out);
    free(c);
}

bool server_reserve(uint8_t **bytes, size_t *capacity, size_t need) {
    if (need <= *capacity) return true;
    uint8_t *more = realloc(*bytes, need);
    if (!more) return false;
    *bytes = more;
    *capacity = need;
    return true;
}

static struct connection *connection_add(struct store_server *s, int fd) {
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 16;
        struct connection **more = realloc(s->connections, capacity * sizeof *more);
        if (more) s->connections = more;
        struct pollfd *polls = more ? realloc(s->polls, (capacity + 2) * sizeof *polls) : NULL;
        if (polls) s->polls = polls;
        if (!more || !polls) return NULL;
        s->capacity = capacity;
    }
    struct connection *c = calloc(1, sizeof *c);
    if (!c || !server_reserve(&c->in, &c->in_capacity, STORE_HEADER + STORE_MAX_JOINING)) {
        free(c);
        return NULL;
    }
    c->fd = fd;
    c->deadline = clock_seconds() + JOINING_SECONDS;
    return s->connections[s->count++] = c;
}

/* Sends what fits into the socket buffer; the rest is sent when poll reports POLLOUT. */
static void flush(struct connection *c) {
    while (c->out_sent < c->out_size) {
        ssize_t done = send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) return;
        if (done <= 0) {
            c->is_closed = true;
            return;
        }
        c->out_sent += (size_t)done;
    }
    c->out_sent = c->out_size = 0;
    if (c->stage == STAGE_REJECTED) c->is_closed = true;
}

void server_send(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size) {
    struct store_frame frame = {
        .type = type, .rank = 0, .version = c->version, .job = s->job, .body = body, .length = (uint32_t)size};
    if (!server_reserve(&c->out, &c->out_capacity, c->out_size + STORE_HEADER + size + SESSION_TAG)) {
        c->is_closed = true;
        return;
    }
    c->out_size += store_frame_write(&c->session, &frame, c->out + c->out_size);
    flush(c);
}

void server_reject(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size) {
    c->stage = STAGE_REJECTED;
    c->deadline = clock_seconds() + REJECTION_SECONDS;
    server_send(s, c, type, body, size);
}

/* The address that a rank of another host has used is preferred to a loopback address. */
void server_set_address(struct store_server *s, int fd) {
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

static void read_from(struct store_server *s, struct connection *c) {
    while (!c->is_closed && c->stage != STAGE_REJECTED) {
        ssize_t received = recv(c->fd, c->in + c->in_size, c->in_capacity - c->in_size, MSG_DONTWAIT);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == EAGAIN) return;
        if (received <= 0) {
            c->is_closed = true;
            return;
        }
        c->in_size += (size_t)received;
        if (!server_handle_frames(s, c)) c->is_closed = true;
    }
}

/* ---- the loop ---- */

/* Makes place for a connection. */
static void drop_unauthenticated(struct store_server *s) {
    struct connection *open[NET_MAX_UNPROVEN];
    struct net_unproven unproven[NET_MAX_UNPROVEN];
    size_t count = 0;
    for (size_t i = 0; i < s->count && count < NET_MAX_UNPROVEN; i++) {
        struct connection *c = s->connections[i];
        if (c->stage == STAGE_JOINED || c->is_closed) continue;
        unproven[count] = (struct net_unproven){.host = c->host, .is_silent = c->stage == STAGE_HELLO};
        open[count++] = c;
    }
    if (count == NET_MAX_UNPROVEN) open[net_choose_unproven(unproven, count)]->is_closed = true;
}

static void accept_some(struct store_server *s) {
    for (int i = 0; i < 16; i++) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        int fd = accept4(s->listener, (struct sockaddr *)&from, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            if (net_is_out_of_resources(errno)) s->accept_after = clock_seconds() + 0.1;
            return;
        }
        drop_unauthenticated(s);
        struct connection *c = connection_add(s, fd);
        if (!c) {
            close(fd);
            continue;
        }
        c->host = net_host(&from);
        read_from(s, c); /* the HELLO of a rank has often arrived */
    }
}

/* The first connection of a rank has ended. Without the second one it may not have received WELCOME and joins again. */
static void on_disconnect(struct store_server *s, int rank) {
    double now = clock_seconds();
    if (s->join[rank].has_heartbeat || rank == 0)
        members_leave(s->members, rank, MEMBER_FAILED, STATUS_PEER, NULL, now);
    else
        s->join[rank].disconnected_at = now;
}

static void lose_disconnected_ranks(struct store_server *s, double now) {
    for (int r = 1; r < s->world_size; r++)
        if (s->join[r].disconnected_at > 0 && now >= s->join[r].disconnected_at + REJOIN_SECONDS)
            members_leave(s->members, r, MEMBER_FAILED, STATUS_PEER, NULL, now);
}

static void remove_ended(struct store_server *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct connection *c = s->connections[i];
        if (!c->is_closed) {
            s->connections[kept++] = c;
            continue;
        }
        if (c->stage == STAGE_JOINED && is_member(c)) on_disconnect(s, (int)c->shake.rank);
        connection_free(c);
    }
    s->count = kept;
}

/* ---- heartbeats ---- */

/* Seconds since the host of [rank] last acknowledged data on its heartbeat connection; 0: it has none. */
static double link_age(void *data, int rank) {
    const struct store_server *s = data;
    for (size_t i = 0; i < s->count; i++) {
        const struct connection *c = s->connections[i];
        if (c->stage == STAGE_JOINED && is_heartbeat(c) && (int)c->shake.rank == rank) return net_link_age(c->fd);
    }
    return 0;
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
    if (s->is_guessable && !net_is_loopback(&address)) store_secret_warn(s->log);
}

static void log_missing(struct store_server *s, double now) {
    bool is_waiting = members_joined(s->members) < s->world_size;
    if (!is_waiting && !s->has_logged_joined) log_all_joined(s);
    if (!is_waiting || *s->mismatch || now < s->log_waiting_at || members_cause(s->members, now) >= 0) return;
    struct text missing = {0};
    members_missing_by_node(s->members, &missing);
    log_line(s->log, "waiting for %s%s", missing.data, s->hint);
    text_free(&missing);
    s->has_logged_waiting = true;
    s->log_waiting_at = now + WAITING_SECONDS;
}

/* To all ranks: [lost], if not -1, and the heartbeat. */
static void send_heartbeats(struct store_server *s, int lost) {
    uint8_t body[STORE_MAX_SERVER_HEARTBEAT];
    const char *process = members_process(s->members, 0);
    size_t length = strnlen(process, STORE_MAX_PROCESS - 1);
    store_write_u64(body, (uint64_t)s->saved);
    store_write_heartbeat(members_last(s->members, 0), body + 8);
    memcpy(body + 8 + STORE_HEARTBEAT, process, length);
    for (size_t i = 0; i < s->count; i++) {
        struct connection *c = s->connections[i];
        if (c->is_closed || c->stage != STAGE_JOINED || !is_heartbeat(c)) continue;
        if (lost >= 0 && !c->has_failure) server_send_failure(s, c, lost);
        server_send(s, c, FRAME_SERVER_HEARTBEAT, body, 8 + STORE_HEARTBEAT + length);
    }
}

static void check_ranks(struct store_server *s, double now) {
    if (now >= s->heartbeat_at) {
        members_check(s->members, now, link_age, s);
        lose_disconnected_ranks(s, now);
        log_missing(s, now);
    }
    int lost = members_cause(s->members, now);
    bool has_failure = lost >= 0 && s->failure_sent_at == 0;
    if (now < s->heartbeat_at && !has_failure) return;
    if (has_failure) s->failure_sent_at = now;
    send_heartbeats(s, lost);
    if (now >= s->heartbeat_at) s->heartbeat_at = now + HEARTBEAT_SECONDS;
}

/* Handles deadlines and pending requests, and repeats that until nothing changes: an answer may close a connection, and
 * a closed connection may answer other requests. */
static void handle_pending(struct store_server *s) {
    double now = clock_seconds();
    for (size_t before = s->count + 1; before != s->count;) {
        for (size_t i = 0; i < s->count; i++) {
            struct connection *c = s->connections[i];
            if (c->stage != STAGE_JOINED && now >= c->deadline) c->is_closed = true;
            if (!c->is_closed && c->pending) server_try_pending(s, c);
        }
        before = s->count;
        remove_ended(s);
    }
}

static double next_deadline(const struct store_server *s, double now) {
    double next = members_cause_time(s->members, s->heartbeat_at);
    if (s->heartbeat_at < next) next = s->heartbeat_at;
    for (size_t i = 0; i < s->count; i++) {
        const struct connection *c = s->connections[i];
        double at = c->stage != STAGE_JOINED ? c->deadline : c->pending ? c->pending_until : next;
        if (at < next) next = at;
    }
    if (s->accept_after > now && s->accept_after < next) next = s->accept_after;
    return next;
}

/* The time at which the thread ends even if other ranks are still connected. 0: not requested. */
static double time_to_stop(struct store_server *s) {
    pthread_mutex_lock(&s->mutex);
    double requested_at = s->stop_requested_at;
    pthread_mutex_unlock(&s->mutex);
    if (requested_at == 0) return 0;
    if (s->failure_sent_at == 0) return requested_at + STOP_SECONDS;
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

static void poll_once(struct store_server *s, double now, double next) {
    bool is_listening = s->accept_after <= now;
    s->polls[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = is_listening ? s->listener : -1, .events = POLLIN};
    size_t count = s->count;
    for (size_t i = 0; i < count; i++) {
        const struct connection *c = s->connections[i];
        short out = c->out_sent < c->out_size ? POLLOUT : 0;
        s->polls[2 + i] =
            (struct pollfd){.fd = c->fd, .events = (short)(out | (c->stage == STAGE_REJECTED ? 0 : POLLIN))};
    }
    if (poll(s->polls, count + 2, next <= now ? 0 : (int)((next - now) * 1000) + 1) <= 0) return;
    uint64_t wakes;
    if (s->polls[0].revents && read(s->wake, &wakes, sizeof wakes) < 0) s->polls[0].revents = 0;
    for (size_t i = 0; i < count; i++) {
        struct connection *c = s->connections[i];
        if (s->polls[2 + i].revents & POLLOUT) flush(c);
        if (s->polls[2 + i].revents & (POLLIN | POLLHUP | POLLERR)) read_from(s, c);
        if (c->stage == STAGE_REJECTED && (s->polls[2 + i].revents & (POLLHUP | POLLERR))) c->is_closed = true;
    }
    if (s->polls[1].revents) accept_some(s); /* last: it may reallocate s->polls */
}

static void *serve(void *argument) {
    struct store_server *s = argument;
    for (;;) {
        handle_pending(s);
        double now = clock_seconds();
        check_ranks(s, now);
        double next = next_deadline(s, now);
        if (must_stop(s, now, &next)) break;
        poll_once(s, now, next);
    }
    for (size_t i = 0; i < s->count;
         i++) /* the end of the server is not a failure for ranks that are still connected */
        if (s->connections[i]->stage == STAGE_JOINED && is_heartbeat(s->connections[i]))
            server_send(s, s->connections[i], FRAME_BYE, NULL, 0);
    return NULL;
}

/* ---- start and stop ---- */

static void server_free(struct store_server *s) {
    for (size_t i = 0; i < s->count; i++) connection_free(s->connections[i]);
    if (s->listener >= 0) close(s->listener);
    if (s->wake >= 0) close(s->wake);
    store_keys_destroy(s->keys);
    free(s->join);
    pthread_mutex_destroy(&s->mutex);
    members_destroy(s->members);
    free(s->connections);
    free(s->polls);
    explicit_bzero(s->secret, sizeof s->secret);
    free(s);
}

/* A connection of rank 0 itself, which needs no proof. */
static bool add_local(struct store_server *s, int fd, bool is_for_heartbeat) {
    struct connection *c = connection_add(s, fd);
    if (!c) return false;
    c->stage = STAGE_JOINED;
    c->shake.purpose = is_for_heartbeat ? FOR_HEARTBEAT : FOR_REQUESTS;
    return true;
}

/* false: no memory, or no eventfd (wake is -1). */
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
    memcpy(s->secret, config->secret, sizeof s->secret);
    snprintf(s->endpoint, sizeof s->endpoint, "%s", config->endpoint);
    snprintf(s->hint, sizeof s->hint, "%s", config->hint);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->join = calloc((size_t)s->world_size, sizeof *s->join);
    s->keys = store_keys_create();
    s->members = members_create(s->world_size, config->node_size, config->limits, now);
    if (!s->join || !s->keys || !s->members || s->wake < 0) return false;
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
        close(config->local_heartbeat);
        return status_memory("the store");
    }
    bool has_all = init_server(s, config);
    bool has_requests = has_all && add_local(s, config->local, false);
    bool has_heartbeat = has_requests && add_local(s, config->local_heartbeat, true);
    if (!has_requests) close(config->local);
    if (!has_heartbeat) close(config->local_heartbeat);
    status failure = has_heartbeat ? thread_start(&s->thread, "store", "the store", serve, s)
                     : s->wake < 0 ? status_errno(STATUS_IO, EMFILE, "cannot start the store")
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
