/* A new thread inherits the signal mask, so it has no moment in which a signal could reach it. */
#include "base/system/thread.h"

#include "base/system/signals.h"

status thread_start(pthread_t *thread, const char *name, const char *what, void *(*work)(void *context),
                    void *context) {
    sigset_t before;
    signals_block_all(&before);
    int error = pthread_create(thread, NULL, work, context);
    signals_restore(&before);
    if (error) return status_errno(STATUS_IO, error, "cannot start %s", what);
    pthread_setname_np(*thread, name);
    return OK;
}
