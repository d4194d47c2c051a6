/* store_frame: the protocol between client and server of the store. Every function here is pure, so a fuzzer can test
 * it without a network.
 *
 * A frame is a header of STORE_HEADER bytes, little-endian, and a body:
 *   0 magic "DDPS" | 4 version | 5 type | 6 two zeros | 8 length of the body u32 | 12 rank u32 | 16 job u64
 * Joining: client HELLO -> server CHALLENGE -> client PROOF -> server WELCOME, or REJECT with a reason, or
 * RESTART_COUNT for a rank of another start. From PROOF on every frame ends with a tag (message.h), counted in
 * its length: the tags of PROOF and WELCOME prove that both sides have the job's secret; the server answers no request
 * before. A frame with a wrong tag ends the connection, and its rank is lost for that reason. HELLO and CHALLENGE are
 * not authenticated, but their contents are part of the keys; a REJECT before the proof is not authenticated either,
 * and is reported as such. Rank 0's own connection is a socket pair inside its process and has no tags.
 *
 * A rank has one connection. It sends one request at a time: READY, SET, GET, TAKE, GATHER, CAUSE are answered by DONE,
 * VALUE or ERROR; REPORT and BYE have no answer. At any time the rank also sends HEARTBEATs and RANK_EXITs, the server
 * SERVER_HEARTBEATs and at last JOB_FAILURE or BYE. Another one, the link, carries no frames after WELCOME: both ranks
 * pass their ends of it, with the session, to their launchers (launch_nodes.c). A rank with another world size than the
 * server is rejected; when it gives up it reports so by a connection with the purpose FOR_GIVING_UP, which is rejected,
 * too, and ends the wait of the ranks that have joined.
 */
#pragma once

#include "dist/process/activity.h"
#include "dist/process/message.h"
#include "dist/store/store.h"

#define STORE_VERSION MESSAGE_VERSION /* the header and REJECT are the same in all versions */
#define STORE_HEADER 24
#define STORE_HELLO (MESSAGE_NONCE + 12)
#define STORE_HEARTBEAT (4 + 6 * 8 + ACTIVITY_CALL_NAME)
#define STORE_MAX_PROCESS 160 /* "host n1, pid 71" */
#define STORE_MAX_REPORT 2048 /* the message of a failure */
#define STORE_GATHER 14       /* before the key of GATHER */
/* The longest body before and after a rank has joined. */
#define STORE_MAX_JOINING 256
#define STORE_MAX_BODY (STORE_MAX_VALUE + STORE_MAX_KEY + STORE_GATHER + SESSION_TAG)

/* The purpose of a connection. */
enum store_purpose { FOR_RANK, FOR_LINK, FOR_GIVING_UP, STORE_PURPOSES };

enum store_type {
    FRAME_HELLO = 1,        /* nonce, u32 world size, u32 restart count, u32 purpose */
    FRAME_CHALLENGE,        /* nonce */
    FRAME_PROOF,            /* process: text */
    FRAME_WELCOME,          /* empty */
    FRAME_REJECT,           /* text */
    FRAME_READY,            /* u32 milliseconds; answer: DONE when all ranks have joined */
    FRAME_SET,              /* u8 length of the key, key, value; answer: DONE */
    FRAME_GET,              /* u32 milliseconds, key; answer: VALUE */
    FRAME_CAUSE,            /* u32 milliseconds; answer: VALUE, the rank that failed first and its reason */
    FRAME_REPORT,           /* u32 status code, text: the failure of this rank, which will leave */
    FRAME_BYE,              /* empty: leaves without a failure; the server closes the connection */
    FRAME_DONE,             /* empty */
    FRAME_VALUE,            /* bytes */
    FRAME_ERROR,            /* u32 status code, text */
    FRAME_RESTART_COUNT,    /* u32 restart count of the server, u32 1 while it waits for ranks to join, else 0 */
    FRAME_HEARTBEAT,        /* a activity_snapshot */
    FRAME_RANK_EXIT,        /* u32 rank, text: how another rank of this host ended */
    FRAME_SERVER_HEARTBEAT, /* u64 step of the newest checkpoint, rank 0's activity_snapshot, text: host and pid of rank
                             * 0
                             */
    FRAME_JOB_FAILURE, /* u32 status code, u32 rank or UINT32_MAX, u32 1 if the rank hung, text: the failure that ends
                          the job */
    FRAME_GATHER,      /* u8 kind, u8 length of the key, u32 milliseconds, u32 index, u32 count, key, value; answer:
                        * VALUE when all [count] values have arrived, the same for all who sent one */
    FRAME_TAKE,        /* as GET; the key is then removed */
    FRAME_TYPES
};

struct store_frame {
    enum store_type type;
    uint32_t rank;
    uint8_t version; /* to be written into the header; 0: STORE_VERSION */
    uint64_t job;
    const uint8_t *body; /* (length), inside the bytes that were parsed */
    uint32_t length;
};

enum store_parsed { PARSED_FRAME, PARSED_INCOMPLETE, PARSED_INVALID };

/* Parses the first frame of bytes (size). PARSED_INCOMPLETE: bytes are missing; if there are STORE_HEADER bytes or
 * more, *frame is set except for the body. PARSED_INVALID: not a frame of this version, or a body longer than [limit].
 * PARSED_FRAME: *used is the length of the frame in bytes. */
enum store_parsed store_frame_parse(const uint8_t *bytes, size_t size, size_t limit, struct store_frame *frame,
                                    size_t *used);

