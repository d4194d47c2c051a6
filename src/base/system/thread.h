/* thread: threads beside the main one. All signals are blocked in them, so that a stop request runs its handler in the
 * main thread, and they have a name for ps -L and debuggers. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

#include "base/status.h"

/* Runs [work](context) in a new thread, to be joined by the caller. [name]: at most 15 characters; [what] ("the thread
 * that saves") is for the message of the STATUS_IO failure, after which *thread is undefined. */
status thread_start(pthread_t *thread, const char *name, const char *what, void *(*work)(void *context), void *context);

#endif
