/* Links between the launchers of several nodes report how the ranks of each node ended, so that no launcher restarts
 * its ranks and waits for a node that has ended. The launcher of node 0 has a link to each of the others: a connection
 * that a rank has opened through the store, authenticated, and passed to its launcher with the session. Messages have
 * 12 bytes and a tag (message.h). When a launcher ends, for any reason, the kernel closes its links. Node 0
 * forwards the end of one node to the others. A message with a wrong tag closes the link. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/net.h"
#include "dist/store/store_frame.h"

#define MAGIC 0x4c504444u /* "DDPL" */
#define CONTENT_SIZE 12   /* magic, enum message, number: u32 each */
#define MESSAGE_SIZE (CONTENT_SIZE + SESSION_TAG)
#define WAIT_DONE_SECONDS 30.0
#define SILENCE_SECONDS 3.0 /* a link without acknowledgements, despite keep-alive every 2 s, is broken */

enum message {
    HELLO,          /* the launcher has got this connection */
    DONE,           /* all ranks of this node have exited with 0; number: their restart count */
    RESTART,        /* this node restarts its ranks; number: the new restart count */
    JOB_DONE,       /* from node 0: the ranks of all nodes have exited with 0 */
    STOPPED,        /* number: a node that ends on a request to stop; node 0 forwards it */
    LOST,           /* from node 0; number: a node whose launcher has ended before its ranks had all exited with 0 */
    LOST_AFTER_DONE /* from node 0; the same after its ranks had all exited with 0 */
};

struct launch_node {
    int fd;                /* -1: no link */
    bool is_launcher;      /* a message has arrived: the other end is a launcher, no longer a rank */
    bool has_send_failed;  /* a message was sent in part: later ones would have a wrong tag */
    bool is_job_done;      /* JOB_DONE was received */
    bool is_tampered;      /* a message had a wrong tag */
    bool was_linked;       /* it has had a link */
    bool has_joined;       /* a rank has joined the store in this start */
    double ended_at;       /* clock_seconds(); 0: it has not */
    int64_t done, restart; /* restart counts of the last DONE and RESTART; -1: none */
    struct message_session session;
    uint8_t input[MESSAGE_SIZE];
    size_t size;
};

struct launch_nodes {
    int count, own;
    int64_t restart_count;      /* of this node's ranks */
    int stopped;                /* the first node that ended on a request to stop; -1: none */
    struct launch_node items[]; /* (count); nodes other than 0 have a link to node 0 only */
};

status launch_nodes_create(int count, int own, struct launch_nodes **out) {
    struct launch_nodes *n = *out = calloc(1, sizeof *n + (size_t)count * sizeof n->items[0]);
    if (!n) return status_memory("the links to %d nodes", count);
    n->count = count;
    n->own = own;
    n->stopped = -1;
    for (int i = 0; i < count; i++) n->items[i] = (struct launch_node){.fd = -1, .done = -1, .restart = -1};
    return OK;
}

static void close_link(struct launch_node *node) {
    if (node->fd >= 0) close(node->fd);
    session_end(&node->session);
    node->fd = -1;
    node->is_launcher = node->has_send_failed = false;
    node->size = 0;
}

void launch_nodes_destroy(struct launch_nodes *n) {
    for (int i = 0; n && i < n->count; i++) close_link(&n->items[i]);
    free(n);
}

/* Does not block: the send buffer of a working link has space for a message. */
static void send_message(struct launch_node *node, enum message message, int64_t number) {
    uint8_t bytes[MESSAGE_SIZE];
    if (node->fd < 0 || node->has_send_failed) return;
    store_write_u32(bytes, MAGIC);
    store_write_u32(bytes + 4, message);
    store_write_u32(bytes + 8, (uint32_t)number);
    session_sign(&node->session, bytes, CONTENT_SIZE, bytes + CONTENT_SIZE);
    node->has_send_failed = !net_send(node->fd, bytes, sizeof bytes, clock_seconds());
}

static void send_to_all(struct launch_nodes *n, enum message message, int64_t number) {
    for (int i = 0; i < n->count; i++) send_message(&n->items[i], message, number);
}

void launch_nodes_set_link(struct launch_nodes *n, int number, int fd, const struct message_session *session) {
    if (!n || number < 0 || number >= n->count || number == n->own) {
        close(fd);
        return;
    }
    close_link(&n->items[number]);
    struct launch_node *node = &n->items[number];
    node->fd = fd;
    node->was_linked = true;
    node->session = *session;
    node->is_tampered = false;
    node->ended_at = 0;
    send_message(node, HELLO, 0);
}

