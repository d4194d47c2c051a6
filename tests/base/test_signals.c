/* The handler of stop requests runs on the alternate stack, for any stack pointer. ctest-labels: unit */
#include "base/system/signals.h"

#include <signal.h>
#include <stdint.h>

#include "check_main.h"

static volatile sig_atomic_t calls;
static volatile uintptr_t frame;

static void handle(int signal_number) {
    (void)signal_number;
    frame = (uintptr_t)__builtin_frame_address(0);
    calls++;
}

static bool is_inside(uintptr_t address, const stack_t *stack) {
    return address >= (uintptr_t)stack->ss_sp && address < (uintptr_t)stack->ss_sp + stack->ss_size;
}

TEST(every_stop_has_its_own_stack) {
    static const int stops[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGHUP, SIGXCPU};
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signals_on_stop(handle);
    stack_t stack;
    ck_assert_int_eq(sigaltstack(NULL, &stack), 0);
    ck_assert_int_eq(stack.ss_flags & SS_DISABLE, 0);
    for (int i = 0; i < 7; i++) {
        struct sigaction action;
        frame = 0;
        raise(stops[i]);
        ck_assert_int_eq(calls, i + 1);
        ck_assert_int_eq(sigaction(stops[i], NULL, &action), 0);
        ck_assert(action.sa_flags & SA_ONSTACK);
        ck_assert(is_inside(frame, &stack));
    }
}

TEST(what_does_not_end_the_program) {
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    signals_on_stop(handle);
    raise(SIGHUP);
    raise(SIGINT);
    raise(SIGPIPE);
    raise(SIGXFSZ);
    ck_assert_int_eq(calls, 0);
    raise(SIGTERM);
    ck_assert_int_eq(calls, 1);
}

TEST(blocked_stops_wait) {
    signals_on_stop(handle);
    signals_block_stops();
    raise(SIGTERM);
    raise(SIGUSR1);
    ck_assert_int_eq(calls, 0);
    signals_unblock_stops();
    ck_assert_int_eq(calls, 2);
}

TEST(only_stops_are_blocked) {
    sigset_t before, now;
    signals_block_all(&before);
    signals_block_only_stops();
    sigprocmask(SIG_SETMASK, NULL, &now);
    static const int stops[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGHUP, SIGXCPU},
                     others[] = {SIGCHLD, SIGQUIT};
    for (int i = 0; i < 7; i++) ck_assert_int_eq(sigismember(&now, stops[i]), 1);
    for (int i = 0; i < 2; i++) ck_assert_int_eq(sigismember(&now, others[i]), 0);
    signals_restore(&before);
}

CHECK_MAIN("signals")
