/* The handshake: HELLO (nonce, digest of what must be the same) -> CHALLENGE (nonce) -> an empty message with a tag,
 * from which on the coordinator knows the rank -> COMMAND_WELCOME, from which on the rank knows that it takes part.
 * No more bytes are read of a connection than those of its next message. */
#include "sweep/workers/worker_connection.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "base/scoped.h"
#include "base/stop.h"
#include "dist/process/message.h"

#define MAGIC 0x57534444u /* "DDSW" */
#define HANDSHAKE_SECONDS 10
#define SEND_SECONDS 10

/* Why the coordinator refuses a rank. */
enum refusal { ACCEPTED, OTHER_SWEEP, OTHER_WORLD };

struct hello {
    uint32_t magic, rank, world, restart_count;
    uint8_t nonce[MESSAGE_NONCE], what[32];
};
struct challenge {
    uint32_t magic, refusal; /* enum refusal */
    uint32_t world;          /* the coordinator's WORLD_SIZE */
    uint8_t nonce[MESSAGE_NONCE];
};

/* A message is followed by its tag. */
#define REPORT_SIZE (sizeof(struct worker_report) + SESSION_TAG)
#define COMMAND_SIZE (sizeof(struct worker_command) + SESSION_TAG)
#define MAX_SIZE (REPORT_SIZE > COMMAND_SIZE ? REPORT_SIZE : COMMAND_SIZE)
_Static_assert(sizeof(struct hello) <= MAX_SIZE, "a greeting is received into the input of a connection");

struct worker_connection {
    int fd;
    struct message_session session;
    uint8_t input[MAX_SIZE]; /* the first [size] bytes of a message */
    size_t size;
};

/* ---- both sides ---- */

static struct worker_connection *connection_new(int fd) {
    struct worker_connection *connection = status_need(calloc(1, sizeof *connection));
    connection->fd = fd;
    return connection;
}

void worker_connection_close(struct worker_connection *connection) {
    if (!connection) return;
    session_end(&connection->session);
    close(connection->fd);
    free(connection);
}

int worker_connection_fd(const struct worker_connection *connection) { return connection->fd; }

static status connection_closed(void) { return status_new(STATUS_PEER, "the peer closed the connection"); }

/* All or nothing: what has arrived of a message waits in the connection. */
static status receive(struct worker_connection *connection, void *bytes, size_t size, bool *got) {
    *got = false;
    while (connection->size < size) {
        enum message_input input = message_read(connection->fd, connection->input, size, &connection->size);
        if (input == INPUT_NOTHING) return OK;
        if (input == INPUT_END) return connection_closed();
    }
    memcpy(bytes, connection->input, size);
    connection->size = 0;
    *got = true;
    return OK;
}

static bool send_all(int fd, const void *bytes, size_t size) {
    return net_send(fd, bytes, size, clock_seconds() + SEND_SECONDS);
}

/* A whole message of [size] bytes with a valid tag, or *got false. */
static status receive_message(struct worker_connection *connection, void *message, size_t size, bool *got) {
    uint8_t bytes[MAX_SIZE];
    TRY(receive(connection, bytes, size + SESSION_TAG, got));
    if (!*got) return OK;
    memcpy(message, bytes, size);
    if (session_verify(&connection->session, bytes, size, NULL, 0, bytes + size)) return OK;
    return status_new(STATUS_PEER, "a message with a wrong tag");
}

static bool send_message(struct worker_connection *connection, const void *message, size_t size) {
    uint8_t bytes[MAX_SIZE];
    memcpy(bytes, message, size);
    session_sign(&connection->session, bytes, size, bytes + size);
    return send_all(connection->fd, bytes, size + SESSION_TAG);
}

status worker_connection_receive_report(struct worker_connection *connection, struct worker_report *report, bool *got) {
    TRY(receive_message(connection, report, sizeof *report, got));
    report->message[sizeof report->message - 1] = 0;
    report->state_sha256[sizeof report->state_sha256 - 1] = 0;
    return OK;
}

status worker_connection_receive_command(struct worker_connection *connection, struct worker_command *message,
                                         bool *got) {
    return receive_message(connection, message, sizeof *message, got);
}

bool worker_connection_send_report(struct worker_connection *connection, const struct worker_report *report) {
    return send_message(connection, report, sizeof *report);
}

bool worker_connection_send_command(struct worker_connection *connection, const struct worker_command *message) {
    return send_message(connection, message, sizeof *message);
}

