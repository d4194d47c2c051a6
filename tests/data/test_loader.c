/* The loader: the sampler's rows in the sampler's order, with and without a thread, from any batch. ctest-labels: unit
 */
#include "data/dataset/loader.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "hdf5_files.h"
#include "open.h"

#define ROWS 103
#define WIDTH 3

static char *folder, *path;

/* x[row] = {row, row + 0.5, -row}, y[row] = row % 7 */
static void setup(void) {
    folder = make_folder();
    path = path_in(folder, "rows.h5");
    double x[ROWS * WIDTH];
    int64_t y[ROWS];
    for (int i = 0; i < ROWS; i++) {
        x[WIDTH * i] = i, x[WIDTH * i + 1] = i + 0.5, x[WIDTH * i + 2] = -i;
        y[i] = i % 7;
    }
    hid_t file = create_file(path);
    write_doubles(file, "x", 2, (hsize_t[]){ROWS, WIDTH}, x);
    write_integers(file, "y", 1, (hsize_t[]){ROWS}, y);
    H5Fclose(file);
}

static void teardown(void) {
    remove_folder(folder);
    free(path);
}

FIXTURE(setup, teardown)

static struct dataset *open_rows(bool in_memory, const char *keys) {
    struct dataset *dataset;
    ck_ok(open_yaml(&dataset, true, "{path: %s, cache_mb: %d, %s}", path, in_memory ? 1 : 0, keys));
    ck_assert(dataset_is_in_memory(dataset) == in_memory);
    return dataset;
}

static struct sampler_config sampler_of(bool shuffle, bool drop_last, bool drop_last_batch) {
    return (struct sampler_config){.batch_size = 8,
                                   .global_batch_size = SCHEMA_NO_INT,
                                   .shuffle = shuffle,
                                   .drop_last = drop_last,
                                   .drop_last_batch = drop_last_batch,
                                   .seed = 11};
}

/* Checks that the batch has rows[0 .. count - 1] and is aligned. */
static void check_batch(const struct batch *batch, const int64_t *rows, size_t count) {
    ck_assert_uint_eq(batch->rows, count);
    ck_assert_uint_eq((uintptr_t)batch->inputs % 64, 0);
    ck_assert_uint_eq((uintptr_t)batch->targets % 64, 0);
    for (size_t i = 0; i < count; i++) {
        float row = (float)rows[i];
        const float *x = batch->inputs + i * WIDTH;
        ck_assert_msg(x[0] == row && x[1] == row + 0.5f && x[2] == -row, "row %g is %g %g %g", (double)row,
                      (double)x[0], (double)x[1], (double)x[2]);
        ck_assert_int_eq(((const int64_t *)batch->targets)[i], rows[i] % 7);
    }
}

/* Reads from batch [first] to the end of [epoch] and compares with the sampler. */
static void check_epoch(struct loader *loader, const struct sampler_config *sampler, int64_t epoch, size_t first,
                        size_t size, int rank, int world) {
    int64_t indices[ROWS];
    size_t length = sampler_length(sampler, ROWS, world), batches = 0;
    draw_indices(sampler, ROWS, epoch, rank, world, indices);
    if (sampler->drop_last_batch) length -= length % size;
    struct batch batch;
    for (size_t at = first * size; at < length; at += size, batches++) {
        ck_ok(loader_next(loader, &batch));
        check_batch(&batch, indices + at, length - at < size ? length - at : size);
    }
    ck_assert_uint_eq(loader_batches(loader), first + batches);
    for (int again = 0; again < 2; again++) {
        ck_ok(loader_next(loader, &batch));
        ck_assert_uint_eq(batch.rows, 0);
    }
}

