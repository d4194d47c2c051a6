/* The permutation of an epoch is drawn for all ranks, in O(rows); from 2^32 rows on it is computed. Padding repeats the
 * first indices, as PyTorch does, so that all ranks draw the same number of rows. */
#include "data/sampling/sampler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/scoped.h"
#include "data/source/npy_header.h"

/* ---- rows of an epoch ---- */

static const char *const types[] = {"distributed", "dataloader", "weighted", "indices", "batchify", "extension", NULL};

static const struct schema_row sampler_rows[] = {
    SCHEMA_ROW(
        CHOICE, struct sampler_config, type, .fallback = "distributed", .choices = types,
        .doc = "`distributed`: DistributedSampler, on any number of ranks (2^32 rows and more have another order, "
               "which needs no memory); `dataloader`: the order of DataLoader(shuffle=True) after torch.manual_seed "
               "and building the model, on one rank (`seed` is not used); `weighted`: WeightedRandomSampler(1 / rows "
               "of the class, rows) with a generator of `seed` + epoch, its draws distributed over the ranks, so that "
               "each class is seen equally often (`shuffle` is not used); `indices`: the rows of the file `path`, a "
               "sampler of your own (`shuffle` and `seed` are not used); `batchify`: rows that follow each other, such "
               "as the windows of a text, are divided into as many parts as a global batch has rows, and batch i has "
               "row i of each part, for layers with `carry_state`; what does not fill a batch at the end is left out "
               "(`shuffle` is not used); `extension`: that of `order`."),
    SCHEMA_ROW(INT, struct sampler_config, batch_size, .fallback = "null", .min = 1, .max = 1e9,
               .doc = "Rows of a batch on each rank (DataLoader's batch_size); 32 when neither this nor "
                      "global_batch_size is given."),
    SCHEMA_ROW(INT, struct sampler_config, global_batch_size, .fallback = "null", .min = 1, .max = 1e9,
               .doc = "Rows of a batch over all ranks, instead of batch_size: the same training on any number of ranks "
                      "that divides it."),
    SCHEMA_ROW(BOOL, struct sampler_config, shuffle, .fallback = "true",
               .doc = "A new order each epoch, drawn from seed + epoch (DistributedSampler's shuffle with set_epoch)."),
    SCHEMA_ROW(BOOL, struct sampler_config, drop_last, .fallback = "false",
               .doc = "When the number of rows is not a multiple of the number of ranks: drop the tail instead of "
                      "repeating the first rows (DistributedSampler's drop_last)."),
    SCHEMA_ROW(BOOL, struct sampler_config, uneven, .fallback = "false",
               .doc = "When the number of rows is not a multiple of the number of ranks: use each row exactly once per "
                      "epoch instead of repeating the first rows. Gradients are weighted by rows; a rank without rows "
                      "has weight zero (torch's Join for uneven inputs, with exact weights)."),
    SCHEMA_ROW(
        BOOL, struct sampler_config, drop_last_batch, .fallback = "false",
        .doc =
            "Drop the last batch of an epoch when it is short (DataLoader's drop_last). Not together with `uneven`."),
    SCHEMA_ROW(INT, struct sampler_config, seed, .fallback = "0",
               .doc = "Seed of the order of rows, separate from the model's seed (DistributedSampler's seed)."),
    SCHEMA_ROW(STRING, struct sampler_config, path, .fallback = "null", .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE,
               .doc = "For `indices`: an .npy file of integers, the numbers of training rows (from 0, as x_train[i]) "
                      "in the order of their use. Shape (rows), or (epochs, rows), after whose last epoch the first "
                      "comes again. Rows may be repeated or left out. A resume compares the contents, not the path."),
    SCHEMA_ROW(BOOL, struct sampler_config, per_rank, .fallback = "false",
               .doc = "For `indices`: the file has an order for each rank, shape (ranks, rows) or (epochs, ranks, "
                      "rows). False: one order, whose rows are distributed over the ranks as by DistributedSampler."),
    SCHEMA_ROW(VARIANT, struct sampler_config, order, .fallback = "null", .variants = &sampler_variants,
               .present_offset = offsetof(struct sampler_config, has_order),
               .doc =
                   "A sampler of an extension (docs/extensions.md): `order: by_class` or `order: {type: curriculum, "
                   "...}`. Its order is distributed over the ranks as by DistributedSampler (`shuffle` is not used)."),
    {0},
};

