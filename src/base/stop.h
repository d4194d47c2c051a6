/* stop: the request to stop this process, which a signal makes (base/system/signals.h). One flag of the process,
 * because signals are sent to a process and a handler can access only globals; whoever works for long asks
 * stop_is_requested. */
#pragma once

#include <stdbool.h>

/* Sets the request; for handlers of signals, may change errno. True: the process handles it, because it has called
 * stop_defer or the request was forwarded. False: nobody does, so the caller ends the process. */
bool stop_request(void);
bool stop_is_requested(void);
/* Withdraws the request, in a process that makes one run after another. */
void stop_clear(void);

/* From now on the process handles a request itself, such as by saving first. */
void stop_defer(void);
bool stop_is_deferred(void);

/* Until stop_defer a request is written to [fd], an eventfd, whose reader ends the process in order; -1: from now on to
 * none, as at the start. */
void stop_forward(int fd);
