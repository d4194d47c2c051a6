/* signals: the requests to stop that a scheduler or a person sends. */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM, SIGUSR1, SIGALRM (the end of the allocation comes near) and SIGHUP call [handler] in the
 * main thread, on a stack of its own: matrix products of numeric libraries use the stack pointer for other things than
 * a stack, and a signal frame there would fall into the heap. SIGPIPE and SIGXFSZ are ignored: a lost peer and a limit
 * on the size of files are failed writes, not deaths. Call it in the main thread, before there are others. */
void signals_on_stop(void (*handler)(int signal_number));

/* Whether whoever started this process wants it to live through the signal: SIGHUP under nohup, SIGINT behind a
 * script's `&`. Then it is no request to stop, and stays ignored. */
bool signals_is_unwanted(int signal_number);

#endif
