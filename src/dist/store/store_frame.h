/* store_frame: the bytes that the store's client and server exchange. Every function here is pure, so strangers' bytes
 * can be tried on it without a network.
 *
 * A frame is a header of STORE_HEADER bytes, little-endian, and a body:
 *   0 magic "DDPS" | 4 version | 5 type | 6 two zeros | 8 length of the body u32 | 12 rank u32 | 16 job u64
 * Joining:   client HELLO -> server CHALLENGE -> client PROOF -> server WELCOME, or REFUSE with a sentence, or OTHER
 * for a rank of another incarnation. From PROOF on every frame ends with a tag (store_session.h), counted in its
 * length: the tags of PROOF and WELCOME prove that both sides know the job's secret; nothing else is answered before. A
 * frame whose tag is wrong ends the connection, and the rank that it belongs to is lost with that reason. Not
 * authenticated are HELLO and CHALLENGE, whose contents enter the keys, and a REFUSE before the proof, which is
 * reported as such. Rank 0's own two connections are socket pairs inside its process and have no tags. Then the client
 * asks, one request at a time: READY, SET, GET, CAUSE are answered by DONE, VALUE or FAIL; REPORT and BYE are not. A
 * rank's second connection, its watch, asks nothing: the rank sends BEATs and DEATHs, the server TICKs, at last NEWS of
 * the failure or BYE. A third one, the link, says nothing more to the server: both ranks hand their ends of it, with
 * the session, to their launchers (launch_nodes.c). A rank that counts other ranks than the server is refused; when it
 * gives up it says so by a connection for parting, which is refused, too, and ends the wait of those who have joined.
 */
#ifndef DIST_STORE_FRAME_H
#define DIST_STORE_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dist/process/pulse.h"
#include "dist/store/store.h"
#include "dist/store/store_session.h"

#define STORE_VERSION 3 /* the first 24 bytes and REFUSE are the same in all */
#define STORE_HEADER 24
#define STORE_HELLO (STORE_NONCE + 12)
#define STORE_BEAT (4 + 6 * 8 + PULSE_CALL_NAME)
#define STORE_MAX_WHO 160     /* "host n1, pid 71" */
#define STORE_MAX_REPORT 2048 /* the sentence of a failure */
/* The longest body: of a stranger, and of a rank that has joined. */
#define STORE_MAX_JOINING 256
#define STORE_MAX_BODY (STORE_MAX_VALUE + STORE_MAX_KEY + 8 + SESSION_TAG)

/* What a connection is for. */
enum store_purpose { FOR_REQUESTS, FOR_WATCHING, FOR_LAUNCHERS, FOR_PARTING, STORE_PURPOSES };

enum store_type {
    FRAME_HELLO = 1, /* nonce, u32 world size, u32 incarnation, u32 purpose */
    FRAME_CHALLENGE, /* nonce */
    FRAME_PROOF,     /* who: text */
    FRAME_WELCOME,   /* nothing */
    FRAME_REFUSE,    /* text */
    FRAME_READY,     /* u32 milliseconds; DONE when all ranks have joined */
    FRAME_SET,       /* u8 length of the key, key, value; DONE */
    FRAME_GET,       /* u32 milliseconds, key; VALUE */
    FRAME_CAUSE,     /* u32 milliseconds; VALUE: the rank that left and its reason */
    FRAME_REPORT,    /* u32 status code, text: why this rank will leave */
    FRAME_BYE,       /* nothing: leaving in peace */
    FRAME_DONE,      /* nothing */
    FRAME_VALUE,     /* bytes */
    FRAME_FAIL,      /* u32 status code, text */
    FRAME_OTHER,     /* u32 incarnation of the server, u32 1 while it waits for ranks, else 0 */
    FRAME_BEAT,      /* a pulse_reading */
    FRAME_DEATH,     /* u32 rank, text: how another rank of this host died */
    FRAME_TICK,      /* u64 the step of the newest checkpoint, rank 0's pulse_reading, its who: text */
    FRAME_NEWS,      /* u32 status code, u32 rank or all ones, u32 1 after a standstill, text: what ends the job */
    FRAME_TYPES
};