/* What both sides put into the digest besides [what]: the layout of the messages. */
static void digest_what(const char *what, uint8_t out[32]) {
    SCOPED_TEXT text = {0};
    text_printf(&text, "%zu %zu\n%s", REPORT_SIZE, COMMAND_SIZE, what);
    digest_of(text_string(&text), text.length, out);
}

static void begin(struct message_session *session, const uint8_t secret[32], const struct hello *hello,
                  const struct challenge *challenge, bool is_server) {
    struct message_handshake shake = {
        .rank = hello->rank, .world = hello->world, .restart_count = hello->restart_count, .purpose = MAGIC};
    memcpy(shake.client_nonce, hello->nonce, MESSAGE_NONCE);
    memcpy(shake.server_nonce, challenge->nonce, MESSAGE_NONCE);
    session_begin(session, secret, &shake, is_server);
}

/* ---- the coordinator's side ---- */

/* A connection that has not proved yet that it is a rank's. */
struct handshake {
    struct worker_connection *connection;
    uint64_t host;
    double deadline;
    bool has_hello;
    struct hello hello;
};

struct worker_listener {
    int fd, world, restart_count;
    uint8_t secret[32], what[32];
    struct handshake handshakes[NET_MIN_UNPROVEN];
    size_t count;
};

status worker_listen(const struct dist_env *env, const char *what, struct worker_listener **out) {
    struct worker_listener *listener = calloc(1, sizeof *listener);
    *out = NULL;
    if (!listener) return status_memory("the connections of the sweep");
    listener->fd = -1;
    listener->world = env->world_size;
    listener->restart_count = env->restart_count;
    digest_what(what, listener->what);
    status s = dist_env_secret(env, listener->secret);
    if (!s) s = dist_env_listener(env, &listener->fd);
    if (s) worker_listener_close(listener);
    if (!s) *out = listener;
    return s;
}

void worker_listener_close(struct worker_listener *listener) {
    if (!listener) return;
    for (size_t i = 0; i < listener->count; i++) worker_connection_close(listener->handshakes[i].connection);
    if (listener->fd >= 0) close(listener->fd);
    explicit_bzero(listener, sizeof *listener);
    free(listener);
}

void worker_listener_wait(const struct worker_listener *listener, struct pollfd *fds, size_t *count) {
    if (!listener) return;
    fds[(*count)++] = (struct pollfd){.fd = listener->fd, .events = POLLIN};
    for (size_t i = 0; i < listener->count; i++)
        fds[(*count)++] = (struct pollfd){.fd = listener->handshakes[i].connection->fd, .events = POLLIN};
}

static void remove_handshake(struct worker_listener *listener, size_t index, bool is_closed) {
    if (is_closed) worker_connection_close(listener->handshakes[index].connection);
    listener->handshakes[index] = listener->handshakes[--listener->count];
}

static void make_place(struct worker_listener *listener) {
    struct net_unproven open[NET_MIN_UNPROVEN];
    for (size_t i = 0; i < listener->count; i++)
        open[i] = (struct net_unproven){.host = listener->handshakes[i].host,
                                        .is_silent = !listener->handshakes[i].has_hello};
    if (listener->count == NET_MIN_UNPROVEN)
        remove_handshake(listener, net_choose_unproven(open, listener->count), true);
}

static void accept_one(struct worker_listener *listener) {
    uint64_t host;
    int fd = net_accept(listener->fd, &host);
    if (fd < 0) return;
    net_tune(fd);
    make_place(listener);
    listener->handshakes[listener->count++] = (struct handshake){
        .connection = connection_new(fd), .host = host, .deadline = clock_seconds() + HANDSHAKE_SECONDS};
}

/* Answers a HELLO; false: this is no rank of this job. */
static bool challenge(struct worker_listener *listener, struct handshake *s) {
    struct challenge challenge = {.magic = MAGIC, .world = (uint32_t)listener->world};
    bool got, is_rank;
    status failure = receive(s->connection, &s->hello, sizeof s->hello, &got);
    bool is_lost = failure != OK;
    status_free(failure);
    if (is_lost || !got) return !is_lost;
    s->has_hello = true;
    bool is_other_world = s->hello.world != (uint32_t)listener->world;
    is_rank = s->hello.magic == MAGIC && s->hello.restart_count == (uint32_t)listener->restart_count &&
              (is_other_world || (s->hello.rank >= 1 && s->hello.rank < (uint32_t)listener->world));
    if (!is_rank) return false;
    bool is_other_sweep = memcmp(s->hello.what, listener->what, sizeof listener->what) != 0;
    challenge.refusal = is_other_world ? OTHER_WORLD : is_other_sweep ? OTHER_SWEEP : ACCEPTED;
    bool is_sent = message_nonce(challenge.nonce) && send_all(s->connection->fd, &challenge, sizeof challenge);
    begin(&s->connection->session, listener->secret, &s->hello, &challenge, true);
    return is_sent && !challenge.refusal;
}

