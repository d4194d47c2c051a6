/* A poll loop over the connection, an eventfd and the launcher's socket. A mutex guards the failure that it has
 * received; handlers run with the mutex locked, so that one that was removed is never called. */
#include "dist/store/store_heartbeat.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system/thread.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/net.h"
#include "dist/store/store_join.h"
#include "dist/store/store_members.h"

#define HEARTBEAT_SECONDS 0.2
#define SEND_SECONDS 1.0
#define PAUSE 1.0           /* a longer time between two calls of check_pause means that this process did not run */
#define EXIT_SECONDS 0.3    /* for the launcher to report how rank 0 ended */
#define OVERDUE_SECONDS 5.0 /* after a failure; the launcher waits as long */
#define NO_RANK (-1)
#define INPUT (STORE_HEADER + STORE_JOB_FAILURE + STORE_MAX_REPORT + SESSION_TAG)

struct heartbeat {
    struct heartbeat_config config;
    char endpoint[320];
    pthread_t thread;
    int wake; /* an eventfd: ends the thread */

    /* used by the thread only */
    uint8_t input[INPUT];
    size_t size;
    double send_at, received_at, iteration_at;
    double overdue_at;      /* deadline of this rank after a failure or request to stop; 0: none */
    double broken_at;       /* when the connection ended; 0: it has not */
    int64_t saved;          /* step of the newest checkpoint that was reported to the launcher */
    bool has_bye;           /* the server has sent BYE */
    bool is_stop_requested; /* and reported */
    bool is_terminated;     /* the launcher ends this rank because another has failed */
    struct activity_snapshot last_of_0;
    char rank_0_process[STORE_MAX_PROCESS]; /* host and pid; "": not known yet */

    pthread_mutex_t mutex; /* guards what follows */
    enum status_code code; /* STATUS_OK: no failure yet */
    bool is_own;           /* this rank failed first */
    status leaving;        /* why this rank leaves before training; NULL: it does not */
    char why[STORE_MAX_REPORT];
    char exit_of_0[STORE_MAX_REPORT]; /* how rank 0 ended, from the launcher; "": not known */
    struct {
        void (*call)(void *data);
        void *data;
    } handlers[STORE_MAX_HANDLERS];
    size_t handler_count;
};

/* ---- failures ---- */

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

/* Rank 0 is lost: also ends a request that waits for it on the other connection. If this rank has reported a request to
 * stop, that is the reason: the JOB_FAILURE of it may have been lost with the connection. [is_closed]: the connection
 * has ended; otherwise rank 0 does not answer. */
static void on_rank_0_lost(struct heartbeat *h, const char *how, bool is_closed) {
    struct text why = {0};
    if (h->leaving && status_code(h->leaving) == STATUS_STOPPED)
        set_failure(h, STATUS_STOPPED, h->config.rank, false, status_message(h->leaving));
    if (*h->rank_0_process)
        text_printf(&why, "rank 0 (%s)%s", h->rank_0_process, how);
    else
        text_printf(&why, "rank 0 (at %s)%s", h->endpoint, how);
    if (how != h->exit_of_0 && *h->rank_0_process) members_last_seen(&h->last_of_0, &why);
    set_failure(h, STATUS_PEER, 0, !is_closed, why.data);
    shutdown(h->config.requests, SHUT_RDWR);
    text_free(&why);
}

/* ---- sending ---- */

static bool send_frame(struct heartbeat *h, enum store_type type, const void *body, size_t size) {
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)h->config.rank, .job = h->config.job, .body = body, .length = (uint32_t)size};
    return h->broken_at > 0 ||
           store_send_frame(h->config.fd, &h->config.session, &frame, clock_seconds() + SEND_SECONDS);
}

