/* What the server says: handshakes, requests, and requests that must wait. A rank whose request cannot be answered yet
 * is parked; there is at most one such request per connection. */
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
#define REASON_SECONDS 1.0
#define SAME_COUNT "--nproc and --nnodes (WORLD_SIZE) must be the same on every node"

static int rank_of(const struct connection *c) { return (int)c->shake.rank; }

/* A failure as the answer to a request. */
static void fail(struct store_server *s, struct connection *c, enum status_code code, const char *why) {
    uint8_t body[4 + STORE_MAX_REPORT];
    size_t length = strnlen(why, STORE_MAX_REPORT - 1);
    store_write_u32(body, code);
    memcpy(body + 4, why, length);
    server_answer(s, c, FRAME_FAIL, body, 4 + length);
}

void server_tell_news(struct store_server *s, struct connection *c, int rank) {
    uint8_t body[STORE_NEWS + STORE_MAX_REPORT];
    struct text why = {0};
    members_describe(s->members, rank, &why);
    size_t length = why.length < STORE_MAX_REPORT ? why.length : STORE_MAX_REPORT - 1;
    store_write_u32(body, members_code(s->members, rank));
    store_write_u32(body + 4, c->stage == IS_REFUSED ? UINT32_MAX : (uint32_t)rank); /* its own, which it must learn */
    store_write_u32(body + 8, members_stood_still(s->members, rank));
    memcpy(body + STORE_NEWS, why.data, length);
    text_free(&why);
    c->has_news = true;
    server_answer(s, c, FRAME_NEWS, body, STORE_NEWS + length);
}

/* ---- requests that wait ---- */

/* It would come again at another start, so none is to be made by another node either. */
static bool is_no_accident(enum status_code code) { return code == STATUS_USAGE || code == STATUS_DATA; }

/* The failure that ends the wait, when there is one: *code and *why are filled. */
static bool is_lost(struct store_server *s, const struct connection *c, enum status_code *code, struct text *why) {
    int rank = members_cause(s->members, clock_seconds());
    *code = STATUS_PEER;
    if (rank < 0 && *s->misfit) {
        *code = STATUS_USAGE;
        text_add(why, s->misfit);
        return true;
    }
    if (rank < 0) return false;
    enum status_code cause = members_code(s->members, rank);
    bool is_far = s->node_size > 0 && rank / s->node_size != rank_of(c) / s->node_size;
    if (cause == STATUS_STOPPED || (is_far && is_no_accident(cause))) *code = cause;
    members_describe(s->members, rank, why);
    return true;
}

/* Answers with [why] unless it is empty; whether it did. Frees it. */
static bool fail_with(struct store_server *s, struct connection *c, enum status_code code, struct text *why) {
    bool is_done = why->length > 0;
    if (is_done) fail(s, c, code, why->data);
    text_free(why);
    return is_done;
}

static bool try_ready(struct store_server *s, struct connection *c, bool is_late) {
    if (members_joined(s->members) == s->world_size) {
        server_answer(s, c, FRAME_DONE, NULL, 0);
        return true;
    }
    struct text why = {0};
    enum status_code code;
    if (!is_lost(s, c, &code, &why) && is_late) {
        members_missing(s->members, &why);
        text_printf(&why, " of %d did not join rank 0 at %s within %g s%s", s->world_size, s->place, c->waited_seconds,
                    s->hint);
    }
    return fail_with(s, c, code, &why);
}

static bool try_get(struct store_server *s, struct connection *c, bool is_late) {
    size_t size;
    const uint8_t *value = store_keys_get(s->keys, c->key, &size);
    if (value) {
        server_answer(s, c, FRAME_VALUE, value, size);
        return true;
    }
    struct text why = {0};
    enum status_code code;
    bool has_all_joined = members_joined(s->members) == s->world_size;
    if (!is_lost(s, c, &code, &why) && has_all_joined && members_is_alone(s->members, rank_of(c)))
        text_printf(&why, "every other rank has left before '%s' was set", c->key);
    else if (!why.length && is_late)
        text_printf(&why, "no rank has set '%s' within %g s", c->key, c->waited_seconds);
    return fail_with(s, c, code, &why);
}

static bool try_cause(struct store_server *s, struct connection *c, bool is_late) {
    int rank = members_cause(s->members, clock_seconds());
    if ((rank < 0 || rank == rank_of(c)) && !is_late) return false;
    struct text why = {0};
    if (rank >= 0 && rank != rank_of(c)) members_describe(s->members, rank, &why);
    server_answer(s, c, FRAME_VALUE, text_string(&why), why.length);
    text_free(&why);
    return true;
}

