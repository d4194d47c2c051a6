/* Descriptors: tables of processes, poll, and files other than sockets. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "simulation.h"
#include "system.h"
#include "wraps.h"

/* ---- files ---- */

struct file *file_new(enum file_kind kind) {
    struct file *file = real_calloc(1, sizeof *file);
    if (!file) abort();
    file->kind = kind;
    file->references = 1;
    file->host = current_process() ? current_process()->host : 0;
    return file;
}

void file_release(struct file *file) {
    if (--file->references > 0) return;
    if (file->kind == FILE_TCP || file->kind == FILE_LISTENER || file->kind == FILE_PAIR || file->kind == FILE_PIPE)
        connection_close(file);
    struct fiber *current = world.current;
    world.current = NULL; /* the memory of the text belongs to the simulation */
    text_free(&file->text);
    world.current = current;
    real_free(file->watched);
    if (file->memory) return; /* it may be mapped: not freed */
    real_free(file);
}

struct file *descriptor_file(int fd) {
    struct process *p = current_process();
    return fd >= 0 && fd < MAX_FILES ? p->files[fd] : NULL;
}

int descriptor_new(struct file *file, bool is_cloexec, int min) {
    struct process *p = current_process();
    for (int fd = min; fd < p->nofile; fd++) {
        if (p->files[fd]) continue;
        p->files[fd] = file;
        p->cloexec[fd] = is_cloexec;
        p->inherited[fd] = false;
        return fd;
    }
    file_release(file);
    errno = EMFILE;
    return -1;
}

bool file_is_readable(struct file *file) { return (file_events(file) & (POLLIN | POLLHUP | POLLERR)) != 0; }

bool file_is_writable(struct file *file) { return (file_events(file) & (POLLOUT | POLLHUP | POLLERR)) != 0; }

short file_events(struct file *file) {
    struct process *p = current_process();
    switch (file->kind) {
    case FILE_TCP:
    case FILE_PAIR:
    case FILE_PIPE:
        return connection_events(file);
    case FILE_LISTENER:
        return listener_is_ready(file) ? POLLIN : 0;
    case FILE_EVENT:
        return (short)(POLLOUT | (file->counter ? POLLIN : 0));
    case FILE_SIGNALS:
        return p && (p->pending & file->mask) ? POLLIN : 0;
    default:
        return POLLOUT | POLLIN;
    }
}

/* ---- calls ---- */

#define FILE_OF(fd)                                                                                                    \
    struct file *file = descriptor_file(fd);                                                                           \
    if (!file) {                                                                                                       \
        errno = EBADF;                                                                                                 \
        return -1;                                                                                                     \
    }

/* The size of a short read or write, at least 1. Fewer bytes than [min] are never shortened. */
static size_t shorten(size_t size, size_t min) {
    if (!world.scenario.has_shorts || size < min || random_below(&world.random, 8) != 0) return size;
    return 1 + (size_t)random_below(&world.random, (int64_t)size - 1);
}

static ssize_t read_signals(struct file *file, void *bytes, size_t size) {
    struct process *p = current_process();
    uint32_t ready = p->pending & file->mask;
    struct signalfd_siginfo info = {0};
    if (!ready) {
        errno = EAGAIN;
        return -1;
    }
    int number = __builtin_ctz(ready);
    p->pending &= ~(1u << number);
    info.ssi_signo = (uint32_t)number;
    memcpy(bytes, &info, size < sizeof info ? size : sizeof info);
    return sizeof info;
}

static bool is_readable(void *data) { return file_is_readable(data); }
static bool is_writable(void *data) { return file_is_writable(data); }

static ssize_t get(struct file *file, void *bytes, size_t size, bool is_dontwait, int *passed_count,
                   struct file **passed) {
    bool is_stream = file->kind == FILE_TCP || file->kind == FILE_PIPE;
    while (!file_is_readable(file)) {
        if (file->is_nonblocking || is_dontwait) {
            errno = EAGAIN;
            return -1;
        }
        kernel_wait(is_readable, file, NEVER, false); /* SA_RESTART */
    }
    if (is_stream) size = shorten(size, 2);
    return connection_read(file, bytes, size, passed_count, passed);
}

static ssize_t put(struct file *file, const void *bytes, size_t size, bool is_dontwait, struct file *passed) {
    bool is_stream = file->kind == FILE_TCP || file->kind == FILE_PIPE;
    while (!file_is_writable(file)) {
        if (file->is_nonblocking || is_dontwait) {
            errno = EAGAIN;
            return -1;
        }
        kernel_wait(is_writable, file, NEVER, false);
    }
    if (is_stream) size = shorten(size, 1024); /* a small write always fits into the buffer */
    return connection_write(file, bytes, size, passed);
}

