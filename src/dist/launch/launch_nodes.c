/* The launchers of several nodes know how each other's ranks ended, so that none starts ranks again and waits for a
 * node that has ended. Node 0's launcher has a link to each of the others: a connection that their ranks made through
 * the store, proved, and handed over with its session. Over it go a few words of 12 bytes, each with a tag
 * (store_session.h); and when a launcher ends, however, its links end with it. What node 0 hears of the end of one it
 * passes on to the others. A word with a wrong tag ends the link. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/launch/launch_internal.h"
#include "dist/process/net.h"
#include "dist/store/store_frame.h"

#define MAGIC 0x4c504444u /* "DDPL" */
#define WORD_SIZE 12      /* magic, word, number: u32 each */
#define TAGGED (WORD_SIZE + SESSION_TAG)
#define SETTLE_SECONDS 30.0
#define SILENCE_SECONDS 3.0 /* of a link that keeps itself awake every 2 seconds: it is cut */

enum word {
    WORD_HERE,    /* a launcher holds this end */
    WORD_DONE,    /* all ranks of this node have ended with 0; number: of their start */
    WORD_AGAIN,   /* this node starts its ranks again; number: of that start */
    WORD_OVER,    /* node 0's: so have all others; the job is over */
    WORD_STOPPED, /* number: a node that ends on a request to stop, its own or another's; passed on by node 0 */
    WORD_LOST,    /* node 0's; number: a node whose launcher has ended with its work undone */
    WORD_LEFT     /* the same of one whose ranks had all ended with 0 */
};

struct launch_node {
    int fd;       /* -1: no link */
    bool is_up;   /* the other end is a launcher's */
    bool is_mute; /* a word did not go out whole: what followed it would have a wrong tag */
    bool is_over, is_tampered, was_linked;
    bool has_joined;     /* the store, in this start */
    double ended_at;     /* 0: it has not */
    int64_t done, again; /* incarnations, the newest it told of; -1: none */
    struct store_session session;
    uint8_t input[TAGGED];
    size_t size;
};

struct launch_nodes {
    int count, own;
    int64_t incarnation;        /* of this node's ranks */
    int stopped;                /* the first node that ended on a request; -1: none */
    struct launch_node items[]; /* (count); other nodes than 0 have a link to 0 only */
};

struct launch_nodes *nodes_create(int count, int own) {
    struct launch_nodes *n = calloc(1, sizeof *n + (size_t)count * sizeof n->items[0]);
    if (!n) return NULL;
    n->count = count;
    n->own = own;
    n->stopped = -1;
    for (int i = 0; i < count; i++) n->items[i] = (struct launch_node){.fd = -1, .done = -1, .again = -1};
    return n;
}

static void unlink_node(struct launch_node *node) {
    if (node->fd >= 0) close(node->fd);
    session_end(&node->session);
    node->fd = -1;
    node->is_up = node->is_mute = false;
    node->size = 0;
}

void nodes_destroy(struct launch_nodes *n) {
    for (int i = 0; n && i < n->count; i++) unlink_node(&n->items[i]);
    free(n);
}

/* So few bytes fit into any socket that still works. */
static void say(struct launch_node *node, enum word word, int64_t number) {
    uint8_t bytes[TAGGED];
    if (node->fd < 0 || node->is_mute) return;
    store_write_u32(bytes, MAGIC);
    store_write_u32(bytes + 4, word);
    store_write_u32(bytes + 8, (uint32_t)number);
    session_sign(&node->session, bytes, WORD_SIZE, NULL, 0, bytes + WORD_SIZE);
    node->is_mute = !net_send(node->fd, bytes, sizeof bytes, clock_seconds());
}

static void say_to_all(struct launch_nodes *n, enum word word, int64_t number) {
    for (int i = 0; i < n->count; i++) say(&n->items[i], word, number);
}

void nodes_link(struct launch_nodes *n, int number, int fd, const struct store_session *session) {
    if (!n || number < 0 || number >= n->count || number == n->own) {
        close(fd);
        return;
    }
    unlink_node(&n->items[number]);
    struct launch_node *node = &n->items[number];
    node->fd = fd;
    node->was_linked = true;
    node->session = *session;
    node->is_tampered = false;
    node->ended_at = 0; /* it lives */
    say(node, WORD_HERE, 0);
}

