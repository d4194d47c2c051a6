/* The same as attention_float16.cu with padding, dropout, or keys of other positions. */
#include "device/cuda/attention_tensor.cuh"

void gpu_attention_float16_masked(operator_call *c, const struct attention_masked_job *job, size_t heads) {
    if (job->drops)
        attention_tensor_start<float16_factors, attention_dropped>(c, *job, heads);
    else
        attention_tensor_start<float16_factors, attention_masked>(c, *job, heads);
}
