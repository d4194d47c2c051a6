/* A poll loop over the connection, an eventfd and the launcher's socket. What it learns it keeps under a mutex;
 * handlers run under it too, so that one which was taken away is never called again. */
#include "dist/store/store_watch.h"

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
#include "base/thread.h"
#include "dist/process/launcher_channel.h"
#include "dist/process/net.h"
#include "dist/store/store_join.h"
#include "dist/store/store_members.h"

#define BEAT_SECONDS 0.2
#define SEND_SECONDS 1.0
#define PAUSE 1.0           /* a longer gap between two turns means that this process did not run */
#define DEATH_SECONDS 0.3   /* for the launcher to say how rank 0 died */
#define OVERDUE_SECONDS 5.0 /* after a failure; the launcher waits as long */
#define MAX_HANDLERS 32
#define NO_RANK (-1)
#define INPUT (STORE_HEADER + STORE_NEWS + STORE_MAX_REPORT + SESSION_TAG)

struct watch {
    struct watch_config config;
    char place[320];
    pthread_t thread;
    int wake; /* an eventfd: end the thread */

    /* the thread's */
    uint8_t input[INPUT];
    size_t size;
    double beat_at, heard_at, turn_at;
    double overdue_at; /* 0: nothing has failed */
    double broken_at;  /* of the connection; 0: it is whole */
    int64_t saved;     /* the newest that the launcher knows of */
    bool is_in_peace;  /* the server has said good-bye */
    bool is_asked;     /* to stop before training */
    bool is_ended;     /* the launcher ends this rank because another has failed */
    struct pulse_reading last_of_0;
    char who_is_0[STORE_MAX_WHO]; /* "": not known yet */

    pthread_mutex_t mutex; /* guards what follows */
    enum status_code code; /* STATUS_OK: no failure yet */
    bool is_own;           /* this rank failed first */
    status leaving;        /* why this rank leaves before training; NULL: nobody asked it to */
    char why[STORE_MAX_REPORT];
    char death_of_0[STORE_MAX_REPORT]; /* from the launcher; "": not known */
    struct {
        void (*call)(void *data);
        void *data;
    } handlers[MAX_HANDLERS];
    size_t handler_count;
};

/* ---- what fails ---- */

/* The first failure counts. It frees what is blocked and tells the launcher. After a standstill nothing is left that
 * would need more time to end. */
static void declare(struct watch *w, enum status_code code, int rank, bool is_standstill, const char *why) {
    pthread_mutex_lock(&w->mutex);
    bool is_first = w->code == STATUS_OK;
    if (is_first) {
        w->code = code;
        w->is_own = rank == w->config.rank;
        snprintf(w->why, sizeof w->why, "%s", why);
        for (size_t i = 0; i < w->handler_count; i++) w->handlers[i].call(w->handlers[i].data);
    }
    pthread_mutex_unlock(&w->mutex);
    if (!is_first) return;
    w->overdue_at = clock_seconds() + (is_standstill ? HANG_GRACE : OVERDUE_SECONDS);
    launcher_send(is_standstill ? MESSAGE_HANG : MESSAGE_JOB_FAILURE, (int)code, rank, why);
}

/* Then its store answers nobody: a request that waits for it on the other connection ends now. A rank that has asked
 * the job to stop expects that; the news of it may have been lost with the connection. */
static void lose_rank_0(struct watch *w, const char *how, bool has_gone) {
    struct text why = {0};
    if (w->leaving && status_code(w->leaving) == STATUS_STOPPED)
        declare(w, STATUS_STOPPED, w->config.rank, false, status_message(w->leaving));
    if (*w->who_is_0)
        text_printf(&why, "rank 0 (%s)%s", w->who_is_0, how);
    else
        text_printf(&why, "rank 0 (at %s)%s", w->place, how);
    if (how != w->death_of_0 && *w->who_is_0) members_last_seen(&w->last_of_0, &why);
    declare(w, STATUS_PEER, 0, !has_gone, why.data);
    shutdown(w->config.requests, SHUT_RDWR);
    text_free(&why);
}

/* ---- sending ---- */

static bool send_frame(struct watch *w, enum store_type type, const void *body, size_t size) {
    struct store_frame frame = {
        .type = type, .rank = (uint32_t)w->config.rank, .job = w->config.job, .body = body, .length = (uint32_t)size};
    return w->broken_at > 0 ||
           store_send_frame(w->config.fd, &w->config.session, &frame, clock_seconds() + SEND_SECONDS);
}

static void beat(struct watch *w, double now) {
    struct pulse_reading reading;
    uint8_t body[STORE_BEAT];
    pulse_read(w->config.pulse, &reading);
    store_write_beat(&reading, body);
    if (!send_frame(w, FRAME_BEAT, body, sizeof body)) w->broken_at = now;
    w->beat_at = now + BEAT_SECONDS;
}

