/* Every length is checked before it is used, and data is copied into arrays of fixed size only. */
#include "dist/store/store_frame.h"

#include <stdio.h>
#include <string.h>

#include "base/files/digest.h"

static const uint8_t magic[4] = {'D', 'D', 'P', 'S'};

uint32_t store_read_u32(const uint8_t *b) {
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

void store_write_u32(uint8_t *b, uint32_t value) {
    for (int i = 0; i < 4; i++) b[i] = (uint8_t)(value >> 8 * i);
}

uint64_t store_read_u64(const uint8_t *b) { return store_read_u32(b) | (uint64_t)store_read_u32(b + 4) << 32; }

void store_write_u64(uint8_t *b, uint64_t value) {
    store_write_u32(b, (uint32_t)value);
    store_write_u32(b + 4, (uint32_t)(value >> 32));
}

enum store_parsed store_frame_parse(const uint8_t *bytes, size_t size, size_t limit, struct store_frame *frame,
                                    size_t *used) {
    size_t known = size < sizeof magic ? size : sizeof magic;
    if (memcmp(bytes, magic, known) != 0) return PARSED_INVALID;
    if (size < STORE_HEADER) return PARSED_INCOMPLETE;
    if (bytes[4] != STORE_VERSION || bytes[5] == 0 || bytes[5] >= FRAME_TYPES || bytes[6] || bytes[7])
        return PARSED_INVALID;
    uint32_t length = store_read_u32(bytes + 8);
    if (length > limit) return PARSED_INVALID;
    *frame = (struct store_frame){.type = (enum store_type)bytes[5],
                                  .rank = store_read_u32(bytes + 12),
                                  .job = store_read_u32(bytes + 16) | (uint64_t)store_read_u32(bytes + 20) << 32,
                                  .body = bytes + STORE_HEADER,
                                  .length = length};
    if (size - STORE_HEADER < length) return PARSED_INCOMPLETE;
    *used = STORE_HEADER + (size_t)length;
    return PARSED_FRAME;
}

int store_frame_version(const uint8_t *bytes, size_t size) {
    bool has_magic = size >= STORE_HEADER && memcmp(bytes, magic, sizeof magic) == 0;
    return has_magic && bytes[4] != STORE_VERSION ? bytes[4] : -1;
}

void store_frame_header(const struct store_frame *frame, uint8_t header[STORE_HEADER]) {
    memset(header, 0, STORE_HEADER);
    memcpy(header, magic, sizeof magic);
    header[4] = frame->version ? frame->version : STORE_VERSION;
    header[5] = (uint8_t)frame->type;
    store_write_u32(header + 8, frame->length);
    store_write_u32(header + 12, frame->rank);
    store_write_u32(header + 16, (uint32_t)frame->job);
    store_write_u32(header + 20, (uint32_t)(frame->job >> 32));
}

size_t store_frame_write(struct message_session *session, const struct store_frame *frame, uint8_t *bytes) {
    struct store_frame whole = *frame;
    size_t size = STORE_HEADER + (size_t)frame->length;
    if (session->is_on) whole.length += SESSION_TAG;
    store_frame_header(&whole, bytes);
    if (frame->length) memcpy(bytes + STORE_HEADER, frame->body, frame->length);
    if (!session->is_on) return size;
    session_sign(session, bytes, size, bytes + size);
    return size + SESSION_TAG;
}

bool store_frame_verify(struct message_session *session, struct store_frame *frame) {
    uint8_t header[STORE_HEADER];
    if (!session->is_on) return true;
    if (frame->length < SESSION_TAG) return false;
    store_frame_header(frame, header); /* the same bytes as received: parsing keeps every field */
    frame->length -= SESSION_TAG;
    return session_verify(session, header, sizeof header, frame->body, frame->length, frame->body + frame->length);
}

bool store_parse_hello(const struct store_frame *frame, struct store_hello *hello) {
    if (frame->type != FRAME_HELLO || frame->length != STORE_HELLO) return false;
    const uint8_t *numbers = frame->body + MESSAGE_NONCE;
    *hello = (struct store_hello){.nonce = frame->body,
                                  .world = store_read_u32(numbers),
                                  .restart_count = store_read_u32(numbers + 4),
                                  .purpose = store_read_u32(numbers + 8)};
    return hello->purpose < STORE_PURPOSES;
}

void store_write_hello(const struct store_hello *hello, uint8_t body[STORE_HELLO]) {
    memcpy(body, hello->nonce, MESSAGE_NONCE);
    store_write_u32(body + MESSAGE_NONCE, hello->world);
    store_write_u32(body + MESSAGE_NONCE + 4, hello->restart_count);
    store_write_u32(body + MESSAGE_NONCE + 8, hello->purpose);
}

bool store_parse_restart_count(const struct store_frame *frame, uint32_t *restart_count,
                               uint32_t *is_waiting_for_ranks) {
    if (frame->type != FRAME_RESTART_COUNT || frame->length != 8) return false;
    *restart_count = store_read_u32(frame->body);
    *is_waiting_for_ranks = store_read_u32(frame->body + 4);
    return true;
}

/* Times are sent in microseconds. */
void store_write_heartbeat(const struct activity_snapshot *r, uint8_t body[STORE_HEARTBEAT]) {
    const uint64_t numbers[] = {
        (uint64_t)r->step,       (uint64_t)r->saved, r->ticks, r->number, (uint64_t)(r->median_step * 1e6),
        (uint64_t)(r->cpu * 1e6)};
    memset(body, 0, STORE_HEARTBEAT);
    body[0] = (uint8_t)r->phase;
    body[1] = r->is_in_collective;
    for (size_t i = 0; i < 6; i++) store_write_u64(body + 4 + 8 * i, numbers[i]);
    memcpy(body + 4 + 48, r->call, strnlen(r->call, ACTIVITY_CALL_NAME - 1));
}

static bool read_heartbeat(const uint8_t *body, struct activity_snapshot *r) {
    const uint8_t *b = body + 4;
    if (body[0] >= ACTIVITY_PHASE_COUNT) return false;
    *r = (struct activity_snapshot){.phase = (enum activity_phase)body[0],
                                    .is_in_collective = body[1] != 0,
                                    .step = (int64_t)(store_read_u64(b) & INT64_MAX),
                                    .saved = (int64_t)(store_read_u64(b + 8) & INT64_MAX),
                                    .ticks = store_read_u64(b + 16),
                                    .number = store_read_u64(b + 24),
                                    .median_step = (double)store_read_u64(b + 32) * 1e-6,
                                    .cpu = (double)store_read_u64(b + 40) * 1e-6};
    store_parse_text(b + 48, strnlen((const char *)b + 48, ACTIVITY_CALL_NAME), r->call, sizeof r->call);
    return true;
}

bool store_parse_heartbeat(const struct store_frame *frame, struct activity_snapshot *reading) {
    return frame->type == FRAME_HEARTBEAT && frame->length == STORE_HEARTBEAT && read_heartbeat(frame->body, reading);
}

bool store_parse_server_heartbeat(const struct store_frame *frame, int64_t *saved, struct activity_snapshot *reading,
                                  char process[STORE_MAX_PROCESS]) {
    if (frame->type != FRAME_SERVER_HEARTBEAT || frame->length < 8 + STORE_HEARTBEAT) return false;
    *saved = (int64_t)(store_read_u64(frame->body) & INT64_MAX);
    store_parse_text(frame->body + 8 + STORE_HEARTBEAT, frame->length - 8 - STORE_HEARTBEAT, process,
                     STORE_MAX_PROCESS);
    return read_heartbeat(frame->body + 8, reading);
}

bool store_parse_rank_exit(const struct store_frame *frame, uint32_t *rank, char text[STORE_MAX_REPORT]) {
    if (frame->type != FRAME_RANK_EXIT || frame->length < 4) return false;
    *rank = store_read_u32(frame->body);
    store_parse_text(frame->body + 4, frame->length - 4, text, STORE_MAX_REPORT);
    return true;
}

bool store_parse_job_failure(const struct store_frame *frame, struct store_job_failure *failure,
                             char text[STORE_MAX_REPORT]) {
    if (frame->type != FRAME_JOB_FAILURE || frame->length < STORE_JOB_FAILURE) return false;
    failure->code = store_read_u32(frame->body);
    failure->rank = store_read_u32(frame->body + 4);
    failure->is_hang = store_read_u32(frame->body + 8);
    store_parse_text(frame->body + STORE_JOB_FAILURE, frame->length - STORE_JOB_FAILURE, text, STORE_MAX_REPORT);
    return true;
}

bool store_parse_proof(const struct store_frame *frame, char process[STORE_MAX_PROCESS]) {
    if (frame->type != FRAME_PROOF) return false;
    store_parse_text(frame->body, frame->length, process, STORE_MAX_PROCESS);
    return true;
}

static bool copy_key(const uint8_t *bytes, size_t length, char key[STORE_MAX_KEY + 1]) {
    if (length == 0 || length > STORE_MAX_KEY || memchr(bytes, 0, length)) return false;
    memcpy(key, bytes, length);
    key[length] = 0;
    return true;
}

bool store_parse_set(const struct store_frame *frame, char key[STORE_MAX_KEY + 1], const uint8_t **value,
                     size_t *size) {
    if (frame->type != FRAME_SET || frame->length < 1) return false;
    size_t length = frame->body[0];
    if (frame->length - 1 < length || !copy_key(frame->body + 1, length, key)) return false;
    *value = frame->body + 1 + length;
    *size = frame->length - 1 - length;
    return *size <= STORE_MAX_VALUE;
}

bool store_parse_get(const struct store_frame *frame, uint32_t *milliseconds, char key[STORE_MAX_KEY + 1]) {
    if ((frame->type != FRAME_GET && frame->type != FRAME_TAKE) || frame->length < 4) return false;
    *milliseconds = store_read_u32(frame->body);
    return copy_key(frame->body + 4, frame->length - 4, key);
}

bool store_parse_gather(const struct store_frame *frame, struct store_gather_request *request,
                        char key[STORE_MAX_KEY + 1]) {
    if (frame->type != FRAME_GATHER || frame->length < STORE_GATHER) return false;
    const uint8_t *b = frame->body;
    size_t length = b[1], left = frame->length - STORE_GATHER;
    if (b[0] >= GATHER_KINDS || left < length || !copy_key(b + STORE_GATHER, length, key)) return false;
    *request = (struct store_gather_request){.kind = (enum store_gather)b[0],
                                             .milliseconds = store_read_u32(b + 2),
                                             .index = store_read_u32(b + 6),
                                             .count = store_read_u32(b + 10),
                                             .value = b + STORE_GATHER + length,
                                             .size = left - length};
    return request->index < request->count && request->size <= STORE_MAX_VALUE;
}

size_t store_write_gather(const struct store_gather_request *r, const char *key, uint8_t *body) {
    size_t length = strlen(key);
    body[0] = (uint8_t)r->kind;
    body[1] = (uint8_t)length;
    store_write_u32(body + 2, r->milliseconds);
    store_write_u32(body + 6, r->index);
    store_write_u32(body + 10, r->count);
    memcpy(body + STORE_GATHER, key, length); /* NOLINT(bugprone-not-null-terminated-result): its length is before it */
    if (r->size) memcpy(body + STORE_GATHER + length, r->value, r->size);
    return STORE_GATHER + length + r->size;
}

static uint32_t run_length(const uint32_t *numbers, uint32_t count) {
    uint32_t length = 1;
    while (length < count && numbers[length] == numbers[0]) length++;
    return length;
}

size_t store_write_numbers(const uint32_t *numbers, uint32_t count, uint8_t *bytes) {
    size_t size = 0;
    for (uint32_t at = 0; at < count; size += 12) {
        uint32_t first = numbers[at], length = run_length(numbers + at, count - at), runs = 0;
        do {
            at += length;
            runs++;
        } while (at < count && numbers[at] == first + runs && run_length(numbers + at, count - at) == length);
        store_write_u32(bytes + size, first);
        store_write_u32(bytes + size + 4, runs);
        store_write_u32(bytes + size + 8, length);
    }
    return size;
}

bool store_parse_numbers(const uint8_t *bytes, size_t size, uint32_t count, int *numbers) {
    uint32_t at = 0;
    for (; size >= 12; bytes += 12, size -= 12) {
        uint32_t first = store_read_u32(bytes), runs = store_read_u32(bytes + 4), length = store_read_u32(bytes + 8);
        uint64_t ranks = (uint64_t)runs * length;
        if (ranks == 0 || ranks > count - at || first > count || runs > count - first) return false;
        for (uint32_t i = 0; i < ranks; i++) numbers[at++] = (int)(first + i / length);
    }
    return size == 0 && at == count;
}

bool store_parse_wait(const struct store_frame *frame, uint32_t *milliseconds) {
    if (frame->length != 4) return false;
    *milliseconds = store_read_u32(frame->body);
    return true;
}

bool store_parse_failure(const struct store_frame *frame, uint32_t *code, char text[STORE_MAX_REPORT]) {
    if (frame->length < 4) return false;
    *code = store_read_u32(frame->body);
    store_parse_text(frame->body + 4, frame->length - 4, text, STORE_MAX_REPORT);
    return true;
}

void store_parse_text(const uint8_t *bytes, size_t length, char *text, size_t size) {
    if (length > size - 1) length = size - 1;
    for (size_t i = 0; i < length; i++) {
        bool is_plain = (bytes[i] >= 0x20 && bytes[i] != 0x7f) || bytes[i] == '\n' || bytes[i] == '\t';
        text[i] = is_plain ? (char)bytes[i] : '?';
    }
    text[length] = 0;
}

double store_heartbeat_seconds(int world_size, double crowd) {
    double seconds = 0.5 * world_size / 10000;
    return (seconds < 0.2 ? 0.2 : seconds) * crowd;
}

double store_pace(int world_size, double crowd) { return (world_size <= 10000 ? 1 : world_size / 10000.0) * crowd; }

void store_describe_count(int world_size, int node_size, char text[64]) {
    int length = snprintf(text, 64, "%d rank%s", world_size, text_plural((uint64_t)world_size, "s"));
    if (node_size > 0 && node_size < world_size && world_size % node_size == 0)
        snprintf(text + length, 64 - (size_t)length, ", %d on each of %d nodes", node_size, world_size / node_size);
}

uint64_t store_job_hash(const char *job_id) {
    uint8_t hash[DIGEST_SIZE];
    digest_of(job_id, strlen(job_id), hash);
    return store_read_u32(hash) | (uint64_t)store_read_u32(hash + 4) << 32;
}
