/* Attention on tensor cores with factors in bfloat16. */
#include "device/cuda/attention_tensor.cuh"

void gpu_attention_bfloat16(operator_call *c, const struct attention_masked_job *job, size_t heads) {
    attention_tensor_start<bfloat16_factors, attention_plain>(c, *job, heads);
}
