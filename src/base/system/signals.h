/* signals: stop requests of a scheduler or a user. */
#pragma once

#include <signal.h>
#include <stdbool.h>

/* Installs [handler] for the stop requests: SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGALRM, which schedulers
 * send before an allocation ends, and SIGXCPU, which the kernel sends at the soft limit of the CPU time and each second
 * from then on. It runs in the main thread on an alternate stack, because matrix products of numeric
 * libraries use the stack pointer as a general register, and a signal frame there would overwrite the heap. SIGPIPE and
 * SIGXFSZ are ignored: a lost peer or a file size limit gives a failed write. Unblocks the stop requests. Call it in
 * the main thread before others start. */
void signals_on_stop(void (*handler)(int signal_number));

/* Blocks all signals in this thread; *before is what signals_restore sets again. */
void signals_block_all(sigset_t *before);
void signals_restore(const sigset_t *before);

/* Blocks the stop requests in this thread. */
void signals_block_stops(void);
/* Blocks the stop requests and unblocks all other signals: for a child that is going to call signals_on_stop. */
void signals_block_only_stops(void);
void signals_unblock_stops(void);
/* Ignores the stop requests: for a child that ends with its parent. */
void signals_ignore_stops(void);

/* Whether the parent process made this one ignore the signal (SIGHUP under nohup, SIGINT after a script's `&`). Then it
 * is not a stop request. */
bool signals_is_ignored(int signal_number);
