/* Any bytes, read as a line of metrics.jsonl: no read past the end; what jansson takes for an object is one, with the
 * same fields and numbers. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/json_lines.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(bool is_good) {
    if (!is_good) abort();
}

static void check_field(const struct json_field *field, const json_t *expected) {
    char *text = json_field_text(field);
    switch (json_typeof(expected)) {
    case JSON_STRING:
        check(field->kind == KIND_TEXT && text && strcmp(text, json_string_value(expected)) == 0);
        break;
    case JSON_INTEGER:
    case JSON_REAL: {
        double value = json_number_value(expected);
        check(field->kind == KIND_NUMBER && fabs(field->number - value) <= fabs(value) * 0x1p-51 + 0x1p-1074);
        break;
    }
    case JSON_NULL:
        check(field->kind == KIND_NULL);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        check(field->kind == KIND_BOOL);
        break;
    default: {
        json_t *nested = json_loadb(field->text, field->length, 0, NULL);
        check(field->kind == KIND_NESTED && json_equal(nested, expected));
        json_decref(nested);
    }
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct json_line line;
    bool is_good = json_line_read((const char *)bytes, size, &line);
    json_t *object = json_loadb((const char *)bytes, size, JSON_REJECT_DUPLICATES, NULL);
    const char *key;
    json_t *value;
    bool has_zero = size > 0 && memchr(bytes, 0, size); /* jansson goes on behind one that follows a number */
    check(is_good || !json_is_object(object) || has_zero);
    if (is_good && json_is_object(object) && !memchr(bytes, '\\', size)) { /* keys with escapes stay as they are */
        check(line.count == json_object_size(object) || line.count == JSON_LINE_MAX_FIELDS);
        json_object_foreach(object, key, value) {
            const struct json_field *field = json_line_find(&line, key);
            if (field) check_field(field, value);
            check(field || line.count == JSON_LINE_MAX_FIELDS);
        }
    }
    for (size_t i = 0; is_good && i < line.count; i++) free(json_field_text(&line.fields[i]));
    json_decref(object);
    return 0;
}
