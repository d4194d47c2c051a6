/* The stack is static: the handler may run at any moment until the process has ended. */
#include "base/signals.h"

#include <signal.h>
#include <stddef.h>

/* Room for the registers that the kernel saves (10 KiB with AMX) and a handler that writes a sentence. */
#define STACK_BYTES 65536

static char handler_stack[STACK_BYTES];

bool signals_is_unwanted(int signal_number) {
    struct sigaction inherited;
    return (signal_number == SIGHUP || signal_number == SIGINT) && sigaction(signal_number, NULL, &inherited) == 0 &&
           inherited.sa_handler == SIG_IGN;
}

void signals_on_stop(void (*handler)(int signal_number)) {
    static const int stops[] = {SIGINT, SIGTERM, SIGUSR1, SIGALRM, SIGHUP};
    stack_t stack = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    struct sigaction stop = {.sa_handler = handler, .sa_flags = SA_RESTART}, ignore = {.sa_handler = SIG_IGN};
    if (sigaltstack(&stack, NULL) == 0) stop.sa_flags |= SA_ONSTACK;
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        if (!signals_is_unwanted(stops[i])) sigaction(stops[i], &stop, NULL);
    }
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGXFSZ, &ignore, NULL);
}
