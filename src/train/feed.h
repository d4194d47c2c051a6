/* feed: a batch of the loader where operators find it. On the CPU that is where it lies; else it is copied to the
 * device, while the host goes on. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include "data/loader.h"
#include "device/device.h"

struct feed;

/* For batches of up to [rows] rows of a dataset. */
status feed_create(struct device *device, const struct dataset_info *info, size_t rows, struct feed **out);
void feed_destroy(struct feed *feed); /* takes NULL */

/* [batch] (rows > 0), inputs and targets on the device, the positions as they are: until the next call. */
struct batch feed_put(struct feed *feed, const struct batch *batch);

/* Bytes of the device's memory that a feed takes. */
size_t feed_memory(const struct dataset_info *info, size_t rows);

#endif
