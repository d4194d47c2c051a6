/* The backend between ranks of one host. A call is a sequence of steps. In a step each rank writes into its own area,
 * increments its step counter, waits until the counters of all ranks have the same value, and reads the areas of the
 * others. A rank has two areas and alternates between them: when it writes an area again, the step between has shown
 * that no rank still reads it. Of small messages every rank computes the whole sum in one step; of large ones every
 * rank sums one slice while the next chunk is copied; buffers of comm_alloc are not copied at all.
 *
 * With more than FLAT_RANKS ranks the counters are those of a tree, so that a rank waits for, compares and maps the
 * memory of a few others only, and a small message is summed in slices, too. Then time and page tables of all ranks
 * together grow as their number; they would grow as its square. What still does are the bytes that every rank gets from
 * every other: those of an all-gather, and of a message of more than a few lines for each rank. */
#include "dist/comm/comm_shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/scoped.h"
#include "base/system/machine.h"
#include "dist/comm/combine.h"
#include "dist/comm/comm_group.h"
#include "dist/process/net.h"

/* ---- the map ---- */

/* Rank 0 creates the memory and listens on an abstract Unix socket, whose name it publishes in the job's store.
 * Abstract names belong to the network namespace and need no file. A process that connects gets an answer only if it
 * has the same user id and proves the secret. */

#define FETCH_SECONDS 20.0
#define HELLO_SECONDS 1.0 /* maximum wait for the first message of a connection */
#define MAX_NAME 128      /* of an abstract socket */

struct hello {
    int32_t rank;
    uint8_t proof[32];
};

static const char no_store[] = ""; /* error text for a failure of the store, which is returned in a status */

/* ---- the map: keys of the store ---- */

static status key_of(const struct comm_setup *setup, const char *what, const char *part, int rank, struct text *key) {
    text_printf(key, "%s/%s/%s%d", setup->name, what, part, rank);
    return key->length <= STORE_MAX_KEY ? OK : status_new(STATUS_BUG, "a group with too long a name");
}

static status publish(const struct comm_setup *setup, const char *what, const char *part, const void *value,
                      size_t size) {
    SCOPED_TEXT key = {0};
    status failure = key_of(setup, what, part, setup->rank, &key);
    if (!failure) failure = store_set(setup->store, text_string(&key), value, size);
    return failure;
}

static status look_up(const struct comm_setup *setup, const char *what, const char *part, int rank, char **value,
                      size_t *size) {
    SCOPED_TEXT key = {0};
    status failure = key_of(setup, what, part, rank, &key);
    if (!failure) failure = store_get(setup->store, text_string(&key), setup->timeout, (void **)value, size);
    return failure;
}

/* ---- the map: passing the descriptor ---- */

