/* Rank 0 creates the memory and listens on an abstract Unix socket, whose name it publishes in the job's store.
 * Abstract names belong to the network namespace and need no file. A process that connects gets an answer only if it
 * has the same user id and proves the secret. */
#include "dist/comm/shm_map.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "dist/process/net.h"

#define FETCH_SECONDS 20.0
#define HELLO_SECONDS 1.0 /* maximum wait for the first message of a connection */
#define MAX_NAME 128      /* of an abstract socket */

struct hello {
    int32_t rank;
    uint8_t proof[32];
};

static const char no_store[] = ""; /* error text for a failure of the store, which is returned in a status */

/* ---- keys of the store ---- */

static status key_of(const struct comm_setup *setup, const char *what, const char *part, int rank, struct text *key) {
    text_printf(key, "%s/%s/%s%d", setup->name, what, part, rank);
    return key->length <= STORE_MAX_KEY ? OK : status_new(STATUS_BUG, "a group with too long a name");
}

static status publish(const struct comm_setup *setup, const char *what, const char *part, const void *value,
                      size_t size) {
    struct text key = {0};
    status failure = key_of(setup, what, part, setup->rank, &key);
    if (!failure) failure = store_set(setup->store, text_string(&key), value, size);
    text_free(&key);
    return failure;
}

static status look_up(const struct comm_setup *setup, const char *what, const char *part, int rank, char **value,
                      size_t *size) {
    struct text key = {0};
    status failure = key_of(setup, what, part, rank, &key);
    if (!failure) failure = store_get(setup->store, text_string(&key), setup->timeout, (void **)value, size);
    text_free(&key);
    return failure;
}

/* ---- passing the descriptor ---- */

static void prove(const struct comm_setup *setup, const char *socket_name, size_t length, int rank, uint8_t proof[32]) {
    struct text message = {0};
    text_printf(&message, "shm:%s:%d:", setup->name, rank);
    text_add_bytes(&message, socket_name, length);
    store_sign(setup->store, message.data, message.length, proof);
    text_free(&message);
}

/* A message of one byte with one descriptor as ancillary data. */
struct fd_message {
    char byte;
    struct iovec part;
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr header;
};

static void prepare(struct fd_message *p) {
    *p = (struct fd_message){.part = {&p->byte, 1}};
    p->header = (struct msghdr){
        .msg_iov = &p->part, .msg_iovlen = 1, .msg_control = p->control, .msg_controllen = sizeof p->control};
}

static bool send_descriptor(int to, int fd) {
    struct fd_message message;
    prepare(&message);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(control), &fd, sizeof fd);
    return sendmsg(to, &message.header, MSG_NOSIGNAL) == 1;
}

static int receive_descriptor(int from, double deadline) {
    struct fd_message message;
    int fd = -1;
    prepare(&message);
    struct pollfd ready = {.fd = from, .events = POLLIN};
    double left = deadline - clock_seconds();
    if (poll(&ready, 1, left > 0 ? (int)(left * 1000) : 0) != 1) return -1;
    if (recvmsg(from, &message.header, MSG_CMSG_CLOEXEC) != 1) return -1;
    struct cmsghdr *control = CMSG_FIRSTHDR(&message.header);
    if (control && control->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(control), sizeof fd);
    return fd;
}

/* Serves one connection. true: it was a rank, and the descriptor was sent to it. */
static bool serve_one(const struct comm_setup *setup, int connection, const char *name, size_t length, int fd) {
    struct ucred peer;
    socklen_t size = sizeof peer;
    struct hello hello;
    uint8_t expected[32];
    if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) return false;
    if (!net_receive(connection, &hello, sizeof hello, clock_seconds() + HELLO_SECONDS)) return false;
    prove(setup, name, length, hello.rank, expected);
    return memcmp(hello.proof, expected, sizeof expected) == 0 && send_descriptor(connection, fd);
}

static const char *serve(const struct comm_setup *setup, int listener, const char *name, size_t length, int fd) {
    double deadline = clock_seconds() + FETCH_SECONDS;
    for (int served = 1; served < setup->world_size;) {
        struct pollfd ready = {.fd = listener, .events = POLLIN};
        double left = deadline - clock_seconds();
        if (left <= 0) return "not all ranks connected to get the shared memory";
        if (poll(&ready, 1, (int)(left * 1000) + 1) != 1) continue;
        int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0) continue;
        served += serve_one(setup, connection, name, length, fd);
        close(connection);
    }
    return NULL;
}

/* Listens on an abstract Unix socket with a name chosen by the kernel. 0 or an errno. */
static int listen_abstract(int *listener, struct sockaddr_un *address, socklen_t *size) {
    *listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    *size = sizeof *address;
    if (*listener < 0 || bind(*listener, (struct sockaddr *)address, sizeof(sa_family_t)) != 0 ||
        getsockname(*listener, (struct sockaddr *)address, size) != 0 || listen(*listener, SOMAXCONN) != 0)
        return errno;
    return 0;
}

