/* Rows in memory stay as they were read, and are read in every epoch: a bit that flips there has an effect on all later
 * steps. A hash for each block of rows finds it, and where it is. */
#include <math.h>

#include "base/clock.h"
#include "base/files/digest.h"
#include "data/dataset/open_dataset.h"

#define BLOCK_BYTES 65536 /* of rows, about: as many as a message names */

/* Of all arrays with the rows of [t]; 0: its rows are not in memory. */
static size_t row_bytes(const struct table *t) {
    size_t inputs = (t->inputs ? sizeof *t->inputs : 0) + (t->bytes ? 1 : 0);
    size_t target = t->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float);
    if (!t->targets) return 0;
    return t->input_size * inputs + t->target_size * (target + (t->file_targets ? sizeof *t->file_targets : 0)) +
           (t->weights ? sizeof *t->weights : 0);
}

static size_t rows_of_block(const struct table *t) {
    size_t bytes = row_bytes(t);
    return bytes < BLOCK_BYTES ? BLOCK_BYTES / bytes : 1;
}

static size_t count_blocks(const struct table *t) {
    return row_bytes(t) ? (t->rows + rows_of_block(t) - 1) / rows_of_block(t) : 0;
}

/* [size]: bytes of a row. */
static uint64_t add_rows(uint64_t hash, const void *rows, size_t size, size_t first, size_t count) {
    return rows ? hash_add(hash, (const char *)rows + first * size, count * size) : hash;
}

static uint64_t hash_block(const struct table *t, size_t first, size_t count) {
    size_t target = t->target_kind == TARGET_CLASS ? sizeof(int64_t) : sizeof(float);
    uint64_t hash = add_rows(0, t->inputs, t->input_size * sizeof *t->inputs, first, count);
    hash = add_rows(hash, t->bytes, t->input_size, first, count);
    hash = add_rows(hash, t->targets, t->target_size * target, first, count);
    hash = add_rows(hash, t->file_targets, t->target_size * sizeof *t->file_targets, first, count);
    return add_rows(hash, t->weights, sizeof *t->weights, first, count);
}

static size_t rows_from(const struct table *t, size_t first) {
    size_t left = t->rows - first, block = rows_of_block(t);
    return left < block ? left : block;
}

double dataset_hash_rows(struct dataset *dataset) {
    if (dataset->hash_seconds > 0) return dataset->hash_seconds;
    double start = clock_seconds();
    size_t all = 0;
    for (int i = 0; i < dataset->n_tables; i++) {
        const struct table *t = &dataset->tables[i];
        size_t blocks = count_blocks(t);
        dataset->row_hashes[i] = arena_alloc(dataset->arena, (blocks + 1) * sizeof *dataset->row_hashes[i]);
        for (size_t b = 0, first = 0; b < blocks; first += rows_from(t, first), b++)
            dataset->row_hashes[i][b] = hash_block(t, first, rows_from(t, first));
        all += blocks;
    }
    if (all) dataset->hash_seconds = fmax(clock_seconds() - start, 1e-9);
    return dataset->hash_seconds;
}

bool dataset_find_changed(const struct dataset *dataset, struct changed_rows *out) {
    for (int i = 0; i < dataset->n_tables && dataset->hash_seconds > 0; i++) {
        const struct table *t = &dataset->tables[i];
        for (size_t b = 0, first = 0; b < count_blocks(t); first += rows_from(t, first), b++) {
            if (hash_block(t, first, rows_from(t, first)) == dataset->row_hashes[i][b]) continue;
            size_t last = first + rows_from(t, first) - 1;
            *out = (struct changed_rows){.first = row_of_file(dataset->left_out[i], first),
                                         .last = row_of_file(dataset->left_out[i], last),
                                         .is_validation_file = i > 0};
            return true;
        }
    }
    return false;
}
