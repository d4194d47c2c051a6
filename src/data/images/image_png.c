/* PNG by libpng: every kind of pixel becomes red, green, blue of 8 bits; of 16 bits the high byte is kept. libpng
 * accepts at most 1,000,000 columns and rows. It reports errors by longjmp: nothing that is local to a function that
 * calls setjmp is used after it. */
#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include "base/buffer.h"
#include "data/images/image_decoder.h"

struct png {
    png_structp reader;
    png_infop info;
    struct image_decoder *decoder;
    const uint8_t *next;
    size_t left;     /* bytes */
    uint8_t *pixels; /* (height, width, IMAGE_PIXEL) of an interlaced image; are_indexes: (height, width) */
    bool are_indexes;
    size_t width, height;
    status failure; /* of this program, instead of a message of libpng */
};

static void fail(png_structp reader, png_const_charp message) {
    struct png *png = png_get_error_ptr(reader);
    snprintf(png->decoder->message, sizeof png->decoder->message, "%s", message);
    png_longjmp(reader, 1);
}

static void warn(png_structp reader, png_const_charp message) { (void)reader, (void)message; }

static void read_bytes(png_structp reader, png_bytep out, size_t size) {
    struct png *png = png_get_io_ptr(reader);
    if (size > png->left) png_error(reader, "the file is truncated");
    memcpy(out, png->next, size);
    png->next += size;
    png->left -= size;
}

static void convert_to_rgb(const struct png *png) {
    png_set_expand(png->reader);
    png_set_strip_16(png->reader);
    png_set_strip_alpha(png->reader);
    png_set_gray_to_rgb(png->reader);
    png_set_filler(png->reader, 0, PNG_FILLER_AFTER);
}

static status read_rows(struct png *png) {
    struct image_decoder *decoder = png->decoder;
    int passes = png_set_interlace_handling(png->reader);
    size_t new_width, new_height;
    convert_to_rgb(png);
    png_read_update_info(png->reader, png->info);
    if (png_get_rowbytes(png->reader, png->info) != png->width * IMAGE_PIXEL)
        return image_damaged(decoder, "its pixels cannot be converted");
    image_resized(decoder, png->width, png->height, &new_width, &new_height);
    TRY(image_start(decoder, png->width, png->height, new_width, new_height));
    if (passes > 1) {
        void *memory;
        TRY(buffer_new(png->height * png->width * IMAGE_PIXEL, "an interlaced image", &memory));
        png->pixels = memory;
    }
    for (int pass = 1; pass < passes; pass++)
        for (size_t y = 0; y < png->height; y++)
            png_read_row(png->reader, png->pixels + y * png->width * IMAGE_PIXEL, NULL);
    for (size_t y = 0; y < png->height; y++) {
        uint8_t *row = png->pixels ? png->pixels + y * png->width * IMAGE_PIXEL : decoder->row;
        png_read_row(png->reader, row, NULL);
        if (png->pixels) memcpy(decoder->row, row, png->width * IMAGE_PIXEL);
        image_add_row(decoder, png->width);
    }
    return OK;
}

/* Masks: one byte for each pixel, as it is in the file. */
static status read_indexes(struct png *png) {
    int type = png_get_color_type(png->reader, png->info), depth = png_get_bit_depth(png->reader, png->info);
    void *memory;
    if ((type != PNG_COLOR_TYPE_GRAY && type != PNG_COLOR_TYPE_PALETTE) || depth > 8)
        return status_new(STATUS_DATA,
                          "%s: a mask must be a grey or palette image of at most 8 bits, whose pixels are classes, but "
                          "this one has %s; convert the file",
                          png->decoder->name, depth > 8 ? "16 bits" : "colours or transparency");
    png_set_packing(png->reader);
    int passes = png_set_interlace_handling(png->reader);
    png_read_update_info(png->reader, png->info);
    if (png_get_rowbytes(png->reader, png->info) != png->width)
        return image_damaged(png->decoder, "its pixels cannot be converted");
    TRY(buffer_new(png->height * png->width, "a mask", &memory));
    png->pixels = memory;
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < png->height; y++) png_read_row(png->reader, png->pixels + y * png->width, NULL);
    return OK;
}

static void decode(struct png *png, bool size_only) {
    if (setjmp(
            png_jmpbuf(png->reader))) { /* NOLINT(bugprone-unsafe-functions,cert-err52-cpp): libpng has no other way */
        png->failure = image_damaged(png->decoder, png->decoder->message);
        return;
    }
    png_set_read_fn(png->reader, png, read_bytes);
    png_read_info(png->reader, png->info);
    png->width = png_get_image_width(png->reader, png->info);
    png->height = png_get_image_height(png->reader, png->info);
    png->failure = image_check_size(png->decoder, png->width, png->height);
    if (!png->failure && !size_only) png->failure = png->are_indexes ? read_indexes(png) : read_rows(png);
}

/* [png]->pixels: for buffer_free. */
static status decode_png(struct png *result, bool size_only) {
    struct png png = *result;
    png.reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, fail, warn);
    png.info = png.reader ? png_create_info_struct(png.reader) : NULL;
    if (png.info)
        decode(&png, size_only);
    else
        png.failure = status_memory("a PNG image");
    png_destroy_read_struct(&png.reader, &png.info, NULL);
    *result = png;
    return png.failure;
}

status image_decode_png(struct image_decoder *decoder, const uint8_t *bytes, size_t size, bool size_only, size_t *width,
                        size_t *height) {
    struct png png = {.decoder = decoder, .next = bytes, .left = size};
    status s = decode_png(&png, size_only);
    buffer_free(png.pixels);
    *width = png.width;
    *height = png.height;
    return s;
}

status image_decode_png_indexes(struct image_decoder *decoder, const uint8_t *bytes, size_t size, uint8_t **pixels,
                                size_t *width, size_t *height) {
    struct png png = {.decoder = decoder, .next = bytes, .left = size, .are_indexes = true};
    status s = decode_png(&png, false);
    *pixels = png.pixels;
    *width = png.width;
    *height = png.height;
    return s;
}