static void prove(const struct comm_setup *setup, const char *socket_name, size_t length, int rank, uint8_t proof[32]) {
    SCOPED_TEXT message = {0};
    text_printf(&message, "shm:%s:%d:", setup->name, rank);
    text_add_bytes(&message, socket_name, length);
    store_sign(setup->store, message.data, message.length, proof);
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
    if (poll(&ready, 1, clock_milliseconds_until(deadline)) != 1) return -1;
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
        if (clock_seconds() >= deadline) return "not all ranks connected to get the shared memory";
        if (poll(&ready, 1, clock_milliseconds_until(deadline)) != 1) continue;
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

/* ---- the map: create on rank 0, fetch on the others ---- */

/* Returns NULL or the error on this rank; a failure of the store is returned in *failure. */
static const char *create_map(const struct comm_setup *setup, const char *what, struct shm_map *map, status *failure) {
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
    SCOPED_STRING name = NULL;
    size_t length = 0;
    *failure = look_up(setup, what, "socket", 0, &name, &length);
    return *failure ? no_store : fetch_from(setup, name, length, map);
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

/* The first error of the group in order of rank; [error]: of this rank, "" for none. */
static status agree(const struct comm_setup *setup, const char *what, const char *error) {
    SCOPED_STRING first = NULL;
    int rank;
    SCOPED_STRING key = text_format("%s/%s/result", setup->name, what);
    status failure =
        store_first(setup->store, key, setup->rank, setup->world_size, error, setup->timeout, &first, &rank);
    if (!failure && first) failure = status_new(STATUS_IO, "%s", first);
    return failure;
}

/* Not collective; releases this rank's lock. Takes a map that was never opened (base NULL). */
static void shm_map_close(struct shm_map *map) {
    if (map->base) munmap(map->base, map->size);
    if (map->base || map->fd > 0) close(map->fd);
    *map = (struct shm_map){.fd = -1};
}

/* [what]: name of the map, unique in the group. STATUS_PEER: a rank was lost; STATUS_IO: it failed on a rank, with the
 * first error in order of rank; all ranks get the same result. All ranks of the group. */
static status shm_map_open(const struct comm_setup *setup, const char *what, size_t size, struct shm_map *out) {
    status failure = OK;
    *out = (struct shm_map){.fd = -1, .size = size};
    const char *error = setup->rank == 0 ? create_map(setup, what, out, &failure) : fetch(setup, what, out, &failure);
    if (!error) error = map_and_lock(out, setup->rank);
    if (!failure) failure = agree(setup, what, error ? error : "");
    if (failure) shm_map_close(out);
    return failure;
}

/* Whether [rank], another one, still has the map open. */
static bool shm_map_is_open_at(const struct shm_map *map, int rank) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(map->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/* The process id of [rank], another one; 0: it has exited, or is in another pid namespace. */
static pid_t shm_map_pid(const struct shm_map *map, int rank) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = rank, .l_len = 1};
    return fcntl(map->fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK ? lock.l_pid : 0;
}

/* ---- the map: hosts ---- */

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

/* ---- waiting ---- */

/* The yield phase is long on purpose. Two ranks that put each other to sleep and wake each other up look half idle to
 * the kernel, which leaves them on one core; two that yield look busy, switch in a microsecond, and the kernel soon
 * moves one to a free core. A sleeping rank wakes up every few milliseconds, more rarely in a crowd, to check whether
 * the other is alive and whether its deadline has passed. */

/* Of the main lane, and of the other: its communication thread shares the cores with computation. */
#define SPIN_SECONDS 5e-6
#define THREAD_SPIN_SECONDS 1e-6
#define YIELD_SECONDS 3e-3
#define THREAD_YIELD_SECONDS 2e-4
#define YIELDS 16 /* between two reads of the clock */
#define SLEEP_NANOSECONDS 10000000
#define SLEEP_MAX_FACTOR 20
#define SLEEP_CROWD 8 /* ranks of a processor, from which on these checks are rarer */

/* Leaves the core to its other thread for a moment, or to memory accesses before the next check. */
static inline void relax(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb" ::: "memory"); /* most cores execute `yield` as no operation */
#endif
}

static bool has_reached(struct shm_signal *signal, uint32_t number) {
    return (int32_t)(atomic_load_explicit(&signal->number, memory_order_acquire) - number) >= 0;
}

/* Checks a signal; false: it did not reach the number in [spins] checks. */
static bool spin(struct shm_signal *signal, uint32_t number, int spins) {
    for (int i = 0; i < spins; i++) {
        if (has_reached(signal, number)) return true;
        relax();
    }
    return false;
}

/* The number of spins that take [seconds]. Whole checks are measured: on some processors relax() takes no time. */
static int count_spins(double seconds) {
    static const int sample = 256;
    struct shm_signal never = {0};
    double start = clock_seconds();
    spin(&never, 1, sample);
    double each = (clock_seconds() - start) / sample;
    return each > 0 ? (int)(seconds / each) + 1 : 1000;
}

/* The cores that any rank of the host may use: each may be bound to its own. A quota is for all of them. */
static int count_cores(const struct shm_map *map, int ranks) {
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof all, &all) != 0) return processors_allowed();
    for (int rank = 0; rank < ranks; rank++) {
        pid_t pid = shm_map_pid(map, rank);
        if (pid > 0 && sched_getaffinity(pid, sizeof one, &one) == 0) CPU_OR(&all, &all, &one);
    }
    int quota = processors_quota(), cores = CPU_COUNT(&all);
    return quota > 0 && quota < cores ? quota : cores;
}

struct shm_wait_policy shm_wait_policy(const struct shm_map *map, const atomic_bool *is_aborted, double timeout,
                                       int ranks, int lane) {
    bool has_own_core = ranks <= processors_online() && ranks <= count_cores(map, ranks);
    int crowd = ranks / (SLEEP_CROWD * processors_online());
    if (crowd < 1) crowd = 1;
    if (crowd > SLEEP_MAX_FACTOR) crowd = SLEEP_MAX_FACTOR;
    int spins = has_own_core ? count_spins(lane == COMM_THREAD_LANE ? THREAD_SPIN_SECONDS : SPIN_SECONDS) : 1;
    return (struct shm_wait_policy){.map = map,
                                    .is_aborted = is_aborted,
                                    .timeout = timeout,
                                    .spins = spins,
                                    .max_spins = spins,
                                    .sleep_nanoseconds = SLEEP_NANOSECONDS * crowd,
                                    .yield_seconds = lane == COMM_THREAD_LANE || !has_own_core ? THREAD_YIELD_SECONDS
                                                                                               : YIELD_SECONDS};
}

/* Sets the number and wakes sleeping ranks. What this rank has read and written before is complete for a rank that has
 * waited for the number (release and acquire), on processors with weak memory order too. */
