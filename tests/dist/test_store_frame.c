/* Frames of the store are written, parsed, and rejected if they are invalid. ctest-labels: unit */
#include "dist/store/store_frame.h"

#include <string.h>

#include "check_main.h"

TEST(frames_round_trip) {
    uint8_t bytes[STORE_HEADER + 100];
    for (uint32_t length = 0; length <= 100; length += 25) {
        struct store_frame out = {.type = FRAME_SET, .rank = 7, .job = 0x1122334455667788u, .length = length}, in;
        store_frame_header(&out, bytes);
        memset(bytes + STORE_HEADER, 0xab, length);
        size_t used = 0, full = STORE_HEADER + length;
        for (size_t size = 0; size < full; size++)
            ck_assert_int_eq(store_frame_parse(bytes, size, 100, &in, &used), PARSED_INCOMPLETE);
        ck_assert_int_eq(store_frame_parse(bytes, full, 100, &in, &used), PARSED_FRAME);
        ck_assert_uint_eq(used, full);
        ck_assert(in.type == FRAME_SET && in.rank == 7 && in.job == out.job && in.length == length);
        if (length) ck_assert_int_eq(store_frame_parse(bytes, full, length - 1, &in, &used), PARSED_INVALID);
        for (size_t i = 0; i < 8; i++) { /* magic, version, type, zeros */
            uint8_t original = bytes[i];
            bytes[i] ^= 0xf0;
            ck_assert_int_eq(store_frame_parse(bytes, full, 100, &in, &used), PARSED_INVALID);
            bytes[i] = original;
        }
    }
}

TEST(bodies_are_checked) {
    char key[STORE_MAX_KEY + 1];
    const uint8_t *value;
    size_t size;
    struct store_frame set = {.type = FRAME_SET, .body = (const uint8_t *)"\3abcdef", .length = 7};
    ck_assert(store_parse_set(&set, key, &value, &size) && size == 3 && memcmp(value, "def", 3) == 0);
    ck_assert_str_eq(key, "abc");
    set.length = 4;
    ck_assert(store_parse_set(&set, key, &value, &size) && size == 0);
    set.length = 3;
    ck_assert(!store_parse_set(&set, key, &value, &size));
    set.length = 0;
    ck_assert(!store_parse_set(&set, key, &value, &size));
    set = (struct store_frame){.type = FRAME_SET, .body = (const uint8_t *)"\2a\0x", .length = 4};
    ck_assert(!store_parse_set(&set, key, &value, &size)); /* a NUL in the key */
    set = (struct store_frame){.type = FRAME_SET, .body = (const uint8_t *)"\0x", .length = 2};
    ck_assert(!store_parse_set(&set, key, &value, &size)); /* no key */
    char text[8];
    store_parse_text((const uint8_t *)"a\033[1mbcdef", 10, text, sizeof text);
    ck_assert_str_eq(text, "a?[1mbc");
}

TEST(heartbeats_round_trip) {
    struct activity_snapshot out = {.phase = ACTIVITY_PHASE_COUNT - 1,
                                    .step = 3,
                                    .saved = 2,
                                    .ticks = 5,
                                    .number = 7,
                                    .median_step = 0.25,
                                    .cpu = 1.5,
                                    .call = "all_reduce"},
                             in;
    uint8_t body[STORE_HEARTBEAT];
    const struct store_frame frame = {.type = FRAME_HEARTBEAT, .body = body, .length = sizeof body};
    for (int is_in_collective = 0; is_in_collective < 2; is_in_collective++) {
        out.is_in_collective = is_in_collective;
        store_write_heartbeat(&out, body);
        ck_assert(store_parse_heartbeat(&frame, &in));
        ck_assert(in.phase == out.phase && in.is_in_collective == out.is_in_collective && in.step == 3);
        ck_assert(in.saved == 2 && in.ticks == 5 && in.number == 7 && in.median_step == 0.25 && in.cpu == 1.5);
        ck_assert_str_eq(in.call, "all_reduce");
    }
    body[0] = ACTIVITY_PHASE_COUNT;
    ck_assert(!store_parse_heartbeat(&frame, &in));
}