void server_try_waiting(struct store_server *s, struct connection *c) {
    bool is_late = clock_seconds() >= c->waits_until, is_done = false;
    if (c->waits == FRAME_READY) is_done = try_ready(s, c, is_late);
    if (c->waits == FRAME_GET) is_done = try_get(s, c, is_late);
    if (c->waits == FRAME_CAUSE) is_done = try_cause(s, c, is_late);
    if (is_done) c->waits = 0;
}

static bool park(struct store_server *s, struct connection *c, enum store_type type, uint32_t milliseconds) {
    c->waits = type;
    c->waited_seconds = milliseconds * 1e-3;
    c->waits_until = clock_seconds() + c->waited_seconds;
    server_try_waiting(s, c);
    return true;
}

/* ---- joining ---- */

static void refuse(struct store_server *s, struct connection *c, const char *why) {
    server_refuse(s, c, FRAME_REFUSE, why, strlen(why));
}

/* A rank that was started before the others, or after them, learns which incarnation is here. */
static void refuse_incarnation(struct store_server *s, struct connection *c) {
    uint8_t body[8];
    bool is_gathering = members_joined(s->members) < s->world_size && members_cause(s->members, clock_seconds()) < 0;
    store_write_u32(body, s->incarnation);
    store_write_u32(body + 4, is_gathering);
    server_refuse(s, c, FRAME_OTHER, body, sizeof body);
}

static bool on_hello(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    struct store_hello hello;
    if (!store_parse_hello(frame, &hello)) return false;
    if (frame->job != s->job) {
        refuse(s, c, "it belongs to another job");
        return true;
    }
    memcpy(c->shake.client_nonce, hello.nonce, STORE_NONCE);
    c->shake.world = hello.world;
    c->shake.incarnation = hello.incarnation;
    c->shake.purpose = hello.purpose;
    c->shake.job = s->job;
    c->shake.rank = frame->rank;
    if (getrandom(c->shake.server_nonce, STORE_NONCE, 0) != STORE_NONCE) return false;
    c->stage = AWAITS_PROOF;
    server_answer(s, c, FRAME_CHALLENGE, c->shake.server_nonce, STORE_NONCE);
    session_begin(&c->session, s->secret, &c->shake, true);
    return true;
}

/* A rank of this job that was started for another number of ranks gives up. It ends the wait of those who are here, but
 * not a job that has begun. [who]: its own words. */
static void part(struct store_server *s, const struct connection *c, const char *who) {
    char count[64];
    if (members_joined(s->members) == s->world_size || *s->misfit) return;
    store_describe_count(s->world_size, s->node_size, count);
    snprintf(s->misfit, sizeof s->misfit, "rank %u (%s) counts other ranks than rank 0 (%s): " SAME_COUNT,
             c->shake.rank, who, count);
}

/* Whether this is a rank that has joined, has no watch yet, and did not receive the answer: the same process, or one
 * for it when its connection has ended. */
static bool comes_again(const struct store_server *s, const struct connection *c, const char *who) {
    int rank = rank_of(c);
    const struct arrival *arrival = &s->arrivals[rank];
    bool is_same = arrival->gone_at > 0 || strcmp(who, members_who(s->members, rank)) == 0;
    return is_member(c) && !arrival->has_watch && rank > 0 && is_same;
}

static void replace_earlier(struct store_server *s, const struct connection *c) {
    for (size_t i = 0; i < s->count; i++) {
        struct connection *other = s->connections[i];
        if (other == c || other->stage != HAS_JOINED || !is_member(other) || rank_of(other) != rank_of(c)) continue;
        other->stage = IS_REFUSED; /* its end is not the rank's */
        other->is_over = true;
    }
}

/* [who]: what its proof says. A rank that was given up is let in: it asks next, and hears why. */
static bool is_welcome(struct store_server *s, struct connection *c, const char *who) {
    char why[400] = "", count[64];
    uint32_t rank = c->shake.rank;
    bool exists = c->shake.world == (uint32_t)s->world_size && rank < c->shake.world;
    enum member_state state = exists ? members_state(s->members, (int)rank) : IS_ABSENT;
    store_describe_count(s->world_size, s->node_size, count);
    bool is_same = c->shake.world == (uint32_t)s->world_size;
    if (is_parting(c) && !is_same) {
        part(s, c, who);
        launcher_send(MESSAGE_JOINED, 0, -1, ""); /* that node knows */
    }
    if (!is_same)
        snprintf(why, sizeof why, "it counts %s, this rank %u: " SAME_COUNT, count, c->shake.world);
    else if (!exists)
        snprintf(why, sizeof why, "there is no rank %u in a world of %d", rank, s->world_size);
    else if (!is_member(c) && state == IS_ABSENT)
        snprintf(why, sizeof why, "rank %u has not joined", rank);
    else if (is_link(c) && state == IS_HERE && s->arrivals[rank].has_link)
        snprintf(why, sizeof why, "rank %u has connected the launchers already", rank);
    else if ((is_member(c) || is_parting(c)) && state == IS_HERE && !comes_again(s, c, who))
        snprintf(why, sizeof why, "rank %u has joined already (%s)", rank, members_who(s->members, (int)rank));
    else if (!is_watch(c) && state > IS_HERE && !(is_member(c) && state != LEFT_IN_PEACE))
        snprintf(why, sizeof why, "rank %u has left this job already (%s)", rank, members_who(s->members, (int)rank));
    if (*why) refuse(s, c, why);
    return !*why;
}