static void shm_signal_raise(struct shm_signal *signal, uint32_t number) {
    atomic_store(&signal->number, number);
    if (atomic_load(&signal->sleepers) > 0) syscall(SYS_futex, &signal->number, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static bool wait_yielding(struct shm_signal *signal, uint32_t number, double seconds) {
    double end = 0;
    do {
        for (int i = 0; i < YIELDS; i++) {
            if (has_reached(signal, number)) return true;
            sched_yield();
        }
        if (end == 0) end = clock_seconds() + seconds;
    } while (clock_seconds() < end);
    return false;
}

static void futex_wait(struct shm_signal *signal, uint32_t number, long nanoseconds) {
    struct timespec time = {.tv_nsec = nanoseconds};
    atomic_fetch_add(&signal->sleepers, 1);
    uint32_t now = atomic_load(&signal->number);
    if ((int32_t)(now - number) < 0) syscall(SYS_futex, &signal->number, FUTEX_WAIT, now, &time, NULL, 0);
    atomic_fetch_sub(&signal->sleepers, 1);
}

static status wait_asleep(struct shm_signal *signal, uint32_t number, const struct shm_wait_policy *policy, int rank,
                          int name, double *deadline) {
    if (*deadline == 0) *deadline = clock_seconds() + policy->timeout;
    while (!has_reached(signal, number)) {
        futex_wait(signal, number, policy->sleep_nanoseconds);
        if (has_reached(signal, number)) break;
        if (!shm_map_is_open_at(policy->map, rank) && !has_reached(signal, number))
            return status_new(STATUS_PEER, "rank %d has left the group", name);
        if (atomic_load(policy->is_aborted)) return status_new(STATUS_PEER, "another rank was lost");
        if (clock_seconds() > *deadline)
            return status_new(STATUS_PEER, "rank %d did not make the call within %g s", name, policy->timeout);
    }
    return OK;
}

/* Spinning fails when the other rank needs this core: each failure halves the number of spins. */
static bool wait_spinning(struct shm_signal *signal, uint32_t number, struct shm_wait_policy *policy) {
    bool has_succeeded = spin(signal, number, policy->spins);
    if (!has_succeeded)
        policy->spins = policy->spins / 2 + 1;
    else if (policy->spins < policy->max_spins)
        policy->spins *= 2;
    return has_succeeded;
}

status shm_signal_wait(struct shm_signal *signal, uint32_t number, struct shm_wait_policy *policy, int rank, int name,
                       double *deadline) {
    if (wait_spinning(signal, number, policy)) return OK;
    return wait_yielding(signal, number, policy->yield_seconds)
               ? OK
               : wait_asleep(signal, number, policy, rank, name, deadline);
}

#define CHUNK ((size_t)512 << 10)     /* bytes of an area for data, and as many for results */
#define PAIR_CHUNK ((size_t)64 << 10) /* of a message between two ranks */
#define SMALL ((size_t)4 << 10)       /* largest message of which every rank computes the whole sum */
#define PARTS ((size_t)512 << 10)     /* bytes of a gather whose parts are neighbours in memory */
#define FLAT_RANKS 32                 /* more of them wait for each other along a tree */
#define CHILDREN 16                   /* of a rank in the tree: those of rank r are r * CHILDREN + 1 and the next */
#define BLOCK ((size_t)16 << 10)      /* bytes summed before they are copied to all ranks: fits the first-level cache */
#define LINE ((size_t)64)
#define MAX_REGIONS 8

/* The call of a rank: compared between ranks. */
struct shm_call {
    _Alignas(64) uint32_t what;
    uint32_t region;       /* buffer of comm_alloc, counted from 1; 0: other memory */
    uint64_t size, offset; /* offset: of the data in the region */
    bool are_all_shared;   /* in a tree: [region] of this rank and its descendants is a buffer of comm_alloc */
};

struct shm_area {
    _Alignas(64) char data[CHUNK];
    _Alignas(64) char result[CHUNK];
};

/* The counters and calls of all ranks are neighbours, so that they need few pages. */
struct shm_rank_control {
    struct shm_signal step;                 /* steps that this rank, and in a tree its descendants, have reached */
    _Alignas(128) struct shm_call calls[2]; /* alternate like the areas */
};

/* Small messages. */
struct shm_small {
    _Alignas(64) char bytes[2][SMALL]; /* alternate like the areas */
};

/* Of a group that waits along a tree. */
struct shm_tree {
    struct shm_signal release;    /* steps that all ranks have reached; raised by rank 0 */
    _Alignas(64) char sum[SMALL]; /* of a small message */
    char parts[2][PARTS];         /* of a small gather, in order of rank; alternate like the areas */
};

/* Counters of the messages from one rank to another. */
struct shm_pair {
    struct shm_signal sent, received; /* chunks so far */
};

/* The large part of the shared memory of one rank on one lane. */
struct shm_rank_memory {
    struct shm_area areas[2];
    _Alignas(64) char send_buffer[2][PAIR_CHUNK];
};

struct shm_lane {
    struct shm_wait_policy policy;
    struct shm_tree *tree;
    struct shm_rank_control *controls; /* (world) */
    struct shm_small *small;           /* (world) */
    struct shm_rank_memory *ranks;     /* (world) */
    struct shm_pair *pairs;            /* (world, world): from, to */
    uint32_t step;
    double deadline; /* of the call; 0: no long wait yet */
    const void **in; /* (world) */
};

struct shm_group {
    int rank, world;
    const int *members;
    struct comm_setup setup; /* for further maps */
    char *name;
    struct shm_map map;
    atomic_bool is_aborted;
    struct shm_lane lanes[COMM_LANES];
    struct shm_map regions[MAX_REGIONS]; /* comm_alloc's: (world, stride) */
    size_t strides[MAX_REGIONS];
    int region_count;
};

enum kind { BARRIER = 1, REDUCE, REDUCE_SCATTER, GATHER, SCATTER, BROADCAST };

static const char *const kind_names[] = {
    [BARRIER] = "barrier", [REDUCE] = "reduce",   [REDUCE_SCATTER] = "reduce_scatter",
    [GATHER] = "gather",   [SCATTER] = "scatter", [BROADCAST] = "broadcast"};

static uint32_t what_of(enum kind kind, enum comm_type type, enum comm_op op, int root) {
    return (uint32_t)kind | (uint32_t)type << 4 | (uint32_t)op << 8 | (uint32_t)(root + 1) << 12;
}

/* ---- steps ---- */

/* What a rank writes before the next step, and what it wrote before the last one. */
static struct shm_area *area_next(struct shm_lane *lane, int rank) {
    return &lane->ranks[rank].areas[(lane->step + 1) & 1];
}
static struct shm_area *area_now(struct shm_lane *lane, int rank) { return &lane->ranks[rank].areas[lane->step & 1]; }

static char *small_next(struct shm_lane *lane, int rank) { return lane->small[rank].bytes[(lane->step + 1) & 1]; }
static char *small_now(struct shm_lane *lane, int rank) { return lane->small[rank].bytes[lane->step & 1]; }

static struct shm_call *call_now(struct shm_lane *lane, int rank) {
    return &lane->controls[rank].calls[lane->step & 1];
}

static status mismatch(const struct shm_group *g, int rank, const struct shm_call *theirs,
                       const struct shm_call *mine) {
    uint32_t their_kind = theirs->what & 15, my_kind = mine->what & 15;
    return status_new(STATUS_PEER, "rank %d is in another call: %s of %llu bytes; here it is %s of %llu bytes",
                      g->members[rank],
                      their_kind <= BROADCAST && kind_names[their_kind] ? kind_names[their_kind] : "?",
                      (unsigned long long)theirs->size, kind_names[my_kind], (unsigned long long)mine->size);
}

static status compare(const struct shm_group *g, struct shm_lane *lane, int rank, const struct shm_call *mine) {
    const struct shm_call *theirs = call_now(lane, rank);
    bool is_same = theirs->what == mine->what && theirs->size == mine->size;
    return is_same ? OK : mismatch(g, rank, theirs, mine);
}

static status wait_for(struct shm_group *g, struct shm_lane *lane, struct shm_signal *signal, int rank) {
    return shm_signal_wait(signal, lane->step, &lane->policy, rank, g->members[rank], &lane->deadline);
}

static bool has_tree(const struct shm_group *g) { return g->world > FLAT_RANKS; }

/* [rank] has not reached the step: the one of it and its descendants that is late, since those below it are not. */
static int late_rank(const struct shm_group *g, struct shm_lane *lane, int rank) {
    for (int child = 1; child <= rank * CHILDREN + CHILDREN && child < g->world; child++) {
        if (has_reached(&lane->controls[child].step, lane->step)) continue;
        rank = child;
        child = rank * CHILDREN;
    }
    return rank;
}

/* Waits for [rank] and, if it is no release, those below it. The wait ends with the loss of [rank], with a failure of
 * the job, or names the rank that is late. */
static status wait_in_tree(struct shm_group *g, struct shm_lane *lane, struct shm_signal *signal, int rank) {
    status failure = wait_for(g, lane, signal, rank);
    int late = failure ? late_rank(g, lane, rank) : rank;
    if (late == rank || atomic_load(&g->is_aborted) || !shm_map_is_open_at(&g->map, rank)) return failure;
    status_free(failure);
    return status_new(STATUS_PEER, "rank %d did not make the call within %g s", g->members[late], lane->policy.timeout);
}

/* A rank waits for its children, compares their calls with its own before others can use them, and reports to its
 * parent. [mine]: the call that begins; NULL: none. */
static status step_in_tree(struct shm_group *g, struct shm_lane *lane, const struct shm_call *mine) {
    int first = g->rank * CHILDREN + 1, end = first + CHILDREN < g->world ? first + CHILDREN : g->world;
    lane->step++;
    for (int child = first; child < end; child++) {
        TRY(wait_in_tree(g, lane, &lane->controls[child].step, child));
        if (!mine) continue;
        TRY(compare(g, lane, child, mine));
        if (!call_now(lane, child)->are_all_shared) call_now(lane, g->rank)->are_all_shared = false;
    }
    shm_signal_raise(g->rank == 0 ? &lane->tree->release : &lane->controls[g->rank].step, lane->step);
    return g->rank == 0 ? OK : wait_in_tree(g, lane, &lane->tree->release, 0); /* rank 0 releases the others */
}

static status step_with(struct shm_group *g, struct shm_lane *lane, const struct shm_call *mine) {
    if (has_tree(g)) return step_in_tree(g, lane, mine);
    shm_signal_raise(&lane->controls[g->rank].step, ++lane->step);
    for (int i = 1; i < g->world; i++) {
        int rank = g->rank + i < g->world ? g->rank + i : g->rank + i - g->world;
        TRY(wait_for(g, lane, &lane->controls[rank].step, rank));
    }
    for (int r = 0; mine && r < g->world; r++) TRY(compare(g, lane, r, mine));
    return OK;
}

static status step(struct shm_group *g, struct shm_lane *lane) { return step_with(g, lane, NULL); }

/* The first step of a call. Data that was written to area_next before can be read from area_now afterwards. */
static status begin(struct shm_group *g, struct shm_lane *lane, const struct shm_call *call) {
    struct shm_call *next = &lane->controls[g->rank].calls[(lane->step + 1) & 1];
    *next = *call;
    next->are_all_shared = call->region > 0;
    return step_with(g, lane, call);
}

/* ---- slices ---- */

struct slice {
    size_t begin, count; /* elements */
};

/* The slice of [rank] of [count] elements of [size] bytes, aligned to cache lines. */
static struct slice slice_of(size_t count, size_t size, int rank, int world) {
    size_t line = LINE / size, lines = (count + line - 1) / line;
    size_t begin = lines * (size_t)rank / (size_t)world * line, end = lines * (size_t)(rank + 1) / (size_t)world * line;
    if (end > count) end = count;
    if (begin > count) begin = count;
    return (struct slice){begin, end - begin};
}

static void copy(void *to, const void *from, size_t size) {
    if (to != from && size) memmove(to, from, size);
}

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

/* ---- reductions ---- */

struct reduction {
    size_t count, size; /* elements, bytes of each */
    enum comm_type type;
    enum comm_op op;
    bool is_receiver; /* whether this rank gets the result */
    float factor;     /* of values before their sum; 0: none */
};

/* data (count): the result of lane->in. */
static void combine_ranks(const struct shm_group *g, struct shm_lane *lane, void *data, size_t count,
                          const struct reduction *r) {
    if (r->factor != 0)
        combine_scaled(data, (const float *const *)lane->in, g->world, count, r->factor);
    else
        combine(data, lane->in, g->world, count, r->type, r->op);
}

/* In a tree each of the first ranks sums a few lines, in a second step: the sum is read once by each rank. */
static status sum_small_in_slices(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r) {
    int lines = (int)((r->count * r->size + LINE - 1) / LINE), ranks = lines < g->world ? lines : g->world;
    if (g->rank < ranks) {
        struct slice own = slice_of(r->count, r->size, g->rank, ranks);
        for (int i = 0; i < g->world; i++) lane->in[i] = small_now(lane, i) + own.begin * r->size;
        combine_ranks(g, lane, lane->tree->sum + own.begin * r->size, own.count, r);
    }
    TRY(step(g, lane));
    if (r->is_receiver) memcpy(data, lane->tree->sum, r->count * r->size);
    return OK;
}

static status reduce_small(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r,
                           const struct shm_call *call) {
    memcpy(small_next(lane, g->rank), data, r->count * r->size);
    TRY(begin(g, lane, call));
    if (has_tree(g)) return sum_small_in_slices(g, lane, data, r);
    if (!r->is_receiver) return OK;
    for (int i = 0; i < g->world; i++) lane->in[i] = small_now(lane, i);
    lane->in[g->rank] = data;
    combine_ranks(g, lane, data, r->count, r);
    return OK;
}

/* The elements of chunk [n] of a reduction; empty after the last. */
static struct slice chunk_of(const struct reduction *r, size_t n) {
    size_t limit = CHUNK / r->size, start = n * limit;
    return (struct slice){start, start < r->count ? min(limit, r->count - start) : 0};
}

/* Copies this rank's chunk to its area, without the slice that it sums itself. */
static void copy_chunk(struct shm_group *g, struct shm_lane *lane, const char *data, const struct reduction *r,
                       struct slice chunk) {
    char *to = area_next(lane, g->rank)->data;
    const char *from = data + chunk.begin * r->size;
    struct slice own = slice_of(chunk.count, r->size, g->rank, g->world);
    size_t end = own.begin + own.count;
    memcpy(to, from, own.begin * r->size);
    memcpy(to + end * r->size, from + end * r->size, (chunk.count - end) * r->size);
}

/* Sums this rank's slice of the chunk of the last step; the others read the result after the next step. */
static void sum_own_slice(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r,
                          struct slice chunk) {
    struct slice own = slice_of(chunk.count, r->size, g->rank, g->world);
    char *mine = data + (chunk.begin + own.begin) * r->size;
    char *result = area_next(lane, g->rank)->result + own.begin * r->size;
    for (int i = 0; i < g->world; i++) lane->in[i] = area_now(lane, i)->data + own.begin * r->size;
    lane->in[g->rank] = mine;
    combine_ranks(g, lane, result, own.count, r);
    if (r->is_receiver) memcpy(mine, result, own.count * r->size);
}

static void copy_results(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r,
                         struct slice chunk) {
    for (int i = 0; i < g->world; i++) {
        struct slice s = slice_of(chunk.count, r->size, i, g->world);
        if (i == g->rank) continue;
        memcpy(data + (chunk.begin + s.begin) * r->size, area_now(lane, i)->result + s.begin * r->size,
               s.count * r->size);
    }
}

static status reduce_in_chunks(struct shm_group *g, struct shm_lane *lane, char *data, const struct reduction *r) {
    struct slice previous = {0}, chunk = chunk_of(r, 0);
    for (size_t n = 0; chunk.count || previous.count; n++) {
        if (chunk.count) copy_chunk(g, lane, data, r, chunk);
        TRY(step(g, lane));
        if (previous.count && r->is_receiver) copy_results(g, lane, data, r, previous);
        if (chunk.count) sum_own_slice(g, lane, data, r, chunk);
        previous = chunk;
        chunk = chunk_of(r, n + 1);
    }
    return OK;
}

/* ---- buffers of comm_alloc ---- */

/* Sets region and offset of [call] if [data] (size bytes) is in a buffer of comm_alloc. */
static void find_region(const struct shm_group *g, const void *data, size_t size, struct shm_call *call) {
    for (int i = 0; i < g->region_count; i++) {
        const char *own = (const char *)g->regions[i].base + (size_t)g->rank * g->strides[i], *at = data;
        if (at < own || at + size > own + g->strides[i]) continue;
        call->region = (uint32_t)i + 1;
        call->offset = (uint64_t)(at - own);
    }
}

static bool are_all_shared(struct shm_group *g, struct shm_lane *lane) {
    for (int r = 0; r < g->world && !has_tree(g); r++)
        if (call_now(lane, r)->region == 0) return false;
    return !has_tree(g) || call_now(lane, 0)->are_all_shared;
}

/* The address here of the data that [rank] gave in the call of this step. */
static char *shared_data(struct shm_group *g, struct shm_lane *lane, int rank) {
    const struct shm_call *call = call_now(lane, rank);
    return (char *)g->regions[call->region - 1].base + (size_t)rank * g->strides[call->region - 1] + call->offset;
}

/* Each rank sums its slice and writes the result into the buffers of all ranks. */
static status reduce_in_place(struct shm_group *g, struct shm_lane *lane, const struct reduction *r) {
    struct slice own = slice_of(r->count, r->size, g->rank, g->world);
    size_t limit = BLOCK / r->size;
    for (size_t at = own.begin; at < own.begin + own.count; at += limit) {
        size_t count = min(limit, own.begin + own.count - at);
        for (int i = 0; i < g->world; i++) lane->in[i] = shared_data(g, lane, i) + at * r->size;
        char *mine = shared_data(g, lane, g->rank) + at * r->size;
        combine_ranks(g, lane, mine, count, r);
        for (int i = 0; i < g->world; i++)
            if (i != g->rank) memcpy(shared_data(g, lane, i) + at * r->size, mine, count * r->size);
    }
    return step(g, lane);
}

static status alloc(void *group, size_t size, void **out) {
    struct shm_group *g = group;
    char what[32];
    *out = NULL;
    if (g->region_count == MAX_REGIONS) return status_new(STATUS_IO, "too many shared buffers");
    size_t stride = (size + 4095) / 4096 * 4096 + 4096; /* one page more: avoids cache conflicts between ranks */
    snprintf(what, sizeof what, "alloc%d", g->region_count);
    struct shm_map *map = &g->regions[g->region_count];
    TRY(shm_map_open(&g->setup, what, stride * (size_t)g->world, map));
    g->strides[g->region_count++] = stride;
    *out = (char *)map->base + (size_t)g->rank * stride;
    return OK;
}

/* ---- the calls ---- */

static struct shm_lane *lane_of(struct shm_group *g, int lane) {
    g->lanes[lane].deadline = 0;
    return &g->lanes[lane];
}

static status reduce_by(struct shm_group *g, struct shm_lane *lane, void *data, const struct reduction *r, int root) {
    size_t bytes = r->count * r->size;
    struct shm_call call = {.what = what_of(REDUCE, r->type, r->op, root), .size = bytes};
    if (bytes <= SMALL) return reduce_small(g, lane, data, r, &call);
    if (root == COMM_ALL) find_region(g, data, bytes, &call);
    TRY(begin(g, lane, &call));
    return root == COMM_ALL && are_all_shared(g, lane) ? reduce_in_place(g, lane, r)
                                                       : reduce_in_chunks(g, lane, data, r);
}

static status reduce(void *group, int lane, void *data, size_t count, enum comm_type type, enum comm_op op, int root) {
    struct shm_group *g = group;
    struct reduction r = {.count = count,
                          .size = comm_type_size(type),
                          .type = type,
                          .op = op,
                          .is_receiver = root == COMM_ALL || root == g->rank};
    return reduce_by(g, lane_of(g, lane), data, &r, root);
}

static status average(void *group, int lane, float *data, size_t count, float factor) {
    struct shm_group *g = group;
    struct reduction r = {.count = count,
                          .size = sizeof *data,
                          .type = COMM_FLOAT32,
                          .op = COMM_SUM,
                          .is_receiver = true,
                          .factor = factor};
    return reduce_by(g, lane_of(g, lane), data, &r, COMM_ALL);
}

/* data (world, count): a chunk has a piece of each rank's part. */
static status reduce_scatter(void *group, int lane_number, const void *data, size_t count, enum comm_type type,
                             enum comm_op op, void *out) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    size_t size = comm_type_size(type), world = (size_t)g->world, line = LINE / size;
    size_t limit = CHUNK / size / world >= line ? CHUNK / size / world / line * line : CHUNK / size / world;
    struct shm_call call = {.what = what_of(REDUCE_SCATTER, type, op, COMM_ALL), .size = count * size};
    for (size_t at = 0; at < count; at += limit) {
        size_t n = min(limit, count - at);
        for (int r = 0; r < g->world; r++)
            if (r != g->rank)
                memcpy(area_next(lane, g->rank)->data + (size_t)r * limit * size,
                       (const char *)data + ((size_t)r * count + at) * size, n * size);
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        for (int r = 0; r < g->world; r++) lane->in[r] = area_now(lane, r)->data + (size_t)g->rank * limit * size;
        lane->in[g->rank] = (const char *)data + ((size_t)g->rank * count + at) * size;
        combine((char *)out + at * size, lane->in, g->world, n, type, op);
    }
    return OK;
}

static status gather(void *group, int lane_number, const void *data, const size_t *sizes, void *out, int root) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    bool is_receiver = root == COMM_ALL || root == g->rank;
    struct shm_call call = {.what = what_of(GATHER, 0, 0, root)};
    size_t largest = 0, own = 0;
    for (int r = 0; r < g->world; r++) {
        if (r == g->rank) own = call.size;
        call.size += sizes[r];
        if (sizes[r] > largest) largest = sizes[r];
    }
    if (has_tree(g) && call.size > 0 && call.size <= PARTS) {
        if (sizes[g->rank]) memcpy(lane->tree->parts[(lane->step + 1) & 1] + own, data, sizes[g->rank]);
        TRY(begin(g, lane, &call));
        if (is_receiver) memcpy(out, lane->tree->parts[lane->step & 1], call.size);
        return OK;
    }
    if (is_receiver) copy((char *)out + own, data, sizes[g->rank]);
    for (size_t at = 0; at < largest; at += CHUNK) {
        if (at < sizes[g->rank])
            memcpy(area_next(lane, g->rank)->data, (const char *)data + at, min(CHUNK, sizes[g->rank] - at));
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        size_t offset = 0;
        for (int r = 0; is_receiver && r < g->world; offset += sizes[r++])
            if (r != g->rank && at < sizes[r])
                memcpy((char *)out + offset + at, area_now(lane, r)->data, min(CHUNK, sizes[r] - at));
    }
    return OK;
}

