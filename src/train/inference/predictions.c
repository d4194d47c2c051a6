/* Both formats are built in memory and written by io_replace, so that a reader never finds an incomplete file. */
#include "train/inference/predictions.h"

#include <hdf5.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/io.h"
#include "base/text.h"
#include "checkpoint/checkpoint_hdf5.h"

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

status predictions_check_name(const char *path) {
    if (!path) return status_new(STATUS_USAGE, "predict needs --out FILE.csv or FILE.h5");
    if (ends_with(path, ".csv") || ends_with(path, ".h5") || ends_with(path, ".hdf5")) return OK;
    return status_new(STATUS_USAGE, "--out: the formats are .csv and .h5, got '%s'", path);
}

static size_t largest(const float *outputs, size_t size) {
    size_t best = 0;
    for (size_t i = 1; i < size; i++)
        if (outputs[i] > outputs[best]) best = i;
    return best;
}

static status write_csv(const char *path, const int64_t *row_of, const float *outputs, size_t rows, size_t size,
                        bool has_classes) {
    struct text text = {0};
    char number[32];
    text_add(&text, has_classes ? "row,prediction," : "row,");
    for (size_t i = 0; i < size; i++) text_printf(&text, "output_%zu%s", i, i + 1 < size ? "," : "\n");
    for (size_t r = 0; r < rows; r++) {
        const float *row = outputs + r * size;
        text_printf(&text, "%lld,", (long long)row_of[r]);
        if (has_classes) text_printf(&text, "%zu,", largest(row, size));
        for (size_t i = 0; i < size; i++) {
            int length = snprintf(number, sizeof number, "%.9g%s", (double)row[i], i + 1 < size ? "," : "\n");
            text_add_bytes(&text, number, (size_t)length);
        }
    }
    struct io_part part = {text.data, text.length};
    status s = io_replace(path, &part, 1);
    text_free(&text);
    return s;
}

static bool add_dataset(hid_t file, const char *name, hid_t file_type, hid_t memory_type, int dims,
                        const hsize_t *shape, const void *data) {
    hid_t space = H5Screate_simple(dims, shape, NULL);
    hid_t set = space < 0 ? -1 : H5Dcreate2(file, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    bool is_valid = set >= 0 && H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (set >= 0) H5Dclose(set);
    if (space >= 0) H5Sclose(space);
    return is_valid;
}

/* *image is the HDF5 file, malloc'ed. */
static status create_image(const int64_t *row_of, const float *outputs, size_t rows, size_t size,
                           const int64_t *classes, void **image, size_t *bytes) {
    hsize_t shape[] = {rows, size};
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    bool is_valid = access >= 0 && H5Pset_fapl_core(access, 1 << 20, 0) >= 0;
    hid_t file = is_valid ? H5Fcreate(HDF5_IN_MEMORY, H5F_ACC_TRUNC, H5P_DEFAULT, access) : -1;
    is_valid = file >= 0 && add_dataset(file, "outputs", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, shape, outputs);
    is_valid = is_valid && add_dataset(file, "row", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, shape, row_of);
    if (is_valid && classes)
        is_valid = add_dataset(file, "prediction", H5T_STD_I64LE, H5T_NATIVE_INT64, 1, shape, classes);
    ssize_t length = is_valid && H5Fflush(file, H5F_SCOPE_LOCAL) >= 0 ? H5Fget_file_image(file, NULL, 0) : -1;
    *image = length > 0 ? malloc((size_t)length) : NULL;
    is_valid = *image && H5Fget_file_image(file, *image, (size_t)length) == length;
    *bytes = is_valid ? (size_t)length : 0;
    status s = is_valid ? OK : image_failure(STATUS_BUG, "cannot create an HDF5 file of the predictions");
    if (file >= 0) H5Fclose(file);
    if (access >= 0) H5Pclose(access);
    return s;
}

static status write_hdf5(const char *path, const int64_t *row_of, const float *outputs, size_t rows, size_t size,
                         bool has_classes) {
    int64_t *classes = NULL;
    void *image = NULL;
    size_t bytes = 0;
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    status s = has_classes ? buffer_new(rows * sizeof *classes, "the predictions", (void **)&classes) : OK;
    for (size_t r = 0; !s && has_classes && r < rows; r++) classes[r] = (int64_t)largest(outputs + r * size, size);
    if (!s) s = create_image(row_of, outputs, rows, size, classes, &image, &bytes);
    hdf5_leave(&silence);
    struct io_part part = {image, bytes};
    if (!s) s = io_replace(path, &part, 1);
    free(image);
    buffer_free(classes);
    return s;
}

status predictions_write(const char *path, const int64_t *row_of, const float *outputs, size_t rows, size_t size,
                         bool has_classes) {
    if (ends_with(path, ".csv")) return write_csv(path, row_of, outputs, rows, size, has_classes);
    return write_hdf5(path, row_of, outputs, rows, size, has_classes);
}
