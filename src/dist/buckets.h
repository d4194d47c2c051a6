/* buckets: PyTorch's rule for cutting a list of tensors into buckets. */
#ifndef DIST_BUCKETS_H
#define DIST_BUCKETS_H

#include <stddef.h>

/* Walks tensors of [sizes] bytes (count) in the given order; a bucket that has reached its limit after a tensor was
 * added is closed. limits (limit_count): of the first bucket, the second, ...; the last one repeats. bucket_of (count)
 * may be [sizes]. Returns the number of buckets. Pure; torch.distributed._compute_bucket_assignment_by_size. */
size_t buckets_assign(const size_t *sizes, size_t count, const size_t *limits, size_t limit_count, size_t *bucket_of);

#endif
