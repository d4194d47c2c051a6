/* Rows of HDF5 datasets without chunks, which are read without libhdf5, equal those in chunks, which are read with it.
 * ctest-labels: unit */
#include "hdf5_files.h"
#include "open.h"

/* The values of x, one piece of the file behind a user block, are read without libhdf5; those of z, the same ones in
 * chunks, with it. Rows are wide enough for every way from the file to a batch; t-1.h5 and t-2.h5 are two files as one.
 */
TEST(pieces_are_equal_to_chunks) {
    char *folder = make_folder();
    enum { ROWS = 5, WIDTH = 1100 };
    static double values[ROWS * WIDTH];
    char *names[] = {path_in(folder, "t-1.h5"), path_in(folder, "t-2.h5")};
    hid_t half = H5Tcopy(H5T_IEEE_F32BE), chunks = H5Pcreate(H5P_DATASET_CREATE);
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_size(half, 2);
    H5Tset_ebias(half, 15);
    H5Pset_chunk(chunks, 2, (hsize_t[]){2, 300});
    const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_IEEE_F64LE, H5T_IEEE_F64BE, half,
                           H5T_STD_I8LE,   H5T_STD_U8BE,   H5T_STD_I16BE,  H5T_STD_U16LE,  H5T_STD_I32BE,
                           H5T_STD_U32LE,  H5T_STD_I64BE,  H5T_STD_U64LE};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        bool is_float = H5Tget_class(types[t]) == H5T_FLOAT,
             is_signed = is_float || H5Tget_sign(types[t]) != H5T_SGN_NONE;
        double limit = is_float ? 60000 : ldexp(1, (int)(8 * H5Tget_size(types[t])) - is_signed);
        uint64_t state = t + 1;
        for (size_t i = 0; i < ROWS * WIDTH; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            double unit = (double)(state >> 11) * 0x1p-53; /* 0 to 1 */
            values[i] = (is_signed ? 2 * unit - 1 : unit) * limit * (i % 3 == 0 ? 1e-4 : 0.999);
        }
        for (int k = 0; k < 2; k++) {
            hid_t plan = H5Pcreate(H5P_FILE_CREATE);
            H5Pset_userblock(plan, 512);
            hid_t file = H5Fcreate(names[k], H5F_ACC_TRUNC, plan, H5P_DEFAULT);
            const hsize_t shape[] = {ROWS, WIDTH}, line[] = {ROWS};
            write_values(file, "x", 2, shape, types[t], H5P_DEFAULT, H5T_NATIVE_DOUBLE, values);
            write_values(file, "z", 2, shape, types[t], chunks, H5T_NATIVE_DOUBLE, values);
            write_values(file, "y", 1, line, H5T_STD_I32BE, H5P_DEFAULT, H5T_NATIVE_INT64, (int64_t[]){0, 1, 2, 1, 0});
            H5Fclose(file);
            H5Pclose(plan);
        }
        static const char *const keys[] = {"", "scale: standard", "divide: 7"};
        for (size_t i = 0; i < 3 * 2 * 2; i++) {
            struct dataset *dataset[2];
            float *x[2];
            void *y[2];
            for (int k = 0; k < 2; k++) {
                ck_ok(open_yaml(&dataset[k], true, "{path: %s/t-%s.h5, inputs: %s, cache_mb: %d, %s}", folder,
                                i / 6 ? "*" : "1", k ? "z" : "x", (int)(i / 3 % 2), keys[i % 3]));
                read_part(dataset[k], DATASET_TRAIN, &x[k], &y[k]);
            }
            size_t rows = i / 6 ? 2 * ROWS : ROWS;
            ck_assert_uint_eq(dataset_info(dataset[0])->train_rows, rows);
            ck_assert_mem_eq(x[0], x[1], rows * WIDTH * sizeof(float));
            ck_assert_mem_eq(y[0], y[1], rows * sizeof(int64_t));
            for (int k = 0; k < 2; k++) free(x[k]), free(y[k]), dataset_close(dataset[k]);
        }
    }
    H5Tclose(half);
    H5Pclose(chunks);
    free(names[0]), free(names[1]);
    remove_folder(folder);
}

CHECK_MAIN("hdf5_piece")
