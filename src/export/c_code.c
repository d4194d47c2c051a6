/* The rows of the generated file have the text of each function; the table here says which others it calls. */
#include "export/c_code.h"

#include <string.h>

static const struct {
    const char *name, *code;
} codes[] = {
#include "export/functions.inc"
};

static const char *const names[] = {
#define X(name) #name,
    C_FUNCTIONS(X)
#undef X
};

_Static_assert(C_FUNCTION_COUNT <= 64, "a set of functions is 64 bits");

#define BIT(name) (UINT64_C(1) << C_##name)

/* What hyperbolic_tangent calls, and sigmoid a part of it. */
#define TANH (BIT(bits) | BIT(with_sign) | BIT(exponential) | BIT(tangent))

static const uint64_t calls[C_FUNCTION_COUNT] = {
    [C_exponential] = BIT(bits),
    [C_tangent] = BIT(bits) | BIT(with_sign) | BIT(exponential),
    [C_error_function] = BIT(bits) | BIT(with_sign) | BIT(exponential),
    [C_hyperbolic_tangent] = TANH,
    [C_sigmoid] = BIT(bits) | BIT(exponential),
    [C_silu] = BIT(bits) | BIT(exponential),
    [C_gelu] = BIT(bits) | BIT(with_sign) | BIT(exponential) | BIT(error_function),
    [C_gelu_tanh] = BIT(bits) | BIT(with_sign) | BIT(exponential) | BIT(tangent),
    [C_exp_minus_one] = BIT(bits) | BIT(exponential),
    [C_elu] = BIT(bits) | BIT(exponential) | BIT(exp_minus_one),
    [C_selu] = BIT(bits) | BIT(exponential) | BIT(exp_minus_one),
    [C_mish] = BIT(bits) | BIT(exponential),
    [C_softplus] = BIT(bits) | BIT(exponential) | BIT(log_plus_one),
    [C_convolution] = BIT(window) | BIT(linear),
    [C_convolution_transpose] = BIT(window),
    [C_max_pool] = BIT(window) | BIT(span),
    [C_average_pool] = BIT(window) | BIT(span),
    [C_layer_norm] = BIT(total),
    [C_rms_norm] = BIT(total),
    [C_softmax] = BIT(bits) | BIT(largest) | BIT(exponential) | BIT(total),
    [C_log_softmax] = BIT(bits) | BIT(largest) | BIT(exponential) | BIT(total),
    [C_upsample] = BIT(window) | BIT(tap),
    [C_lstm] = BIT(linear) | BIT(sigmoid) | BIT(hyperbolic_tangent) | TANH,
    [C_gru] = BIT(linear) | BIT(sigmoid) | BIT(hyperbolic_tangent) | TANH,
    [C_recurrence] = BIT(linear) | BIT(relu) | BIT(hyperbolic_tangent) | TANH,
    [C_attention] = BIT(bits) | BIT(largest) | BIT(exponential) | BIT(total),
};

void c_code_use(enum c_function function, uint64_t *used) { *used |= UINT64_C(1) << function | calls[function]; }

void c_code_add(uint64_t used, struct text *out) {
    for (size_t f = 0; f < C_FUNCTION_COUNT; f++)
        for (size_t i = 0; used >> f & 1 && i < sizeof codes / sizeof *codes; i++)
            if (strcmp(codes[i].name, names[f]) == 0) text_printf(out, "%s\n", codes[i].code);
}