static void leave_job(struct watch *w) {
    const char *sentence = w->is_ended ? "ended by its launcher, because another rank of its node had failed"
                           : w->config.trains_nothing
                               ? "asked to stop"
                               : "asked to stop before training began; there was nothing to save";
    uint8_t body[4 + STORE_MAX_REPORT];
    size_t length = strlen(sentence);
    store_write_u32(body, w->is_ended ? STATUS_PEER : STATUS_STOPPED);
    memcpy(body + 4, sentence, length); /* NOLINT(bugprone-not-null-terminated-result): frames have lengths */
    send_frame(w, FRAME_REPORT, body, 4 + length);
    pthread_mutex_lock(&w->mutex);
    w->is_asked = true;
    w->leaving = status_new(w->is_ended ? STATUS_PEER : STATUS_STOPPED, "%s", sentence);
    pthread_mutex_unlock(&w->mutex);
    if (w->overdue_at == 0) w->overdue_at = clock_seconds() + OVERDUE_SECONDS;
}

/* ---- hearing ---- */

static void on_tick(struct watch *w, const struct store_frame *frame) {
    int64_t saved;
    if (!store_parse_tick(frame, &saved, &w->last_of_0, w->who_is_0)) return;
    if (saved > w->saved) launcher_send(MESSAGE_SAVED, 0, saved, "");
    if (saved > w->saved) w->saved = saved;
}

static void on_frame(struct watch *w, const struct store_frame *frame) {
    char text[STORE_MAX_REPORT];
    struct store_news news;
    if (frame->type == FRAME_TICK) on_tick(w, frame);
    if (frame->type == FRAME_BYE) w->is_in_peace = true;
    if (frame->type == FRAME_NEWS && store_parse_news(frame, &news, text))
        declare(w, (enum status_code)news.code, (int)news.rank, news.is_standstill, text);
}

/* Nothing that came is to be believed, also not that rank 0 did anything wrong. */
static void lose_connection(struct watch *w, double now) {
    status why = store_tampered(w->place);
    w->broken_at = now;
    declare(w, STATUS_PEER, NO_RANK, false, status_message(why));
    shutdown(w->config.fd, SHUT_RDWR);
    status_free(why);
}

static void hear(struct watch *w, double now) {
    for (;;) {
        ssize_t got = recv(w->config.fd, w->input + w->size, INPUT - w->size, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) {
            w->broken_at = now;
            return;
        }
        w->size += (size_t)got;
        w->heard_at = now;
        struct store_frame frame;
        size_t used = 0;
        enum store_parsed parsed;
        while ((parsed = store_frame_parse(w->input, w->size, INPUT - STORE_HEADER, &frame, &used)) == PARSED_FRAME) {
            if (!store_frame_verify(&w->config.session, &frame)) {
                lose_connection(w, now);
                return;
            }
            on_frame(w, &frame);
            memmove(w->input, w->input + used, w->size - used);
            w->size -= used;
        }
        if (parsed == PARSED_BAD) lose_connection(w, now);
        if (parsed == PARSED_BAD) return;
    }
}

/* The launcher knows how a rank of this host ended; the store shall know, too. */
static void receive_deaths(struct watch *w) {
    char fate[STORE_MAX_REPORT];
    uint8_t body[4 + STORE_MAX_REPORT];
    int rank;
    while (launcher_receive_exit(&rank, fate, sizeof fate)) {
        size_t length = strlen(fate);
        w->is_ended = w->is_ended || rank < 0;
        if (rank < 0) continue;
        store_write_u32(body, (uint32_t)rank);
        memcpy(body + 4, fate, length); /* NOLINT(bugprone-not-null-terminated-result): frames have lengths */
        send_frame(w, FRAME_DEATH, body, 4 + length);
        pthread_mutex_lock(&w->mutex);
        if (rank == 0) snprintf(w->death_of_0, sizeof w->death_of_0, "%s", fate);
        pthread_mutex_unlock(&w->mutex);
    }
}

/* ---- rank 0 itself ---- */

static void check_server(struct watch *w, double now) {
    double silence = now - w->heard_at;
    char how[160];
    if (w->is_in_peace) return;
    if (w->broken_at > 0) {
        bool is_explained = *w->death_of_0 != 0;
        if (is_explained)
            lose_rank_0(w, w->death_of_0, true);
        else if (now >= w->broken_at + DEATH_SECONDS)
            lose_rank_0(w, " exited without reporting an error, or the connection to it broke", true);
    } else if (silence >= MEMBERS_SILENT && net_link_age(w->config.fd) >= MEMBERS_SILENT - 0.5) {
        snprintf(how, sizeof how,
                 " is out of reach: its host has not answered for %.1f s (a cut link, or the host is down)", silence);
        lose_rank_0(w, how, false);
    } else if (silence >= MEMBERS_STOPPED) {
        snprintf(how, sizeof how,
                 " hangs: its process has not run for %.1f s although its host answers (is it stopped?)", silence);
        lose_rank_0(w, how, false);
    }
}

/* ---- the loop ---- */

static double next_turn(const struct watch *w, double now) {
    double next = w->beat_at;
    if (w->overdue_at > 0 && w->overdue_at < next) next = w->overdue_at;
    double given_up_at = w->broken_at + DEATH_SECONDS;
    if (w->broken_at > 0 && given_up_at > now && given_up_at < next) next = given_up_at;
    return next;
}

