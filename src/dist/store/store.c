/* The client of the store: one connection, on which callers send one request at a time and a thread sends heartbeats.
 * The thread receives for both and passes the answers on. Rank 0's own connection is a socket pair to its server
 * thread, so all ranks use the same code. With world_size 1 there is only a table of keys in memory. */
#include "dist/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "base/system/machine.h"
#include "base/system/thread.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/message.h"
#include "dist/process/net.h"
#include "dist/store/store_frame.h"
#include "dist/store/store_join.h"
#include "dist/store/store_members.h"
#include "dist/store/store_server.h"

/* ---- the connection ---- */

struct channel {
    int fd;                         /* owned; -1: none */
    struct message_session session; /* its part for sending is guarded by the mutex, the other is the heartbeat's */
    pthread_mutex_t mutex;
    atomic_bool is_busy;  /* a request is sent, which may block, or BYE was: the heartbeat sends nothing */
    atomic_bool has_left; /* this rank sends BYE: from then on the end of the connection is not a loss */
};

static void channel_close(struct channel *c) {
    if (c->fd >= 0) close(c->fd);
    session_end(&c->session);
    c->fd = -1;
}

/* false: errno, as of store_send_frame. */
static bool channel_send(struct channel *c, const struct store_frame *frame, double deadline) {
    pthread_mutex_lock(&c->mutex);
    bool is_sent = store_send_frame(c->fd, &c->session, frame, deadline);
    int error = errno;
    pthread_mutex_unlock(&c->mutex);
    errno = error;
    return is_sent;
}

/* Any later send or receive fails. */
static void channel_break(struct channel *c) { shutdown(c->fd, SHUT_RDWR); }

struct heartbeat_config {
    struct channel *channel;         /* of a rank that has joined; not owned */
    const struct store_frame *first; /* the first SERVER_HEARTBEAT; NULL: not received yet */
    size_t max_answer;               /* bytes of the body of a frame that the server may send */
    int stop; /* an eventfd, readable after a request to stop: this rank then leaves the job; -1: none. Not owned */
    int rank;
    double seconds, pace; /* store_heartbeat_seconds, store_pace */
    uint64_t job;
    struct activity *activity; /* not owned */
    const char *endpoint;      /* of rank 0: "n1:29500"; copied */
    bool is_inference;         /* as in store_options */
    store_overdue_function *overdue;
};

/* ---- heartbeat ---- */

/* A thread sends this rank's activity to the store a few times a second and receives the answers to requests and the
 * report of a lost rank, so it continues while the rank computes, saves or waits. A poll loop over the connection, an
 * eventfd and the launcher's socket. A mutex guards the answer and the failure that it has received; handlers run with
 * the mutex locked, so that one that was removed is never called. */

#define SEND_SECONDS 1.0
#define PAUSE 1.0           /* a longer time between two calls of check_pause means that this process did not run */
#define EXIT_SECONDS 0.3    /* for the launcher to report how rank 0 ended */
#define FAILURE_SECONDS 1.0 /* for the heartbeat to report why a connection has ended */
#define FINISH_SECONDS (MEMBERS_STOPPED_SECONDS + 2.0) /* for rank 0 to read BYE, unless it is lost */
#define OVERDUE_SECONDS 5.0                            /* after a failure; the launcher waits as long */
#define NO_RANK (-1)

struct heartbeat {
    struct heartbeat_config config;
    char endpoint[320];
    pthread_t thread;
    int wake; /* an eventfd: ends the thread */

    /* used by the thread only */
    uint8_t *input; /* (size, capacity) */
    size_t size, capacity;
    double send_at, received_at, iteration_at;
    double overdue_at;      /* deadline of this rank after a failure or request to stop; 0: none */
    double broken_at;       /* when the connection ended; 0: it has not */
    int64_t saved;          /* step of the newest checkpoint that was reported to the launcher */
    bool has_bye;           /* the server has sent BYE */
    bool is_stop_requested; /* and reported */
    bool is_terminated;     /* the launcher ends this rank because another has failed */
    struct activity_snapshot last_of_0;
    char rank_0_process[STORE_MAX_PROCESS]; /* host and pid; "": not known yet */

    int answered; /* an eventfd: the request has an answer, or the connection has ended */

    pthread_mutex_t mutex;      /* guards what follows */
    struct store_frame *answer; /* of the request that waits; its body is the buffer for it. NULL: none waits */
    size_t max_body;            /* of that buffer */
    bool has_answer, has_ended; /* has_ended: the connection, for [error] */
    int error;
    enum status_code code; /* STATUS_OK: no failure yet */
    bool is_own;           /* this rank failed first */
    struct {               /* as in store_begin_call; what: NULL: none */
        const char *what, *why;
        double seconds, until;
    } call;
    status leaving; /* why this rank leaves before training; NULL: it does not */
    char why[STORE_MAX_REPORT];
    char exit_of_0[STORE_MAX_REPORT]; /* how rank 0 ended, from the launcher; "": not known */
    struct {
        void (*call)(void *data);
        void *data;
    } handlers[STORE_MAX_HANDLERS];
    size_t handler_count;
};

/* ---- heartbeat: failures ---- */

/* Sets the failure of the job, unless there is one: calls the handlers and informs the launcher. After a hang the grace
 * period is shorter. */
static void set_failure(struct heartbeat *h, enum status_code code, int rank, bool is_hang, const char *why) {
    pthread_mutex_lock(&h->mutex);
    bool is_first = h->code == STATUS_OK;
    if (is_first) {
        h->code = code;
        h->is_own = rank == h->config.rank;
        snprintf(h->why, sizeof h->why, "%s", why);
        for (size_t i = 0; i < h->handler_count; i++) h->handlers[i].call(h->handlers[i].data);
    }
    pthread_mutex_unlock(&h->mutex);
    if (!is_first) return;
    h->overdue_at = clock_seconds() + (is_hang ? HANG_GRACE : OVERDUE_SECONDS);
    launcher_send(is_hang ? MESSAGE_HANG : MESSAGE_JOB_FAILURE, (int)code, rank, why);
}

/* Rank 0 is lost: also ends a request that waits for it. If this rank has reported a request to stop, that is the
 * reason: the JOB_FAILURE of it may have been lost with the connection. [is_closed]: the connection has ended;
 * otherwise rank 0 does not answer. */
