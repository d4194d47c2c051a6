/* Any bytes as the nonce, the proof and the name of a link between two ranks: accepted are only the very bytes that the
 * secret gives, and no other pair, link or nonce has the same message. */
#include <stdlib.h>
#include <string.h>

#include "dist/comm/comm_backend.h"
#include "dist/process/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static const uint8_t secret[32] = "a secret that nobody else knows";

static void must(bool condition) {
    if (!condition) abort();
}

static void sign(const struct text *message, uint8_t proof[COMM_PROOF]) {
    message_hmac(secret, message->data, message->length, proof);
}

static bool is_same(const struct text *a, const struct text *b) {
    return a->length == b->length && memcmp(a->data, b->data, a->length) == 0;
}

/* [bytes]: from, to, what is changed, where and how, the length of the nonce, then the nonce, a proof, the link. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct text message = {0}, other = {0};
    uint8_t expected[COMM_PROOF], received[COMM_PROOF], reflected[COMM_PROOF], nonce[COMM_NONCE];
    char link[65] = {0};
    if (size < 6 + COMM_NONCE + COMM_PROOF) return 0;
    int from = bytes[0], to = bytes[1];
    const uint8_t *place = bytes + 6;
    size_t rest = size - 6 - COMM_NONCE - COMM_PROOF;
    memcpy(nonce, place, COMM_NONCE);
    memcpy(received, place + COMM_NONCE, COMM_PROOF);
    memcpy(link, place + COMM_NONCE + COMM_PROOF, rest < 64 ? rest : 64);
    for (char *c = link; *c; c++)
        if (*c == ':') *c = '.';
    if (bytes[5] != COMM_NONCE && bytes[5] <= COMM_NONCE + COMM_PROOF)
        must(!comm_proof_message(link, from, to, place, bytes[5], &message) && message.length == 0);
    must(comm_proof_message(link, from, to, nonce, COMM_NONCE, &message));
    sign(&message, expected);
    must(comm_proof_is_good(received, expected) == (memcmp(received, expected, COMM_PROOF) == 0));
    must(comm_proof_is_good(expected, expected));
    must(comm_proof_message(link, to, from, nonce, COMM_NONCE, &other));
    sign(&other, reflected);
    must(comm_proof_is_good(reflected, expected) == (from == to));
    text_clear(&other);
    nonce[bytes[3] % COMM_NONCE] ^= bytes[2];
    must(comm_proof_message(link, from, to, nonce, COMM_NONCE, &other));
    must(is_same(&message, &other) == (bytes[2] == 0));
    memcpy(received, expected, COMM_PROOF);
    received[bytes[3] % COMM_PROOF] ^= bytes[4];
    must(comm_proof_is_good(received, expected) == (bytes[4] == 0));
    text_free(&message);
    text_free(&other);
    return 0;
}
