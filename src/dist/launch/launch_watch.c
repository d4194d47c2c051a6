/* One start of all ranks of this node: a poll loop over a signalfd and over the messages and output of the ranks.
 * Phases: running; collecting (a rank lost a peer: waits 0.3 s for the report of the cause); stopping (SIGTERM sent);
 * killing (SIGKILL sent); giving up (a rank survived SIGKILL). */
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

#define FAILURE_GRACE 5.0   /* for the other ranks after a failure: they have nothing to save */
#define HANGING_SECONDS 0.5 /* for a rank that was reported as hanging to end by itself */
#define COLLECT_SECONDS 0.3
#define KILL_SECONDS 5.0 /* for the kernel to end ranks after SIGKILL */
#define SECOND_SIGNAL_SECONDS 1.0
#define LOST_NODE_SECONDS 2.0 /* for ranks to detect by themselves that another node has ended */

enum phase { RUNNING, COLLECTING, STOPPING, KILLING, GIVING_UP };

struct launcher {
    struct launched_rank *ranks; /* (count) */
    int count, alive, order;
    enum phase phase;
    double phase_ends;   /* clock_seconds(); not for RUNNING */
    double requested_at; /* time of the first signal */
    struct launch_start *start;
    struct launch_memory memory;
    long oom_before;
    struct launch_job_failure job_failure;
    int lost_node;        /* the ranks were stopped because they would wait for this node; -1: none */
    struct pollfd *polls; /* (1 + 2 count + nodes) */
};

/* ---- ends of ranks ---- */

static void on_failure(struct launcher *l, struct launched_rank *r, const struct launcher_packet *packet) {
    if (r->has_report) return;
    r->has_report = true;
    r->code = packet->code;
    memcpy(r->text, packet->text, sizeof r->text);
    launch_output_note(r, r->text);
    if (!r->order) r->order = ++l->order;
}

static void on_job_failure(struct launcher *l, const struct launcher_packet *packet) {
    if (l->job_failure.is_known) return;
    l->job_failure = (struct launch_job_failure){.is_known = true,
                                                 .is_hang = packet->message == MESSAGE_HANG,
                                                 .code = packet->code,
                                                 .rank = (int)packet->number,
                                                 .at = clock_seconds()};
    memcpy(l->job_failure.text, packet->text, sizeof l->job_failure.text);
}

/* The launcher prints restarts and the cause of a failure: they are added to what rank 0 logs. */
static void open_log(struct log *log, const char *folder) {
    struct text path = {0};
    if (!log) return;
    text_printf(&path, "%s/log.txt", folder);
    status_free(log_open_file(log, text_string(&path))); /* the terminal has it all */
    text_free(&path);
}

static void on_packet(struct launcher *l, struct launched_rank *r, struct launcher_packet *packet) {
    struct launch_start *start = l->start;
    packet->text[sizeof packet->text - 1] = 0;
    switch (packet->message) {
    case MESSAGE_FAILURE:
        on_failure(l, r, packet);
        break;
    case MESSAGE_JOB_FAILURE:
    case MESSAGE_HANG:
        on_job_failure(l, packet);
        break;
    case MESSAGE_JOINED: /* node n has the ranks n * count ... */
        launch_nodes_joined(start->nodes, packet->number < 0 ? -1 : (int)(packet->number / l->count));
        break;
    case MESSAGE_RESTART_COUNT:
        start->restart_count = packet->number;
        break;
    case MESSAGE_RESUMED:
        start->has_begun = true;
        launch_output_open(r, packet->text);
        if (r->rank == 0) open_log(start->log, packet->text);
        if (packet->number > start->checkpoint) start->checkpoint = packet->number;
        break;
    case MESSAGE_SAVED:
        if (packet->number > start->checkpoint) start->checkpoint = packet->number;
        break;
    default:
        break;
    }
}