static void on_rank_0_lost(struct heartbeat *h, const char *how, bool is_closed) {
    SCOPED_TEXT why = {0};
    if (h->leaving && status_code(h->leaving) == STATUS_STOPPED)
        set_failure(h, STATUS_STOPPED, h->config.rank, false, status_message(h->leaving));
    if (*h->rank_0_process)
        text_printf(&why, "rank 0 (%s)%s", h->rank_0_process, how);
    else
        text_printf(&why, "rank 0 (at %s)%s", h->endpoint, how);
    if (how != h->exit_of_0 && *h->rank_0_process) members_last_seen(&h->last_of_0, &why);
    set_failure(h, STATUS_PEER, 0, !is_closed, why.data);
    channel_break(h->config.channel);
}

/* ---- heartbeat: sending ---- */

/* If the connection has ended, receiving reports that. */
static void send_frame(struct heartbeat *h, enum store_type type, const void *body, size_t size) {
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)h->config.rank, .job = h->config.job, .body = body, .length = (uint32_t)size};
    if (h->broken_at > 0 || channel_send(h->config.channel, &frame, clock_seconds() + SEND_SECONDS)) return;
    if (errno != EPIPE) channel_break(h->config.channel); /* a part of the frame may have been sent */
}

static void set_event(int event) {
    uint64_t one = 1;
    while (write(event, &one, sizeof one) < 0 && errno == EINTR) {
    }
}

/* Ends the request that waits. [error]: an errno, or 0. */
static void on_end(struct heartbeat *h, double now, int error) {
    h->broken_at = now;
    pthread_mutex_lock(&h->mutex);
    h->has_ended = true;
    h->error = error;
    pthread_mutex_unlock(&h->mutex);
    set_event(h->answered);
}

/* Not while a request is sent, which shows as well that this rank is alive, and may block. */
static void send_heartbeat(struct heartbeat *h, double now) {
    struct activity_snapshot reading;
    uint8_t body[STORE_HEARTBEAT];
    activity_read(h->config.activity, &reading);
    store_write_heartbeat(&reading, body);
    bool is_busy = atomic_load(&h->config.channel->is_busy);
    if (!is_busy) send_frame(h, FRAME_HEARTBEAT, body, sizeof body);
    h->send_at = now + h->config.seconds;
}

static void leave_job(struct heartbeat *h) {
    const char *text = h->is_terminated         ? "ended by its launcher, because another rank of its node had failed"
                       : h->config.is_inference ? STOPPED_ON_REQUEST
                                                : STOPPED_BEFORE_TRAINING;
    uint8_t body[4 + STORE_MAX_REPORT];
    size_t length = strlen(text);
    store_write_u32(body, h->is_terminated ? STATUS_PEER : STATUS_STOPPED);
    memcpy(body + 4, text, length); /* NOLINT(bugprone-not-null-terminated-result): frames have lengths */
    send_frame(h, FRAME_REPORT, body, 4 + length);
    pthread_mutex_lock(&h->mutex);
    h->is_stop_requested = true;
    h->leaving = status_new(h->is_terminated ? STATUS_PEER : STATUS_STOPPED, "%s", text);
    pthread_mutex_unlock(&h->mutex);
    if (h->overdue_at == 0) h->overdue_at = clock_seconds() + OVERDUE_SECONDS;
}

/* ---- heartbeat: receiving ---- */

static void on_server_heartbeat(struct heartbeat *h, const struct store_frame *frame) {
    int64_t saved;
    if (!store_parse_server_heartbeat(frame, &saved, &h->last_of_0, h->rank_0_process)) return;
    if (saved > h->saved) launcher_send(MESSAGE_SAVED, 0, saved, "");
    if (saved > h->saved) h->saved = saved;
}

static void on_answer(struct heartbeat *h, const struct store_frame *frame) {
    pthread_mutex_lock(&h->mutex);
    bool is_awaited = h->answer && !h->has_answer && frame->length <= h->max_body;
    if (is_awaited) {
        uint8_t *body = (uint8_t *)h->answer->body;
        memcpy(body, frame->body, frame->length);
        *h->answer = *frame;
        h->answer->body = body;
        h->has_answer = true;
    }
    pthread_mutex_unlock(&h->mutex);
    if (is_awaited) set_event(h->answered);
}

static void on_frame(struct heartbeat *h, const struct store_frame *frame) {
    char text[STORE_MAX_REPORT];
    struct store_job_failure failure;
    if (frame->type == FRAME_DONE || frame->type == FRAME_VALUE || frame->type == FRAME_ERROR) on_answer(h, frame);
    if (frame->type == FRAME_SERVER_HEARTBEAT) on_server_heartbeat(h, frame);
    if (frame->type == FRAME_BYE) h->has_bye = true;
    if (frame->type == FRAME_JOB_FAILURE && store_parse_job_failure(frame, &failure, text))
        set_failure(h, (enum status_code)failure.code, (int)failure.rank, failure.is_hang, text);
}

/* A frame was invalid or had a wrong tag: the failure names no rank. */
static void on_tampered(struct heartbeat *h, double now) {
    status why = store_tampered(h->endpoint);
    set_failure(h, STATUS_PEER, NO_RANK, false, status_message(why));
    channel_break(h->config.channel);
    on_end(h, now, EBADMSG);
    status_free(why);
}

/* Makes the input large enough for [frame], of which at least the header has arrived if h->size is STORE_HEADER. */
static bool make_place(struct heartbeat *h, const struct store_frame *frame) {
    size_t need = h->size < STORE_HEADER ? STORE_HEADER : STORE_HEADER + (size_t)frame->length;
    if (need <= h->capacity) return true;
    uint8_t *more = realloc(h->input, need);
    if (!more) return false;
    h->input = more;
    h->capacity = need;
    return true;
}

static void read_frames(struct heartbeat *h, double now) {
    enum message_input got;
    struct channel *c = h->config.channel;
    while ((got = message_read(c->fd, h->input, h->capacity, &h->size)) == INPUT_MORE) {
        h->received_at = now;
        struct store_frame frame;
        size_t used = 0;
        enum store_parsed parsed;
        while ((parsed = store_frame_parse(h->input, h->size, h->config.max_answer, &frame, &used)) == PARSED_FRAME) {
            if (!store_frame_verify(&c->session, &frame)) {
                on_tampered(h, now);
                return;
            }
            on_frame(h, &frame);
            message_drop(h->input, &h->size, used);
        }
        bool has_place = parsed == PARSED_INCOMPLETE && make_place(h, &frame);
        if (parsed == PARSED_INVALID) on_tampered(h, now);
        if (parsed == PARSED_INCOMPLETE && !has_place) on_end(h, now, ENOMEM);
        if (!has_place) return;
    }
    if (got == INPUT_END) on_end(h, now, errno);
}

