/* store_session: authentication of one connection of the control plane. Both ends derive two keys, one for each
 * direction, from the job's secret, both nonces of the handshake and the purpose of the connection. Every message after
 * the handshake has a tag: HMAC-SHA-256, truncated to SESSION_TAG bytes, over the number of the message and its bytes.
 * A message that is altered, omitted, repeated, reordered or reflected to its sender has a wrong tag. */
#ifndef DIST_STORE_SESSION_H
#define DIST_STORE_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STORE_NONCE 32
#define SESSION_KEY 32
#define SESSION_TAG 16

/* The contents of the first two frames, HELLO and CHALLENGE. */
struct store_handshake {
    uint8_t client_nonce[STORE_NONCE], server_nonce[STORE_NONCE];
    uint64_t job;
    uint32_t rank, world, restart_count, purpose;
};

/* All zero: a connection inside one process, which needs no tags. It contains no pointers, so that a session can be
 * passed to another process together with its connection. */
struct store_session {
    uint8_t send_key[SESSION_KEY], receive_key[SESSION_KEY];
    uint64_t sent, received; /* messages with a tag so far */
    bool is_on;
};

/* Derives the keys and turns the session on. */
void session_begin(struct store_session *session, const uint8_t secret[32], const struct store_handshake *shake,
                   bool is_server);

/* Overwrites the keys. Every copy of a session must be ended, too. */
void session_end(struct store_session *session);

/* tag: of the next message to send, which is [head] (head_size) followed by [body] (body_size). */
void session_sign(struct store_session *session, const void *head, size_t head_size, const void *body, size_t body_size,
                  uint8_t tag[SESSION_TAG]);
/* Whether [tag] is correct for the next message received; compared in constant time. After false the connection must
 * not be used any more. */
bool session_verify(struct store_session *session, const void *head, size_t head_size, const void *body,
                    size_t body_size, const uint8_t tag[SESSION_TAG]);

/* proof: HMAC-SHA-256 of [message] with the job's secret. */
void store_hmac(const uint8_t secret[32], const void *message, size_t size, uint8_t proof[32]);

#endif
