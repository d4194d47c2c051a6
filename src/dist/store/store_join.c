/* Connects to the store, does the handshake, and retries while rank 0 may still be starting. */
#include "dist/store/store_join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/net.h"

#define HANDSHAKE_SECONDS 5.0
#define OLDER_SECONDS 5.0
#define FIRST_WAITING_SECONDS 3.0
#define WAITING_SECONDS 5.0
#define NOT_PROVEN " (this answer is not authenticated)"
/* Retries after a rejection: it may come from a job that is just ending on this port. */
#define REJECTED_SECONDS 3.0

bool store_send_frame(int fd, struct message_session *session, const struct store_frame *frame, double deadline) {
    uint8_t bytes[STORE_HEADER + STORE_MAX_BODY];
    return net_send(fd, bytes, store_frame_write(session, frame, bytes), deadline);
}

bool store_is_tampered(int error) { return error == EPROTO || error == EBADMSG; }

status store_tampered(const char *endpoint) {
    return status_new(STATUS_PEER,
                      "the connection to rank 0 at %s was tampered with or corrupted: a message had a wrong "
                      "authentication code; check what is between the hosts",
                      endpoint);
}

bool store_receive_frame(int fd, struct message_session *session, size_t limit, struct store_frame *frame,
                         uint8_t *body, double deadline) {
    uint8_t header[STORE_HEADER];
    size_t used;
    if (!net_receive(fd, header, sizeof header, deadline)) return false;
    if (store_frame_parse(header, sizeof header, limit, frame, &used) == PARSED_INVALID) {
        errno = EPROTO;
        return false;
    }
    frame->body = body;
    if (!net_receive(fd, body, frame->length, deadline)) return false;
    errno = EBADMSG;
    return store_frame_verify(session, frame);
}

/* The result of one attempt. */
enum outcome { JOINED, TRY_AGAIN, REJECTED, NOT_A_STORE, TAMPERED, OTHER_RESTART_COUNT };

struct attempt {
    const struct store_join *join;
    struct message_handshake shake;
    struct message_session session;
    uint8_t body[STORE_MAX_JOINING];
    char why[STORE_MAX_JOINING + 1]; /* why the last attempt failed, */
    enum status_code code;           /* and the code of that failure */
    uint32_t restart_count;          /* of the store, with OTHER_RESTART_COUNT */
    double older_since; /* time since when a store of an older start has been waiting for ranks; 0: it is not */
};

static void set_why_from_errno(struct attempt *a) {
    if (errno == ETIMEDOUT)
        snprintf(a->why, sizeof a->why, "the connection was accepted but nothing was sent");
    else if (errno == 0)
        snprintf(a->why, sizeof a->why, "the connection was closed");
    else
        snprintf(a->why, sizeof a->why, "%s", strerror(errno));
}

static bool send_frame(struct attempt *a, int fd, enum store_type type, const void *body, size_t size,
                       double deadline) {
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)a->join->rank, .job = a->join->job, .body = body, .length = (uint32_t)size};
    return store_send_frame(fd, &a->session, &frame, deadline);
}

/* A store with a newer start has replaced that of this rank. A store with an older one is usually just ending;
 * but if it continues to wait for its ranks, the job was started again on rank 0's host. */
static enum outcome compare_restart_counts(struct attempt *a, const struct store_frame *frame) {
    uint32_t is_waiting_for_ranks;
    if (!store_parse_restart_count(frame, &a->restart_count, &is_waiting_for_ranks)) return NOT_A_STORE;
    snprintf(a->why, sizeof a->why, "it is of start %u, this rank of start %u", a->restart_count,
             a->join->restart_count);
    if (a->restart_count > a->join->restart_count) return OTHER_RESTART_COUNT;
    double now = clock_seconds();
    if (!is_waiting_for_ranks) a->older_since = 0;
    if (is_waiting_for_ranks && a->older_since == 0) a->older_since = now;
    return a->older_since > 0 && now - a->older_since > OLDER_SECONDS ? OTHER_RESTART_COUNT : TRY_AGAIN;
}

/* A client that does not prove the secret, or has another version of the protocol, is rejected without a tag. */
static enum outcome on_reject(struct attempt *a, const struct store_frame *frame, bool is_proven) {
    store_parse_text(frame->body, frame->length, a->why, sizeof a->why - sizeof NOT_PROVEN);
    if (!is_proven) memcpy(a->why + strlen(a->why), NOT_PROVEN, sizeof NOT_PROVEN);
    return REJECTED;
}

