/* The client side of the store: one connection, one request at a time. Rank 0's own connection is a socket pair to its
 * server thread, so all ranks take the same path. A world of one keeps its keys in memory. */
#include "dist/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/net.h"
#include "dist/store/store_frame.h"
#include "dist/store/store_internal.h"
#include "dist/store/store_join.h"
#include "dist/store/store_keys.h"
#include "dist/store/store_secret.h"
#include "dist/store/store_server.h"
#include "dist/store/store_watch.h"

#define ANSWER_SECONDS 30.0 /* beyond the time a request may wait at the server */
#define DECLARE_SECONDS 1.0
#define REPORT_SECONDS 1.0 /* for the watch to report a request to stop */
#define LINK_SECONDS 20.0
#define REPORT_JOIN_SECONDS 60.0 /* others may still load their data */
#define DESCRIPTORS 24           /* of a rank that trains: its store, its group, data and checkpoints */
#define STOPPED_SECONDS 3.0      /* whoever asked for a stop waits; the others have usually been asked, too */

struct store {
    int rank, world_size;
    bool is_one_host;
    uint8_t secret[32];
    uint64_t job;
    char place[320]; /* of rank 0 */
    struct pulse *pulse;
    struct watch *watch; /* NULL: world_size 1 */
    volatile sig_atomic_t *stop_fd;
    int stop; /* an eventfd: what *stop_fd is while the store is open; -1: nobody asks */

    pthread_mutex_t mutex; /* guards what follows */
    int fd;                /* -1: broken, or world_size 1 */
    struct store_session session;
    unsigned agreements;     /* store_agree calls so far: the same on all ranks */
    uint8_t *body;           /* (STORE_MAX_BODY): of requests and answers */
    struct store_keys *keys; /* world_size 1 */

    struct store_server *server; /* rank 0 */
};

/* ---- requests ---- */

static status lost_rank_0(struct store *s) {
    char reason[128] = "";
    int error = errno;
    if (error) snprintf(reason, sizeof reason, ": %s", strerror(error));
    shutdown(s->fd, SHUT_RDWR); /* the watch has a duplicate */
    close(s->fd);
    s->fd = -1;
    if (store_is_tampered(error)) return store_tampered(s->place);
    return status_new(STATUS_PEER, "rank 0 at %s left, or the connection to it broke%s", s->place, reason);
}

/* Rank 0 is gone: the watch soon knows how, when the launcher does. */
static bool was_declared(struct store *s, struct text *out) {
    for (double end = clock_seconds() + DECLARE_SECONDS; clock_seconds() < end; clock_sleep(0.01))
        if (watch_failure(s->watch, out) != STATUS_OK) return true;
    return false;
}

/* The connection to rank 0 ended: why, as soon as the watch knows. A stop ends a job in the same way. Consumes
 * [failure]. */
static status explain_loss(struct store *s, status failure) {
    struct text why = {0};
    if (!was_declared(s, &why)) return failure;
    bool is_stopped = watch_failure(s->watch, NULL) == STATUS_STOPPED;
    const char *own =
        is_stopped ? "asked to stop before training began; there was nothing to save" : status_message(failure);
    status explained = status_new(is_stopped ? STATUS_STOPPED : STATUS_PEER, "%s", why.length > 0 ? why.data : own);
    text_free(&why);
    status_free(failure);
    return explained;
}

static status gone(const struct store *s) {
    return status_new(STATUS_PEER, "the connection to rank 0 at %s is lost", s->place);
}

/* Sends s->body (size) and waits for the answer, which is then in s->body. Locked. */
static status exchange(struct store *s, enum store_type type, size_t size, double timeout, struct store_frame *reply) {
    if (s->fd < 0) return gone(s);
    double deadline = clock_seconds() + timeout + ANSWER_SECONDS;
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)s->rank, .job = s->job, .body = s->body, .length = (uint32_t)size};
    if (!store_send_frame(s->fd, &s->session, &frame, deadline) ||
        !store_receive_frame(s->fd, &s->session, STORE_MAX_BODY, reply, s->body, deadline))
        return lost_rank_0(s);
    if (reply->type != FRAME_FAIL) return OK;
    char text[STORE_MAX_REPORT];
    uint32_t code;
    if (!store_parse_failure(reply, &code, text)) return status_new(STATUS_BUG, "a broken answer from the store");
    bool is_told = code == STATUS_STOPPED || code == STATUS_USAGE || code == STATUS_DATA;
    return status_new(is_told ? (enum status_code)code : STATUS_PEER, "%s", text);
}

