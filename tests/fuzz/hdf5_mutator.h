/* hdf5_mutator: changes HDF5 files where libhdf5 and its users look: the messages of object headers (dataspace,
 * datatype, layout, filters, attributes, links) and the fields of trees and heaps. The length stays, so that addresses
 * stay true. Of files with headers of version 1, which have no checksums: those that this program and h5py write. A
 * seal is made anew by the target. For fuzz targets only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer's; absent, and not called, where a corpus is replayed. */
__attribute__((weak)) size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t max_size, unsigned seed);

#define MUTATOR_MAX_MESSAGES 1024
#define MESSAGE_HEADER 8 /* u16 type, u16 size, u8 flags, 3 zeros */

struct messages {
    size_t count, at[MUTATOR_MAX_MESSAGES]; /* of the message's header */
};

static inline uint32_t read_number(const uint8_t *at, int bytes) {
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)at[i] << 8 * i;
    return value;
}

static inline size_t body_size(const uint8_t *message) { return read_number(message + 2, 2); }

static inline void add_messages(const uint8_t *data, size_t at, size_t end, struct messages *out) {
    while (at + MESSAGE_HEADER <= end && at + MESSAGE_HEADER + body_size(data + at) <= end &&
           out->count < MUTATOR_MAX_MESSAGES) {
        out->at[out->count++] = at;
        at += MESSAGE_HEADER + body_size(data + at);
    }
}

/* An object header: u8 version 1, u8 0, u16 messages, u32 references, u32 size, u32 0. */
static inline void find_messages(const uint8_t *data, size_t size, struct messages *out) {
    out->count = 0;
    for (size_t at = 0; at + 16 <= size; at += 8) {
        const uint8_t *h = data + at;
        uint32_t count = read_number(h + 2, 2), references = read_number(h + 4, 4), length = read_number(h + 8, 4);
        if (h[0] != 1 || h[1] != 0 || count == 0 || count > 64 || references == 0 || references > 64) continue;
        if (read_number(h + 12, 4) == 0 && length <= size - at - 16) add_messages(data, at + 16, at + 16 + length, out);
    }
}

static inline uint32_t next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33);
}

/* A number of 1, 2, 4 or 8 bytes becomes one at the edge of something, or a place in the file. */
static inline void set_field(uint8_t *body, size_t size, size_t file_size, uint64_t *random) {
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     3,
                                     4,
                                     7,
                                     8,
                                     9,
                                     16,
                                     31,
                                     32,
                                     33,
                                     64,
                                     0x7f,
                                     0x80,
                                     0xff,
                                     0x7fff,
                                     0x8000,
                                     0xffff,
                                     1u << 20,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     1ull << 32,
                                     1ull << 45,
                                     1ull << 60,
                                     1ull << 61,
                                     1ull << 62,
                                     1ull << 63,
                                     UINT64_MAX,
                                     UINT64_MAX - 1};
    size_t width = (size_t)1 << next_random(random) % 4;
    if (size < width) return;
    size_t at = next_random(random) % (size - width + 1);
    if (next_random(random) % 4) at -= at % width;
    uint64_t value = edges[next_random(random) % (sizeof edges / sizeof *edges)];
    if (next_random(random) % 8 == 0) value = next_random(random) % file_size / 8 * 8;
    for (size_t i = 0; i < width; i++) body[at + i] = (uint8_t)(value >> 8 * i);
}

/* libFuzzer's own changes, within a few bytes. */
static inline void change_window(uint8_t *bytes, size_t size, uint64_t *random) {
    uint8_t window[64];
    if (size == 0 || !LLVMFuzzerMutate) return;
    size_t length = 1 + next_random(random) % (size < sizeof window ? size : sizeof window);
    size_t at = next_random(random) % (size - length + 1);
    memcpy(window, bytes + at, length);
    size_t now = LLVMFuzzerMutate(window, length, sizeof window);
    memcpy(bytes + at, window, now < length ? now : length);
}

/* The body of a message of the same type, or where there is none of any, from [other]. */
static inline void copy_body(uint8_t *message, const uint8_t *other, const struct messages *others, uint64_t *random) {
    for (int tries = 0; others->count && tries < 32; tries++) {
        const uint8_t *from = other + others->at[next_random(random) % others->count];
        if (from == message || (memcmp(from, message, 2) != 0 && tries < 24)) continue;
        size_t length = body_size(from) < body_size(message) ? body_size(from) : body_size(message);
        memmove(message + MESSAGE_HEADER, from + MESSAGE_HEADER, length);
        return;
    }
}

static inline void change_message(uint8_t *data, size_t size, const struct messages *all, uint64_t *random) {
    uint8_t *message = data + all->at[next_random(random) % all->count], *body = message + MESSAGE_HEADER;
    switch (next_random(random) % 8) {
    case 0:
        copy_body(message, data, all, random);
        break;
    case 1: /* another type of message */
        message[0] = (uint8_t)(next_random(random) % 0x18);
        break;
    case 2: /* size, flags */
        set_field(message + 2, 3, size, random);
        break;
    case 3:
        change_window(body, body_size(message), random);
        break;
    default:
        set_field(body, body_size(message), size, random);
    }
}

/* The numbers behind the signature of a tree, a heap or a symbol table, or in the superblock. */
static inline void change_index(uint8_t *data, size_t size, uint64_t *random) {
    static const char *const signatures[] = {"TREE", "HEAP", "SNOD", "GCOL", "\x89HDF"};
    const char *signature = signatures[next_random(random) % 5];
    size_t start = next_random(random) % size / 8 * 8;
    for (size_t i = 0; i + 64 <= size; i += 8) {
        size_t at = (start + i) % size / 8 * 8;
        if (at + 64 > size || memcmp(data + at, signature, 4) != 0) continue;
        set_field(data + at + 4, 60, size, random);
        return;
    }
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
    uint64_t random = seed;
    struct messages all;
    if (size < 64) return LLVMFuzzerMutate(data, size, max_size);
    find_messages(data, size, &all);
    for (uint32_t changes = 1 + next_random(&random) % 3; changes > 0; changes--) {
        uint32_t kind = next_random(&random) % 16;
        if (all.count && kind < 11)
            change_message(data, size, &all, &random);
        else if (kind < 14)
            change_index(data, size, &random);
        else
            change_window(data, size, &random);
    }
    return size;
}

/* File [a] with one body of [b]. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *a, size_t a_size, const uint8_t *b, size_t b_size, uint8_t *out,
                                 size_t max_size, unsigned seed) {
    uint64_t random = seed;
    struct messages mine, theirs;
    size_t size = a_size < max_size ? a_size : max_size;
    memcpy(out, a, size);
    find_messages(out, size, &mine);
    find_messages(b, b_size, &theirs);
    if (mine.count) copy_body(out + mine.at[next_random(&random) % mine.count], b, &theirs, &random);
    return size;
}
