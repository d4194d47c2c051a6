/* Split and scalers against scikit-learn's own numbers. ctest-labels: unit */
#include "base/files/digest.h"
#include "data/sampling/split.h"
#include "open.h"

static void equal_rows(const json_t *expected, const int64_t *rows, size_t count) {
    ck_assert_uint_eq(json_array_size(expected), count);
    for (size_t i = 0; i < count; i++) ck_assert_int_eq(rows[i], json_integer_value(json_array_get(expected, i)));
}

TEST(equals_train_test_split) {
    json_t *root = vectors_load("split"), *c = json_object_get(root, "n178_test0.2_seed42");
    int64_t order[1797];
    size_t n_train, n_validation, train, validation;
    split_sizes(&(struct split_config){.test = 0.2}, 178, &n_train, &n_validation);
    split_rows(&(struct split_config){.test = 0.2, .seed = 42, .shuffle = true}, 178, order, &train, &validation);
    ck_assert_uint_eq(validation, 0);
    ck_assert_uint_eq(train, n_validation);
    equal_rows(json_object_get(c, "test"), order, n_validation);
    equal_rows(json_object_get(c, "train"), order + n_validation, n_train);

    c = json_object_get(root, "n1797_test0.25_seed0");
    split_sizes(&(struct split_config){.test = 0.25}, 1797, &n_train, &n_validation);
    ck_assert_uint_eq(n_train, (size_t)json_integer_value(json_object_get(c, "n_train")));
    ck_assert_uint_eq(n_validation, (size_t)json_integer_value(json_object_get(c, "n_test")));
    split_rows(&(struct split_config){.test = 0.25, .seed = 0, .shuffle = true}, 1797, order, &train, &validation);
    equal_rows(json_object_get(c, "test_first"), order, 20);
    equal_rows(json_object_get(c, "train_first"), order + n_validation, 20);
    json_decref(root);
}

TEST(equals_stratified_train_test_split) {
    json_t *root = vectors_load("stratified"), *c;
    size_t i;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        int64_t classes[256], order[256];
        const json_t *given = json_object_get(c, "classes");
        size_t rows = json_array_size(given), n_train, n_validation;
        struct split_config config = {.test = json_real_value(json_object_get(c, "part")),
                                      .seed = json_integer_value(json_object_get(c, "seed")),
                                      .shuffle = true,
                                      .stratify = true};
        for (size_t r = 0; r < rows; r++) classes[r] = 3 * json_integer_value(json_array_get(given, r)); /* gaps */
        split_sizes(&config, rows, &n_train, &n_validation);
        ck_ok(split_rows_stratified(&config, classes, rows, order));
        equal_rows(json_object_get(c, "test"), order, n_validation);
        equal_rows(json_object_get(c, "train"), order + n_validation, n_train);
    }
    ck_assert_uint_eq(i, 8);
    json_decref(root);
}

static bool is_set(const json_t *keys, const char *key) { return json_is_true(json_object_get(keys, key)); }

/* The groups as split_rows_grouped takes them: some numbers may be absent in the file of vectors. */
static size_t rank_groups(const json_t *from, int64_t *groups, size_t rows) {
    size_t count = 0;
    for (int64_t value = 0; value < 32; value++) {
        bool occurs = false;
        for (size_t i = 0; i < rows; i++)
            if (json_integer_value(json_array_get(from, i)) == value) {
                groups[i] = (int64_t)count;
                occurs = true;
            }
        count += occurs;
    }
    return count;
}

