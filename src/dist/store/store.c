/* The client of the store: one connection, one request at a time. Rank 0's own connection is a socket pair to its
 * server thread, so all ranks use the same code. With world_size 1 there is only a table of keys in memory. */
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
#include "dist/store/store_heartbeat.h"
#include "dist/store/store_internal.h"
#include "dist/store/store_join.h"
#include "dist/store/store_keys.h"
#include "dist/store/store_secret.h"
#include "dist/store/store_server.h"

#define ANSWER_SECONDS 30.0 /* for an answer, in addition to the time that the request may wait at the server */
#define FAILURE_SECONDS 1.0 /* for the heartbeat to report why a connection has ended */
#define REPORT_SECONDS 1.0  /* for the heartbeat to report a request to stop */
#define LINK_SECONDS 20.0
#define REPORT_JOIN_SECONDS 60.0 /* rank 0 may still load its data */
#define DESCRIPTORS 24           /* that a rank needs for its store, group, data and checkpoints */
#define STOPPED_SECONDS 3.0      /* as REPORT_JOIN_SECONDS, after a request to stop: the user waits */

struct store {
    int rank, world_size;
    bool is_one_host;
    uint8_t secret[32];
    uint64_t job;
    char endpoint[320]; /* of rank 0 */
    struct activity *activity;
    struct heartbeat *heartbeat; /* NULL: world_size 1 */
    volatile sig_atomic_t *stop_fd;
    int stop; /* the descriptor that *stop_fd is set to while the store is open; -1: none */

    pthread_mutex_t mutex; /* guards what follows */
    int fd;                /* -1: broken, or world_size 1 */
    struct store_session session;
    unsigned agreements;     /* store_agree calls so far: equal on all ranks */
    uint8_t *body;           /* (STORE_MAX_BODY): of requests and answers */
    struct store_keys *keys; /* world_size 1 */

    struct store_server *server; /* rank 0 */
};

/* ---- requests ---- */

/* Closes the connection after an error, errno. */
static status disconnect(struct store *s) {
    char reason[128] = "";
    int error = errno;
    if (error) snprintf(reason, sizeof reason, ": %s", strerror(error));
    shutdown(s->fd, SHUT_RDWR); /* the heartbeat has a duplicate of the descriptor */
    close(s->fd);
    s->fd = -1;
    if (store_is_tampered(error)) return store_tampered(s->endpoint);
    return status_new(STATUS_PEER, "rank 0 at %s left, or the connection to it broke%s", s->endpoint, reason);
}

/* Waits until the heartbeat has a failure of the job and adds its message to [out]. false: timeout. */
static bool wait_for_failure(struct store *s, struct text *out) {
    for (double end = clock_seconds() + FAILURE_SECONDS; clock_seconds() < end; clock_sleep(0.01))
        if (heartbeat_failure(s->heartbeat, out) != STATUS_OK) return true;
    return false;
}

/* Replaces [failure], the end of the connection to rank 0, by the failure that the heartbeat has received, if any. A
 * request to stop ends a job in the same way. Consumes [failure]. */
static status explain_loss(struct store *s, status failure) {
    struct text why = {0};
    if (!wait_for_failure(s, &why)) return failure;
    bool is_stopped = heartbeat_failure(s->heartbeat, NULL) == STATUS_STOPPED;
    const char *own = is_stopped ? STOPPED_BEFORE_TRAINING : status_message(failure);
    status explained = status_new(is_stopped ? STATUS_STOPPED : STATUS_PEER, "%s", why.length > 0 ? why.data : own);
    text_free(&why);
    status_free(failure);
    return explained;
}

static status disconnected(const struct store *s) {
    return status_new(STATUS_PEER, "the connection to rank 0 at %s is lost", s->endpoint);
}

/* Sends s->body (size) and receives the answer into s->body. The mutex is locked. */
static status exchange(struct store *s, enum store_type type, size_t size, double timeout, struct store_frame *reply) {
    if (s->fd < 0) return disconnected(s);
    double deadline = clock_seconds() + timeout + ANSWER_SECONDS;
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)s->rank, .job = s->job, .body = s->body, .length = (uint32_t)size};
    if (!store_send_frame(s->fd, &s->session, &frame, deadline) ||
        !store_receive_frame(s->fd, &s->session, STORE_MAX_BODY, reply, s->body, deadline))
        return disconnect(s);
    if (reply->type != FRAME_ERROR) return OK;
    char text[STORE_MAX_REPORT];
    uint32_t code;
    if (!store_parse_failure(reply, &code, text)) return status_new(STATUS_BUG, "malformed answer from the store");
    bool keeps_code = code == STATUS_STOPPED || code == STATUS_USAGE || code == STATUS_DATA;
    return status_new(keeps_code ? (enum status_code)code : STATUS_PEER, "%s", text);
}

