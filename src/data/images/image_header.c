/* Only for suggestions: the decoders check the whole file. */
#include "data/images/image_header.h"

#include <string.h>

#include "base/files/io.h"

#define MAX_BYTES 65536 /* EXIF data before the size may be that long */

static uint32_t big_endian(const uint8_t *bytes, int count) {
    uint32_t value = 0;
    for (int i = 0; i < count; i++) value = value << 8 | bytes[i];
    return value;
}

/* The signature, then the chunk IHDR: length, type, width, height, bits, colour type; type 0 and 4 are grey. */
static bool read_png(const uint8_t *bytes, size_t size, struct image_header *out) {
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    if (size < 26 || memcmp(bytes, signature, sizeof signature) != 0) return false;
    *out = (struct image_header){
        .width = big_endian(bytes + 16, 4), .height = big_endian(bytes + 20, 4), .is_grey = (bytes[25] & 3) == 0};
    return true;
}

static bool is_frame(uint8_t marker) {
    return marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
}

/* Segments: 0xff, marker, length; that of a frame: bits, height, width, components. */
static bool read_jpeg(const uint8_t *bytes, size_t size, struct image_header *out) {
    if (size < 4 || bytes[0] != 0xff || bytes[1] != 0xd8) return false;
    for (size_t at = 2; at + 10 <= size && bytes[at] == 0xff; at += 2 + big_endian(bytes + at + 2, 2)) {
        while (at + 10 < size && bytes[at + 1] == 0xff) at++; /* fill bytes */
        if (!is_frame(bytes[at + 1])) continue;
        *out = (struct image_header){.height = big_endian(bytes + at + 5, 2),
                                     .width = big_endian(bytes + at + 7, 2),
                                     .is_grey = bytes[at + 9] == 1};
        return true;
    }
    return false;
}

status image_header_read(const char *path, struct image_header *out, bool *found) {
    uint8_t bytes[MAX_BYTES];
    size_t size = 0;
    int fd;
    *found = false;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, bytes, sizeof bytes, &size);
    if (!s) *found = read_png(bytes, size, out) || read_jpeg(bytes, size, out);
    if (*found) *found = out->width > 0 && out->height > 0;
    return status_first(s, io_close(fd, path));
}
