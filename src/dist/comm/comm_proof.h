/* comm_proof: two ranks of a mesh of sockets prove to each other that they have the job's secret. Each sends the other
 * store_sign of the message below, which contains both ranks, the mesh, and a nonce that is new for every mesh, so no
 * proof can be used twice. Pure, so that a fuzzer can test it without a network. */
#ifndef DIST_COMM_PROOF_H
#define DIST_COMM_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define COMM_NONCE 32
#define COMM_PROOF 32

/* Adds to [out] the message that rank [from] signs for rank [to] of [mesh]. false: [size] of [nonce] is not COMM_NONCE.
 */
bool comm_proof_message(const char *mesh, int from, int to, const void *nonce, size_t size, struct text *out);

/* Whether the proofs are equal; compared in constant time. */
bool comm_proof_is_good(const uint8_t received[COMM_PROOF], const uint8_t expected[COMM_PROOF]);

#endif
