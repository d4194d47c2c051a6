/* A ring buffer of batches. Without a thread it has one slot, filled in loader_next. With a thread, slots are filled
 * ahead while the caller uses the last one. Batches are numbered from the start of the epoch; batch b is in slot
 * b mod slots. */
#include "data/dataset/loader.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "base/scoped.h"
#include "base/system/thread.h"
#include "data/dataset/open_dataset.h"

#define AUTOMATIC_PREFETCH 2
#define ANNOUNCED 2   /* batches after the one that is being read, which the operating system reads meanwhile */
#define SLOW_ROW 5e-6 /* seconds: rows that take less, on average, are in the operating system's cache already */

/* Memory of a batch. */
struct slot {
    char *inputs, *targets;
    int64_t *positions; /* those of its rows */
    float *weights;     /* with info.has_weights */
};

struct loader {
    struct dataset *dataset;
    enum dataset_part part;
    struct sampler_config sampler; /* training */
    int rank, world_size;
    size_t part_rows, epoch_rows, length; /* rows of the part; of an epoch, of all ranks; that this rank draws */
    enum evaluation_order evaluation;
    size_t first_row;                          /* evaluation: of this rank's rows */
    size_t batch_rows, n_batches, own_batches; /* own_batches: of this rank; n_batches: maximum over all ranks */
    struct row_order order;                    /* (part_rows) of the epoch, where it is drawn */
    int64_t *announced_rows;                   /* (batch_rows) workspace */
    size_t announced;                          /* batches of this epoch, to dataset_will_read */
    bool is_slow;                              /* reading the last batch took more than SLOW_ROW for each row */
    double *cumulative;                        /* (part_rows) for a weighted sampler */
    int64_t epoch;
    struct own_sampler *own; /* of an extension, started; else NULL */
    struct arena *own_arena;
    void *scratch_image; /* of dataset_augment; NULL: nothing is augmented */

    struct slot *slots; /* (slot_count) */
    size_t slot_count;

    bool has_thread;
    pthread_t thread;
    uint32_t *together; /* orders of epochs that are drawn together, from together_from on; NULL: none */
    int64_t together_from;
    pthread_mutex_t mutex; /* guards the fields below, and the thread's use of the order */
    pthread_cond_t changed;
    size_t filled, taken; /* batches of this epoch that were read; that loader_next returned */
    size_t in_use;        /* the first batch whose slot must not be overwritten */
    bool is_reading, is_paused, is_stopping;
    status failure; /* of reading batch [filled]; the thread waits then */
};

/* ---- reading ---- */

/* The range of a batch in the epoch's indices. */
struct span {
    size_t first, rows;
};

static size_t min(size_t a, size_t b) { return a < b ? a : b; }

static struct span span_of(const struct loader *loader, size_t batch) {
    const struct sampler_config *sampler = &loader->sampler;
    if (sampler->shards) { /* this rank's shards of a global batch */
        size_t global = (size_t)sampler->global_batch_size, first = batch * global;
        size_t rows = min(loader->length - first, global), world = (size_t)loader->world_size;
        size_t begin = sampler_shard(sampler->shards, world, (size_t)loader->rank);
        size_t end = sampler_shard(sampler->shards, world, (size_t)loader->rank + 1);
        begin = sampler_shard(rows, sampler->shards, begin);
        end = sampler_shard(rows, sampler->shards, end);
        return (struct span){first + begin, end - begin};
    }
    size_t first = min(batch * loader->batch_rows, loader->length);
    return (struct span){first, min(loader->length - first, loader->batch_rows)};
}

/* Sets the positions (span.rows) of a batch. */
static void find_positions(const struct loader *loader, struct span span, int64_t *positions) {
    bool is_shard = loader->sampler.shards > 0;
    int rank = is_shard ? 0 : loader->rank, world_size = is_shard ? 1 : loader->world_size;
    if (loader->part == DATASET_TRAIN)
        sampler_rows_of(&loader->order, loader->epoch_rows, rank, world_size, span.first, span.rows, positions);
    else
        for (size_t i = 0; i < span.rows; i++)
            positions[i] = (int64_t)sampler_evaluation_row(loader->evaluation, loader->first_row, loader->length, rank,
                                                           world_size, loader->batch_rows, span.first + i);
}

