/* One place for the inputs and one for the targets: the copies wait for the operators before, not the host. */
#include "train/feed.h"

#include <stdlib.h>

struct feed {
    struct device *device;
    size_t input_bytes, target_bytes; /* of a row */
    float *inputs;                    /* (rows, input_size); NULL: batches are taken as they are */
    void *targets;                    /* (rows, target_size) */
};

static size_t input_bytes(const struct dataset_info *info) { return info->input_size * sizeof(float); }

size_t feed_memory(const struct dataset_info *info, size_t rows) {
    return rows * (input_bytes(info) + dataset_target_bytes(info));
}

status feed_create(struct device *device, const struct dataset_info *info, size_t rows, struct feed **out) {
    *out = NULL;
    struct feed *feed = calloc(1, sizeof *feed);
    if (!feed) return status_new(STATUS_BUG, "out of memory");
    *feed =
        (struct feed){.device = device, .input_bytes = input_bytes(info), .target_bytes = dataset_target_bytes(info)};
    status s = OK;
    if (!device_is_host(device)) {
        s = device_alloc(device, rows * feed->input_bytes, "a batch", (void **)&feed->inputs);
        if (!s) s = device_alloc(device, rows * feed->target_bytes, "a batch", &feed->targets);
    }
    if (s) {
        feed_destroy(feed);
        return s;
    }
    *out = feed;
    return OK;
}

void feed_destroy(struct feed *feed) {
    if (!feed) return;
    device_free(feed->device, feed->inputs);
    device_free(feed->device, feed->targets);
    free(feed);
}

struct batch feed_put(struct feed *feed, const struct batch *batch) {
    struct batch own = *batch;
    if (!feed->inputs) return own;
    device_upload(feed->device, feed->inputs, batch->inputs, batch->rows * feed->input_bytes);
    device_upload(feed->device, feed->targets, batch->targets, batch->rows * feed->target_bytes);
    own.inputs = feed->inputs;
    own.targets = feed->targets;
    return own;
}