static status scatter(void *group, int lane_number, const void *data, size_t size, void *out, int root) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    size_t limit = CHUNK / (size_t)g->world;
    struct shm_call call = {.what = what_of(SCATTER, 0, 0, root), .size = size};
    for (size_t at = 0; at < size; at += limit) {
        size_t n = min(limit, size - at);
        for (int r = 0; root == g->rank && r < g->world; r++)
            memcpy(area_next(lane, g->rank)->data + (size_t)r * limit, (const char *)data + (size_t)r * size + at, n);
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        if (root != g->rank) memcpy((char *)out + at, area_now(lane, root)->data + (size_t)g->rank * limit, n);
    }
    if (root == g->rank) copy(out, (const char *)data + (size_t)root * size, size);
    return OK;
}

static status broadcast(void *group, int lane_number, void *data, size_t size, int root) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    struct shm_call call = {.what = what_of(BROADCAST, 0, 0, root), .size = size};
    for (size_t at = 0; at < size; at += CHUNK) {
        size_t n = min(CHUNK, size - at);
        if (root == g->rank) memcpy(area_next(lane, root)->data, (const char *)data + at, n);
        TRY(at == 0 ? begin(g, lane, &call) : step(g, lane));
        if (root != g->rank) memcpy((char *)data + at, area_now(lane, root)->data, n);
    }
    return OK;
}

