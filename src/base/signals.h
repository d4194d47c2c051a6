/* signals: the requests to stop that a scheduler or a person sends. */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

/* From now on SIGINT, SIGTERM, SIGUSR1, SIGALRM (the end of the allocation comes near) and, unless nohup ignores it,
 * SIGHUP call [handler] in the main thread, on a stack of its own: matrix products of numeric libraries use the stack
 * pointer for other things than a stack, and a signal frame there would fall into the heap. SIGPIPE is ignored: a lost
 * peer is a failed write, not a death. Call it in the main thread, before there are others. */
void signals_on_stop(void (*handler)(int signal_number));

#endif
