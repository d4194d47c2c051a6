/* sealed: a written file is read back equal; every flipped bit and every truncation is rejected with the file's name.
 * Also SHA-256 against the vectors of FIPS 180-4. ctest-labels: unit fault */
#include <unistd.h>

#include "base/buffer.h"
#include "base/fault.h"
#include "base/files/digest.h"
#include "base/files/sealed.h"
#include "check_main.h"
#include "files.h"

TEST(sha256_vectors) {
    static const struct {
        const char *text, *hex;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        uint8_t whole[DIGEST_SIZE], pieces[DIGEST_SIZE];
        char hex[DIGEST_HEX_SIZE];
        size_t length = strlen(vectors[i].text);
        digest_of(vectors[i].text, length, whole);
        digest_hex(whole, hex);
        ck_assert_str_eq(hex, vectors[i].hex);
        for (size_t cut = 0; cut <= length; cut++) {
            struct digest digest;
            digest_start(&digest);
            digest_add(&digest, vectors[i].text, cut);
            digest_add(&digest, vectors[i].text + cut, length - cut);
            digest_finish(&digest, pieces);
            ck_assert_mem_eq(whole, pieces, DIGEST_SIZE);
        }
    }
}

TEST(is_read_back) {
    static const size_t sizes[] = {0, 1, 127, 128, 129, 3 << 20};
    char *folder = make_folder(), path[512];
    snprintf(path, sizeof path, "%s/file", folder);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *image = malloc(sizes[i] + 1);
        for (size_t b = 0; b < sizes[i]; b++) image[b] = (unsigned char)(b * 7 + i);
        ck_ok(sealed_write(path, image, sizes[i], 40 + i));
        void *back;
        struct seal seal;
        ck_ok(sealed_read(path, &back, &seal));
        ck_assert_uint_eq(seal.image_size, sizes[i]);
        ck_assert_uint_eq(seal.order, 40 + i);
        if (sizes[i]) ck_assert_mem_eq(back, image, sizes[i]);
        buffer_free(back);
        struct seal other;
        ck_ok(sealed_read_seal(path, &other));
        ck_assert(other.order == seal.order && memcmp(other.sha256, seal.sha256, DIGEST_SIZE) == 0);
        ck_ok(sealed_verify(path, &other));
        bool is_marked;
        ck_ok(sealed_has_trailer(path, &is_marked));
        ck_assert(is_marked);
        free(image);
    }
    remove_folder(folder);
}

/* ---- chunks ---- */

#define LARGE ((size_t)(2 * SEALED_CHUNK + 12345))

static unsigned char *make_image(size_t size) {
    unsigned char *image = malloc(size);
    uint32_t x = 1;
    for (size_t i = 0; i < size; i++) image[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    return image;
}

/* The hash of the hashes, computed from its definition. */
static void hash_by_chunks(const unsigned char *image, size_t size, uint8_t hash[DIGEST_SIZE]) {
    uint8_t hashes[8][DIGEST_SIZE];
    size_t count = 0, chunk = SEALED_CHUNK;
    for (size_t at = 0; at < size; at += chunk)
        digest_of(image + at, size - at < chunk ? size - at : chunk, hashes[count++]);
    digest_of(hashes, count * DIGEST_SIZE, hash);
}

/* Any cut into parts and any number of threads gives the same file, whose seal is as documented. */
TEST(large_images_are_hashed_in_chunks) {
    static const size_t sizes[] = {SEALED_CHUNK, SEALED_CHUNK + 1, 2 * SEALED_CHUNK, LARGE};
    char *folder = make_folder(), *path = path_in(folder, "file"), *other = path_in(folder, "other");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        unsigned char *image = make_image(sizes[i]), *expected = malloc(sizes[i] + SEALED_TRAILER_SIZE);
        uint8_t hash[DIGEST_SIZE];
        ck_ok(sealed_write(path, image, sizes[i], 3));
        size_t first = sizes[i] / 3, second = 5, size, other_size;
        struct io_part parts[] = {
            {image, first}, {image + first, second}, {NULL, 0}, {image + first + second, sizes[i] - first - second}};
        ck_ok(sealed_write_parts(other, parts, 4, 3));
        SCOPED_MEMORY char *bytes = slurp(path, &size), *same = slurp(other, &other_size);
        memcpy(expected, image, sizes[i]);
        sealed_trailer(image, sizes[i], 3, expected + sizes[i]);
        ck_assert(size == sizes[i] + SEALED_TRAILER_SIZE && other_size == size);
        ck_assert(memcmp(bytes, same, size) == 0 && memcmp(bytes, expected, size) == 0);
        ck_assert_int_eq(bytes[sizes[i] + 16], sizes[i] > SEALED_CHUNK ? 2 : 1);
        if (sizes[i] > SEALED_CHUNK)
            hash_by_chunks(image, sizes[i], hash);
        else
            digest_of(image, sizes[i], hash);
        ck_assert_mem_eq(bytes + sizes[i] + 32, hash, DIGEST_SIZE);
        struct seal seal;
        ck_ok(sealed_check(path, bytes, size, &seal));
        ck_assert(seal.is_chunked == (sizes[i] > SEALED_CHUNK) && memcmp(seal.sha256, hash, DIGEST_SIZE) == 0);
        free(image);
        free(expected);
    }
    free(path);
    free(other);
    remove_folder(folder);
}

