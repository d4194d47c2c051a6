/* feed: makes a batch of the loader available to operators. On the CPU it stays where it is; on a GPU it is copied
 * asynchronously, while the device computes the previous batch. */
#pragma once

#include "data/dataset/loader.h"
#include "device/device.h"

struct feed;

/* For batches of at most [rows] rows of a dataset. */
status feed_create(struct device *device, const struct dataset_info *info, size_t rows, struct feed **out);
void feed_destroy(struct feed *feed); /* takes NULL */

/* Pins the memory of [loader] (NULL: none) until feed_destroy; the loader must outlive the feed. */
void feed_pin_loader(struct feed *feed, const struct loader *loader);

/* The loader's next batch: *host on the host, *fed as feed_put returns it; with 0 rows *fed = *host. */
status feed_next(struct feed *feed, struct loader *loader, struct batch *host, struct batch *fed);

/* The batch (rows > 0) with inputs and targets on the device, valid until the next call. */
struct batch feed_put(struct feed *feed, const struct batch *batch);

/* Bytes of device memory of a feed, which are two batches. */
size_t feed_memory(const struct dataset_info *info, size_t rows);
