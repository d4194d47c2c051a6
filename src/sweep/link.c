/* The handshake: HELLO (nonce, digest of what must be the same) -> CHALLENGE (nonce) -> an empty message with a tag,
 * from which on the coordinator knows the rank. Bytes of a connection that is not authenticated are read only when as
 * many have arrived as a HELLO has. */
#include "sweep/link.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/digest.h"
#include "dist/process/net.h"
#include "dist/store/store_secret.h"
#include "dist/store/store_session.h"

#define MAGIC 0x57534444u /* "DDSW" */
#define HANDSHAKE_SECONDS 10
#define SEND_SECONDS 10
#define MAX_HANDSHAKES (LINK_DESCRIPTORS - 1)

/* Why the coordinator refuses a rank. */
enum refusal { ACCEPTED, OTHER_SWEEP, OTHER_WORLD };

struct hello {
    uint32_t magic, rank, world, incarnation;
    uint8_t nonce[STORE_NONCE], what[32];
};
struct challenge {
    uint32_t magic, refusal; /* enum refusal */
    uint32_t world;          /* the coordinator's WORLD_SIZE */
    uint8_t nonce[STORE_NONCE];
};

/* A message is followed by its tag. */
#define UP_SIZE (sizeof(struct worker_report) + SESSION_TAG)
#define DOWN_SIZE (sizeof(struct link_down) + SESSION_TAG)
#define MAX_SIZE (UP_SIZE > DOWN_SIZE ? UP_SIZE : DOWN_SIZE)

struct link {
    int fd;
    struct store_session session;
};

/* ---- both ends ---- */

static struct link *link_new(int fd) {
    struct link *link = calloc(1, sizeof *link);
    if (!link) status_exit_without_memory();
    link->fd = fd;
    return link;
}

void link_close(struct link *link) {
    if (!link) return;
    session_end(&link->session);
    close(link->fd);
    free(link);
}

int link_fd(const struct link *link) { return link->fd; }

/* poll wakes up when a whole message is there. */
static void expect(int fd, size_t size) {
    int bytes = (int)size;
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes); /* without it poll wakes more often */
}

static status is_gone(void) { return status_new(STATUS_PEER, "the connection has ended"); }

