/* pickle: reads the data of a Python pickle (protocols 0 to 5, the opcodes that torch.save writes) without executing
 * it: a call stays a value with its function's name and arguments. Pickles are not trusted. */
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_NUMBER,     /* an integer of 64 bits or a boolean: number */
    PICKLE_REAL,       /* a float, or a larger integer: real */
    PICKLE_OTHER,      /* a value without use here: bytes */
    PICKLE_TEXT,       /* text */
    PICKLE_TUPLE,      /* items */
    PICKLE_LIST,       /* items */
    PICKLE_DICT,       /* items: key, value, key, value, ... */
    PICKLE_GLOBAL,     /* text: "torch._utils _rebuild_tensor_v2" */
    PICKLE_PERSISTENT, /* items[0]: its id */
    PICKLE_CALL        /* items: function, arguments */
};

struct pickle_value {
    enum pickle_kind kind;
    int64_t number;
    double real;
    const char *text;
    struct pickle_value **items; /* (count) */
    size_t count, capacity;
};

/* Parses bytes (size); *out and all that it contains are in [arena]. An OrderedDict is a PICKLE_DICT. STATUS_DATA,
 * beginning with [path], for an opcode that is not supported or a damaged pickle. */
status pickle_parse(const char *path, const uint8_t *bytes, size_t size, struct arena *arena,
                    const struct pickle_value **out);