static status barrier(void *group, int lane_number) {
    struct shm_group *g = group;
    struct shm_call call = {.what = what_of(BARRIER, 0, 0, COMM_ALL)};
    return begin(g, lane_of(g, lane_number), &call);
}

/* ---- send and recv ---- */

static struct shm_pair *pair_of(struct shm_group *g, struct shm_lane *lane, int from, int to) {
    return &lane->pairs[(size_t)from * (size_t)g->world + (size_t)to];
}

/* Chunks go alternately through two send buffers of the sender. It returns when the receiver has copied all chunks. */
static status shm_send(void *group, int lane_number, const void *data, size_t size, int to) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    struct shm_pair *pair = pair_of(g, lane, g->rank, to);
    uint32_t number = atomic_load(&pair->sent.number);
    for (size_t at = 0; at < size; at += PAIR_CHUNK) {
        TRY(shm_signal_wait(&pair->received, number - 1, &lane->policy, to, g->members[to], &lane->deadline));
        memcpy(lane->ranks[g->rank].send_buffer[number & 1], (const char *)data + at, min(PAIR_CHUNK, size - at));
        shm_signal_raise(&pair->sent, ++number);
    }
    return shm_signal_wait(&pair->received, number, &lane->policy, to, g->members[to], &lane->deadline);
}