/* A large file with the seal of older versions: one SHA-256 of all bytes. */
TEST(a_large_file_of_an_older_version_is_read) {
    char *folder = make_folder(), *path = path_in(folder, "file");
    unsigned char *file = realloc(make_image(LARGE), LARGE + SEALED_TRAILER_SIZE), *trailer = file + LARGE;
    struct seal seal;
    void *image;
    sealed_trailer(file, 10, 7, trailer);
    for (int i = 0; i < 8; i++) trailer[24 + i] = (unsigned char)(LARGE >> (8 * i));
    digest_of(file, LARGE, trailer + 32);
    digest_of(trailer, 96, trailer + 96);
    spill(path, (const char *)file, LARGE + SEALED_TRAILER_SIZE);
    ck_ok(sealed_read(path, &image, &seal));
    ck_assert(!seal.is_chunked && seal.image_size == LARGE && memcmp(image, file, LARGE) == 0);
    buffer_free(image);
    ck_ok(sealed_verify(path, &seal));
    trailer[72] = 1; /* a field that this version must be 0 in */
    digest_of(trailer, 96, trailer + 96);
    spill(path, (const char *)file, LARGE + SEALED_TRAILER_SIZE);
    ck_failure(sealed_verify(path, &seal), STATUS_DATA,
               "sealed by a newer ddptrain (seal 1 with the chunk size 1; this one reads 0)");
    trailer[16] = 3;
    digest_of(trailer, 96, trailer + 96);
    spill(path, (const char *)file, LARGE + SEALED_TRAILER_SIZE);
    ck_failure(sealed_verify(path, &seal), STATUS_DATA, "sealed by a newer ddptrain (seal 3; this one reads 1 and 2)");
    free(file);
    free(path);
    remove_folder(folder);
}

/* One bit in any chunk, also where chunks are exchanged. */
TEST(damaged_chunks_are_detected) {
    char *folder = make_folder(), *path = path_in(folder, "file");
    static const size_t places[] = {0, SEALED_CHUNK - 1, SEALED_CHUNK, 2 * SEALED_CHUNK, LARGE - 1};
    unsigned char *image = make_image(LARGE);
    struct seal seal;
    void *read;
    size_t size;
    ck_ok(sealed_write(path, image, LARGE, 7));
    SCOPED_MEMORY char *bytes = slurp(path, &size), *swapped = malloc(size);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        bytes[places[i]] ^= 4;
        spill(path, bytes, size);
        ck_failure(sealed_read(path, &read, &seal), STATUS_DATA, "damaged: its SHA-256");
        ck_failure(sealed_verify(path, &seal), STATUS_DATA, "damaged: its SHA-256");
        ck_failure(sealed_check(path, bytes, size, &seal), STATUS_DATA, "damaged: its SHA-256");
        bytes[places[i]] ^= 4;
    }
    memcpy(swapped, bytes, size);
    memcpy(swapped, bytes + SEALED_CHUNK, SEALED_CHUNK);
    memcpy(swapped + SEALED_CHUNK, bytes, SEALED_CHUNK);
    ck_failure(sealed_check(path, swapped, size, &seal), STATUS_DATA, "damaged: its SHA-256");
    ck_ok(sealed_check(path, bytes, size, &seal));
    free(image);
    free(path);
    remove_folder(folder);
}

