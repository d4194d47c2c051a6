/* The alternate stack is static, because the handler may run until the process ends. */
#include "base/system/signals.h"

#include <stddef.h>

/* For the registers that the kernel saves (10 KiB with AMX) and a handler that writes a message. */
#define STACK_BYTES 65536

static char handler_stack[STACK_BYTES];

bool signals_is_ignored(int signal_number) {
    struct sigaction inherited;
    return (signal_number == SIGHUP || signal_number == SIGINT) && sigaction(signal_number, NULL, &inherited) == 0 &&
           inherited.sa_handler == SIG_IGN;
}

static const int stops[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGHUP, SIGXCPU};

static sigset_t stop_set(void) {
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) sigaddset(&set, stops[i]);
    return set;
}

void signals_block_all(sigset_t *before) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, before);
}

void signals_restore(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

void signals_block_stops(void) {
    sigset_t set = stop_set();
    sigprocmask(SIG_BLOCK, &set, NULL);
}

void signals_block_only_stops(void) {
    sigset_t set = stop_set();
    sigprocmask(SIG_SETMASK, &set, NULL);
}

void signals_unblock_stops(void) {
    sigset_t set = stop_set();
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

void signals_ignore_stops(void) {
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) signal(stops[i], SIG_IGN);
}

void signals_on_stop(void (*handler)(int signal_number)) {
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    struct sigaction stop = {.sa_handler = handler, .sa_flags = SA_RESTART}, ignore = {.sa_handler = SIG_IGN};
    if (sigaltstack(&stack, NULL) == 0) stop.sa_flags |= SA_ONSTACK;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        if (!signals_is_ignored(stops[i])) sigaction(stops[i], &stop, NULL);
    }
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
    signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would discard the exit status of children */
    signals_unblock_stops();
}
