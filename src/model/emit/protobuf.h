/* protobuf: writes messages in the binary format of Protocol Buffers, field by field. ONNX needs five kinds of fields
 * and no reading, so a library with generated code for the whole schema would be larger than this file. */
#pragma once

#include "base/text.h"

void protobuf_int(struct text *out, unsigned field, uint64_t value);
void protobuf_float(struct text *out, unsigned field, float value);
void protobuf_bytes(struct text *out, unsigned field, const void *bytes, size_t size);
void protobuf_string(struct text *out, unsigned field, const char *string);
/* Adds the message [inner] as a field, and frees it. */
void protobuf_message(struct text *out, unsigned field, struct text *inner);