/* Forwards the launcher's reports of how ranks of this host ended to the store. */
static void forward_exits(struct heartbeat *h) {
    char reason[STORE_MAX_REPORT];
    uint8_t body[4 + STORE_MAX_REPORT];
    int rank;
    while (launcher_receive_exit(&rank, reason, sizeof reason)) {
        size_t length = strlen(reason);
        h->is_terminated = h->is_terminated || rank < 0;
        if (rank < 0) continue;
        store_write_u32(body, (uint32_t)rank);
        memcpy(body + 4, reason, length); /* NOLINT(bugprone-not-null-terminated-result): frames have lengths */
        send_frame(h, FRAME_RANK_EXIT, body, 4 + length);
        pthread_mutex_lock(&h->mutex);
        if (rank == 0) snprintf(h->exit_of_0, sizeof h->exit_of_0, "%s", reason);
        pthread_mutex_unlock(&h->mutex);
    }
}

/* ---- heartbeat: rank 0 itself ---- */

static void check_rank_0(struct heartbeat *h, double now) {
    double silence = now - h->received_at, silent = MEMBERS_SILENT_SECONDS * h->config.pace;
    char how[160];
    if (h->has_bye || atomic_load(&h->config.channel->has_left)) return;
    if (h->broken_at > 0) {
        bool is_explained = *h->exit_of_0 != 0;
        if (is_explained)
            on_rank_0_lost(h, h->exit_of_0, true);
        else if (now >= h->broken_at + EXIT_SECONDS)
            on_rank_0_lost(h, " exited without reporting an error, or the connection to it broke", true);
    } else if (silence >= silent && net_link_age(h->config.channel->fd) >= silent - 0.5) {
        snprintf(how, sizeof how,
                 " is unreachable: its host has not answered for %.1f s (the network failed, or the host is down)",
                 silence);
        on_rank_0_lost(h, how, false);
    } else if (silence >= MEMBERS_STOPPED_SECONDS * h->config.pace) {
        snprintf(how, sizeof how,
                 " hangs: its process has not run for %.1f s although its host answers (is it stopped?)", silence);
        on_rank_0_lost(h, how, false);
    }
}

/* ---- heartbeat: the loop ---- */

static double next_deadline(const struct heartbeat *h, double now) {
    double next = h->send_at, latest = now + MEMBERS_CHECK_SECONDS;
    if (latest < next) next = latest;
    if (h->overdue_at > 0 && h->overdue_at < next) next = h->overdue_at;
    double lost_at = h->broken_at + EXIT_SECONDS;
    if (h->broken_at > 0 && lost_at > now && lost_at < next) next = lost_at;
    return next;
}

static bool is_set(int event) {
    uint64_t count;
    return read(event, &count, sizeof count) == sizeof count;
}

static void end_overdue(struct heartbeat *h) {
    char why[STORE_MAX_REPORT];
    pthread_mutex_lock(&h->mutex);
    enum status_code code = h->code != STATUS_OK ? h->code : h->is_terminated ? STATUS_PEER : STATUS_STOPPED;
    snprintf(why, sizeof why, "%s",
             h->code != STATUS_OK     ? h->why
             : h->is_terminated       ? "another rank of this node has failed"
             : h->config.is_inference ? STOPPED_ON_REQUEST
                                      : STOPPED_BEFORE_TRAINING);
    pthread_mutex_unlock(&h->mutex);
    h->overdue_at = 0;
    if (h->config.overdue) h->config.overdue(code == STATUS_STOPPED ? STATUS_STOPPED : STATUS_PEER, why);
}

/* Ends the process if it is in a call that is not over in time. */
static void check_call(struct heartbeat *h, double now) {
    char why[STORE_MAX_REPORT], own[STORE_MAX_REPORT + 32];
    uint8_t body[4 + STORE_MAX_REPORT];
    int length = 0;
    pthread_mutex_lock(&h->mutex);
    if (h->call.what && now >= h->call.until && h->code == STATUS_OK)
        length = snprintf(why, sizeof why, "%s has not returned within %g s: %s", h->call.what, h->call.seconds,
                          h->call.why);
    if (length > 0) h->call.what = NULL;
    pthread_mutex_unlock(&h->mutex);
    if (length == 0) return;
    store_write_u32(body, STATUS_PEER);
    memcpy(body + 4, why, (size_t)length); /* NOLINT(bugprone-not-null-terminated-result): frames have lengths */
    send_frame(h, FRAME_REPORT, body, 4 + (size_t)length);
    snprintf(own, sizeof own, "rank %d: %s", h->config.rank, why);
    h->config.overdue(STATUS_PEER, own);
}

/* The time in which this process did not run is no silence of rank 0. poll returns after MEMBERS_CHECK_SECONDS at most.
 */
static void check_pause(struct heartbeat *h, double now) {
    if (now - h->iteration_at > PAUSE) h->received_at += now - h->iteration_at;
    h->iteration_at = now;
}

static void *run(void *argument) {
    struct heartbeat *h = argument;
    h->received_at = h->iteration_at = clock_seconds();
    for (;;) {
        double now = clock_seconds();
        check_pause(h, now);
        if (now >= h->send_at) send_heartbeat(h, now);
        bool is_busy = atomic_load(&h->config.channel->is_busy);
        struct pollfd polls[] = {{.fd = h->broken_at > 0 ? -1 : h->config.channel->fd, .events = POLLIN},
                                 {.fd = h->wake, .events = POLLIN},
                                 {.fd = h->is_stop_requested || is_busy ? -1 : h->config.stop, .events = POLLIN},
                                 {.fd = is_busy ? -1 : launcher_exits_fd(), .events = POLLIN}};
        if (poll(polls, 4, clock_milliseconds_until(next_deadline(h, now))) < 0 && errno != EINTR) return NULL;
        now = clock_seconds();
        check_pause(h, now); /* most pauses fall into poll */
        if (is_set(h->wake)) return NULL;
        is_busy = atomic_load(&h->config.channel->is_busy); /* this thread never waits for a request that is sent */
        if (!is_busy) forward_exits(h); /* first: MESSAGE_TERMINATE is the reason of a SIGTERM that follows it */
        if (!is_busy && polls[2].revents) leave_job(h); /* the event stays set for store_close */
        if (polls[0].revents) read_frames(h, now);
        check_rank_0(h, now);
        check_call(h, now);
        if (h->overdue_at > 0 && now >= h->overdue_at) end_overdue(h);
    }
}