/* ---- create on rank 0, fetch on the others ---- */

/* Returns NULL or the error on this rank; a failure of the store is returned in *failure. */
static const char *create(const struct comm_setup *setup, const char *what, struct shm_map *map, status *failure) {
    struct sockaddr_un address;
    socklen_t size;
    int listener = -1;
    map->fd = memfd_create("ddptrain", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    const char *error = map->fd < 0 ? strerror(errno) : NULL;
    if (!error && ftruncate(map->fd, (off_t)map->size) != 0) error = strerror(errno);
    if (!error && fcntl(map->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) error = strerror(errno);
    if (!error) {
        int code = listen_abstract(&listener, &address, &size);
        if (code) error = strerror(code);
    }
    /* an empty name: rank 0 failed to create the memory */
    size_t length = error ? 0 : size - offsetof(struct sockaddr_un, sun_path);
    *failure = publish(setup, what, "socket", address.sun_path, length);
    if (!error && !*failure) error = serve(setup, listener, address.sun_path, length, map->fd);
    if (listener >= 0) close(listener);
    return *failure ? no_store : error;
}

static const char *fetch_from(const struct comm_setup *setup, const char *name, size_t length, struct shm_map *map) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct hello hello = {.rank = setup->rank};
    double deadline = clock_seconds() + FETCH_SECONDS;
    if (length == 0 || length > MAX_NAME || length > sizeof address.sun_path) return "rank 0 has no shared memory";
    memcpy(address.sun_path, name, length);
    prove(setup, name, length, setup->rank, hello.proof);
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0) return strerror(errno);
    if (connect(connection, (struct sockaddr *)&address,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length)) == 0 &&
        net_send(connection, &hello, sizeof hello, deadline))
        map->fd = receive_descriptor(connection, deadline);
    close(connection);
    return map->fd < 0 ? "rank 0 did not send the shared memory" : NULL;
}

static const char *fetch(const struct comm_setup *setup, const char *what, struct shm_map *map, status *failure) {
    char *name = NULL;
    size_t length = 0;
    *failure = look_up(setup, what, "socket", 0, &name, &length);
    const char *error = *failure ? no_store : fetch_from(setup, name, length, map);
    free(name);
    return error;
}

static const char *map_and_lock(struct shm_map *map, int rank) {
    struct stat info;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    if (fstat(map->fd, &info) != 0 || (size_t)info.st_size != map->size) return "the shared memory has another size";
    if (fcntl(map->fd, F_SETLK, &lock) != 0) return strerror(errno);
    void *base = mmap(NULL, map->size, PROT_READ | PROT_WRITE, MAP_SHARED, map->fd, 0);
    if (base == MAP_FAILED) return strerror(errno);
    map->base = base;
    return NULL;
}

/* Each rank publishes its error, "" for none, and reads those of the others. Returns the first in order of rank. */
static status agree(const struct comm_setup *setup, const char *what, const char *error) {
    TRY(publish(setup, what, "difference", error, strlen(error)));
    for (int rank = 0; rank < setup->world_size; rank++) {
        char *theirs;
        TRY(look_up(setup, what, "difference", rank, &theirs, NULL));
        status failure = *theirs ? status_new(STATUS_IO, "%s", theirs) : OK;
        free(theirs);
        TRY(failure);
    }
    return OK;
}

status shm_map_open(const struct comm_setup *setup, const char *what, size_t size, struct shm_map *out) {
    status failure = OK;
    *out = (struct shm_map){.fd = -1, .size = size};
    const char *error = setup->rank == 0 ? create(setup, what, out, &failure) : fetch(setup, what, out, &failure);
    if (!error) error = map_and_lock(out, setup->rank);
    if (!failure) failure = agree(setup, what, error ? error : "");
    if (failure) shm_map_close(out);
    return failure;
}

void shm_map_close(struct shm_map *map) {
    if (map->base) munmap(map->base, map->size);
    if (map->base || map->fd > 0) close(map->fd);
    *map = (struct shm_map){.fd = -1};
}

bool shm_map_is_open_at(const struct shm_map *map, int rank) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(map->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

pid_t shm_map_pid(const struct shm_map *map, int rank) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(map->fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

/* ---- hosts ---- */

void shm_host_identity(char *identity, size_t size) {
    char boot[64] = "?";
    struct stat network = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file) {
        if (fscanf(file, "%63s", boot) != 1) strcpy(boot, "?");
        fclose(file);
    }
    if (stat("/proc/self/ns/net", &network) != 0) network.st_ino = 0;
    const char *name = getenv(HOST_VARIABLE);
    char host[128];
    host_name(host, sizeof host);
    snprintf(identity, size, "%s %s %lu %u %s", host, boot, (unsigned long)network.st_ino, (unsigned)geteuid(),
             name ? name : "");
}
