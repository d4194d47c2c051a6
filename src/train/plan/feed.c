/* A batch is always at the same addresses, so that a recorded pass can be replayed for every batch. The next batch is
 * copied from the host to a second buffer meanwhile, and from there to these addresses, within the device's memory. */
#include "train/plan/feed.h"

#include <stdlib.h>

#define MAX_LOADERS 2 /* of training, of evaluation */
#define MAX_GAP 4096  /* bytes between two parts that are copied, too */

struct feed {
    struct device *device;
    size_t input_bytes, target_bytes; /* of a row */
    char *batch, *next;               /* as loader_layout; NULL: batches are used where they are */
    struct batch_layout layout;
    bool has_weights;
    const struct loader *pinned[MAX_LOADERS];
    size_t pinned_count;
};

size_t feed_memory(const struct dataset_info *info, size_t rows) { return 2 * loader_layout(info, rows).bytes; }

status feed_create(struct device *device, const struct dataset_info *info, size_t rows, struct feed **out) {
    *out = NULL;
    struct feed *feed = calloc(1, sizeof *feed);
    if (!feed) return status_memory("the feed of batches");
    *feed = (struct feed){.device = device,
                          .input_bytes = info->input_size * sizeof(float),
                          .target_bytes = dataset_target_bytes(info),
                          .layout = loader_layout(info, rows),
                          .has_weights = info->has_weights};
    status s = OK;
    if (!device_is_host(device)) {
        s = device_alloc(device, feed->layout.bytes, "a batch", (void **)&feed->batch);
        if (!s) s = device_alloc(device, feed->layout.bytes, "a batch", (void **)&feed->next);
    }
    if (s) feed_destroy(feed);
    if (!s) *out = feed;
    return s;
}

/* Pins a part of the loader's memory, so that the device can copy from it asynchronously. */
static void pin(void *feed, void *memory, size_t bytes) { device_pin(((struct feed *)feed)->device, memory, bytes); }

static void unpin(void *feed, void *memory, size_t bytes) {
    (void)bytes;
    device_unpin(((struct feed *)feed)->device, memory);
}

void feed_pin_loader(struct feed *feed, const struct loader *loader) {
    if (!feed->batch || !loader || feed->pinned_count == MAX_LOADERS) return;
    loader_visit(loader, pin, feed);
    feed->pinned[feed->pinned_count++] = loader;
}

void feed_destroy(struct feed *feed) {
    if (!feed) return;
    for (size_t i = 0; i < feed->pinned_count; i++) loader_visit(feed->pinned[i], unpin, feed);
    device_free(feed->device, feed->batch);
    device_free(feed->device, feed->next);
    free(feed);
}

status feed_next(struct feed *feed, struct loader *loader, struct batch *host, struct batch *fed) {
    if (feed->batch) TRY(device_upload_wait(feed->device)); /* the loader overwrites the last batch */
    TRY(loader_next(loader, host));
    *fed = host->rows > 0 ? feed_put(feed, host) : *host;
    return OK;
}

/* The part of a batch that is [at] bytes from its start. */
static struct device_transfer part(const struct feed *feed, size_t at, const void *from, size_t bytes) {
    return (struct device_transfer){feed->batch + at, feed->next + at, from, bytes};
}

/* Adds [next] to the last piece if a loader has both at the same distance as the device, and if little is between them.
 */
static bool join(struct device_transfer *last, const struct device_transfer *next) {
    size_t distance = (size_t)((char *)next->to - (char *)last->to);
    if (distance > last->bytes + MAX_GAP || (const char *)last->from + distance != next->from) return false;
    last->bytes = distance + next->bytes;
    return true;
}

struct batch feed_put(struct feed *feed, const struct batch *batch) {
    struct batch own = *batch;
    if (!feed->batch) return own;
    struct device_transfer pieces[] = {
        part(feed, 0, batch->inputs, batch->rows * feed->input_bytes),
        part(feed, feed->layout.targets, batch->targets, batch->rows * feed->target_bytes),
        part(feed, feed->layout.weights, batch->weights, feed->has_weights ? batch->rows * sizeof(float) : 0)};
    size_t count = 1;
    for (size_t i = 1; i < sizeof pieces / sizeof *pieces; i++)
        if (pieces[i].bytes && !join(&pieces[count - 1], &pieces[i])) pieces[count++] = pieces[i];
    device_upload_async(feed->device, pieces, count);
    own.inputs = (const float *)(const void *)feed->batch;
    own.targets = feed->target_bytes ? feed->batch + feed->layout.targets : NULL;
    own.weights = feed->has_weights ? (const float *)(const void *)(feed->batch + feed->layout.weights) : NULL;
    return own;
}