/* Whether the peer has proved that it is its rank; *is_lost: it cannot any more. */
static bool has_proved(struct handshake *s, bool *is_lost) {
    struct worker_report proof;
    bool got;
    status failure = worker_connection_receive_report(s->connection, &proof, &got);
    *is_lost = failure != OK;
    status_free(failure);
    return got && !*is_lost;
}

struct worker_connection *worker_accept(struct worker_listener *listener, int *rank) {
    accept_one(listener);
    for (size_t i = 0; i < listener->count;) {
        struct handshake *s = &listener->handshakes[i];
        bool is_lost = clock_seconds() > s->deadline;
        if (!is_lost && !s->has_hello)
            is_lost = !challenge(listener, s);
        else if (!is_lost && has_proved(s, &is_lost)) {
            struct worker_connection *connection = s->connection;
            *rank = (int)s->hello.rank;
            is_lost = !worker_connection_send_command(connection, &(struct worker_command){.type = COMMAND_WELCOME});
            remove_handshake(listener, i, is_lost);
            if (is_lost) continue;
            return connection;
        }
        if (is_lost)
            remove_handshake(listener, i, true);
        else
            i++;
    }
    return NULL;
}

/* ---- another rank's side ---- */

/* The coordinator may have closed the connection in favour of another one before it received the proof. */
static status receive_welcome(struct worker_connection *connection, double deadline) {
    struct worker_command command;
    uint8_t bytes[COMMAND_SIZE];
    if (!net_receive(connection->fd, bytes, sizeof bytes, deadline) ||
        !session_verify(&connection->session, bytes, sizeof command, NULL, 0, bytes + sizeof command))
        return connection_closed();
    memcpy(&command, bytes, sizeof command);
    return command.type == COMMAND_WELCOME ? OK : connection_closed();
}

static status handshake(const struct dist_env *env, const char *what, const uint8_t secret[32],
                        struct worker_connection *connection) {
    struct hello hello = {.magic = MAGIC,
                          .rank = (uint32_t)env->rank,
                          .world = (uint32_t)env->world_size,
                          .restart_count = (uint32_t)env->restart_count};
    struct challenge challenge;
    struct worker_report proof;
    double deadline = clock_seconds() + HANDSHAKE_SECONDS;
    memset(&proof, 0, sizeof proof);
    digest_what(what, hello.what);
    if (!message_nonce(hello.nonce)) return status_errno(STATUS_IO, errno, "cannot draw random numbers");
    if (!net_send(connection->fd, &hello, sizeof hello, deadline) ||
        !net_receive(connection->fd, &challenge, sizeof challenge, deadline) || challenge.magic != MAGIC)
        return connection_closed();
    if (challenge.refusal == OTHER_WORLD)
        return status_new(
            STATUS_USAGE,
            "rank %d has WORLD_SIZE %d, but rank 0 has %u: WORLD_SIZE must be the same on all ranks of a sweep",
            env->rank, env->world_size, challenge.world);
    if (challenge.refusal)
        return status_usage("rank %d has another sweep than rank 0: the files of the sweep and the config, their "
                            "overrides and the version of ddptrain must be the same on all ranks",
                            env->rank);
    begin(&connection->session, secret, &hello, &challenge, false);
    if (!worker_connection_send_report(connection, &proof)) return connection_closed();
    return receive_welcome(connection, deadline);
}

static status try_connect(const struct dist_env *env, const char *what, const uint8_t secret[32], double deadline,
                          struct worker_connection **out) {
    int fd;
    bool is_final;
    *out = NULL;
    TRY(net_connect(env->master_addr, env->master_port, deadline, &fd, &is_final));
    net_tune(fd);
    struct worker_connection *connection = connection_new(fd);
    status s = handshake(env, what, secret, connection);
    if (s) worker_connection_close(connection);
    if (!s) *out = connection;
    return s;
}

status worker_connect(const struct dist_env *env, const char *what, double timeout, struct worker_connection **out) {
    uint8_t secret[32];
    double deadline = clock_seconds() + timeout;
    TRY(dist_env_secret(env, secret));
    status s = OK;
    for (;;) {
        status_free(s);
        s = try_connect(env, what, secret, deadline, out);
        if (!s || status_code(s) == STATUS_USAGE || clock_seconds() > deadline) break;
        if (stop_is_requested()) {
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
