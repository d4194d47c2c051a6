/* Sockets and pipes. A connection has two queues of segments, each with its arrival time. TCP between hosts has delays.
 * During a partition segments are retransmitted after 0.2, 0.6, 1.4, 3, 6.2 s ... (the kernel's doubling) for a quarter
 * of an hour (tcp_retries2), those of a closed socket for 100 s (tcp_orphan_retries); an idle connection ends when a
 * minute of keep-alive probes is lost (net_tune). The kernel of the other host sends acknowledgements, whether its
 * process runs or not. Between processes of one host, data arrives after at most 55 us. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "simulation.h"
#include "system.h"
#include "wraps.h"

#define BUFFER_SIZE ((size_t)128 << 10)
#define FIRST_RETRANSMISSION (200 * MILLISECOND)
#define MAX_PAUSE (120 * SECOND) /* between retransmissions */
#define RETRIES (924 * SECOND)
#define ORPHAN_RETRIES (102 * SECOND)
#define SYN_RETRIES (63 * SECOND)
#define KEEPALIVE (2 * SECOND)
#define KEEPALIVE_END (62 * SECOND) /* idle, and 60 probes */
#define BACKLOG 64

struct segment {
    struct segment *next;
    int64_t at;
    size_t size, used;
    bool is_end; /* FIN */
    struct file *passed;
    uint8_t bytes[];
};

struct connection {
    struct connection *next;
    bool is_tcp, is_packet, is_one_way;
    struct file *ends[2]; /* NULL: closed */
    int hosts[2];
    struct sockaddr_in addresses[2];
    struct segment *first[2], *last[2]; /* towards each side */
    size_t bytes[2];
    bool is_shut[2]; /* shutdown was called on this side */
    int64_t reset_at[2];
    bool is_idle_reset[2]; /* the reset comes from lost keep-alive probes; data that is sent postpones it */
    int reset_error[2];
    bool has_seen_reset[2];
    int64_t heard_at[2], acknowledged_at[2]; /* time of the last acknowledgement; of the next one */
};

static struct connection *connections;
static struct file *listeners[32];
static int listener_count;

/* ---- transmission ---- */

static bool is_between_hosts(const struct connection *c) { return c->is_tcp && c->hosts[0] != c->hosts[1]; }

static int64_t draw_delay(const struct connection *c) {
    if (!c->is_tcp) return 0;
    if (!is_between_hosts(c)) return 5 * MICROSECOND + random_below(&world.random, 50 * MICROSECOND);
    return 50 * MICROSECOND + random_below(&world.random, world.scenario.delay);
}

static bool is_partitioned_at(int64_t time) { return time >= world.partition_from && time < world.partition_until; }

/* Arrival time of a segment that is sent now; NEVER: lost. [first]: time until the first retransmission; [retries]:
 * until the last one. */
