/* One start of all ranks of this node: one poll loop over a signalfd and what the ranks say and print. States: running;
 * collecting (a rank lost a peer: 0.3 s for the cause to show); stopping (SIGTERM sent); killing (SIGKILL sent). */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/net.h"

#define FAILURE_GRACE 5.0   /* others of a failed job: their checkpoints are complete or absent anyway */
#define HANGING_SECONDS 0.5 /* for a rank that was only slow to end by itself */
#define COLLECT_SECONDS 0.3
#define KILL_SECONDS 5.0 /* for the kernel to end what got SIGKILL */
#define SECOND_SECONDS 1.0
#define LOST_NODE_SECONDS 2.0 /* for ranks to notice by themselves that another node has ended */

enum phase { RUNNING, COLLECTING, STOPPING, KILLING, GIVING_UP };

struct launcher {
    struct launched_rank *ranks; /* (count) */
    int count, alive, order;
    enum phase phase;
    double phase_ends; /* not for RUNNING */
    double asked_at;
    struct launch_start *start;
    struct launch_memory memory;
    long oom_before;
    struct launch_news news;
    int lost_node;        /* without which the ranks would wait; -1: none */
    struct pollfd *polls; /* (1 + 2 count + nodes) */
};

/* ---- ends of ranks ---- */

static void on_failure(struct launcher *a, struct launched_rank *r, const struct launcher_packet *packet) {
    if (r->has_report) return;
    r->has_report = true;
    r->code = packet->code;
    memcpy(r->sentence, packet->sentence, sizeof r->sentence);
    output_note(r, r->sentence);
    if (!r->order) r->order = ++a->order;
}

static void on_news(struct launcher *a, const struct launcher_packet *packet) {
    if (a->news.is_known) return;
    a->news = (struct launch_news){.is_known = true,
                                   .is_standstill = packet->message == MESSAGE_STANDSTILL,
                                   .code = packet->code,
                                   .rank = (int)packet->number,
                                   .at = clock_seconds()};
    memcpy(a->news.sentence, packet->sentence, sizeof a->news.sentence);
}

static void on_packet(struct launcher *a, struct launched_rank *r, struct launcher_packet *packet) {
    struct launch_start *start = a->start;
    packet->sentence[sizeof packet->sentence - 1] = 0;
    switch (packet->message) {
    case MESSAGE_FAILURE:
        on_failure(a, r, packet);
        break;
    case MESSAGE_NEWS:
    case MESSAGE_STANDSTILL:
        on_news(a, packet);
        break;
    case MESSAGE_JOINED: /* ranks are numbered node by node */
        nodes_joined(start->nodes, packet->number < 0 ? -1 : (int)(packet->number / a->count));
        break;
    case MESSAGE_INCARNATION:
        start->incarnation = packet->number;
        break;
    case MESSAGE_RESUMED:
        start->has_begun = true;
        output_open(r, packet->sentence);
        if (packet->number > start->checkpoint) start->checkpoint = packet->number;
        break;
    case MESSAGE_SAVED:
        if (packet->number > start->checkpoint) start->checkpoint = packet->number;
        break;
    default:
        break;
    }
}

/* One packet, and the descriptor that came with it; -1: none. */
static ssize_t receive(int fd, struct launcher_packet *packet, int *passed) {
    struct iovec bytes = {.iov_base = packet, .iov_len = sizeof *packet};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof *passed)];
    } control = {0};
    struct msghdr whole = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
    ssize_t got = recvmsg(fd, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *first = got > 0 ? CMSG_FIRSTHDR(&whole) : NULL;
    *passed = -1;
    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS)
        memcpy(passed, CMSG_DATA(first), sizeof *passed);
    return got;
}

/* Ranks are numbered node by node. */
static void on_link(struct launcher *a, const struct launcher_packet *packet, int fd) {
    struct store_session session;
    static_assert(sizeof session <= LAUNCHER_MAX_SESSION, "a packet must have space for a session");
    memcpy(&session, packet->session, sizeof session);
    if (fd >= 0) nodes_link(a->start->nodes, (int)packet->number / a->count, fd, &session);
    session_end(&session);
}

static void read_report(struct launcher *a, struct launched_rank *r) {
    struct launcher_packet packet;
    int passed;
    while (r->report >= 0) {
        ssize_t got = receive(r->report, &packet, &passed);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        bool is_link = got == sizeof packet && packet.message == MESSAGE_LINK;
        if (passed >= 0 && !is_link) close(passed);
        if (got != sizeof packet) { /* closed, or not ours */
            close(r->report);
            r->report = -1;
            return;
        }
        if (is_link)
            on_link(a, &packet, passed);
        else
            on_packet(a, r, &packet);
        explicit_bzero(packet.session, sizeof packet.session);
    }
}

