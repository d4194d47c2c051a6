/* The nonce is last and has a fixed length, and the name of a mesh has no colon, so all messages differ. */
#include "dist/comm/comm_proof.h"

#include <nettle/memops.h>

bool comm_proof_message(const char *mesh, int from, int to, const void *nonce, size_t size, struct text *out) {
    if (size != COMM_NONCE) return false;
    text_printf(out, "%s:%d>%d:", mesh, from, to);
    text_add_bytes(out, nonce, size);
    return true;
}

bool comm_proof_is_good(const uint8_t received[COMM_PROOF], const uint8_t expected[COMM_PROOF]) {
    return nettle_memeql_sec(received, expected, COMM_PROOF) != 0;
}
