/* status: how a fallible function answers. NULL means all is well; anything else is a failure that the
 * caller now owns: a code, which is also the exit code of the program, and one sentence for the user.
 * Failures travel upward by TRY; only cmd/ turns one into an exit. Errors are values, so threads and
 * libraries need no shared state. */
#ifndef BASE_STATUS_H
#define BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

/* X(name, exit code, what `--help` says of it) */
#define STATUS_CODES(X)                                                                                                \
    X(STATUS_OK, 0, "done")                                                                                            \
    X(STATUS_USAGE, 64, "wrong command line or config")                                                                \
    X(STATUS_DATA, 65, "wrong dataset or checkpoint")                                                                  \
    X(STATUS_PEER, 69, "another rank was lost")                                                                        \
    X(STATUS_BUG, 70, "a bug in ddptrain")                                                                             \
    X(STATUS_DIVERGED, 71, "the states of the ranks differ: memory or a processor failed")                             \
    X(STATUS_IO, 74, "reading or writing failed, or the system has no memory left")                                    \
    X(STATUS_STOPPED, 75, "stopped on request after saving; run the same command again")                               \
    X(STATUS_NOT_FINITE, 76, "the numbers are not finite any more")

/* Too little memory of the host or of a GPU has a code of its own, because callers act on it, but no exit code: like
 * STATUS_IO it is a lack of something that the system gives, and the program ends with that code. A lack that shows
 * before the first step is the config's (plan_explain_memory): it becomes STATUS_USAGE, with what can be made smaller.
 */
enum status_code {
#define X(name, code, text) name = code,
    STATUS_CODES(X)
#undef X
        STATUS_MEMORY = 0x100 | STATUS_IO
};

/* What the program ends with: the low 8 bits, all that a parent process sees of an exit status. */
static inline int status_exit_code(enum status_code code) { return (int)code & 0xff; }

struct failure;
typedef struct failure *status;

#define OK ((status)0)

/* Relays a failure upward. The only macro that returns. */
#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        status try_status_ = (expression);                                                                             \
        if (try_status_ != OK) return try_status_;                                                                     \
    } while (0)

/* A new failure with a printf sentence (no full stop, no newline at its end). Never NULL: when memory is out
 * a constant failure is returned. */
status status_new(enum status_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3), warn_unused_result));
status status_newv(enum status_code code, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0), warn_unused_result));

/* STATUS_MEMORY: "no memory for <what>", as in status_memory("the sums of %zu shards", count). What is known about
 * sizes follows behind a colon: "the gradients: 512 MiB are needed, and this machine has 256 MiB". */
status status_memory(const char *what, ...) __attribute__((format(printf, 1, 2), warn_unused_result));

/* For small blocks, whose failure no caller could handle: prints a sentence and ends the process as STATUS_MEMORY does.
 */
__attribute__((noreturn)) void status_exit_without_memory(void);

/* As status_new for a failed system call: ": " and the text of [error_number] (an errno value) are appended. */
status status_errno(enum status_code code, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4), warn_unused_result));

/* Puts "<prefix>: " before the sentence of [inner], which is consumed. NULL stays NULL. */
status status_prefix(status inner, const char *format, ...) __attribute__((format(printf, 2, 3), warn_unused_result));

/* STATUS_OK for NULL. */
enum status_code status_code(status s);

/* Whether the system failed, not the config, the data or another rank: STATUS_IO and STATUS_MEMORY. The same may
 * succeed later or in another way. */
bool status_is_system(status s);

/* The sentence; "" for NULL. Valid until status_free. */
const char *status_message(status s);

/* Takes NULL. */
void status_free(status s);

/* Keeps the first of two failures and frees the other; for unwinding, where a clean-up can fail too. */
status status_first(status first, status second) __attribute__((warn_unused_result));

#endif
