/* A batch is always at the same addresses, so that a recorded pass can be replayed for every batch. The next batch is
 * copied from the host to a second buffer meanwhile, and from there to these addresses, within the device's memory. */
#include "train/feed.h"

#include <stdlib.h>

#define MAX_LOADERS 2 /* of training, of evaluation */

struct feed {
    struct device *device;
    size_t input_bytes, target_bytes; /* of a row */
    float *inputs, *next_inputs;      /* (rows, input_size); NULL: batches are used where they are */
    void *targets, *next_targets;     /* (rows, target_size); NULL also when target_size is 0 */
    float *weights, *next_weights;    /* (rows); NULL also when the rows have none */
    const struct loader *pinned[MAX_LOADERS];
    size_t pinned_count;
};

static size_t weight_bytes(const struct dataset_info *info) { return info->has_weights ? sizeof(float) : 0; }

static size_t input_bytes(const struct dataset_info *info) { return info->input_size * sizeof(float); }

size_t feed_memory(const struct dataset_info *info, size_t rows) {
    return 2 * rows * (input_bytes(info) + dataset_target_bytes(info) + weight_bytes(info));
}

status feed_create(struct device *device, const struct dataset_info *info, size_t rows, struct feed **out) {
    *out = NULL;
    struct feed *feed = calloc(1, sizeof *feed);
    if (!feed) return status_memory("the feed of batches");
    *feed =
        (struct feed){.device = device, .input_bytes = input_bytes(info), .target_bytes = dataset_target_bytes(info)};
    status s = OK;
    if (!device_is_host(device)) {
        s = device_alloc(device, rows * feed->input_bytes, "a batch", (void **)&feed->inputs);
        if (!s && feed->target_bytes) s = device_alloc(device, rows * feed->target_bytes, "a batch", &feed->targets);
        if (!s) s = device_alloc(device, rows * feed->input_bytes, "a batch", (void **)&feed->next_inputs);
        if (!s && feed->target_bytes)
            s = device_alloc(device, rows * feed->target_bytes, "a batch", &feed->next_targets);
    }
    if (!s && !device_is_host(device) && info->has_weights) {
        s = device_alloc(device, rows * sizeof(float), "a batch", (void **)&feed->weights);
        if (!s) s = device_alloc(device, rows * sizeof(float), "a batch", (void **)&feed->next_weights);
    }
    if (s) {
        feed_destroy(feed);
        return s;
    }
    *out = feed;
    return OK;
}

/* Pins a part of the loader's memory, so that the device can copy from it asynchronously. */
static void pin(void *feed, void *memory, size_t bytes) { device_pin(((struct feed *)feed)->device, memory, bytes); }

static void unpin(void *feed, void *memory, size_t bytes) {
    (void)bytes;
    device_unpin(((struct feed *)feed)->device, memory);
}

void feed_pin_loader(struct feed *feed, const struct loader *loader) {
    if (!feed->inputs || !loader || feed->pinned_count == MAX_LOADERS) return;
    loader_visit(loader, pin, feed);
    feed->pinned[feed->pinned_count++] = loader;
}

void feed_destroy(struct feed *feed) {
    if (!feed) return;
    for (size_t i = 0; i < feed->pinned_count; i++) loader_visit(feed->pinned[i], unpin, feed);
    device_free(feed->device, feed->inputs);
    device_free(feed->device, feed->targets);
    device_free(feed->device, feed->next_inputs);
    device_free(feed->device, feed->next_targets);
    device_free(feed->device, feed->weights);
    device_free(feed->device, feed->next_weights);
    free(feed);
}

status feed_next(struct feed *feed, struct loader *loader, struct batch *host, struct batch *fed) {
    if (feed->inputs) TRY(device_upload_wait(feed->device)); /* the loader overwrites the last batch */
    TRY(loader_next(loader, host));
    *fed = host->rows > 0 ? feed_put(feed, host) : *host;
    return OK;
}

struct batch feed_put(struct feed *feed, const struct batch *batch) {
    struct batch own = *batch;
    if (!feed->inputs) return own;
    struct device_transfer pieces[3] = {
        {feed->inputs, feed->next_inputs, batch->inputs, batch->rows * feed->input_bytes}};
    size_t count = 1;
    if (feed->target_bytes)
        pieces[count++] = (struct device_transfer){feed->targets, feed->next_targets, batch->targets,
                                                   batch->rows * feed->target_bytes};
    if (feed->weights)
        pieces[count++] = (struct device_transfer){feed->weights, feed->next_weights, batch->weights,
                                                   batch->rows * sizeof *batch->weights};
    device_upload_async(feed->device, pieces, count);
    own.inputs = feed->inputs;
    own.targets = feed->targets;
    own.weights = feed->weights;
    return own;
}
