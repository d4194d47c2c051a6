/* A bucket may exceed its limit: the tensor with which it reaches the limit is part of it. */
#include "dist/buckets.h"

size_t buckets_assign(const size_t *sizes, size_t count, const size_t *limits, size_t limit_count, size_t *bucket_of) {
    size_t bucket = 0, filled = 0;
    for (size_t i = 0; i < count; i++) {
        filled += sizes[i];
        bucket_of[i] = bucket;
        if (filled < limits[bucket < limit_count ? bucket : limit_count - 1]) continue;
        bucket++;
        filled = 0;
    }
    return count > 0 && bucket_of[count - 1] == bucket ? bucket + 1 : bucket;
}
