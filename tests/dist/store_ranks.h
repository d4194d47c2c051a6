/* Ranks of the store's tests: opens a store, expects a failure, and connects without the store's client. */
#pragma once

#include <netinet/in.h>

#include "dist/process/env.h"
#include "dist/store/store_join.h"
#include "ranks.h"

static inline struct store *rank_open_store(const struct dist_env *env, double timeout) {
    struct store *store;
    rank_must(store_open(env, timeout, &store));
    return store;
}

/* In a rank: exits with 1 unless [s] has [code] and its message contains [text]. Consumes [s]. */
static inline void rank_expect(status s, enum status_code code, const char *text) {
    if (status_code(s) == code && strstr(status_message(s), text)) {
        status_free(s);
        return;
    }
    fprintf(stderr, "rank fails: expected %d '%s', got %d '%s'\n", code, text, status_code(s), status_message(s));
    _exit(1);
}

/* A connection of the rank of [env] to the store, for 20 s; secret (32): set here. The caller may change fields. */
static inline struct store_join rank_connection(const struct dist_env *env, uint8_t secret[32],
                                                enum store_purpose purpose) {
    rank_must(dist_env_secret(env, secret));
    return (struct store_join){.host = "127.0.0.1",
                               .port = env->master_port,
                               .rank = env->rank,
                               .world_size = env->world_size,
                               .job = store_job_hash(env->job_id),
                               .secret = secret,
                               .process = "a test",
                               .deadline = clock_seconds() + 20,
                               .purpose = purpose};
}

/* A TCP connection to a port of this host; -1: failed. */
static inline int connect_to_port(int port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}