/* Test rows and then validation rows, by the functions of scikit-learn one after the other. */
TEST(equals_two_splits) {
    json_t *root = vectors_load("three_parts"), *c;
    size_t i;
    int64_t classes[128], groups[128], order[128];
    size_t rows = json_array_size(json_object_get(root, "classes"));
    for (size_t r = 0; r < rows; r++)
        classes[r] = json_integer_value(json_array_get(json_object_get(root, "classes"), r));
    size_t group_count = rank_groups(json_object_get(root, "groups"), groups, rows);
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        const json_t *keys = json_object_get(c, "keys");
        struct split_config config = {.test = json_real_value(json_object_get(keys, "test")),
                                      .validation = json_real_value(json_object_get(keys, "validation")),
                                      .folds = json_integer_value(json_object_get(keys, "folds")),
                                      .fold = json_integer_value(json_object_get(keys, "fold")),
                                      .seed = json_integer_value(json_object_get(keys, "seed")),
                                      .shuffle = !json_is_false(json_object_get(keys, "shuffle")),
                                      .stratify = is_set(keys, "stratify"),
                                      .time_series = is_set(keys, "time_series"),
                                      .group = json_string_value(json_object_get(keys, "group"))};
        struct split_labels labels = {classes, groups, config.group ? group_count : 0};
        struct split_counts counts;
        ck_assert(split_has_test(&config));
        ck_ok(split_rows_three(&config, &labels, rows, order, &counts));
        equal_rows(json_object_get(c, "test"), order, counts.test);
        equal_rows(json_object_get(c, "validation"), order + counts.test, counts.validation);
        equal_rows(json_object_get(c, "train"), order + counts.test + counts.validation, counts.train);
        if (config.folds) continue;
        struct split_counts sizes;
        split_sizes_three(&config, rows, &sizes);
        if (!config.group) ck_assert(sizes.test == counts.test && sizes.validation == counts.validation);
    }
    ck_assert_uint_eq(i, 16);
    json_decref(root);
}

/* Each row is a validation row in the same fold as in scikit-learn, and a training row in the others. */
TEST(equals_folds) {
    json_t *root = vectors_load("folds"), *c;
    size_t i, cases = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        int64_t classes[256], order[256];
        const json_t *given = json_object_get(c, "classes"), *folds = json_object_get(c, "folds");
        size_t rows = json_array_size(given), n_validation;
        struct split_config config = {.folds = (int64_t)json_array_size(folds),
                                      .seed = json_integer_value(json_object_get(c, "seed")),
                                      .shuffle = json_is_true(json_object_get(c, "shuffle"))};
        bool is_stratified = json_is_true(json_object_get(c, "stratify"));
        for (size_t r = 0; r < rows; r++) classes[r] = 1 + 3 * json_integer_value(json_array_get(given, r)); /* gaps */
        for (config.fold = 0; config.fold < config.folds; config.fold++, cases++) {
            const json_t *expected = json_array_get(folds, (size_t)config.fold);
            ck_ok(split_rows_folds(&config, is_stratified ? classes : NULL, rows, order, &n_validation));
            equal_rows(expected, order, n_validation);
            bool is_seen[256] = {0};
            for (size_t r = 0; r < rows; r++) {
                ck_assert(!is_seen[order[r]]);
                is_seen[order[r]] = true;
                ck_assert(r == 0 || r == n_validation || order[r - 1] < order[r]);
            }
        }
    }
    ck_assert_uint_eq(cases, 41);
    json_decref(root);
}

/* In a time that does not grow with rows times classes. */
TEST(folds_of_many_classes) {
    enum { CLASSES = 200000, ROWS = 2 * CLASSES };
    SCOPED_MEMORY int64_t *classes = malloc(ROWS * sizeof *classes), *order = malloc(ROWS * sizeof *order);
    struct split_config config = {.folds = 2, .fold = 1, .stratify = true};
    size_t n_validation;
    ck_assert(classes && order);
    for (int64_t i = 0; i < ROWS; i++) classes[i] = CLASSES - i % CLASSES;
    ck_ok(split_rows_folds(&config, classes, ROWS, order, &n_validation));
    ck_assert_uint_eq(n_validation, CLASSES); /* the second row of each class */
    for (int64_t i = 0; i < CLASSES; i++) ck_assert_int_eq(order[i], CLASSES + i);
}

TEST(equals_group_splits) {
    json_t *root = vectors_load("groups"), *c;
    size_t i, k, splits = 0;
    json_array_foreach(json_object_get(root, "cases"), i, c) {
        int64_t groups[256], order[256];
        const json_t *given = json_object_get(c, "groups"), *parts = json_object_get(c, "parts"), *part;
        size_t rows = json_array_size(given), count = 0, n_validation, chosen;
        struct split_config config = {.test = json_number_value(json_object_get(c, "test")),
                                      .seed = json_integer_value(json_object_get(c, "seed"))};
        config.shuffle = config.test > 0;
        config.folds = config.test > 0 ? 0 : (int64_t)json_array_size(parts);
        for (size_t r = 0; r < rows; r++) {
            groups[r] = json_integer_value(json_array_get(given, r));
            if (groups[r] >= (int64_t)count) count = (size_t)groups[r] + 1;
        }
        json_array_foreach(parts, k, part) {
            config.fold = (int64_t)k;
            ck_ok(split_rows_grouped(&config, groups, rows, count, order, &n_validation, &chosen));
            equal_rows(part, order, n_validation);
            for (size_t r = 1; r < rows; r++) ck_assert(r == n_validation || order[r - 1] < order[r]);
            ck_assert(chosen > 0 && chosen < count);
            splits++;
        }
    }
    ck_assert_uint_eq(splits, 29);
    json_decref(root);
}