static status ask(struct store *s, enum store_type type, size_t size, double timeout, struct store_frame *reply) {
    bool was_connected = s->fd >= 0;
    status failure = exchange(s, type, size, timeout, reply);
    return failure && was_connected && s->fd < 0 ? explain_loss(s, failure) : failure;
}

static uint32_t to_milliseconds(double seconds) {
    return seconds <= 0 ? 0 : seconds > 4e6 ? 4000000000u : (uint32_t)(seconds * 1e3);
}

static status wait_ready(struct store *s, double timeout) {
    struct store_frame reply;
    store_write_u32(s->body, to_milliseconds(timeout));
    return ask(s, FRAME_READY, 4, timeout, &reply);
}

static void report(struct store *s, status failure);

/* ---- opening ---- */

static void describe_self(char who[STORE_MAX_WHO]) {
    char host[128];
    host_name(host, sizeof host);
    snprintf(who, STORE_MAX_WHO, "host %s, pid %ld", host, (long)getpid());
}

static bool make_pair(int ends[2]) {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0;
}

/* Rank 0 where MASTER_ADDR does not lead: others would look for it elsewhere. */
static void describe_place(const struct dist_env *env, char hint[400]) {
    char host[128];
    *hint = 0;
    if (env->local_world_size == env->world_size || net_is_this_host(env->master_addr)) return;
    host_name(host, sizeof host);
    snprintf(
        hint, 400,
        "; rank 0 runs on host %.60s, which does not have the address %.100s of MASTER_ADDR: start rank 0 there, or "
        "change MASTER_ADDR",
        host, env->master_addr);
}

static status serve(struct store *s, const struct dist_env *env, const struct store_options *options, const char *who,
                    int *watch) {
    int listener, ends[2], watch_ends[2];
    char hint[400];
    TRY(store_listener_find(env, &listener));
    bool has_ends = make_pair(ends);
    if (!has_ends || !make_pair(watch_ends)) {
        int error = errno;
        if (has_ends) close(ends[0]);
        if (has_ends) close(ends[1]);
        close(listener);
        return status_errno(STATUS_IO, error, "cannot start the store");
    }
    describe_place(env, hint);
    s->fd = ends[0];
    *watch = watch_ends[0];
    struct store_server_config config = {.listener = listener,
                                         .local = ends[1],
                                         .local_watch = watch_ends[1],
                                         .world_size = s->world_size,
                                         .node_size = env->local_world_size,
                                         .informed = options->informed,
                                         .incarnation = (uint32_t)env->incarnation,
                                         .limits = {.hang = options->hang, .slow = options->timeout},
                                         .job = s->job,
                                         .secret = s->secret,
                                         .log = options->log,
                                         .hint = hint,
                                         .place = s->place,
                                         .who = who};
    return store_server_start(&config, &s->server);
}

/* Further connections differ in their purpose. */
static struct store_join way_in(const struct store *s, const struct dist_env *env, const struct store_options *options,
                                const char *who, double deadline) {
    return (struct store_join){.host = env->master_addr,
                               .port = env->master_port,
                               .rank = s->rank,
                               .world_size = s->world_size,
                               .node_size = env->local_world_size,
                               .job = s->job,
                               .secret = s->secret,
                               .who = who,
                               .incarnation = (uint32_t)env->incarnation,
                               .stop_fd = s->stop > 0 ? s->stop : 0,
                               .log = env->local_rank == 0 ? options->log : NULL,
                               .trains_nothing = options->trains_nothing,
                               .deadline = deadline};
}

/* Without it this node's launcher hears less of the other's; nothing else is lost, so it is not awaited for as long as
 * the ranks are. The watch lives by then, so this rank is heard meanwhile. */
static void link_launchers(const struct store *s, struct store_join join) {
    double latest = clock_seconds() + LINK_SECONDS;
    struct store_session session;
    int fd;
    join.purpose = FOR_LAUNCHERS;
    join.joined_fd = s->fd;
    if (join.deadline > latest) join.deadline = latest;
    status failure = store_join(&join, &fd, &session, &(uint32_t){0});
    if (failure) {
        log_line(join.log, "this node's launcher has no connection to that of node 0: %s", status_message(failure));
        status_free(failure);
        return;
    }
    launcher_send_link(0, fd, &session, sizeof session);
    session_end(&session);
    close(fd);
}

/* A store that does not know this rank when it comes for its watch is not the one that it has joined: rank 0 has gone,
 * and what took its place, its launcher, may say why to a rank that joins. */