/* From now on it is the launchers' own; here it ends. */
static bool hand_to_launcher(struct store_server *s, const struct connection *c) {
    if (c->out_size > 0) return false;
    launcher_send_link(rank_of(c), c->fd, &c->session, sizeof c->session);
    s->arrivals[rank_of(c)].has_link = true;
    return false;
}

/* It soon knows who rank 0 is, and from now on what happens to rank 0; the launchers need not say it. */
static void begin_watch(struct store_server *s, const struct connection *c) {
    s->ticks_at = 0;
    s->arrivals[rank_of(c)].has_watch = true;
    launcher_send(MESSAGE_JOINED, 0, rank_of(c), "");
}

static bool on_proof(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    char who[STORE_MAX_WHO];
    if (!store_parse_proof(frame, who)) return false;
    if (c->shake.incarnation != s->incarnation) {
        refuse_incarnation(s, c);
        return true;
    }
    if (!is_welcome(s, c, who)) return true;
    c->stage = HAS_JOINED;
    net_tune(c->fd);
    server_answer(s, c, FRAME_WELCOME, NULL, 0);
    if (is_watch(c)) begin_watch(s, c);
    if (!is_member(c)) return is_watch(c) || hand_to_launcher(s, c);
    replace_earlier(s, c);
    s->arrivals[rank_of(c)].gone_at = 0;
    if (members_state(s->members, rank_of(c)) == IS_ABSENT) members_join(s->members, rank_of(c), who, clock_seconds());
    server_note_address(s, c->fd);
    return true;
}

/* ---- requests ---- */

static bool on_set(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    const uint8_t *value;
    size_t size;
    if (!store_parse_set(frame, c->key, &value, &size) || !store_keys_set(s->keys, c->key, value, size)) return false;
    server_answer(s, c, FRAME_DONE, NULL, 0);
    return true;
}

static bool on_get(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    uint32_t milliseconds;
    return store_parse_get(frame, &milliseconds, c->key) && park(s, c, FRAME_GET, milliseconds);
}

static bool on_wait(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    uint32_t milliseconds;
    return store_parse_wait(frame, &milliseconds) && park(s, c, frame->type, milliseconds);
}

static bool on_report(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    char text[STORE_MAX_REPORT], fate[STORE_MAX_REPORT + 2];
    uint32_t code;
    if (!store_parse_failure(frame, &code, text) || code > 255) return false;
    snprintf(fate, sizeof fate, ": %s", text);
    members_leave(s->members, rank_of(c), code == STATUS_PEER ? LEFT_AFTER_PEER : LEFT_AS_CAUSE, (enum status_code)code,
                  fate, clock_seconds());
    return true;
}

static bool on_bye(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    (void)frame;
    members_leave(s->members, rank_of(c), LEFT_IN_PEACE, STATUS_OK, NULL, clock_seconds());
    return true;
}

static bool on_beat(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    struct pulse_reading reading;
    if (!is_watch(c) || !store_parse_beat(frame, &reading)) return false;
    members_beat(s->members, rank_of(c), &reading, clock_seconds());
    if (rank_of(c) == 0) s->saved = reading.saved;
    return true;
}

/* Of a rank that died before it had joined the host is known: that of its neighbour. */
static void join_dead(struct store_server *s, const struct connection *c, int rank) {
    const char *neighbour = members_who(s->members, rank_of(c));
    char who[STORE_MAX_WHO];
    snprintf(who, sizeof who, "%.*s", (int)strcspn(neighbour, ","), neighbour);
    members_introduce(s->members, rank, who, clock_seconds());
}

static bool on_death(struct store_server *s, struct connection *c, const struct store_frame *frame) {
    char fate[STORE_MAX_REPORT];
    uint32_t rank;
    if (!is_watch(c) || !store_parse_death(frame, &rank, fate) || rank >= (uint32_t)s->world_size) return false;
    if (members_state(s->members, (int)rank) == IS_ABSENT) join_dead(s, c, (int)rank);
    members_died(s->members, (int)rank, fate, clock_seconds());
    return true;
}

