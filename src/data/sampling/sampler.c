/* The permutation of an epoch is drawn for all ranks, in O(rows); from 2^32 rows on it is computed. Padding repeats the
 * first indices, as PyTorch does, so that all ranks draw the same number of rows. */
#include "data/sampling/sampler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows of an epoch ---- */

static const char *const types[] = {"distributed", "dataloader", "weighted", NULL};

static const struct schema_row sampler_rows[] = {
    SCHEMA_ROW(
        CHOICE, struct sampler_config, type, .fallback = "distributed", .choices = types,
        .doc =
            "`distributed`: DistributedSampler, on any number of ranks (2^32 rows and more have another order, which "
            "needs no memory); `dataloader`: the order of "
            "DataLoader(shuffle=True) after torch.manual_seed and building the model, on one rank (`seed` is not "
            "used); `weighted`: WeightedRandomSampler(1 / rows of the class, rows) with a generator of `seed` + epoch, "
            "its draws distributed over the ranks, so that each class is seen equally often (`shuffle` is not used)."),
    SCHEMA_ROW(
        INT, struct sampler_config, batch_size, .fallback = "null", .min = 1, .max = 1e9,
        .doc = "Rows of a batch on each rank (DataLoader's batch_size); 32 when neither this nor global_batch_size is "
               "given."),
    SCHEMA_ROW(
        INT, struct sampler_config, global_batch_size, .fallback = "null", .min = 1, .max = 1e9,
        .doc = "Rows of a batch over all ranks, instead of batch_size: the same training on any number of ranks that "
               "divides it."),
    SCHEMA_ROW(BOOL, struct sampler_config, shuffle, .fallback = "true",
               .doc = "A new order each epoch, drawn from seed + epoch (DistributedSampler's shuffle with set_epoch)."),
    SCHEMA_ROW(
        BOOL, struct sampler_config, drop_last, .fallback = "false",
        .doc =
            "When the number of rows is not a multiple of the number of ranks: drop the tail instead of repeating the "
            "first rows (DistributedSampler's drop_last)."),
    SCHEMA_ROW(
        BOOL, struct sampler_config, uneven, .fallback = "false",
        .doc =
            "When the number of rows is not a multiple of the number of ranks: use each row exactly once per epoch "
            "instead of repeating the first rows. Gradients are weighted by rows; a rank without rows has weight zero "
            "(torch's Join for uneven inputs, with exact weights)."),
    SCHEMA_ROW(
        BOOL, struct sampler_config, drop_last_batch, .fallback = "false",
        .doc =
            "Drop the last batch of an epoch when it is short (DataLoader's drop_last). Not together with `uneven`."),
    SCHEMA_ROW(INT, struct sampler_config, seed, .fallback = "0",
               .doc = "Seed of the order of rows, separate from the model's seed (DistributedSampler's seed)."),
    {0},
};

static void check_sampler(void *config, const struct node *where, const char *path, struct problems *problems) {
    struct sampler_config *sampler = config;
    bool has_batch = sampler->batch_size != SCHEMA_NO_INT, has_global = sampler->global_batch_size != SCHEMA_NO_INT;
    if (has_batch && has_global)
        problems_add(problems, where ? where->place : (struct place){0}, path,
                     "batch_size (per rank) and global_batch_size (of all ranks) exclude each other; give one");
    if (sampler->uneven && sampler->drop_last)
        problems_add(problems, where ? where->place : (struct place){0}, path,
                     "uneven (each row once) and drop_last (the tail is dropped) exclude each other; give one");
    if (sampler->uneven && sampler->drop_last_batch)
        problems_add(problems, where ? where->place : (struct place){0}, path,
                     "uneven (each row once) and drop_last_batch (a short last batch is dropped) exclude each other; "
                     "give one");
    if (!has_batch && !has_global) sampler->batch_size = 32;
}

