/* The agents of several nodes know how each other's ranks ended, so that none starts ranks again and waits for a node
 * that has ended. Node 0's agent has a link to each of the others: a connection that their ranks made through the
 * store, proved, and handed over. Over it go a few words of 12 bytes; and when an agent ends, however, its links end
 * with it. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "dist/internal.h"
#include "dist/launch_internal.h"
#include "dist/store_frame.h"

#define MAGIC 0x4c504444u /* "DDPL" */
#define WORD_SIZE 12      /* magic, word, incarnation: u32 each */
#define SETTLE_SECONDS 30.0
#define SILENCE_SECONDS 3.0 /* of a link that keeps itself awake every 2 seconds: it is cut */

enum word {
    WORD_HERE,  /* an agent holds this end */
    WORD_DONE,  /* all ranks of this node have ended with 0 */
    WORD_AGAIN, /* this node starts its ranks again; incarnation: of that start */
    WORD_OVER   /* node 0's: so have all others; the job is over */
};

struct node {
    int fd;     /* -1: no link */
    bool is_up; /* the other end is an agent's */
    bool has_ended, is_over;
    int64_t done, again; /* incarnations, the newest it told of; -1: none */
    uint8_t input[WORD_SIZE];
    size_t size;
};

struct launch_nodes {
    int count, own;
    double lost_at;      /* when the first node ended; 0: none has */
    struct node items[]; /* (count); other nodes than 0 have a link to 0 only */
};

struct launch_nodes *nodes_create(int count, int own) {
    struct launch_nodes *n = calloc(1, sizeof *n + (size_t)count * sizeof n->items[0]);
    if (!n) return NULL;
    n->count = count;
    n->own = own;
    for (int i = 0; i < count; i++) n->items[i] = (struct node){.fd = -1, .done = -1, .again = -1};
    return n;
}

static void unlink_node(struct node *node) {
    if (node->fd >= 0) close(node->fd);
    node->fd = -1;
    node->is_up = false;
    node->size = 0;
}

void nodes_destroy(struct launch_nodes *n) {
    for (int i = 0; n && i < n->count; i++) unlink_node(&n->items[i]);
    free(n);
}

/* Twelve bytes fit into any socket that still works. */
static void say(struct node *node, enum word word, int64_t incarnation) {
    uint8_t bytes[WORD_SIZE];
    store_write_u32(bytes, MAGIC);
    store_write_u32(bytes + 4, word);
    store_write_u32(bytes + 8, (uint32_t)incarnation);
    if (node->fd >= 0) send(node->fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void say_to_all(struct launch_nodes *n, enum word word, int64_t incarnation) {
    for (int i = 0; i < n->count; i++) say(&n->items[i], word, incarnation);
}

void nodes_link(struct launch_nodes *n, int number, int fd) {
    if (!n || number < 0 || number >= n->count || number == n->own) {
        close(fd);
        return;
    }
    unlink_node(&n->items[number]);
    struct node *node = &n->items[number];
    node->fd = fd;
    node->has_ended = false; /* it lives */
    n->lost_at = 0;
    for (int i = 0; i < n->count; i++)
        if (n->items[i].has_ended) n->lost_at = clock_seconds();
    say(node, WORD_HERE, 0);
}

bool nodes_want_link(struct launch_nodes *n) {
    nodes_hear(n);
    return n && n->own != 0 && (!n->items[0].is_up || net_link_age(n->items[0].fd) > SILENCE_SECONDS);
}

/* ---- hearing ---- */

static void on_word(struct node *node, enum word word, int64_t incarnation) {
    node->is_up = true;
    if (word == WORD_DONE) node->done = incarnation;
    if (word == WORD_AGAIN) node->again = incarnation;
    if (word == WORD_OVER) node->is_over = true;
}

/* A closed link is an agent's end; one that is merely out of reach is not. */
static void on_end(struct launch_nodes *n, struct node *node, bool is_closed) {
    if (is_closed && node->is_up && !node->has_ended) {
        node->has_ended = true;
        if (n->lost_at == 0) n->lost_at = clock_seconds();
    }
    unlink_node(node);
}

static void hear(struct launch_nodes *n, struct node *node) {
    while (node->fd >= 0) {
        double age = net_link_age(node->fd);
        ssize_t got = recv(node->fd, node->input + node->size, WORD_SIZE - node->size, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return;
        if (got <= 0) { /* a reset after silence is what the end of a cut brings, whoever was beyond it */
            on_end(n, node, got == 0 || (errno == ECONNRESET && age < SILENCE_SECONDS));
            return;
        }
        node->size += (size_t)got;
        if (node->size < WORD_SIZE) continue;
        node->size = 0;
        if (store_read_u32(node->input) != MAGIC)
            unlink_node(node);
        else
            on_word(node, (enum word)store_read_u32(node->input + 4), store_read_u32(node->input + 8));
    }
}

void nodes_hear(struct launch_nodes *n) {
    for (int i = 0; n && i < n->count; i++) hear(n, &n->items[i]);
}

size_t nodes_poll(const struct launch_nodes *n, struct pollfd *polls) {
    for (int i = 0; n && i < n->count; i++) polls[i] = (struct pollfd){.fd = n->items[i].fd, .events = POLLIN};
    return n ? (size_t)n->count : 0;
}

int nodes_lost(const struct launch_nodes *n, double seconds) {
    if (!n || n->lost_at == 0 || clock_seconds() < n->lost_at + seconds) return -1;
    for (int i = 0; i < n->count; i++)
        if (n->items[i].has_ended) return i;
    return -1;
}

double nodes_lost_time(const struct launch_nodes *n, double seconds) {
    return n && n->lost_at > 0 ? n->lost_at + seconds : 0;
}

/* ---- the end of a start ---- */

void nodes_say_again(struct launch_nodes *n, int64_t incarnation) {
    if (n) say_to_all(n, WORD_AGAIN, incarnation);
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
        const struct node *node = &n->items[i];
        is_settled = is_settled && (node->fd < 0 || (n->own == 0 ? node->done == incarnation : node->is_over));
    }
    return is_settled;
}

status nodes_settle(struct launch_nodes *n, int signals, int64_t incarnation, int64_t *newer) {
    double until = clock_seconds() + SETTLE_SECONDS, left;
    struct pollfd *polls = n ? calloc((size_t)n->count + 1, sizeof *polls) : NULL;
    int again = -1;
    if (!polls) return OK;
    if (n->own != 0) say(&n->items[0], WORD_DONE, incarnation);
    for (nodes_hear(n); (left = until - clock_seconds()) > 0; nodes_hear(n)) {
        again = starting_again(n, incarnation);
        if (again >= 0 || is_settled(n, incarnation)) break;
        struct signalfd_siginfo info;
        nodes_poll(n, polls);
        polls[n->count] = (struct pollfd){.fd = signals, .events = POLLIN};
        if (poll(polls, (nfds_t)n->count + 1, (int)(left * 1000) + 1) <= 0) continue;
        bool is_asked = polls[n->count].revents && read(signals, &info, sizeof info) == sizeof info;
        if (is_asked && info.ssi_signo != SIGCHLD) break;
    }
    free(polls);
    if (again >= 0) {
        *newer = n->items[again].again;
        return status_new(STATUS_PEER, "a rank of node %d was lost when those of this node had ended", again);
    }
    if (n->own == 0) say_to_all(n, WORD_OVER, incarnation);
    return OK;
}
