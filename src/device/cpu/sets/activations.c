/* Activations: plain loops the compiler vectorises, one for each row of the table. */
#include "device/activations.h"
#include "device/cpu/sets/set.h"

void IN_SET(activation_forward)(enum activation f, const float *restrict x, float *restrict y, size_t count) {
    switch (f) {
#define X(id, name, properties, doc)                                                                                   \
    case id:                                                                                                           \
        for (size_t i = 0; i < count; i++) y[i] = name##_value(x[i]);                                                  \
        break;
        ACTIVATIONS(X)
#undef X
    }
}

void IN_SET(activation_backward)(enum activation f, const float *restrict x, const float *restrict y,
                                 const float *restrict dy, float *restrict dx, size_t count) {
    switch (f) {
#define X(id, name, properties, doc)                                                                                   \
    case id:                                                                                                           \
        for (size_t i = 0; i < count; i++) dx[i] = name##_gradient(x[i], y[i], dy[i]);                                 \
        break;
        ACTIVATIONS(X)
#undef X
    }
}

void IN_SET(leaky_relu_forward)(float slope, const float *restrict x, float *restrict y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slope * x[i];
}

void IN_SET(leaky_relu_backward)(float slope, const float *restrict x, const float *restrict dy, float *restrict dx,
                                 size_t count) {
    for (size_t i = 0; i < count; i++) dx[i] = x[i] > 0 ? dy[i] : slope * dy[i];
}