static const struct {
    enum stage stage;
    bool (*handle)(struct store_server *s, struct connection *c, const struct store_frame *frame);
} handlers[FRAME_TYPES] = {
    [FRAME_HELLO] = {AWAITS_HELLO, on_hello}, [FRAME_PROOF] = {AWAITS_PROOF, on_proof},
    [FRAME_READY] = {HAS_JOINED, on_wait},    [FRAME_SET] = {HAS_JOINED, on_set},
    [FRAME_GET] = {HAS_JOINED, on_get},       [FRAME_CAUSE] = {HAS_JOINED, on_wait},
    [FRAME_REPORT] = {HAS_JOINED, on_report}, [FRAME_BYE] = {HAS_JOINED, on_bye},
    [FRAME_BEAT] = {HAS_JOINED, on_beat},     [FRAME_DEATH] = {HAS_JOINED, on_death},
};

/* A ddptrain of another version: its header is the same, and a refusal with its own number reaches it. Whoever it is
 * has proved nothing, so here it is only said. */
static bool refuse_version(struct store_server *s, struct connection *c) {
    char why[200];
    int version = store_frame_version(c->in, c->in_size);
    if (c->stage != AWAITS_HELLO || version < 0) return false;
    snprintf(why, sizeof why, "it uses version %d of ddptrain's protocol, this rank version %d: " SAME_PROGRAM,
             STORE_VERSION, version);
    c->version = (uint8_t)version;
    refuse(s, c, why);
    if (s->has_said_version) return true;
    s->has_said_version = true;
    log_line(s->log, "refused a rank that uses version %d of ddptrain's protocol, not %d: " SAME_PROGRAM, version,
             STORE_VERSION);
    return true;
}

static bool grow_input(struct connection *c, size_t need) {
    if (need <= c->in_capacity) return true;
    uint8_t *more = realloc(c->in, need);
    if (!more) return false;
    c->in = more;
    c->in_capacity = need;
    return true;
}

/* Bytes without the right tag, which a network or somebody in between has changed. Before joining they mean no more
 * than another secret; later the rank is lost with the connection, and hears why. */
static bool on_wrong_tag(struct store_server *s, struct connection *c) {
    char fate[STORE_MAX_REPORT];
    if (c->stage == AWAITS_PROOF) {
        c->session.is_on = false;
        refuse(s, c,
               "the secrets differ, or the connection was tampered with (is " SECRET_VARIABLE
               " the same on every rank?)");
        return true;
    }
    snprintf(fate, sizeof fate,
             ": its connection to rank 0 at %s was tampered with or corrupted: a message had a wrong authentication "
             "code; check what is between the hosts",
             s->place);
    members_leave(s->members, rank_of(c), LEFT_AS_CAUSE, STATUS_PEER, fate, clock_seconds());
    c->stage = IS_REFUSED; /* what follows is its last frame */
    c->deadline = clock_seconds() + REASON_SECONDS;
    if (is_watch(c)) {
        server_tell_news(s, c, rank_of(c));
        return true;
    }
    struct text why = {0};
    members_describe(s->members, rank_of(c), &why);
    return fail_with(s, c, STATUS_PEER, &why);
}

static bool is_expected(const struct connection *c, const struct store_frame *frame) {
    bool is_mine = c->stage < HAS_JOINED || frame->rank == c->shake.rank;
    bool is_second = c->waits && frame->type != FRAME_REPORT && frame->type != FRAME_BYE;
    return is_mine && !is_second && handlers[frame->type].handle && handlers[frame->type].stage == c->stage;
}

bool server_handle_frames(struct store_server *s, struct connection *c) {
    for (;;) {
        struct store_frame frame = {0};
        size_t used = 0, limit = c->stage == HAS_JOINED ? STORE_MAX_BODY : STORE_MAX_JOINING;
        enum store_parsed parsed = store_frame_parse(c->in, c->in_size, limit, &frame, &used);
        if (parsed == PARSED_BAD && c->session.is_on) return on_wrong_tag(s, c);
        if (parsed == PARSED_BAD) return refuse_version(s, c);
        if (parsed == PARSED_MORE) /* the length was checked against the limit */
            return c->in_size < STORE_HEADER || grow_input(c, STORE_HEADER + (size_t)frame.length);
        if (!store_frame_verify(&c->session, &frame)) return on_wrong_tag(s, c);
        if (!is_expected(c, &frame)) return false;
        if (!handlers[frame.type].handle(s, c, &frame)) return false;
        if (c->stage == IS_REFUSED) return true;
        memmove(c->in, c->in + used, c->in_size - used);
        c->in_size -= used;
    }
}
