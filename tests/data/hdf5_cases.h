/* Cases of HDF5 files: a folder, small values, and what a file is read as or rejected with. For tests only. */
#pragma once

#include "hdf5_files.h"
#include "hdf5_in_process.h"
#include "open.h"

static char *folder, *path;

static inline void setup(void) {
    folder = make_folder();
    path = path_in(folder, "t.h5");
}

static inline void teardown(void) {
    remove_folder(folder);
    free(path);
}

FIXTURE(setup, teardown)

static const double six[] = {1, 2, 3, 4, 5, 6};
static const int64_t classes[] = {0, 2, 1};

/* x (3, 2), y (3) */
static inline void write_plain(void) {
    hid_t file = create_file(path);
    write_doubles(file, "x", 2, (hsize_t[]){3, 2}, six);
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    H5Fclose(file);
}

/* Opens with further keys and compares all training rows. */
static inline void check_rows(const char *keys, bool wants_classes, size_t n, const float *inputs, size_t rows) {
    for (int cache = 0; cache < 2; cache++) {
        struct dataset *dataset;
        ck_ok(open_yaml(&dataset, wants_classes, "{path: %s, cache_mb: %d, %s}", path, cache, keys));
        ck_assert_uint_eq(dataset_info(dataset)->train_rows, rows);
        ck_assert_uint_eq(dataset_info(dataset)->input_size * rows, n);
        float *x;
        void *y;
        read_part(dataset, DATASET_TRAIN, &x, &y);
        for (size_t i = 0; i < n; i++) ck_assert_msg(x[i] == inputs[i], "%s: input %zu is %g", keys, i, (double)x[i]);
        if (wants_classes) ck_assert_mem_eq(y, classes, sizeof classes);
        free(x), free(y);
        dataset_close(dataset);
    }
}

static inline void check_rejection(bool wants_classes, const char *keys, const char *sentence) {
    struct dataset *dataset;
    for (int cache = 0; cache < 2; cache++)
        ck_failure(open_yaml(&dataset, wants_classes, "{path: %s, cache_mb: %d, %s}", path, cache, keys), STATUS_DATA,
                   sentence);
}