/* ---- heartbeat: start and stop ---- */

static void release(struct heartbeat *h) {
    if (h->wake >= 0) close(h->wake);
    if (h->answered >= 0) close(h->answered);
    status_free(h->leaving);
    free(h->input);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}

/* Starts the thread, with all signals blocked. */
static status heartbeat_start(const struct heartbeat_config *config, struct heartbeat **out) {
    *out = NULL;
    struct heartbeat *h = calloc(1, sizeof *h);
    if (!h) return status_memory("the heartbeat");
    pthread_mutex_init(&h->mutex, NULL);
    h->config = *config;
    snprintf(h->endpoint, sizeof h->endpoint, "%s", config->endpoint);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->answered = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->capacity = STORE_HEADER + STORE_MAX_JOINING;
    h->input = malloc(h->capacity);
    if (config->first) on_server_heartbeat(h, config->first);
    static const char *const what = "the heartbeat thread";
    status s = h->wake < 0 || h->answered < 0 ? status_errno(STATUS_IO, EMFILE, "cannot start %s", what)
               : !h->input                    ? status_memory("the heartbeat")
                                              : thread_start(&h->thread, "heartbeat", what, run, h);
    if (s) release(h);
    if (!s) *out = h;
    return s;
}

/* Takes NULL. */
static void heartbeat_stop(struct heartbeat *h) {
    if (!h) return;
    set_event(h->wake);
    pthread_join(h->thread, NULL);
    release(h);
}

/* Before a request: *answer will be its answer, whose body is the buffer (size) that *answer has now. */
static void heartbeat_expect(struct heartbeat *h, struct store_frame *answer, size_t size) {
    pthread_mutex_lock(&h->mutex);
    h->answer = answer;
    h->max_body = size;
    h->has_answer = false;
    pthread_mutex_unlock(&h->mutex);
}

/* Waits for that answer. false, with errno: the connection has ended, or ETIMEDOUT. */
static bool heartbeat_answer(struct heartbeat *h, double deadline) {
    struct pollfd answered = {.fd = h->answered, .events = POLLIN};
    for (;;) {
        is_set(h->answered);
        pthread_mutex_lock(&h->mutex);
        bool has_answer = h->has_answer, has_ended = h->has_ended, is_late = clock_seconds() >= deadline;
        int error = h->error;
        if (has_answer || has_ended || is_late) h->answer = NULL;
        pthread_mutex_unlock(&h->mutex);
        errno = has_ended ? error : ETIMEDOUT;
        if (has_answer || has_ended || is_late) return has_answer;
        poll(&answered, 1, clock_milliseconds_until(deadline));
    }
}

/* Waits until the connection has ended, for as long as it takes to detect that rank 0 is lost; 1 s after a failure. */
static void heartbeat_await_end(struct heartbeat *h) {
    struct pollfd answered = {.fd = h->answered, .events = POLLIN};
    double start = clock_seconds(), now = start;
    for (;; now = clock_seconds()) {
        is_set(h->answered);
        pthread_mutex_lock(&h->mutex);
        double end = start + (h->code == STATUS_OK ? FINISH_SECONDS * h->config.pace : FAILURE_SECONDS);
        bool is_over = h->has_ended || now >= end;
        pthread_mutex_unlock(&h->mutex);
        if (is_over) return;
        poll(&answered, 1, clock_milliseconds_until(end < now + FAILURE_SECONDS ? end : now + FAILURE_SECONDS));
    }
}

/* The code of the job's failure; STATUS_OK: none is known. Adds the message, with the rank that failed first, to [out],
 * unless this rank failed first or [out] is NULL. From any thread. */
static enum status_code heartbeat_failure(struct heartbeat *h, struct text *out) {
    pthread_mutex_lock(&h->mutex);
    enum status_code code = h->code;
    if (code != STATUS_OK && out && !h->is_own) text_add(out, h->why);
    pthread_mutex_unlock(&h->mutex);
    return code;
}

/* After a request to stop: waits up to [timeout] seconds until the thread has reported it. Returns the reported reason,
 * which the caller owns; NULL: timeout. */
static status heartbeat_leave_reason(struct heartbeat *h, double timeout) {
    status reason = OK;
    for (double end = clock_seconds() + timeout; !reason && clock_seconds() < end;) {
        pthread_mutex_lock(&h->mutex);
        if (h->leaving) reason = status_new(status_code(h->leaving), "%s", status_message(h->leaving));
        pthread_mutex_unlock(&h->mutex);
        if (!reason) clock_sleep(0.001);
    }
    return reason;
}

/* See store_begin_call; [what] NULL: the end of the call. */
static void heartbeat_set_call(struct heartbeat *h, const char *what, double seconds, const char *why) {
    if (!h->config.overdue) return;
    pthread_mutex_lock(&h->mutex);
    h->call.what = what;
    h->call.why = why;
    h->call.seconds = seconds;
    h->call.until = clock_seconds() + seconds;
    pthread_mutex_unlock(&h->mutex);
}

/* See store_on_failure. */
static status heartbeat_on_failure(struct heartbeat *h, void (*handler)(void *data), void *data) {
    pthread_mutex_lock(&h->mutex);
    bool has_place = h->handler_count < STORE_MAX_HANDLERS;
    if (has_place) {
        h->handlers[h->handler_count].call = handler;
        h->handlers[h->handler_count++].data = data;
    }
    if (has_place && h->code != STATUS_OK) handler(data); /* the failure is already known */
    pthread_mutex_unlock(&h->mutex);
    return has_place ? OK : status_new(STATUS_BUG, "more than %d handlers of a lost rank", STORE_MAX_HANDLERS);
}

static void heartbeat_off_failure(struct heartbeat *h, void *data) {
    pthread_mutex_lock(&h->mutex);
    size_t kept = 0;
    for (size_t i = 0; i < h->handler_count; i++)
        if (h->handlers[i].data != data) h->handlers[kept++] = h->handlers[i];
    h->handler_count = kept;
    pthread_mutex_unlock(&h->mutex);
}

