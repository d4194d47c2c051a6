/* signals: the requests to stop that a scheduler or a person sends. */
#ifndef BASE_SIGNALS_H
#define BASE_SIGNALS_H

#include <stdbool.h>

/* From now on SIGINT, SIGTERM, SIGUSR1, SIGALRM (the end of the allocation comes near) and SIGHUP call [handler] in the
 * main thread, on a stack of its own: matrix products of numeric libraries use the stack pointer for other things than
 * a stack, and a signal frame there would fall into the heap. SIGPIPE and SIGXFSZ are ignored: a lost peer and a limit
 * on the size of files are failed writes, not deaths. A request that was blocked is handled now. Call it in the main
 * thread, before there are others. */
void signals_on_stop(void (*handler)(int signal_number));

/* From now on a request to stop waits in this thread, for signalfd or for ever. */
void signals_block_stops(void);
/* The same, and no other signal waits: for a child that is going to call signals_on_stop, which unblocks them. */
void signals_block_only_stops(void);
void signals_unblock_stops(void);
/* From now on requests to stop are ignored: in a child that ends with its parent. */
void signals_ignore_stops(void);

/* Whether whoever started this process wants it to live through the signal: SIGHUP under nohup, SIGINT behind a
 * script's `&`. Then it is no request to stop, and stays ignored. */
bool signals_is_unwanted(int signal_number);

#endif
