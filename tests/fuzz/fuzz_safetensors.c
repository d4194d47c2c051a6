/* Any bytes as a safetensors file: accepted or refused with a sentence that names it, never a crash. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    uint8_t *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
    if (!exact) abort();
    if (size) memcpy(exact, bytes, size);
    status s = safetensors_check("fuzz.safetensors", exact, size);
    if (s && (status_code(s) != STATUS_DATA || strncmp(status_message(s), "fuzz.safetensors: ", 18) != 0)) abort();
    status_free(s);
    free(exact);
    return 0;
}
