/* The frames of the server: handshakes, requests, and pending requests, which cannot be answered yet. A connection has
 * at most one pending request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/net.h"
#include "dist/process/variables.h"
#include "dist/store/store_server_internal.h"

#define SAME_PROGRAM "the same ddptrain must be installed on every node"
#define REASON_SECONDS 1.0 /* to send the reason before a connection is closed */
#define SAME_COUNT "--nproc and --nnodes (WORLD_SIZE) must be the same on every node"

static int rank_of(const struct connection *c) { return (int)c->shake.rank; }

/* Answers a request with an error. */
static void send_error(struct store_server *s, struct connection *c, enum status_code code, const char *why) {
    uint8_t body[4 + STORE_MAX_REPORT];
    size_t length = strnlen(why, STORE_MAX_REPORT - 1);
    store_write_u32(body, code);
    memcpy(body + 4, why, length);
    server_send(s, c, FRAME_ERROR, body, 4 + length);
}

void server_send_failure(struct store_server *s, struct connection *c, int rank) {
    uint8_t body[STORE_JOB_FAILURE + STORE_MAX_REPORT];
    struct text why = {0};
    members_describe(s->members, rank, &why);
    size_t length = why.length < STORE_MAX_REPORT ? why.length : STORE_MAX_REPORT - 1;
    store_write_u32(body, members_code(s->members, rank));
    store_write_u32(body + 4, c->stage == STAGE_REJECTED
                                  ? UINT32_MAX
                                  : (uint32_t)rank); /* not the rank itself: it must get the message */
    store_write_u32(body + 8, members_hung(s->members, rank));
    memcpy(body + STORE_JOB_FAILURE, why.data, length);
    text_free(&why);
    c->has_failure = true;
    server_send(s, c, FRAME_JOB_FAILURE, body, STORE_JOB_FAILURE + length);
}

/* ---- pending requests ---- */

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

static bool try_cause(struct store_server *s, struct connection *c, bool is_timed_out) {
    int rank = members_cause(s->members, clock_seconds());
    if ((rank < 0 || rank == rank_of(c)) && !is_timed_out) return false;
    struct text why = {0};
    if (rank >= 0 && rank != rank_of(c)) members_describe(s->members, rank, &why);
    server_send(s, c, FRAME_VALUE, text_string(&why), why.length);
    text_free(&why);
    return true;
}

void server_try_pending(struct store_server *s, struct connection *c) {
    bool is_timed_out = clock_seconds() >= c->pending_until, is_done = false;
    if (c->pending == FRAME_READY) is_done = try_ready(s, c, is_timed_out);
    if (c->pending == FRAME_GET) is_done = try_get(s, c, is_timed_out);
    if (c->pending == FRAME_CAUSE) is_done = try_cause(s, c, is_timed_out);
    if (is_done) c->pending = 0;
}

static bool set_pending(struct store_server *s, struct connection *c, enum store_type type, uint32_t milliseconds) {
    c->pending = type;
    c->pending_seconds = milliseconds * 1e-3;
    c->pending_until = clock_seconds() + c->pending_seconds;
    server_try_pending(s, c);
    return true;
}

/* ---- joining ---- */

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
    memcpy(c->shake.client_nonce, hello.nonce, STORE_NONCE);
    c->shake.world = hello.world;
    c->shake.restart_count = hello.restart_count;
    c->shake.purpose = hello.purpose;
    c->shake.job = s->job;
    c->shake.rank = frame->rank;
    if (getrandom(c->shake.server_nonce, STORE_NONCE, 0) != STORE_NONCE) return false;
    c->stage = STAGE_PROOF;
    server_send(s, c, FRAME_CHALLENGE, c->shake.server_nonce, STORE_NONCE);
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
}

/* Whether a rank joins again because it did not receive WELCOME: it has no heartbeat connection yet, and is the same
 * process, or its first connection has ended. */
static bool is_rejoining(const struct store_server *s, const struct connection *c, const char *process) {
    int rank = rank_of(c);
    const struct join_state *state = &s->join[rank];
    bool is_same = state->disconnected_at > 0 || strcmp(process, members_process(s->members, rank)) == 0;
    return is_member(c) && !state->has_heartbeat && rank > 0 && is_same;
}

