/* Any bytes as frames of the store: parsed with the limit before and after authentication, the parts stay inside the
 * bytes, and what is parsed is written back as it was. On a session that is on, none of them is taken without a right
 * tag, and a frame with one is taken once, as it was, by the other side only, and not after a change. */
#include <stdlib.h>
#include <string.h>

#include "dist/process/env.h"
#include "dist/store/store_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void must(bool condition) {
    if (!condition) abort();
}

static bool is_inside(const uint8_t *part, size_t length, const struct store_frame *frame) {
    return part >= frame->body && part + length <= frame->body + frame->length;
}

static void read_body(const struct store_frame *frame) {
    char key[STORE_MAX_KEY + 1], process[STORE_MAX_PROCESS], text[STORE_MAX_REPORT];
    const uint8_t *part;
    uint32_t number;
    size_t size;
    struct store_hello hello;
    struct activity_snapshot reading;
    uint32_t other;
    if (store_parse_hello(frame, &hello))
        must(is_inside(hello.nonce, MESSAGE_NONCE, frame) && hello.purpose < STORE_PURPOSES);
    if (store_parse_heartbeat(frame, &reading)) must(strlen(reading.call) < sizeof reading.call && reading.step >= 0);
    if (store_parse_rank_exit(frame, &number, text)) must(strlen(text) < sizeof text);
    struct store_job_failure news;
    if (store_parse_job_failure(frame, &news, text)) must(strlen(text) < sizeof text);
    int64_t saved;
    if (store_parse_server_heartbeat(frame, &saved, &reading, process))
        must(saved >= 0 && strlen(process) < sizeof process);
    store_parse_restart_count(frame, &number, &other);
    if (store_parse_proof(frame, process)) must(strlen(process) < sizeof process);
    if (store_parse_set(frame, key, &part, &size)) {
        must(is_inside(part, size, frame) && size <= STORE_MAX_VALUE);
        must(*key && strlen(key) <= STORE_MAX_KEY);
    }
    if (store_parse_get(frame, &number, key)) must(*key && strlen(key) <= STORE_MAX_KEY);
    if (store_parse_failure(frame, &number, text)) must(strlen(text) < sizeof text);
    struct store_gather_request gather;
    if (store_parse_gather(frame, &gather, key)) {
        must(is_inside(gather.value, gather.size, frame) && gather.size <= STORE_MAX_VALUE);
        must(*key && gather.index < gather.count && gather.kind < GATHER_KINDS);
    }
    int numbers[64];
    if (store_parse_numbers(frame->body, frame->length, 64, numbers))
        for (int i = 0; i < 64; i++) must(numbers[i] >= 0 && numbers[i] < 64);
    store_parse_wait(frame, &number);
}

static void parse_all(const uint8_t *bytes, size_t size, size_t limit) {
    struct store_frame frame;
    size_t used = 0;
    while (store_frame_parse(bytes, size, limit, &frame, &used) == PARSED_FRAME) {
        uint8_t header[STORE_HEADER];
        must(used <= size && used == STORE_HEADER + (size_t)frame.length && frame.length <= limit);
        store_frame_header(&frame, header);
        must(memcmp(header, bytes, STORE_HEADER) == 0);
        read_body(&frame);
        bytes += used;
        size -= used;
    }
}

static void begin_sessions(struct message_session *client, struct message_session *server) {
    static const uint8_t secret[32] = "a secret that nobody else knows";
    static const struct message_handshake shake = {.job = 7, .rank = 1, .world = 2};
    session_begin(client, secret, &shake, false);
    session_begin(server, secret, &shake, true);
}

/* A sender without the keys has no valid tag. */
static void verify_all(const uint8_t *bytes, size_t size) {
    struct message_session client, server;
    struct store_frame frame;
    size_t used = 0;
    begin_sessions(&client, &server);
    while (store_frame_parse(bytes, size, STORE_MAX_BODY, &frame, &used) == PARSED_FRAME) {
        must(!store_frame_verify(&server, &frame));
        bytes += used;
        size -= used;
    }
}

/* Parses and verifies the one frame of bytes (size), as [session] receives it. */
static bool is_taken(struct message_session *session, const uint8_t *bytes, size_t size, struct store_frame *frame) {
    size_t used;
    if (store_frame_parse(bytes, size, STORE_MAX_BODY, frame, &used) != PARSED_FRAME) return false;
    return used == size && store_frame_verify(session, frame);
}

/* A frame of any type and body, signed; [bytes]: type, what is changed and how, the body. */
static void sign_and_change(const uint8_t *bytes, size_t size) {
    struct message_session client, server;
    if (size < 4 || size > STORE_MAX_BODY - SESSION_TAG) return;
    struct store_frame frame = {.type = (enum store_type)(1 + bytes[0] % (FRAME_TYPES - 1)),
                                .rank = 1,
                                .job = 7,
                                .body = bytes + 4,
                                .length = (uint32_t)(size - 4)},
                       taken;
    uint8_t *sent = malloc(STORE_HEADER + size + SESSION_TAG);
    must(sent != NULL);
    begin_sessions(&client, &server);
    size_t length = store_frame_write(&client, &frame, sent);
    must(!is_taken(&client, sent, length, &taken)); /* sent back */
    size_t at = ((size_t)bytes[1] | (size_t)bytes[2] << 8) % length;
    sent[at] ^= bytes[3];
    must(is_taken(&server, sent, length, &taken) == (bytes[3] == 0));
    sent[at] ^= bytes[3];
    begin_sessions(&client, &server);
    must(is_taken(&server, sent, length, &taken) && taken.type == frame.type && taken.length == frame.length &&
         memcmp(taken.body, frame.body, frame.length) == 0);
    must(!is_taken(&server, sent, length, &taken)); /* repeated */
    free(sent);
}

/* Slurm's lists come from outside as well. */
static void read_lists(const uint8_t *bytes, size_t size) {
    char host[64], *list = strndup((const char *)bytes, size < 256 ? size : 256);
    must(list != NULL);
    int count = slurm_host_count(list);
    must(count >= 0 && (count == 0 || !slurm_host(list, count, host, sizeof host)));
    slurm_count(list, 3);
    free(list);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    uint8_t *copy = malloc(size ? size : 1); /* exact, so that the sanitizer sees a byte too far */
    must(copy != NULL);
    memcpy(copy, bytes, size);
    parse_all(copy, size, STORE_MAX_JOINING);
    parse_all(copy, size, STORE_MAX_BODY);
    if (size) { /* the body of any type */
        struct store_frame frame = {
            .type = (enum store_type)(copy[0] % FRAME_TYPES), .body = copy + 1, .length = (uint32_t)(size - 1)};
        read_body(&frame);
    }
    verify_all(copy, size);
    sign_and_change(copy, size);
    free(copy);
    read_lists(bytes, size);
    return 0;
}