/* What the disk gives back is compared before the file gets its name. */

#define CHANGE_A_BYTE (-1)

struct spoiler {
    off_t size; /* the file is cut to that, or CHANGE_A_BYTE */
    bool is_done;
};

static void spoil(void *context, enum fault_call call, const char *path) {
    struct spoiler *spoiler = context;
    if (spoiler->is_done || call != CALL_SYNC) return;
    spoiler->is_done = true;
    if (spoiler->size != CHANGE_A_BYTE) {
        if (truncate(path, spoiler->size)) abort();
        return;
    }
    FILE *file = fopen(path, "r+");
    if (!file || fseek(file, (long)SEALED_CHUNK + 9, SEEK_SET) || fputc('x', file) != 'x' || fclose(file)) abort();
}

TEST(what_reads_back_different_is_no_file) {
    static const struct {
        off_t size;
        const char *sentence;
    } cases[] = {{CHANGE_A_BYTE, "reads back different"},
                 {0, "reads back different"},
                 {SEALED_CHUNK + 9, "reads back different"},
                 {LARGE, "it ends 128 bytes early"},
                 {LARGE + SEALED_TRAILER_SIZE - 1, "it ends 1 bytes early"}};
    char *folder = make_folder(), *path = path_in(folder, "file");
    unsigned char *image = calloc(1, LARGE);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct spoiler spoiler = {.size = cases[i].size};
        fault_set(&(struct fault){.kind = FAULT_NONE, .watch = spoil, .context = &spoiler});
        ck_failure(sealed_write(path, image, LARGE, 7), STATUS_IO, cases[i].sentence);
        fault_set(NULL);
        bool is_there = access(path, F_OK) == 0;
        ck_assert(spoiler.is_done && !is_there);
        ck_assert_uint_eq(temporaries(folder), 0);
    }
    free(image);
    free(path);
    remove_folder(folder);
}

/* A full disk or a read error in any thread is the failure of the whole. */
TEST(any_failing_call_of_a_large_file_is_a_failure) {
    char *folder = make_folder(), *path = path_in(folder, "file");
    unsigned char *image = calloc(1, LARGE);
    struct seal seal;
    void *read;
    fault_set(&(struct fault){.kind = FAULT_NONE});
    ck_ok(sealed_write(path, image, LARGE, 7));
    int64_t calls = fault_calls();
    fault_set(NULL);
    for (int64_t at = 1; at <= calls; at++) {
        unlink(path);
        fault_set(&(struct fault){.kind = FAULT_EIO, .at = at, .is_permanent = true});
        ck_failure(sealed_write(path, image, LARGE, 7), STATUS_IO, folder);
        fault_set(NULL);
        bool is_there = access(path, F_OK) == 0;
        ck_assert_msg(!is_there || at > calls - 3, "call %d of %d", (int)at, (int)calls); /* the folder's sync */
    }
    ck_ok(sealed_write(path, image, LARGE, 7));
    for (int64_t at = 1; at <= 8; at++) {
        fault_set(&(struct fault){.kind = FAULT_EIO, .at = at, .is_permanent = true});
        ck_failure(sealed_read(path, &read, &seal), STATUS_IO, path);
        fault_set(NULL);
        ck_assert_ptr_null(read);
    }
    free(image);
    free(path);
    remove_folder(folder);
}

static void must_reject(const char *bytes, size_t size, const char *what, size_t where) {
    struct seal seal;
    status s = sealed_check("some/file.h5", bytes, size, &seal);
    ck_assert_msg(status_code(s) == STATUS_DATA && strncmp(status_message(s), "some/file.h5: ", 14) == 0,
                  "%s at %zu: %s", what, where, status_message(s));
    status_free(s);
}

