/* A client's way into the store: connect, prove, be welcomed; again and again while rank 0 may still be starting. */
#include "dist/store/store_join.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/net.h"

#define HANDSHAKE_SECONDS 5.0
#define OLDER_SECONDS 5.0
#define FIRST_WAITING_SECONDS 3.0
#define WAITING_SECONDS 5.0
#define NOT_PROVEN " (this answer is not authenticated)"
#define REFUSED_SECONDS 3.0 /* for so long a refusal may come from a job that is just ending on this port */

bool store_send_frame(int fd, struct store_session *session, const struct store_frame *frame, double deadline) {
    uint8_t bytes[STORE_HEADER + STORE_MAX_BODY];
    return net_send(fd, bytes, store_frame_write(session, frame, bytes), deadline);
}

bool store_is_tampered(int error) { return error == EPROTO || error == EBADMSG; }

status store_tampered(const char *place) {
    return status_new(STATUS_PEER,
                      "the connection to rank 0 at %s was tampered with or corrupted: a message had a wrong "
                      "authentication code; check what is between the hosts",
                      place);
}

bool store_receive_frame(int fd, struct store_session *session, size_t limit, struct store_frame *frame, uint8_t *body,
                         double deadline) {
    uint8_t header[STORE_HEADER];
    size_t used;
    if (!net_receive(fd, header, sizeof header, deadline)) return false;
    if (store_frame_parse(header, sizeof header, limit, frame, &used) == PARSED_BAD) {
        errno = EPROTO;
        return false;
    }
    frame->body = body;
    if (!net_receive(fd, body, frame->length, deadline)) return false;
    errno = EBADMSG;
    return store_frame_verify(session, frame);
}

/* How one attempt ended. */
enum outcome { IS_WELCOME, TRY_AGAIN, IS_REFUSED, IS_STRANGE, IS_TAMPERED, IS_OTHER };

struct attempt {
    const struct store_join *join;
    struct store_handshake shake;
    struct store_session session;
    uint8_t body[STORE_MAX_JOINING];
    char why[STORE_MAX_JOINING + 1]; /* the last attempt's reason, */
    enum status_code code;           /* and what it means when there is no other attempt */
    uint32_t incarnation;            /* the store's, with IS_OTHER */
    double older_since;              /* since when the store is of an older incarnation and waits; 0: it is not */
};

static void because_of_errno(struct attempt *a) {
    if (errno == ETIMEDOUT)
        snprintf(a->why, sizeof a->why, "something accepts the connection but sends nothing");
    else if (errno == 0)
        snprintf(a->why, sizeof a->why, "the connection was closed");
    else
        snprintf(a->why, sizeof a->why, "%s", strerror(errno));
}

static bool say(struct attempt *a, int fd, enum store_type type, const void *body, size_t size, double deadline) {
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)a->join->rank, .job = a->join->job, .body = body, .length = (uint32_t)size};
    return store_send_frame(fd, &a->session, &frame, deadline);
}

/* A newer one has replaced this rank. An older one is usually just ending; but one that goes on waiting for its ranks
 * was started anew on rank 0's host. */
static enum outcome compare_incarnations(struct attempt *a, const struct store_frame *frame) {
    uint32_t is_gathering;
    if (!store_parse_other(frame, &a->incarnation, &is_gathering)) return IS_STRANGE;
    snprintf(a->why, sizeof a->why, "it is of start %u, this rank of start %u", a->incarnation, a->join->incarnation);
    if (a->incarnation > a->join->incarnation) return IS_OTHER;
    double now = clock_seconds();
    if (!is_gathering) a->older_since = 0;
    if (is_gathering && a->older_since == 0) a->older_since = now;
    return a->older_since > 0 && now - a->older_since > OLDER_SECONDS ? IS_OTHER : TRY_AGAIN;
}

/* Whoever cannot prove the secret, or speaks another version, is refused without a tag. */
static enum outcome hear_refusal(struct attempt *a, const struct store_frame *frame, bool is_proven) {
    store_parse_text(frame->body, frame->length, a->why, sizeof a->why - sizeof NOT_PROVEN);
    if (!is_proven) memcpy(a->why + strlen(a->why), NOT_PROVEN, sizeof NOT_PROVEN);
    return IS_REFUSED;
}