static status join(struct store *s, const struct store_join *way, int *watch, struct store_session *watch_session) {
    uint32_t incarnation = way->incarnation;
    struct store_join first = *way;
    status failure = store_join(&first, &s->fd, &s->session, &incarnation);
    while (!failure) {
        launcher_send(MESSAGE_JOINED, 0, s->rank, ""); /* the store hears the end of this connection */
        struct store_join second = first;
        second.purpose = FOR_WATCHING;
        second.joined_fd = s->fd;
        failure = store_join(&second, watch, watch_session, &incarnation);
        if (status_code(failure) != STATUS_USAGE) break;
        status_free(failure);
        close(s->fd);
        double latest = clock_seconds() + STORE_GONE_SECONDS;
        if (first.deadline > latest) first.deadline = latest;
        failure = store_join(&first, &s->fd, &s->session, &incarnation);
    }
    if (incarnation != way->incarnation) launcher_send(MESSAGE_INCARNATION, 0, incarnation, "");
    return failure;
}

/* From here on a request to stop is seen by whoever waits: before joining by store_join, then by the watch. */
static status accept_stops(struct store *s, const struct store_options *options) {
    if (!options->stop_fd && options->stop <= 0) return OK;
    s->stop = options->stop > 0 ? fcntl(options->stop, F_DUPFD_CLOEXEC, 0) : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop < 0) return status_errno(STATUS_IO, errno, "cannot open the store");
    if (!options->stop_fd) return OK;
    s->stop_fd = options->stop_fd;
    *s->stop_fd = s->stop;
    return OK;
}

/* Without them it would fail later, in words of others or by waiting. Rank 0 holds two connections of each rank. */
static status need_descriptors(const struct dist_env *env) {
    int hosts = env->local_world_size > 0 ? env->world_size / env->local_world_size : 1;
    int connections = 4 * (hosts - 1) + (env->rank == 0 ? 2 * (env->world_size - 1) : 0);
    return net_check_descriptors(DESCRIPTORS + connections);
}

static status open_network(struct store *s, const struct dist_env *env, const struct store_options *options) {
    double deadline = clock_seconds() + options->timeout;
    char who[STORE_MAX_WHO];
    struct store_session session = {0}; /* stays so on rank 0, whose connections are socket pairs in this process */
    int watch = -1;
    describe_self(who);
    TRY(store_secret_find(env, s->secret));
    if (!options->failure) TRY(need_descriptors(env));
    TRY(accept_stops(s, options));
    struct store_join way = way_in(s, env, options, who, deadline);
    status failure = s->rank == 0 ? serve(s, env, options, who, &watch) : join(s, &way, &watch, &session);
    if (failure) {
        if (watch >= 0) close(watch);
        session_end(&session);
        return failure;
    }
    struct watch_config config = {.fd = watch,
                                  .session = session,
                                  .requests = fcntl(s->fd, F_DUPFD_CLOEXEC, 0),
                                  .stop = s->stop,
                                  .rank = s->rank,
                                  .job = s->job,
                                  .pulse = s->pulse,
                                  .place = s->place,
                                  .trains_nothing = options->trains_nothing,
                                  .overdue = options->overdue};
    failure = watch_start(&config, &s->watch);
    session_end(&session);
    session_end(&config.session);
    if (failure) return failure;
    if (options->failure && s->rank > 0) return OK; /* nobody is waited for */
    if (launcher_needs_link()) link_launchers(s, way);
    double left = deadline - clock_seconds();
    return wait_ready(s, s->rank == 0 || left > 1 ? left : 1);
}

status store_open_with(const struct dist_env *env, const struct store_options *options, struct store **out) {
    *out = NULL;
    struct store *s = calloc(1, sizeof *s);
    if (!s) return status_memory("the store");
    *s = (struct store){.rank = env->rank,
                        .world_size = env->world_size,
                        .is_one_host = env->local_world_size == env->world_size,
                        .job = store_job_hash(env->job_id),
                        .fd = -1,
                        .stop = -1,
                        .pulse = pulse_map(launcher_pulse_fd()),
                        .body = malloc(STORE_MAX_BODY + 1),
                        .keys = store_keys_create()};
    pthread_mutex_init(&s->mutex, NULL);
    snprintf(s->place, sizeof s->place, "%s:%d", env->master_addr, env->master_port);
    if (!s->pulse) s->pulse = pulse_create();
    bool has_memory = s->body && s->keys && s->pulse;
    status failure = has_memory ? OK : status_memory("the store");
    if (!failure && s->world_size > 1) failure = open_network(s, env, options);
    if (!failure) {
        *out = s;
        return OK;
    }
    if (options->failure)
        report(s, options->failure);
    else
        store_report(s, failure);
    store_close(s);
    return failure;
}

