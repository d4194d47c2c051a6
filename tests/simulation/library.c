/* Library calls: names, addresses, time, random numbers, files. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "simulation.h"
#include "system.h"
#include "wraps.h"

int __wrap_clock_gettime(clockid_t clock, struct timespec *out) {
    int64_t start = clock == CLOCK_REALTIME ? 1700000000 * SECOND : clock == CLOCK_MONOTONIC ? 1000 * SECOND : 0;
    int64_t time = start + world.now;
    *out = (struct timespec){.tv_sec = time / SECOND, .tv_nsec = time % SECOND};
    return 0;
}

time_t __wrap_time(time_t *out) {
    time_t now = (time_t)(1700000000 + world.now / SECOND);
    if (out) *out = now;
    return now;
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left) {
    int64_t until = world.now + wanted->tv_sec * SECOND + wanted->tv_nsec;
    int error = kernel_enter(SYS_SLEEP, 0);
    bool is_interrupted = error == EINTR || kernel_wait(NULL, NULL, until, true) == WOKE_SIGNAL;
    if (!is_interrupted) return 0;
    int64_t rest = until > world.now ? until - world.now : 0;
    if (left) *left = (struct timespec){.tv_sec = rest / SECOND, .tv_nsec = rest % SECOND};
    errno = EINTR;
    return -1;
}

ssize_t __wrap_getrandom(void *bytes, size_t size, unsigned flags) {
    (void)flags;
    for (size_t i = 0; i < size; i++) ((uint8_t *)bytes)[i] = (uint8_t)random_next(&world.random);
    return (ssize_t)size;
}

int __wrap_gethostname(char *name, size_t size) {
    snprintf(name, size, "host%d", current_process()->host);
    return 0;
}

int __wrap___gethostname_chk(char *name, size_t size, size_t capacity) {
    (void)capacity;
    return __wrap_gethostname(name, size);
}

void __wrap_shm_host_identity(char *text, size_t size);
void __wrap_shm_host_identity(char *text, size_t size) { __wrap_gethostname(text, size); }

/* Files: the config exists, folders and logs can be written, there is no /proc. */

FILE *__wrap_fopen(const char *path, const char *mode) {
    (void)path;
    (void)mode;
    errno = ENOENT;
    return NULL;
}

int __wrap_open(const char *path, int flags, ...) {
    (void)path;
    CHECK_ERROR(SYS_OTHER, 0);
    return descriptor_new(file_new(FILE_SINK), (flags & O_CLOEXEC) != 0, 0);
}

int __wrap_mkdir(const char *path, mode_t mode) {
    (void)path;
    (void)mode;
    return 0;
}

int __wrap_access(const char *path, int mode) {
    (void)path;
    (void)mode;
    return 0;
}

int __wrap_stat(const char *path, struct stat *out) {
    (void)path;
    memset(out, 0, sizeof *out);
    out->st_mode = S_IFREG;
    return 0;
}

int __wrap_fstat(int fd, struct stat *out) {
    struct file *file = descriptor_file(fd);
    memset(out, 0, sizeof *out);
    if (file) out->st_size = (off_t)file->size;
    return file ? 0 : -1;
}

int __wrap_isatty(int fd) {
    (void)fd;
    return 0;
}

/* ---- names: "hostN" has the address 10.0.0.N+1; "localhost" 127.0.0.1; no IPv6 ---- */

static bool address_of(const char *host, struct in_addr *out) {
    int number;
    if (sscanf(host, "host%d", &number) == 1) {
        out->s_addr = htonl(0x0a000001u + (unsigned)number);
        return true;
    }
    if (strcmp(host, "localhost") == 0) host = "127.0.0.1";
    return inet_pton(AF_INET, host, out) == 1;
}

struct answer {
    struct addrinfo info;
    struct sockaddr_in address;
};

int __wrap_getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **out) {
    (void)hints;
    bool is_number = host[0] >= '0' && host[0] <= '9'; /* needs no name server */
    int error = kernel_enter(is_number ? SYS_OTHER : SYS_GETADDRINFO, 0);
    if (error) return error == EAGAIN ? EAI_AGAIN : EAI_MEMORY;
    struct answer *a = __wrap_calloc(1, sizeof *a);
    a->address = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(service))};
    a->info = (struct addrinfo){.ai_family = AF_INET,
                                .ai_socktype = SOCK_STREAM,
                                .ai_addrlen = sizeof a->address,
                                .ai_addr = (struct sockaddr *)&a->address};
    if (!address_of(host, &a->address.sin_addr)) {
        __wrap_free(a);
        return EAI_NONAME;
    }
    *out = &a->info;
    return 0;
}

void __wrap_freeaddrinfo(struct addrinfo *list) { __wrap_free(list); }

int __wrap_getifaddrs(struct ifaddrs **out) {
    (void)out;
    errno = ENOSYS;
    return -1;
}

void __wrap_freeifaddrs(struct ifaddrs *list) { (void)list; }
