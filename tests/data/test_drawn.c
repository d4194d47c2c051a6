/* dataset.draw: which rows a pair or a triplet has, in each epoch and on any number of ranks. ctest-labels: unit */
#include "data/dataset/open_dataset.h"
#include "open.h"

/* Row i has the input i, and the class i / 10 of 4, but for the last row, the only one of class 4. */
#define ROWS 41
static int class_of(float row) { return (int)row / 10; }

struct opened {
    char *folder, *path;
    struct dataset *dataset;
};

static struct opened open_rows(const char *keys, bool wants_classes) {
    struct text csv = {0};
    struct opened o = {.folder = make_folder()};
    o.path = path_in(o.folder, "rows.csv");
    text_add(&csv, "x,y\n");
    for (int i = 0; i < ROWS; i++) text_printf(&csv, "%d,%d\n", i, i / 10);
    spill(o.path, csv.data, csv.length);
    text_free(&csv);
    ck_ok(open_yaml(&o.dataset, wants_classes, "{path: %s, %s}", o.path, keys));
    return o;
}

static void close_rows(struct opened *o) {
    dataset_close(o->dataset);
    free(o->path);
    remove_folder(o->folder);
}

static void read_epoch(const struct opened *o, enum dataset_part part, int64_t epoch, size_t count, float *x, void *y) {
    int64_t positions[ROWS];
    for (size_t i = 0; i < count; i++) positions[i] = (int64_t)i;
    ck_ok(dataset_read_epoch(o->dataset, part, epoch, positions, count, x, y));
}

TEST(pairs_of_each_epoch) {
    struct opened o = open_rows("draw: pairs", true);
    const struct dataset_info *info = dataset_info(o.dataset);
    ck_assert(info->train_rows == ROWS && info->classes == 2 && info->target_kind == TARGET_CLASS);
    ck_assert(info->input_count == 2 && info->input_size == 2 && info->inputs[1].first == 1);
    ck_assert_str_eq(info->inputs[0].name, "first");
    ck_assert_str_eq(info->inputs[1].name, "second");
    float x[2 * ROWS], again[2 * ROWS];
    int64_t y[ROWS], seen[5] = {0}, changed = 0;
    for (int64_t epoch = 0; epoch < 50; epoch++) {
        memcpy(again, x, sizeof x);
        read_epoch(&o, DATASET_TRAIN, epoch, ROWS, x, y);
        for (size_t i = 0; i < ROWS; i++) {
            ck_assert_int_eq(y[i], i % 2 == 0);
            ck_assert_int_eq(class_of(x[2 * i]) == class_of(x[2 * i + 1]), y[i]);
            ck_assert(x[2 * i] != x[2 * i + 1]);
            seen[class_of(x[2 * i])]++;
            seen[class_of(x[2 * i + 1])]++;
            changed += epoch && (x[2 * i] != again[2 * i] || x[2 * i + 1] != again[2 * i + 1]);
        }
        read_epoch(&o, DATASET_TRAIN, epoch, ROWS, again, y);
        ck_assert_mem_eq(again, x, sizeof x);
    }
    /* 41 pairs of 50 epochs: 21 of one of 4 classes, 20 of two of 5 classes */
    for (int c = 0; c < 4; c++) ck_assert(seen[c] > 800 && seen[c] < 1050);
    ck_assert(seen[4] > 320 && seen[4] < 480);
    ck_assert_int_gt(changed, 49 * ROWS * 9 / 10);
    close_rows(&o);
}

/* Stored: the same in every later version. */
TEST(draws_do_not_change) {
    struct opened o = open_rows("draw: {type: pairs, seed: 7}", true);
    float x[8];
    int64_t y[4];
    read_epoch(&o, DATASET_TRAIN, 3, 4, x, y);
    const float expected[] = {20, 24, 6, 40, 19, 10, 40, 29};
    ck_assert_mem_eq(x, expected, sizeof x);
    close_rows(&o);
}