TEST(gathers_are_checked) {
    uint8_t body[STORE_GATHER + 8];
    char key[STORE_MAX_KEY + 1];
    struct store_gather_request in, out = {.kind = GATHER_FIRST,
                                           .milliseconds = 70000,
                                           .index = 2,
                                           .count = 3,
                                           .value = (const uint8_t *)"xyz",
                                           .size = 3};
    struct store_frame frame = {.type = FRAME_GATHER, .body = body};
    frame.length = (uint32_t)store_write_gather(&out, "hosts", body);
    ck_assert(store_parse_gather(&frame, &in, key));
    ck_assert_str_eq(key, "hosts");
    ck_assert(in.kind == GATHER_FIRST && in.milliseconds == 70000 && in.index == 2 && in.count == 3);
    ck_assert(in.size == 3 && memcmp(in.value, "xyz", 3) == 0);
    frame.length = STORE_GATHER + 5; /* an empty value */
    ck_assert(store_parse_gather(&frame, &in, key) && in.size == 0);
    frame.length--;
    ck_assert(!store_parse_gather(&frame, &in, key));
    frame.length = STORE_GATHER - 1;
    ck_assert(!store_parse_gather(&frame, &in, key));
    frame.length = STORE_GATHER + 8;
    body[0] = GATHER_KINDS;
    ck_assert(!store_parse_gather(&frame, &in, key));
    body[0] = GATHER_NUMBERS;
    store_write_u32(body + 6, 3); /* index 3 of 3 */
    ck_assert(!store_parse_gather(&frame, &in, key));
}

/* The hosts of ranks: as written, and in how many triples. */
TEST(numbers_round_trip) {
    static const struct {
        uint32_t count, numbers[12];
        size_t triples;
    } cases[] = {{1, {0}, 1},
                 {6, {0}, 1},                   /* one host */
                 {6, {0, 0, 1, 1, 2, 2}, 1},    /* hosts with two ranks each */
                 {6, {0, 1, 2, 0, 1, 2}, 2},    /* one rank after the other on each host */
                 {7, {0, 0, 1, 1, 2, 2, 2}, 2}, /* the last host has more */
                 {5, {0, 1, 0, 2, 0}, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint32_t count = cases[i].count;
        uint8_t bytes[STORE_NUMBERS(12)];
        int numbers[12];
        size_t size = store_write_numbers(cases[i].numbers, count, bytes);
        ck_assert_uint_eq(size, 12 * cases[i].triples);
        ck_assert(store_parse_numbers(bytes, size, count, numbers));
        for (uint32_t k = 0; k < count; k++) ck_assert_int_eq(numbers[k], (int)cases[i].numbers[k]);
        ck_assert(!store_parse_numbers(bytes, size - 1, count, numbers));
        ck_assert(!store_parse_numbers(bytes, size, count + 1, numbers));
        ck_assert(!store_parse_numbers(bytes, size, count - 1, numbers));
        store_write_u32(bytes, UINT32_MAX);
        ck_assert(!store_parse_numbers(bytes, size, count, numbers));
        store_write_u32(bytes, 0);
        store_write_u32(bytes + 8, 0);
        ck_assert(!store_parse_numbers(bytes, size, count, numbers));
    }
}

TEST(heartbeats_of_many_ranks_are_rarer) {
    ck_assert_double_eq(store_heartbeat_seconds(2, 1), 0.2);
    ck_assert_double_eq(store_heartbeat_seconds(4000, 1), 0.2);
    ck_assert_double_eq(store_heartbeat_seconds(10000, 1), 0.5);
    ck_assert_double_eq(store_heartbeat_seconds(1024, 8), 8 * 0.2);
    ck_assert_double_eq(store_pace(10000, 1), 1);
    ck_assert_double_eq(store_pace(80000, 1), 8);
    ck_assert_double_eq(store_pace(1024, 8), 8);
}

CHECK_MAIN("store_frame")