ssize_t __wrap_read(int fd, void *bytes, size_t size) {
    CHECK_ERROR(SYS_READ, fd);
    FILE_OF(fd)
    if (file->kind == FILE_SIGNALS) return read_signals(file, bytes, size);
    if (file->kind == FILE_SINK) return 0;
    if (file->kind != FILE_EVENT) return get(file, bytes, size, false, NULL, NULL);
    if (!file->counter) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(bytes, &file->counter, sizeof file->counter);
    file->counter = 0;
    return sizeof file->counter;
}

ssize_t __wrap_pread(int fd, void *bytes, size_t size, off_t offset) {
    CHECK_ERROR(SYS_READ, fd);
    FILE_OF(fd)
    if (file->kind != FILE_MEMORY || (size_t)offset > file->size) return 0;
    size_t left = file->size - (size_t)offset;
    if (size > left) size = left;
    memcpy(bytes, file->memory + offset, size);
    return (ssize_t)size;
}

static void grow_memory(struct file *file, size_t size) {
    if (size <= file->size) return;
    file->memory = real_realloc(file->memory, size);
    if (!file->memory) abort();
    memset(file->memory + file->size, 0, size - file->size);
    file->size = size;
}

static void write_sink(struct file *file, const void *bytes, size_t size) {
    struct fiber *current = world.current;
    kernel_note("prints: %.*s", (int)size - (((const char *)bytes)[size - 1] == '\n'), (const char *)bytes);
    world.current = NULL;
    text_add_bytes(&file->text, bytes, size);
    world.current = current;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    CHECK_ERROR(fd <= 2 ? SYS_OTHER : SYS_WRITE, fd); /* streams are written with SA_RESTART */
    FILE_OF(fd)
    if (file->kind == FILE_SINK && size) write_sink(file, bytes, size);
    if (file->kind == FILE_SINK) return (ssize_t)size;
    if (file->kind == FILE_EVENT) {
        uint64_t more;
        memcpy(&more, bytes, sizeof more);
        file->counter += more;
        return sizeof more;
    }
    if (file->kind == FILE_MEMORY) {
        size_t at = file->size;
        grow_memory(file, at + size);
        memcpy(file->memory + at, bytes, size);
        return (ssize_t)size;
    }
    return put(file, bytes, size, false, NULL);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t size, int flags) {
    CHECK_ERROR(SYS_RECV, fd);
    FILE_OF(fd)
    return get(file, bytes, size, (flags & MSG_DONTWAIT) != 0, NULL, NULL);
}

ssize_t __wrap_send(int fd, const void *bytes, size_t size, int flags) {
    CHECK_ERROR(SYS_SEND, fd);
    FILE_OF(fd)
    return put(file, bytes, size, (flags & MSG_DONTWAIT) != 0, NULL);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags) {
    CHECK_ERROR(SYS_SEND, fd);
    FILE_OF(fd)
    struct file *passed = NULL;
    const struct cmsghdr *first = message->msg_control ? CMSG_FIRSTHDR(message) : NULL;
    if (first) {
        int number;
        memcpy(&number, CMSG_DATA(first), sizeof number);
        passed = descriptor_file(number);
        if (passed) passed->references++;
    }
    ssize_t sent =
        put(file, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, (flags & MSG_DONTWAIT) != 0, passed);
    if (sent < 0 && passed) file_release(passed);
    return sent;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags) {
    CHECK_ERROR(SYS_RECV, fd);
    FILE_OF(fd)
    struct file *passed = NULL;
    int count = 0;
    ssize_t received = get(file, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, (flags & MSG_DONTWAIT) != 0,
                           &count, &passed);
    size_t capacity = message->msg_controllen;
    message->msg_controllen = 0;
    if (!passed) return received;
    int number = descriptor_new(passed, (flags & MSG_CMSG_CLOEXEC) != 0, 0);
    if (number < 0 || capacity < CMSG_LEN(sizeof number)) return received; /* without the descriptor, as Linux does */
    struct cmsghdr *header = message->msg_control;
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof number)};
    memcpy(CMSG_DATA(header), &number, sizeof number);
    message->msg_controllen = CMSG_SPACE(sizeof number);
    return received;
}