static status shm_recv(void *group, int lane_number, void *data, size_t size, int from) {
    struct shm_group *g = group;
    struct shm_lane *lane = lane_of(g, lane_number);
    struct shm_pair *pair = pair_of(g, lane, from, g->rank);
    uint32_t number = atomic_load(&pair->received.number);
    for (size_t at = 0; at < size; at += PAIR_CHUNK) {
        TRY(shm_signal_wait(&pair->sent, number + 1, &lane->policy, from, g->members[from], &lane->deadline));
        memcpy((char *)data + at, lane->ranks[from].send_buffer[number & 1], min(PAIR_CHUNK, size - at));
        shm_signal_raise(&pair->received, ++number);
    }
    return OK;
}

/* ---- create and destroy ---- */

/* A blocked call checks the flag every few milliseconds. */
static void abort_calls(void *group) { atomic_store(&((struct shm_group *)group)->is_aborted, true); }

static void destroy(void *group) {
    struct shm_group *g = group;
    if (!g) return;
    for (int i = 0; i < g->region_count; i++) shm_map_close(&g->regions[i]);
    shm_map_close(&g->map);
    for (int lane = 0; lane < COMM_LANES; lane++) free(g->lanes[lane].in);
    free(g->name);
    free(g);
}

static size_t lane_size(int world) {
    size_t ranks = (size_t)world;
    return sizeof(struct shm_tree) + ranks * sizeof(struct shm_rank_control) + ranks * sizeof(struct shm_small) +
           ranks * sizeof(struct shm_rank_memory) + ranks * ranks * sizeof(struct shm_pair);
}