static void count_classes(struct dataset *dataset, enum dataset_part part, const size_t expected[3]) {
    const struct dataset_info *info = dataset_info(dataset);
    SCOPED_MEMORY float *inputs;
    SCOPED_MEMORY void *targets;
    size_t counts[3] = {0}, rows = part == DATASET_TRAIN ? info->train_rows : info->validation_rows;
    read_part(dataset, part, &inputs, &targets);
    for (size_t i = 0; i < rows; i++) counts[((int64_t *)targets)[i]]++;
    for (size_t c = 0; c < 3; c++) ck_assert_uint_eq(counts[c], expected[c]);
}

TEST(folds_of_a_dataset) {
    struct dataset *dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s/datasets/wine.h5, split: {folds: 4, fold: 1, stratify: true}}",
                    SOURCE_DIR));
    static const size_t validation[3] = {15, 18, 12}, train[3] = {44, 53, 36}; /* of 59, 71, 48 */
    count_classes(dataset, DATASET_VALIDATION, validation);
    count_classes(dataset, DATASET_TRAIN, train);
    dataset_close(dataset);

    char *folder = make_folder(), *path = path_in(folder, "t.csv");
    static const char rows[] = "a,y\n1,0\n2,1\n3,0\n4,2\n5,1\n";
    spill(path, rows, strlen(rows));
    float *inputs;
    void *targets;
    ck_ok(open_yaml(&dataset, true, "{path: %s, split: {folds: 2, fold: 1, stratify: true}}", path));
    dataset_close(dataset); /* two classes have a row for each fold */
    ck_ok(open_yaml(&dataset, true, "{path: %s, split: {folds: 2, fold: 1, shuffle: false}}", path));
    read_part(dataset, DATASET_VALIDATION, &inputs, &targets);
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 2);
    ck_assert(inputs[0] == 4 && inputs[1] == 5);
    free(inputs), free(targets);
    dataset_close(dataset);
    ck_failure(open_yaml(&dataset, true, "{path: %s, split: {folds: 6, fold: 0}}", path), STATUS_DATA,
               "t.csv: dataset.split.folds: 5 rows cannot be divided into 6 folds");
    ck_failure(open_yaml(&dataset, true, "{path: %s, split: {folds: 3, fold: 0, stratify: true}}", path), STATUS_DATA,
               "dataset.split.stratify: all classes have fewer rows than there are folds (3)");
    ck_failure(open_yaml(&dataset, false, "{path: %s, split: {folds: 2, fold: 0, stratify: true}}", path), STATUS_USAGE,
               "dataset.split.stratify: it needs classes as targets, but this loss");
    remove_folder(folder);
    free(path);
}

/* TimeSeriesSplit(3).split(range(11)): size 2, folds that begin at 5, 7 and 9. */
TEST(folds_of_a_time_series) {
    int64_t order[11];
    size_t n_validation, n_train;
    struct split_config config = {.folds = 3, .time_series = true, .shuffle = true};
    for (config.fold = 0; config.fold < 3; config.fold++) {
        ck_ok(split_rows_time_series(&config, 11, order, &n_validation, &n_train));
        size_t first = 5 + 2 * (size_t)config.fold;
        ck_assert_uint_eq(n_validation, 2);
        ck_assert_uint_eq(n_train, first);
        ck_assert(order[0] == (int64_t)first && order[1] == (int64_t)first + 1);
        for (size_t i = 0; i < first; i++) ck_assert_int_eq(order[2 + i], (int64_t)i);
    }
    ck_failure(split_rows_time_series(&config, 3, order, &n_validation, &n_train), STATUS_DATA,
               "3 rows cannot be divided into 3 folds, each after training rows");
}