/* The version of a frame of another version of the protocol; -1: it is not one. */
int store_frame_version(const uint8_t *bytes, size_t size);

void store_frame_header(const struct store_frame *frame, uint8_t header[STORE_HEADER]);

/* Writes header, body and, if the session is on, the tag. Returns the size: at most STORE_HEADER + frame->length +
 * SESSION_TAG. */
size_t store_frame_write(struct message_session *session, const struct store_frame *frame, uint8_t *bytes);
/* Verifies the tag of a parsed frame and subtracts it from frame->length. true if the session is off. After false the
 * connection must not be used any more. */
bool store_frame_verify(struct message_session *session, struct store_frame *frame);

/* Parse and write bodies of the frame types above. false: the body is malformed. */
struct store_hello {
    const uint8_t *nonce; /* (MESSAGE_NONCE), inside the frame */
    uint32_t world, restart_count, purpose;
};
bool store_parse_hello(const struct store_frame *frame, struct store_hello *hello);
void store_write_hello(const struct store_hello *hello, uint8_t body[STORE_HELLO]);
bool store_parse_restart_count(const struct store_frame *frame, uint32_t *restart_count,
                               uint32_t *is_waiting_for_ranks);
bool store_parse_heartbeat(const struct store_frame *frame, struct activity_snapshot *reading);
void store_write_heartbeat(const struct activity_snapshot *reading, uint8_t body[STORE_HEARTBEAT]);
bool store_parse_server_heartbeat(const struct store_frame *frame, int64_t *saved, struct activity_snapshot *reading,
                                  char process[STORE_MAX_PROCESS]);
#define STORE_MAX_SERVER_HEARTBEAT (8 + STORE_HEARTBEAT + STORE_MAX_PROCESS)

bool store_parse_rank_exit(const struct store_frame *frame, uint32_t *rank, char text[STORE_MAX_REPORT]);
struct store_job_failure {
    uint32_t code, rank, is_hang;
};
#define STORE_JOB_FAILURE 12
bool store_parse_job_failure(const struct store_frame *frame, struct store_job_failure *failure,
                             char text[STORE_MAX_REPORT]);
bool store_parse_proof(const struct store_frame *frame, char process[STORE_MAX_PROCESS]);
bool store_parse_set(const struct store_frame *frame, char key[STORE_MAX_KEY + 1], const uint8_t **value, size_t *size);
bool store_parse_get(const struct store_frame *frame, uint32_t *milliseconds,
                     char key[STORE_MAX_KEY + 1]); /* GET, TAKE */

/* What the store makes of the values of a GATHER, so that its answer does not grow with the ranks where they do not
 * differ. */
enum store_gather {
    GATHER_NUMBERS, /* equal values have equal numbers, from 0 in order of the first index: store_write_numbers */
    GATHER_FIRST,   /* u32 index, value: the first in order of index that is not empty; empty: all are */
    GATHER_KINDS
};
struct store_gather_request {
    enum store_gather kind;
    uint32_t milliseconds, index, count; /* index < count */
    const uint8_t *value;                /* (size), inside the frame */
    size_t size;
};
bool store_parse_gather(const struct store_frame *frame, struct store_gather_request *request,
                        char key[STORE_MAX_KEY + 1]);
/* Returns the size of the body, at most STORE_MAX_BODY - SESSION_TAG. */
size_t store_write_gather(const struct store_gather_request *request, const char *key, uint8_t *body);

/* The numbers (count) of ranks as triples {first, runs, length} of u32: [runs] runs of [length] equal numbers, which
 * increase by one from run to run. One triple if each host has the same number of ranks in order, as they usually
 * have; at most [count] triples. bytes: STORE_NUMBERS(count). Returns the size. */
#define STORE_NUMBERS(count) (12 * (size_t)(count))
size_t store_write_numbers(const uint32_t *numbers, uint32_t count, uint8_t *bytes);
/* false: not the numbers of [count] ranks. */
bool store_parse_numbers(const uint8_t *bytes, size_t size, uint32_t count, int *numbers);

bool store_parse_wait(const struct store_frame *frame, uint32_t *milliseconds); /* READY, CAUSE */
bool store_parse_failure(const struct store_frame *frame, uint32_t *code,
                         char text[STORE_MAX_REPORT]); /* REPORT, ERROR */
/* text (size): the bytes as a string, truncated; control characters other than newline and tab become '?'. */
void store_parse_text(const uint8_t *bytes, size_t length, char *text, size_t size);

/* Seconds between two heartbeats of a rank, and of the server: 0.2 for up to 4,000 ranks, then in proportion to them,
 * so that heartbeats are a tenth of what the store's thread can do: 0.5 for 10,000 ranks. [crowd]: ranks of this host
 * for each of its processors / 64, at least 1: the threads that send and receive them run as rarely. */
double store_heartbeat_seconds(int world_size, double crowd);
/* The factor by which ranks may be silent for longer, since heartbeats are rarer: 1 for up to 10,000 ranks. */
double store_pace(int world_size, double crowd);

/* "4 ranks, 2 on each of 2 nodes"; [node_size] as in members_create. */
void store_describe_count(int world_size, int node_size, char text[64]);

uint32_t store_read_u32(const uint8_t *bytes);
void store_write_u32(uint8_t *bytes, uint32_t value);
uint64_t store_read_u64(const uint8_t *bytes);
void store_write_u64(uint8_t *bytes, uint64_t value);

/* The first 64 bits of the SHA-256 of the job id. */
uint64_t store_job_hash(const char *job_id);