status store_open(const struct dist_env *env, double timeout, struct store **out) {
    return store_open_with(env, &(struct store_options){.timeout = timeout}, out);
}

void store_report_before_joining(const struct dist_env *env, const bool *informed, int stop, struct log *log,
                                 status failure) {
    if (env->world_size == env->local_world_size) return;
    struct store *s;
    double seconds = status_code(failure) == STATUS_STOPPED ? STOPPED_SECONDS : REPORT_JOIN_SECONDS;
    struct store_options options = {
        .timeout = seconds, .log = log, .failure = failure, .informed = informed, .stop = stop};
    log_line(log, "%s; the other nodes are informed", status_message(failure));
    status unheard = store_open_with(env, &options, &s);
    if (!unheard) report(s, failure);
    if (!unheard) store_close(s);
    status_free(unheard);
    bool is_beside_rank_0 =
        env->rank > 0 && env->rank < env->local_world_size; /* which knows of those only that came */
    if (!is_beside_rank_0) launcher_send(MESSAGE_JOINED, 0, -1, "");
}

/* A frame without an answer; a connection that is gone needs no news. Locked. */
static void tell(struct store *s, enum store_type type, size_t size) {
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)s->rank, .job = s->job, .body = s->body, .length = (uint32_t)size};
    if (s->fd >= 0 && !store_send_frame(s->fd, &s->session, &frame, clock_seconds() + 1)) status_free(lost_rank_0(s));
}

/* The watch reports a request to stop on its own connection, so the BYE of this one could arrive first, and the others
 * would wait for a rank that seems to have finished. */
static void report_stop(struct store *s) {
    struct pollfd stop = {.fd = s->stop, .events = POLLIN};
    if (!s->watch || s->stop < 0 || poll(&stop, 1, 0) <= 0) return;
    status reason = watch_leaving(s->watch, REPORT_SECONDS);
    report(s, reason);
    status_free(reason);
}

void store_close(struct store *s) {
    if (!s) return;
    report_stop(s);
    tell(s, FRAME_BYE, 0);
    if (s->rank == 0) store_server_stop(s->server); /* its own watch hears the good-bye */
    if (s->stop_fd) *s->stop_fd = -1; /* not before: a request would end rank 0 while others are still informed */
    watch_stop(s->watch);
    if (s->fd >= 0) close(s->fd);
    if (s->stop >= 0) close(s->stop);
    store_keys_destroy(s->keys);
    pulse_destroy(s->pulse);
    pthread_mutex_destroy(&s->mutex);
    free(s->body);
    session_end(&s->session);
    explicit_bzero(s->secret, sizeof s->secret);
    free(s);
}

/* ---- keys ---- */

static status set_locked(struct store *s, const char *key, const void *value, size_t size) {
    if (s->world_size == 1) return store_keys_set(s->keys, key, value, size) ? OK : status_memory("the store");
    size_t length = strlen(key);
    struct store_frame reply;
    s->body[0] = (uint8_t)length;
    memcpy(s->body + 1, key, length);
    if (size) memcpy(s->body + 1 + length, value, size);
    return ask(s, FRAME_SET, 1 + length + size, 0, &reply);
}

status store_set(struct store *s, const char *key, const void *value, size_t size) {
    size_t length = strlen(key);
    if (length == 0 || length > STORE_MAX_KEY || size > STORE_MAX_VALUE)
        return status_new(STATUS_BUG, "store_set: key '%s' of %zu bytes with a value of %zu bytes", key, length, size);
    pthread_mutex_lock(&s->mutex);
    status failure = set_locked(s, key, value, size);
    pthread_mutex_unlock(&s->mutex);
    return failure;
}

static status copy_value(const uint8_t *bytes, size_t length, void **value, size_t *size) {
    char *copy = malloc(length + 1);
    if (!copy) return status_memory("a value of the store");
    if (length) memcpy(copy, bytes, length);
    copy[length] = 0;
    *value = copy;
    *size = length;
    return OK;
}

static status get_locked(struct store *s, const char *key, double timeout, void **value, size_t *size) {
    if (s->world_size == 1) {
        const uint8_t *found = store_keys_get(s->keys, key, size);
        return found ? copy_value(found, *size, value, size)
                     : status_new(STATUS_PEER, "no rank has set '%s', and no other rank is left", key);
    }
    size_t length = strlen(key);
    struct store_frame reply;
    store_write_u32(s->body, to_milliseconds(timeout));
    memcpy(s->body + 4, key, length);
    TRY(ask(s, FRAME_GET, 4 + length, timeout, &reply));
    return copy_value(reply.body, reply.length, value, size);
}