/* The server's next frame, which should be of [type] with [size] bytes in a->body. */
static enum outcome hear(struct attempt *a, int fd, enum store_type type, size_t size, double deadline) {
    struct store_session none = {0};
    struct store_frame frame;
    bool is_on = a->session.is_on;
    if (!store_receive_frame(fd, &none, sizeof a->body, &frame, a->body, deadline)) {
        because_of_errno(a);
        return errno != EPROTO ? TRY_AGAIN : is_on ? IS_TAMPERED : IS_STRANGE;
    }
    uint32_t length = frame.length;
    bool is_proven = store_frame_verify(&a->session, &frame);
    if (!is_proven) frame.length = length;
    if (frame.type == FRAME_REFUSE) return hear_refusal(a, &frame, is_on && is_proven);
    if (!is_proven) return IS_TAMPERED;
    if (frame.type == FRAME_OTHER && is_on) return compare_incarnations(a, &frame);
    return frame.type == type && frame.length == size ? IS_WELCOME : IS_STRANGE;
}

/* Who is asking; at parting also how many it counts, and where. Returns the length. */
static size_t describe(const struct attempt *a, char who[STORE_MAX_WHO]) {
    const struct store_join *join = a->join;
    char count[64], node[32] = "";
    store_describe_count(join->world_size, join->node_size, count);
    if (join->node_size > 0) snprintf(node, sizeof node, ", node %d", join->rank / join->node_size);
    if (a->shake.purpose == FOR_PARTING)
        snprintf(who, STORE_MAX_WHO, "%.60s%s: %s", join->who, node, count);
    else
        snprintf(who, STORE_MAX_WHO, "%s", join->who);
    return strlen(who);
}

static enum outcome shake_hands(struct attempt *a, int fd, double deadline) {
    uint8_t hello[STORE_HELLO];
    char who[STORE_MAX_WHO];
    struct store_hello words = {.nonce = a->shake.client_nonce,
                                .world = a->shake.world,
                                .incarnation = a->shake.incarnation,
                                .purpose = a->shake.purpose};
    store_write_hello(&words, hello);
    a->session = (struct store_session){0};
    errno = 0;
    if (!say(a, fd, FRAME_HELLO, hello, sizeof hello, deadline)) {
        because_of_errno(a);
        return TRY_AGAIN;
    }
    enum outcome outcome = hear(a, fd, FRAME_CHALLENGE, STORE_NONCE, deadline);
    if (outcome != IS_WELCOME) return outcome;
    memcpy(a->shake.server_nonce, a->body, STORE_NONCE);
    session_begin(&a->session, a->join->secret, &a->shake, false);
    if (!say(a, fd, FRAME_PROOF, who, describe(a, who), deadline)) {
        because_of_errno(a);
        return TRY_AGAIN;
    }
    return hear(a, fd, FRAME_WELCOME, 0, deadline);
}

static enum outcome attempt_once(struct attempt *a, double deadline, int *fd, status *failure) {
    double until = clock_seconds() + HANDSHAKE_SECONDS;
    if (until > deadline) until = deadline;
    bool is_final = false;
    a->code = STATUS_PEER;
    status problem = net_connect(a->join->host, a->join->port, until, fd, &is_final);
    if (problem && is_final) {
        *failure = problem;
        return IS_REFUSED;
    }
    if (problem) {
        const char *reason = strrchr(status_message(problem), ':'); /* the place is said anyway */
        snprintf(a->why, sizeof a->why, "%s", reason ? reason + 2 : status_message(problem));
        a->code = status_code(problem);
        status_free(problem);
        return TRY_AGAIN;
    }
    if (getrandom(a->shake.client_nonce, STORE_NONCE, 0) != STORE_NONCE) {
        snprintf(a->why, sizeof a->why, "no random numbers");
        close(*fd);
        return TRY_AGAIN;
    }
    enum outcome outcome = shake_hands(a, *fd, until);
    if (outcome != IS_WELCOME) close(*fd);
    return outcome;
}

/* The refused rank's last word: whoever counts on it need not wait. */
static void part(struct attempt *a) {
    struct attempt last = *a;
    status failure = OK;
    int fd;
    last.shake.purpose = FOR_PARTING;
    if (attempt_once(&last, clock_seconds() + HANDSHAKE_SECONDS, &fd, &failure) == IS_WELCOME) close(fd);
    status_free(failure);
}

