/* The schema of the `dist:` section. */
#include "dist/dist_config.h"

static const char *const compressions[] = {[COMPRESSION_NONE] = "none", [COMPRESSION_BFLOAT16] = "bfloat16", NULL};

static const struct schema_row rows[] = {
    SCHEMA_ROW(CHOICE, struct dist_config, backend, .fallback = "auto", .choices = comm_backend_names,
               .doc =
                   "Communication between ranks. auto: shared memory (shm) between ranks of one host, between hosts "
                   "MPI where it has started the ranks, else gloo, and NCCL for gradients on GPUs where it is "
                   "installed; shm, gloo, mpi: only this one; nccl: like auto, but an error if NCCL is not available."),
    SCHEMA_ROW(
        REAL, struct dist_config, bucket_cap_mb, .fallback = "25", .min = 0, .max = 1e6, .excludes_min = true,
        .doc = "Gradients are averaged in buckets of about this many MiB while backward runs, as in PyTorch's DDP."),
    SCHEMA_ROW(REAL, struct dist_config, first_bucket_mb, .fallback = "1", .min = 0, .max = 1e6, .excludes_min = true,
               .doc = "Size of the first bucket in MiB; small, so that communication starts early."),
    SCHEMA_ROW(BOOL, struct dist_config, find_unused_parameters, .fallback = "false",
               .doc = "false: a layer whose output no layer takes is an error before the first step, which names the "
                      "parameters that are not trained. true: parameters that affect no loss keep their values, as in "
                      "DDP, where they have no gradient: no update, no weight decay, no optimizer state."),
    SCHEMA_ROW(CHOICE, struct dist_config, gradient_compression, .fallback = "none", .choices = compressions,
               .doc = "bfloat16: gradients are rounded to bfloat16 before they are averaged over processes, which "
                      "halves the bytes sent; sums are taken in float32 (PyTorch's bf16_compress_hook takes them in "
                      "bfloat16). A single process rounds nothing."),
    SCHEMA_ROW(INT, struct dist_config, zero_stage, .fallback = "0", .flags = SCHEMA_EXTENDS, .min = 0, .max = 3,
               .doc =
                   "1: each rank keeps the optimizer state of its shard of the parameters only (ZeRO stage 1; "
                   "PyTorch's ZeroRedundancyOptimizer). Gradients are reduce-scattered, updated parameters "
                   "gathered; the numbers stay the same, and checkpoints hold the whole state. 2: it keeps the "
                   "averaged gradients of its shard only, too (FSDP's SHARD_GRAD_OP); with train.accumulate sums "
                   "are taken in another order. 3: it keeps the parameters of its shard only, too, and gathers those "
                   "of a bucket when a pass needs them (FULL_SHARD). On GPUs 2 and 3 need NCCL."),
    SCHEMA_ROW(BOOL, struct dist_config, nccl_nvls, .fallback = "false",
               .doc = "Whether NCCL may add numbers in NVSwitch (NVLink SHARP), which is faster, but whose sums may "
                      "differ between two calls: a run with gradient_compression can then not be repeated bit for bit. "
                      "false sets NCCL_NVLS_ENABLE=0, unless this variable is set."),
    SCHEMA_ROW(REAL, struct dist_config, timeout, .fallback = "600", .flags = SCHEMA_EXTENDS, .min = 0, .max = 1e6,
               .excludes_min = true,
               .doc = "Maximum duration of a collective call, and of the start of all ranks, in seconds."),
    SCHEMA_ROW(
        REAL, struct dist_config, hang_timeout, .fallback = "8", .flags = SCHEMA_EXTENDS, .min = 0, .max = 1e6,
        .doc = "A rank hangs when others wait for it and no rank makes progress for this many seconds, or for 20 "
               "median steps if that is longer; the job then ends and names the rank. 0: only dist.timeout applies."),
    {0},
};

const struct schema dist_schema = SCHEMA("dist", struct dist_config, .rows = rows);