static status request(struct store *s, enum store_type type, size_t size, double timeout, struct store_frame *reply) {
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
    return request(s, FRAME_READY, 4, timeout, &reply);
}

static void report(struct store *s, status failure);

/* ---- opening ---- */

static void describe_process(char process[STORE_MAX_PROCESS]) {
    char host[128];
    host_name(host, sizeof host);
    snprintf(process, STORE_MAX_PROCESS, "host %s, pid %ld", host, (long)getpid());
}

static bool make_pair(int ends[2]) {
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0;
}

/* hint: what is wrong if MASTER_ADDR is not an address of rank 0's host, where the others try to connect; else "". A
 * name may be a loopback address here (Debian's 127.0.1.1) and another one for other hosts. */
static void describe_wrong_host(const struct dist_env *env, char hint[400]) {
    char host[128];
    *hint = 0;
    if (env->local_world_size == env->world_size) return;
    host_name(host, sizeof host);
    if (net_is_loopback_host(env->master_addr))
        snprintf(hint, 400,
                 "; for ranks of another host set MASTER_ADDR (--master-addr) to an address of host %.60s on the "
                 "network: %.100s is a loopback address",
                 host, env->master_addr);
    if (net_is_this_host(env->master_addr)) return;
    snprintf(
        hint, 400,
        "; rank 0 runs on host %.60s, which does not have the address %.100s of MASTER_ADDR: start rank 0 there, or "
        "change MASTER_ADDR",
        host, env->master_addr);
}

static status serve(struct store *s, const struct dist_env *env, const struct store_options *options,
                    const char *process, int *heartbeat_fd) {
    int listener, ends[2], heartbeat_ends[2];
    char hint[400];
    TRY(store_listener_find(env, &listener));
    bool has_ends = make_pair(ends);
    if (!has_ends || !make_pair(heartbeat_ends)) {
        int error = errno;
        if (has_ends) close(ends[0]);
        if (has_ends) close(ends[1]);
        close(listener);
        return status_errno(STATUS_IO, error, "cannot start the store");
    }
    describe_wrong_host(env, hint);
    s->fd = ends[0];
    *heartbeat_fd = heartbeat_ends[0];
    struct store_server_config config = {.listener = listener,
                                         .local = ends[1],
                                         .local_heartbeat = heartbeat_ends[1],
                                         .world_size = s->world_size,
                                         .node_size = env->local_world_size,
                                         .informed = options->informed,
                                         .restart_count = (uint32_t)env->restart_count,
                                         .limits = {.hang = options->hang, .slow = options->timeout},
                                         .job = s->job,
                                         .secret = s->secret,
                                         .is_guessable = store_secret_is_guessable(env),
                                         .log = options->log,
                                         .hint = hint,
                                         .endpoint = s->endpoint,
                                         .process = process};
    return store_server_start(&config, &s->server);
}

/* The options of this rank's connections, which differ in their purpose. */
static struct store_join join_options(const struct store *s, const struct dist_env *env,
                                      const struct store_options *options, const char *process, double deadline) {
    return (struct store_join){.host = env->master_addr,
                               .port = env->master_port,
                               .rank = s->rank,
                               .world_size = s->world_size,
                               .node_size = env->local_world_size,
                               .job = s->job,
                               .secret = s->secret,
                               .process = process,
                               .restart_count = (uint32_t)env->restart_count,
                               .stop_fd = s->stop > 0 ? s->stop : 0,
                               .log = env->local_rank == 0 ? options->log : NULL,
                               .is_inference = options->is_inference,
                               .deadline = deadline};
}

/* Connects the launchers of this node and of node 0. A failure is not fatal: this node's launcher then gets fewer
 * reports. So the timeout is short. The heartbeat runs meanwhile. */