int __wrap_close(int fd) {
    FILE_OF(fd)
    current_process()->files[fd] = NULL;
    file_release(file);
    CHECK_ERROR(SYS_CLOSE, fd); /* it is closed even if close fails */
    return 0;
}

int __wrap_dup(int fd) {
    CHECK_ERROR(SYS_DUP, fd);
    FILE_OF(fd)
    file->references++;
    return descriptor_new(file, false, 0);
}

int __wrap_dup2(int from, int to) {
    CHECK_ERROR(SYS_OTHER, from);
    FILE_OF(from)
    struct process *p = current_process();
    if (from == to) return to;
    if (p->files[to]) file_release(p->files[to]);
    file->references++;
    p->files[to] = file;
    p->cloexec[to] = false;
    return to;
}

int __wrap_fcntl(int fd, int command, ...) {
    va_list arguments;
    va_start(arguments, command);
    int argument = command == F_GETFL || command == F_GETFD ? 0 : va_arg(arguments, int);
    va_end(arguments);
    CHECK_ERROR(command == F_DUPFD_CLOEXEC ? SYS_DUP : SYS_OTHER, fd);
    FILE_OF(fd)
    struct process *p = current_process();
    switch (command) {
    case F_DUPFD_CLOEXEC:
        file->references++;
        return descriptor_new(file, true, argument);
    case F_SETFD:
        p->cloexec[fd] = (argument & FD_CLOEXEC) != 0;
        return 0;
    case F_GETFD:
        return p->cloexec[fd] ? FD_CLOEXEC : 0;
    case F_GETFL:
        return file->is_nonblocking ? O_NONBLOCK : 0;
    case F_SETFL:
        file->is_nonblocking = (argument & O_NONBLOCK) != 0;
        return 0;
    default: /* F_SETOWN, F_SETSIG: the parent-death signal has the same effect */
        return 0;
    }
}

int __wrap_eventfd(unsigned count, int flags) {
    CHECK_ERROR(SYS_EVENTFD, 0);
    struct file *file = file_new(FILE_EVENT);
    file->counter = count;
    return descriptor_new(file, (flags & EFD_CLOEXEC) != 0, 0);
}

int __wrap_memfd_create(const char *name, unsigned flags) {
    (void)name;
    CHECK_ERROR(SYS_MEMFD, 0);
    return descriptor_new(file_new(FILE_MEMORY), (flags & 1) != 0, 0);
}

int __wrap_ftruncate(int fd, off_t size) {
    CHECK_ERROR(SYS_OTHER, fd);
    FILE_OF(fd)
    grow_memory(file, (size_t)size);
    return 0;
}

static int two_descriptors(struct file *a, struct file *b, bool is_cloexec, int fds[2]) {
    fds[0] = descriptor_new(a, is_cloexec, 0);
    if (fds[0] < 0) {
        int error = errno;
        file_release(b);
        errno = error;
        return -1;
    }
    fds[1] = descriptor_new(b, is_cloexec, 0);
    if (fds[1] >= 0) return 0;
    int error = errno;
    current_process()->files[fds[0]] = NULL;
    file_release(a);
    errno = error;
    return -1;
}

int __wrap_pipe2(int fds[2], int flags) {
    CHECK_ERROR(SYS_PIPE, 0);
    struct file *other, *reader = pair_new(false, true, &other);
    return two_descriptors(reader, other, (flags & O_CLOEXEC) != 0, fds);
}

int __wrap_socketpair(int family, int type, int protocol, int fds[2]) {
    (void)family;
    (void)protocol;
    CHECK_ERROR(SYS_SOCKETPAIR, 0);
    struct file *other, *one = pair_new((type & 0xf) == SOCK_SEQPACKET, false, &other);
    one->is_nonblocking = other->is_nonblocking = (type & SOCK_NONBLOCK) != 0;
    return two_descriptors(one, other, (type & SOCK_CLOEXEC) != 0, fds);
}

/* ---- poll ---- */

struct polling {
    struct pollfd *polls;
    nfds_t count;
    struct process *process;
};

static int fill(struct polling *p) {
    int ready = 0;
    for (nfds_t i = 0; i < p->count; i++) {
        struct pollfd *poll = &p->polls[i];
        poll->revents = 0;
        if (poll->fd < 0) continue;
        struct file *file = poll->fd < MAX_FILES ? p->process->files[poll->fd] : NULL;
        short events = 0;
        if (!file)
            events = POLLNVAL;
        else if (file->kind == FILE_SIGNALS)
            events = p->process->pending & file->mask ? POLLIN : 0;
        else
            events = file_events(file);
        poll->revents = (short)(events & (poll->events | POLLERR | POLLHUP | POLLNVAL));
        ready += poll->revents != 0;
    }
    return ready;
}