#define CONFIRM_SECONDS 60.0 /* for the first heartbeat of rank 0 after a rank has joined */
#define ANSWER_SECONDS 30.0  /* for an answer, in addition to the time that the request may wait at the server */
#define REPORT_SECONDS 1.0   /* for the heartbeat to report a request to stop */
#define LINK_SECONDS 20.0
#define REPORT_JOIN_SECONDS 60.0 /* rank 0 may still load its data */
#define CROWD_RANKS 64           /* of a processor, from which on heartbeats are rarer */
#define DESCRIPTORS 24           /* that a rank needs for its store, group, data and checkpoints */
#define STOPPED_SECONDS 3.0      /* as REPORT_JOIN_SECONDS, after a request to stop: the user waits */

/* ---- the store ---- */

struct store {
    int rank, world_size;
    bool is_one_host;
    uint8_t secret[32];
    uint64_t job;
    char endpoint[320]; /* of rank 0 */
    struct activity *activity;
    struct heartbeat *heartbeat; /* NULL: world_size 1 */
    bool forwards_stop;
    int stop; /* the descriptor to which requests to stop are written while the store is open; -1: none */

    pthread_mutex_t mutex;  /* guards what follows, but what the heartbeat uses of the channel */
    struct channel channel; /* without a descriptor for world_size 1 */
    bool is_disconnected;
    unsigned agreements;     /* store_agree calls so far: equal on all ranks */
    uint8_t *body;           /* (body_size): of requests and answers */
    size_t body_size;        /* at least STORE_MAX_BODY; enough for the numbers of all ranks */
    struct store_keys *keys; /* world_size 1 */

    struct store_server *server; /* rank 0 */
};

/* ---- requests ---- */

/* Ends the connection after an error, errno. */
static status disconnect(struct store *s) {
    char reason[128] = "";
    int error = errno;
    if (error) snprintf(reason, sizeof reason, ": %s", strerror(error));
    channel_break(&s->channel);
    s->is_disconnected = true;
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
    SCOPED_TEXT why = {0};
    if (!wait_for_failure(s, &why)) return failure;
    bool is_stopped = heartbeat_failure(s->heartbeat, NULL) == STATUS_STOPPED;
    const char *own = is_stopped ? STOPPED_BEFORE_TRAINING : status_message(failure);
    status explained = status_new(is_stopped ? STATUS_STOPPED : STATUS_PEER, "%s", why.length > 0 ? why.data : own);
    status_free(failure);
    return explained;
}

static status disconnected(const struct store *s) {
    return status_new(STATUS_PEER, "the connection to rank 0 at %s is lost", s->endpoint);
}

/* Sends s->body (size) and receives the answer into s->body. The mutex is locked. */
static status exchange(struct store *s, enum store_type type, size_t size, double timeout, struct store_frame *reply) {
    if (s->is_disconnected) return disconnected(s);
    double deadline = clock_seconds() + timeout + ANSWER_SECONDS;
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)s->rank, .job = s->job, .body = s->body, .length = (uint32_t)size};
    *reply = (struct store_frame){.body = s->body};
    heartbeat_expect(s->heartbeat, reply, s->body_size);
    atomic_store(&s->channel.is_busy, true);
    bool is_sent = channel_send(&s->channel, &frame, deadline);
    atomic_store(&s->channel.is_busy, false);
    bool has_answer = is_sent && heartbeat_answer(s->heartbeat, deadline);
    if (!has_answer) {
        int error = errno;
        heartbeat_expect(s->heartbeat, NULL, 0); /* *reply is the caller's */
        errno = error;
        return disconnect(s);
    }
    if (reply->type != FRAME_ERROR) return OK;
    char text[STORE_MAX_REPORT];
    uint32_t code;
    if (!store_parse_failure(reply, &code, text)) return status_new(STATUS_BUG, "malformed answer from the store");
    bool keeps_code = code == STATUS_STOPPED || code == STATUS_USAGE || code == STATUS_DATA;
    return status_new(keeps_code ? (enum status_code)code : STATUS_PEER, "%s", text);
}

static status request(struct store *s, enum store_type type, size_t size, double timeout, struct store_frame *reply) {
    bool was_connected = !s->is_disconnected;
    status failure = exchange(s, type, size, timeout, reply);
    return failure && was_connected && s->is_disconnected ? explain_loss(s, failure) : failure;
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

void store_describe_wrong_host(const struct dist_env *env, char hint[400]) {
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
    snprintf(hint, 400,
             "; rank 0 runs on host %.60s, which does not have the address %.100s of MASTER_ADDR: start rank 0 there, "
             "or change MASTER_ADDR",
             host, env->master_addr);
}

static double crowd_of(const struct dist_env *env) {
    if (env->local_world_size <= CROWD_RANKS) return 1;
    int processors = processors_online(), quota = processors_quota();
    if (quota > 0 && quota < processors) processors = quota;
    double crowd = (double)env->local_world_size / (CROWD_RANKS * (double)processors);
    return crowd < 1 ? 1 : crowd;
}

static status serve(struct store *s, const struct dist_env *env, const struct store_options *options,
                    const char *process, int spare) {
    int listener, ends[2];
    char hint[400];
    TRY(dist_env_listener(env, &listener));
    if (!make_pair(ends)) {
        int error = errno;
        close(listener);
        return status_errno(STATUS_IO, error, "cannot start the store");
    }
    store_describe_wrong_host(env, hint);
    s->channel.fd = ends[0];
    struct store_server_config config = {
        .listener = listener,
        .local = ends[1],
        .world_size = s->world_size,
        .spare = spare,
        .node_size = env->local_world_size,
        .informed = options->informed,
        .restart_count = (uint32_t)env->restart_count,
        .limits = {.hang = options->hang, .slow = options->timeout, .pace = store_pace(s->world_size, crowd_of(env))},
        .heartbeat_seconds = store_heartbeat_seconds(s->world_size, crowd_of(env)),
        .job = s->job,
        .secret = s->secret,
        .is_guessable = dist_env_secret_is_guessable(env),
        .log = options->log,
        .hint = hint,
        .endpoint = s->endpoint,
        .process = process};
    return store_server_start(&config, &s->server);
}

/* The options of this rank's connection. */
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
    struct message_session session;
    int fd;
    join.purpose = FOR_LINK;
    join.joined_fd = s->channel.fd;
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

/* Sends the first heartbeat and receives that of the server, which confirms that the store detects the end of this rank
 * and informs it of failures. false: the connection has ended, or *failure. */
static bool confirm(struct store *s, double deadline, struct store_frame *first, status *failure) {
    struct activity_snapshot reading;
    uint8_t body[STORE_HEARTBEAT];
    activity_read(s->activity, &reading);
    store_write_heartbeat(&reading, body);
    struct store_frame frame = {
        .type = FRAME_HEARTBEAT, .rank = (uint32_t)s->rank, .job = s->job, .body = body, .length = sizeof body};
    struct channel *c = &s->channel;
    char text[STORE_MAX_REPORT];
    struct store_job_failure lost;
    double latest = clock_seconds() + CONFIRM_SECONDS;
    if (deadline > latest) deadline = latest;
    bool has_answer = channel_send(c, &frame, deadline) &&
                      store_receive_frame(c->fd, &c->session, s->body_size, first, s->body, deadline);
    if (!has_answer && store_is_tampered(errno))
        *failure = store_tampered(s->endpoint);
    else if (!has_answer && clock_seconds() >= deadline)
        *failure =
            status_new(STATUS_PEER, "rank 0 (at %s) has accepted the connection and then not answered", s->endpoint);
    else if (has_answer && first->type == FRAME_JOB_FAILURE && store_parse_job_failure(first, &lost, text))
        *failure = status_new(STATUS_PEER, "%s", text);
    return has_answer && first->type == FRAME_SERVER_HEARTBEAT;
}

/* Joins. *first: the first SERVER_HEARTBEAT, in s->body. If the connection ends before it, rank 0 has ended, and its
 * launcher, which now serves a store to report that, sends the reason to a rank that joins again. */
static status join(struct store *s, const struct store_join *base, struct store_frame *first) {
    uint32_t restart_count = base->restart_count;
    struct store_join again = *base;
    status failure = store_join(&again, &s->channel.fd, &s->channel.session, &restart_count);
    while (!failure) {
        launcher_send(MESSAGE_JOINED, 0, s->rank, ""); /* the store now detects the end of this rank */
        if (confirm(s, again.deadline, first, &failure) || failure) break;
        channel_close(&s->channel);
        double latest = clock_seconds() + STORE_LOST_SECONDS;
        if (again.deadline > latest) again.deadline = latest;
        again.is_again = true;
        failure = store_join(&again, &s->channel.fd, &s->channel.session, &restart_count);
    }
    if (restart_count != base->restart_count) launcher_send(MESSAGE_RESTART_COUNT, 0, restart_count, "");
    return failure;
}

/* From here on requests to stop are handled: by store_join while it retries, then by the heartbeat. */
static status open_stop_event(struct store *s, const struct store_options *options) {
    if (!options->forwards_stop && options->stop <= 0) return OK;
    s->stop = options->stop > 0 ? fcntl(options->stop, F_DUPFD_CLOEXEC, 0) : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->stop < 0) return status_errno(STATUS_IO, errno, "cannot open the store");
    s->forwards_stop = options->forwards_stop;
    if (s->forwards_stop) stop_forward(s->stop);
    return OK;
}

