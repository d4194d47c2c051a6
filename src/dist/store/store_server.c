/* One thread and one poll(2) for everybody. A stranger gets 280 bytes of memory and a few seconds to prove the secret;
 * when too many of them wait, the one that came first goes, so a rank of the job always comes through. Five times a
 * second the thread sends every watch a sign that it runs and checks which ranks do not. */
#include "dist/store/store_server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "base/thread.h"
#include "dist/process/net.h"
#include "dist/process/variables.h"
#include "dist/store/store_server_internal.h"

#define MAX_STRANGERS 32
#define JOINING_SECONDS 5.0
#define REFUSAL_SECONDS 1.0
#define TICK_SECONDS 0.2
#define FIRST_WAITING_SECONDS 2.0
#define WAITING_SECONDS 5.0
#define AGAIN_SECONDS 3.0                     /* for a rank whose first connection ended before the second */
#define LEAVE_SECONDS 2.0                     /* for ranks that know of a failure */
#define PEACE_SECONDS (MEMBERS_STOPPED + 2.0) /* for the others: a stopped one among them is named to the rest */

/* ---- connections ---- */

static void connection_free(struct connection *c) {
    close(c->fd);
    session_end(&c->session);
    free(c->in);
    free(c->out);
    free(c);
}

static bool grow(uint8_t **bytes, size_t *capacity, size_t need) {
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
    if (!c || !grow(&c->in, &c->in_capacity, STORE_HEADER + STORE_MAX_JOINING)) {
        free(c);
        return NULL;
    }
    c->fd = fd;
    c->deadline = clock_seconds() + JOINING_SECONDS;
    return s->connections[s->count++] = c;
}

/* Sends at once what the socket takes; the rest when poll says so. */
static void flush(struct connection *c) {
    while (c->out_sent < c->out_size) {
        ssize_t done = send(c->fd, c->out + c->out_sent, c->out_size - c->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) return;
        if (done <= 0) {
            c->is_over = true;
            return;
        }
        c->out_sent += (size_t)done;
    }
    c->out_sent = c->out_size = 0;
    if (c->stage == IS_REFUSED) c->is_over = true;
}

void server_answer(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size) {
    struct store_frame frame = {
        .type = type, .rank = 0, .version = c->version, .job = s->job, .body = body, .length = (uint32_t)size};
    if (!grow(&c->out, &c->out_capacity, c->out_size + STORE_HEADER + size + SESSION_TAG)) {
        c->is_over = true;
        return;
    }
    c->out_size += store_frame_write(&c->session, &frame, c->out + c->out_size);
    flush(c);
}

void server_refuse(struct store_server *s, struct connection *c, enum store_type type, const void *body, size_t size) {
    c->stage = IS_REFUSED;
    c->deadline = clock_seconds() + REFUSAL_SECONDS;
    server_answer(s, c, type, body, size);
}

/* Which of our addresses do others reach? One that a rank of another host used is the best answer. */
void server_note_address(struct store_server *s, int fd) {
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
    while (!c->is_over && c->stage != IS_REFUSED) {
        ssize_t got = recv(c->fd, c->in + c->in_size, c->in_capacity - c->in_size, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            c->is_over = true;
            return;
        }
        c->in_size += (size_t)got;
        if (!server_handle_frames(s, c)) c->is_over = true;
    }
}

/* ---- the loop ---- */

static void drop_oldest_stranger(struct store_server *s) {
    size_t strangers = 0, oldest = s->count;
    for (size_t i = s->count; i-- > 0;)
        if (s->connections[i]->stage != HAS_JOINED && !s->connections[i]->is_over) {
            strangers++;
            oldest = i;
        }
    if (strangers >= MAX_STRANGERS) s->connections[oldest]->is_over = true;
}

