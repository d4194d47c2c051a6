/* The rows of the generated file have the text of each function; the table here says which others it calls. */
#include "export/c_code.h"

#include <string.h>

static const struct {
    const char *name, *code;
} codes[] = {
#include "export/texts.inc"
};

static const char *const names[] = {
#define X(name) #name ".c",
    C_FUNCTIONS(X)
#undef X
};

/* The functions that a function calls; they come before it in C_FUNCTIONS. */
#define MAX_CALLS 4
#define CALLS(...)                                                                                                     \
    {                                                                                                                  \
        sizeof((enum c_function[]){__VA_ARGS__}) / sizeof(enum c_function), { __VA_ARGS__ }                            \
    }

static const struct {
    size_t count;
    enum c_function items[MAX_CALLS];
} calls[C_FUNCTION_COUNT] = {
    [C_with_sign] = CALLS(C_bits),
    [C_exponential] = CALLS(C_bits),
    [C_tangent] = CALLS(C_with_sign, C_exponential),
    [C_error_function] = CALLS(C_with_sign, C_exponential),
    [C_hyperbolic_tangent] = CALLS(C_tangent),
    [C_sigmoid] = CALLS(C_exponential),
    [C_silu] = CALLS(C_exponential),
    [C_gelu] = CALLS(C_error_function),
    [C_gelu_tanh] = CALLS(C_tangent),
    [C_exp_minus_one] = CALLS(C_exponential),
    [C_elu] = CALLS(C_exp_minus_one),
    [C_selu] = CALLS(C_exp_minus_one),
    [C_mish] = CALLS(C_exponential),
    [C_softplus] = CALLS(C_exponential, C_log_plus_one),
    [C_convolution] = CALLS(C_window, C_linear),
    [C_convolution_transpose] = CALLS(C_window),
    [C_max_pool] = CALLS(C_window, C_span),
    [C_average_pool] = CALLS(C_window, C_span),
    [C_layer_norm] = CALLS(C_total),
    [C_rms_norm] = CALLS(C_total),
    [C_softmax] = CALLS(C_largest, C_exponential, C_total),
    [C_log_softmax] = CALLS(C_largest, C_exponential, C_total),
    [C_upsample] = CALLS(C_window, C_tap),
    [C_lstm] = CALLS(C_linear, C_sigmoid, C_hyperbolic_tangent),
    [C_gru] = CALLS(C_linear, C_sigmoid, C_hyperbolic_tangent),
    [C_recurrence] = CALLS(C_linear, C_relu, C_hyperbolic_tangent),
    [C_attention] = CALLS(C_largest, C_exponential, C_total),
    [C_self_attention] = CALLS(C_attention),
    [C_cross_attention] = CALLS(C_attention),
};

void c_code_use(enum c_function function, struct c_functions *used) { used->has[function] = true; }

static void add_calls(struct c_functions *used) {
    for (size_t f = C_FUNCTION_COUNT; f-- > 0;)
        for (size_t i = 0; used->has[f] && i < calls[f].count; i++) used->has[calls[f].items[i]] = true;
}

void c_code_add(const struct c_functions *used, struct text *out) {
    struct c_functions all = *used;
    add_calls(&all);
    for (size_t f = 0; f < C_FUNCTION_COUNT; f++)
        for (size_t i = 0; all.has[f] && i < sizeof codes / sizeof *codes; i++)
            if (strcmp(codes[i].name, names[f]) == 0) text_printf(out, "%s\n", codes[i].code);
}