/* The pairs of a batch are of its epoch, on each rank the part of the same pairs; evaluations have those of epoch 0. */
TEST(ranks_and_epochs) {
    struct opened o = open_rows("draw: pairs, split: {test: 0.5, seed: 1}", false);
    const struct dataset_info *info = dataset_info(o.dataset);
    ck_assert(info->train_rows == 20 && info->validation_rows == 21 && info->target_kind == TARGET_VALUES);
    struct sampler_config sampler = {.batch_size = 5, .global_batch_size = SCHEMA_NO_INT, .shuffle = true, .seed = 1};
    float x[42], y[21];
    read_epoch(&o, DATASET_TRAIN, 6, 20, x, y);
    for (int64_t i = 0; i < 20; i++) {
        int64_t rows[MAX_MEMBERS];
        ck_assert_uint_eq(dataset_members(o.dataset, DATASET_TRAIN, 6, i, rows), 2);
        ck_assert(x[2 * i] == (float)rows[0] && x[2 * i + 1] == (float)rows[1]);
    }
    for (int world = 1; world <= 2; world++)
        for (int rank = 0; rank < world; rank++) {
            struct loader *loader;
            struct batch batch;
            size_t count = 0;
            ck_ok(loader_create(o.dataset, &sampler, 5, rank, world, 0, &loader));
            ck_ok(loader_seek(loader, 6, 1));
            do {
                ck_ok(loader_next(loader, &batch));
                for (size_t i = 0; i < batch.rows; i++, count++) {
                    ck_assert_mem_eq(batch.inputs + 2 * i, x + 2 * batch.positions[i], 2 * sizeof *x);
                    ck_assert_float_eq(((const float *)batch.targets)[i], y[batch.positions[i]]);
                }
            } while (batch.rows);
            ck_assert_uint_eq(count, 20 / (size_t)world - 5);
            loader_destroy(loader);
        }
    struct loader *loader;
    struct batch batch;
    ck_ok(loader_create_evaluation(o.dataset, DATASET_VALIDATION, 21, 0, 1, EVALUATION_IN_ORDER, &loader));
    read_epoch(&o, DATASET_VALIDATION, 0, 21, x, y);
    for (int pass = 0; pass < 2; pass++) {
        ck_ok(loader_seek(loader, 0, 0));
        ck_ok(loader_next(loader, &batch));
        ck_assert_mem_eq(batch.inputs, x, sizeof x);
    }
    int64_t rows[MAX_MEMBERS];
    for (int64_t i = 0; i < 21; i++) {
        ck_assert_uint_eq(dataset_members(o.dataset, DATASET_VALIDATION, 0, i, rows), 2);
        ck_assert(x[2 * i] == (float)rows[0] && x[2 * i + 1] == (float)rows[1]);
        ck_assert_int_eq(dataset_row(o.dataset, DATASET_VALIDATION, i), rows[0]);
    }
    loader_destroy(loader);
    close_rows(&o);
}

/* The scale is that of rows, and is there for each value of a sample. */
TEST(scaled_rows) {
    struct opened o = open_rows("draw: pairs, scale: minmax", false);
    float x[2 * ROWS], y[ROWS];
    const double *mean, *scale;
    size_t features;
    read_epoch(&o, DATASET_TRAIN, 0, ROWS, x, y);
    for (size_t i = 0; i < ROWS; i++)
        ck_assert_int_eq(class_of(x[2 * i] * 40) == class_of(x[2 * i + 1] * 40), y[i] > 0);
    dataset_scaler(o.dataset, &mean, &scale, &features);
    ck_assert(features == 2 && mean[0] == 0 && mean[1] == 0 && scale[0] == 40 && scale[1] == 40);
    close_rows(&o);
}

static status try_open(const char *rows, const char *keys) {
    char *folder = make_folder(), *path = path_in(folder, "rows.csv");
    struct dataset *dataset;
    spill(path, rows, strlen(rows));
    status s = open_yaml(&dataset, true, "{path: %s, %s}", path, keys);
    dataset_close(dataset);
    free(path);
    remove_folder(folder);
    return s;
}

TEST(wrong) {
    ck_failure(
        try_open("x,y\n1,3\n2,3\n3,3\n", "draw: pairs"), STATUS_DATA,
        "rows.csv: dataset.draw: samples need two classes, one of them with two rows, but 3 training rows have 1 "
        "class");
    ck_failure(try_open("x,y\n1,1\n2,2\n3,3\n", "draw: pairs"), STATUS_DATA, "but 3 training rows have 3 classes");
    ck_failure(try_open("x,y\n1,1\n2,2\n3,1\n4,2\n", "draw: pairs, split: {test: 0.25, shuffle: false}"), STATUS_DATA,
               "but 1 validation row has 1 class");
    ck_failure(try_open("x,y\n1,1\n2,2\n3,1\n", "draw: triplets"), STATUS_USAGE,
               "triplets have no target; write `losses:");
    ck_failure(try_open("x,y,z\n1,1,1\n2,2,1\n3,1,1\n", "draw: pairs, targets: [y, z]"), STATUS_USAGE,
               "needs one class per row, but a row has 2 targets");
    ck_failure(try_open("x,y\n1,1\n2,2\n", "draw: pairs, window: 2"), STATUS_USAGE,
               "window and draw exclude each other");
    ck_failure(try_open("x,y\n1,1\n2,2\n", "draw: pairs, inputs: {a: [x]}"), STATUS_USAGE,
               "inputs and draw exclude each other, because draw names the inputs; give a list of columns");
}

CHECK_MAIN("drawn")