struct store_frame {
    enum store_type type;
    uint32_t rank;
    uint8_t version; /* of the protocol, when another one is to be written; 0: STORE_VERSION */
    uint64_t job;
    const uint8_t *body; /* inside the bytes that were parsed */
    uint32_t length;
};

enum store_parsed { PARSED_FRAME, PARSED_MORE, PARSED_BAD };

/* Looks at the first frame of bytes (size). PARSED_MORE: its beginning is right, bytes are missing; with STORE_HEADER
 * bytes or more *frame is filled but for the body. PARSED_BAD: no frame of ours, or a body longer than [limit]. *used
 * is its length in bytes with PARSED_FRAME. */
enum store_parsed store_frame_parse(const uint8_t *bytes, size_t size, size_t limit, struct store_frame *frame,
                                    size_t *used);

/* Of a frame of ours that is of another version of the protocol; -1: it is not. */
int store_frame_version(const uint8_t *bytes, size_t size);

void store_frame_header(const struct store_frame *frame, uint8_t header[STORE_HEADER]);

/* Writes header, body and, where the session is on, the tag; returns the size: STORE_HEADER + SESSION_TAG beyond
 * frame->length at most. */
size_t store_frame_write(struct store_session *session, const struct store_frame *frame, uint8_t *bytes);
/* Of a frame as it was parsed: verifies its tag, which then no longer counts in frame->length. true without a session.
 * After false the connection must not be used any more. */
bool store_frame_verify(struct store_session *session, struct store_frame *frame);

/* The parts of a body, of the frame types above; false when the body is not of that form. */
struct store_hello {
    const uint8_t *nonce; /* (STORE_NONCE), inside the frame */
    uint32_t world, incarnation, purpose;
};
bool store_parse_hello(const struct store_frame *frame, struct store_hello *hello);
void store_write_hello(const struct store_hello *hello, uint8_t body[STORE_HELLO]);
bool store_parse_other(const struct store_frame *frame, uint32_t *incarnation, uint32_t *is_gathering);
bool store_parse_beat(const struct store_frame *frame, struct pulse_reading *reading);
void store_write_beat(const struct pulse_reading *reading, uint8_t body[STORE_BEAT]);
bool store_parse_tick(const struct store_frame *frame, int64_t *saved, struct pulse_reading *reading,
                      char who[STORE_MAX_WHO]);
#define STORE_MAX_TICK (8 + STORE_BEAT + STORE_MAX_WHO)
/* DEATH: the rank and the text; NEWS: also the code, and whether the rank stood still for long before. */
bool store_parse_death(const struct store_frame *frame, uint32_t *rank, char text[STORE_MAX_REPORT]);
struct store_news {
    uint32_t code, rank, is_standstill;
};
#define STORE_NEWS 12
bool store_parse_news(const struct store_frame *frame, struct store_news *news, char text[STORE_MAX_REPORT]);
bool store_parse_proof(const struct store_frame *frame, char who[STORE_MAX_WHO]);
bool store_parse_set(const struct store_frame *frame, char key[STORE_MAX_KEY + 1], const uint8_t **value, size_t *size);
bool store_parse_get(const struct store_frame *frame, uint32_t *milliseconds, char key[STORE_MAX_KEY + 1]);
bool store_parse_wait(const struct store_frame *frame, uint32_t *milliseconds); /* READY, CAUSE */
bool store_parse_failure(const struct store_frame *frame, uint32_t *code,
                         char text[STORE_MAX_REPORT]); /* REPORT, FAIL */
/* Text of a frame without control characters other than newline and tab, cut to fit. */
void store_parse_text(const uint8_t *bytes, size_t length, char *text, size_t size);

/* "4 ranks, 2 on each of 2 nodes"; node_size as members_create's. */
void store_describe_count(int world_size, int node_size, char text[64]);

uint32_t store_read_u32(const uint8_t *bytes);
void store_write_u32(uint8_t *bytes, uint32_t value);
uint64_t store_read_u64(const uint8_t *bytes);
void store_write_u64(uint8_t *bytes, uint64_t value);

/* 64 bits of SHA-256 of the job id. */
uint64_t store_job_hash(const char *job_id);

#endif
