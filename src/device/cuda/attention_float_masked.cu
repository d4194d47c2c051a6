/* Attention in float32 with padding, dropout, or keys of other positions. */
#include "device/cuda/attention_float.cuh"

void gpu_attention_float_masked(operator_call *c, const struct attention_masked_job *job, size_t heads) {
    if (job->drops)
        attention_float_start<attention_dropped>(c, job, heads);
    else
        attention_float_start<attention_masked>(c, job, heads);
}