bool launch_nodes_need_link(struct launch_nodes *n) {
    launch_nodes_read(n);
    return n && n->own != 0 && (!n->items[0].is_launcher || net_link_age(n->items[0].fd) > SILENCE_SECONDS);
}

/* ---- messages of other nodes ---- */

/* On node 0: sends a message about node [number] to all others. */
static void forward(struct launch_nodes *n, enum message message, int64_t number) {
    for (int i = 0; i < n->count && n->own == 0; i++)
        if (i != number) send_message(&n->items[i], message, number);
}

static bool is_done(const struct launch_nodes *n, const struct launch_node *node) {
    return node->done >= n->restart_count;
}

/* Only the first node counts: the others stop because of it. */
static void on_stopped(struct launch_nodes *n, int64_t number) {
    if (n->stopped >= 0 || number >= n->count || number == n->own) return;
    n->stopped = (int)number;
    forward(n, STOPPED, number);
}

/* The launcher of node [number] has ended, without STOPPED before. */
static void on_lost(struct launch_nodes *n, int64_t number) {
    if (n->stopped >= 0 || number >= n->count || number == n->own || n->items[number].ended_at > 0) return;
    struct launch_node *node = &n->items[number];
    node->ended_at = clock_seconds();
    forward(n, is_done(n, node) ? LOST_AFTER_DONE : LOST, number);
}

static void on_message(struct launch_nodes *n, struct launch_node *node, enum message message, int64_t number) {
    node->is_launcher = true;
    if (message == DONE) node->done = number;
    if (message == RESTART) node->restart = number;
    if (message == JOB_DONE) node->is_job_done = true;
    if (message == STOPPED) on_stopped(n, number);
    if (n->own == 0 || number >= n->count) return;
    if (message == LOST_AFTER_DONE) n->items[number].done = n->restart_count;
    if (message == LOST_AFTER_DONE || message == LOST) on_lost(n, number);
}

/* [is_closed]: the other end was closed, so that launcher has ended; false: the network failed. */
static void on_link_end(struct launch_nodes *n, struct launch_node *node, bool is_closed) {
    bool has_ended = is_closed && node->is_launcher;
    close_link(node);
    if (has_ended) on_lost(n, node - n->items);
}

/* The other launcher sees the link closed and counts this node as ended, so this one does the same. */
static void on_wrong_tag(struct launch_nodes *n, struct launch_node *node) {
    close_link(node);
    if (node->ended_at == 0) node->is_tampered = true;
    on_lost(n, node - n->items);
}

static void read_messages(struct launch_nodes *n, struct launch_node *node) {
    while (node->fd >= 0) {
        double age = net_link_age(node->fd);
        enum message_input got = message_read(node->fd, node->input, MESSAGE_SIZE, &node->size);
        if (got == INPUT_NOTHING) return;
        if (got == INPUT_END) { /* a reset after silence may come from the network, not from the end of the launcher */
            on_link_end(n, node, errno == 0 || (errno == ECONNRESET && age < SILENCE_SECONDS));
            return;
        }
        if (node->size < MESSAGE_SIZE) continue;
        node->size = 0;
        bool is_authentic =
            session_verify(&node->session, node->input, CONTENT_SIZE, NULL, 0, node->input + CONTENT_SIZE);
        if (!is_authentic || store_read_u32(node->input) != MAGIC)
            on_wrong_tag(n, node);
        else
            on_message(n, node, (enum message)store_read_u32(node->input + 4), store_read_u32(node->input + 8));
    }
}

void launch_nodes_read(struct launch_nodes *n) {
    for (int i = 0; n && i < n->count; i++) read_messages(n, &n->items[i]);
}

size_t launch_nodes_poll(const struct launch_nodes *n, struct pollfd *polls) {
    size_t count = 0; /* only of those that have a link: the kernel limits the number of entries, too */
    for (int i = 0; n && i < n->count; i++)
        if (n->items[i].fd >= 0) polls[count++] = (struct pollfd){.fd = n->items[i].fd, .events = POLLIN};
    return count;
}

/* The node whose launcher ended first, if at least [seconds] ago; [is_unfinished]: only nodes whose ranks had not all
 * exited with 0. -1: none. */
static int first_ended(const struct launch_nodes *n, double seconds, bool is_unfinished) {
    int first = -1;
    for (int i = 0; n && i < n->count; i++) {
        const struct launch_node *node = &n->items[i];
        if (node->ended_at == 0 || (is_unfinished && is_done(n, node))) continue;
        if (first < 0 || node->ended_at < n->items[first].ended_at) first = i;
    }
    return first >= 0 && clock_seconds() >= n->items[first].ended_at + seconds ? first : -1;
}