static void check_indices(const struct sampler_config *sampler, const struct node *where, const char *path,
                          struct problems *problems) {
    struct place place = where ? where->place : (struct place){0};
    if (sampler->type == SAMPLER_INDICES && !sampler->path)
        problems_add(problems, place, path, "type indices needs path, an .npy file of the numbers of training rows");
    if (sampler->type != SAMPLER_INDICES && (sampler->path || sampler->per_rank))
        problems_add(problems, place, path, "%s is for type indices, not %s", sampler->path ? "path" : "per_rank",
                     types[sampler->type]);
}

static void check_order(struct sampler_config *sampler, const struct node *where, const char *path,
                        struct problems *problems) {
    struct place place = where ? where->place : (struct place){0};
    bool is_given = sampler->order.index >= 0;
    if (is_given && sampler->type == SAMPLER_DISTRIBUTED) sampler->type = SAMPLER_EXTENSION;
    if (!is_given && sampler->type == SAMPLER_EXTENSION)
        problems_add(problems, place, path, "type extension needs order, a sampler of an extension");
    if (is_given && sampler->type != SAMPLER_EXTENSION)
        problems_add(problems, place, path, "order is a sampler of its own, and type is %s; give one of the two",
                     types[sampler->type]);
}

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
        problems_add(
            problems, where ? where->place : (struct place){0}, path,
            "uneven (each row once) and drop_last_batch (a short last batch is dropped) exclude each other; give one");
    check_order(sampler, where, path, problems);
    check_indices(sampler, where, path, problems);
    if (sampler->type == SAMPLER_BATCHIFY && !has_global)
        problems_add(problems, where ? where->place : (struct place){0}, path,
                     "type batchify needs global_batch_size, the number of parts that the rows are divided into");
    if (!has_batch && !has_global) sampler->batch_size = 32;
}

const struct schema sampler_schema =
    SCHEMA("sampler", struct sampler_config, .rows = sampler_rows, .check = check_sampler);

size_t sampler_epoch_rows(const struct sampler_config *config, size_t rows) {
    if (config->type == SAMPLER_BATCHIFY) return rows - rows % (size_t)config->global_batch_size;
    return config->indices ? config->indices->length : rows;
}

size_t sampler_length(const struct sampler_config *config, size_t rows, int world_size) {
    assert(world_size >= 1);
    size_t world = (size_t)world_size;
    rows = sampler_epoch_rows(config, rows);
    /* drop_last: PyTorch's ceil((rows - world) / world) is rows / world when rows % world != 0 */
    return config->drop_last ? rows / world : rows / world + (rows % world != 0);
}

size_t sampler_shard(size_t rows, size_t shards, size_t shard) { return rows * shard / shards; }

size_t sampler_own_length(const struct sampler_config *config, size_t rows, int rank, int world_size) {
    if (!config->uneven || config->drop_last) return sampler_length(config, rows, world_size);
    rows = sampler_epoch_rows(config, rows);
    return rows / (size_t)world_size + ((size_t)rank < rows % (size_t)world_size);
}

status sampler_check_rows(const struct sampler_config *config, size_t rows, int world_size, size_t batch) {
    size_t length = sampler_length(config, rows, config->shards ? 1 : world_size);
    if (config->shards) batch = (size_t)config->global_batch_size;
    if (length >= batch || (length > 0 && !config->drop_last_batch)) return OK;
    return status_usage("%zu %s are less than one batch of %zu rows for each of %d ranks; use fewer ranks, a smaller "
                        "batch, or sampler.%s: false",
                        sampler_epoch_rows(config, rows), config->indices ? "rows of an epoch" : "training rows", batch,
                        world_size, length ? "drop_last_batch" : "drop_last");
}