static status refused(struct attempt *a) {
    const struct store_join *join = a->join;
    if (join->purpose == FOR_REQUESTS) {
        part(a);
        launcher_send(MESSAGE_JOINED, 0, -1, ""); /* rank 0 knows; the launcher has nothing to report */
    }
    return status_new(STATUS_USAGE, "rank 0 at %s:%d refused rank %d: %s", join->host, join->port, join->rank, a->why);
}

/* Nobody sends on the connection of a rank that asks nothing: what can be read is its end. */
static bool has_gone(const struct store_join *join) {
    struct pollfd joined = {.fd = join->joined_fd, .events = POLLIN};
    return join->joined_fd > 0 && poll(&joined, 1, 0) > 0;
}

/* Waits for [seconds] or until then. */
static bool is_asked_to_stop(const struct store_join *join, double seconds) {
    bool is_heard = join->stop_fd > 0 && (join->purpose != FOR_WATCHING || has_gone(join));
    struct pollfd stop = {.fd = is_heard ? join->stop_fd : -1, .events = POLLIN};
    return poll(&stop, 1, (int)(seconds * 1000) + 1) > 0;
}

static status too_late(const struct attempt *a, bool is_gone, double seconds) {
    const struct store_join *join = a->join;
    if (is_gone)
        return status_new(STATUS_PEER,
                          "rank 0 at %s:%d left, or the connection to it broke, before all ranks had joined",
                          join->host, join->port);
    return status_new(a->code, "rank 0 did not answer at %s:%d within %.3g s (%s)", join->host, join->port, seconds,
                      a->why);
}

/* What an outcome that no other attempt would change means; OK: another may. */
static status final_failure(const struct attempt *a, enum outcome outcome, uint32_t *incarnation) {
    const struct store_join *join = a->join;
    char place[320];
    snprintf(place, sizeof place, "%s:%d", join->host, join->port);
    if (outcome == IS_OTHER) {
        *incarnation = a->incarnation;
        return status_new(STATUS_PEER, "rank 0 at %s refused rank %d: %s", place, join->rank, a->why);
    }
    if (outcome == IS_STRANGE)
        return status_new(STATUS_USAGE,
                          "what answers at %s is not rank 0 of this job; is MASTER_PORT in use by another program?",
                          place);
    return outcome == IS_TAMPERED ? store_tampered(place) : OK;
}

status store_join(const struct store_join *join, int *fd, struct store_session *session, uint32_t *incarnation) {
    struct attempt a = {.join = join,
                        .shake = {.job = join->job,
                                  .rank = (uint32_t)join->rank,
                                  .world = (uint32_t)join->world_size,
                                  .incarnation = join->incarnation,
                                  .purpose = join->purpose},
                        .why = "nothing listens there"};
    double start = clock_seconds(), deadline = join->deadline, refused_at = 0;
    double pause = 0.01, say_at = start + FIRST_WAITING_SECONDS;
    bool is_gone = false;
    for (;;) {
        status failure = OK;
        enum outcome outcome = attempt_once(&a, deadline, fd, &failure);
        *session = a.session;
        session_end(&a.session);
        if (outcome == IS_WELCOME) return OK;
        *fd = -1;
        if (!failure) failure = final_failure(&a, outcome, incarnation);
        if (failure) return failure;
        double now = clock_seconds();
        if (outcome == IS_REFUSED && refused_at == 0) refused_at = now;
        if (outcome != IS_REFUSED) refused_at = 0;
        bool is_final = join->purpose == FOR_WATCHING || now - refused_at > REFUSED_SECONDS || now + pause > deadline;
        if (outcome == IS_REFUSED && is_final) return refused(&a);
        if (!is_gone && has_gone(join)) {
            is_gone = true;
            if (deadline > now + STORE_GONE_SECONDS) deadline = now + STORE_GONE_SECONDS;
        }
        if (now + pause > deadline) return too_late(&a, is_gone, now - start);
        if (now >= say_at) {
            log_line(join->log, "waiting for rank 0 at %s:%d (%s)", join->host, join->port, a.why);
            say_at = now + WAITING_SECONDS;
        }
        if (is_asked_to_stop(join, pause))
            return status_new(STATUS_STOPPED, "stopped on request%s",
                              join->trains_nothing ? "" : " before training began; there was nothing to save");
        if (pause < 0.2) pause *= 1.5;
    }
}