TEST(follows_the_sampler) {
    for (int in_memory = 0; in_memory < 2; in_memory++) {
        struct dataset *dataset = open_rows(in_memory, "");
        if (in_memory) dataset_retain(dataset); /* then the orders of epochs are stored */
        for (int flags = 0; flags < 8; flags++)
            for (int world = 1; world <= 3; world++)
                for (int64_t prefetch = -1; prefetch <= 4; prefetch++) {
                    struct sampler_config sampler = sampler_of(flags & 1, flags & 2, flags & 4);
                    struct loader *loader;
                    int rank = world - 1;
                    sampler.seed += prefetch % 2;
                    ck_ok(loader_create(dataset, &sampler, 8, rank, world, prefetch, &loader));
                    for (int64_t epoch = 0; epoch < 2; epoch++) {
                        ck_ok(loader_seek(loader, epoch, 0));
                        check_epoch(loader, &sampler, epoch, 0, 8, rank, world);
                    }
                    loader_destroy(loader);
                }
        if (in_memory) dataset_close(dataset);
        dataset_close(dataset);
    }
}

/* A resume starts at any batch; loader_seek may be called at any time, also while the thread reads. */
TEST(seeks) {
    struct sampler_config sampler = sampler_of(true, false, false);
    for (int64_t prefetch = 0; prefetch <= 3; prefetch += 3) {
        SCOPED_DATASET dataset = open_rows(false, "");
        struct loader *loader;
        ck_ok(loader_create(dataset, &sampler, 8, 0, 1, prefetch, &loader));
        check_epoch(loader, &sampler, 0, 0, 8, 0, 1); /* without a seek: epoch 0 */
        for (size_t first = 0; first <= 13; first++) {
            ck_ok(loader_seek(loader, 5, first));
            check_epoch(loader, &sampler, 5, first, 8, 0, 1);
        }
        for (int64_t epoch = 0; epoch < 200; epoch++) {
            struct batch batch;
            ck_ok(loader_seek(loader, epoch, (size_t)epoch % 13));
            for (int64_t i = 0; i < epoch % 4; i++) ck_ok(loader_next(loader, &batch));
        }
        static const int64_t epochs[] = {5, 6, 9, 8, 10, 3, 1}; /* within and beyond those that are drawn together */
        for (size_t i = 0; i < sizeof epochs / sizeof *epochs; i++) {
            ck_ok(loader_seek(loader, epochs[i], 2));
            check_epoch(loader, &sampler, epochs[i], 2, 8, 0, 1);
        }
        ck_failure(loader_seek(loader, 1, 14), STATUS_BUG, "batch 14 of an epoch of 13 batches");
        loader_destroy(loader);
    }
}

/* Destroyed while the thread reads, at once or after some batches. */
TEST(ends_at_any_moment) {
    SCOPED_DATASET dataset = open_rows(false, "");
    struct sampler_config sampler = sampler_of(true, false, false);
    for (int i = 0; i < 100; i++) {
        struct loader *loader;
        struct batch batch;
        ck_ok(loader_create(dataset, &sampler, 4, 0, 2, 1 + i % 3, &loader));
        for (int k = 0; k < i % 5; k++) ck_ok(loader_next(loader, &batch));
        loader_destroy(loader);
    }
    loader_destroy(NULL);
}

/* Each validation row once over all ranks, in order, twice. */
TEST(evaluates_each_row_once) {
    for (int in_memory = 0; in_memory < 2; in_memory++)
        for (int world = 1; world <= 5; world++) {
            SCOPED_DATASET dataset = open_rows(in_memory, "split: {test: 0.3, shuffle: false}");
            size_t rows = dataset_info(dataset)->validation_rows, first = ROWS - rows, batches = 0;
            int64_t expected[ROWS];
            for (size_t i = 0; i < rows; i++) expected[i] = (int64_t)(first + i);
            size_t at = 0;
            for (int rank = 0; rank < world; rank++) {
                struct loader *loader;
                ck_ok(loader_create_evaluation(dataset, DATASET_VALIDATION, 4, rank, world, false, &loader));
                if (rank == 0) batches = loader_batches(loader);
                ck_assert_uint_eq(loader_batches(loader), batches);
                size_t before = at, read = 0;
                for (int pass = 0; pass < 2; pass++) {
                    struct batch batch;
                    ck_ok(loader_seek(loader, 0, 0));
                    for (at = before, read = 0;; at += batch.rows, read++) {
                        ck_ok(loader_next(loader, &batch));
                        if (batch.rows == 0) break;
                        check_batch(&batch, expected + at, batch.rows);
                    }
                    ck_assert_uint_le(read, batches);
                }
                loader_destroy(loader);
            }
            ck_assert_uint_eq(at, rows);
        }
}