/* Receives one packet, and the descriptor that was passed with it; -1: none. */
static ssize_t receive(int fd, struct launcher_packet *packet, int *passed) {
    struct iovec bytes = {.iov_base = packet, .iov_len = sizeof *packet};
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof *passed)];
    } control = {0};
    struct msghdr whole = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space};
    ssize_t received = recvmsg(fd, &whole, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *first = received > 0 ? CMSG_FIRSTHDR(&whole) : NULL;
    *passed = -1;
    if (first && first->cmsg_level == SOL_SOCKET && first->cmsg_type == SCM_RIGHTS)
        memcpy(passed, CMSG_DATA(first), sizeof *passed);
    return received;
}

static void on_link(struct launcher *l, const struct launcher_packet *packet, int fd) {
    struct store_session session;
    static_assert(sizeof session <= LAUNCHER_MAX_SESSION, "a packet must have space for a session");
    memcpy(&session, packet->session, sizeof session);
    if (fd >= 0) launch_nodes_set_link(l->start->nodes, (int)packet->number / l->count, fd, &session);
    session_end(&session);
}

static void read_report(struct launcher *l, struct launched_rank *r) {
    struct launcher_packet packet;
    int passed;
    while (r->report >= 0) {
        ssize_t received = receive(r->report, &packet, &passed);
        if (received < 0 && errno == EINTR) continue;
        if (received < 0 && errno == EAGAIN) return;
        bool is_link = received == sizeof packet && packet.message == MESSAGE_LINK;
        if (passed >= 0 && !is_link) close(passed);
        if (received != sizeof packet) { /* closed, or malformed */
            close(r->report);
            r->report = -1;
            return;
        }
        if (is_link)
            on_link(l, &packet, passed);
        else
            on_packet(l, r, &packet);
        explicit_bzero(packet.session, sizeof packet.session);
    }
}