static void announce(struct loader *loader, size_t batch) {
    if (!loader->is_slow) {
        loader->announced = batch + 1;
        return;
    }
    for (size_t end = min(batch + 1 + ANNOUNCED, loader->own_batches); loader->announced < end; loader->announced++) {
        struct span span = span_of(loader, loader->announced);
        find_positions(loader, span, loader->announced_rows);
        dataset_will_read(loader->dataset, loader->part, loader->announced_rows, span.rows);
    }
}

static status read_batch(struct loader *loader, size_t batch) {
    const struct slot *slot = &loader->slots[batch % loader->slot_count];
    struct span span = span_of(loader, batch);
    size_t rows = span.rows;
    int64_t *positions = slot->positions;
    if (rows == 0) return OK;
    announce(loader, batch);
    find_positions(loader, span, positions);
    bool is_timed = !dataset_is_in_memory(loader->dataset);
    double start = is_timed ? clock_seconds() : 0;
    TRY(dataset_read_epoch(loader->dataset, loader->part, loader->epoch, positions, rows, slot->inputs, slot->targets));
    if (is_timed) loader->is_slow = clock_seconds() - start > SLOW_ROW * (double)rows;
    if (slot->weights)
        dataset_read_weights(loader->dataset, loader->part, positions, rows, loader->part == DATASET_TRAIN,
                             slot->weights);
    if (!loader->scratch_image) return OK;
    float *inputs = (float *)(void *)slot->inputs;
    dataset_augment(loader->dataset, loader->epoch, positions, rows, inputs, slot->targets, loader->scratch_image);
    dataset_copy_inputs(dataset_info(loader->dataset), inputs, rows, (float *)(void *)slot->targets);
    return OK;
}

static bool can_read(const struct loader *loader) {
    return !loader->is_paused && !loader->failure && loader->filled < loader->own_batches &&
           loader->filled - loader->in_use < loader->slot_count;
}