static void close_earlier(struct store_server *s, const struct connection *c) {
    for (size_t i = 0; i < s->count; i++) {
        struct connection *other = s->connections[i];
        if (other == c || other->stage != STAGE_JOINED || !is_member(other) || rank_of(other) != rank_of(c)) continue;
        other->stage = STAGE_REJECTED; /* its end does not count as the end of the rank */
        other->is_closed = true;
    }
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
    else if (!is_heartbeat(c) && state > MEMBER_JOINED && !(is_member(c) && state != MEMBER_LEFT))
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

/* Whether no rank of the node of [rank] has a heartbeat. */
static bool is_first_of_node(const struct store_server *s, int rank) {
    int size = s->node_size > 0 ? s->node_size : 1, first = rank - rank % size;
    for (int r = first; r < first + size && r < s->world_size; r++)
        if (s->join[r].has_heartbeat) return false;
    return true;
}

/* From now on the heartbeat informs the rank of failures, so its launcher needs no report. One message per node: the
 * launcher does not read while it starts ranks, and what does not fit into its channel is lost. */
static void begin_heartbeat(struct store_server *s, const struct connection *c) {
    s->heartbeat_at = 0;
    if (is_first_of_node(s, rank_of(c))) launcher_send(MESSAGE_JOINED, 0, rank_of(c), "");
    s->join[rank_of(c)].has_heartbeat = true;
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
    net_tune(c->fd);
    server_send(s, c, FRAME_WELCOME, NULL, 0);
    if (is_heartbeat(c)) begin_heartbeat(s, c);
    if (!is_member(c)) return is_heartbeat(c) || pass_to_launcher(s, c);
    close_earlier(s, c);
    s->join[rank_of(c)].disconnected_at = 0;
    if (members_state(s->members, rank_of(c)) == MEMBER_ABSENT)
        members_join(s->members, rank_of(c), process, clock_seconds());
    server_set_address(s, c->fd);
    return true;
}

/* ---- requests ---- */

static bool on_set(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    const uint8_t *value;
    size_t size;
    if (!store_parse_set(frame, c->key, &value, &size) || !store_keys_set(s->keys, c->key, value, size)) return false;
    server_send(s, c, FRAME_DONE, NULL, 0);
    return true;
}

static bool on_get(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    uint32_t milliseconds;
    return store_parse_get(frame, &milliseconds, c->key) && set_pending(s, c, FRAME_GET, milliseconds);
}

static bool on_wait(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    uint32_t milliseconds;
    return store_parse_wait(frame, &milliseconds) && set_pending(s, c, frame->type, milliseconds);
}

static bool on_report(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    char text[STORE_MAX_REPORT], reason[STORE_MAX_REPORT + 2];
    uint32_t code;
    if (!store_parse_failure(frame, &code, text) || code > 255) return false;
    snprintf(reason, sizeof reason, ": %s", text);
    members_leave(s->members, rank_of(c), code == STATUS_PEER ? MEMBER_LOST_PEER : MEMBER_FAILED,
                  (enum status_code)code, reason, clock_seconds());
    return true;
}

static bool on_bye(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    (void)frame;
    members_leave(s->members, rank_of(c), MEMBER_LEFT, STATUS_OK, NULL, clock_seconds());
    return true;
}

static bool on_heartbeat(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    struct activity_snapshot reading;
    if (!is_heartbeat(c) || !store_parse_heartbeat(frame, &reading)) return false;
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
    if (!is_heartbeat(c) || !store_parse_rank_exit(frame, &rank, reason) || rank >= (uint32_t)s->world_size)
        return false;
    if (members_state(s->members, (int)rank) == MEMBER_ABSENT) add_unjoined(s, c, (int)rank);
    members_exited(s->members, (int)rank, reason, clock_seconds());
    return true;
}

static const struct {
    enum stage stage;
    bool (*handle)(struct store_server *s, struct connection *c, const struct store_frame *frame);
} handlers[FRAME_TYPES] = {
    [FRAME_HELLO] = {STAGE_HELLO, on_hello},
    [FRAME_PROOF] = {STAGE_PROOF, on_proof},
    [FRAME_READY] = {STAGE_JOINED, on_wait},
    [FRAME_SET] = {STAGE_JOINED, on_set},
    [FRAME_GET] = {STAGE_JOINED, on_get},
    [FRAME_CAUSE] = {STAGE_JOINED, on_wait},
    [FRAME_REPORT] = {STAGE_JOINED, on_report},
    [FRAME_BYE] = {STAGE_JOINED, on_bye},
    [FRAME_HEARTBEAT] = {STAGE_JOINED, on_heartbeat},
    [FRAME_RANK_EXIT] = {STAGE_JOINED, on_rank_exit},
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
            log_line(s->log, "rejected a connection with another secret (is " SECRET_VARIABLE " the same on every "
                             "rank?)");
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
    c->stage = STAGE_REJECTED; /* the next frame is the last */
    c->deadline = clock_seconds() + REASON_SECONDS;
    if (is_heartbeat(c)) {
        server_send_failure(s, c, rank_of(c));
        return true;
    }
    struct text why = {0};
    members_describe(s->members, rank_of(c), &why);
    return send_error_text(s, c, STATUS_PEER, &why);
}

static bool is_expected(const struct connection *c, const struct store_frame *frame) {
    bool is_of_rank = c->stage < STAGE_JOINED || frame->rank == c->shake.rank;
    bool is_second = c->pending && frame->type != FRAME_REPORT && frame->type != FRAME_BYE;
    return is_of_rank && !is_second && handlers[frame->type].handle && handlers[frame->type].stage == c->stage;
}

bool server_handle_frames(struct store_server *s, struct connection *c) {
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
        if (!handlers[frame.type].handle(s, c, &frame)) return false;
        if (c->stage == STAGE_REJECTED) return true;
        memmove(c->in, c->in + used, c->in_size - used);
        c->in_size -= used;
    }
}
