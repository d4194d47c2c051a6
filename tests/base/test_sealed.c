/* sealed: a written file is read back equal; every flipped bit and every truncation is rejected with the file's name.
 * Also SHA-256 against the vectors of FIPS 180-4. ctest-labels: unit fault */
#include "base/buffer.h"
#include "base/fault.h"
#include "base/files/digest.h"
#include "base/files/sealed.h"
#include "check_main.h"
#include "files.h"

START_TEST(sha256_vectors) {
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
END_TEST

START_TEST(is_read_back) {
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
END_TEST

static void must_reject(const char *bytes, size_t size, const char *what, size_t where) {
    struct seal seal;
    status s = sealed_check("some/file.h5", bytes, size, &seal);
    ck_assert_msg(status_code(s) == STATUS_DATA && strncmp(status_message(s), "some/file.h5: ", 14) == 0,
                  "%s at %zu: %s", what, where, status_message(s));
    status_free(s);
}

START_TEST(every_flipped_bit_and_truncation_is_detected) {
    char *folder = make_folder(), path[512], image[600];
    snprintf(path, sizeof path, "%s/file", folder);
    for (size_t b = 0; b < sizeof image; b++) image[b] = (char)(b * b);
    ck_ok(sealed_write(path, image, sizeof image, 7));
    size_t size;
    char *bytes = slurp(path, &size);
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
    char *longer = calloc(1, size + 1);
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
    free(longer);
    free(bytes);
    remove_folder(folder);
}
END_TEST

/* The three functions that read a file must reject the same damage. */
START_TEST(files_are_refused_by_name) {
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
    char *bytes = slurp(path, &size);
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
    free(bytes);
    remove_folder(folder);
}
END_TEST

START_TEST(any_failing_call_of_a_read_is_a_failure) {
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
END_TEST

TESTS("sealed", sha256_vectors, is_read_back, every_flipped_bit_and_truncation_is_detected, files_are_refused_by_name,
      any_failing_call_of_a_read_is_a_failure)