bool nodes_want_link(struct launch_nodes *n) {
    nodes_hear(n);
    return n && n->own != 0 && (!n->items[0].is_up || net_link_age(n->items[0].fd) > SILENCE_SECONDS);
}

/* ---- hearing ---- */

/* Node 0's: to all but the one that it is about. */
static void pass_on(struct launch_nodes *n, enum word word, int64_t number) {
    for (int i = 0; i < n->count && n->own == 0; i++)
        if (i != number) say(&n->items[i], word, number);
}

static bool is_done(const struct launch_nodes *n, const struct launch_node *node) {
    return node->done >= n->incarnation;
}

/* The first one counts: what others do then follows from it. */
static void on_stopped(struct launch_nodes *n, int64_t number) {
    if (n->stopped >= 0 || number >= n->count || number == n->own) return;
    n->stopped = (int)number;
    pass_on(n, WORD_STOPPED, number);
}

/* One that stopped on request has said so before. */
static void on_loss(struct launch_nodes *n, int64_t number) {
    if (n->stopped >= 0 || number >= n->count || number == n->own || n->items[number].ended_at > 0) return;
    struct launch_node *node = &n->items[number];
    node->ended_at = clock_seconds();
    pass_on(n, is_done(n, node) ? WORD_LEFT : WORD_LOST, number);
}

static void on_word(struct launch_nodes *n, struct launch_node *node, enum word word, int64_t number) {
    node->is_up = true;
    if (word == WORD_DONE) node->done = number;
    if (word == WORD_AGAIN) node->again = number;
    if (word == WORD_OVER) node->is_over = true;
    if (word == WORD_STOPPED) on_stopped(n, number);
    if (n->own == 0 || number >= n->count) return;
    if (word == WORD_LEFT) n->items[number].done = n->incarnation;
    if (word == WORD_LEFT || word == WORD_LOST) on_loss(n, number);
}

/* A closed link is a launcher's end; one that is merely out of reach is not. */
static void on_end(struct launch_nodes *n, struct launch_node *node, bool is_closed) {
    bool has_ended = is_closed && node->is_up;
    unlink_node(node);
    if (has_ended) on_loss(n, node - n->items);
}

/* The other side sees the link end, so this one counts its node as ended as well. */
static void on_wrong_tag(struct launch_nodes *n, struct launch_node *node) {
    unlink_node(node);
    if (node->ended_at == 0) node->is_tampered = true;
    on_loss(n, node - n->items);
}

static void hear(struct launch_nodes *n, struct launch_node *node) {
    while (node->fd >= 0) {
        double age = net_link_age(node->fd);
        ssize_t got = recv(node->fd, node->input + node->size, TAGGED - node->size, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) { /* a reset after silence is what the end of a cut brings, whoever was beyond it */
            on_end(n, node, got == 0 || (errno == ECONNRESET && age < SILENCE_SECONDS));
            return;
        }
        node->size += (size_t)got;
        if (node->size < TAGGED) continue;
        node->size = 0;
        bool is_ours = session_verify(&node->session, node->input, WORD_SIZE, NULL, 0, node->input + WORD_SIZE);
        if (!is_ours || store_read_u32(node->input) != MAGIC)
            on_wrong_tag(n, node);
        else
            on_word(n, node, (enum word)store_read_u32(node->input + 4), store_read_u32(node->input + 8));
    }
}

void nodes_hear(struct launch_nodes *n) {
    for (int i = 0; n && i < n->count; i++) hear(n, &n->items[i]);
}

size_t nodes_poll(const struct launch_nodes *n, struct pollfd *polls) {
    for (int i = 0; n && i < n->count; i++) polls[i] = (struct pollfd){.fd = n->items[i].fd, .events = POLLIN};
    return n ? (size_t)n->count : 0;
}

/* The first that has ended, [seconds] ago or earlier; all of them, or those only that left work undone. */
static int first_ended(const struct launch_nodes *n, double seconds, bool is_undone) {
    int first = -1;
    for (int i = 0; n && i < n->count; i++) {
        const struct launch_node *node = &n->items[i];
        if (node->ended_at == 0 || (is_undone && is_done(n, node))) continue;
        if (first < 0 || node->ended_at < n->items[first].ended_at) first = i;
    }
    return first >= 0 && clock_seconds() >= n->items[first].ended_at + seconds ? first : -1;
}

int nodes_lost(const struct launch_nodes *n) { return first_ended(n, 0, false); }

