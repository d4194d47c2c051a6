/* A JPEG file is a list of segments; EXIF data are a TIFF file in one of them, whose first directory has the tag. */
#include "data/images/image_exif.h"

#include <string.h>

#define PIXEL 4 /* bytes */

static uint32_t number_at(const uint8_t *at, size_t bytes, bool is_little) {
    uint32_t number = 0;
    for (size_t i = 0; i < bytes; i++) number = number << 8 | at[is_little ? bytes - 1 - i : i];
    return number;
}

/* An entry of a directory: tag, type, count, value. */
static int orientation_of(const uint8_t *entry, bool is_little) {
    enum { TAG = 0x112, SHORT = 3, LONG = 4 };
    uint32_t type = number_at(entry + 2, 2, is_little);
    if (number_at(entry, 2, is_little) != TAG || number_at(entry + 4, 4, is_little) != 1) return 0;
    if (type != SHORT && type != LONG) return 0;
    uint32_t value = number_at(entry + 8, type == SHORT ? 2 : 4, is_little);
    return value >= 1 && value <= 8 ? (int)value : 0;
}

static int read_tiff(const uint8_t *bytes, size_t size) {
    if (size < 8) return 1;
    bool is_little = memcmp(bytes, "II\x2a\0", 4) == 0;
    if (!is_little && memcmp(bytes, "MM\0\x2a", 4) != 0) return 1;
    size_t at = number_at(bytes + 4, 4, is_little);
    if (at > size - 2) return 1;
    size_t entries = number_at(bytes + at, 2, is_little);
    at += 2;
    for (size_t i = 0; i < entries && size - at >= 12; i++, at += 12) {
        int orientation = orientation_of(bytes + at, is_little);
        if (orientation) return orientation;
    }
    return 1;
}

int exif_orientation(const uint8_t *bytes, size_t size) {
    enum { MARKER = 0xff, SCAN = 0xda, END = 0xd9, APP1 = 0xe1, NAME = 6 };
    if (size < 4 || bytes[0] != MARKER || bytes[1] != 0xd8) return 1;
    for (size_t at = 2; size - at >= 4;) {
        uint8_t marker = bytes[at + 1];
        if (bytes[at] != MARKER || marker == SCAN || marker == END) return 1;
        if (marker == MARKER) { /* a fill byte */
            at++;
            continue;
        }
        size_t length = number_at(bytes + at + 2, 2, false), left = size - at - 2;
        if (length > left) length = left;
        if (length < 2) return 1;
        const uint8_t *data = bytes + at + 4;
        if (marker == APP1 && length >= 2 + NAME && memcmp(data, "Exif\0", NAME) == 0)
            return read_tiff(data + NAME, length - 2 - NAME);
        at += 2 + length;
    }
    return 1;
}

/* How the stored image differs from the upright one: 2: mirrored left to right; 3: turned by 180 degrees; 4: mirrored
 * top to bottom; 5: rows and columns exchanged; 6: turned by 90 degrees counter-clockwise; 7: 5, then turned by 180
 * degrees; 8: turned by 90 degrees clockwise. */
void exif_upright_row(int orientation, const uint8_t *pixels, size_t height, size_t width, size_t y, uint8_t *out) {
    bool is_swapped = exif_is_swapped(orientation);
    bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    for (size_t x = 0, count = is_swapped ? height : width; x < count; x++) {
        size_t row = is_swapped ? x : y, column = is_swapped ? y : x;
        if (from_bottom) row = height - 1 - row;
        if (from_right) column = width - 1 - column;
        memcpy(out + x * PIXEL, pixels + (row * width + column) * PIXEL, PIXEL);
    }
}