/* A batch of all ranks together is a range of the rows, whatever their number. */
TEST(interleaves_an_evaluation) {
    SCOPED_DATASET dataset = open_rows(true, "split: {test: 0.3, shuffle: false}");
    size_t rows = dataset_info(dataset)->validation_rows, first = ROWS - rows;
    for (size_t world = 1; world <= 5; world++) {
        size_t all = 0;
        for (size_t rank = 0; rank < world; rank++) {
            struct loader *loader;
            struct batch batch;
            size_t row = rank;
            ck_ok(loader_create_evaluation(dataset, DATASET_VALIDATION, 4, (int)rank, (int)world, true, &loader));
            for (;;) {
                int64_t expected[4];
                ck_ok(loader_next(loader, &batch));
                if (batch.rows == 0) break;
                for (size_t i = 0; i < batch.rows; i++, row += world) expected[i] = (int64_t)(first + row);
                check_batch(&batch, expected, batch.rows);
                all += batch.rows;
            }
            loader_destroy(loader);
        }
        ck_assert_uint_eq(all, rows);
    }
}

/* More ranks than validation rows: some ranks have none. */
TEST(evaluation_without_rows) {
    SCOPED_DATASET dataset = open_rows(true, "split: {test: 0.01, shuffle: false}");
    ck_assert_uint_eq(dataset_info(dataset)->validation_rows, 2);
    struct loader *loader;
    struct batch batch;
    ck_ok(loader_create_evaluation(dataset, DATASET_VALIDATION, 4, 3, 4, false, &loader));
    ck_assert_uint_eq(loader_batches(loader), 1);
    ck_ok(loader_next(loader, &batch));
    ck_assert_uint_eq(batch.rows, 0);
    loader_destroy(loader);
}

static void write_large(const char *file_path) {
    const hsize_t rows = 5000, width = 100;
    SCOPED_MEMORY double *x = calloc(rows * width, sizeof *x);
    hid_t file = create_file(file_path);
    write_doubles(file, "x", 2, (hsize_t[]){rows, width}, x);
    write_doubles(file, "y", 1, (hsize_t[]){rows}, x);
    H5Fclose(file);
}

/* A file that is truncated during the run: loader_next returns the failure with the file's name, with or without a
 * thread, and the loader can still be used and destroyed. */
TEST(failures_come_out) {
    char *here = make_folder(), *large = path_in(here, "large.h5");
    struct sampler_config sampler = sampler_of(false, false, false);
    for (int64_t prefetch = 0; prefetch <= 2; prefetch++) {
        struct loader *loader;
        struct batch batch;
        SCOPED_DATASET dataset;
        write_large(large);
        size_t size;
        free(slurp(large, &size));
        ck_ok(open_yaml(&dataset, false, "{path: %s, cache_mb: 0}", large));
        ck_ok(loader_create(dataset, &sampler, 500, 0, 1, prefetch, &loader));
        ck_ok(loader_next(loader, &batch));
        ck_assert_int_eq(truncate(large, 2000000), 0);
        status s = OK;
        for (int i = 0; s == OK && i < 10; i++) s = loader_next(loader, &batch);
        ck_failure(s, STATUS_DATA, "large.h5: the file was truncated after it was opened (2000000 bytes of ");
        ck_failure(loader_next(loader, &batch), STATUS_DATA, "large.h5: the file was truncated");
        ck_ok(loader_seek(loader, 0, 0));
        ck_failure(loader_next(loader, &batch), STATUS_DATA, "large.h5: the file was truncated");
        usleep(100000);                                    /* the thread retries and stores the next failure */
        ck_assert_int_eq(truncate(large, (off_t)size), 0); /* the rows are zeros */
        ck_ok(loader_seek(loader, 0, 0));
        ck_ok(loader_next(loader, &batch));
        ck_assert_uint_eq(batch.rows, 500);
        loader_destroy(loader);
    }
    free(large);
    remove_folder(here);
}

