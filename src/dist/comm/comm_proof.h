/* comm_proof: how two ranks of a mesh of sockets show each other that they know the job's secret. Each sends the other
 * store_sign of the message below; from, to and the mesh are in it, and the nonce is new for every mesh, so no proof
 * can be used twice. Pure, so strangers' bytes can be tried on it without a network. */
#ifndef DIST_COMM_PROOF_H
#define DIST_COMM_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"

#define COMM_NONCE 32
#define COMM_PROOF 32

/* Adds to [out] what rank [from] signs for rank [to] of [mesh]. false: [nonce] (size) is not of COMM_NONCE bytes. */
bool comm_proof_message(const char *mesh, int from, int to, const void *nonce, size_t size, struct text *out);

/* Compared in constant time. */
bool comm_proof_is_good(const uint8_t received[COMM_PROOF], const uint8_t expected[COMM_PROOF]);

#endif
