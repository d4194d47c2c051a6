/* message: what the protocols between processes share: the store's frames, the links between launchers, the ranks of a
 * sweep. message_read collects the parts of a message. A session authenticates one connection: both ends derive two
 * keys, one for each direction, from the job's secret, both nonces of the handshake and the purpose of the connection.
 * Every message after the handshake has a tag: HMAC-SHA-256, truncated to SESSION_TAG bytes, over the number of the
 * message and its bytes. A message that is altered, omitted, repeated, reordered or reflected to its sender has a wrong
 * tag. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In the keys, so that different versions of the program have different ones. */
#define MESSAGE_VERSION 6

#define MESSAGE_NONCE 32
#define SESSION_KEY 32
#define SESSION_TAG 16

/* The contents of the first two frames, HELLO and CHALLENGE. */
struct message_handshake {
    uint8_t client_nonce[MESSAGE_NONCE], server_nonce[MESSAGE_NONCE];
    uint64_t job;
    uint32_t rank, world, restart_count, purpose;
};

/* All zero: a connection inside one process, which needs no tags. It contains no pointers, so that a session can be
 * passed to another process together with its connection. */
struct message_session {
    uint8_t send_key[SESSION_KEY], receive_key[SESSION_KEY];
    uint64_t sent, received; /* messages with a tag so far */
    bool is_on;
};

/* Derives the keys and turns the session on. */
void session_begin(struct message_session *session, const uint8_t secret[32], const struct message_handshake *shake,
                   bool is_server);

/* Overwrites the keys. Every copy of a session must be ended, too. */
void session_end(struct message_session *session);

/* tag: of the next message to send. */
void session_sign(struct message_session *session, const void *message, size_t size, uint8_t tag[SESSION_TAG]);
/* Whether [tag] is correct for the next message received, [head] (head_size) followed by [body] (body_size); compared
 * in constant time. After false the connection must not be used any more. */
bool session_verify(struct message_session *session, const void *head, size_t head_size, const void *body,
                    size_t body_size, const uint8_t tag[SESSION_TAG]);

/* proof: HMAC-SHA-256 of [message] with the job's secret. */
void message_hmac(const uint8_t secret[32], const void *message, size_t size, uint8_t proof[32]);

/* A new nonce. false: there is none. */
bool message_nonce(uint8_t nonce[MESSAGE_NONCE]);

enum message_input {
    INPUT_MORE,    /* *size is larger */
    INPUT_NOTHING, /* nothing has arrived */
    INPUT_END      /* the other end was closed (errno 0), or the connection failed (errno) */
};
/* Adds what has arrived on the socket to bytes (*size of at most [capacity]), without blocking. */
enum message_input message_read(int fd, void *bytes, size_t capacity, size_t *size);
/* Removes the first [used] of the bytes (*size). */
void message_drop(void *bytes, size_t *size, size_t used);