/* Ranks of other hosts with which a rank is connected (comm/collectives.h). */
static int most_peers(int hosts) {
    int peers = 0;
    if (hosts <= 16) return hosts - 1;
    for (int step = 1; step < hosts; step *= 2) peers += 2;
    return peers;
}

/* Without them a later call would fail with an unclear error or wait. A rank has up to three connections to each of its
 * peers; rank 0, the root of gathers, one to each host in addition, and one to each rank for the store. *spare:
 * descriptors beyond, for connections that have not proved the secret. */
status store_check_descriptors(const struct dist_env *env, int *spare) {
    int hosts = env->local_world_size > 0 ? env->world_size / env->local_world_size : 1;
    int connections = 3 * most_peers(hosts) + (env->rank == 0 ? hosts - 1 + env->world_size - 1 : 0);
    *spare = env->rank == 0 ? net_max_unproven(env->world_size) : 0;
    return net_check_descriptors(DESCRIPTORS + connections, spare);
}

static status open_network(struct store *s, const struct dist_env *env, const struct store_options *options) {
    double deadline = clock_seconds() + options->timeout;
    char process[STORE_MAX_PROCESS];
    struct store_frame first = {0}; /* not on rank 0 */
    int spare = net_max_unproven(s->world_size);
    describe_process(process);
    TRY(dist_env_secret(env, s->secret));
    if (!options->failure) TRY(store_check_descriptors(env, &spare));
    TRY(open_stop_event(s, options));
    struct store_join base = join_options(s, env, options, process, deadline);
    TRY(s->rank == 0 ? serve(s, env, options, process, spare) : join(s, &base, &first));
    struct heartbeat_config config = {.channel = &s->channel,
                                      .first = first.type ? &first : NULL,
                                      .max_answer = s->body_size,
                                      .stop = s->stop,
                                      .rank = s->rank,
                                      .seconds = store_heartbeat_seconds(s->world_size, crowd_of(env)),
                                      .pace = store_pace(s->world_size, crowd_of(env)),
                                      .job = s->job,
                                      .activity = s->activity,
                                      .endpoint = s->endpoint,
                                      .is_inference = options->is_inference,
                                      .overdue = options->overdue};
    TRY(heartbeat_start(&config, &s->heartbeat));
    if (options->failure && s->rank > 0) return OK; /* it only reports */
    if (launcher_needs_link()) link_launchers(s, base);
    double left = deadline - clock_seconds();
    return wait_ready(s, s->rank == 0 || left > 1 ? left : 1);
}

status store_open_with(const struct dist_env *env, const struct store_options *options, struct store **out) {
    *out = NULL;
    struct store *s = calloc(1, sizeof *s);
    if (!s) return status_memory("the store");
    size_t numbers = STORE_NUMBERS(env->world_size) + SESSION_TAG;
    size_t body_size = numbers > STORE_MAX_BODY ? numbers : STORE_MAX_BODY;
    *s = (struct store){.rank = env->rank,
                        .world_size = env->world_size,
                        .is_one_host = env->local_world_size == env->world_size,
                        .job = store_job_hash(env->job_id),
                        .channel = {.fd = -1},
                        .stop = -1,
                        .activity = activity_map(launcher_activity_fd()),
                        .body = malloc(body_size + 1),
                        .body_size = body_size,
                        .keys = store_keys_create()};
    pthread_mutex_init(&s->mutex, NULL);
    pthread_mutex_init(&s->channel.mutex, NULL);
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
    bool is_connected = s->channel.fd >= 0 && !s->is_disconnected;
    if (is_connected && !channel_send(&s->channel, &frame, clock_seconds() + 1)) status_free(disconnect(s));
}

/* Waits until the heartbeat has reported a request to stop: otherwise BYE could be sent first, and the others would
 * wait for a rank that seems to have finished. */
