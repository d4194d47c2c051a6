/* clock: seconds, and sleeping. */
#pragma once

#include <stdint.h>
#include <time.h>

/* Seconds on the monotonic clock. */
static inline double clock_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The same clock as of the kernel's last tick, some milliseconds ago: read in a fifth of the time. */
static inline double clock_recent_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Seconds since 1970. */
static inline double clock_unix(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void clock_sleep(double seconds) {
    struct timespec t = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&t, &t) != 0) {
    }
}

/* Milliseconds until [deadline], rounded up, for poll; 0: it has passed. At most a day. */
static inline int clock_milliseconds_until(double deadline) {
    double left = deadline - clock_seconds();
    return left <= 0 ? 0 : left > 86400 ? 86400000 : (int)(left * 1000) + 1;
}