static bool is_set(int event) {
    uint64_t count;
    return read(event, &count, sizeof count) == sizeof count;
}

static void end_overdue(struct watch *w) {
    char why[STORE_MAX_REPORT];
    pthread_mutex_lock(&w->mutex);
    enum status_code code = w->code != STATUS_OK ? w->code : w->is_ended ? STATUS_PEER : STATUS_STOPPED;
    snprintf(why, sizeof why, "%s",
             w->code != STATUS_OK       ? w->why
             : w->is_ended              ? "another rank of this node has failed"
             : w->config.trains_nothing ? "asked to stop"
                                        : "asked to stop before training began");
    pthread_mutex_unlock(&w->mutex);
    w->overdue_at = 0;
    if (w->config.overdue) w->config.overdue(code == STATUS_STOPPED ? STATUS_STOPPED : STATUS_PEER, why);
}

static void *run(void *argument) {
    struct watch *w = argument;
    w->heard_at = w->turn_at = clock_seconds();
    for (;;) {
        double now = clock_seconds();
        if (now - w->turn_at > PAUSE) w->heard_at += now - w->turn_at;
        w->turn_at = now;
        if (now >= w->beat_at) beat(w, now);
        double left = next_turn(w, now) - now;
        struct pollfd polls[] = {{.fd = w->broken_at > 0 || w->is_in_peace ? -1 : w->config.fd, .events = POLLIN},
                                 {.fd = w->wake, .events = POLLIN},
                                 {.fd = w->is_asked ? -1 : w->config.stop, .events = POLLIN},
                                 {.fd = launcher_exits_fd(), .events = POLLIN}};
        if (poll(polls, 4, left <= 0 ? 0 : (int)(left * 1000) + 1) < 0 && errno != EINTR) return NULL;
        now = clock_seconds();
        if (is_set(w->wake)) return NULL;
        receive_deaths(w);                  /* first: it may say why the other asks */
        if (polls[2].revents) leave_job(w); /* the event stays set for store_close */
        if (polls[0].revents) hear(w, now);
        check_server(w, now);
        if (w->overdue_at > 0 && now >= w->overdue_at) end_overdue(w);
    }
}

/* ---- life ---- */

static void release(struct watch *w) {
    close(w->config.fd);
    close(w->config.requests);
    if (w->wake >= 0) close(w->wake);
    status_free(w->leaving);
    session_end(&w->config.session);
    pthread_mutex_destroy(&w->mutex);
    free(w);
}

status watch_start(const struct watch_config *config, struct watch **out) {
    *out = NULL;
    struct watch *w = calloc(1, sizeof *w);
    if (!w) {
        close(config->fd);
        close(config->requests);
        return status_memory("the watch");
    }
    pthread_mutex_init(&w->mutex, NULL);
    w->config = *config;
    snprintf(w->place, sizeof w->place, "%s", config->place);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    static const char *const what = "the thread that watches the ranks";
    status s = w->wake < 0 || config->requests < 0 ? status_errno(STATUS_IO, EMFILE, "cannot start %s", what)
                                                   : thread_start(&w->thread, "watch", what, run, w);
    if (s) {
        release(w);
        return s;
    }
    *out = w;
    return OK;
}

void watch_stop(struct watch *w) {
    if (!w) return;
    uint64_t one = 1;
    while (write(w->wake, &one, sizeof one) < 0 && errno == EINTR) {
    }
    pthread_join(w->thread, NULL);
    release(w);
}

enum status_code watch_failure(struct watch *w, struct text *out) {
    pthread_mutex_lock(&w->mutex);
    enum status_code code = w->code;
    if (code != STATUS_OK && out && !w->is_own) text_add(out, w->why);
    pthread_mutex_unlock(&w->mutex);
    return code;
}

status watch_leaving(struct watch *w, double patience) {
    status reason = OK;
    for (double end = clock_seconds() + patience; !reason && clock_seconds() < end;) {
        pthread_mutex_lock(&w->mutex);
        if (w->leaving) reason = status_new(status_code(w->leaving), "%s", status_message(w->leaving));
        pthread_mutex_unlock(&w->mutex);
        if (!reason) clock_sleep(0.001);
    }
    return reason;
}

void watch_on_failure(struct watch *w, void (*handler)(void *data), void *data) {
    pthread_mutex_lock(&w->mutex);
    if (w->handler_count < MAX_HANDLERS) {
        w->handlers[w->handler_count].call = handler;
        w->handlers[w->handler_count++].data = data;
    }
    if (w->code != STATUS_OK) handler(data); /* it came too late */
    pthread_mutex_unlock(&w->mutex);
}

void watch_off_failure(struct watch *w, void *data) {
    pthread_mutex_lock(&w->mutex);
    size_t kept = 0;
    for (size_t i = 0; i < w->handler_count; i++)
        if (w->handlers[i].data != data) w->handlers[kept++] = w->handlers[i];
    w->handler_count = kept;
    pthread_mutex_unlock(&w->mutex);
}