static void accept_some(struct store_server *s) {
    for (int i = 0; i < 16; i++) {
        int fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            bool is_out_of_descriptors = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
            if (is_out_of_descriptors) s->listens_again = clock_seconds() + 0.1;
            return;
        }
        drop_oldest_stranger(s);
        if (!connection_add(s, fd)) close(fd);
    }
}

/* A rank without a watch has perhaps not received the answer, and comes again. */
static void lose_connection(struct store_server *s, int rank) {
    double now = clock_seconds();
    if (s->arrivals[rank].has_watch || rank == 0)
        members_leave(s->members, rank, LEFT_AS_CAUSE, STATUS_PEER, NULL, now);
    else
        s->arrivals[rank].gone_at = now;
}

static void lose_those_who_do_not_come_again(struct store_server *s, double now) {
    for (int r = 1; r < s->world_size; r++)
        if (s->arrivals[r].gone_at > 0 && now >= s->arrivals[r].gone_at + AGAIN_SECONDS)
            members_leave(s->members, r, LEFT_AS_CAUSE, STATUS_PEER, NULL, now);
}

static void remove_ended(struct store_server *s) {
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct connection *c = s->connections[i];
        if (!c->is_over) {
            s->connections[kept++] = c;
            continue;
        }
        if (c->stage == HAS_JOINED && is_member(c)) lose_connection(s, (int)c->shake.rank);
        connection_free(c);
    }
    s->count = kept;
}

/* ---- watching ---- */

/* Seconds since the host of [rank] acknowledged anything on its watch. */
static double link_age(void *data, int rank) {
    const struct store_server *s = data;
    for (size_t i = 0; i < s->count; i++) {
        const struct connection *c = s->connections[i];
        if (c->stage == HAS_JOINED && is_watch(c) && (int)c->shake.rank == rank) return net_link_age(c->fd);
    }
    return 0;
}

/* Where several hosts meet is worth a line: it is what a wrong interface or address shows in. */
static void say_that_all_are_here(struct store_server *s) {
    struct sockaddr_storage address;
    char text[64], interface[64];
    s->has_said_all = true;
    if (s->has_said_waiting) log_line(s->log, "all %d ranks are here", s->world_size);
    if (s->is_one_host) return;
    if (store_server_address(s, &address)) return;
    net_address_text(&address, text);
    net_interface(text, interface, sizeof interface);
    log_line(s->log, "rank 0 is reached at %s (%s); " INTERFACE_VARIABLE " chooses another interface for the data",
             text, interface);
}

static void say_who_is_missing(struct store_server *s, double now) {
    bool is_waiting = members_joined(s->members) < s->world_size;
    if (!is_waiting && !s->has_said_all) say_that_all_are_here(s);
    if (!is_waiting || *s->misfit || now < s->waits_said_at || members_cause(s->members, now) >= 0) return;
    struct text who = {0};
    members_awaited(s->members, &who);
    log_line(s->log, "waiting for %s%s", who.data, s->hint);
    text_free(&who);
    s->has_said_waiting = true;
    s->waits_said_at = now + WAITING_SECONDS;
}

static void tell_watches(struct store_server *s, int lost) {
    uint8_t tick[STORE_MAX_TICK];
    const char *who = members_who(s->members, 0);
    size_t length = strnlen(who, STORE_MAX_WHO - 1);
    store_write_u64(tick, (uint64_t)s->saved);
    store_write_beat(members_last(s->members, 0), tick + 8);
    memcpy(tick + 8 + STORE_BEAT, who, length);
    for (size_t i = 0; i < s->count; i++) {
        struct connection *c = s->connections[i];
        if (c->is_over || c->stage != HAS_JOINED || !is_watch(c)) continue;
        if (lost >= 0 && !c->has_news) server_tell_news(s, c, lost);
        server_answer(s, c, FRAME_TICK, tick, 8 + STORE_BEAT + length);
    }
}