const char *nodes_describe_loss(const struct launch_nodes *n, int node) {
    return n->items[node].is_tampered ? "was cut off, because the connection to it was tampered with or corrupted"
                                      : "has ended";
}

int nodes_missed(const struct launch_nodes *n, double seconds) { return first_ended(n, seconds, true); }

double nodes_missed_time(const struct launch_nodes *n, double seconds) {
    int first = first_ended(n, 0, true);
    return first >= 0 ? n->items[first].ended_at + seconds : 0;
}

int nodes_stopped(const struct launch_nodes *n) { return n ? n->stopped : -1; }

/* ---- the end of a start ---- */

void nodes_say_again(struct launch_nodes *n, int64_t incarnation) {
    if (!n) return;
    n->incarnation = incarnation;
    for (int i = 0; i < n->count; i++) n->items[i].has_joined = false;
    say_to_all(n, WORD_AGAIN, incarnation);
}

/* What is left unread would end the link by a reset, which may overtake the word. */
void nodes_say_stopped(struct launch_nodes *n) {
    if (!n) return;
    nodes_hear(n);
    say_to_all(n, WORD_STOPPED, n->stopped >= 0 ? n->stopped : n->own);
}

void nodes_joined(struct launch_nodes *n, int node) {
    for (int i = 0; n && i < n->count; i++) n->items[i].has_joined = n->items[i].has_joined || node == i || node < 0;
}

/* Other nodes than 0 report to rank 0's store, which informs the rest. */
bool nodes_need_report(const struct launch_nodes *n, bool *informed) {
    bool is_needed = false;
    for (int i = 0; n && i < n->count; i++) {
        const struct launch_node *node = &n->items[i];
        informed[i] = node->was_linked || node->has_joined || i == n->own;
        is_needed = is_needed || (n->own == 0 && !informed[i]);
    }
    if (n && n->own != 0) is_needed = !n->items[0].was_linked && !n->items[n->own].has_joined;
    return is_needed;
}

/* A node that starts again, as a newer start than [incarnation]; -1: none. */
static int starting_again(const struct launch_nodes *n, int64_t incarnation) {
    for (int i = 0; i < n->count; i++)
        if (n->items[i].again > incarnation) return i;
    return -1;
}

/* Whether nothing more is to come: node 0 waits for all, the others for node 0's word. */
static bool is_settled(const struct launch_nodes *n, int64_t incarnation) {
    bool is_settled = true;
    for (int i = 0; i < n->count; i++) {
        const struct launch_node *node = &n->items[i];
        is_settled = is_settled && (node->fd < 0 || (n->own == 0 ? node->done == incarnation : node->is_over));
    }
    return is_settled;
}

status nodes_settle(struct launch_nodes *n, int signals, int64_t incarnation, int64_t *newer) {
    double until = clock_seconds() + SETTLE_SECONDS, left;
    struct pollfd *polls = n ? calloc((size_t)n->count + 1, sizeof *polls) : NULL;
    int again = -1;
    bool is_asked = false;
    if (!polls) return OK;
    if (n->own != 0) say(&n->items[0], WORD_DONE, incarnation);
    for (nodes_hear(n); (left = until - clock_seconds()) > 0; nodes_hear(n)) {
        again = starting_again(n, incarnation);
        if (is_asked || n->stopped >= 0 || again >= 0 || is_settled(n, incarnation)) break;
        struct signalfd_siginfo info;
        nodes_poll(n, polls);
        polls[n->count] = (struct pollfd){.fd = signals, .events = POLLIN};
        if (poll(polls, (nfds_t)n->count + 1, (int)(left * 1000) + 1) <= 0) continue;
        bool has_signal = polls[n->count].revents && read(signals, &info, sizeof info) == sizeof info;
        is_asked = has_signal && info.ssi_signo != SIGCHLD;
    }
    free(polls);
    if (n->stopped >= 0 || (is_asked && !is_settled(n, incarnation)))
        return status_new(STATUS_STOPPED, "stopped on request when the ranks of this node had ended, and not yet those "
                                          "of all others; run the same command again to continue");
    if (again >= 0) {
        *newer = n->items[again].again;
        return status_new(STATUS_PEER, "a rank of node %d was lost when those of this node had ended", again);
    }
    if (n->own == 0) say_to_all(n, WORD_OVER, incarnation);
    return OK;
}
