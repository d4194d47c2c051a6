/* Attention in float32. */
#include "device/cuda/attention_float.cuh"

void gpu_attention_float(operator_call *c, const struct attention_masked_job *job, size_t heads) {
    attention_float_start<attention_plain>(c, job, heads);
}
