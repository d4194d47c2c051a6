/* What code in this library must not do: print, and end the process.
 *
 * The standard streams of the code in this library are one that discards its output: the library must not print, and
 * static archives of libraries (libhdf5, libpng) print some messages to stderr. The linker makes every reference to
 * stderr and stdout one to these (--wrap in cmake/PredictLibrary.cmake). That is also what makes archives without -fPIC
 * usable here, whose references to the C library's stderr a shared object could not have. */
#include <stdio.h>

#include "base/status.h"

extern FILE *__wrap_stderr, *__wrap_stdout;
FILE *__wrap_stderr, *__wrap_stdout; /* NOLINT(bugprone-reserved-identifier): the linker's names */

static ssize_t discard(void *context, const char *bytes, size_t size) {
    (void)context, (void)bytes;
    return (ssize_t)size;
}

__attribute__((constructor)) static void open_streams(void) {
    const cookie_io_functions_t functions = {.write = discard};
    __wrap_stderr = __wrap_stdout = fopencookie(NULL, "w", functions);
}

__attribute__((destructor)) static void close_streams(void) {
    if (__wrap_stderr) fclose(__wrap_stderr);
    __wrap_stderr = __wrap_stdout = NULL;
}

__attribute__((noreturn)) void __wrap_exit(int code);

/* libhdf5 exits where it has no memory for a handle. Returns to the call of this library instead. */
void __wrap_exit(int code) {
    (void)code;
    status_exit_without_memory();
}