static void watch(struct store_server *s, double now) {
    if (now >= s->ticks_at) {
        members_check(s->members, now, link_age, s);
        lose_those_who_do_not_come_again(s, now);
        say_who_is_missing(s, now);
    }
    int lost = members_cause(s->members, now);
    bool has_news = lost >= 0 && s->told_at == 0;
    if (now < s->ticks_at && !has_news) return;
    if (has_news) s->told_at = now;
    tell_watches(s, lost);
    if (now >= s->ticks_at) s->ticks_at = now + TICK_SECONDS;
}

/* Deadlines and parked requests, again and again until nothing changes: an answer can end a connection, and the end of
 * a connection answers others. */
static void settle(struct store_server *s) {
    double now = clock_seconds();
    for (size_t before = s->count + 1; before != s->count;) {
        for (size_t i = 0; i < s->count; i++) {
            struct connection *c = s->connections[i];
            if (c->stage != HAS_JOINED && now >= c->deadline) c->is_over = true;
            if (!c->is_over && c->waits) server_try_waiting(s, c);
        }
        before = s->count;
        remove_ended(s);
    }
}

static double next_deadline(const struct store_server *s, double now) {
    double next = members_cause_time(s->members, s->ticks_at);
    if (s->ticks_at < next) next = s->ticks_at;
    for (size_t i = 0; i < s->count; i++) {
        const struct connection *c = s->connections[i];
        double at = c->stage != HAS_JOINED ? c->deadline : c->waits ? c->waits_until : next;
        if (at < next) next = at;
    }
    if (s->listens_again > now && s->listens_again < next) next = s->listens_again;
    return next;
}

/* When to end though others are still there: they have been informed of a failure, or have had the time to be found
 * silent. 0: nobody wants it to end. */
static double time_to_stop(struct store_server *s) {
    pthread_mutex_lock(&s->mutex);
    double asked_at = s->stop_asked_at;
    pthread_mutex_unlock(&s->mutex);
    if (asked_at == 0) return 0;
    if (s->told_at == 0) return asked_at + PEACE_SECONDS;
    return (s->told_at > asked_at ? s->told_at : asked_at) + LEAVE_SECONDS;
}

/* Whether to end now; else *next is when to look again. */
static bool is_stopped(struct store_server *s, double now, double *next) {
    double stop_at = time_to_stop(s);
    if (stop_at == 0 || members_cause_time(s->members, now) > now) return false; /* the news go before the good-bye */
    if (stop_at < *next) *next = stop_at;
    for (size_t i = 0; i < s->count; i++) {
        const struct connection *c = s->connections[i];
        bool is_awaited = c->stage == HAS_JOINED && c->shake.rank != 0;
        if (is_awaited && members_state(s->members, (int)c->shake.rank) <= LEFT_IN_PEACE) return now >= stop_at;
    }
    return true;
}

static void poll_once(struct store_server *s, double now, double next) {
    bool is_listening = s->listens_again <= now;
    s->polls[0] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = is_listening ? s->listener : -1, .events = POLLIN};
    size_t count = s->count;
    for (size_t i = 0; i < count; i++) {
        const struct connection *c = s->connections[i];
        short out = c->out_sent < c->out_size ? POLLOUT : 0;
        s->polls[2 + i] = (struct pollfd){.fd = c->fd, .events = (short)(out | (c->stage == IS_REFUSED ? 0 : POLLIN))};
    }
    if (poll(s->polls, count + 2, next <= now ? 0 : (int)((next - now) * 1000) + 1) <= 0) return;
    uint64_t wakes;
    if (s->polls[0].revents && read(s->wake, &wakes, sizeof wakes) < 0) s->polls[0].revents = 0;
    for (size_t i = 0; i < count; i++) {
        struct connection *c = s->connections[i];
        if (s->polls[2 + i].revents & POLLOUT) flush(c);
        if (s->polls[2 + i].revents & (POLLIN | POLLHUP | POLLERR)) read_from(s, c);
        if (c->stage == IS_REFUSED && (s->polls[2 + i].revents & (POLLHUP | POLLERR))) c->is_over = true;
    }
    if (s->polls[1].revents) accept_some(s); /* last: it moves s->polls */
}