static void send_heartbeat(struct heartbeat *h, double now) {
    struct activity_snapshot reading;
    uint8_t body[STORE_HEARTBEAT];
    activity_read(h->config.activity, &reading);
    store_write_heartbeat(&reading, body);
    if (!send_frame(h, FRAME_HEARTBEAT, body, sizeof body)) h->broken_at = now;
    h->send_at = now + HEARTBEAT_SECONDS;
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

/* ---- receiving ---- */

static void on_server_heartbeat(struct heartbeat *h, const struct store_frame *frame) {
    int64_t saved;
    if (!store_parse_server_heartbeat(frame, &saved, &h->last_of_0, h->rank_0_process)) return;
    if (saved > h->saved) launcher_send(MESSAGE_SAVED, 0, saved, "");
    if (saved > h->saved) h->saved = saved;
}

static void on_frame(struct heartbeat *h, const struct store_frame *frame) {
    char text[STORE_MAX_REPORT];
    struct store_job_failure failure;
    if (frame->type == FRAME_SERVER_HEARTBEAT) on_server_heartbeat(h, frame);
    if (frame->type == FRAME_BYE) h->has_bye = true;
    if (frame->type == FRAME_JOB_FAILURE && store_parse_job_failure(frame, &failure, text))
        set_failure(h, (enum status_code)failure.code, (int)failure.rank, failure.is_hang, text);
}

/* A frame was invalid or had a wrong tag: the failure names no rank. */
static void on_tampered(struct heartbeat *h, double now) {
    status why = store_tampered(h->endpoint);
    h->broken_at = now;
    set_failure(h, STATUS_PEER, NO_RANK, false, status_message(why));
    shutdown(h->config.fd, SHUT_RDWR);
    status_free(why);
}

static void read_frames(struct heartbeat *h, double now) {
    for (;;) {
        ssize_t received = recv(h->config.fd, h->input + h->size, INPUT - h->size, MSG_DONTWAIT);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == EAGAIN) return;
        if (received <= 0) {
            h->broken_at = now;
            return;
        }
        h->size += (size_t)received;
        h->received_at = now;
        struct store_frame frame;
        size_t used = 0;
        enum store_parsed parsed;
        while ((parsed = store_frame_parse(h->input, h->size, INPUT - STORE_HEADER, &frame, &used)) == PARSED_FRAME) {
            if (!store_frame_verify(&h->config.session, &frame)) {
                on_tampered(h, now);
                return;
            }
            on_frame(h, &frame);
            memmove(h->input, h->input + used, h->size - used);
            h->size -= used;
        }
        if (parsed == PARSED_INVALID) on_tampered(h, now);
        if (parsed == PARSED_INVALID) return;
    }
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

/* ---- rank 0 itself ---- */

static void check_rank_0(struct heartbeat *h, double now) {
    double silence = now - h->received_at;
    char how[160];
    if (h->has_bye) return;
    if (h->broken_at > 0) {
        bool is_explained = *h->exit_of_0 != 0;
        if (is_explained)
            on_rank_0_lost(h, h->exit_of_0, true);
        else if (now >= h->broken_at + EXIT_SECONDS)
            on_rank_0_lost(h, " exited without reporting an error, or the connection to it broke", true);
    } else if (silence >= MEMBERS_SILENT_SECONDS && net_link_age(h->config.fd) >= MEMBERS_SILENT_SECONDS - 0.5) {
        snprintf(how, sizeof how,
                 " is unreachable: its host has not answered for %.1f s (the network failed, or the host is down)",
                 silence);
        on_rank_0_lost(h, how, false);
    } else if (silence >= MEMBERS_STOPPED_SECONDS) {
        snprintf(how, sizeof how,
                 " hangs: its process has not run for %.1f s although its host answers (is it stopped?)", silence);
        on_rank_0_lost(h, how, false);
    }
}

/* ---- the loop ---- */

static double next_deadline(const struct heartbeat *h, double now) {
    double next = h->send_at;
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

/* The time in which this process did not run is no silence of rank 0. poll returns after HEARTBEAT_SECONDS at most. */
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
        double left = next_deadline(h, now) - now;
        struct pollfd polls[] = {{.fd = h->broken_at > 0 || h->has_bye ? -1 : h->config.fd, .events = POLLIN},
                                 {.fd = h->wake, .events = POLLIN},
                                 {.fd = h->is_stop_requested ? -1 : h->config.stop, .events = POLLIN},
                                 {.fd = launcher_exits_fd(), .events = POLLIN}};
        if (poll(polls, 4, left <= 0 ? 0 : (int)(left * 1000) + 1) < 0 && errno != EINTR) return NULL;
        now = clock_seconds();
        check_pause(h, now); /* most pauses fall into poll */
        if (is_set(h->wake)) return NULL;
        forward_exits(h);                   /* first: MESSAGE_TERMINATE is the reason of a SIGTERM that follows it */
        if (polls[2].revents) leave_job(h); /* the event stays set for store_close */
        if (polls[0].revents) read_frames(h, now);
        check_rank_0(h, now);
        if (h->overdue_at > 0 && now >= h->overdue_at) end_overdue(h);
    }
}

/* ---- start and stop ---- */

static void release(struct heartbeat *h) {
    close(h->config.fd);
    close(h->config.requests);
    if (h->wake >= 0) close(h->wake);
    status_free(h->leaving);
    session_end(&h->config.session);
    pthread_mutex_destroy(&h->mutex);
    free(h);
}

status heartbeat_start(const struct heartbeat_config *config, struct heartbeat **out) {
    *out = NULL;
    struct heartbeat *h = calloc(1, sizeof *h);
    if (!h) {
        close(config->fd);
        close(config->requests);
        return status_memory("the heartbeat");
    }
    pthread_mutex_init(&h->mutex, NULL);
    h->config = *config;
    snprintf(h->endpoint, sizeof h->endpoint, "%s", config->endpoint);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    static const char *const what = "the heartbeat thread";
    status s = h->wake < 0 || config->requests < 0 ? status_errno(STATUS_IO, EMFILE, "cannot start %s", what)
                                                   : thread_start(&h->thread, "heartbeat", what, run, h);
    if (s) {
        release(h);
        return s;
    }
    *out = h;
    return OK;
}

void heartbeat_stop(struct heartbeat *h) {
    if (!h) return;
    uint64_t one = 1;
    while (write(h->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
    pthread_join(h->thread, NULL);
    release(h);
}

enum status_code heartbeat_failure(struct heartbeat *h, struct text *out) {
    pthread_mutex_lock(&h->mutex);
    enum status_code code = h->code;
    if (code != STATUS_OK && out && !h->is_own) text_add(out, h->why);
    pthread_mutex_unlock(&h->mutex);
    return code;
}

status heartbeat_leave_reason(struct heartbeat *h, double timeout) {
    status reason = OK;
    for (double end = clock_seconds() + timeout; !reason && clock_seconds() < end;) {
        pthread_mutex_lock(&h->mutex);
        if (h->leaving) reason = status_new(status_code(h->leaving), "%s", status_message(h->leaving));
        pthread_mutex_unlock(&h->mutex);
        if (!reason) clock_sleep(0.001);
    }
    return reason;
}

status heartbeat_on_failure(struct heartbeat *h, void (*handler)(void *data), void *data) {
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

void heartbeat_off_failure(struct heartbeat *h, void *data) {
    pthread_mutex_lock(&h->mutex);
    size_t kept = 0;
    for (size_t i = 0; i < h->handler_count; i++)
        if (h->handlers[i].data != data) h->handlers[kept++] = h->handlers[i];
    h->handler_count = kept;
    pthread_mutex_unlock(&h->mutex);
}