int launch_nodes_lost(const struct launch_nodes *n) { return first_ended(n, 0, false); }

const char *launch_nodes_describe_loss(const struct launch_nodes *n, int node) {
    return n->items[node].is_tampered ? "was disconnected, because the connection to it was tampered with or corrupted"
                                      : "has ended";
}

int launch_nodes_lost_unfinished(const struct launch_nodes *n, double seconds) { return first_ended(n, seconds, true); }

double launch_nodes_lost_unfinished_time(const struct launch_nodes *n, double seconds) {
    int first = first_ended(n, 0, true);
    return first >= 0 ? n->items[first].ended_at + seconds : 0;
}

int launch_nodes_stopped(const struct launch_nodes *n) { return n ? n->stopped : -1; }

/* ---- the end of a start ---- */

void launch_nodes_send_restart(struct launch_nodes *n, int64_t restart_count) {
    if (!n) return;
    n->restart_count = restart_count;
    for (int i = 0; i < n->count; i++) n->items[i].has_joined = false;
    send_to_all(n, RESTART, restart_count);
}

/* Reads first: closing a socket with unread data sends a reset, which may discard the message. */
void launch_nodes_send_stopped(struct launch_nodes *n) {
    if (!n) return;
    launch_nodes_read(n);
    send_to_all(n, STOPPED, n->stopped >= 0 ? n->stopped : n->own);
}

void launch_nodes_joined(struct launch_nodes *n, int node) {
    for (int i = 0; n && i < n->count; i++) n->items[i].has_joined = n->items[i].has_joined || node == i || node < 0;
}

/* Other nodes than 0 report to rank 0's store, which informs the rest. */
bool launch_nodes_need_report(const struct launch_nodes *n, bool *informed) {
    bool is_needed = false;
    for (int i = 0; n && i < n->count; i++) {
        const struct launch_node *node = &n->items[i];
        informed[i] = node->was_linked || node->has_joined || i == n->own;
        is_needed = is_needed || !informed[i];
    }
    if (n && n->own != 0) is_needed = !n->items[0].was_linked && !n->items[n->own].has_joined;
    return is_needed;
}

/* A node that restarts with a restart count above [restart_count]; -1: none. */
static int restarting_node(const struct launch_nodes *n, int64_t restart_count) {
    for (int i = 0; i < n->count; i++)
        if (n->items[i].restart > restart_count) return i;
    return -1;
}

/* Whether the ranks of all nodes are done: node 0 waits for DONE of all linked nodes, the others for its JOB_DONE. */
static bool is_job_done(const struct launch_nodes *n, int64_t restart_count) {
    bool all_done = true;
    for (int i = 0; i < n->count; i++) {
        const struct launch_node *node = &n->items[i];
        all_done = all_done && (node->fd < 0 || (n->own == 0 ? node->done == restart_count : node->is_job_done));
    }
    return all_done;
}

status launch_nodes_wait_done(struct launch_nodes *n, int signals, int64_t restart_count, int64_t *newer) {
    double until = clock_seconds() + WAIT_DONE_SECONDS;
    struct pollfd *polls = n ? calloc((size_t)n->count + 1, sizeof *polls) : NULL;
    int restarting = -1;
    bool is_stop_requested = false;
    if (!polls) return OK;
    if (n->own != 0) send_message(&n->items[0], DONE, restart_count);
    for (launch_nodes_read(n); clock_seconds() < until; launch_nodes_read(n)) {
        restarting = restarting_node(n, restart_count);
        if (is_stop_requested || n->stopped >= 0 || restarting >= 0 || is_job_done(n, restart_count)) break;
        struct signalfd_siginfo info;
        size_t links = launch_nodes_poll(n, polls);
        polls[links] = (struct pollfd){.fd = signals, .events = POLLIN};
        if (poll(polls, (nfds_t)links + 1, clock_milliseconds_until(until)) <= 0) continue;
        bool has_signal = polls[links].revents && read(signals, &info, sizeof info) == sizeof info;
        is_stop_requested = has_signal && info.ssi_signo != SIGCHLD;
    }
    free(polls);
    if (n->stopped >= 0 || (is_stop_requested && !is_job_done(n, restart_count)))
        return status_new(STATUS_STOPPED, "stopped on request after the ranks of this node had ended, before those of "
                                          "all other nodes had; run the same command again to continue");
    if (restarting >= 0) {
        *newer = n->items[restarting].restart;
        return status_new(STATUS_PEER, "a rank of node %d was lost after those of this node had ended", restarting);
    }
    if (n->own == 0) send_to_all(n, JOB_DONE, restart_count);
    return OK;
}
