/* buckets: PyTorch's rule that divides a list of tensors into buckets. */
#ifndef DIST_BUCKETS_H
#define DIST_BUCKETS_H

#include <stddef.h>

/* bucket_of (count): the bucket of each tensor; may be [sizes]. sizes (count): bytes of the tensors. Tensors are
 * assigned in order; a bucket is closed when a tensor has made it reach its limit. limits (limit_count): bytes of the
 * first bucket, the second, ...; the last one repeats. Returns the number of buckets. Pure; the rule of
 * torch.distributed._compute_bucket_assignment_by_size. */
size_t buckets_assign(const size_t *sizes, size_t count, const size_t *limits, size_t limit_count, size_t *bucket_of);

#endif