static int64_t arrival(int64_t delay, int64_t first, int64_t retries) {
    if (!is_partitioned_at(world.now) && !is_partitioned_at(world.now + delay)) return world.now + delay;
    if (world.partition_until == NEVER) return NEVER;
    for (int64_t pause = first, at = world.now + first; at - world.now <= retries; at += pause) {
        if (at >= world.partition_until) return at + delay;
        pause = 2 * pause < MAX_PAUSE ? 2 * pause : MAX_PAUSE;
    }
    return NEVER;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* An acknowledgement will arrive at the time [at]. */
static void add_acknowledgement(struct connection *c, int side, int64_t at) {
    if (at == NEVER) return;
    if (c->acknowledged_at[side] <= world.now) c->heard_at[side] = later(c->heard_at[side], c->acknowledged_at[side]);
    c->acknowledged_at[side] = later(c->acknowledged_at[side], at);
}

/* Time of the last acknowledgement, also of keep-alive probes. */
static int64_t last_acknowledgement(struct connection *c, int side) {
    if (c->acknowledged_at[side] <= world.now) c->heard_at[side] = later(c->heard_at[side], c->acknowledged_at[side]);
    int64_t heard = c->heard_at[side];
    while (world.now - heard >= KEEPALIVE && !is_partitioned_at(heard + KEEPALIVE)) heard += KEEPALIVE;
    if (world.now - heard >= KEEPALIVE && world.now >= world.partition_until)
        heard = later(heard, world.partition_until);
    return heard;
}

static void reset_side(struct connection *c, int side, int64_t at, int error) {
    if (at == NEVER || c->reset_at[side] <= at) return;
    c->reset_at[side] = at;
    c->reset_error[side] = error;
}

/* Data was sent: the idle timeout is replaced by that of retransmissions, [at]. */
static void reset_later(struct connection *c, int side, int64_t at) {
    c->reset_at[side] = at < world.partition_until ? at : NEVER;
    c->is_idle_reset[side] = false;
}

static bool is_reset(const struct connection *c, int side) { return c->reset_at[side] <= world.now; }

static void append(struct connection *c, int to, struct segment *s) {
    int64_t delay = draw_delay(c);
    int64_t retries = c->ends[1 - to] ? RETRIES : ORPHAN_RETRIES;
    int64_t at = is_between_hosts(c) ? arrival(delay, FIRST_RETRANSMISSION, retries) : world.now + delay;
    if (c->is_idle_reset[1 - to] && c->reset_at[1 - to] > world.now) reset_later(c, 1 - to, world.now + RETRIES);
    if (c->last[to]) at = later(c->last[to]->at, c->last[to]->at > world.now + delay ? 0 : at); /* in order */
    s->at = at;
    s->next = NULL;
    if (c->last[to])
        c->last[to]->next = s;
    else
        c->first[to] = s;
    c->last[to] = s;
    c->bytes[to] += s->size;
    if (at == NEVER) return;
    add_acknowledgement(c, to, at);
    if (!is_partitioned_at(at)) add_acknowledgement(c, 1 - to, at + delay);
    if (!c->ends[to]) reset_side(c, 1 - to, at + delay, c->is_tcp ? ECONNRESET : EPIPE);
}

static struct segment *segment_new(const void *bytes, size_t size) {
    struct segment *s = real_malloc(sizeof *s + size);
    if (!s) abort();
    *s = (struct segment){.size = size};
    if (size) memcpy(s->bytes, bytes, size);
    return s;
}

static void drop_first(struct connection *c, int side) {
    struct segment *s = c->first[side];
    c->first[side] = s->next;
    if (!s->next) c->last[side] = NULL;
    c->bytes[side] -= s->size - s->used;
    if (s->passed) file_release(s->passed);
    real_free(s);
}

void network_partition(int64_t from, int64_t until) {
    world.partition_from = from;
    world.partition_until = until;
    for (struct connection *c = connections; c; c = c->next) {
        if (!is_between_hosts(c)) continue;
        for (int side = 0; side < 2; side++) {
            bool is_unacknowledged = c->acknowledged_at[side] > from;
            int64_t retries = c->ends[1 - side] ? RETRIES : ORPHAN_RETRIES;
            for (struct segment *s = c->first[1 - side]; s; s = s->next)
                is_unacknowledged = is_unacknowledged || s->at > from;
            for (struct segment *s = c->first[side]; s; s = s->next)
                if (s->at > from) s->at = arrival(0, FIRST_RETRANSMISSION, retries);
            c->acknowledged_at[side] = c->acknowledged_at[side] > from ? c->heard_at[side] : c->acknowledged_at[side];
            int64_t end =
                from + (is_unacknowledged ? RETRIES : KEEPALIVE_END) + random_below(&world.random, SECOND / 2);
            if (end >= until || c->reset_at[side] <= end) continue;
            reset_side(c, side, end, ETIMEDOUT);
            c->is_idle_reset[side] = !is_unacknowledged;
        }
    }
}

static void update_next(int64_t at, int64_t *next) {
    if (at > world.now && at < *next) *next = at;
}

int64_t network_next(void) {
    int64_t next = NEVER;
    for (const struct connection *c = connections; c; c = c->next) {
        for (int side = 0; side < 2; side++) {
            for (const struct segment *s = c->first[side]; s; s = s->next) update_next(s->at, &next);
            if (c->reset_at[side] != NEVER) update_next(c->reset_at[side], &next);
            if (c->ends[side] && c->ends[side]->connecting) update_next(c->ends[side]->connecting, &next);
        }
    }
    for (int i = 0; i < listener_count; i++)
        for (int k = 0; k < listeners[i]->queued; k++) update_next(listeners[i]->queue_at[k], &next);
    for (int i = 0; i < world.process_count && world.refused_count > 0; i++) /* refused connections have no other end */
        for (int fd = 0; fd < MAX_FILES; fd++) {
            const struct file *f = world.processes[i].files[fd];
            if (f && f->kind == FILE_TCP && f->connecting) update_next(f->connecting, &next);
        }
    return next;
}

/* ---- connections ---- */

static struct connection *connection_new(bool is_tcp, struct file *one, struct file *other) {
    struct connection *c = real_calloc(1, sizeof *c);
    if (!c) abort();
    c->is_tcp = is_tcp;
    c->ends[0] = one;
    c->ends[1] = other;
    c->hosts[0] = one->host;
    c->hosts[1] = other->host;
    c->reset_at[0] = c->reset_at[1] = NEVER;
    c->heard_at[0] = c->heard_at[1] = world.now;
    one->connection = other->connection = c;
    one->side = 0;
    other->side = 1;
    c->next = connections;
    connections = c;
    return c;
}

static void connection_free(struct connection *c) {
    struct connection **at = &connections;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    for (int side = 0; side < 2; side++)
        while (c->first[side]) drop_first(c, side);
    real_free(c);
}

struct file *pair_new(bool is_packet, bool is_one_way, struct file **other) {
    struct file *one = file_new(is_one_way ? FILE_PIPE : FILE_PAIR);
    *other = file_new(one->kind);
    struct connection *c = connection_new(false, one, *other);
    c->is_packet = is_packet;
    c->is_one_way = is_one_way;
    return one;
}

/* Closes a side: unread data is answered by a reset; otherwise the end (FIN) follows the data that was sent. */
static void end_side(struct connection *c, int side) {
    int64_t delay = draw_delay(c);
    struct segment *unread = c->first[side];
    bool is_only_end = unread && unread->is_end;
    if (unread && !is_only_end) {
        int64_t at = later(world.now, unread->at) + delay;
        if (unread->at != NEVER && !(is_between_hosts(c) && is_partitioned_at(at)))
            reset_side(c, 1 - side, at, ECONNRESET);
    }
    struct segment *end = segment_new(NULL, 0);
    end->is_end = true;
    if (!c->is_shut[side])
        append(c, 1 - side, end);
    else
        real_free(end);
    c->is_shut[side] = true;
}

static void listener_close(struct file *file) {
    for (int i = 0; i < listener_count; i++)
        if (listeners[i] == file) listeners[i] = listeners[--listener_count];
    for (int i = 0; i < file->queued; i++) {
        struct connection *c = file->queue[i]->connection;
        reset_side(c, 1 - file->queue[i]->side, world.now + draw_delay(c), ECONNRESET);
        file_release(file->queue[i]);
    }
    file->queued = 0;
}

void connection_close(struct file *file) {
    if (file->kind == FILE_LISTENER) listener_close(file);
    struct connection *c = file->connection;
    if (!c) return;
    c->ends[file->side] = NULL;
    file->connection = NULL;
    if (!c->ends[1 - file->side])
        connection_free(c);
    else
        end_side(c, file->side);
}

static bool has_arrived(const struct connection *c, int side) {
    return c->first[side] && c->first[side]->at <= world.now;
}

bool connection_is_writable(struct file *file) {
    struct connection *c = file->connection;
    return c && !file->connecting && c->bytes[1 - file->side] < BUFFER_SIZE;
}

short connection_events(struct file *file) {
    struct connection *c = file->connection;
    if (file->connecting > world.now) return 0;
    if (file->connect_error) return POLLIN | POLLOUT | POLLERR | POLLHUP;
    if (!c) return POLLHUP | POLLOUT;
    int side = file->side;
    bool other_ended = !c->ends[1 - side] && !c->is_tcp;
    short events = 0;
    if (has_arrived(c, side) || c->is_shut[side] || is_reset(c, side)) events |= POLLIN;
    if (is_reset(c, side)) events |= (short)(POLLHUP | (c->has_seen_reset[side] ? 0 : POLLERR));
    if (other_ended) events |= c->is_one_way && side == 1 ? POLLERR : POLLHUP;
    if (c->is_one_way && side == 0) return events;
    bool has_end = c->first[side] && c->first[side]->is_end && c->first[side]->at <= world.now;
    if (c->is_shut[side] && has_end) events |= POLLHUP;
    if (c->bytes[1 - side] < BUFFER_SIZE || is_reset(c, side)) events |= POLLOUT;
    return events;
}

static ssize_t fail_with(int error) {
    errno = error;
    return -1;
}

static ssize_t read_segments(struct connection *c, int side, void *bytes, size_t size, int *passed_count,
                             struct file **passed) {
    size_t done = 0;
    while (has_arrived(c, side) && done < size) {
        struct segment *s = c->first[side];
        if (s->is_end) break;
        size_t part = s->size - s->used < size - done ? s->size - s->used : size - done;
        memcpy((char *)bytes + done, s->bytes + s->used, part);
        done += part;
        s->used += part;
        c->bytes[side] -= part;
        if (s->passed && passed) {
            *passed = s->passed;
            *passed_count = 1;
            s->passed = NULL;
        }
        if (c->is_packet || s->used == s->size) drop_first(c, side);
        if (c->is_packet) break;
    }
    return (ssize_t)done;
}

ssize_t connection_read(struct file *file, void *bytes, size_t size, int *passed_count, struct file **passed) {
    struct connection *c = file->connection;
    int side = file->side;
    if (!c) return fail_with(ENOTCONN);
    if (has_arrived(c, side) && !c->first[side]->is_end)
        return read_segments(c, side, bytes, size, passed_count, passed);
    if (is_reset(c, side) && !c->has_seen_reset[side]) {
        c->has_seen_reset[side] = true;
        return fail_with(c->reset_error[side]);
    }
    if (has_arrived(c, side) || c->is_shut[side] || is_reset(c, side)) return 0;
    return fail_with(EAGAIN);
}

ssize_t connection_write(struct file *file, const void *bytes, size_t size, struct file *passed) {
    struct connection *c = file->connection;
    int side = file->side;
    if (!c) return fail_with(ENOTCONN);
    if (is_reset(c, side) && !c->has_seen_reset[side]) {
        c->has_seen_reset[side] = true;
        return fail_with(c->reset_error[side]);
    }
    bool other_is_gone = !c->is_tcp && !c->ends[1 - side];
    if (is_reset(c, side) || c->is_shut[side] || other_is_gone) return fail_with(EPIPE);
    size_t capacity = c->bytes[1 - side] < BUFFER_SIZE ? BUFFER_SIZE - c->bytes[1 - side] : 0;
    if (capacity == 0 || (c->is_packet && capacity < size)) return fail_with(EAGAIN);
    if (size > capacity) size = capacity;
    struct segment *s = segment_new(bytes, size);
    s->passed = passed;
    append(c, 1 - side, s);
    return (ssize_t)size;
}

void network_reset(void) {
    while (connections) {
        for (int side = 0; side < 2; side++)
            if (connections->ends[side]) connections->ends[side]->connection = NULL;
        connection_free(connections);
    }
    listener_count = 0;
}

/* ---- calls ---- */

#define SOCKET_OF(fd)                                                                                                  \
    struct file *file = descriptor_file(fd);                                                                           \
    if (!file) return (int)fail_with(EBADF);

int __wrap_socket(int family, int type, int protocol) {
    (void)protocol;
    (void)family;
    CHECK_ERROR(SYS_SOCKET, 0);
    struct file *file = file_new(FILE_TCP);
    file->is_nonblocking = (type & SOCK_NONBLOCK) != 0;
    return descriptor_new(file, (type & SOCK_CLOEXEC) != 0, 0);
}

static bool is_loopback(const struct sockaddr_in *a) { return ntohl(a->sin_addr.s_addr) >> 24 == 127; }

static bool is_of_host(const struct sockaddr_in *a, int host) {
    uint32_t number = ntohl(a->sin_addr.s_addr);
    return number == 0 || number >> 24 == 127 || number == 0x0a000001u + (unsigned)host;
}

static struct file *find_listener(int host, int port, bool is_through_loopback) {
    for (int i = 0; i < listener_count; i++)
        if (listeners[i]->host == host && listeners[i]->port == port &&
            (!listeners[i]->is_loopback || is_through_loopback))
            return listeners[i];
    return NULL;
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t size) {
    (void)size;
    CHECK_ERROR(SYS_BIND, fd);
    SOCKET_OF(fd)
    const struct sockaddr_in *a = (const void *)address;
    int port = ntohs(a->sin_port);
    if (!is_of_host(a, file->host)) return (int)fail_with(EADDRNOTAVAIL);
    if (port && find_listener(file->host, port, true)) return (int)fail_with(EADDRINUSE);
    file->port = port ? port : world.next_port++;
    file->is_loopback = is_loopback(a);
    return 0;
}

int __wrap_listen(int fd, int backlog) {
    (void)backlog;
    CHECK_ERROR(SYS_LISTEN, fd);
    SOCKET_OF(fd)
    file->kind = FILE_LISTENER;
    if (listener_count == 32) abort();
    listeners[listener_count++] = file;
    return 0;
}

bool listener_is_ready(struct file *file) {
    for (int i = 0; i < file->queued; i++)
        if (file->queue_at[i] <= world.now) return true;
    return false;
}

static bool has_free_descriptor(void) {
    struct process *p = current_process();
    for (int fd = 0; fd < p->nofile; fd++)
        if (!p->files[fd]) return true;
    return false;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *size, int flags) {
    (void)address;
    (void)size;
    CHECK_ERROR(SYS_ACCEPT, fd);
    SOCKET_OF(fd)
    if (!has_free_descriptor()) return (int)fail_with(EMFILE);
    for (int i = 0; i < file->queued; i++) {
        if (file->queue_at[i] > world.now) continue;
        struct file *accepted = file->queue[i];
        for (int k = i + 1; k < file->queued; k++) {
            file->queue[k - 1] = file->queue[k];
            file->queue_at[k - 1] = file->queue_at[k];
        }
        file->queued--;
        accepted->is_nonblocking = (flags & SOCK_NONBLOCK) != 0;
        return descriptor_new(accepted, (flags & SOCK_CLOEXEC) != 0, 0);
    }
    return (int)fail_with(EAGAIN);
}

/* Decides at once whether and when the connection is established. */
static int begin_connecting(struct file *file, const struct sockaddr_in *a) {
    int host = is_loopback(a) ? file->host : (int)(ntohl(a->sin_addr.s_addr) - 0x0a000001u);
    bool is_far = host != file->host;
    int64_t delay = is_far ? 50 * MICROSECOND + random_below(&world.random, world.scenario.delay) : 10 * MICROSECOND;
    int64_t there = is_far ? arrival(delay, SECOND, SYN_RETRIES) : world.now + delay;
    struct file *listener = find_listener(host, ntohs(a->sin_port), is_loopback(a));
    file->connecting = there == NEVER ? NEVER : there + delay;
    if (!listener || listener->queued == BACKLOG) {
        if (there != NEVER) file->connect_error = ECONNREFUSED;
        world.refused_count++;
        return 0;
    }
    if (there == NEVER) return 0;
    struct file *accepted = file_new(FILE_TCP);
    accepted->host = host;
    struct connection *c = connection_new(true, file, accepted);
    c->addresses[1] = *a;
    c->addresses[0] = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)world.next_port++)};
    c->addresses[0].sin_addr.s_addr = is_loopback(a) ? a->sin_addr.s_addr : htonl(0x0a000001u + (unsigned)file->host);
    c->heard_at[0] = c->heard_at[1] = file->connecting;
    listener->queue[listener->queued] = accepted;
    listener->queue_at[listener->queued++] = there;
    return 0;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size) {
    (void)size;
    int error = kernel_enter(SYS_CONNECT, fd);
    SOCKET_OF(fd)
    if (error && error != EINTR) return (int)fail_with(error);
    begin_connecting(file, (const void *)address);
    return (int)fail_with(error ? error : EINPROGRESS);
}