static void report_stop(struct store *s) {
    struct pollfd stop = {.fd = s->stop, .events = POLLIN};
    if (!s->heartbeat || s->stop < 0 || poll(&stop, 1, 0) <= 0) return;
    status_free(heartbeat_leave_reason(s->heartbeat, REPORT_SECONDS));
}

/* Waits until the server has read BYE and closed the connection: closing it here, while heartbeats of the server
 * arrive, would send a reset, which may discard the last frames. */
static void finish(struct store *s) {
    atomic_store(&s->channel.has_left, true);
    if (s->rank > 0) atomic_store(&s->channel.is_busy, true); /* rank 0 reports how ranks of its host end meanwhile */
    send_only(s, FRAME_BYE, 0);
    if (s->rank > 0 && s->heartbeat && !s->is_disconnected) heartbeat_await_end(s->heartbeat);
}

void store_close(struct store *s) {
    if (!s) return;
    report_stop(s);
    finish(s);
    if (s->rank == 0) store_server_stop(s->server); /* also sends BYE to the heartbeat of rank 0 */
    if (s->forwards_stop)
        stop_forward(-1); /* until here: otherwise a request would end rank 0 before the server has stopped */
    heartbeat_stop(s->heartbeat);
    channel_close(&s->channel);
    if (s->stop >= 0) close(s->stop);
    store_keys_destroy(s->keys);
    activity_destroy(s->activity);
    pthread_mutex_destroy(&s->channel.mutex);
    pthread_mutex_destroy(&s->mutex);
    free(s->body);
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

/* [type]: GET or TAKE. */
static status get_locked(struct store *s, enum store_type type, const char *key, double timeout, void **value,
                         size_t *size) {
    if (s->world_size == 1) {
        const uint8_t *found = store_keys_get(s->keys, key, size);
        if (!found) return status_new(STATUS_PEER, "no rank has set '%s', and there is no other rank", key);
        TRY(copy_value(found, *size, value, size));
        if (type == FRAME_TAKE) store_keys_remove(s->keys, key);
        return OK;
    }
    size_t length = strlen(key);
    struct store_frame reply;
    store_write_u32(s->body, to_milliseconds(timeout));
    memcpy(s->body + 4, key, length);
    TRY(request(s, type, 4 + length, timeout, &reply));
    return copy_value(reply.body, reply.length, value, size);
}

static status get(struct store *s, enum store_type type, const char *key, double timeout, void **value, size_t *size) {
    size_t length = strlen(key), ignored;
    if (length == 0 || length > STORE_MAX_KEY) return status_new(STATUS_BUG, "store_get: key '%s'", key);
    *value = NULL;
    pthread_mutex_lock(&s->mutex);
    status failure = get_locked(s, type, key, timeout, value, size ? size : &ignored);
    pthread_mutex_unlock(&s->mutex);
    return failure;
}

status store_get(struct store *s, const char *key, double timeout, void **value, size_t *size) {
    return get(s, FRAME_GET, key, timeout, value, size);
}

status store_take(struct store *s, const char *key, double timeout, void **value, size_t *size) {
    return get(s, FRAME_TAKE, key, timeout, value, size);
}

/* ---- gatherings ---- */

/* The answer is in s->body. The mutex is locked. */
static status gather_locked(struct store *s, const char *key, const struct store_gather_request *r, double timeout,
                            struct store_frame *reply) {
    return request(s, FRAME_GATHER, store_write_gather(r, key, s->body), timeout, reply);
}

static status check_gather(const char *key, size_t size) {
    size_t length = strlen(key);
    if (length > 0 && length <= STORE_MAX_KEY && size <= STORE_MAX_VALUE) return OK;
    return status_new(STATUS_BUG, "a gathering '%s' of %zu bytes", key, size);
}

status store_number(struct store *s, const char *key, const void *value, size_t size, double timeout, int *numbers) {
    TRY(check_gather(key, size));
    numbers[0] = 0;
    if (s->world_size == 1) return OK;
    struct store_gather_request r = {.kind = GATHER_NUMBERS,
                                     .milliseconds = to_milliseconds(timeout),
                                     .index = (uint32_t)s->rank,
                                     .count = (uint32_t)s->world_size,
                                     .value = value,
                                     .size = size};
    struct store_frame reply;
    pthread_mutex_lock(&s->mutex);
    status failure = gather_locked(s, key, &r, timeout, &reply);
    if (!failure && !store_parse_numbers(reply.body, reply.length, r.count, numbers))
        failure = status_new(STATUS_BUG, "malformed answer from the store");
    pthread_mutex_unlock(&s->mutex);
    return failure;
}

status store_first(struct store *s, const char *key, int index, int count, const char *text, double timeout,
                   char **first, int *first_index) {
    size_t size = strlen(text);
    *first = NULL;
    TRY(check_gather(key, size));
    if (count == 1) {
        *first_index = 0;
        *first = size ? strdup(text) : NULL;
        return *first || !size ? OK : status_memory("a value of the store");
    }
    struct store_gather_request r = {.kind = GATHER_FIRST,
                                     .milliseconds = to_milliseconds(timeout),
                                     .index = (uint32_t)index,
                                     .count = (uint32_t)count,
                                     .value = (const uint8_t *)text,
                                     .size = size};
    struct store_frame reply;
    void *found = NULL;
    pthread_mutex_lock(&s->mutex);
    status failure = gather_locked(s, key, &r, timeout, &reply);
    if (!failure && reply.length > 4) {
        *first_index = (int)store_read_u32(reply.body);
        failure = copy_value(reply.body + 4, reply.length - 4, &found, &size);
    }
    pthread_mutex_unlock(&s->mutex);
    *first = found;
    return failure;
}

static int store_rank(const struct store *s) { return s->rank; }
static int store_world_size(const struct store *s) { return s->world_size; }

/* 0, 1, 2, ...: equal on all ranks, which call store_agree in the same order. */
static unsigned store_next_agreement(struct store *s) {
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

void store_begin_call(struct store *s, const char *what, double seconds, const char *why) {
    if (s->heartbeat) heartbeat_set_call(s->heartbeat, what, seconds, why);
}

void store_end_call(struct store *s) {
    if (s->heartbeat) heartbeat_set_call(s->heartbeat, NULL, 0, NULL);
}

enum status_code store_failure_code(struct store *s) {
    bool is_stopped = s->heartbeat && heartbeat_failure(s->heartbeat, NULL) == STATUS_STOPPED;
    return is_stopped ? STATUS_STOPPED : STATUS_PEER;
}

void store_sign(const struct store *s, const void *message, size_t size, uint8_t proof[32]) {
    message_hmac(s->secret, message, size, proof);
}

void store_count_traffic(const struct store *s, struct store_traffic *out) {
    *out = (struct store_traffic){0};
    if (s->server) store_server_traffic(s->server, out);
}

/* ---- addresses ---- */

static status local_address(struct store *s, struct sockaddr_storage *address) {
    socklen_t size = sizeof *address;
    int error = 0;
    memset(address, 0, sizeof *address);
    pthread_mutex_lock(&s->mutex);
    if (s->server)
        error = store_server_address(s->server, address);
    else if (getsockname(s->channel.fd, (struct sockaddr *)address, &size) != 0)
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

/* ---- agreement ---- */

/* store_agree: the ranks gather the digests of their texts. Only if they differ, rank 0 publishes its text in pieces;
 * every other rank compares it with its own and publishes the differences; rank 0 combines them and publishes the
 * result. The texts of other ranks are not transferred. */

#define PIECE 60000
#define MAX_LINES 8
#define MAX_SHOWN 3 /* ranks whose lines are in the message */

struct agreement {
    struct store *store;
    unsigned number;
    double timeout;
};

static status set_part(const struct agreement *a, const char *part, int index, const void *value, size_t size) {
    char key[64];
    snprintf(key, sizeof key, "agree/%u/%s/%d", a->number, part, index);
    return store_set(a->store, key, value, size);
}

static status get_part(const struct agreement *a, const char *part, int index, struct text *out) {
    char key[64];
    void *value;
    size_t size;
    snprintf(key, sizeof key, "agree/%u/%s/%d", a->number, part, index);
    TRY(store_get(a->store, key, a->timeout, &value, &size));
    text_add_bytes(out, value, size);
    free(value);
    return OK;
}

/* The last piece is shorter than PIECE. */
static status publish(const struct agreement *a, const char *text) {
    size_t length = strlen(text), size = PIECE;
    for (int i = 0; size == PIECE; i++, text += size, length -= size) {
        size = length < PIECE ? length : PIECE;
        TRY(set_part(a, "text", i, text, size));
    }
    return OK;
}

static status fetch(const struct agreement *a, struct text *out) {
    for (int i = 0;; i++) {
        size_t before = out->length;
        TRY(get_part(a, "text", i, out));
        if (out->length - before < PIECE) return OK;
    }
}

static size_t line_length(const char *text) { return strcspn(text, "\n"); }

/* Adds the first lines in which mine differs from rank 0's to [out]. */
static void compare(int rank, const char *zero, const char *mine, struct text *out) {
    for (int shown = 0; *zero || *mine;) {
        size_t a = line_length(zero), b = line_length(mine);
        if (a != b || memcmp(zero, mine, a) != 0) {
            if (shown++ == MAX_LINES) {
                text_add(out, "\n  ...");
                return;
            }
            text_printf(out, "\n  rank 0: %.*s\n  rank %d: %.*s", (int)(a < 200 ? a : 200), zero, rank,
                        (int)(b < 200 ? b : 200), mine);
        }
        zero += a + (zero[a] == '\n');
        mine += b + (mine[b] == '\n');
    }
}

/* On other ranks than 0: publishes the difference. */
static status publish_difference(const struct agreement *a, int rank, const char *mine) {
    SCOPED_TEXT zero = {0}, difference = {0};
    status failure = fetch(a, &zero);
    bool is_equal = !failure && strcmp(text_string(&zero), mine) == 0;
    if (!failure && !is_equal) {
        compare(rank, text_string(&zero), mine, &difference);
        if (difference.length == 0) text_add(&difference, "\n  (in the newline at the end)");
    }
    if (!failure) failure = set_part(a, "difference", rank, text_string(&difference), difference.length);
    return failure;
}

/* On rank 0: adds the message with all differences to [result]; nothing if all texts are equal. */
static status collect(const struct agreement *a, int world_size, const char *what, struct text *result) {
    SCOPED_TEXT ranks = {0}, lines = {0}, difference = {0};
    int different = 0;
    status failure = OK;
    for (int r = 1; r < world_size && !failure; r++) {
        text_clear(&difference);
        failure = get_part(a, "difference", r, &difference);
        if (failure || difference.length == 0) continue;
        if (different++ < MAX_SHOWN) text_add(&lines, difference.data);
        if (different <= 16) text_printf(&ranks, "%s%d", different > 1 ? ", " : "", r);
    }
    if (different)
        text_printf(result, "%s is not the same on all ranks: rank%s %s%s differ%s from rank 0%s", what,
                    different > 1 ? "s" : "", text_string(&ranks), different > 16 ? ", ..." : "",
                    different > 1 ? "" : "s", text_string(&lines));
    return failure;
}

/* *is_equal: whether all ranks have the same text. */
static status compare_digests(const struct agreement *a, const char *text, bool *is_equal) {
    uint8_t digest[DIGEST_SIZE];
    char key[64];
    int world_size = store_world_size(a->store), *numbers = malloc((size_t)world_size * sizeof *numbers);
    if (!numbers) return status_memory("the comparison of the ranks");
    digest_of(text, strlen(text), digest);
    snprintf(key, sizeof key, "agree/%u", a->number);
    status failure = store_number(a->store, key, digest, sizeof digest, a->timeout, numbers);
    *is_equal = !failure;
    for (int r = 0; r < world_size && *is_equal; r++) *is_equal = numbers[r] == 0;
    free(numbers);
    return failure;
}

static status exchange_texts(const struct agreement *a, const char *what, const char *text, struct text *result) {
    int rank = store_rank(a->store);
    if (rank == 0) {
        TRY(publish(a, text));
        TRY(collect(a, store_world_size(a->store), what, result));
        return set_part(a, "result", 0, text_string(result), result->length);
    }
    TRY(publish_difference(a, rank, text));
    return get_part(a, "result", 0, result);
}

status store_agree(struct store *store, const char *what, const char *text, double timeout) {
    if (store_world_size(store) == 1) return OK;
    struct agreement a = {.store = store, .number = store_next_agreement(store), .timeout = timeout};
    SCOPED_TEXT result = {0};
    bool is_equal = false;
    status failure = compare_digests(&a, text, &is_equal);
    if (!failure && !is_equal) failure = exchange_texts(&a, what, text, &result);
    if (!failure && result.length > 0) failure = status_usage("%s", result.data);
    return failure;
}
