/* The labels of the keys differ by direction, so that a message cannot be reflected to its sender, and contain the
 * version, so that different versions have different keys. Data from which a key can be computed is overwritten after
 * use. */
#include "dist/process/message.h"

#include <assert.h>
#include <errno.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define TEXT_OF(number) #number
#define LABEL_FROM(version, side) "ddptrain " TEXT_OF(version) " from " side
#define LABEL 24
static_assert(sizeof LABEL_FROM(MESSAGE_VERSION, "client") <= LABEL + 1,
              "a label must contain the version and the side");

static void write_number(uint8_t *bytes, uint64_t value, int size) {
    for (int i = 0; i < size; i++) bytes[i] = (uint8_t)(value >> 8 * i);
}

void message_hmac(const uint8_t secret[32], const void *message, size_t size, uint8_t proof[32]) {
    struct hmac_sha256_ctx hmac;
    hmac_sha256_set_key(&hmac, 32, secret);
    hmac_sha256_update(&hmac, size, message);
    hmac_sha256_digest(&hmac, 32, proof);
    explicit_bzero(&hmac, sizeof hmac);
}

static void derive_key(const uint8_t secret[32], const char *label, const struct message_handshake *shake,
                       uint8_t key[SESSION_KEY]) {
    uint8_t message[LABEL + 2 * MESSAGE_NONCE + 24] = {0};
    uint8_t *at = message + LABEL;
    memcpy(message, label, strnlen(label, LABEL));
    memcpy(at, shake->client_nonce, MESSAGE_NONCE);
    memcpy(at + MESSAGE_NONCE, shake->server_nonce, MESSAGE_NONCE);
    at += 2 * MESSAGE_NONCE;
    write_number(at, shake->job, 8);
    write_number(at + 8, shake->rank, 4);
    write_number(at + 12, shake->world, 4);
    write_number(at + 16, shake->restart_count, 4);
    write_number(at + 20, shake->purpose, 4);
    message_hmac(secret, message, sizeof message, key);
}

void session_begin(struct message_session *session, const uint8_t secret[32], const struct message_handshake *shake,
                   bool is_server) {
    *session = (struct message_session){.is_on = true};
    derive_key(secret, LABEL_FROM(MESSAGE_VERSION, "client"), shake,
               is_server ? session->receive_key : session->send_key);
    derive_key(secret, LABEL_FROM(MESSAGE_VERSION, "server"), shake,
               is_server ? session->send_key : session->receive_key);
}

void session_end(struct message_session *session) { explicit_bzero(session, sizeof *session); }

static void make_tag(const uint8_t key[SESSION_KEY], uint64_t number, const void *head, size_t head_size,
                     const void *body, size_t body_size, uint8_t tag[SESSION_TAG]) {
    struct hmac_sha256_ctx hmac;
    uint8_t count[8];
    write_number(count, number, 8);
    hmac_sha256_set_key(&hmac, SESSION_KEY, key);
    hmac_sha256_update(&hmac, sizeof count, count);
    hmac_sha256_update(&hmac, head_size, head);
    if (body_size) hmac_sha256_update(&hmac, body_size, body);
    hmac_sha256_digest(&hmac, SESSION_TAG, tag);
    explicit_bzero(&hmac, sizeof hmac);
}

void session_sign(struct message_session *session, const void *message, size_t size, uint8_t tag[SESSION_TAG]) {
    make_tag(session->send_key, session->sent++, message, size, NULL, 0, tag);
}

bool session_verify(struct message_session *session, const void *head, size_t head_size, const void *body,
                    size_t body_size, const uint8_t tag[SESSION_TAG]) {
    uint8_t expected[SESSION_TAG];
    make_tag(session->receive_key, session->received++, head, head_size, body, body_size, expected);
    return nettle_memeql_sec(tag, expected, SESSION_TAG);
}

bool message_nonce(uint8_t nonce[MESSAGE_NONCE]) {
    ssize_t got;
    do got = getrandom(nonce, MESSAGE_NONCE, 0);
    while (got < 0 && errno == EINTR);
    return got == MESSAGE_NONCE;
}

/* ---- input ---- */

enum message_input message_read(int fd, void *bytes, size_t capacity, size_t *size) {
    ssize_t got;
    do got = recv(fd, (char *)bytes + *size, capacity - *size, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0) return errno == EAGAIN ? INPUT_NOTHING : INPUT_END;
    if (got == 0) errno = 0;
    *size += (size_t)got;
    return got > 0 ? INPUT_MORE : INPUT_END;
}

void message_drop(void *bytes, size_t *size, size_t used) {
    memmove(bytes, (char *)bytes + used, *size - used);
    *size -= used;
}
