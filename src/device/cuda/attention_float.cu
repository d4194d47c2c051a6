/* Attention in float32: tiles are sized so that shared memory suffices on every GPU (99 KiB per block). */
#include "device/cuda/attention_float.cuh"

void gpu_attention_float(operator_call *c, const struct attention_job *job, size_t heads) {
    if (job->head_size <= 32)
        attention_start<attention_float<32, 64, 64>>(c, *job, heads);
    else if (job->head_size <= 64)
        attention_start<attention_float<64, 64, 64>>(c, *job, heads);
    else if (job->head_size <= 128)
        attention_start<attention_float<128, 32, 32>>(c, *job, heads);
    else
        attention_start<attention_float<256, 16, 16>>(c, *job, heads);
}
