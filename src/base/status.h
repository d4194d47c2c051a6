/* status: the return type of fallible functions. NULL is success. Anything else is a failure, owned by the caller: a
 * code, which also decides the exit code, and one sentence for the user. TRY returns a failure to the caller;
 * only cmd/ exits. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>

/* X(name, exit code, text of `--help`) */
#define STATUS_CODES(X)                                                                                                \
    X(STATUS_OK, 0, "done")                                                                                            \
    X(STATUS_USAGE, 64, "wrong command line or config")                                                                \
    X(STATUS_DATA, 65, "wrong dataset or checkpoint")                                                                  \
    X(STATUS_PEER, 69, "another rank was lost")                                                                        \
    X(STATUS_BUG, 70, "a bug in ddptrain")                                                                             \
    X(STATUS_DIVERGED, 71,                                                                                             \
      "memory or a processor failed: states of ranks or of a selftest differ, or rows in memory have changed")         \
    X(STATUS_IO, 74, "reading or writing failed, or the system has no memory left")                                    \
    X(STATUS_STOPPED, 75, "stopped on request after saving; run the same command again")                               \
    X(STATUS_NOT_FINITE, 76, "a loss, gradient or parameter is not finite")

/* STATUS_MEMORY: too little memory of the host or of a GPU. Callers handle it, but the program exits with the code of
 * STATUS_IO. When memory is missing before the first step, plan_explain_memory makes it STATUS_USAGE and suggests what
 * to reduce. */
enum status_code {
#define X(name, code, text) name = code,
    STATUS_CODES(X)
#undef X
        STATUS_MEMORY = 0x100 | STATUS_IO
};

/* The exit code of the program: the low 8 bits. */
static inline int status_exit_code(enum status_code code) { return (int)code & 0xff; }

struct failure;
typedef struct failure *status;

#define OK ((status)0)

/* Returns a failure to the caller. The only macro that returns. */
#define TRY(expression)                                                                                                \
    do {                                                                                                               \
        status try_status_ = (expression);                                                                             \
        if (try_status_ != OK) return try_status_;                                                                     \
    } while (0)

/* A new failure with a printf sentence (without full stop and newline at its end). Never NULL: without memory it is a
 * constant failure. */
status status_new(enum status_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3), warn_unused_result));
status status_newv(enum status_code code, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0), warn_unused_result));

/* STATUS_MEMORY: "no memory for <what>", as in status_memory("the sums of %zu shards", count). Sizes follow after a
 * colon: "the gradients: 512 MiB are needed, and this machine has 256 MiB". */
status status_memory(const char *what, ...) __attribute__((format(printf, 1, 2), warn_unused_result));

/* For small allocations, whose failure no caller could handle: prints a message and exits as STATUS_MEMORY does, unless
 * this thread is in status_catch_memory. */
__attribute__((noreturn)) void status_exit_without_memory(void);
/* Returns [memory], which was allocated; ends the process so where it is NULL. */
void *status_need(void *memory);

/* Calls work(context); when it has no memory for a small allocation, returns STATUS_MEMORY instead of exiting. What it
 * had allocated is lost then, and it must hold no lock but that of libhdf5. For a library, which must not end the
 * process of its caller. */
status status_catch_memory(status (*work)(void *context), void *context) __attribute__((warn_unused_result));

/* The most frequent codes. */
#define status_usage(...) status_new(STATUS_USAGE, __VA_ARGS__)
#define status_data(...) status_new(STATUS_DATA, __VA_ARGS__)

/* As status_new for a failed system call: ": " and the text of [error_number] (an errno value) are appended. */
status status_errno(enum status_code code, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4), warn_unused_result));

/* Puts "<prefix>: " before the sentence of [inner], which is consumed. NULL stays NULL. */
status status_prefix(status inner, const char *format, ...) __attribute__((format(printf, 2, 3), warn_unused_result));

/* STATUS_OK for NULL. */
enum status_code status_code(status s);

/* STATUS_IO or STATUS_MEMORY: the system failed, not the config, the data or another rank; a retry may succeed. */
bool status_is_system(status s);

/* The sentence; "" for NULL. Valid until status_free. */
const char *status_message(status s);

/* Takes NULL. */
void status_free(status s);

/* Returns the first of two failures and frees the other; for clean-up that can fail too. */
status status_first(status first, status second) __attribute__((warn_unused_result));