static void link_launchers(const struct store *s, struct store_join join) {
    double latest = clock_seconds() + LINK_SECONDS;
    struct store_session session;
    int fd;
    join.purpose = FOR_LINK;
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

/* Joins and opens the heartbeat connection. If the store rejects that, it is no longer the store that this rank has
 * joined: rank 0 has ended, and its launcher, which now serves a store to report that, sends the reason to a rank that
 * joins again. */
static status join(struct store *s, const struct store_join *base, int *heartbeat_fd,
                   struct store_session *heartbeat_session) {
    uint32_t restart_count = base->restart_count;
    struct store_join first = *base;
    status failure = store_join(&first, &s->fd, &s->session, &restart_count);
    while (!failure) {
        launcher_send(MESSAGE_JOINED, 0, s->rank, ""); /* the store now detects the end of this rank */
        struct store_join second = first;
        second.purpose = FOR_HEARTBEAT;
        second.joined_fd = s->fd;
        failure = store_join(&second, heartbeat_fd, heartbeat_session, &restart_count);
        if (status_code(failure) != STATUS_USAGE) break;
        status_free(failure);
        close(s->fd);
        double latest = clock_seconds() + STORE_LOST_SECONDS;
        if (first.deadline > latest) first.deadline = latest;
        failure = store_join(&first, &s->fd, &s->session, &restart_count);
    }
    if (restart_count != base->restart_count) launcher_send(MESSAGE_RESTART_COUNT, 0, restart_count, "");
    return failure;
}

/* From here on requests to stop are handled: by store_join while it retries, then by the heartbeat. */
static status open_stop_event(struct store *s, const struct store_options *options) {
    if (!options->stop_fd && options->stop <= 0) return OK;
    s->stop = options->stop > 0 ? fcntl(options->stop, F_DUPFD_CLOEXEC, 0) : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop < 0) return status_errno(STATUS_IO, errno, "cannot open the store");
    if (!options->stop_fd) return OK;
    s->stop_fd = options->stop_fd;
    *s->stop_fd = s->stop;
    return OK;
}

/* Without them a later call would fail with an unclear error or wait. Rank 0 has two connections to each rank. */
static status check_descriptors(const struct dist_env *env) {
    int hosts = env->local_world_size > 0 ? env->world_size / env->local_world_size : 1;
    int connections = 4 * (hosts - 1) + (env->rank == 0 ? 2 * (env->world_size - 1) : 0);
    return net_check_descriptors(DESCRIPTORS + connections);
}

static status open_network(struct store *s, const struct dist_env *env, const struct store_options *options) {
    double deadline = clock_seconds() + options->timeout;
    char process[STORE_MAX_PROCESS];
    struct store_session session = {0}; /* not used on rank 0, whose connections are socket pairs in this process */
    int heartbeat_fd = -1;
    describe_process(process);
    TRY(store_secret_find(env, s->secret));
    if (!options->failure) TRY(check_descriptors(env));
    TRY(open_stop_event(s, options));
    struct store_join base = join_options(s, env, options, process, deadline);
    status failure =
        s->rank == 0 ? serve(s, env, options, process, &heartbeat_fd) : join(s, &base, &heartbeat_fd, &session);
    if (failure) {
        if (heartbeat_fd >= 0) close(heartbeat_fd);
        session_end(&session);
        return failure;
    }
    struct heartbeat_config config = {.fd = heartbeat_fd,
                                      .session = session,
                                      .requests = fcntl(s->fd, F_DUPFD_CLOEXEC, 0),
                                      .stop = s->stop,
                                      .rank = s->rank,
                                      .job = s->job,
                                      .activity = s->activity,
                                      .endpoint = s->endpoint,
                                      .is_inference = options->is_inference,
                                      .overdue = options->overdue};
    failure = heartbeat_start(&config, &s->heartbeat);
    session_end(&session);
    session_end(&config.session);
    if (failure) return failure;
    if (options->failure && s->rank > 0) return OK; /* it only reports */
    if (launcher_needs_link()) link_launchers(s, base);
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
                        .activity = activity_map(launcher_activity_fd()),
                        .body = malloc(STORE_MAX_BODY + 1),
                        .keys = store_keys_create()};
    pthread_mutex_init(&s->mutex, NULL);
    snprintf(s->endpoint, sizeof s->endpoint, "%s:%d", env->master_addr, env->master_port);
    if (!s->activity) s->activity = activity_create();
    bool has_memory = s->body && s->keys && s->activity;
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
    log_line(log, "%s; reporting it to the other nodes", status_message(failure));
    status not_opened = store_open_with(env, &options, &s);
    if (!not_opened) report(s, failure);
    if (!not_opened) store_close(s);
    status_free(not_opened);
    /* on rank 0's node only rank 0 knows which ranks have joined */
    bool is_on_node_of_rank_0 = env->rank > 0 && env->rank < env->local_world_size;
    if (!is_on_node_of_rank_0) launcher_send(MESSAGE_JOINED, 0, -1, "");
}

/* Sends a frame that has no answer; does nothing without a connection. The mutex is locked. */
static void send_only(struct store *s, enum store_type type, size_t size) {
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)s->rank, .job = s->job, .body = s->body, .length = (uint32_t)size};
    if (s->fd >= 0 && !store_send_frame(s->fd, &s->session, &frame, clock_seconds() + 1)) status_free(disconnect(s));
}

