/* A pickle is a program for a stack machine: opcodes push values and combine them. Every opcode takes at least one byte
 * and makes at most one value, so memory is proportional to the size of the pickle, which is limited. */
#include "checkpoint/pickle.h"

#include <string.h>

#define MAX_PICKLE ((size_t)8 << 20)

struct machine {
    const char *path;
    const uint8_t *bytes;
    size_t size, at;
    struct arena *arena;
    struct pickle_value **stack; /* (depth); NULL: a mark */
    size_t depth, capacity;
    struct pickle_value **memo; /* (memo_size); NULL: not set */
    size_t memo_size, memo_next;
};

static status damaged(const struct machine *m, const char *what) {
    return status_data("%s: its pickle is damaged (%s at byte %zu)", m->path, what, m->at);
}

/* ---- stack and memo ---- */

static void grow(struct machine *m, struct pickle_value ***items, size_t count, size_t *capacity) {
    if (count < *capacity) return;
    size_t more = *capacity ? *capacity * 2 : 8;
    struct pickle_value **grown = arena_alloc(m->arena, more * sizeof(struct pickle_value *));
    if (count) memcpy(grown, *items, count * sizeof(struct pickle_value *));
    *items = grown;
    *capacity = more;
}

static status push(struct machine *m, struct pickle_value *value) {
    grow(m, &m->stack, m->depth, &m->capacity);
    m->stack[m->depth++] = value;
    return OK;
}

static struct pickle_value *create(struct machine *m, enum pickle_kind kind) {
    struct pickle_value *value = arena_alloc(m->arena, sizeof *value);
    value->kind = kind;
    return value;
}

static status push_new(struct machine *m, enum pickle_kind kind) { return push(m, create(m, kind)); }

static status push_number(struct machine *m, int64_t number) {
    struct pickle_value *value = create(m, PICKLE_NUMBER);
    value->number = number;
    return push(m, value);
}

static status pop(struct machine *m, struct pickle_value **out) {
    if (m->depth == 0 || !m->stack[m->depth - 1]) return damaged(m, "a value is missing");
    *out = m->stack[--m->depth];
    return OK;
}

static status top(struct machine *m, struct pickle_value **out) {
    TRY(pop(m, out));
    m->depth++;
    return OK;
}

/* The values above the last mark, which they and the mark leave. */
static status pop_mark(struct machine *m, struct pickle_value ***items, size_t *count) {
    size_t mark = m->depth;
    while (mark > 0 && m->stack[mark - 1]) mark--;
    if (mark == 0) return damaged(m, "a mark is missing");
    *items = m->stack + mark;
    *count = m->depth - mark;
    m->depth = mark - 1;
    return OK;
}

static void append(struct machine *m, struct pickle_value *to, struct pickle_value *const *items, size_t count) {
    for (size_t i = 0; i < count; i++) {
        grow(m, &to->items, to->count, &to->capacity);
        to->items[to->count++] = items[i];
    }
}

static status put(struct machine *m, uint64_t index) {
    struct pickle_value *value = NULL;
    TRY(top(m, &value));
    if (index >= m->size) return damaged(m, "a memo's number is too large");
    if (index >= m->memo_size) {
        size_t size = index < 64 ? 128 : 2 * (size_t)index;
        struct pickle_value **memo = arena_alloc(m->arena, size * sizeof *memo);
        if (m->memo_size) memcpy(memo, m->memo, m->memo_size * sizeof *memo);
        m->memo = memo;
        m->memo_size = size;
    }
    m->memo[index] = value;
    return OK;
}

static status get(struct machine *m, uint64_t index) {
    if (index >= m->memo_size || !m->memo[index]) return damaged(m, "a memo is not set");
    return push(m, m->memo[index]);
}

/* ---- operands ---- */

/* A little-endian number of [bytes] bytes. */
static status read_number(struct machine *m, size_t bytes, uint64_t *out) {
    *out = 0;
    if (m->size - m->at < bytes) return damaged(m, "it ends early");
    for (size_t i = 0; i < bytes; i++) *out |= (uint64_t)m->bytes[m->at++] << (8 * i);
    return OK;
}

/* A text of [length] bytes. */
static status read_text(struct machine *m, uint64_t length, char **out) {
    if (m->size - m->at < length) return damaged(m, "it ends early");
    *out = arena_alloc(m->arena, (size_t)length + 1);
    memcpy(*out, m->bytes + m->at, (size_t)length);
    m->at += (size_t)length;
    return OK;
}

static status read_line(struct machine *m, char **out) {
    const uint8_t *end = memchr(m->bytes + m->at, '\n', m->size - m->at);
    if (!end) return damaged(m, "it ends early");
    TRY(read_text(m, (uint64_t)(end - (m->bytes + m->at)), out));
    m->at++;
    return OK;
}