static void send_to_ranks(const struct launcher *l, const struct launcher_packet *packet) {
    for (int i = 0; i < l->count; i++)
        if (l->ranks[i].exits >= 0) send(l->ranks[i].exits, packet, sizeof *packet, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Sends how a rank ended to the others, which report it to the store: only the parent gets the signal that killed it.
 */
static void report_exit(struct launcher *l, const struct launched_rank *ended) {
    struct text text = {0};
    l->memory.has_oom = l->oom_before >= 0 && launch_oom_kills() > l->oom_before;
    if (l->phase < STOPPING && launch_has_failed(ended)) launch_describe_end(ended, &l->memory, &text);
    if (text.length > 0) {
        struct launcher_packet packet = {.message = MESSAGE_RANK_EXIT, .number = ended->rank};
        snprintf(packet.text, sizeof packet.text, "%s", text.data);
        send_to_ranks(l, &packet);
    }
    text_free(&text);
}

/* Kills the rest of the rank's process group before the rank is reaped, while its group id cannot be reused. */
static void reap(struct launcher *l, struct launched_rank *r) {
    siginfo_t info = {0};
    struct rusage usage = {0};
    if (r->has_ended || !r->pid || waitid(P_PID, (id_t)r->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == 0)
        return;
    kill(-r->pid, SIGKILL);
    while (wait4(r->pid, &r->wait_status, 0, &usage) < 0 && errno == EINTR) {
    }
    r->peak_kib = usage.ru_maxrss;
    read_report(l, r);
    if (r->report >= 0) close(r->report);
    if (r->exits >= 0) close(r->exits);
    r->report = r->exits = -1;
    r->has_ended = true;
    if (!r->order) r->order = ++l->order;
    l->alive--;
    report_exit(l, r);
    launch_output_read(r);
}

/* ---- shutdown: SIGTERM, then SIGKILL ---- */

/* Without it, a rank would take the SIGTERM for a request of the user and report that to the others. */
static void announce_termination(const struct launcher *l) {
    send_to_ranks(l, &(struct launcher_packet){.message = MESSAGE_TERMINATE});
}

static void signal_all(struct launcher *l, int number) {
    if (number == SIGTERM && l->start->stop == STOP_NONE) announce_termination(l);
    for (int i = 0; i < l->count; i++) {
        struct launched_rank *r = &l->ranks[i];
        if (r->has_ended || !r->pid) continue;
        r->was_signalled = true;
        kill(number == SIGKILL ? -r->pid : r->pid, number);
        kill(r->pid, SIGCONT); /* a rank that is stopped (SIGSTOP) does not handle SIGTERM */
    }
}

static void enter(struct launcher *l, enum phase phase, double seconds) {
    l->phase = phase;
    l->phase_ends = clock_seconds() + seconds;
}

static void begin_stopping(struct launcher *l, double grace) {
    if (l->phase >= STOPPING) return;
    signal_all(l, SIGTERM);
    enter(l, STOPPING, grace);
}

static void begin_killing(struct launcher *l) {
    if (l->phase >= KILLING) return;
    signal_all(l, SIGKILL);
    enter(l, KILLING, KILL_SECONDS);
}

static double failure_grace(const struct launcher *l) {
    double grace = l->job_failure.is_hang ? HANG_GRACE : FAILURE_GRACE;
    return l->start->grace < grace ? l->start->grace : grace;
}

/* A rank that failed by itself starts the shutdown at once; after the loss of a peer the cause may still arrive. */
static void check_failures(struct launcher *l) {
    bool has_cause = false, has_peer_loss = false;
    for (int i = 0; i < l->count; i++) {
        if (!launch_has_failed(&l->ranks[i])) continue;
        if (launch_lost_peer(&l->ranks[i]))
            has_peer_loss = true;
        else
            has_cause = true;
    }
    if (has_cause) {
        double now = clock_seconds(), grace = failure_grace(l);
        bool is_waiting_for_save = l->phase == STOPPING && l->phase_ends > now + grace;
        if (is_waiting_for_save) l->phase_ends = now + grace; /* without the failed rank they cannot save */
        begin_stopping(l, grace);
    } else if (has_peer_loss && l->phase == RUNNING) {
        enter(l, COLLECTING, COLLECT_SECONDS);
    }
}

/* Kills a rank that was reported as hanging: it cannot save, and the others may wait on its connections. */
static void kill_hanging(struct launcher *l) {
    bool is_due = l->job_failure.is_known && l->job_failure.code == STATUS_PEER &&
                  clock_seconds() >= l->job_failure.at + HANGING_SECONDS;
    for (int i = 0; is_due && i < l->count; i++) {
        struct launched_rank *r = &l->ranks[i];
        if (r->rank != l->job_failure.rank || r->has_ended || !r->pid || r->has_report) continue;
        r->was_signalled = true;
        kill(-r->pid, SIGKILL);
    }
}

/* Ranks that detect the loss themselves have ended before, with the cause. */
static void check_lost_nodes(struct launcher *l) {
    if (l->phase != RUNNING || launch_nodes_lost_unfinished(l->start->nodes, LOST_NODE_SECONDS) < 0) return;
    l->lost_node = launch_nodes_lost_unfinished(l->start->nodes, LOST_NODE_SECONDS);
    begin_stopping(l, failure_grace(l));
}

/* A rank that stopped before it joined was not reported to the store, so the others may wait for it. */
static void check_early_stops(struct launcher *l) {
    struct launch_start *start = l->start;
    for (int i = 0; i < l->count && start->stop == STOP_NONE; i++) {
        if (l->ranks[i].was_signalled || !launch_stopped_early(&l->ranks[i])) continue;
        start->stop = STOP_ELSEWHERE;
        if (l->alive > 0) log_line(start->log, "stopping: rank %d has stopped on request", l->ranks[i].rank);
        begin_stopping(l, start->grace);
    }
}

/* The ranks of another node have all stopped on request: stops those of this node, with the same grace period. */
static void check_stopped_nodes(struct launcher *l) {
    struct launch_start *start = l->start;
    if (start->stop != STOP_NONE || launch_nodes_stopped(start->nodes) < 0) return;
    start->stop = STOP_ELSEWHERE;
    if (l->alive > 0)
        log_line(start->log, "stopping: the ranks of node %d have stopped on request",
                 launch_nodes_stopped(start->nodes));
    begin_stopping(l, start->grace);
}

static void next_phase(struct launcher *l) {
    if (l->phase == RUNNING || clock_seconds() < l->phase_ends) return;
    if (l->phase == COLLECTING)
        begin_stopping(l, failure_grace(l));
    else if (l->phase == STOPPING)
        begin_killing(l);
    else
        l->phase = GIVING_UP;
}

/* ---- signals to the launcher ---- */

static void on_request(struct launcher *l, int number) {
    double now = clock_seconds();
    if (l->start->stop < STOP_REQUESTED) {
        l->start->stop = STOP_REQUESTED;
        l->requested_at = now;
        bool saves = l->start->job->config->saves;
        log_line(l->start->log, "stopping%s (SIG%s)%s", saves ? " after this step" : "", sigabbrev_np(number),
                 number == SIGINT ? "; press Ctrl-C again to end at once"
                 : saves          ? "; waiting for the ranks to save"
                                  : "");
        begin_stopping(l, l->start->grace);
        return;
    }
    /* schedulers and terminals that are closed send several signals in a row, which count as one */
    bool is_repeatable = number == SIGTERM || number == SIGHUP;
    bool is_second = number == SIGINT || (is_repeatable && now - l->requested_at >= SECOND_SIGNAL_SECONDS);
    if (!is_second) return;
    l->start->stop = STOP_NOW;
    begin_killing(l);
}

static void read_signals(struct launcher *l) {
    struct signalfd_siginfo info;
    while (read(l->start->signals, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD) on_request(l, (int)info.ssi_signo);
}

/* ---- the loop ---- */

static void poll_once(struct launcher *l) {
    int timeout = l->job_failure.is_known ? (int)(HANGING_SECONDS * 1000) : -1;
    double next =
        l->phase != RUNNING ? l->phase_ends : launch_nodes_lost_unfinished_time(l->start->nodes, LOST_NODE_SECONDS);
    if (next > 0) {
        double left = next - clock_seconds();
        int until_next = left <= 0 ? 0 : (int)(left * 1000) + 1;
        if (timeout < 0 || until_next < timeout) timeout = until_next;
    }
    l->polls[0] = (struct pollfd){.fd = l->start->signals, .events = POLLIN};
    for (int i = 0; i < l->count; i++) {
        l->polls[1 + 2 * i] = (struct pollfd){.fd = l->ranks[i].report, .events = POLLIN};
        l->polls[2 + 2 * i] = (struct pollfd){.fd = l->ranks[i].output, .events = POLLIN};
    }
    nfds_t nodes = (nfds_t)launch_nodes_poll(l->start->nodes, l->polls + 1 + 2 * l->count);
    if (poll(l->polls, 1 + 2 * (nfds_t)l->count + nodes, timeout) < 0 && errno != EINTR) return;
}

static void watch(struct launcher *l) {
    while (l->alive > 0 && l->phase != GIVING_UP) {
        poll_once(l);
        read_signals(l);
        for (int i = 0; i < l->count; i++) {
            read_report(l, &l->ranks[i]);
            launch_output_read(&l->ranks[i]);
            reap(l, &l->ranks[i]);
        }
        launch_nodes_read(l->start->nodes);
        check_early_stops(l);
        check_failures(l);
        check_stopped_nodes(l);
        check_lost_nodes(l);
        kill_hanging(l);
        next_phase(l);
    }
}

static status start_ranks(struct launcher *l) {
    struct launch_job *job = l->start->job;
    status failure = launch_prepare(job);
    for (int i = 0; i < l->count && !failure; i++) {
        failure = launch_spawn(job, i, &l->ranks[i]);
        if (!failure) l->alive++;
    }
    launch_release(job);
    return failure;
}

/* Whether the failure of this node must be reported to the other nodes: not if its ranks only lost other ranks. */
static bool has_own_failure(const struct launcher *l) {
    bool result = l->job_failure.is_known;
    for (int i = 0; i < l->count; i++) /* the reported failure of this rank is that it lost a peer */
        if (l->ranks[i].rank == l->job_failure.rank && launch_lost_peer(&l->ranks[i])) result = false;
    for (int i = 0; i < l->count; i++)
        result = result || (launch_has_failed(&l->ranks[i]) && !launch_lost_peer(&l->ranks[i]));
    return result;
}

static status result_of(struct launcher *l) {
    char host[256];
    host_name(host, sizeof host);
    for (int i = 0; i < l->count; i++)
        if (!l->ranks[i].has_ended)
            return status_new(STATUS_PEER,
                              "rank %d (host %s, pid %ld) did not end after SIGKILL: it hangs in the kernel",
                              l->ranks[i].rank, host, (long)l->ranks[i].pid);
    l->memory.has_oom = l->oom_before >= 0 && launch_oom_kills() > l->oom_before;
    struct launch_context context = {.host = host,
                                     .memory = l->memory,
                                     .job_failure = l->job_failure,
                                     .stop = l->start->stop,
                                     .grace = l->start->grace,
                                     .saves = l->start->job->config->saves};
    status failure = launch_result(l->ranks, l->count, &context);
    bool waited_for_node = l->lost_node >= 0 && l->start->stop == STOP_NONE && status_code(failure) == STATUS_STOPPED;
    if (!waited_for_node) return failure;
    status_free(failure);
    return status_new(STATUS_PEER, "the ranks of this node waited for those of node %d, whose launcher %s",
                      l->lost_node, launch_nodes_describe_loss(l->start->nodes, l->lost_node));
}

static void release(struct launcher *l) {
    for (int i = 0; l->ranks && i < l->count; i++) {
        struct launched_rank *r = &l->ranks[i];
        if (r->report >= 0) close(r->report);
        if (r->exits >= 0) close(r->exits);
        activity_destroy(r->activity);
        launch_output_close(r);
    }
    free(l->ranks);
    free(l->polls);
}

status launch_once(struct launch_start *start) {
    struct launcher l = {.count = start->job->config->nproc,
                         .lost_node = -1,
                         .start = start,
                         .oom_before = launch_oom_kills(),
                         .memory = {.limit_gib = launch_memory_limit()}};
    l.ranks = calloc((size_t)l.count, sizeof *l.ranks);
    l.polls = calloc(2 * (size_t)l.count + 1 + (size_t)start->job->config->nnodes, sizeof *l.polls);
    for (int i = 0; l.ranks && i < l.count; i++)
        l.ranks[i].report = l.ranks[i].exits = l.ranks[i].output = l.ranks[i].log = -1;
    status failure = l.ranks && l.polls ? start_ranks(&l) : status_memory("the start of %d ranks", l.count);
    if (failure) begin_killing(&l);
    watch(&l);
    launch_nodes_read(start->nodes);
    check_early_stops(&l);
    check_stopped_nodes(&l);
    start->has_own_failure = failure || has_own_failure(&l);
    if (!failure) failure = result_of(&l);
    launch_end(start->job);
    release(&l);
    return failure;
}

void launch_pause(struct launch_start *start, double seconds) {
    double until = clock_seconds() + seconds, left;
    struct pollfd *polls = calloc((size_t)start->job->config->nnodes + 1, sizeof *polls);
    for (; polls && (left = until - clock_seconds()) > 0; launch_nodes_read(start->nodes)) {
        if (start->stop != STOP_NONE || launch_nodes_stopped(start->nodes) >= 0 || launch_nodes_lost(start->nodes) >= 0)
            break;
        struct signalfd_siginfo info;
        nfds_t count = (nfds_t)launch_nodes_poll(start->nodes, polls + 1);
        polls[0] = (struct pollfd){.fd = start->signals, .events = POLLIN};
        if (poll(polls, 1 + count, (int)(left * 1000) + 1) <= 0) continue;
        while (read(start->signals, &info, sizeof info) == sizeof info)
            if (info.ssi_signo != SIGCHLD) start->stop = STOP_REQUESTED;
    }
    free(polls);
}