static void *read_ahead(void *context) {
    struct loader *loader = context;
    pthread_mutex_lock(&loader->mutex);
    while (!loader->is_stopping) {
        if (!can_read(loader)) {
            pthread_cond_wait(&loader->changed, &loader->mutex);
            continue;
        }
        size_t batch = loader->filled;
        loader->is_reading = true;
        pthread_mutex_unlock(&loader->mutex);
        status s = read_batch(loader, batch);
        pthread_mutex_lock(&loader->mutex);
        loader->is_reading = false;
        loader->failure = s;
        if (s == OK) loader->filled++;
        pthread_cond_broadcast(&loader->changed);
    }
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

static status start_thread(struct loader *loader) {
    TRY(thread_start(&loader->thread, "loader", "the thread that reads batches ahead", read_ahead, loader));
    loader->has_thread = true;
    return OK;
}

/* ---- creation ---- */

struct batch_layout loader_layout(const struct dataset_info *info, size_t rows) {
    size_t inputs = rows * info->input_size * sizeof(float), targets = rows * dataset_target_bytes(info);
    struct batch_layout l = {.targets = (inputs + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT};
    l.weights = l.targets + (targets + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
    l.bytes = l.weights + (info->has_weights ? rows * sizeof(float) : 0);
    return l;
}

/* A block for a batch. */
static status allocate_slot(const struct loader *loader, struct slot *slot) {
    const struct dataset_info *info = dataset_info(loader->dataset);
    size_t row = info->input_size * sizeof(float) + dataset_target_bytes(info) + sizeof(float) + 2 * BUFFER_ALIGNMENT;
    if (loader->batch_rows > SIZE_MAX / row) return status_memory("a batch of %zu rows", loader->batch_rows);
    TRY(rows_alloc(loader->batch_rows, sizeof(int64_t), "a batch", &slot->positions));
    struct batch_layout layout = loader_layout(info, loader->batch_rows);
    TRY(buffer_new(layout.bytes, "a batch", &slot->inputs));
    slot->targets = slot->inputs + layout.targets;
    if (info->has_weights) slot->weights = (float *)(void *)(slot->inputs + layout.weights);
    return OK;
}

static status allocate(struct loader *loader, size_t slots) {
    TRY(rows_alloc(loader->batch_rows, sizeof(int64_t), "a batch", &loader->announced_rows));
    bool is_training = loader->part == DATASET_TRAIN;
    if (is_training && dataset_augments(loader->dataset)) {
        TRY(buffer_new(dataset_augment_bytes(loader->dataset), "an image", &loader->scratch_image));
    }
    if (is_training) TRY(sampler_alloc(&loader->sampler, loader->part_rows, &loader->order));
    TRY(rows_alloc(slots, sizeof *loader->slots, "the batches of the loader", &loader->slots));
    loader->slot_count = slots;
    for (size_t i = 0; i < slots; i++) TRY(allocate_slot(loader, &loader->slots[i]));
    return OK;
}

/* Computes the weights of a weighted sampler. */
static status compute_weights(struct loader *loader) {
    const struct dataset_info *info = dataset_info(loader->dataset);
    SCOPED_BUFFER int64_t *classes = NULL;
    if (loader->part != DATASET_TRAIN || loader->sampler.type != SAMPLER_WEIGHTED) return OK;
    TRY(rows_alloc(loader->part_rows, sizeof(double), "the weights of the rows", &loader->cumulative));
    loader->sampler.cumulative = loader->cumulative;
    TRY(rows_alloc(loader->part_rows, sizeof(int64_t), "the classes of the rows", &classes));
    status s = status_prefix(dataset_train_classes(loader->dataset, classes), "sampler.type weighted");
    return s ? s : sampler_weigh(classes, loader->part_rows, info->is_binary ? 2 : info->classes, loader->cumulative);
}

/* The number of batches of [length] rows. */
static size_t count_batches(const struct loader *loader, size_t length, size_t batch) {
    bool drops = loader->part == DATASET_TRAIN && loader->sampler.drop_last_batch;
    return length / batch + (!drops && length % batch != 0);
}

static status finish(struct loader *loader, int64_t prefetch, struct loader **out) {
    if (prefetch < 0) prefetch = dataset_is_in_memory(loader->dataset) ? 0 : AUTOMATIC_PREFETCH;
    if ((size_t)prefetch > loader->n_batches) prefetch = (int64_t)loader->n_batches;
    status s = allocate(loader, (size_t)prefetch + 1);
    if (s == OK) s = compute_weights(loader);
    if (s == OK) s = loader_seek(loader, 0, 0);
    if (s == OK && prefetch > 0) s = start_thread(loader);
    if (s) loader_destroy(loader);
    if (!s) *out = loader;
    return s;
}

static struct loader *new_loader(struct dataset *dataset, enum dataset_part part, size_t batch, int rank,
                                 int world_size) {
    struct loader *loader = calloc(1, sizeof *loader);
    if (!loader) return NULL;
    const struct dataset_info *info = dataset_info(dataset);
    loader->dataset = dataset;
    loader->part = part;
    loader->part_rows = dataset_part_rows(info, part);
    loader->batch_rows = batch;
    loader->rank = rank;
    loader->world_size = world_size;
    loader->is_slow = !dataset_is_in_memory(dataset);
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, NULL);
    return loader;
}

/* A batch has at most the rows of an epoch, so that a large batch_size costs no memory. */
static void limit_batch(struct loader *loader, size_t max) {
    if (loader->batch_rows > max) loader->batch_rows = max ? max : 1;
}

/* With shards all ranks draw the same order, that of one process, and each reads its part of every batch. */
static void set_shard_sizes(struct loader *loader) {
    const struct sampler_config *sampler = &loader->sampler;
    size_t global = (size_t)sampler->global_batch_size, world = (size_t)loader->world_size;
    size_t shards = sampler_shard(sampler->shards, world, (size_t)loader->rank + 1) -
                    sampler_shard(sampler->shards, world, (size_t)loader->rank);
    loader->length = sampler_length(sampler, loader->part_rows, 1);
    loader->n_batches = count_batches(loader, loader->length, global);
    loader->batch_rows = (min(global, loader->length) * shards + sampler->shards - 1) / sampler->shards;
    if (loader->batch_rows == 0) loader->batch_rows = 1;
}

static bool has_class(const struct dataset_info *info) {
    return (info->target_kind == TARGET_CLASS || info->is_binary) && info->input_kind != INPUT_TOKENS &&
           info->target_size == 1;
}

status loader_check(const struct dataset_info *info, const struct sampler_config *sampler, size_t batch,
                    int world_size) {
    if (sampler->type == SAMPLER_WEIGHTED && !has_class(info))
        return status_new(
            STATUS_USAGE,
            "sampler.type weighted needs one class per row as target, but this dataset has other targets");
    return sampler_check_rows(sampler, info->train_rows, world_size, batch);
}

status loader_create(struct dataset *dataset, const struct sampler_config *sampler, size_t batch, int rank,
                     int world_size, int64_t prefetch, struct loader **out) {
    *out = NULL;
    struct loader *loader = new_loader(dataset, DATASET_TRAIN, batch, rank, world_size);
    if (!loader) return status_memory("the batches of the loader");
    loader->sampler = *sampler;
    loader->epoch_rows = sampler_epoch_rows(sampler, loader->part_rows);
    if (sampler->shards)
        set_shard_sizes(loader);
    else {
        size_t max = sampler_length(sampler, loader->part_rows, world_size);
        loader->length = sampler_own_length(sampler, loader->part_rows, rank, world_size);
        loader->n_batches = count_batches(loader, max, batch);
        limit_batch(loader, max);
    }
    loader->own_batches = loader->n_batches;
    status s = loader_check(dataset_info(dataset), sampler, batch, world_size);
    if (s) {
        loader_destroy(loader);
        return s;
    }
    return finish(loader, prefetch, out);
}

status loader_create_evaluation(struct dataset *dataset, enum dataset_part part, size_t batch, int rank, int world_size,
                                enum evaluation_order order, struct loader **out) {
    *out = NULL;
    struct loader *loader = new_loader(dataset, part, batch, rank, world_size);
    if (!loader) return status_memory("the batches of the loader");
    size_t first, max;
    sampler_evaluation_range(loader->part_rows, 0, world_size, &first, &max);
    sampler_evaluation_range(loader->part_rows, rank, world_size, &loader->first_row, &loader->length);
    loader->evaluation = order;
    loader->n_batches = count_batches(loader, max, batch);
    loader->own_batches = count_batches(loader, loader->length, batch);
    limit_batch(loader, max);
    return finish(loader, -1, out);
}

void loader_destroy(struct loader *loader) {
    if (!loader) return;
    if (loader->has_thread) {
        pthread_mutex_lock(&loader->mutex);
        loader->is_stopping = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
        pthread_join(loader->thread, NULL);
    }
    for (size_t i = 0; i < loader->slot_count; i++) {
        buffer_free(loader->slots[i].inputs); /* targets and weights are in its block */
        buffer_free(loader->slots[i].positions);
    }
    buffer_free(loader->slots);
    buffer_free(loader->announced_rows);
    order_free(&loader->order);
    buffer_free(loader->together);
    buffer_free(loader->cumulative);
    buffer_free(loader->scratch_image);
    arena_destroy(loader->own_arena);
    status_free(loader->failure);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
    free(loader);
}

/* ---- use ---- */

size_t loader_batches(const struct loader *loader) { return loader->n_batches; }

uint64_t loader_hash_rows(const struct loader *loader, size_t first, size_t count) {
    const struct sampler_config *sampler = &loader->sampler;
    size_t world = sampler->shards ? 1 : (size_t)loader->world_size;
    size_t batch = sampler->shards ? (size_t)sampler->global_batch_size : loader->batch_rows;
    size_t length = sampler_length(sampler, loader->part_rows, (int)world) * world;
    if (sampler->uneven) length = min(length, loader->epoch_rows);
    size_t begin = min(first * batch * world, length), end = min((first + count) * batch * world, length);
    uint64_t hash = 0;
    while (begin < end) {
        int64_t rows[64];
        size_t n = min(end - begin, sizeof rows / sizeof *rows);
        for (size_t i = 0; i < n; i++)
            rows[i] = (int64_t)sampler_row(&loader->order, loader->epoch_rows, 0, 1, begin + i);
        hash = hash_add(hash, rows, n * sizeof *rows);
        begin += n;
    }
    return hash;
}

void loader_visit(const struct loader *loader, loader_visitor *visit, void *user) {
    struct batch_layout layout = loader_layout(dataset_info(loader->dataset), loader->batch_rows);
    for (size_t i = 0; i < loader->slot_count; i++) visit(user, loader->slots[i].inputs, layout.bytes);
}

/* Whether the order of an epoch depends on the seed alone, and is stored. */
static bool is_of_seed(const struct loader *loader) {
    const struct sampler_config *sampler = &loader->sampler;
    return loader->part == DATASET_TRAIN && sampler->type == SAMPLER_DISTRIBUTED && sampler->shuffle &&
           loader->order.small;
}

#define MAX_TOGETHER 1024 /* rows, from which on a seed is a small part of drawing an order */

/* Where a run draws orders of few rows for itself, it draws those of several epochs. */
static status draw_together(struct loader *loader, int64_t epoch) {
    size_t rows = loader->part_rows;
    if (!loader->together) {
        TRY(rows_alloc(RNG_TOGETHER * rows, sizeof *loader->together, "the orders of the rows", &loader->together));
        loader->together_from = epoch - RNG_TOGETHER;
    }
    if (epoch < loader->together_from || epoch >= loader->together_from + RNG_TOGETHER) {
        sampler_draw_together(&loader->sampler, rows, epoch, loader->together);
        loader->together_from = epoch;
    }
    const uint32_t *order = loader->together + (size_t)(epoch - loader->together_from) * rows;
    memcpy(loader->order.small, order, rows * sizeof *order);
    return OK;
}

/* A sampler of an extension draws nothing before it has started. */
static status draw_order(struct loader *loader, int64_t epoch) {
    if (loader->own) return sampler_draw_own(loader->own, loader->epoch_rows, epoch, &loader->order);
    if (loader->part == DATASET_TRAIN && loader->sampler.type == SAMPLER_EXTENSION) return OK;
    struct orders *orders = is_of_seed(loader) ? dataset_orders(loader->dataset) : NULL;
    uint64_t seed = (uint64_t)loader->sampler.seed + (uint64_t)epoch;
    if (orders && orders_get(orders, seed, loader->part_rows, &loader->order)) return OK;
    if (is_of_seed(loader) && !orders && loader->part_rows <= MAX_TOGETHER) return draw_together(loader, epoch);
    if (loader->part == DATASET_TRAIN) sampler_draw(&loader->sampler, loader->part_rows, epoch, &loader->order);
    if (orders) orders_put(orders, seed, loader->part_rows, &loader->order);
    return OK;
}

status sampler_read(const struct sampler_rows *rows, size_t first, size_t count, float *inputs, float *targets) {
    const struct dataset_info *info = dataset_info(rows->dataset);
    bool is_tokens = info->input_kind == INPUT_TOKENS, is_class = info->target_kind == TARGET_CLASS;
    SCOPED_BUFFER float *x = NULL;
    SCOPED_BUFFER void *y = NULL;
    TRY(buffer_new(rows->input_size * sizeof *x, "a row of the sampler", &x));
    TRY(buffer_new(rows->target_size * sizeof(int64_t), "a row of the sampler", &y));
    for (size_t r = 0; r < count; r++) {
        int64_t position = (int64_t)(first + r);
        TRY(dataset_read(rows->dataset, DATASET_TRAIN, &position, 1, x, y));
        for (size_t i = 0; inputs && i < rows->input_size; i++)
            inputs[r * rows->input_size + i] = is_tokens ? (float)((const int32_t *)(const void *)x)[i] : x[i];
        for (size_t i = 0; targets && i < rows->target_size; i++)
            targets[r * rows->target_size + i] = is_class ? (float)((const int64_t *)y)[i] : ((const float *)y)[i];
    }
    return OK;
}

status loader_start_sampler(struct loader *loader, struct comm *ranks) {
    const struct dataset_info *info = dataset_info(loader->dataset);
    if (loader->sampler.type != SAMPLER_EXTENSION) return OK;
    if (!(loader->own_arena = arena_create())) status_exit_without_memory();
    struct sampler_rows rows = {.rows = loader->part_rows,
                                .input_size = info->input_size,
                                .target_size = info->target_size,
                                .seed = loader->sampler.seed,
                                .ranks = ranks,
                                .arena = loader->own_arena,
                                .dataset = loader->dataset};
    if (has_class(info)) {
        int64_t *classes = arena_alloc(loader->own_arena, loader->part_rows * sizeof *classes);
        TRY(dataset_train_classes(loader->dataset, classes));
        rows.classes = classes;
    }
    return sampler_start(&loader->sampler, &rows, &loader->order, &loader->own);
}

const struct row_order *loader_own_order(const struct loader *loader) { return loader->own ? &loader->order : NULL; }

struct comm *loader_own_ranks(const struct loader *loader) {
    return loader->own ? loader->own->rows.ranks : NULL;
}

void loader_set_seed(struct loader *loader, int64_t seed, const struct rng *generator) {
    bool is_other = loader->sampler.seed != seed;
    loader->sampler.seed = seed;
    loader->sampler.generator = generator;
    if (!is_other) return;
    buffer_free(loader->together);
    loader->together = NULL;
}

status loader_seek(struct loader *loader, int64_t epoch, size_t first) {
    if (first > loader->n_batches)
        return status_new(STATUS_BUG, "batch %zu of an epoch of %zu batches", first, loader->n_batches);
    pthread_mutex_lock(&loader->mutex);
    loader->is_paused = true;
    while (loader->is_reading) pthread_cond_wait(&loader->changed, &loader->mutex);
    pthread_mutex_unlock(&loader->mutex);

    loader->epoch = epoch; /* no lock needed: the thread is paused */
    TRY(draw_order(loader, epoch));

    pthread_mutex_lock(&loader->mutex);
    loader->filled = loader->taken = loader->in_use = loader->announced = first;
    status_free(loader->failure);
    loader->failure = OK;
    loader->is_paused = false;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    return OK;
}

/* Waits until batch [taken] was read; returns the failure when it cannot be read. */
static status wait_for_batch(struct loader *loader) {
    pthread_mutex_lock(&loader->mutex);
    loader->in_use = loader->taken; /* the caller no longer uses the previous batch */
    pthread_cond_broadcast(&loader->changed);
    while (loader->filled == loader->taken && !loader->failure) pthread_cond_wait(&loader->changed, &loader->mutex);
    status s = OK;
    if (loader->filled == loader->taken) {
        s = loader->failure;
        loader->failure = OK; /* so that the next call retries */
    }
    pthread_mutex_unlock(&loader->mutex);
    return s;
}

status loader_next(struct loader *loader, struct batch *out) {
    *out = (struct batch){0};
    if (loader->taken >= loader->own_batches) return OK;
    TRY(loader->has_thread ? wait_for_batch(loader) : read_batch(loader, loader->taken));
    const struct slot *slot = &loader->slots[loader->taken % loader->slot_count];
    struct span span = span_of(loader, loader->taken);
    *out = (struct batch){.rows = span.rows,
                          .inputs = (const float *)(const void *)slot->inputs,
                          .targets = slot->targets,
                          .positions = slot->positions,
                          .weights = slot->weights};
    loader->taken++;
    return OK;
}