/* Receives the server's next frame, which must be of [type] with [size] bytes, into a->body. */
static enum outcome receive(struct attempt *a, int fd, enum store_type type, size_t size, double deadline) {
    struct message_session none = {0};
    struct store_frame frame;
    bool is_on = a->session.is_on;
    if (!store_receive_frame(fd, &none, sizeof a->body, &frame, a->body, deadline)) {
        set_why_from_errno(a);
        return errno != EPROTO ? TRY_AGAIN : is_on ? TAMPERED : NOT_A_STORE;
    }
    uint32_t length = frame.length;
    bool is_proven = store_frame_verify(&a->session, &frame);
    if (!is_proven) frame.length = length;
    if (frame.type == FRAME_REJECT) return on_reject(a, &frame, is_on && is_proven);
    if (!is_proven) return TAMPERED;
    if (frame.type == FRAME_RESTART_COUNT && is_on) return compare_restart_counts(a, &frame);
    return frame.type == type && frame.length == size ? JOINED : NOT_A_STORE;
}

/* process: host and pid of this rank; FOR_GIVING_UP: also its node and the number of ranks that it expects. Returns the
 * length. */
static size_t describe(const struct attempt *a, char process[STORE_MAX_PROCESS]) {
    const struct store_join *join = a->join;
    char count[64], node[32] = "";
    store_describe_count(join->world_size, join->node_size, count);
    if (join->node_size > 0) snprintf(node, sizeof node, ", node %d", join->rank / join->node_size);
    if (a->shake.purpose == FOR_GIVING_UP)
        snprintf(process, STORE_MAX_PROCESS, "%.60s%s: %s", join->process, node, count);
    else
        snprintf(process, STORE_MAX_PROCESS, "%s", join->process);
    return strlen(process);
}

static enum outcome handshake(struct attempt *a, int fd, double deadline) {
    uint8_t hello[STORE_HELLO];
    char process[STORE_MAX_PROCESS];
    struct store_hello contents = {.nonce = a->shake.client_nonce,
                                   .world = a->shake.world,
                                   .restart_count = a->shake.restart_count,
                                   .purpose = a->shake.purpose};
    store_write_hello(&contents, hello);
    a->session = (struct message_session){0};
    errno = 0;
    if (!send_frame(a, fd, FRAME_HELLO, hello, sizeof hello, deadline)) {
        set_why_from_errno(a);
        return TRY_AGAIN;
    }
    enum outcome outcome = receive(a, fd, FRAME_CHALLENGE, MESSAGE_NONCE, deadline);
    if (outcome != JOINED) return outcome;
    memcpy(a->shake.server_nonce, a->body, MESSAGE_NONCE);
    session_begin(&a->session, a->join->secret, &a->shake, false);
    if (!send_frame(a, fd, FRAME_PROOF, process, describe(a, process), deadline)) {
        set_why_from_errno(a);
        return TRY_AGAIN;
    }
    return receive(a, fd, FRAME_WELCOME, 0, deadline);
}

static enum outcome attempt_once(struct attempt *a, double deadline, int *fd, status *failure) {
    double until = clock_seconds() + HANDSHAKE_SECONDS;
    if (until > deadline) until = deadline;
    bool is_final = false;
    a->code = STATUS_PEER;
    status error = net_connect(a->join->host, a->join->port, until, fd, &is_final);
    if (error && is_final) {
        *failure = error;
        return REJECTED;
    }
    if (error) {
        const char *reason =
            strrchr(status_message(error), ':'); /* without host and port, which the message contains anyway */
        snprintf(a->why, sizeof a->why, "%s", reason ? reason + 2 : status_message(error));
        a->code = status_code(error);
        status_free(error);
        return TRY_AGAIN;
    }
    if (!message_nonce(a->shake.client_nonce)) {
        snprintf(a->why, sizeof a->why, "getrandom failed");
        close(*fd);
        return TRY_AGAIN;
    }
    enum outcome outcome = handshake(a, *fd, until);
    if (outcome != JOINED) close(*fd);
    return outcome;
}

/* Reports that this rank gives up after a rejection, so that no rank waits for it. */
static void report_giving_up(struct attempt *a) {
    struct attempt last = *a;
    status failure = OK;
    int fd;
    last.shake.purpose = FOR_GIVING_UP;
    if (attempt_once(&last, clock_seconds() + HANDSHAKE_SECONDS, &fd, &failure) == JOINED) close(fd);
    status_free(failure);
}

static status rejected(struct attempt *a) {
    const struct store_join *join = a->join;
    if (join->purpose == FOR_RANK) {
        report_giving_up(a);
        launcher_send(MESSAGE_JOINED, 0, -1, ""); /* the launcher need not report it to rank 0 */
    }
    return status_usage("rank 0 at %s:%d rejected rank %d: %s", join->host, join->port, join->rank, a->why);
}

