/* gzip: files of several members, wherever the chunks that zlib gets end. ctest-labels: unit */
#include "base/files/gzip.h"

#include <string.h>

#include "base/buffer.h"
#include "check_main.h"
#include "files.h"

#define MEMBERS 40

/* Appends a member with the [length] bytes of [text] to packed (size, capacity). */
static void add_member(const char *text, size_t length, uint8_t *packed, size_t *size, size_t capacity) {
    z_stream z = {0};
    ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)text;
    z.avail_in = (uInt)length;
    z.next_out = packed + *size;
    z.avail_out = (uInt)(capacity - *size);
    ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
    *size = capacity - z.avail_out;
    deflateEnd(&z);
}

/* A member may end at any byte of a chunk. */
TEST(members_in_chunks_of_any_size) {
    char text[MEMBERS * MEMBERS] = "", *out;
    uint8_t packed[MEMBERS * 100];
    size_t length = 0, size = 0, got;
    for (size_t i = 0; i < MEMBERS; i++) { /* the first one is empty */
        for (size_t k = 0; k < i; k++) text[length + k] = (char)('a' + (i * k) % 26);
        add_member(text + length, i, packed, &size, sizeof packed);
        length += i;
    }
    for (size_t chunk = 1; chunk <= 200; chunk++) {
        ck_ok(gzip_read_all_in_chunks("t.gz", packed, size, chunk, &out, &got));
        ck_assert_uint_eq(got, length);
        ck_assert_mem_eq(out, text, length);
        buffer_free(out);
    }
    ck_ok(gzip_read_all("t.gz", packed, size, &out, &got));
    ck_assert_uint_eq(got, length);
    buffer_free(out);
}

/* What follows the last member is found behind the end of a chunk, too. */
TEST(bytes_after_the_last_member) {
    uint8_t packed[200];
    size_t size = 0, got;
    char *out;
    add_member("text", 4, packed, &size, sizeof packed);
    memset(packed + size, 0, 10);
    for (size_t chunk = 1; chunk <= size + 1; chunk++) {
        ck_ok(gzip_read_all_in_chunks("t.gz", packed, size + 10, chunk, &out, &got));
        ck_assert_uint_eq(got, 4);
        buffer_free(out);
        packed[size + 1] = 'x';
        ck_failure(gzip_read_all_in_chunks("t.gz", packed, size + 10, chunk, &out, &got), STATUS_DATA,
                   "there are bytes after the compressed data");
        buffer_free(out);
        packed[size + 1] = 0;
        ck_failure(gzip_read_all_in_chunks("t.gz", packed, size - 1, chunk, &out, &got), STATUS_DATA,
                   "the compressed data is truncated");
        buffer_free(out);
    }
}

CHECK_MAIN("gzip")
