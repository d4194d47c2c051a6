/* A stack grows page by page when it is touched, and counts towards RLIMIT_AS then. */
#include "base/system/stack.h"

#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE 4096

/* Whether twice STACK_MIN can be mapped: the stack, and as much again for the libraries' first allocations. */
static bool has_memory(void) {
    void *probe = mmap(NULL, 2 * STACK_MIN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return probe != MAP_FAILED && munmap(probe, 2 * STACK_MIN) == 0;
}

/* Touches every page, from the highest address to the lowest. */
static __attribute__((noinline)) void grow(void) {
    volatile size_t size = STACK_MIN; /* volatile: -Wframe-larger-than must not see a constant */
    volatile char *bytes = __builtin_alloca(size);
    for (size_t i = size; i >= PAGE; i -= PAGE) bytes[i - PAGE] = 0;
}

status stack_check(void) {
    struct rlimit stack, memory;
    bool has_limits = getrlimit(RLIMIT_STACK, &stack) == 0 && getrlimit(RLIMIT_AS, &memory) == 0;
    if (has_limits && stack.rlim_cur < STACK_SPACE)
        return status_new(STATUS_USAGE,
                          "the stack limit is %llu KiB, at least %zu KiB are needed; raise it with ulimit -s",
                          (unsigned long long)stack.rlim_cur >> 10, STACK_SPACE >> 10);
    if (!has_limits || memory.rlim_cur == RLIM_INFINITY) return OK;
    if (!has_memory())
        return status_new(STATUS_MEMORY,
                          "the memory limit, %llu KiB, is too low for the stack; raise it with ulimit -v",
                          (unsigned long long)memory.rlim_cur >> 10);
    grow();
    return OK;
}