static bool has_events(void *data) { return fill(data) > 0; }

int __wrap_poll(struct pollfd *polls, nfds_t count, int timeout) {
    CHECK_ERROR(SYS_POLL, timeout);
    struct polling p = {polls, count, current_process()};
    int64_t until = timeout < 0 ? NEVER : world.now + timeout * MILLISECOND;
    if (kernel_wait(has_events, &p, until, true) == WOKE_SIGNAL) {
        errno = EINTR;
        return -1;
    }
    return fill(&p);
}

/* ---- epoll ---- */

/* As Linux: a watched descriptor stays until it is removed, and EPOLLHUP and EPOLLERR are always reported. */

struct watched {
    struct file *file;
    struct epoll_event event;
};

int __wrap_epoll_create1(int flags) {
    CHECK_ERROR(SYS_EPOLL, 0);
    return descriptor_new(file_new(FILE_EPOLL), (flags & EPOLL_CLOEXEC) != 0, 0);
}

static struct watched *find_watched(const struct file *epoll, const struct file *file) {
    for (size_t i = 0; i < epoll->watched_count; i++)
        if (epoll->watched[i].file == file) return &epoll->watched[i];
    return NULL;
}

static void add_watched(struct file *epoll, struct file *file, const struct epoll_event *event) {
    size_t count = epoll->watched_count + 1;
    epoll->watched = real_realloc(epoll->watched, count * sizeof *epoll->watched);
    if (!epoll->watched) abort();
    epoll->watched[epoll->watched_count++] = (struct watched){file, *event};
}

int __wrap_epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event) {
    CHECK_ERROR(operation == EPOLL_CTL_ADD ? SYS_EPOLL : SYS_OTHER, fd);
    FILE_OF(fd)
    struct file *set = descriptor_file(epoll);
    struct watched *found = find_watched(set, file);
    if ((operation == EPOLL_CTL_ADD) == (found != NULL)) abort(); /* an error of the product */
    if (operation == EPOLL_CTL_ADD) add_watched(set, file, event);
    if (operation == EPOLL_CTL_MOD) found->event = *event;
    if (operation == EPOLL_CTL_DEL) *found = set->watched[--set->watched_count];
    return 0;
}

struct epoll_waiting {
    struct file *epoll;
    struct epoll_event *events; /* NULL: only counted */
    int capacity;
};

static int fill_events(const struct epoll_waiting *w) {
    int ready = 0;
    for (size_t i = 0; i < w->epoll->watched_count && ready < w->capacity; i++) {
        const struct watched *one = &w->epoll->watched[i];
        uint32_t events = (uint32_t)file_events(one->file) & (one->event.events | EPOLLERR | EPOLLHUP);
        if (!events) continue;
        if (w->events) w->events[ready] = (struct epoll_event){.events = events, .data = one->event.data};
        ready++;
    }
    return ready;
}

static bool has_epoll_events(void *data) {
    struct epoll_waiting any = {((struct epoll_waiting *)data)->epoll, NULL, 1};
    return fill_events(&any) > 0;
}

int __wrap_epoll_wait(int epoll, struct epoll_event *events, int count, int timeout) {
    CHECK_ERROR(SYS_POLL, timeout);
    struct epoll_waiting w = {descriptor_file(epoll), events, count};
    int64_t until = timeout < 0 ? NEVER : world.now + timeout * MILLISECOND;
    if (kernel_wait(has_epoll_events, &w, until, true) == WOKE_SIGNAL) {
        errno = EINTR;
        return -1;
    }
    return fill_events(&w);
}

/* ---- the same calls with _FORTIFY_SOURCE ---- */

ssize_t __wrap___read_chk(int fd, void *bytes, size_t size, size_t capacity) {
    (void)capacity;
    return __wrap_read(fd, bytes, size);
}

ssize_t __wrap___pread_chk(int fd, void *bytes, size_t size, off_t offset, size_t capacity) {
    (void)capacity;
    return __wrap_pread(fd, bytes, size, offset);
}

ssize_t __wrap___recv_chk(int fd, void *bytes, size_t size, size_t capacity, int flags) {
    (void)capacity;
    return __wrap_recv(fd, bytes, size, flags);
}

int __wrap___poll_chk(struct pollfd *polls, nfds_t count, int timeout, size_t capacity) {
    (void)capacity;
    return __wrap_poll(polls, count, timeout);
}