static status create(const struct comm_setup *setup, void **out) {
    struct shm_group *g = calloc(1, sizeof *g);
    size_t world = (size_t)setup->world_size;
    *out = NULL;
    if (!g) return status_memory("a process group");
    *g = (struct shm_group){.rank = setup->rank,
                            .world = setup->world_size,
                            .members = setup->members,
                            .setup = *setup,
                            .name = strdup(setup->name),
                            .map = {.fd = -1}};
    g->setup.name = g->name;
    for (int lane = 0; lane < COMM_LANES; lane++) g->lanes[lane].in = calloc(world, sizeof *g->lanes[lane].in);
    processors_shorten_slice(); /* a waiting rank yields its core and must be scheduled again soon */
    status failure = shm_map_open(setup, "shm", COMM_LANES * lane_size(setup->world_size), &g->map);
    for (int i = 0; i < COMM_LANES && !failure; i++) {
        struct shm_lane *lane = &g->lanes[i];
        lane->tree = (struct shm_tree *)((char *)g->map.base + (size_t)i * lane_size(setup->world_size));
        lane->controls = (struct shm_rank_control *)(lane->tree + 1);
        lane->small = (struct shm_small *)(lane->controls + world);
        lane->ranks = (struct shm_rank_memory *)(lane->small + world);
        lane->pairs = (struct shm_pair *)(lane->ranks + world);
        lane->policy = shm_wait_policy(&g->map, &g->is_aborted, setup->timeout, setup->world_size, i);
        if (!g->name || !lane->in) failure = status_memory("a process group");
    }
    if (failure)
        destroy(g);
    else
        *out = g;
    return failure;
}

const struct comm_backend comm_shm = {.name = "shm",
                                      .create = create,
                                      .destroy = destroy,
                                      .abort = abort_calls,
                                      .reduce = reduce,
                                      .average = average,
                                      .reduce_scatter = reduce_scatter,
                                      .gather = gather,
                                      .scatter = scatter,
                                      .broadcast = broadcast,
                                      .barrier = barrier,
                                      .send = shm_send,
                                      .recv = shm_recv,
                                      .alloc = alloc};

status comm_connect_shm(struct comm *comm) {
    if (comm->shared->host_count > 1)
        return status_new(
            STATUS_USAGE,
            "dist.backend shm: the ranks are on %d hosts, or in different network namespaces; use auto or gloo",
            comm->shared->host_count);
    TRY(comm_connect_with(comm, &comm_shm));
    comm->shared->description = strdup("shared memory");
    return OK;
}
