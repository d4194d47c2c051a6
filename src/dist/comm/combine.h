/* combine: the arithmetic of collectives, the same for every backend: combines one array of each rank into one, element
 * by element, always in order of rank, so the bits do not depend on the backend, on how a message was split, or on
 * which rank computes. Included by C++ too. */
#pragma once

#include "dist/comm/comm.h"

/* out[i] = in[0][i] op in[1][i] op ... in[ranks - 1][i], (count) each. [out] may be one of the inputs; no two arrays
 * overlap otherwise. COMM_AVG divides the sum by [ranks]. 16-bit floats are computed in float32 and rounded once, to
 * nearest even. Integers wrap around; the average of integers is truncated toward zero; a NaN in any input gives NaN.
 */
void combine(void *out, const void *const *in, int ranks, size_t count, enum comm_type type, enum comm_op op);

/* out[i] = in[0][i] * factor + in[1][i] * factor + ..., (count) each; products and sums are rounded one by one. [out]
 * may be one of the inputs. */
void combine_scaled(float *out, const float *const *in, int ranks, size_t count, float factor);

/* data[i] /= divisor, (count): for an average whose sum was computed in several parts. */
void combine_divide(void *data, int divisor, size_t count, enum comm_type type);

/* Convert 16-bit floats (COMM_BFLOAT16, COMM_FLOAT16) to float32, exactly, and back, to nearest even. (count) each. */
void combine_from_half(float *out, const uint16_t *in, size_t count, enum comm_type type);
void combine_to_half(uint16_t *out, const float *in, size_t count, enum comm_type type);
