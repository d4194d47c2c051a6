/* c_code: the functions that an exported C file is made of: the files of functions/, which compute what the CPU's
 * operators compute, in the same order of operations. The build embeds their text. */
#ifndef EXPORT_C_CODE_H
#define EXPORT_C_CODE_H

#include <stdbool.h>

#include "base/text.h"

/* clang-format off */
#define C_FUNCTIONS(X) \
    X(bits) X(with_sign) X(exponential) X(tangent) X(error_function) X(total) X(largest) \
    X(relu) X(hyperbolic_tangent) X(sigmoid) X(silu) X(gelu) X(gelu_tanh) X(leaky_relu) X(relu6) X(exp_minus_one) \
    X(elu) X(selu) \
    X(columns) X(multiply) X(hardswish) X(hardsigmoid) X(mish) X(log_plus_one) X(softplus) X(add) X(transpose) \
    X(linear) X(window) X(convolution) X(convolution_transpose) X(span) X(max_pool) X(average_pool) X(batch_norm) \
    X(group_norm) \
    X(layer_norm) X(rms_norm) X(softmax) X(log_softmax) X(prelu) X(scale) X(embedding_bag) X(embedding) \
    X(embedding_of_values) X(mean) X(attention) X(self_attention) X(cross_attention) X(length_of_tokens) \
    X(length_of_values) X(given_length) X(tap) X(upsample) X(permute) X(pad) X(unfold_depth) X(rotate) \
    X(lstm) X(gru) X(recurrence) X(find_text) X(find_number) X(date)
/* clang-format on */

enum c_function {
#define X(name) C_##name,
    C_FUNCTIONS(X)
#undef X
        C_FUNCTION_COUNT
};

/* A set of functions. */
struct c_functions {
    bool has[C_FUNCTION_COUNT];
};

void c_code_use(enum c_function function, struct c_functions *used);

/* Adds the text of all used functions and of those that they call, callees first. */
void c_code_add(const struct c_functions *used, struct text *out);

#endif