/* Only a parent knows the signal that killed a rank; the others tell it to the store. */
static void tell_death(struct launcher *a, const struct launched_rank *dead) {
    struct text fate = {0};
    a->memory.has_oom = a->oom_before >= 0 && launch_oom_kills() > a->oom_before;
    if (a->phase < STOPPING && launch_has_failed(dead)) launch_describe_end(dead, &a->memory, &fate);
    if (fate.length > 0) {
        struct launcher_packet packet = {.message = MESSAGE_DEATH, .number = dead->rank};
        snprintf(packet.sentence, sizeof packet.sentence, "%s", fate.data);
        for (int i = 0; i < a->count; i++)
            if (a->ranks[i].news >= 0) send(a->ranks[i].news, &packet, sizeof packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    text_free(&fate);
}

/* Before the rank is reaped its process group cannot be anyone else's: what it left behind there ends now. */
static void reap(struct launcher *a, struct launched_rank *r) {
    siginfo_t info = {0};
    struct rusage usage = {0};
    if (r->is_over || !r->pid || waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return;
    kill(-r->pid, SIGKILL);
    while (wait4(r->pid, &r->wait_status, 0, &usage) < 0 && errno == EINTR) {
    }
    r->peak_kib = usage.ru_maxrss;
    read_report(a, r);
    if (r->report >= 0) close(r->report);
    if (r->news >= 0) close(r->news);
    r->report = r->news = -1;
    r->is_over = true;
    if (!r->order) r->order = ++a->order;
    a->alive--;
    tell_death(a, r);
    output_read(r);
}

/* ---- the ladder ---- */

/* A rank that gets SIGTERM would else tell the others that its user wants the job to stop. */
static void announce_end(const struct launcher *a) {
    struct launcher_packet packet = {.message = MESSAGE_END};
    for (int i = 0; i < a->count; i++)
        if (a->ranks[i].news >= 0) send(a->ranks[i].news, &packet, sizeof packet, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void signal_all(struct launcher *a, int number) {
    if (number == SIGTERM && a->start->stop == STOP_NONE) announce_end(a);
    for (int i = 0; i < a->count; i++) {
        struct launched_rank *r = &a->ranks[i];
        if (r->is_over || !r->pid) continue;
        r->was_ended_by_us = true;
        kill(number == SIGKILL ? -r->pid : r->pid, number);
        kill(r->pid, SIGCONT); /* a stopped rank cannot answer SIGTERM */
    }
}

static void enter(struct launcher *a, enum phase phase, double seconds) {
    a->phase = phase;
    a->phase_ends = clock_seconds() + seconds;
}

static void begin_stopping(struct launcher *a, double grace) {
    if (a->phase >= STOPPING) return;
    signal_all(a, SIGTERM);
    enter(a, STOPPING, grace);
}

static void begin_killing(struct launcher *a) {
    if (a->phase >= KILLING) return;
    signal_all(a, SIGKILL);
    enter(a, KILLING, KILL_SECONDS);
}

static double failure_grace(const struct launcher *a) {
    double most = a->news.is_standstill ? STANDSTILL_GRACE : FAILURE_GRACE;
    return a->start->grace < most ? a->start->grace : most;
}

/* A failure starts the ladder: at once when it is a cause; one that lost a peer waits for the cause first. */
static void look_for_failures(struct launcher *a) {
    bool has_cause = false, has_peer_loss = false;
    for (int i = 0; i < a->count; i++) {
        if (!launch_has_failed(&a->ranks[i])) continue;
        if (launch_lost_peer(&a->ranks[i]))
            has_peer_loss = true;
        else
            has_cause = true;
    }
    if (has_cause) {
        double now = clock_seconds(), grace = failure_grace(a);
        bool is_waiting_for_save = a->phase == STOPPING && a->phase_ends > now + grace;
        if (is_waiting_for_save) a->phase_ends = now + grace; /* with a rank less they cannot save */
        begin_stopping(a, grace);
    } else if (has_peer_loss && a->phase == RUNNING) {
        enter(a, COLLECTING, COLLECT_SECONDS);
    }
}

/* A rank that the others found hanging cannot save, and its connections may be all that they wait for. */
static void end_hanging(struct launcher *a) {
    bool is_time = a->news.is_known && a->news.code == STATUS_PEER && clock_seconds() >= a->news.at + HANGING_SECONDS;
    for (int i = 0; is_time && i < a->count; i++) {
        struct launched_rank *r = &a->ranks[i];
        if (r->rank != a->news.rank || r->is_over || !r->pid || r->has_report) continue;
        r->was_ended_by_us = true;
        kill(-r->pid, SIGKILL);
    }
}

/* Ranks that learn of it themselves have ended by then, with the first cause. */
static void look_for_lost_nodes(struct launcher *a) {
    if (a->phase != RUNNING || nodes_missed(a->start->nodes, LOST_NODE_SECONDS) < 0) return;
    a->lost_node = nodes_missed(a->start->nodes, LOST_NODE_SECONDS);
    begin_stopping(a, failure_grace(a));
}

/* The others may wait for it until their timeout, since no store knows of it. */
static void look_for_early_stops(struct launcher *a) {
    struct launch_start *start = a->start;
    for (int i = 0; i < a->count && start->stop == STOP_NONE; i++) {
        if (a->ranks[i].was_ended_by_us || !launch_left_early(&a->ranks[i])) continue;
        start->stop = STOP_ELSEWHERE;
        if (a->alive > 0) log_line(start->log, "stopping: rank %d has stopped on request", a->ranks[i].rank);
        begin_stopping(a, start->grace);
    }
}

/* Its ranks have all left: those of this node end, too, and have as long for it as if they had been asked here. */
static void look_for_stopped_nodes(struct launcher *a) {
    struct launch_start *start = a->start;
    if (start->stop != STOP_NONE || nodes_stopped(start->nodes) < 0) return;
    start->stop = STOP_ELSEWHERE;
    if (a->alive > 0)
        log_line(start->log, "stopping: the ranks of node %d have stopped on request", nodes_stopped(start->nodes));
    begin_stopping(a, start->grace);
}

static void next_phase(struct launcher *a) {
    if (a->phase == RUNNING || clock_seconds() < a->phase_ends) return;
    if (a->phase == COLLECTING)
        begin_stopping(a, failure_grace(a));
    else if (a->phase == STOPPING)
        begin_killing(a);
    else
        a->phase = GIVING_UP;
}

/* ---- signals to the launcher ---- */

static void on_request(struct launcher *a, int number) {
    double now = clock_seconds();
    if (a->start->stop < STOP_ASKED) {
        a->start->stop = STOP_ASKED;
        a->asked_at = now;
        bool saves = a->start->job->config->saves;
        log_line(a->start->log, "stopping%s (SIG%s)%s", saves ? " after this step" : "", sigabbrev_np(number),
                 number == SIGINT ? "; press Ctrl-C again to end at once"
                 : saves          ? "; waiting for the ranks to save"
                                  : "");
        begin_stopping(a, a->start->grace);
        return;
    }
    /* schedulers and closing terminals send several signals in a row; only a person's second one is meant so */
    bool is_person = number == SIGTERM || number == SIGHUP;
    bool is_meant = number == SIGINT || (is_person && now - a->asked_at >= SECOND_SECONDS);
    if (!is_meant) return;
    a->start->stop = STOP_AT_ONCE;
    begin_killing(a);
}

static void read_signals(struct launcher *a) {
    struct signalfd_siginfo info;
    while (read(a->start->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) on_request(a, (int)info.ssi_signo);
}

/* ---- the loop ---- */

static void poll_once(struct launcher *a) {
    int timeout = a->news.is_known ? (int)(HANGING_SECONDS * 1000) : -1;
    double next = a->phase != RUNNING ? a->phase_ends : nodes_missed_time(a->start->nodes, LOST_NODE_SECONDS);
    if (next > 0) {
        double left = next - clock_seconds();
        int more = left <= 0 ? 0 : (int)(left * 1000) + 1;
        if (timeout < 0 || more < timeout) timeout = more;
    }
    a->polls[0] = (struct pollfd){.fd = a->start->signals, .events = POLLIN};
    for (int i = 0; i < a->count; i++) {
        a->polls[1 + 2 * i] = (struct pollfd){.fd = a->ranks[i].report, .events = POLLIN};
        a->polls[2 + 2 * i] = (struct pollfd){.fd = a->ranks[i].output, .events = POLLIN};
    }
    nfds_t more = (nfds_t)nodes_poll(a->start->nodes, a->polls + 1 + 2 * a->count);
    if (poll(a->polls, 1 + 2 * (nfds_t)a->count + more, timeout) < 0 && errno != EINTR) return;
}

static void watch(struct launcher *a) {
    while (a->alive > 0 && a->phase != GIVING_UP) {
        poll_once(a);
        read_signals(a);
        for (int i = 0; i < a->count; i++) {
            read_report(a, &a->ranks[i]);
            output_read(&a->ranks[i]);
            reap(a, &a->ranks[i]);
        }
        nodes_hear(a->start->nodes);
        look_for_early_stops(a);
        look_for_failures(a);
        look_for_stopped_nodes(a);
        look_for_lost_nodes(a);
        end_hanging(a);
        next_phase(a);
    }
}

static status start_ranks(struct launcher *a) {
    struct launch_job *job = a->start->job;
    status failure = launch_prepare(job);
    for (int i = 0; i < a->count && !failure; i++) {
        failure = launch_spawn(job, i, &a->ranks[i]);
        if (!failure) a->alive++;
    }
    launch_forget(job);
    return failure;
}

/* Whether the other nodes need to know of the end of this one: not when its ranks only waited for others in vain. */
static bool has_news(const struct launcher *a) {
    bool has_news = a->news.is_known;
    for (int i = 0; i < a->count; i++) /* the news of such a rank are that it missed others */
        if (a->ranks[i].rank == a->news.rank && launch_lost_peer(&a->ranks[i])) has_news = false;
    for (int i = 0; i < a->count; i++)
        has_news = has_news || (launch_has_failed(&a->ranks[i]) && !launch_lost_peer(&a->ranks[i]));
    return has_news;
}

static status result_of(struct launcher *a) {
    char host[256];
    host_name(host, sizeof host);
    for (int i = 0; i < a->count; i++)
        if (!a->ranks[i].is_over)
            return status_new(STATUS_PEER, "rank %d (host %s, pid %ld) cannot be ended: it hangs in the kernel",
                              a->ranks[i].rank, host, (long)a->ranks[i].pid);
    a->memory.has_oom = a->oom_before >= 0 && launch_oom_kills() > a->oom_before;
    struct launch_circumstances around = {.host = host,
                                          .memory = a->memory,
                                          .news = a->news,
                                          .stop = a->start->stop,
                                          .grace = a->start->grace,
                                          .saves = a->start->job->config->saves};
    status failure = launch_result(a->ranks, a->count, &around);
    bool waited_for_node = a->lost_node >= 0 && a->start->stop == STOP_NONE && status_code(failure) == STATUS_STOPPED;
    if (!waited_for_node) return failure;
    status_free(failure);
    return status_new(STATUS_PEER, "the ranks of this node waited for those of node %d, whose launcher %s",
                      a->lost_node, nodes_describe_loss(a->start->nodes, a->lost_node));
}

static void release(struct launcher *a) {
    for (int i = 0; a->ranks && i < a->count; i++) {
        struct launched_rank *r = &a->ranks[i];
        if (r->report >= 0) close(r->report);
        if (r->news >= 0) close(r->news);
        pulse_destroy(r->pulse);
        output_close(r);
    }
    free(a->ranks);
    free(a->polls);
}

status launch_once(struct launch_start *start) {
    struct launcher a = {.count = start->job->config->nproc,
                         .lost_node = -1,
                         .start = start,
                         .oom_before = launch_oom_kills(),
                         .memory = {.limit_gib = launch_memory_limit()}};
    a.ranks = calloc((size_t)a.count, sizeof *a.ranks);
    a.polls = calloc(2 * (size_t)a.count + 1 + (size_t)start->job->config->nnodes, sizeof *a.polls);
    for (int i = 0; a.ranks && i < a.count; i++)
        a.ranks[i].report = a.ranks[i].news = a.ranks[i].output = a.ranks[i].log = -1;
    status failure = a.ranks && a.polls ? start_ranks(&a) : status_memory("the start of %d ranks", a.count);
    if (failure) begin_killing(&a);
    watch(&a);
    nodes_hear(start->nodes);
    look_for_early_stops(&a);
    look_for_stopped_nodes(&a);
    start->has_news = failure || has_news(&a);
    if (!failure) failure = result_of(&a);
    release(&a);
    return failure;
}

void launch_pause(struct launch_start *start, double seconds) {
    double until = clock_seconds() + seconds, left;
    struct pollfd *polls = calloc((size_t)start->job->config->nnodes + 1, sizeof *polls);
    for (; polls && (left = until - clock_seconds()) > 0; nodes_hear(start->nodes)) {
        if (start->stop != STOP_NONE || nodes_stopped(start->nodes) >= 0 || nodes_lost(start->nodes) >= 0) break;
        struct signalfd_siginfo info;
        nfds_t count = (nfds_t)nodes_poll(start->nodes, polls + 1);
        polls[0] = (struct pollfd){.fd = start->signals, .events = POLLIN};
        if (poll(polls, 1 + count, (int)(left * 1000) + 1) <= 0) continue;
        while (read(start->signals, &info, sizeof info) == sizeof info)
            if (info.ssi_signo != SIGCHLD) start->stop = STOP_ASKED;
    }
    free(polls);
}