TEST(stratified_rows_of_a_dataset) {
    struct dataset *dataset;
    static const size_t train[3] = {47, 57, 38}, validation[3] = {12, 14, 10}; /* of 59, 71, 48 */
    ck_ok(open_yaml(&dataset, true, "{path: %s/datasets/wine.h5, split: {test: 0.2, seed: 1, stratify: true}}",
                    SOURCE_DIR));
    count_classes(dataset, DATASET_TRAIN, train);
    count_classes(dataset, DATASET_VALIDATION, validation);
    dataset_close(dataset);

    char *folder = make_folder(), *path = path_in(folder, "t.csv");
    static const char rows[] = "a,y\n1,0\n2,1\n3,0\n4,2\n5,1\n";
    spill(path, rows, strlen(rows));
    ck_failure(open_yaml(&dataset, true, "{path: %s, split: {test: 0.4, stratify: true}}", path), STATUS_DATA,
               "dataset.split.stratify: class 2 has only one row; each class needs at least two");
    ck_failure(open_yaml(&dataset, false, "{path: %s, split: {test: 0.4, stratify: true}}", path), STATUS_USAGE,
               "dataset.split.stratify: it needs classes as targets, but this loss");
    static const char few[] = "a,y\n1,0\n2,1\n3,0\n4,1\n";
    spill(path, few, strlen(few));
    ck_failure(open_yaml(&dataset, true, "{path: %s, split: {test: 0.2, stratify: true}}", path), STATUS_DATA,
               "3 training and 1 validation rows are too few for rows of each of 2 classes");
    remove_folder(folder);
    free(path);
}

TEST(without_shuffle_the_last_rows_validate) {
    size_t n_train, n_validation, train, validation;
    const struct split_config by_test = {.test = 0.25}, by_train = {.train = 0.75};
    split_sizes(&by_test, 10, &n_train, &n_validation);
    ck_assert_uint_eq(n_train, 7);
    ck_assert_uint_eq(n_validation, 3);
    split_rows(&by_test, 10, NULL, &train, &validation);
    ck_assert_uint_eq(train, 0);
    ck_assert_uint_eq(validation, 7);
    split_sizes(&by_train, 11, &n_train, &n_validation);
    ck_assert_uint_eq(n_train, 8);
    ck_assert_uint_eq(n_validation, 3);
    split_rows(&by_train, 11, NULL, &train, &validation);
    ck_assert_uint_eq(train, 0);
    ck_assert_uint_eq(validation, 8);
}

/* a, b = random_split(range(10), [int(0.75 * 10), 3], torch.Generator().manual_seed(7)); a.indices, b.indices */
TEST(equals_random_split) {
    int64_t order[10];
    size_t n_train, n_validation, train, validation;
    const struct split_config config = {.train = 0.75, .seed = 7, .shuffle = true};
    split_sizes(&config, 10, &n_train, &n_validation);
    ck_assert_uint_eq(n_train, 7);
    split_rows(&config, 10, order, &train, &validation);
    ck_assert_uint_eq(train, 0);
    ck_assert_uint_eq(validation, 7);
    static const int64_t expected[] = {5, 0, 3, 4, 1, 7, 9, 6, 8, 2};
    ck_assert_mem_eq(order, expected, sizeof expected);
}

/* The float32 values equal scikit-learn's, for rows in memory, rows read on demand and rows from CSV. */
static void check_wine(const char *path, const char *names, int cache_mb, char fingerprint[65]) {
    json_t *wine = vectors_load("loss_wine"), *split = vectors_load("split"), *data = json_object_get(wine, "data");
    struct dataset *dataset;
    ck_ok(open_yaml(&dataset, true,
                    "{path: %s/datasets/%s, %s scale: standard, split: {test: 0.2, seed: 42}, cache_mb: %d}",
                    SOURCE_DIR, path, names, cache_mb));
    const struct dataset_info *info = dataset_info(dataset);
    ck_assert_uint_eq(info->train_rows, 142);
    ck_assert_uint_eq(info->validation_rows, 36);
    ck_assert_int_eq(info->input_dims, 1);
    ck_assert_int_eq(info->input_shape[0], 13);
    ck_assert_int_eq(info->classes, 3);
    strcpy(fingerprint, info->fingerprint);

    float *inputs;
    void *targets;
    uint8_t hash[DIGEST_SIZE];
    char hex[DIGEST_HEX_SIZE];
    read_part(dataset, DATASET_TRAIN, &inputs, &targets);
    vectors_equal(json_object_get(data, "X_first_row"), inputs, "X_first_row");
    digest_of(inputs, 142 * 13 * sizeof *inputs, hash);
    digest_hex(hash, hex);
    ck_assert_str_eq(hex, json_string_value(json_object_get(data, "X_train_h32_sha256")));
    equal_rows(json_object_get(data, "y_train"), targets, 142);
    free(inputs), free(targets);
    read_part(dataset, DATASET_VALIDATION, &inputs, &targets);
    vectors_equal(json_object_get(data, "X_test_first_row"), inputs, "X_test_first_row");
    free(inputs), free(targets);

    const double *mean, *scale;
    size_t features;
    dataset_scaler(dataset, &mean, &scale, &features);
    ck_assert_uint_eq(features, 13);
    json_t *scaler = json_object_get(split, "scaler_wine_train");
    for (size_t f = 0; f < 13; f++) {
        double m = json_real_value(json_array_get(json_object_get(scaler, "mean"), f));
        double s = json_real_value(json_array_get(json_object_get(scaler, "scale"), f));
        ck_assert_double_le(fabs(m - mean[f]), cache_mb ? 0 : 1e-14 * fabs(m));
        ck_assert_double_le(fabs(s - scale[f]), cache_mb ? 0 : 1e-14 * s);
    }
    dataset_close(dataset);
    json_decref(wine);
    json_decref(split);
}

