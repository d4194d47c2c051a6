/* Reads the JSON vectors of tests/vectors and compares values with them bit for bit. For tests only. */
#pragma once

#include <check.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/bits.h"

static inline json_t *vectors_load(const char *name) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.json", TEST_VECTORS, name);
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    ck_assert_msg(root != NULL, "%s: %s", path, error.text);
    return root;
}

/* "3e592248" -> the float with these bits */
static inline float vectors_float(const json_t *hex) {
    return bits_to_float((uint32_t)strtoul(json_string_value(hex), NULL, 16));
}

/* values (json_array_size(hex)) have exactly these bits */
static inline void vectors_equal(const json_t *hex, const float *values, const char *what) {
    ck_assert_msg(json_array_size(hex) > 0, "%s: no values in the vector", what);
    for (size_t i = 0; i < json_array_size(hex); i++) {
        float expected = vectors_float(json_array_get(hex, i));
        ck_assert_msg(bits_of_float(expected) == bits_of_float(values[i]), "%s[%zu]: expected %a, got %a", what, i,
                      (double)expected, (double)values[i]);
    }
}
