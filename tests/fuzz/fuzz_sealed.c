/* Any bytes as a sealed file: refused with a sentence, never a crash. And any bytes as an image: its seal is accepted,
 * and refused after one change anywhere, which the first bytes choose: a byte, a truncation, bytes more. */
#include <stdlib.h>
#include <string.h>

#include "base/files/sealed.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static bool is_accepted(const uint8_t *bytes, size_t size) {
    struct seal seal;
    uint8_t *exact = malloc(size ? size : 1); /* so that a read past the end is seen */
    if (!exact) abort();
    if (size) memcpy(exact, bytes, size);
    status s = sealed_check("fuzz.h5", exact, size, &seal);
    if (s && (status_code(s) != STATUS_DATA || strncmp(status_message(s), "fuzz.h5: ", 9) != 0)) abort();
    if (!s && seal.image_size + SEALED_TRAILER_SIZE != size) abort();
    status_free(s);
    free(exact);
    return !s;
}

/* Changes the file (*size of at most room bytes) as [choice] (8) says; false when it stayed as it was. */
static bool change(uint8_t *file, size_t *size, const uint8_t choice[8]) {
    size_t where = ((size_t)choice[1] | (size_t)choice[2] << 8 | (size_t)choice[3] << 16) % *size;
    switch (choice[0] % 3) {
    case 0:
        file[where] ^= choice[4];
        return choice[4] != 0;
    case 1:
        *size = where;
        return true;
    default:
        memset(file + *size, choice[4], choice[5]);
        *size += choice[5];
        return choice[5] != 0;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    is_accepted(bytes, size);
    if (size < 8) return 0;
    const uint8_t *image = bytes + 8;
    size_t image_size = size - 8, file_size = image_size + SEALED_TRAILER_SIZE;
    uint8_t *file = malloc(file_size + 255);
    if (!file) abort();
    memcpy(file, image, image_size);
    sealed_trailer(image, image_size, bytes[7], file + image_size);
    if (!is_accepted(file, file_size)) abort();
    if (change(file, &file_size, bytes) && is_accepted(file, file_size)) abort();
    free(file);
    return 0;
}