status store_get(struct store *s, const char *key, double timeout, void **value, size_t *size) {
    size_t length = strlen(key), ignored;
    if (length == 0 || length > STORE_MAX_KEY) return status_new(STATUS_BUG, "store_get: key '%s'", key);
    *value = NULL;
    pthread_mutex_lock(&s->mutex);
    status failure = get_locked(s, key, timeout, value, size ? size : &ignored);
    pthread_mutex_unlock(&s->mutex);
    return failure;
}

int store_rank(const struct store *s) { return s->rank; }
int store_world_size(const struct store *s) { return s->world_size; }

unsigned store_next_agreement(struct store *s) {
    pthread_mutex_lock(&s->mutex);
    unsigned number = s->agreements++;
    pthread_mutex_unlock(&s->mutex);
    return number;
}

/* ---- failures ---- */

static void report(struct store *s, status failure) {
    if (!failure || s->world_size == 1 || !s->body) return;
    pthread_mutex_lock(&s->mutex);
    size_t length = strnlen(status_message(failure), STORE_MAX_REPORT - 1);
    store_write_u32(s->body, (uint32_t)status_exit_code(status_code(failure)));
    memcpy(s->body + 4, status_message(failure), length);
    tell(s, FRAME_REPORT, 4 + length);
    pthread_mutex_unlock(&s->mutex);
}

/* A stop after training has begun is agreed on by all ranks, and nobody's failure. */
void store_report(struct store *s, status failure) {
    if (status_code(failure) != STATUS_STOPPED) report(s, failure);
}

bool store_cause(struct store *s, double patience, struct text *out) {
    if (s->world_size == 1) return false;
    size_t before = out->length;
    if (watch_failure(s->watch, out) != STATUS_OK && out->length > before) return true;
    pthread_mutex_lock(&s->mutex);
    struct store_frame reply;
    store_write_u32(s->body, to_milliseconds(patience));
    status failure = exchange(s, FRAME_CAUSE, 4, patience, &reply);
    bool is_known = true, is_declared = failure && was_declared(s, out);
    if (failure && (!is_declared || out->length == before))
        text_add(out, status_message(failure));
    else if (!failure && reply.length > 0)
        text_add_bytes(out, (const char *)reply.body, reply.length);
    else if (!failure)
        is_known = false;
    if (!failure && is_known)
        was_declared(s, NULL); /* for store_failure_code: the watch hears it on its own connection */
    pthread_mutex_unlock(&s->mutex);
    status_free(failure);
    return is_known;
}

struct pulse *store_pulse(struct store *s) {
    return s->pulse;
}

void store_on_failure(struct store *s, void (*handler)(void *data), void *data) {
    if (s->watch) watch_on_failure(s->watch, handler, data);
}

void store_off_failure(struct store *s, void *data) {
    if (s->watch) watch_off_failure(s->watch, data);
}

enum status_code store_failure_code(struct store *s) {
    bool is_stopped = s->watch && watch_failure(s->watch, NULL) == STATUS_STOPPED;
    return is_stopped ? STATUS_STOPPED : STATUS_PEER;
}

void store_sign(const struct store *s, const void *message, size_t size, uint8_t proof[32]) {
    store_hmac(s->secret, message, size, proof);
}

/* ---- addresses ---- */

static status own_end(struct store *s, struct sockaddr_storage *address) {
    socklen_t size = sizeof *address;
    int error = 0;
    memset(address, 0, sizeof *address);
    pthread_mutex_lock(&s->mutex);
    if (s->server)
        error = store_server_address(s->server, address);
    else if (s->fd >= 0 && getsockname(s->fd, (struct sockaddr *)address, &size) != 0)
        error = errno;
    pthread_mutex_unlock(&s->mutex);
    return error ? status_errno(STATUS_IO, error, "cannot find the address of this host on the network of rank 0") : OK;
}

status store_address(struct store *s, double timeout, char address[64]) {
    struct sockaddr_storage own;
    snprintf(address, 64, "127.0.0.1");
    if (s->world_size == 1) return OK;
    TRY(own_end(s, &own));
    if (!net_is_loopback(&own)) net_address_text(&own, address);
    if (s->is_one_host) return OK;
    /* A rank on rank 0's host may have come over loopback: others must use the address they know rank 0 by. */
    if (s->rank == 0) TRY(store_set(s, "address/0", address, strlen(address)));
    if (s->rank == 0 || !net_is_loopback(&own)) return OK;
    void *value;
    TRY(store_get(s, "address/0", timeout, &value, NULL));
    snprintf(address, 64, "%s", (char *)value);
    free(value);
    return OK;
}