const struct schema sampler_schema = {
    .name = "sampler", .size = sizeof(struct sampler_config), .rows = sampler_rows, .check = check_sampler};

size_t sampler_length(const struct sampler_config *config, size_t rows, int world_size) {
    assert(world_size >= 1);
    size_t world = (size_t)world_size;
    /* drop_last: PyTorch's ceil((rows - world) / world) is rows / world when rows % world != 0 */
    return config->drop_last ? rows / world : rows / world + (rows % world != 0);
}

size_t sampler_shard(size_t rows, size_t shards, size_t shard) { return rows * shard / shards; }

size_t sampler_own_length(const struct sampler_config *config, size_t rows, int rank, int world_size) {
    if (!config->uneven || config->drop_last) return sampler_length(config, rows, world_size);
    return rows / (size_t)world_size + ((size_t)rank < rows % (size_t)world_size);
}

status sampler_check_rows(const struct sampler_config *config, size_t rows, int world_size, size_t batch) {
    size_t length = sampler_length(config, rows, config->shards ? 1 : world_size);
    if (config->shards) batch = (size_t)config->global_batch_size;
    if (length >= batch || (length > 0 && !config->drop_last_batch)) return OK;
    return status_new(
        STATUS_USAGE,
        "%zu training rows are less than one batch of %zu rows for each of %d ranks; use fewer ranks, a smaller batch, "
        "or sampler.%s: false",
        rows, batch, world_size, length ? "drop_last_batch" : "drop_last");
}

size_t sampler_evaluation_batch(const struct sampler_config *config, int world_size) {
    size_t parts = config->shards ? config->shards : (size_t)world_size;
    if (config->global_batch_size == SCHEMA_NO_INT) return (size_t)config->batch_size;
    return ((size_t)config->global_batch_size + parts - 1) / parts;
}

status sampler_batch(const struct sampler_config *config, int world_size, size_t *batch) {
    if (config->type == SAMPLER_DATALOADER && world_size > 1)
        return status_new(STATUS_USAGE,
                          "sampler.type dataloader needs a single rank, but there are %d; use type distributed",
                          world_size);
    *batch = sampler_evaluation_batch(config, world_size);
    if (config->global_batch_size != SCHEMA_NO_INT && !config->shards && config->global_batch_size % world_size != 0)
        return status_new(STATUS_USAGE,
                          "sampler.global_batch_size %lld is not a multiple of the %d ranks; change one of the two, or "
                          "give sampler.batch_size (rows per rank)",
                          (long long)config->global_batch_size, world_size);
    return OK;
}

/* Every iteration over a DataLoader draws two int64 from the default generator: the seed of its workers, then the seed
 * of the order. */
static uint64_t dataloader_seed(const struct rng *generator, int64_t epoch) {
    struct rng rng = *generator;
    for (int64_t draw = 0; draw < 2 * epoch + 1; draw++) rng_int64(&rng);
    return (uint64_t)rng_int64(&rng);
}

static bool is_class(int64_t value, int64_t n_classes) { return value >= 0 && value < n_classes; }

/* Sequential sums, as in torch.multinomial. */
status sampler_weigh(const int64_t *classes, size_t rows, int64_t n_classes, double *cumulative) {
    size_t *counts = calloc((size_t)n_classes + 1, sizeof *counts);
    double sum = 0;
    if (!counts) return status_memory("the weights of the classes");
    for (size_t i = 0; i < rows; i++)
        if (is_class(classes[i], n_classes)) counts[classes[i]]++;
    for (size_t i = 0; i < rows; i++) {
        if (is_class(classes[i], n_classes)) sum += 1 / (double)counts[classes[i]];
        cumulative[i] = sum;
    }
    free(counts);
    if (!(sum > 0)) return status_new(STATUS_DATA, "sampler.type weighted: no training row has a class");
    for (size_t i = 0; i < rows; i++) cumulative[i] /= sum;
    cumulative[rows - 1] = 1;
    return OK;
}

