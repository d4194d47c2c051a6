/* Steps of recurrent layers, between their products: the formulas of device/recurrent.h in loops that the compiler
 * vectorises. */
#include "device/recurrent.h"
#include "device/cpu/sets/set.h"

static void lstm_forward(size_t rows, size_t hidden, float *restrict gates, const float *restrict before,
                         float *restrict c, float *restrict h) {
    for (size_t r = 0; r < rows; r++, gates += 4 * hidden, before += hidden, c += hidden, h += hidden) {
        float *restrict i = gates, *restrict f = i + hidden, *restrict g = f + hidden, *restrict o = g + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct lstm_gates n = {i[j], f[j], g[j], o[j]};
            lstm_step(&n, before[j], &c[j], &h[j]);
            i[j] = n.i, f[j] = n.f, g[j] = n.g, o[j] = n.o;
        }
    }
}

static void lstm_backward(size_t rows, size_t hidden, float *restrict gates, const float *restrict before,
                          const float *restrict c, const float *restrict dh, float *restrict dc) {
    for (size_t r = 0; r < rows; r++, gates += 4 * hidden, before += hidden, c += hidden, dh += hidden, dc += hidden) {
        float *restrict i = gates, *restrict f = i + hidden, *restrict g = f + hidden, *restrict o = g + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct lstm_gates n = {i[j], f[j], g[j], o[j]};
            lstm_step_backward(&n, before[j], c[j], dh[j], &dc[j]);
            i[j] = n.i, f[j] = n.f, g[j] = n.g, o[j] = n.o;
        }
    }
}

static void gru_forward(size_t rows, size_t hidden, float *restrict gates, const float *restrict states,
                        const float *restrict before, float *restrict h) {
    for (size_t k = 0; k < rows; k++, gates += 3 * hidden, states += 3 * hidden, before += hidden, h += hidden) {
        float *restrict r = gates, *restrict z = r + hidden, *restrict n = z + hidden;
        const float *restrict sr = states, *restrict sz = sr + hidden, *restrict sn = sz + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct gru_gates g = {r[j], z[j], n[j]}, s = {sr[j], sz[j], sn[j]};
            h[j] = gru_step(&g, &s, before[j]);
            r[j] = g.r, z[j] = g.z, n[j] = g.n;
        }
    }
}

static void gru_backward(size_t rows, size_t hidden, float *restrict gates, float *restrict states,
                         const float *restrict before, const float *restrict dh, float *restrict dbefore) {
    for (size_t k = 0; k < rows;
         k++, gates += 3 * hidden, states += 3 * hidden, before += hidden, dh += hidden, dbefore += hidden) {
        float *restrict r = gates, *restrict z = r + hidden, *restrict n = z + hidden;
        float *restrict sr = states, *restrict sz = sr + hidden, *restrict sn = sz + hidden;
        for (size_t j = 0; j < hidden; j++) {
            struct gru_gates g = {r[j], z[j], n[j]}, s = {sr[j], sz[j], sn[j]};
            dbefore[j] += gru_step_backward(&g, &s, before[j], dh[j]);
            r[j] = g.r, z[j] = g.z, n[j] = g.n;
            sr[j] = s.r, sz[j] = s.z, sn[j] = s.n;
        }
    }
}

const struct recurrent_kernels IN_SET(recurrent_kernels) = {lstm_forward, lstm_backward, gru_forward, gru_backward};