/* Reports a request to stop, which the heartbeat has reported on its own connection: without it, the BYE of this
 * connection could arrive first, and the others would wait for a rank that seems to have finished. */
static void report_stop(struct store *s) {
    struct pollfd stop = {.fd = s->stop, .events = POLLIN};
    if (!s->heartbeat || s->stop < 0 || poll(&stop, 1, 0) <= 0) return;
    status reason = heartbeat_leave_reason(s->heartbeat, REPORT_SECONDS);
    report(s, reason);
    status_free(reason);
}

void store_close(struct store *s) {
    if (!s) return;
    report_stop(s);
    send_only(s, FRAME_BYE, 0);
    if (s->rank == 0) store_server_stop(s->server); /* also sends BYE to the heartbeat of rank 0 */
    if (s->stop_fd)
        *s->stop_fd = -1; /* until here: otherwise a request would end rank 0 before the server has stopped */
    heartbeat_stop(s->heartbeat);
    if (s->fd >= 0) close(s->fd);
    if (s->stop >= 0) close(s->stop);
    store_keys_destroy(s->keys);
    activity_destroy(s->activity);
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
    return request(s, FRAME_SET, 1 + length + size, 0, &reply);
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
                     : status_new(STATUS_PEER, "no rank has set '%s', and there is no other rank", key);
    }
    size_t length = strlen(key);
    struct store_frame reply;
    store_write_u32(s->body, to_milliseconds(timeout));
    memcpy(s->body + 4, key, length);
    TRY(request(s, FRAME_GET, 4 + length, timeout, &reply));
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
    send_only(s, FRAME_REPORT, 4 + length);
    pthread_mutex_unlock(&s->mutex);
}

/* After training has begun all ranks stop together, so STATUS_STOPPED is not the failure of a rank. */
void store_report(struct store *s, status failure) {
    if (status_code(failure) != STATUS_STOPPED) report(s, failure);
}

bool store_cause(struct store *s, double timeout, struct text *out) {
    if (s->world_size == 1) return false;
    size_t length_before = out->length;
    if (heartbeat_failure(s->heartbeat, out) != STATUS_OK && out->length > length_before) return true;
    pthread_mutex_lock(&s->mutex);
    struct store_frame reply;
    store_write_u32(s->body, to_milliseconds(timeout));
    status failure = exchange(s, FRAME_CAUSE, 4, timeout, &reply);
    bool is_known = true, has_message = failure && wait_for_failure(s, out);
    if (failure && (!has_message || out->length == length_before))
        text_add(out, status_message(failure));
    else if (!failure && reply.length > 0)
        text_add_bytes(out, (const char *)reply.body, reply.length);
    else if (!failure)
        is_known = false;
    if (!failure && is_known)
        wait_for_failure(s, NULL); /* for store_failure_code: the heartbeat gets it on its own connection */
    pthread_mutex_unlock(&s->mutex);
    status_free(failure);
    return is_known;
}

struct activity *store_activity(struct store *s) {
    return s->activity;
}

status store_on_failure(struct store *s, void (*handler)(void *data), void *data) {
    return s->heartbeat ? heartbeat_on_failure(s->heartbeat, handler, data) : OK;
}

void store_off_failure(struct store *s, void *data) {
    if (s->heartbeat) heartbeat_off_failure(s->heartbeat, data);
}

enum status_code store_failure_code(struct store *s) {
    bool is_stopped = s->heartbeat && heartbeat_failure(s->heartbeat, NULL) == STATUS_STOPPED;
    return is_stopped ? STATUS_STOPPED : STATUS_PEER;
}

void store_sign(const struct store *s, const void *message, size_t size, uint8_t proof[32]) {
    store_hmac(s->secret, message, size, proof);
}

/* ---- addresses ---- */

static status local_address(struct store *s, struct sockaddr_storage *address) {
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
    TRY(local_address(s, &own));
    if (!net_is_loopback(&own)) net_address_text(&own, address);
    if (s->is_one_host) return OK;
    /* A rank on rank 0's host may have connected over loopback: it uses the address of rank 0. */
    if (s->rank == 0) TRY(store_set(s, "address/0", address, strlen(address)));
    if (s->rank == 0 || !net_is_loopback(&own)) return OK;
    void *value;
    TRY(store_get(s, "address/0", timeout, &value, NULL));
    snprintf(address, 64, "%s", (char *)value);
    free(value);
    return OK;
}
