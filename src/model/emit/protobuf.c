/* https://protobuf.dev/programming-guides/encoding: a field is its number and kind, then its value. */
#include "model/emit/protobuf.h"

#include <string.h>

enum { KIND_VARINT = 0, KIND_BYTES = 2, KIND_FLOAT = 5 };

static void add_varint(struct text *out, uint64_t value) {
    do {
        char byte = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        text_add_bytes(out, &byte, 1);
        value >>= 7;
    } while (value);
}

static void add_tag(struct text *out, unsigned field, unsigned kind) { add_varint(out, field << 3 | kind); }

void protobuf_int(struct text *out, unsigned field, uint64_t value) {
    add_tag(out, field, KIND_VARINT);
    add_varint(out, value);
}

void protobuf_float(struct text *out, unsigned field, float value) {
    add_tag(out, field, KIND_FLOAT);
    text_add_bytes(out, (const char *)&value, sizeof value);
}

void protobuf_bytes(struct text *out, unsigned field, const void *bytes, size_t size) {
    add_tag(out, field, KIND_BYTES);
    add_varint(out, size);
    if (size) text_add_bytes(out, bytes, size);
}

void protobuf_string(struct text *out, unsigned field, const char *string) {
    protobuf_bytes(out, field, string, strlen(string));
}

void protobuf_message(struct text *out, unsigned field, struct text *inner) {
    protobuf_bytes(out, field, inner->data, inner->length);
    text_free(inner);
}