/* All or nothing. */
static status receive(int fd, void *bytes, size_t size, bool *got) {
    ssize_t n;
    *got = false;
    do n = recv(fd, bytes, size, MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return OK;
    if (n <= 0) return is_gone();
    if ((size_t)n < size) {
        struct pollfd end = {.fd = fd, .events = POLLRDHUP};
        bool has_ended = poll(&end, 1, 0) == 1 && (end.revents & (POLLRDHUP | POLLERR | POLLHUP));
        return has_ended ? is_gone() : OK;
    }
    *got = recv(fd, bytes, size, MSG_DONTWAIT) == (ssize_t)size;
    return *got ? OK : is_gone();
}

static bool send_all(int fd, const void *bytes, size_t size) {
    return net_send(fd, bytes, size, clock_seconds() + SEND_SECONDS);
}

/* A whole message of [size] bytes with a valid tag, or *got false. */
static status receive_message(struct link *link, void *message, size_t size, bool *got) {
    uint8_t bytes[MAX_SIZE];
    TRY(receive(link->fd, bytes, size + SESSION_TAG, got));
    if (!*got) return OK;
    memcpy(message, bytes, size);
    if (session_verify(&link->session, bytes, size, NULL, 0, bytes + size)) return OK;
    return status_new(STATUS_PEER, "a message with a wrong tag");
}

static bool send_message(struct link *link, const void *message, size_t size) {
    uint8_t bytes[MAX_SIZE];
    memcpy(bytes, message, size);
    session_sign(&link->session, bytes, size, NULL, 0, bytes + size);
    return send_all(link->fd, bytes, size + SESSION_TAG);
}

status link_receive_up(struct link *link, struct worker_report *report, bool *got) {
    TRY(receive_message(link, report, sizeof *report, got));
    report->message[sizeof report->message - 1] = 0;
    report->state_sha256[sizeof report->state_sha256 - 1] = 0;
    return OK;
}

status link_receive_down(struct link *link, struct link_down *message, bool *got) {
    return receive_message(link, message, sizeof *message, got);
}

bool link_send_up(struct link *link, const struct worker_report *report) {
    return send_message(link, report, sizeof *report);
}

bool link_send_down(struct link *link, const struct link_down *message) {
    return send_message(link, message, sizeof *message);
}

/* What both ends put into the digest besides [what]: the layout of the messages. */
static void digest_what(const char *what, uint8_t out[32]) {
    struct text text = {0};
    text_printf(&text, "%zu %zu\n%s", UP_SIZE, DOWN_SIZE, what);
    digest_of(text_string(&text), text.length, out);
    text_free(&text);
}

static void begin(struct store_session *session, const uint8_t secret[32], const struct hello *hello,
                  const struct challenge *challenge, bool is_server) {
    struct store_handshake shake = {
        .rank = hello->rank, .world = hello->world, .incarnation = hello->incarnation, .purpose = MAGIC};
    memcpy(shake.client_nonce, hello->nonce, STORE_NONCE);
    memcpy(shake.server_nonce, challenge->nonce, STORE_NONCE);
    session_begin(session, secret, &shake, is_server);
}

static status draw_nonce(uint8_t nonce[STORE_NONCE]) {
    ssize_t n;
    do n = getrandom(nonce, STORE_NONCE, 0);
    while (n < 0 && errno == EINTR);
    return n == STORE_NONCE ? OK : status_errno(STATUS_IO, errno, "cannot draw random numbers");
}

/* ---- the coordinator's end ---- */

/* A connection that has not proved yet that it is a rank's. */
struct handshake {
    struct link *link;
    double deadline;
    bool has_said_hello;
    struct hello hello;
};

struct link_server {
    int fd, world, incarnation;
    uint8_t secret[32], what[32];
    struct handshake handshakes[MAX_HANDSHAKES];
    size_t count;
};

status link_listen(const struct dist_env *env, const char *what, struct link_server **out) {
    struct link_server *server = calloc(1, sizeof *server);
    *out = NULL;
    if (!server) return status_memory("the connections of the sweep");
    server->fd = -1;
    server->world = env->world_size;
    server->incarnation = env->incarnation;
    digest_what(what, server->what);
    status s = store_secret_find(env, server->secret);
    if (!s) s = store_listener_find(env, &server->fd);
    if (s)
        link_server_close(server);
    else
        *out = server;
    return s;
}

void link_server_close(struct link_server *server) {
    if (!server) return;
    for (size_t i = 0; i < server->count; i++) link_close(server->handshakes[i].link);
    if (server->fd >= 0) close(server->fd);
    explicit_bzero(server, sizeof *server);
    free(server);
}

void link_server_wait(const struct link_server *server, struct pollfd *fds, size_t *count) {
    if (!server) return;
    if (server->count < MAX_HANDSHAKES) fds[(*count)++] = (struct pollfd){.fd = server->fd, .events = POLLIN};
    for (size_t i = 0; i < server->count; i++)
        fds[(*count)++] = (struct pollfd){.fd = server->handshakes[i].link->fd, .events = POLLIN};
}

static void accept_one(struct link_server *server) {
    if (server->count == MAX_HANDSHAKES) return;
    int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    net_tune(fd);
    expect(fd, sizeof(struct hello));
    server->handshakes[server->count++] =
        (struct handshake){.link = link_new(fd), .deadline = clock_seconds() + HANDSHAKE_SECONDS};
}

/* Answers a HELLO; false: this is no rank of this job. */
static bool challenge(struct link_server *server, struct handshake *s) {
    struct challenge challenge = {.magic = MAGIC, .world = (uint32_t)server->world};
    bool got, is_rank;
    status gone = receive(s->link->fd, &s->hello, sizeof s->hello, &got);
    bool is_lost = gone != OK;
    status_free(gone);
    if (is_lost || !got) return !is_lost;
    s->has_said_hello = true;
    bool is_other_world = s->hello.world != (uint32_t)server->world;
    is_rank = s->hello.magic == MAGIC && s->hello.incarnation == (uint32_t)server->incarnation &&
              (is_other_world || (s->hello.rank >= 1 && s->hello.rank < (uint32_t)server->world));
    if (!is_rank) return false;
    bool is_other_sweep = memcmp(s->hello.what, server->what, sizeof server->what) != 0;
    challenge.refusal = is_other_world ? OTHER_WORLD : is_other_sweep ? OTHER_SWEEP : ACCEPTED;
    status failure = draw_nonce(challenge.nonce);
    bool is_sent = !failure && send_all(s->link->fd, &challenge, sizeof challenge);
    status_free(failure);
    begin(&s->link->session, server->secret, &s->hello, &challenge, true);
    expect(s->link->fd, UP_SIZE);
    return is_sent && !challenge.refusal;
}

/* Whether the peer has proved that it is its rank; *is_lost: it cannot any more. */
static bool has_proved(struct handshake *s, bool *is_lost) {
    struct worker_report proof;
    bool got;
    status failure = link_receive_up(s->link, &proof, &got);
    *is_lost = failure != OK;
    status_free(failure);
    return got && !*is_lost;
}

static void forget(struct link_server *server, size_t index, bool is_closed) {
    if (is_closed) link_close(server->handshakes[index].link);
    server->handshakes[index] = server->handshakes[--server->count];
}

struct link *link_accept(struct link_server *server, int *rank) {
    accept_one(server);
    for (size_t i = 0; i < server->count;) {
        struct handshake *s = &server->handshakes[i];
        bool is_lost = clock_seconds() > s->deadline;
        if (!is_lost && !s->has_said_hello)
            is_lost = !challenge(server, s);
        else if (!is_lost && has_proved(s, &is_lost)) {
            struct link *link = s->link;
            *rank = (int)s->hello.rank;
            forget(server, i, false);
            return link;
        }
        if (is_lost)
            forget(server, i, true);
        else
            i++;
    }
    return NULL;
}

/* ---- another rank's end ---- */

static status handshake(const struct dist_env *env, const char *what, const uint8_t secret[32], struct link *link) {
    struct hello hello = {.magic = MAGIC,
                          .rank = (uint32_t)env->rank,
                          .world = (uint32_t)env->world_size,
                          .incarnation = (uint32_t)env->incarnation};
    struct challenge challenge;
    struct worker_report proof;
    double deadline = clock_seconds() + HANDSHAKE_SECONDS;
    memset(&proof, 0, sizeof proof);
    digest_what(what, hello.what);
    TRY(draw_nonce(hello.nonce));
    if (!net_send(link->fd, &hello, sizeof hello, deadline) ||
        !net_receive(link->fd, &challenge, sizeof challenge, deadline) || challenge.magic != MAGIC)
        return is_gone();
    if (challenge.refusal == OTHER_WORLD)
        return status_new(STATUS_USAGE,
                          "rank %d has WORLD_SIZE %d, but rank 0 has %u: WORLD_SIZE must be the same on all ranks of a "
                          "sweep",
                          env->rank, env->world_size, challenge.world);
    if (challenge.refusal)
        return status_new(STATUS_USAGE,
                          "rank %d has another sweep than rank 0: the files of the sweep and the config, their "
                          "overrides and the version of ddptrain must be the same on all ranks",
                          env->rank);
    begin(&link->session, secret, &hello, &challenge, false);
    expect(link->fd, DOWN_SIZE);
    return link_send_up(link, &proof) ? OK : is_gone();
}

static status try_connect(const struct dist_env *env, const char *what, const uint8_t secret[32], double deadline,
                          struct link **out) {
    int fd;
    bool is_final;
    *out = NULL;
    TRY(net_connect(env->master_addr, env->master_port, deadline, &fd, &is_final));
    net_tune(fd);
    struct link *link = link_new(fd);
    status s = handshake(env, what, secret, link);
    if (s)
        link_close(link);
    else
        *out = link;
    return s;
}

status link_connect(const struct dist_env *env, const char *what, double timeout, const volatile sig_atomic_t *stop,
                    struct link **out) {
    uint8_t secret[32];
    double deadline = clock_seconds() + timeout;
    TRY(store_secret_find(env, secret));
    status s = OK;
    for (;;) {
        status_free(s);
        s = try_connect(env, what, secret, deadline, out);
        if (!s || status_code(s) == STATUS_USAGE || clock_seconds() > deadline) break;
        if (stop && *stop) {
            status_free(s);
            s = status_new(STATUS_STOPPED, "stopped on request");
            break;
        }
        clock_sleep(0.05);
    }
    explicit_bzero(secret, sizeof secret);
    if (!s || status_code(s) == STATUS_USAGE || status_code(s) == STATUS_STOPPED) return s;
    status failure =
        status_new(STATUS_PEER, "rank %d cannot reach the coordinator of the sweep, rank 0 at %s:%d, for %.0f s: %s",
                   env->rank, env->master_addr, env->master_port, timeout, status_message(s));
    status_free(s);
    return failure;
}
