/* Whether a request to stop is handled by the process, and who reads it. ctest-labels: unit */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/stop.h"
#include "check_main.h"

static bool is_readable(int fd) {
    struct pollfd event = {.fd = fd, .events = POLLIN};
    return poll(&event, 1, 0) == 1;
}

TEST(nobody_handles_it_at_first) {
    ck_assert(!stop_is_requested());
    ck_assert(!stop_request());
    ck_assert(stop_is_requested());
    stop_clear();
    ck_assert(!stop_is_requested());
}

TEST(it_is_forwarded_until_the_process_handles_it) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ck_assert_int_ge(fd, 0);
    stop_forward(fd);
    ck_assert(!is_readable(fd));
    ck_assert(stop_request());
    ck_assert(is_readable(fd));
    stop_forward(-1);
    ck_assert(!stop_request());
    close(fd);
}

TEST(it_is_deferred) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    stop_forward(fd);
    ck_assert(!stop_is_deferred());
    stop_defer();
    ck_assert(stop_is_deferred());
    ck_assert(stop_request());
    ck_assert(stop_is_requested());
    ck_assert(!is_readable(fd));
    close(fd);
}

CHECK_MAIN("stop")