TEST(scaled_wine_equals_scikit_learn) {
    char memory[65], streamed[65], csv[65];
    check_wine("wine.h5", "inputs: x, targets: y,", 1024, memory);
    check_wine("wine.h5", "", 0, streamed);
    check_wine("wine.csv", "", 1024, csv);
    ck_assert_uint_eq(strlen(memory), 64);
    ck_assert_str_eq(memory, streamed);
    ck_assert_str_eq(memory, csv); /* of the rows, not of the file */
}

static const char table[] = "a,b,c,y\n1,5,-2,0\n2,5,0,1\n4,5,6,2\n";

TEST(minmax_and_constant_features) {
    char *folder = make_folder(), *path = path_in(folder, "t.csv");
    spill(path, table, strlen(table));
    struct dataset *dataset;
    float *inputs;
    void *targets;
    ck_ok(open_yaml(&dataset, false, "{path: %s, scale: minmax}", path));
    read_part(dataset, DATASET_TRAIN, &inputs, &targets);
    const float minmax[] = {0, 0, 0, (float)(1.0 / 3), 0, 0.25f, 1, 0, 1};
    for (int i = 0; i < 9; i++) ck_assert(inputs[i] == minmax[i]);
    for (int i = 0; i < 3; i++) ck_assert(((float *)targets)[i] == (float)i);
    free(inputs), free(targets);
    dataset_close(dataset);

    ck_ok(open_yaml(&dataset, false, "{path: %s, scale: standard}", path));
    read_part(dataset, DATASET_TRAIN, &inputs, &targets);
    for (int i = 0; i < 3; i++) ck_assert(inputs[3 * i + 1] == 0); /* (5 - 5) / 1 */
    double mean = 7.0 / 3, sd = sqrt((16.0 + 1 + 25) / 27);
    ck_assert(inputs[0] == (float)((1 - mean) / sd));
    free(inputs), free(targets);
    dataset_close(dataset);
    remove_folder(folder);
    free(path);
}

TEST(given_numbers) {
    char *folder = make_folder(), *path = path_in(folder, "t.csv");
    spill(path, table, strlen(table));
    struct dataset *dataset;
    float *inputs;
    void *targets;
    ck_ok(open_yaml(&dataset, false, "{path: %s, scale: {mean: [1, 2, 3], std: 2}}", path));
    read_part(dataset, DATASET_TRAIN, &inputs, &targets);
    const float expected[] = {0, 1.5f, -2.5f, 0.5f, 1.5f, -1.5f, 1.5f, 1.5f, 1.5f};
    for (int i = 0; i < 9; i++) ck_assert(inputs[i] == expected[i]);
    free(inputs), free(targets);
    dataset_close(dataset);
    ck_failure(open_yaml(&dataset, false, "{path: %s, scale: {mean: [1, 2], std: 2}}", path), STATUS_USAGE,
               "dataset.scale.mean has 2 numbers; rows with 3 features need 1 or 3");
    ck_failure(open_yaml(&dataset, false, "{path: %s, scale: {mean: 0, std: 1.0e-300}}", path), STATUS_DATA,
               "t.csv:line 2: column 'a': 1 is too large for float32 after scaling");
    remove_folder(folder);
    free(path);
}

