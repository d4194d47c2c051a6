/* Creates small HDF5 files with the C API. For tests only. */
#pragma once

#include <check.h>
#include <hdf5.h>

static inline hid_t create_file(const char *path) {
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    ck_assert_int_ge(file, 0);
    return file;
}

/* A dataset of type [stored], made by [plan] and filled from [values] of type [given]; [values] NULL: not written. */
static inline void write_values(hid_t file, const char *name, int dims, const hsize_t *shape, hid_t stored, hid_t plan,
                                hid_t given, const void *values) {
    hid_t space = H5Screate_simple(dims, shape, NULL), links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    hid_t dataset = H5Dcreate2(file, name, stored, space, links, plan, H5P_DEFAULT);
    ck_assert_int_ge(dataset, 0);
    if (values) ck_assert_int_ge(H5Dwrite(dataset, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    H5Dclose(dataset);
    H5Pclose(links);
    H5Sclose(space);
}

static inline void write_doubles(hid_t file, const char *name, int dims, const hsize_t *shape, const double *values) {
    write_values(file, name, dims, shape, H5T_IEEE_F64LE, H5P_DEFAULT, H5T_NATIVE_DOUBLE, values);
}

static inline void write_integers(hid_t file, const char *name, int dims, const hsize_t *shape, const int64_t *values) {
    write_values(file, name, dims, shape, H5T_STD_I64LE, H5P_DEFAULT, H5T_NATIVE_INT64, values);
}