static int pending_error(struct file *file) {
    int error = file->connect_error;
    file->connect_error = 0;
    if (file->connecting <= world.now) file->connecting = 0;
    struct connection *c = file->connection;
    if (!error && c && is_reset(c, file->side) && !c->has_seen_reset[file->side]) {
        c->has_seen_reset[file->side] = true;
        error = c->reset_error[file->side];
    }
    return error;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *size) {
    CHECK_ERROR(SYS_OTHER, fd);
    SOCKET_OF(fd)
    if (level == SOL_SOCKET && name == SO_ERROR) {
        int error = pending_error(file);
        memcpy(value, &error, sizeof error);
        return 0;
    }
    if (level != IPPROTO_TCP || name != TCP_INFO || file->kind != FILE_TCP) return (int)fail_with(EOPNOTSUPP);
    struct tcp_info info = {0};
    if (file->connection)
        info.tcpi_last_ack_recv =
            (uint32_t)((world.now - last_acknowledgement(file->connection, file->side)) / MILLISECOND);
    memcpy(value, &info, *size < sizeof info ? *size : sizeof info);
    return 0;
}

int __wrap_setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    (void)fd;
    (void)level;
    (void)name;
    (void)value;
    (void)size;
    return 0;
}

static int name_of(int fd, bool is_peer, struct sockaddr *address, socklen_t *size) {
    CHECK_ERROR(SYS_GETSOCKNAME, fd);
    SOCKET_OF(fd)
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)file->port)};
    a.sin_addr.s_addr = htonl(file->is_loopback ? 0x7f000001u : 0x0a000001u + (unsigned)file->host);
    if (file->kind == FILE_PAIR) {
        memset(address, 0, *size < sizeof a ? *size : sizeof a);
        address->sa_family = AF_UNIX;
        return 0;
    }
    if (file->connection) a = file->connection->addresses[is_peer ? 1 - file->side : file->side];
    memcpy(address, &a, *size < sizeof a ? *size : sizeof a);
    *size = sizeof a;
    return 0;
}

int __wrap_getsockname(int fd, struct sockaddr *address, socklen_t *size) { return name_of(fd, false, address, size); }

int __wrap_getpeername(int fd, struct sockaddr *address, socklen_t *size) { return name_of(fd, true, address, size); }

int __wrap_shutdown(int fd, int how) {
    (void)how; /* SHUT_RDWR */
    CHECK_ERROR(SYS_OTHER, fd);
    SOCKET_OF(fd)
    struct connection *c = file->connection;
    if (!c) return (int)fail_with(ENOTCONN);
    if (c->is_shut[file->side]) return 0;
    struct segment *end = segment_new(NULL, 0);
    end->is_end = true;
    append(c, 1 - file->side, end);
    c->is_shut[file->side] = true;
    return 0;
}