/* torch.multinomial(weights, rows, replacement=True): the first entry that is not below a uniform draw */
static void draw_weighted(const double *cumulative, struct rng *rng, size_t rows, struct row_order *drawn) {
    for (size_t i = 0; i < rows; i++) {
        double uniform = rng_uniform53(rng);
        size_t low = 0, high = rows;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (cumulative[middle] < uniform)
                low = middle + 1;
            else
                high = middle;
        }
        order_set(drawn, i, low);
    }
}

bool sampler_draws(const struct sampler_config *config) { return config->shuffle || config->type == SAMPLER_WEIGHTED; }

status sampler_alloc(const struct sampler_config *config, size_t rows, struct row_order *out) {
    *out = (struct row_order){0};
    if (!sampler_draws(config) || (config->type != SAMPLER_WEIGHTED && rows > ORDER_MAX_SMALL)) return OK;
    return order_alloc(rows, rows, "the order of the rows", out);
}

void sampler_draw(const struct sampler_config *config, size_t rows, int64_t epoch, struct row_order *order) {
    struct rng rng;
    if (!sampler_draws(config)) return;
    rng_seed(&rng, config->type == SAMPLER_DATALOADER ? dataloader_seed(config->generator, epoch)
                                                      : (uint64_t)config->seed + (uint64_t)epoch);
    if (config->type == SAMPLER_WEIGHTED)
        draw_weighted(config->cumulative, &rng, rows, order);
    else if (order->small)
        rng_permutation32(&rng, order->small, rows);
    else {
        order->computed.rows = rows;
        order->computed.key = rng_u64(&rng);
    }
}

void sampler_evaluation_range(size_t rows, int rank, int world_size, size_t *first, size_t *count) {
    assert(rank >= 0 && rank < world_size);
    size_t world = (size_t)world_size, r = (size_t)rank, share = rows / world, extra = rows % world;
    *first = r * share + (r < extra ? r : extra);
    *count = share + (r < extra);
}

/* ---- orders that were drawn ---- */

/* A table with a slot for each seed modulo its size: epochs have consecutive seeds. */

#define MAX_BYTES ((size_t)1 << 20)
#define MAX_SLOTS 1024

bool orders_get(const struct orders *orders, uint64_t seed, size_t rows, struct row_order *out) {
    if (orders->slots == 0 || orders->rows != rows) return false;
    size_t slot = (size_t)(seed % orders->slots);
    if (!orders->is_set[slot] || orders->seeds[slot] != seed) return false;
    memcpy(out->small, orders->items + slot * rows, rows * sizeof *out->small);
    return true;
}

/* Whether there is memory for an order. */
static bool allocate(struct orders *orders, size_t rows) {
    size_t slots = rows > 0 ? MAX_BYTES / sizeof *orders->items / rows : 0;
    if (slots == 0) return false;
    if (slots > MAX_SLOTS) slots = MAX_SLOTS;
    *orders = (struct orders){.slots = slots,
                              .rows = rows,
                              .seeds = calloc(slots, sizeof *orders->seeds),
                              .is_set = calloc(slots, sizeof *orders->is_set),
                              .items = calloc(slots * rows, sizeof *orders->items)};
    if (orders->seeds && orders->is_set && orders->items) return true;
    orders_free(orders);
    return false;
}

void orders_put(struct orders *orders, uint64_t seed, size_t rows, const struct row_order *order) {
    if (orders->slots == 0 && !allocate(orders, rows)) return;
    if (orders->rows != rows) return;
    size_t slot = (size_t)(seed % orders->slots);
    orders->seeds[slot] = seed;
    orders->is_set[slot] = true;
    memcpy(orders->items + slot * rows, order->small, rows * sizeof *order->small);
}

void orders_free(struct orders *orders) {
    free(orders->seeds);
    free(orders->is_set);
    free(orders->items);
    *orders = (struct orders){0};
}
