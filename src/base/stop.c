/* The only variables of the program that its handler of signals and its loops share. */
#include "base/stop.h"

#include <signal.h>
#include <stdint.h>
#include <unistd.h>

static volatile sig_atomic_t is_requested, is_deferred, forwarded_to = -1;

/* No AddressSanitizer in handlers: it would allocate memory before an _exit on the signal stack. */
__attribute__((no_sanitize("address"))) bool stop_request(void) {
    uint64_t one = 1;
    is_requested = 1;
    return is_deferred || (forwarded_to >= 0 && write((int)forwarded_to, &one, sizeof one) == sizeof one);
}

__attribute__((no_sanitize("address"))) bool stop_is_requested(void) { return is_requested; }

void stop_clear(void) { is_requested = 0; }

void stop_defer(void) { is_deferred = 1; }

__attribute__((no_sanitize("address"))) bool stop_is_deferred(void) { return is_deferred; }

void stop_forward(int fd) { forwarded_to = fd; }
