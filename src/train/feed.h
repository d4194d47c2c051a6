/* feed: a batch of the loader where operators find it. On the CPU that is where it lies; else it is copied to the
 * device, while the host goes on and the device works on the batch before. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "data/loader.h"
#include "device/device.h"

struct feed;

/* For batches of up to [rows] rows of a dataset. */
status feed_create(struct device *device, const struct dataset_info *info, size_t rows, struct feed **out);
void feed_destroy(struct feed *feed); /* takes NULL */

/* The device copies from [loader]'s memory (NULL: none) by itself, as long as the feed lives: the loader must live
 * longer. */
void feed_expect(struct feed *feed, const struct loader *loader);

/* The loader's next batch: where it lies on the host, and as feed_put gives it. Not with rows 0: then *fed = *host. */
status feed_next(struct feed *feed, struct loader *loader, struct batch *host, struct batch *fed);

/* [batch] (rows > 0) of memory that is not pinned, inputs and targets on the device, the positions as they are: until
 * the next call. */
struct batch feed_put(struct feed *feed, const struct batch *batch);

/* Bytes of the device's memory that a feed takes: for two batches. */
size_t feed_memory(const struct dataset_info *info, size_t rows);

#endif
