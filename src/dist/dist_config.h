/* dist_config: the `dist:` section of a config. */
#pragma once

#include "base/schema/schema.h"
#include "dist/comm/comm_backend.h"

enum gradient_compression { COMPRESSION_NONE, COMPRESSION_BFLOAT16 };

struct dist_config {
    int backend; /* enum dist_backend */
    double bucket_cap_mb, first_bucket_mb;
    bool find_unused_parameters;
    int gradient_compression; /* enum gradient_compression */
    int64_t zero_stage;       /* 0 to 3 */
    bool nccl_nvls;
    double timeout;      /* seconds */
    double hang_timeout; /* seconds; 0: off */
};

extern const struct schema dist_schema;
