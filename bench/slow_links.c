/* Slow or bad links between the hosts (network namespaces) of one machine, for kernels without netem: a TUN device in
 * each, and this process between them, which delays each packet and loses some. What crosses it is ordinary IP; the
 * kernels on both sides retransmit as on any bad network. Packets from one host to another keep their order. The rate
 * of a link is the caller's: tc's tbf on the device.
 *
 *     slow_links [--device link0] [--delay MS] [--jitter MS] [--loss SHARE] [--seed N] NAMESPACE=ADDRESS ...
 *
 * Prints "up" when all devices are there (down, without an address: the caller configures them) and carries packets
 * until SIGTERM; then it prints how many it carried and lost. Milliseconds are one way. Needs root. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define MAX_HOSTS 64
#define MAX_PACKET 65536
#define BURST 32 /* packets that are read of a host before others have their turn */

struct packet {
    double at;
    uint64_t order;
    int to;
    ssize_t size;
    char *bytes;
};

static struct {
    int count;
    struct pollfd devices[MAX_HOSTS];
    uint32_t addresses[MAX_HOSTS];
    double last[MAX_HOSTS][MAX_HOSTS]; /* from, to: when the last packet arrives */
    struct packet *heap;               /* (size) by time */
    size_t size, capacity;
    uint64_t order, carried, lost;
    double delay, jitter, loss;
    uint64_t random;
} links = {.random = 1};

static volatile sig_atomic_t is_stopped;

static void stop(int number) {
    (void)number;
    is_stopped = 1;
}

static _Noreturn void fail(const char *what, const char *name) {
    fprintf(stderr, "slow_links: %s %s: %s\n", what, name, strerror(errno));
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* In [0, 1): xorshift64*. */
static double draw(void) {
    links.random ^= links.random >> 12;
    links.random ^= links.random << 25;
    links.random ^= links.random >> 27;
    return (double)(links.random * 2685821657736338717u >> 11) / 9007199254740992.0;
}

/* "NAMESPACE=ADDRESS" */
static void add_host(const char *text, const char *device) {
    char path[256];
    const char *equals = strchr(text, '=');
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    int i = links.count++;
    if (i == MAX_HOSTS || !equals || inet_pton(AF_INET, equals + 1, &links.addresses[i]) != 1)
        fail("not NAMESPACE=ADDRESS:", text);
    snprintf(path, sizeof path, "/var/run/netns/%.*s", (int)(equals - text), text);
    int namespace = open(path, O_RDONLY | O_CLOEXEC);
    if (namespace < 0 || setns(namespace, CLONE_NEWNET) != 0) fail("cannot enter", path);
    close(namespace);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) fail("cannot make a device in", path);
    links.devices[i] = (struct pollfd){.fd = fd, .events = POLLIN};
}

static bool is_before(const struct packet *a, const struct packet *b) {
    return a->at < b->at || (a->at == b->at && a->order < b->order);
}

static void push(struct packet p) {
    if (links.size == links.capacity) {
        links.capacity = links.capacity ? 2 * links.capacity : 1024;
        links.heap = realloc(links.heap, links.capacity * sizeof *links.heap);
        if (!links.heap) fail("no", "memory");
    }
    size_t i = links.size++;
    for (; i > 0 && is_before(&p, &links.heap[(i - 1) / 2]); i = (i - 1) / 2) links.heap[i] = links.heap[(i - 1) / 2];
    links.heap[i] = p;
}

static struct packet pop(void) {
    struct packet first = links.heap[0], last = links.heap[--links.size];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < links.size; i = child) {
        if (child + 1 < links.size && is_before(&links.heap[child + 1], &links.heap[child])) child++;
        if (!is_before(&links.heap[child], &last)) break;
        links.heap[i] = links.heap[child];
    }
    links.heap[i] = last;
    return first;
}

/* The host to which an IPv4 packet goes; -1: none. */
static int receiver_of(const char *bytes, ssize_t size) {
    uint32_t address;
    if (size < 20 || (uint8_t)bytes[0] >> 4 != 4) return -1;
    memcpy(&address, bytes + 16, sizeof address);
    for (int i = 0; i < links.count; i++)
        if (links.addresses[i] == address) return i;
    return -1;
}

static void take(int from) {
    static char bytes[MAX_PACKET];
    for (int i = 0; i < BURST; i++) {
        ssize_t size = read(links.devices[from].fd, bytes,
                            sizeof bytes); /* fails without a packet, and while the device is down */
        int to = size > 0 ? receiver_of(bytes, size) : -1;
        if (size <= 0) return;
        if (to < 0) continue;
        if (draw() < links.loss) {
            links.lost++;
            continue;
        }
        double at = now() + links.delay + links.jitter * draw();
        if (at < links.last[from][to]) at = links.last[from][to];
        links.last[from][to] = at;
        struct packet p = {.at = at, .order = links.order++, .to = to, .size = size, .bytes = malloc((size_t)size)};
        if (!p.bytes) fail("no", "memory");
        memcpy(p.bytes, bytes, (size_t)size);
        push(p);
    }
}

static void give(void) {
    double time = now();
    while (links.size > 0 && links.heap[0].at <= time) {
        struct packet p = pop();
        bool is_carried =
            write(links.devices[p.to].fd, p.bytes, (size_t)p.size) == p.size; /* else the device is down */
        links.carried += is_carried;
        links.lost += !is_carried;
        free(p.bytes);
    }
}

static void run(void) {
    while (!is_stopped) {
        give();
        double wait = links.size > 0 ? links.heap[0].at - now() : 1;
        if (wait < 0) wait = 0;
        struct timespec limit = {.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (double)(time_t)wait) * 1e9)};
        if (ppoll(links.devices, (nfds_t)links.count, &limit, NULL) < 0 && errno != EINTR) fail("cannot", "poll");
        for (int i = 0; i < links.count; i++)
            if (links.devices[i].revents) take(i);
    }
}

static double number(const char *text) {
    char *end;
    double value = text ? strtod(text, &end) : -1;
    if (!text || *end || value < 0) fail("not a number:", text ? text : "(nothing)");
    return value;
}

int main(int argc, char **argv) {
    const char *device = "link0";
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        if (!strcmp(argv[i], "--device"))
            device = argv[i + 1];
        else if (!strcmp(argv[i], "--delay"))
            links.delay = 1e-3 * number(argv[i + 1]);
        else if (!strcmp(argv[i], "--jitter"))
            links.jitter = 1e-3 * number(argv[i + 1]);
        else if (!strcmp(argv[i], "--loss"))
            links.loss = number(argv[i + 1]);
        else if (!strcmp(argv[i], "--seed"))
            links.random = 2 * (uint64_t)number(argv[i + 1]) + 1;
        else
            fail("unknown option", argv[i]);
    }
    for (; i < argc; i++) add_host(argv[i], device);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    sigaction(SIGTERM, &(struct sigaction){.sa_handler = stop}, NULL);
    puts("up");
    fflush(stdout);
    run();
    printf("%llu carried, %llu lost\n", (unsigned long long)links.carried, (unsigned long long)links.lost);
    return 0;
}