TEST(every_flipped_bit_and_truncation_is_detected) {
    char *folder = make_folder(), path[512], image[600];
    snprintf(path, sizeof path, "%s/file", folder);
    for (size_t b = 0; b < sizeof image; b++) image[b] = (char)(b * b);
    ck_ok(sealed_write(path, image, sizeof image, 7));
    size_t size;
    SCOPED_MEMORY char *bytes = slurp(path, &size);
    struct seal seal;
    ck_ok(sealed_check(path, bytes, size, &seal));
    for (size_t bit = 0; bit < size * 8; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        must_reject(bytes, size, "bit", bit);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t length = 0; length < size; length++) {
        must_reject(bytes, length, "length", length);
        must_reject(bytes + size - length, length, "lost bytes at the start", size - length);
    }
    SCOPED_MEMORY char *longer = calloc(1, size + 1);
    memcpy(longer, bytes, size);
    must_reject(longer, size + 1, "a byte more", size);
    memcpy(longer + 1, bytes, size);
    must_reject(longer, size + 1, "a byte before", size);
    memcpy(longer, bytes, sizeof image);
    memcpy(longer + sizeof image + 1, bytes + sizeof image, SEALED_TRAILER_SIZE);
    longer[sizeof image] = 'x';
    must_reject(longer, size + 1, "a byte before the seal", size);
    spill(path, longer, size + 1);
    void *read = NULL;
    ck_failure(sealed_read(path, &read, &seal), STATUS_DATA, "601 bytes before its seal, expected 600");
    ck_failure(sealed_verify(path, &seal), STATUS_DATA, "601 bytes before its seal");
    ck_failure(sealed_read_seal(path, &seal), STATUS_DATA, "601 bytes before its seal");
    remove_folder(folder);
}

/* The three functions that read a file must reject the same damage. */
TEST(files_are_refused_by_name) {
    char *folder = make_folder(), path[512];
    snprintf(path, sizeof path, "%s/file", folder);
    void *image = &image;
    struct seal seal;
    bool is_marked;
    ck_failure(sealed_read(path, &image, &seal), STATUS_IO, path);
    ck_assert_ptr_null(image);
    ck_failure(sealed_read(folder, &image, &seal), STATUS_DATA, folder);

    ck_ok(sealed_write(path, "0123456789", 10, 7));
    size_t size;
    SCOPED_MEMORY char *bytes = slurp(path, &size);
    bytes[3] ^= 1;
    spill(path, bytes, size);
    ck_failure(sealed_read(path, &image, &seal), STATUS_DATA, path);
    ck_failure(sealed_verify(path, &seal), STATUS_DATA, path);
    ck_ok(sealed_read_seal(path, &seal)); /* does not verify the image */
    bytes[3] ^= 1;
    bytes[size - 1] ^= 1;
    spill(path, bytes, size);
    ck_failure(sealed_read(path, &image, &seal), STATUS_DATA, path);
    ck_failure(sealed_verify(path, &seal), STATUS_DATA, path);
    ck_failure(sealed_read_seal(path, &seal), STATUS_DATA, path);
    ck_ok(sealed_has_trailer(path, &is_marked));
    ck_assert(is_marked);
    spill(path, bytes, size - 1);
    ck_failure(sealed_read(path, &image, &seal), STATUS_DATA, "truncated");
    ck_ok(sealed_has_trailer(path, &is_marked));
    ck_assert(!is_marked);
    spill(path, bytes, 5);
    ck_failure(sealed_verify(path, &seal), STATUS_DATA, "truncated");
    remove_folder(folder);
}

TEST(any_failing_call_of_a_read_is_a_failure) {
    char *folder = make_folder(), path[512];
    snprintf(path, sizeof path, "%s/file", folder);
    ck_ok(sealed_write(path, "0123456789", 10, 7));
    struct seal seal;
    void *image;
    for (enum fault_kind kind = FAULT_EIO; kind <= FAULT_SHORT; kind++)
        for (int ever = 0; ever < 2; ever++)
            for (int64_t at = 1; at <= 5; at++) {
                struct fault fault = {.kind = kind, .at = at, .is_permanent = ever};
                fault_set(&fault);
                status s = sealed_read(path, &image, &seal);
                if (kind == FAULT_EIO) ck_assert_int_eq(status_code(s), STATUS_IO);
                if (kind == FAULT_SHORT || !(kind == FAULT_EIO || ever)) ck_ok(s);
                ck_assert((s == OK) == (image != NULL));
                fault_set(NULL);
                status_free(s);
                buffer_free(image);
            }
    remove_folder(folder);
}

CHECK_MAIN("sealed")
