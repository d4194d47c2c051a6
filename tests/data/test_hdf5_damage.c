/* Damaged HDF5 files, and compressed chunks that decode to another size. Files are parsed in this process, so that a
 * crash of libhdf5 that dataset_hdf5.c does not prevent is counted. ctest-labels: unit */
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <zlib.h>

#include "hdf5_cases.h"

/* ---- damage ---- */

/* Opens and reads a damaged file in this process. */
static void try_file(const char *bytes, size_t size) {
    spill(path, bytes, size);
    for (int cache = 0; cache < 2; cache++) {
        SCOPED_DATASET dataset;
        status s = open_yaml(&dataset, true, "{path: %s, cache_mb: %d}", path, cache);
        float x[64];
        int64_t y[32], positions[] = {2, 0, 1};
        if (s == OK && dataset_info(dataset)->train_rows == 3 && dataset_info(dataset)->input_size <= 21)
            s = dataset_read(dataset, DATASET_TRAIN, positions, 3, x, y);
        if (s != OK && status_code(s) != STATUS_DATA) abort();
        status_free(s);
    }
}

/* Changes one byte of the file, [count] times; in a child process, which is restarted after a crash. *at: the progress
 * of the child. */
static size_t count_crashes(const char *original, size_t size, size_t count, unsigned seed) {
    volatile size_t *at = mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    size_t crashes = 0;
    char *bytes = malloc(size);
    for (*at = 0; *at < count; (*at)++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            signal(SIGALRM, SIG_DFL); /* not Check's */
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
            for (; *at < count; (*at)++) {
                alarm(20);
                unsigned random = ((unsigned)*at + seed) * 2654435761u;
                memcpy(bytes, original, size);
                bytes[*at * 7919 % size] ^= (char)(1 + (random >> 8) % 255);
                try_file(bytes, size);
            }
            _exit(0);
        }
        int ended;
        ck_assert_int_eq(waitpid(child, &ended, 0), child);
        if (ended == 0) break;
        crashes++;
        fprintf(stderr, "byte %zu, round %zu: the reader ended with %s %d\n", *at * 7919 % size, *at / size,
                WIFSIGNALED(ended) ? "signal" : "status", WIFSIGNALED(ended) ? WTERMSIG(ended) : WEXITSTATUS(ended));
    }
    free(bytes);
    munmap((void *)at, sizeof *at);
    return crashes;
}

static void check_damage(unsigned seed) {
    size_t size;
    SCOPED_MEMORY char *bytes = slurp(path, &size);
    const char *rounds = getenv("DDPTRAIN_DAMAGE_ROUNDS"); /* for longer searches */
    size_t count = rounds ? size * (size_t)atoi(rounds) : 300;
    ck_assert_uint_eq(count_crashes(bytes, size, count, seed), 0);
    for (size_t length = 0; length < size; length += 101) try_file(bytes, length);
}

TEST(damaged_files) {
    write_plain();
    check_damage(1);
}

TEST(damaged_compressed_files) {
    hid_t file = create_file(path), plan = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(plan, 2, (hsize_t[]){2, 1});
    H5Pset_deflate(plan, 9);
    write_values(file, "x", 2, (hsize_t[]){3, 2}, H5T_IEEE_F64LE, plan, H5T_NATIVE_DOUBLE, six);
    write_integers(file, "y", 1, (hsize_t[]){3}, classes);
    H5Pclose(plan);
    H5Fclose(file);
    check_damage(2);
}

/* ---- compressed chunks that decode to another size ---- */

enum { CHUNK_ROWS = 64, CHUNK_BYTES = CHUNK_ROWS * 8 };
enum filter { SHUFFLE, DEFLATE, CHECKSUM, NO_FILTER };

/* x (2 * CHUNK_ROWS) in two chunks, the second of which is [raw] (size) whatever the filters say; y the same, good. */
static void write_chunk(const enum filter *filters, unsigned mask, const void *raw, size_t size) {
    hid_t file = create_file(path), plan = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t rows = 2 * CHUNK_ROWS, chunk = CHUNK_ROWS, second = CHUNK_ROWS;
    double values[2 * CHUNK_ROWS] = {0};
    H5Pset_chunk(plan, 1, &chunk);
    for (; *filters != NO_FILTER; filters++)
        *filters == SHUFFLE   ? H5Pset_shuffle(plan)
        : *filters == DEFLATE ? H5Pset_deflate(plan, 4)
                              : H5Pset_fletcher32(plan);
    write_values(file, "x", 1, &rows, H5T_IEEE_F64LE, plan, H5T_NATIVE_DOUBLE, values);
    write_doubles(file, "y", 1, &rows, values);
    hid_t dataset = H5Dopen2(file, "x", H5P_DEFAULT);
    ck_assert_int_ge(H5Dwrite_chunk(dataset, H5P_DEFAULT, mask, &second, size, raw), 0);
    H5Dclose(dataset), H5Pclose(plan), H5Fclose(file);
}