/* Whether the connection of a rank that has joined has ended. */
static bool is_disconnected(const struct store_join *join) {
    struct pollfd joined = {.fd = join->joined_fd, .events = POLLRDHUP};
    return join->joined_fd > 0 && poll(&joined, 1, 0) > 0;
}

/* Waits [seconds]. true, at once: a request to stop. */
static bool wait_for_stop(const struct store_join *join, double seconds) {
    struct pollfd stop = {.fd = join->stop_fd > 0 ? join->stop_fd : -1, .events = POLLIN};
    return poll(&stop, 1, (int)(seconds * 1000) + 1) > 0;
}

/* What is probably wrong if no process listens at a loopback address, which each host takes for itself. */
static const char *loopback_hint(const struct attempt *a) {
    bool is_several_nodes = a->join->node_size < a->join->world_size;
    bool is_refused = strcmp(a->why, strerror(ECONNREFUSED)) == 0;
    if (!is_several_nodes || !is_refused || !net_is_loopback_host(a->join->host)) return "";
    return "; this is a loopback address: if rank 0 runs on another host, set MASTER_ADDR (--master-addr) to a name of "
           "that host, the same on all hosts";
}

static status timed_out(const struct attempt *a, bool is_lost, double seconds) {
    const struct store_join *join = a->join;
    if (is_lost)
        return status_new(STATUS_PEER,
                          "rank 0 at %s:%d left, or the connection to it broke, before all ranks had joined",
                          join->host, join->port);
    return status_new(a->code, "rank 0 did not answer at %s:%d within %.3g s (%s)%s", join->host, join->port, seconds,
                      a->why, loopback_hint(a));
}

/* The failure of an outcome that no further attempt would change; OK: try again. */
static status final_failure(const struct attempt *a, enum outcome outcome, uint32_t *restart_count) {
    const struct store_join *join = a->join;
    char endpoint[320];
    snprintf(endpoint, sizeof endpoint, "%s:%d", join->host, join->port);
    if (outcome == OTHER_RESTART_COUNT) {
        *restart_count = a->restart_count;
        return status_new(STATUS_PEER, "rank 0 at %s rejected rank %d: %s", endpoint, join->rank, a->why);
    }
    if (outcome == NOT_A_STORE)
        return status_new(
            STATUS_USAGE,
            "the program that answers at %s is not rank 0 of this job; is MASTER_PORT in use by another program?",
            endpoint);
    return outcome == TAMPERED ? store_tampered(endpoint) : OK;
}

status store_join(const struct store_join *join, int *fd, struct message_session *session, uint32_t *restart_count) {
    struct attempt a = {.join = join,
                        .shake = {.job = join->job,
                                  .rank = (uint32_t)join->rank,
                                  .world = (uint32_t)join->world_size,
                                  .restart_count = join->restart_count,
                                  .purpose = join->purpose},
                        .why = "no process listens there"};
    double start = clock_seconds(), deadline = join->deadline, rejected_at = 0;
    double pause = 0.01, log_at = start + FIRST_WAITING_SECONDS;
    bool is_lost = join->is_again;
    for (;;) {
        status failure = OK;
        enum outcome outcome = attempt_once(&a, deadline, fd, &failure);
        *session = a.session;
        session_end(&a.session);
        if (outcome == JOINED) return OK;
        *fd = -1;
        if (!failure) failure = final_failure(&a, outcome, restart_count);
        if (failure) return failure;
        double now = clock_seconds();
        if (outcome == REJECTED && rejected_at == 0) rejected_at = now;
        if (outcome != REJECTED) rejected_at = 0;
        bool is_final = now - rejected_at > REJECTED_SECONDS || now + pause > deadline;
        if (outcome == REJECTED && is_final) return rejected(&a);
        if (!is_lost && is_disconnected(join)) {
            is_lost = true;
            if (deadline > now + STORE_LOST_SECONDS) deadline = now + STORE_LOST_SECONDS;
        }
        if (now + pause > deadline) return timed_out(&a, is_lost, now - start);
        if (now >= log_at) {
            log_line(join->log, "waiting for rank 0 at %s:%d (%s)%s", join->host, join->port, a.why, loopback_hint(&a));
            log_at = now + WAITING_SECONDS;
        }
        if (wait_for_stop(join, pause))
            return status_new(STATUS_STOPPED, "%s", join->is_inference ? STOPPED_ON_REQUEST : STOPPED_BEFORE_TRAINING);
        if (pause < 0.2) pause *= 1.5;
    }
}
