/* A failure is one allocation: the code and the sentence. */
#include "base/status.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"

struct failure {
    enum status_code code;
    bool is_constant; /* not allocated: must not be freed */
    char message[];
};

static struct {
    enum status_code code;
    bool is_constant;
    char message[32];
} out_of_memory = {STATUS_MEMORY, true, "no memory for a message"};

status status_newv(enum status_code code, const char *format, va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, again);
    va_end(again);
    char *sentence = length < 0 ? NULL : malloc((size_t)length + 1);
    if (!sentence) return (status)(void *)&out_of_memory;
    vsnprintf(sentence, (size_t)length + 1, format, arguments);
    SCOPED_TEXT printable = {0};
    bool has_memory = text_try_reserve(&printable, text_max_printable((size_t)length));
    if (has_memory) text_add_printable(&printable, sentence);
    free(sentence);
    struct failure *s = has_memory ? malloc(sizeof *s + printable.length + 1) : NULL;
    if (s) {
        s->code = code;
        s->is_constant = false;
        memcpy(s->message, text_string(&printable), printable.length + 1);
    }
    return s ? s : (status)(void *)&out_of_memory;
}

status status_new(enum status_code code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    status s = status_newv(code, format, arguments);
    va_end(arguments);
    return s;
}

status status_memory(const char *what, ...) {
    va_list arguments;
    va_start(arguments, what);
    status inner = status_newv(STATUS_MEMORY, what, arguments);
    va_end(arguments);
    status s = status_new(STATUS_MEMORY, "no memory for %s", inner->message);
    status_free(inner);
    return s;
}

/* Where status_catch_memory of this thread continues; NULL: not in it. */
static _Thread_local jmp_buf *catcher;

status status_catch_memory(status (*work)(void *context), void *context) {
    jmp_buf here, *outer = catcher;
    if (_setjmp(here) != 0) {
        catcher = outer;
        return (status)(void *)&out_of_memory;
    }
    catcher = &here;
    status s = work(context);
    catcher = outer;
    return s;
}

void status_exit_without_memory(void) {
    if (catcher) longjmp(*catcher, 1);
    fputs("ddptrain: no memory left\n", stderr);
    _Exit(status_exit_code(STATUS_MEMORY));
}

void *status_need(void *memory) {
    if (!memory) status_exit_without_memory();
    return memory;
}

status status_errno(enum status_code code, int error_number, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    status inner = status_newv(code, format, arguments);
    va_end(arguments);
    char text[128];
    status s = status_new(code, "%s: %s", inner->message, strerror_r(error_number, text, sizeof text));
    status_free(inner);
    return s;
}

status status_prefix(status inner, const char *format, ...) {
    if (!inner) return OK;
    va_list arguments;
    va_start(arguments, format);
    status prefix = status_newv(inner->code, format, arguments);
    va_end(arguments);
    status s = status_new(inner->code, "%s: %s", prefix->message, inner->message);
    status_free(prefix);
    status_free(inner);
    return s;
}

bool status_is_system(status s) { return status_code(s) == STATUS_IO || status_code(s) == STATUS_MEMORY; }

enum status_code status_code(status s) { return s ? s->code : STATUS_OK; }

const char *status_message(status s) { return s ? s->message : ""; }

void status_free(status s) {
    if (s && !s->is_constant) free(s); /* NOLINT(clang-analyzer-unix.Malloc): not the constant one */
}

status status_first(status first, status second) {
    if (!first) return second;
    status_free(second);
    return first;
}