/* [bytes] zeros as the second chunk, compressed; a checksum of 4 bytes follows where there is one. */
static void write_deflated(const enum filter *filters, unsigned mask, size_t bytes, size_t checksum) {
    uLongf size = compressBound(bytes);
    Bytef *zeros = calloc(bytes + 1, 1), *raw = calloc(size + checksum, 1);
    ck_assert_int_eq(compress(raw, &size, zeros, bytes), Z_OK);
    write_chunk(filters, mask, raw, size + checksum);
    free(zeros), free(raw);
}

/* libhdf5 allocates the decoded size of a chunk, and reads beyond it when it is too small. */
TEST(rejects_chunks_of_another_size) {
    static const enum filter all[] = {SHUFFLE, DEFLATE, CHECKSUM, NO_FILTER}, inner[] = {CHECKSUM, DEFLATE, NO_FILTER},
                             alone[] = {DEFLATE, NO_FILTER}, late[] = {DEFLATE, SHUFFLE, NO_FILTER},
                             twice[] = {DEFLATE, DEFLATE, NO_FILTER}, none[] = {SHUFFLE, NO_FILTER};
    static const struct {
        const enum filter *filters;
        size_t bytes, checksum;
        const char *holds;
    } cases[] = {{all, 8, 4, "8 bytes"},
                 {all, CHUNK_BYTES - 1, 4, "511 bytes"},
                 {all, CHUNK_BYTES + 1, 4, "more than 512 bytes"},
                 {alone, CHUNK_BYTES - 8, 0, "504 bytes"},
                 {alone, 4 << 20, 0, "more than 512 bytes"},
                 {inner, CHUNK_BYTES, 0, "508 bytes"},
                 {inner, 3, 0, "3 bytes"},
                 {inner, CHUNK_BYTES + 5, 0, "more than 512 bytes"}};
    char sentence[160];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_deflated(cases[i].filters, 0, cases[i].bytes, cases[i].checksum);
        snprintf(sentence, sizeof sentence, "t.h5: dataset 'x', the chunk of row 64 holds %s where 512 are needed",
                 cases[i].holds);
        check_rejection(false, "", sentence);
    }
    static const char raw[2 * CHUNK_BYTES] = {0};
    write_chunk(none, 0, raw, CHUNK_BYTES - 1);
    check_rejection(false, "", "the chunk of row 64 holds 511 bytes where 512 are needed");
    write_chunk(alone, 1, raw, CHUNK_BYTES + 1); /* the mask: not filtered */
    check_rejection(false, "", "the chunk of row 64 holds more than 512 bytes where 512 are needed");
    write_chunk(alone, 0, raw, CHUNK_BYTES);
    check_rejection(false, "", "t.h5: dataset 'x', the chunk of row 64 is not what its filters write");
    write_chunk(alone, 0, "x\x9c", 2); /* the beginning of a stream */
    check_rejection(false, "", "t.h5: dataset 'x', the chunk of row 64 is not what its filters write");
    write_deflated(twice, 0, CHUNK_BYTES, 0);
    check_rejection(false, "", "dataset 'x' is compressed by filters in an order that is not read");
    write_deflated(late, 0, CHUNK_BYTES, 0);
    check_rejection(false, "", "dataset 'x' is compressed by filters in an order that is not read");
}

TEST(reads_chunks_of_the_right_size) {
    static const enum filter all[] = {SHUFFLE, DEFLATE, CHECKSUM, NO_FILTER}, alone[] = {DEFLATE, NO_FILTER};
    static const char raw[CHUNK_BYTES] = {0};
    float zeros[2 * CHUNK_ROWS] = {0};
    write_deflated(alone, 0, CHUNK_BYTES, 0);
    check_rows("", false, 2 * CHUNK_ROWS, zeros, 2 * CHUNK_ROWS);
    write_chunk(alone, 1, raw, CHUNK_BYTES);
    check_rows("", false, 2 * CHUNK_ROWS, zeros, 2 * CHUNK_ROWS);
    write_chunk(all, 7, raw, CHUNK_BYTES);
    check_rows("", false, 2 * CHUNK_ROWS, zeros, 2 * CHUNK_ROWS);
}

CHECK_MAIN("hdf5_damage")