size_t sampler_evaluation_batch(const struct sampler_config *config, int world_size) {
    size_t parts = config->shards ? config->shards : (size_t)world_size;
    if (config->global_batch_size == SCHEMA_NO_INT) return (size_t)config->batch_size;
    return ((size_t)config->global_batch_size + parts - 1) / parts;
}

status sampler_batch(const struct sampler_config *config, int world_size, size_t *batch) {
    if (config->type == SAMPLER_DATALOADER && world_size > 1)
        return status_usage("sampler.type dataloader needs a single rank, but there are %d; use type distributed",
                            world_size);
    *batch = sampler_evaluation_batch(config, world_size);
    if (config->global_batch_size != SCHEMA_NO_INT && !config->shards && config->global_batch_size % world_size != 0)
        return status_usage(
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
    SCOPED_BUFFER size_t *counts = NULL;
    double sum = 0;
    TRY(buffer_new((size_t)n_classes * sizeof *counts, "the weights of the classes", &counts));
    for (size_t i = 0; i < rows; i++)
        if (is_class(classes[i], n_classes)) counts[classes[i]]++;
    for (size_t i = 0; i < rows; i++) {
        if (is_class(classes[i], n_classes)) sum += 1 / (double)counts[classes[i]];
        cumulative[i] = sum;
    }
    if (!(sum > 0)) return status_data("sampler.type weighted: no training row has a class");
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

/* Batch i has row i of each of [parts] parts. */
static void draw_parts(size_t parts, size_t rows, struct row_order *drawn) {
    size_t batches = rows / parts;
    for (size_t i = 0; i < rows; i++) order_set(drawn, i, i < batches * parts ? i % parts * batches + i / parts : i);
}

/* Whether the rows of an epoch are drawn. */
static bool sampler_draws(const struct sampler_config *config) {
    return config->shuffle || config->type == SAMPLER_WEIGHTED || config->type == SAMPLER_INDICES ||
           config->type == SAMPLER_BATCHIFY || config->type == SAMPLER_EXTENSION;
}

status sampler_alloc(const struct sampler_config *config, size_t rows, struct row_order *out) {
    *out = (struct row_order){0};
    if (config->type == SAMPLER_INDICES || config->type == SAMPLER_EXTENSION)
        return order_alloc(config->indices->length, rows, "the order of the rows", out);
    bool is_stored = config->type == SAMPLER_WEIGHTED || config->type == SAMPLER_BATCHIFY;
    if (!sampler_draws(config) || (!is_stored && rows > ORDER_MAX_SMALL)) return OK;
    return order_alloc(rows, rows, "the order of the rows", out);
}

static void copy_epoch(const struct sampler_indices *indices, int64_t epoch, struct row_order *order) {
    size_t length = indices->length, first = (size_t)epoch % indices->epochs * length;
    for (size_t i = 0; i < length; i++) order_set(order, i, order_at(&indices->order, first + i));
}

void sampler_draw(const struct sampler_config *config, size_t rows, int64_t epoch, struct row_order *order) {
    struct rng rng;
    if (!sampler_draws(config)) return;
    if (config->type == SAMPLER_INDICES) {
        copy_epoch(config->indices, epoch, order);
        return;
    }
    rng_seed(&rng, config->type == SAMPLER_DATALOADER ? dataloader_seed(config->generator, epoch)
                                                      : (uint64_t)config->seed + (uint64_t)epoch);
    if (config->type == SAMPLER_BATCHIFY)
        draw_parts((size_t)config->global_batch_size, rows, order);
    else if (config->type == SAMPLER_WEIGHTED)
        draw_weighted(config->cumulative, &rng, rows, order);
    else if (order->small)
        rng_permutation32(&rng, order->small, rows);
    else {
        order->computed.rows = rows;
        order->computed.key = rng_u64(&rng);
    }
}

void sampler_draw_together(const struct sampler_config *config, size_t rows, int64_t epoch, uint32_t *orders) {
    struct rng rngs[RNG_TOGETHER];
    rng_seed_together(rngs, (uint64_t)config->seed + (uint64_t)epoch);
    for (size_t i = 0; i < RNG_TOGETHER; i++) rng_permutation32(&rngs[i], orders + i * rows, rows);
}

void sampler_evaluation_range(size_t rows, int rank, int world_size, size_t *first, size_t *count) {
    assert(rank >= 0 && rank < world_size);
    size_t world = (size_t)world_size, r = (size_t)rank, share = rows / world, extra = rows % world;
    *first = r * share + (r < extra ? r : extra);
    *count = share + (r < extra);
}

enum evaluation_order sampler_evaluation_order(const struct sampler_config *config, bool compares_rows) {
    if (compares_rows) return EVALUATION_INTERLEAVED;
    return config->type == SAMPLER_BATCHIFY ? EVALUATION_BATCHIFY : EVALUATION_IN_ORDER;
}

/* In parts: the first count % batch ones have a row more than the others, for the last batch. */
size_t sampler_evaluation_row(enum evaluation_order order, size_t first, size_t count, int rank, int world_size,
                              size_t batch, size_t index) {
    if (order == EVALUATION_INTERLEAVED) return (size_t)rank + index * (size_t)world_size;
    if (order == EVALUATION_IN_ORDER) return first + index;
    size_t part = index % batch, longer = count % batch;
    return first + part * (count / batch) + (part < longer ? part : longer) + index / batch;
}

/* ---- the file of SAMPLER_INDICES ---- */

#define PIECE 4096                   /* values that are read at a time */
#define MAX_LENGTH ((size_t)1 << 40) /* rows of an epoch of an extension */

struct index_file {
    const struct sampler_config *config;
    int fd;
    size_t train_rows;
    struct npy_header header;
    size_t epochs, ranks, rows; /* rows: of a rank; ranks: 1 for one order */
};

/* "order.npy: shape (2, 3, 4)" */
static void add_shape(const struct index_file *file, struct text *out) {
    text_printf(out, "%s: shape (", file->config->path);
    for (int i = 0; i < file->header.dims; i++) text_printf(out, "%s%zu", i ? ", " : "", file->header.shape[i]);
    text_add(out, ")");
}

/* Sets the sizes of the orders by the shape. */
static status find_sizes(struct index_file *file, int world_size) {
    const size_t *shape = file->header.shape;
    bool per_rank = file->config->per_rank;
    int dims = file->header.dims, expected = per_rank ? 2 : 1;
    SCOPED_TEXT text = {0};
    status s = OK;
    add_shape(file, &text);
    if (dims != expected && dims != expected + 1) {
        s = status_data("%s, but sampler.path needs %s", text_string(&text),
                        per_rank ? "(ranks, rows) or (epochs, ranks, rows), with per_rank"
                                 : "(rows) or (epochs, rows); an order for each rank needs per_rank: true");
    } else {
        file->epochs = dims > expected ? shape[0] : 1;
        file->ranks = per_rank ? shape[dims - 2] : 1;
        file->rows = shape[dims - 1];
        if (per_rank && file->ranks != (size_t)world_size && shape[0] > 0)
            s = status_usage(
                "%s has the orders of %zu rank%s, but there %s %d; write it for %d, or use per_rank: false",
                text_string(&text), file->ranks, text_plural(file->ranks, "s"), world_size == 1 ? "is" : "are",
                world_size, world_size);
        else if (shape[0] == 0)
            s = status_data("%s has no rows", text_string(&text));
    }
    return s;
}

static status reject_value(const struct index_file *file, size_t index, double value) {
    SCOPED_TEXT at = {0};
    npy_add_indices(file->header.dims, file->header.shape, index, &at);
    return status_data("%s: value [%s] is %.0f, but the %zu training row%s numbered 0 to %zu", file->config->path,
                       text_string(&at), value, file->train_rows, file->train_rows == 1 ? " is" : "s are",
                       file->train_rows - 1);
}

/* Of several orders, those of the ranks are interleaved, as a rank reads them. */
static status take_values(const struct index_file *file, size_t first, const double *values, size_t count,
                          struct row_order *order) {
    for (size_t i = 0; i < count; i++) {
        size_t index = first + i;
        if (file->header.is_fortran) index = npy_in_c_order(file->header.dims, file->header.shape, index);
        if (!(values[i] >= 0 && values[i] < (double)file->train_rows)) return reject_value(file, index, values[i]);
        size_t row = index % file->rows, rank = index / file->rows % file->ranks;
        size_t epoch = index / file->rows / file->ranks;
        order_set(order, (epoch * file->rows + row) * file->ranks + rank, (size_t)values[i]);
    }
    return OK;
}

static status read_values(const struct index_file *file, struct row_order *order) {
    const struct npy_header *header = &file->header;
    size_t width = header->type->bytes, count = header->rows * header->size;
    double values[PIECE];
    for (size_t first = 0; first < count; first += PIECE) {
        size_t n = count - first < PIECE ? count - first : PIECE;
        uint8_t *raw = (uint8_t *)values + n * (sizeof *values - width);
        TRY(io_read_at(file->fd, file->config->path, raw, n * width, header->bytes + first * width, NULL));
        npy_header_convert(header, raw, n, values);
        TRY(take_values(file, first, values, n, order));
    }
    return OK;
}

static status read_header(struct index_file *file, int world_size) {
    const char *path = file->config->path;
    uint8_t *bytes = malloc(NPY_MAX_HEADER);
    size_t got = 0;
    struct io_info info;
    if (!bytes) return status_memory("%s", path);
    status s = status_prefix(io_read_at(file->fd, path, bytes, NPY_MAX_HEADER, 0, &got), "sampler.path");
    if (!s && got >= 4 && memcmp(bytes, "PK\3\4", 4) == 0)
        s = status_data("%s: this is an archive of arrays; sampler.path needs one array of numpy.save", path);
    if (!s) s = npy_header_parse(path, bytes, got, &file->header);
    free(bytes);
    TRY(s);
    char kind = file->header.type->code[0];
    if (kind != 'i' && kind != 'u')
        return status_data("%s: its values are %s, but sampler.path needs integers, the numbers of training rows", path,
                           file->header.type->name);
    TRY(find_sizes(file, world_size));
    TRY(io_stat_fd(file->fd, path, &info));
    double expected = (double)file->header.bytes + npy_header_value_bytes(&file->header);
    if ((double)info.size == expected) return OK;
    return status_data("%s: it has %.0f bytes, but its header says %.0f; copy the file again", path, (double)info.size,
                       expected);
}

/* Counts the rows that are repeated and left out; [uses]: (train_rows) of an epoch, [is_used]: in any. */
static void count_uses(struct sampler_indices *indices, size_t train_rows, uint8_t *is_used, size_t *last_epoch) {
    indices->unused = train_rows;
    for (size_t e = 0; e < indices->epochs; e++) {
        size_t repeated = 0;
        for (size_t i = 0; i < indices->length; i++) {
            size_t row = order_at(&indices->order, e * indices->length + i);
            repeated += last_epoch[row] == e + 1;
            last_epoch[row] = e + 1;
            indices->unused -= !is_used[row];
            is_used[row] = 1;
        }
        size_t left_out = train_rows - (indices->length - repeated);
        if ((!repeated && !left_out) || indices->uneven_epochs++) continue;
        indices->first_uneven = e;
        indices->repeated = repeated;
        indices->left_out = left_out;
    }
}

static status describe_uses(struct sampler_indices *indices, size_t train_rows) {
    SCOPED_BUFFER uint8_t *is_used = NULL;
    SCOPED_BUFFER size_t *last_epoch = NULL;
    TRY(buffer_new(train_rows, "the rows of the sampler", &is_used));
    TRY(buffer_new(train_rows * sizeof *last_epoch, "the rows of the sampler", &last_epoch));
    count_uses(indices, train_rows, is_used, last_epoch);
    return OK;
}

static void hash_indices(struct sampler_indices *indices) {
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    uint64_t sizes[] = {indices->epochs, indices->length};
    digest_start(&digest);
    digest_add(&digest, sizes, sizeof sizes);
    for (size_t i = 0; i < indices->epochs * indices->length; i++) {
        uint64_t row = order_at(&indices->order, i);
        digest_add(&digest, &row, sizeof row);
    }
    digest_finish(&digest, hash);
    digest_hex(hash, indices->digest);
}

static status read_indices(struct index_file *file, int world_size, struct sampler_indices *out) {
    TRY(read_header(file, world_size));
    out->epochs = file->epochs;
    out->length = file->rows * file->ranks;
    TRY(order_alloc(out->epochs * out->length, file->train_rows, "the rows of sampler.path", &out->order));
    TRY(read_values(file, &out->order));
    TRY(describe_uses(out, file->train_rows));
    hash_indices(out);
    return OK;
}

static status ask_length(const struct sampler_config *config, size_t rows, struct sampler_indices **out) {
    const struct sampler_type *type = sampler_type_at((size_t)config->order.index);
    size_t length = type->length ? type->length(config->order.config, rows) : rows;
    if (length == 0 || length > MAX_LENGTH)
        return status_data("sampler.order %s: its length is %zu, but an epoch has 1 to 2^40 rows", type->variant.name,
                           length);
    if (type->each_row_once && length != rows)
        return status_new(
            STATUS_DATA,
            "sampler.order %s: its length is %zu, but it says that it has each of the %zu training rows once",
            type->variant.name, length, rows);
    if (!(*out = calloc(1, sizeof **out))) return status_memory("the length of the sampler");
    (*out)->length = length;
    return OK;
}

status sampler_open_indices(const struct sampler_config *config, size_t rows, int world_size,
                            struct sampler_indices **out) {
    struct index_file file = {.config = config, .train_rows = rows};
    *out = NULL;
    if (config->type == SAMPLER_EXTENSION) return ask_length(config, rows, out);
    if (config->type != SAMPLER_INDICES) return OK;
    TRY(status_prefix(io_open(config->path, &file.fd), "sampler.path"));
    struct sampler_indices *indices = calloc(1, sizeof *indices);
    status s = indices ? read_indices(&file, world_size, indices) : status_memory("the rows of sampler.path");
    s = status_first(s, io_close(file.fd, config->path));
    if (s) sampler_close_indices(indices);
    if (!s) *out = indices;
    return s;
}

void sampler_close_indices(struct sampler_indices *indices) {
    if (!indices) return;
    order_free(&indices->order);
    free(indices);
}

void sampler_describe_indices(const struct sampler_config *config, struct text *out) {
    const struct sampler_indices *in = config->indices;
    if (config->type == SAMPLER_EXTENSION) {
        text_printf(out, "%s: %zu row%s in an epoch", config->order.name, in->length, text_plural(in->length, "s"));
        return;
    }
    text_printf(out, "%s: %zu epoch%s of %zu row%s", config->path, in->epochs, text_plural(in->epochs, "s"), in->length,
                text_plural(in->length, "s"));
    if (in->uneven_epochs)
        text_printf(out, "; epoch %zu repeats %zu and leaves out %zu training row%s", in->first_uneven + 1,
                    in->repeated, in->left_out, text_plural(in->left_out, "s"));
    if (in->uneven_epochs > 1)
        text_printf(out, ", and %zu other epoch%s not each row once", in->uneven_epochs - 1,
                    in->uneven_epochs == 2 ? " has" : "s have");
    if (in->unused) text_printf(out, "; %zu row%s in no epoch", in->unused, in->unused == 1 ? " is" : "s are");
}

/* ---- samplers of extensions ---- */

static struct type_table own_types;

const struct sampler_type *sampler_type_at(size_t index) { return type_table_at(&own_types, index); }

bool sampler_type_add(const struct sampler_type *type) { return type_table_add(&own_types, type); }

static const struct schema_variant *variant_at(size_t index) {
    const struct sampler_type *type = sampler_type_at(index);
    return type ? &type->variant : NULL;
}

const struct schema_variants sampler_variants = {.what = "sampler", .at = variant_at};

void sampler_yield(struct sampler_epoch *epoch, size_t row) {
    size_t index = epoch->count++;
    if (epoch->bad_index != SIZE_MAX || index >= epoch->length) return;
    if (row < epoch->rows)
        order_set(epoch->order, index, row);
    else
        epoch->bad_index = index, epoch->bad_row = row;
}

static status check_once(const struct own_sampler *sampler, const struct sampler_epoch *epoch) {
    memset(sampler->is_used, 0, epoch->rows);
    for (size_t i = 0; i < epoch->length; i++) {
        size_t row = order_at(epoch->order, i), first = 0;
        if (!sampler->is_used[row]++) continue;
        while (order_at(epoch->order, first) != row) first++;
        return status_data("sampler.order %s: epoch %lld: index %zu is row %zu, as index %zu is, but it says that it "
                           "has each row once",
                           sampler->type->variant.name, (long long)epoch->number + 1, i, row, first);
    }
    return OK;
}

status sampler_draw_own(const struct own_sampler *sampler, size_t length, int64_t epoch, struct row_order *order) {
    const struct sampler_rows *rows = &sampler->rows;
    const char *name = sampler->type->variant.name;
    struct sampler_epoch drawn = {
        .number = epoch, .order = order, .rows = rows->rows, .length = length, .bad_index = SIZE_MAX};
    rng_seed(&drawn.rng, (uint64_t)rows->seed + (uint64_t)epoch);
    long long number = (long long)epoch + 1;
    TRY(status_prefix(sampler->type->draw(sampler->config, rows, sampler->state, &drawn),
                      "sampler.order %s: epoch %lld", name, number));
    if (drawn.bad_index != SIZE_MAX)
        return status_new(
            STATUS_DATA,
            "sampler.order %s: epoch %lld: index %zu is row %zu, but the %zu training row%s numbered 0 to %zu", name,
            number, drawn.bad_index, drawn.bad_row, rows->rows, rows->rows == 1 ? " is" : "s are", rows->rows - 1);
    if (drawn.count != length)
        return status_data("sampler.order %s: epoch %lld has %zu rows, but its length is %zu", name, number,
                           drawn.count, length);
    return sampler->type->each_row_once ? check_once(sampler, &drawn) : OK;
}

/* Epochs 1, 2 and 1 again, which must be as before. */
static status check_repeats(const struct own_sampler *sampler, size_t length, struct row_order *order) {
    SCOPED_BUFFER int64_t *before = NULL;
    TRY(sampler_draw_own(sampler, length, 0, order));
    TRY(rows_alloc(length, sizeof *before, "the order of an epoch", &before));
    for (size_t i = 0; i < length; i++) before[i] = (int64_t)order_at(order, i);
    status s = sampler_draw_own(sampler, length, 1, order);
    if (!s) s = sampler_draw_own(sampler, length, 0, order);
    for (size_t i = 0; i < length && !s; i++)
        if (before[i] != (int64_t)order_at(order, i))
            s = status_data("sampler.order %s: epoch 1: index %zu was row %lld in a first draw and is row %zu in a "
                            "second one; a draw must depend on the epoch alone, or a run cannot resume",
                            sampler->type->variant.name, i, (long long)before[i], order_at(order, i));
    return s;
}

status sampler_start(const struct sampler_config *config, const struct sampler_rows *rows, struct row_order *order,
                     struct own_sampler **out) {
    struct own_sampler *own = arena_alloc(rows->arena, sizeof *own);
    *own = (struct own_sampler){.type = sampler_type_at((size_t)config->order.index),
                                .config = config->order.config,
                                .rows = *rows,
                                .is_used = arena_alloc(rows->arena, rows->rows)};
    if (own->type->start)
        TRY(status_prefix(own->type->start(own->config, rows, &own->state), "sampler.order %s",
                          own->type->variant.name));
    *out = own;
    return check_repeats(own, config->indices->length, order);
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