static double reading_seconds = -1; /* between two looks at the clock; negative: the real one */
static size_t announced;

int clock_gettime(clockid_t clock, struct timespec *time) { /* instead of that of libc, as the next one */
    static double now;
    (void)clock;
    if (reading_seconds < 0) return timespec_get(time, TIME_UTC) == TIME_UTC ? 0 : -1;
    now += reading_seconds;
    *time = (struct timespec){.tv_sec = (time_t)now, .tv_nsec = (long)((now - (double)(time_t)now) * 1e9)};
    return 0;
}

int posix_fadvise(int file, off_t offset, off_t length, int advice) {
    (void)file, (void)offset, (void)length;
    announced += advice == POSIX_FADV_WILLNEED;
    return 0;
}

/* The system reads ahead what it must fetch, and is not asked for what it has: a row then costs one call, not two. */
TEST(announces_rows_that_are_slow) {
    struct sampler_config sampler = sampler_of(true, false, false);
    SCOPED_DATASET dataset = open_rows(false, "");
    for (int is_slow = 0; is_slow < 2; is_slow++) {
        struct loader *loader;
        ck_ok(loader_create(dataset, &sampler, 8, 0, 1, 0, &loader));
        announced = 0;
        reading_seconds = is_slow ? 8 * 6e-6 : 8 * 4e-6;
        check_epoch(loader, &sampler, 0, 0, 8, 0, 1);
        ck_assert_uint_eq(announced, is_slow ? ROWS : 3 * 8);
        reading_seconds = is_slow ? 8 * 4e-6 : 8 * 6e-6; /* from the first batch on, which is announced either way */
        ck_ok(loader_seek(loader, 0, 0));
        announced = 0;
        check_epoch(loader, &sampler, 0, 0, 8, 0, 1);
        ck_assert_uint_eq(announced, is_slow ? 3 * 8 : ROWS - 8);
        reading_seconds = -1;
        loader_destroy(loader);
    }
}

TEST(rejects_empty_epochs) {
    SCOPED_DATASET dataset = open_rows(true, "split: {test: 0.98, shuffle: false}");
    ck_assert_uint_eq(dataset_info(dataset)->train_rows, 2);
    struct sampler_config sampler = sampler_of(false, true, false);
    struct loader *loader;
    ck_failure(
        loader_create(dataset, &sampler, 8, 0, 3, 0, &loader), STATUS_USAGE,
        "2 training rows are less than one batch of 8 rows for each of 3 ranks; use fewer ranks, a smaller batch, or "
        "sampler.drop_last: false");
    sampler = sampler_of(false, false, true);
    ck_failure(loader_create(dataset, &sampler, 8, 0, 2, 0, &loader), STATUS_USAGE,
               "or sampler.drop_last_batch: false");
    sampler = sampler_of(false, false, false);
    ck_ok(loader_create(dataset, &sampler, 1000000000, 1, 2, 0, &loader)); /* allocates memory for existing rows only */
    struct batch batch;
    ck_ok(loader_next(loader, &batch));
    ck_assert_uint_eq(batch.rows, 1);
    loader_destroy(loader);
}

CHECK_MAIN("loader")