static status push_text(struct machine *m, size_t length_bytes) {
    uint64_t length = 0;
    char *text = NULL;
    TRY(read_number(m, length_bytes, &length));
    TRY(read_text(m, length, &text));
    if (strlen(text) != length) text = NULL; /* it has a NUL, as no name of a tensor has */
    struct pickle_value *value = create(m, text ? PICKLE_TEXT : PICKLE_OTHER);
    value->text = text;
    return push(m, value);
}

/* A value of [length] bytes that nothing here needs. */
static status push_other(struct machine *m, uint64_t length) {
    if (m->size - m->at < length) return damaged(m, "it ends early");
    m->at += (size_t)length;
    return push_new(m, PICKLE_OTHER);
}

static status push_bytes(struct machine *m, size_t length_bytes) {
    uint64_t length = 0;
    TRY(read_number(m, length_bytes, &length));
    return push_other(m, length);
}

/* A signed integer of more than 8 bytes: a float near it. */
static status push_large(struct machine *m, uint64_t bytes) {
    if (m->size - m->at < bytes) return damaged(m, "it ends early");
    struct pickle_value *value = create(m, PICKLE_REAL);
    const uint8_t *from = m->bytes + m->at;
    value->real = (int8_t)from[bytes - 1];
    for (uint64_t i = bytes - 1; i-- > 0;) value->real = 256 * value->real + from[i];
    m->at += (size_t)bytes;
    return push(m, value);
}

static status push_long(struct machine *m, uint64_t bytes) {
    uint64_t number = 0;
    if (bytes > 8) return push_large(m, bytes);
    TRY(read_number(m, (size_t)bytes, &number));
    if (bytes > 0 && bytes < 8 && number >> (8 * bytes - 1)) number -= UINT64_C(1) << (8 * bytes);
    return push_number(m, (int64_t)number);
}

static status push_int(struct machine *m, size_t bytes) {
    uint64_t number = 0;
    TRY(read_number(m, bytes, &number));
    return push_number(m, bytes == 4 ? (int64_t)(int32_t)(uint32_t)number : (int64_t)number);
}

/* BINFLOAT: big-endian */
static status push_real(struct machine *m) {
    uint64_t number = 0;
    TRY(read_number(m, sizeof number, &number));
    number = __builtin_bswap64(number);
    struct pickle_value *value = create(m, PICKLE_REAL);
    memcpy(&value->real, &number, sizeof number);
    return push(m, value);
}

static status push_global(struct machine *m, const char *module, const char *name) {
    struct pickle_value *value = create(m, PICKLE_GLOBAL);
    value->text = arena_printf(m->arena, "%s %s", module, name);
    return push(m, value);
}

static status read_global(struct machine *m) {
    char *module = NULL, *name = NULL;
    TRY(read_line(m, &module));
    TRY(read_line(m, &name));
    return push_global(m, module, name);
}

static status stack_global(struct machine *m) {
    struct pickle_value *module = NULL, *name = NULL;
    TRY(pop(m, &name));
    TRY(pop(m, &module));
    if (module->kind != PICKLE_TEXT || name->kind != PICKLE_TEXT) return damaged(m, "a name is not a text");
    return push_global(m, module->text, name->text);
}

/* ---- combining ---- */

/* The last [count] values, or with SIZE_MAX those above the mark. */
static status make_tuple(struct machine *m, size_t count, enum pickle_kind kind) {
    struct pickle_value *one[3] = {NULL}, **items = one, *tuple = create(m, kind);
    if (count == SIZE_MAX) TRY(pop_mark(m, &items, &count));
    for (size_t i = items == one ? count : 0; i-- > 0;) TRY(pop(m, &one[i]));
    if (kind == PICKLE_DICT && count % 2) return damaged(m, "a key has no value");
    append(m, tuple, items, count);
    return push(m, tuple);
}

static status extend(struct machine *m, enum pickle_kind kind, struct pickle_value *const *items, size_t count) {
    struct pickle_value *to = NULL;
    TRY(top(m, &to));
    if (to->kind == PICKLE_CALL || to->kind == PICKLE_OTHER) return OK; /* an object that is not used */
    if (to->kind != kind || (kind == PICKLE_DICT && count % 2)) return damaged(m, "items of no container");
    append(m, to, items, count);
    return OK;
}

static status extend_from_mark(struct machine *m, enum pickle_kind kind) {
    struct pickle_value **items = NULL;
    size_t count = 0;
    TRY(pop_mark(m, &items, &count));
    return extend(m, kind, items, count);
}

static status extend_by(struct machine *m, enum pickle_kind kind, size_t count) {
    struct pickle_value *items[2] = {NULL};
    for (size_t i = count; i-- > 0;) TRY(pop(m, &items[i]));
    return extend(m, kind, items, count);
}

static status call(struct machine *m) {
    struct pickle_value *items[2] = {NULL};
    TRY(pop(m, &items[1]));
    TRY(pop(m, &items[0]));
    if (items[0]->kind == PICKLE_GLOBAL && strcmp(items[0]->text, "collections OrderedDict") == 0 &&
        items[1]->kind == PICKLE_TUPLE && items[1]->count == 0)
        return push_new(m, PICKLE_DICT);
    struct pickle_value *value = create(m, PICKLE_CALL);
    append(m, value, items, 2);
    return push(m, value);
}