TEST(wrong_configs) {
    static const char *const cases[][2] = {
        {"{}", "dataset.path: is missing: give the file of the rows, or format: synthetic"},
        {"path: a.xyz", "c.yaml:1:7: dataset.path: 'a.xyz': unknown file extension; set dataset.format to one "
                        "of: hdf5, netcdf, parquet, csv, sqlite, idx, npy, npz, images, text, tokens, synthetic"},
        {"path: a.csv\nformat: excel", "c.yaml:2:9: "},
        {"path: a.csv\nscale: {mean: 1}", "dataset.scale: mean and std must be given together"},
        {"path: a.csv\nscale: {type: minmax, mean: 1, std: 1}",
         "dataset.scale: type (fitted to the rows) and mean/std (given) exclude each other; give one"},
        {"path: a.csv\nscale: {mean: 1, std: 0}", "c.yaml:2:23: "},
        {"path: a.csv\nscale: strong", "c.yaml:2:8: "},
        {"path: a.csv\nsplit: {test: 1}", "c.yaml:2:15: "},
        {"path: a.csv\nsplit: {test: 0.5, train: 0.5}",
         "dataset.split: train (as torch) and test, validation or folds (as scikit-learn) exclude each other"},
        {"path: a.csv\nsplit: {train: 0.5, folds: 2, fold: 0}", "folds (as scikit-learn) exclude each other"},
        {"path: a.csv\nsplit: {test: 0.5, validation: 0.5, folds: 2, fold: 0}",
         "validation and folds exclude each other: each fold is for validation once; test may be combined with both"},
        {"path: a.csv\nsplit: {folds: 1, fold: 0}", "c.yaml:2:16: dataset.split: folds must be at least 2"},
        {"path: a.csv\nsplit: {test: 0.5, fold: 0}", "c.yaml:2:26: dataset.split: fold needs folds"},
        {"path: a.csv\nsplit: {folds: 3}",
         "dataset.split: fold is missing: give the index of the validation fold, 0 to 2"},
        {"path: a.csv\nsplit: {folds: 3, fold: 3}",
         "dataset.split: there is no fold 3; the 3 folds have the indices 0 to 2"},
        {"path: a.csv\nsplit: {train: 0.5, stratify: true}",
         "c.yaml:2:31: dataset.split: stratify needs test and shuffle, as in train_test_split"},
        {"path: a.csv\nsplit: {test: 0.5, shuffle: false, stratify: true}",
         "dataset.split: stratify needs test and shuffle"},
        {"path: a.csv\nvalidation: b.h5",
         "dataset.validation: 'a.csv' has format csv, but 'b.h5' has format hdf5; both "
         "must have the same"},
        {"path: a.csv\nsplit: 0.5\nvalidation: b.csv",
         "c.yaml:3:13: dataset.validation: split and validation exclude each other; give one"},
        {"path: a.csv\nvalidation: {path: b.xyz}", "dataset.validation: 'b.xyz': unknown file extension"},
        {"format: synthetic\npath: a.csv", "dataset.path: format synthetic generates its rows; remove the path"},
        {"format: synthetic\nvalidation: a.csv", "format synthetic has no validation file; use split"},
        {"format: synthetic\nsynthetic: {inputs: []}", "dataset.synthetic: inputs must be a shape of 1 to 8 numbers"},
        {"format: synthetic\nsynthetic: {rows: 0}", "c.yaml:2:19: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct dataset *dataset;
        ck_failure(open_yaml_as(cases[i][0], false, false, &dataset), STATUS_USAGE, cases[i][1]);
    }
}

/* The resolved config binds to the same config. */
TEST(resolved_config) {
    struct dataset_config config, again;
    SCOPED_DOCUMENT document, *second;
    ck_ok(bind_yaml(&dataset_schema, "{path: a.h5, scale: {mean: 0.13, std: 0.3}, split: 0.2, inputs: [x, z]}", &config,
                    &document));
    ck_assert_double_eq(config.split.test, 0.2);
    ck_assert_uint_eq(config.inputs.count, 2);
    SCOPED_TEXT yaml = {0}, difference = {0};
    schema_write_yaml(&dataset_schema, &config, &yaml);
    ck_ok(bind_yaml(&dataset_schema, text_string(&yaml), &again, &second));
    ck_assert_uint_eq(schema_diff(&dataset_schema, &config, &again, &difference), 0);
    again.cache_mb = 1;
    ck_assert_uint_eq(schema_diff(&dataset_schema, &config, &again, &difference), 0);
    again.split.seed = 1;
    ck_assert_uint_eq(schema_diff(&dataset_schema, &config, &again, &difference), 1);
}

CHECK_MAIN("split")