static void *serve(void *argument) {
    struct store_server *s = argument;
    for (;;) {
        settle(s);
        double now = clock_seconds();
        watch(s, now);
        double next = next_deadline(s, now);
        if (is_stopped(s, now, &next)) break;
        poll_once(s, now, next);
    }
    for (size_t i = 0; i < s->count; i++) /* the end is no failure for those who are still there */
        if (s->connections[i]->stage == HAS_JOINED && is_watch(s->connections[i]))
            server_answer(s, s->connections[i], FRAME_BYE, NULL, 0);
    return NULL;
}

/* ---- life ---- */

static void server_free(struct store_server *s) {
    for (size_t i = 0; i < s->count; i++) connection_free(s->connections[i]);
    if (s->listener >= 0) close(s->listener);
    if (s->wake >= 0) close(s->wake);
    store_keys_destroy(s->keys);
    free(s->arrivals);
    pthread_mutex_destroy(&s->mutex);
    members_destroy(s->members);
    free(s->connections);
    free(s->polls);
    explicit_bzero(s->secret, sizeof s->secret);
    free(s);
}

/* A connection of rank 0 itself, which needs no proof. */
static bool add_local(struct store_server *s, int fd, bool is_a_watch) {
    struct connection *c = connection_add(s, fd);
    if (!c) return false;
    c->stage = HAS_JOINED;
    c->shake.purpose = is_a_watch ? FOR_WATCHING : FOR_REQUESTS;
    return true;
}

static bool fill(struct store_server *s, const struct store_server_config *config) {
    double now = clock_seconds();
    pthread_mutex_init(&s->mutex, NULL);
    s->listener = config->listener;
    s->world_size = config->world_size;
    s->node_size = config->node_size;
    s->incarnation = config->incarnation;
    s->job = config->job;
    s->log = config->log;
    s->is_one_host = config->node_size == config->world_size;
    s->waits_said_at = now + FIRST_WAITING_SECONDS;
    memcpy(s->secret, config->secret, sizeof s->secret);
    snprintf(s->place, sizeof s->place, "%s", config->place);
    snprintf(s->hint, sizeof s->hint, "%s", config->hint);
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->arrivals = calloc((size_t)s->world_size, sizeof *s->arrivals);
    s->keys = store_keys_create();
    s->members = members_create(s->world_size, config->node_size, config->limits, now);
    if (!s->arrivals || !s->keys || !s->members || s->wake < 0) return false;
    members_join(s->members, 0, config->who, now);
    for (int r = 1; config->informed && r < s->world_size; r++) {
        if (!config->informed[r / config->node_size]) continue;
        members_join(s->members, r, config->who, now);
        members_leave(s->members, r, LEFT_IN_PEACE, STATUS_OK, NULL, now);
    }
    return true;
}

status store_server_start(const struct store_server_config *config, struct store_server **out) {
    struct store_server *s = calloc(1, sizeof *s);
    if (!s) {
        close(config->listener);
        close(config->local);
        close(config->local_watch);
        return status_memory("the store");
    }
    bool has_all = fill(s, config);
    bool has_local = has_all && add_local(s, config->local, false);
    bool has_watch = has_local && add_local(s, config->local_watch, true);
    if (!has_local) close(config->local);
    if (!has_watch) close(config->local_watch);
    status failure = has_watch     ? thread_start(&s->thread, "store", "the store", serve, s)
                     : s->wake < 0 ? status_errno(STATUS_IO, EMFILE, "cannot start the store")
                                   : status_memory("the store");
    if (failure) server_free(s);
    if (!failure) *out = s;
    return failure;
}

void store_server_stop(struct store_server *s) {
    if (!s) return;
    pthread_mutex_lock(&s->mutex);
    s->stop_asked_at = clock_seconds();
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