static status persistent(struct machine *m) {
    struct pickle_value *id = NULL, *value = create(m, PICKLE_PERSISTENT);
    TRY(pop(m, &id));
    append(m, value, &id, 1);
    return push(m, value);
}

/* The state of an object (the attributes of a dictionary) is not used. */
static status build(struct machine *m) {
    struct pickle_value *state = NULL;
    TRY(pop(m, &state));
    return top(m, &state);
}

static status discard(struct machine *m) {
    struct pickle_value *value = NULL;
    return pop(m, &value);
}

static status discard_to_mark(struct machine *m) {
    struct pickle_value **items = NULL;
    size_t count = 0;
    return pop_mark(m, &items, &count);
}

static status with_number(struct machine *m, size_t bytes, status (*use)(struct machine *, uint64_t)) {
    uint64_t number = 0;
    TRY(read_number(m, bytes, &number));
    return use(m, number);
}

static status skip(struct machine *m, size_t bytes) {
    uint64_t number = 0;
    return read_number(m, bytes, &number);
}

/* ---- opcodes ---- */

static status run_constant(struct machine *m, uint8_t opcode) {
    switch (opcode) {
    case '(':
        return push(m, NULL);
    case 'N':
        return push_new(m, PICKLE_NONE);
    case 0x88:
        return push_number(m, 1);
    case 0x89:
        return push_number(m, 0);
    case ')':
        return push_new(m, PICKLE_TUPLE);
    case ']':
        return push_new(m, PICKLE_LIST);
    case '}':
        return push_new(m, PICKLE_DICT);
    case 'K':
        return push_int(m, 1);
    case 'M':
        return push_int(m, 2);
    case 'J':
        return push_int(m, 4);
    case 0x8a:
        return with_number(m, 1, push_long);
    case 'G':
        return push_real(m);
    case 0x8c:
        return push_text(m, 1);
    case 'X':
        return push_text(m, 4);
    case 0x8d:
        return push_text(m, 8);
    case 'U':
    case 'C':
        return push_bytes(m, 1);
    case 'T':
    case 'B':
        return push_bytes(m, 4);
    case 0x8e:
        return push_bytes(m, 8);
    case 'c':
        return read_global(m);
    default:
        return status_data("%s: its pickle has the opcode 0x%02x, which a file of tensors does not need; save "
                           "model.state_dict() with torch.save",
                           m->path, opcode);
    }
}

static status run_opcode(struct machine *m, uint8_t opcode) {
    switch (opcode) {
    case 0x80:
        return skip(m, 1); /* PROTO */
    case 0x95:
        return skip(m, 8); /* FRAME */
    case 0x93:
        return stack_global(m);
    case 't':
        return make_tuple(m, SIZE_MAX, PICKLE_TUPLE);
    case 0x85:
        return make_tuple(m, 1, PICKLE_TUPLE);
    case 0x86:
        return make_tuple(m, 2, PICKLE_TUPLE);
    case 0x87:
        return make_tuple(m, 3, PICKLE_TUPLE);
    case 'l':
        return make_tuple(m, SIZE_MAX, PICKLE_LIST);
    case 'd':
        return make_tuple(m, SIZE_MAX, PICKLE_DICT);
    case 'a':
        return extend_by(m, PICKLE_LIST, 1);
    case 'e':
        return extend_from_mark(m, PICKLE_LIST);
    case 's':
        return extend_by(m, PICKLE_DICT, 2);
    case 'u':
        return extend_from_mark(m, PICKLE_DICT);
    case 'R':
    case 0x81:
        return call(m); /* REDUCE, NEWOBJ */
    case 'b':
        return build(m);
    case 'Q':
        return persistent(m);
    case '0':
        return discard(m);
    case '1':
        return discard_to_mark(m);
    case 'q':
        return with_number(m, 1, put);
    case 'r':
        return with_number(m, 4, put);
    case 0x94:
        return put(m, m->memo_next++);
    case 'h':
        return with_number(m, 1, get);
    case 'j':
        return with_number(m, 4, get);
    default:
        return run_constant(m, opcode);
    }
}

status pickle_parse(const char *path, const uint8_t *bytes, size_t size, struct arena *arena,
                    const struct pickle_value **out) {
    struct machine m = {.path = path, .bytes = bytes, .size = size, .arena = arena};
    struct pickle_value *value = NULL;
    if (size > MAX_PICKLE)
        return status_data("%s: its pickle has %zu bytes; that of tensors has at most %zu", path, size, MAX_PICKLE);
    while (m.at < size) {
        uint8_t opcode = bytes[m.at++];
        if (opcode == '.') {
            TRY(pop(&m, &value));
            *out = value;
            return OK;
        }
        TRY(run_opcode(&m, opcode));
    }
    return damaged(&m, "it ends early");
}
