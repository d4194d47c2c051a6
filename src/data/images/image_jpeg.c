/* JPEG by libjpeg-turbo, with the settings of Pillow. libjpeg reports errors by longjmp: nothing that is local to a
 * function that calls setjmp is used after it. */
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

#include "data/images/image_decoder.h"

#define MAX_TAIL 4096 /* bytes after the end mark that some cameras write */
#define MAX_SCANS 500 /* of a progressive image; each costs the time of a whole image */

struct jpeg {
    struct jpeg_decompress_struct image;
    struct jpeg_progress_mgr progress;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    struct image_decoder *decoder;
    int orientation; /* of EXIF, if it is applied, else 1 */
    status failure;  /* of this program, instead of a message of libjpeg */
};

static void fail(j_common_ptr common) {
    struct jpeg *jpeg = common->client_data;
    char message[JMSG_LENGTH_MAX];
    common->err->format_message(common, message);
    snprintf(jpeg->decoder->message, sizeof jpeg->decoder->message, "%s", message);
    longjmp(jpeg->failed, 1);
}

/* Bytes that do not belong to the image are ignored; damaged or missing values are an error. */
static void warn(j_common_ptr common, int level) {
    int code = common->err->msg_code;
    bool is_harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
                       code == JWRN_TOO_MUCH_DATA || code == JWRN_BOGUS_PROGRESSION;
    if (level < 0 && !is_harmless) fail(common);
}

static void count_scans(j_common_ptr common) {
    struct jpeg *jpeg = common->client_data;
    if (jpeg->image.input_scan_number <= MAX_SCANS) return;
    snprintf(jpeg->decoder->message, sizeof jpeg->decoder->message, "it has more than %d scans", MAX_SCANS);
    longjmp(jpeg->failed, 1);
}

static void ignore(j_common_ptr common) { (void)common; }

static uint8_t multiply(unsigned a, unsigned b) {
    unsigned product = a * b + 128;
    return (uint8_t)((product + (product >> 8)) >> 8);
}

/* Pillow's CMYK to RGB, of the inverted values that Adobe writes. */
static void convert_cmyk(uint8_t *row, size_t width) {
    for (size_t i = 0; i < width; i++, row += 4) {
        unsigned white = row[3];
        for (int c = 0; c < 3; c++) {
            int value = (int)white - multiply(255U - row[c], white);
            row[c] = (uint8_t)(value < 0 ? 0 : value);
        }
    }
}

/* The largest fraction 1 / n that leaves at least the resized size. */
static unsigned choose_fraction(const struct jpeg *jpeg, size_t new_width, size_t new_height) {
    for (unsigned n = 8; n > 1 && jpeg->decoder->config->dct_scaling; n /= 2)
        if (jpeg->image.image_width / n >= new_width && jpeg->image.image_height / n >= new_height) return n;
    return 1;
}

/* Whether the image ends with its mark, so that rows which are not needed need not be decoded to find what is missing.
 */
static bool has_end(const uint8_t *bytes, size_t size) {
    size_t tail = size < MAX_TAIL ? size : MAX_TAIL;
    return memmem(bytes + size - tail, tail, "\xff\xd9", 2) != NULL;
}

/* Starts to decode to rows of the upright image. */
static status start(struct jpeg *jpeg) {
    struct jpeg_decompress_struct *image = &jpeg->image;
    bool is_swapped = exif_is_swapped(jpeg->orientation);
    size_t new_width, new_height, width = image->image_width, height = image->image_height;
    image_resized(jpeg->decoder, is_swapped ? height : width, is_swapped ? width : height, &new_width, &new_height);
    image->out_color_space = image->num_components == 4 ? JCS_CMYK : JCS_EXT_RGBX;
    image->scale_num = 1;
    image->scale_denom =
        choose_fraction(jpeg, is_swapped ? new_height : new_width, is_swapped ? new_width : new_height);
    jpeg_start_decompress(image);
    width = image->output_width, height = image->output_height;
    return image_start(jpeg->decoder, is_swapped ? height : width, is_swapped ? width : height, new_width, new_height);
}

static status read_row(struct jpeg *jpeg, uint8_t *row) {
    if (jpeg_read_scanlines(&jpeg->image, &row, 1) != 1) return image_damaged(jpeg->decoder, "rows are missing");
    if (jpeg->image.num_components == 4) convert_cmyk(row, jpeg->image.output_width);
    return OK;
}

static status read_rows(struct jpeg *jpeg, bool may_stop) {
    struct jpeg_decompress_struct *image = &jpeg->image;
    struct image_decoder *decoder = jpeg->decoder;
    TRY(start(jpeg));
    while (image->output_scanline < image->output_height && !(may_stop && resizer_is_complete(&decoder->resizer))) {
        TRY(read_row(jpeg, decoder->row));
        image_add_row(decoder, image->output_width);
    }
    return OK;
}

/* The whole image is decoded, then turned row by row. */
static status read_turned(struct jpeg *jpeg) {
    struct image_decoder *decoder = jpeg->decoder;
    TRY(start(jpeg));
    size_t width = jpeg->image.output_width, height = jpeg->image.output_height;
    bool is_swapped = exif_is_swapped(jpeg->orientation);
    TRY(image_grow(&decoder->pixels, &decoder->pixel_capacity, height * width * IMAGE_PIXEL));
    for (size_t y = 0; y < height; y++) TRY(read_row(jpeg, decoder->pixels + y * width * IMAGE_PIXEL));
    for (size_t y = 0, rows = is_swapped ? width : height; y < rows; y++) {
        exif_upright_row(jpeg->orientation, decoder->pixels, height, width, y, decoder->row);
        image_add_row(decoder, is_swapped ? height : width);
    }
    return OK;
}

static void decode(struct jpeg *jpeg, const uint8_t *bytes, size_t size, bool size_only) {
    if (setjmp(jpeg->failed)) { /* NOLINT(bugprone-unsafe-functions,cert-err52-cpp): libjpeg has no other way */
        jpeg->failure = image_damaged(jpeg->decoder, jpeg->decoder->message);
        return;
    }
    jpeg_create_decompress(&jpeg->image);
    jpeg->progress.progress_monitor = count_scans;
    jpeg->image.progress = &jpeg->progress;
    jpeg_mem_src(&jpeg->image, bytes, size);
    jpeg_read_header(&jpeg->image, TRUE);
    jpeg->failure = image_check_size(jpeg->decoder, jpeg->image.image_width, jpeg->image.image_height);
    if (jpeg->failure || size_only) return;
    jpeg->failure = jpeg->orientation == 1 ? read_rows(jpeg, has_end(bytes, size)) : read_turned(jpeg);
}

status image_decode_jpeg(struct image_decoder *decoder, const uint8_t *bytes, size_t size, bool size_only,
                         size_t *width, size_t *height) {
    struct jpeg jpeg = {.decoder = decoder, .orientation = 1};
    if (decoder->config->exif_orientation) jpeg.orientation = exif_orientation(bytes, size);
    bool is_swapped = exif_is_swapped(jpeg.orientation);
    jpeg.image.err = jpeg_std_error(&jpeg.errors);
    jpeg.image.client_data = &jpeg;
    jpeg.errors.error_exit = fail;
    jpeg.errors.emit_message = warn;
    jpeg.errors.output_message = ignore;
    decode(&jpeg, bytes, size, size_only);
    *width = is_swapped ? jpeg.image.image_height : jpeg.image.image_width;
    *height = is_swapped ? jpeg.image.image_width : jpeg.image.image_height;
    jpeg_destroy_decompress(&jpeg.image);
    return jpeg.failure;
}
