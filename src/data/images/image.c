/* Images: how they are resized and turned upright, and the decoder of a thread, to which the kinds of images give their
 * rows. libjpeg and libpng report errors by longjmp: nothing that is local to a function that calls setjmp is used
 * after it. */
#include "data/images/image.h"

#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jpeglib.h>
#include <png.h>

#include <jerror.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/instructions.h"
#include "base/scoped.h"

/* ---- resizing ---- */

/* Row by row, so that memory does not grow with the height of the image. */

/* One dimension: [in] pixels are resized to [resized], of which [count] from [first] on are kept. */
struct resize_range {
    size_t in, resized, first, count;
};

/* The weights of the input pixels for each kept pixel. */
struct resize_axis {
    size_t count, taps;   /* kept pixels; the maximum number of weights of one */
    size_t *first, *used; /* (count): the first input pixel, the number of weights */
    int32_t *weights;     /* (count, taps), in units of 2^-22 */
    double *exact;        /* (taps): workspace */
    size_t capacity, weight_capacity, exact_capacity;
};

struct resizer {
    struct resize_axis x, y;
    size_t channels; /* bytes of a pixel: 1 or 4 */
    size_t row;      /* the next input row */
    size_t top;      /* output rows before it are complete */
    uint8_t *line;   /* (x.count * channels): an input row after the horizontal pass */
    int32_t *sums;   /* (y.count, x.count * channels), in units of 2^-22, rounded */
    size_t line_capacity, sums_capacity;
};

#define IMAGE_MAX_PIXELS 178956970u /* above this Pillow raises DecompressionBombError */
#define IMAGE_PIXEL 4               /* bytes of a pixel of a decoded row: red, green, blue, unused */

struct image_decoder {
    const struct image_config *config;
    size_t height, width; /* of the rows of the dataset */
    struct resizer resizer;
    uint8_t *row; /* (row_capacity): a decoded row */
    size_t row_capacity;
    uint8_t *pixels; /* (pixel_capacity): an image that must be turned */
    size_t pixel_capacity;
    uint8_t *file; /* (file_capacity): a file */
    size_t file_capacity;
    const char *name;  /* of the image that is decoded, for messages */
    char message[256]; /* of libjpeg or libpng */
};

/* Pillow's bilinear resampling with 8-bit channels (src/libImaging/Resample.c), bit for bit: weights are rounded to
 * 22 bits, the horizontal pass rounds to bytes, then the vertical pass. Sums of integers do not depend on the order, so
 * that each input row is added to the output rows that need it and is forgotten. */

#define PRECISION_BITS 22
#define HALF (1 << (PRECISION_BITS - 1))

#define INLINE static inline __attribute__((always_inline))

typedef int32_t pixel_sums __attribute__((vector_size(16)));
typedef uint8_t packed_pixel __attribute__((vector_size(4)));

/* ---- weights ---- */

/* Not to twice the size, which array_grow would: images are large. */
static status grow(void *block, size_t *capacity, size_t count, size_t size) {
    void *memory;
    memcpy(&memory, block, sizeof memory);
    if (count <= *capacity) return OK;
    void *more = count > PTRDIFF_MAX / size ? NULL : realloc(memory, count * size);
    if (!more) return status_memory("an image");
    memcpy(block, &more, sizeof more);
    *capacity = count;
    return OK;
}

static status allocate_axis(struct resize_axis *axis) {
    size_t capacity = axis->capacity;
    TRY(grow(&axis->first, &capacity, axis->count, sizeof *axis->first));
    TRY(grow(&axis->used, &axis->capacity, axis->count, sizeof *axis->used));
    TRY(grow(&axis->weights, &axis->weight_capacity, axis->count * axis->taps, sizeof *axis->weights));
    return grow(&axis->exact, &axis->exact_capacity, axis->taps, sizeof *axis->exact);
}

/* precompute_coeffs and normalize_coeffs_8bpc of Pillow */
static status compute_weights(struct resize_axis *axis, const struct resize_range *range) {
    double scale = (double)range->in / (double)range->resized, filter_scale = scale < 1 ? 1 : scale;
    double support = filter_scale, step = 1 / filter_scale;
    axis->count = range->count;
    axis->taps = (size_t)ceil(support) * 2 + 1;
    TRY(allocate_axis(axis));
    for (size_t i = 0; i < range->count; i++) {
        double center = ((double)(range->first + i) + 0.5) * scale, sum = 0;
        int64_t first = (int64_t)(center - support + 0.5), end = (int64_t)(center + support + 0.5);
        if (first < 0) first = 0;
        if (end > (int64_t)range->in) end = (int64_t)range->in;
        size_t used = (size_t)(end - first);
        for (size_t k = 0; k < used; k++) {
            double distance = fabs(((double)k + (double)first - center + 0.5) * step);
            sum += axis->exact[k] = distance < 1 ? 1 - distance : 0;
        }
        for (size_t k = 0; k < used; k++) {
            double weight = sum != 0 ? axis->exact[k] / sum : axis->exact[k];
            axis->weights[i * axis->taps + k] = (int32_t)(0.5 + weight * (1 << PRECISION_BITS));
        }
        axis->first[i] = (size_t)first;
        axis->used[i] = used;
    }
    return OK;
}

static void free_axis(struct resize_axis *axis) {
    free(axis->first);
    free(axis->used);
    free(axis->weights);
    free(axis->exact);
}

static status resizer_start(struct resizer *resizer, const struct resize_range *x, const struct resize_range *y,
                            size_t channels) {
    resizer->channels = channels;
    resizer->row = resizer->top = 0;
    TRY(compute_weights(&resizer->x, x));
    TRY(compute_weights(&resizer->y, y));
    size_t line = x->count * channels;
    TRY(grow(&resizer->line, &resizer->line_capacity, line, 1));
    TRY(grow(&resizer->sums, &resizer->sums_capacity, line * y->count, sizeof *resizer->sums));
    for (size_t i = 0; i < line * y->count; i++) resizer->sums[i] = HALF;
    return OK;
}

/* Zero-initialise; resizer_start may be called again for the next image. STATUS_MEMORY. */
static void resizer_free(struct resizer *resizer) {
    free_axis(&resizer->x);
    free_axis(&resizer->y);
    free(resizer->line);
    free(resizer->sums);
}

/* ---- passes ---- */

INLINE uint8_t byte_of(int32_t sum) {
    int32_t value = sum >> PRECISION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

INLINE void across_pixels(const struct resize_axis *x, const uint8_t *row, uint8_t *line) {
    for (size_t i = 0; i < x->count; i++) {
        const int32_t *weights = x->weights + i * x->taps;
        const uint8_t *from = row + x->first[i] * 4;
        pixel_sums sum = {HALF, HALF, HALF, HALF};
        for (size_t k = 0; k < x->used[i]; k++) {
            packed_pixel bytes;
            memcpy(&bytes, from + k * 4, sizeof bytes);
            sum += __builtin_convertvector(bytes, pixel_sums) * weights[k];
        }
        for (size_t c = 0; c < 4; c++) line[i * 4 + c] = byte_of(sum[c]);
    }
}

INLINE void across_bytes(const struct resize_axis *x, const uint8_t *row, uint8_t *line) {
    for (size_t i = 0; i < x->count; i++) {
        const int32_t *weights = x->weights + i * x->taps;
        int32_t sum = HALF;
        for (size_t k = 0; k < x->used[i]; k++) sum += row[x->first[i] + k] * weights[k];
        line[i] = byte_of(sum);
    }
}

INLINE void add_line(const uint8_t *line, size_t count, int32_t weight, int32_t *sums) {
    for (size_t i = 0; i < count; i++) sums[i] += line[i] * weight;
}

/* The loops over pixels, compiled once per instruction set. */
struct loops {
    void (*across_pixels)(const struct resize_axis *x, const uint8_t *row, uint8_t *line);
    void (*across_bytes)(const struct resize_axis *x, const uint8_t *row, uint8_t *line);
    void (*add_line)(const uint8_t *line, size_t count, int32_t weight, int32_t *sums);
};

#define LOOPS(set, attribute)                                                                                          \
    attribute static void across_pixels_##set(const struct resize_axis *x, const uint8_t *row, uint8_t *line) {        \
        across_pixels(x, row, line);                                                                                   \
    }                                                                                                                  \
    attribute static void across_bytes_##set(const struct resize_axis *x, const uint8_t *row, uint8_t *line) {         \
        across_bytes(x, row, line);                                                                                    \
    }                                                                                                                  \
    attribute static void add_line_##set(const uint8_t *line, size_t count, int32_t weight, int32_t *sums) {           \
        add_line(line, count, weight, sums);                                                                           \
    }                                                                                                                  \
    static const struct loops loops_##set = {across_pixels_##set, across_bytes_##set, add_line_##set};
LOOPS(plain, )
#ifdef __x86_64__
LOOPS(avx2, __attribute__((target("avx2"))))
LOOPS(avx512, __attribute__((target("avx512f"))))

static const struct loops *fastest_loops(void) {
    if (processor_has(INSTRUCTIONS_AVX512)) return &loops_avx512;
    return processor_has(INSTRUCTIONS_AVX2) ? &loops_avx2 : &loops_plain;
}
#else
static const struct loops *fastest_loops(void) { return &loops_plain; }
#endif

/* Adds the next input row: (in, channels), of the range [x] of resizer_start. */
static void resizer_add(struct resizer *resizer, const uint8_t *row) {
    const struct resize_axis *y = &resizer->y;
    const struct loops *loops = fastest_loops();
    size_t at = resizer->row++, line = resizer->x.count * resizer->channels;
    while (resizer->top < y->count && y->first[resizer->top] + y->used[resizer->top] <= at) resizer->top++;
    if (resizer->top == y->count || y->first[resizer->top] > at) return;
    if (resizer->channels == 4)
        loops->across_pixels(&resizer->x, row, resizer->line);
    else
        loops->across_bytes(&resizer->x, row, resizer->line);
    for (size_t i = resizer->top; i < y->count && y->first[i] <= at; i++)
        loops->add_line(resizer->line, line, y->weights[i * y->taps + at - y->first[i]], resizer->sums + i * line);
}

/* Whether no more rows are needed. */
static bool resizer_is_complete(const struct resizer *resizer) {
    const struct resize_axis *y = &resizer->y;
    return y->first[y->count - 1] + y->used[y->count - 1] <= resizer->row;
}

/* After all rows that are needed: out (kept, y.count, x.count), the first [kept] channels. */
static void resizer_finish(const struct resizer *resizer, size_t kept, uint8_t *out) {
    size_t pixels = resizer->x.count * resizer->y.count, channels = resizer->channels;
    for (size_t c = 0; c < kept; c++)
        for (size_t p = 0; p < pixels; p++) out[c * pixels + p] = byte_of(resizer->sums[p * channels + c]);
}

/* ---- orientation ---- */

/* A JPEG file is a list of segments; EXIF data are a TIFF file in one of them, whose first directory has the tag. */

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

/* ---- decoding ---- */

/* The kind of a file is found by its first bytes, as Pillow does, not by its name. */

#define MAX_FILE ((uint64_t)1 << 30) /* bytes */
#define MAX_HEADER 65536             /* bytes, in which the size and EXIF data are searched for */

static bool has_extension(const char *path, const char *const *extensions) {
    size_t length = strlen(path);
    for (; *extensions; extensions++) {
        size_t tail = strlen(*extensions);
        if (length > tail && strcasecmp(path + length - tail, *extensions) == 0) return true;
    }
    return false;
}

bool image_is_named(const char *path) {
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", NULL};
    return has_extension(path, extensions);
}

bool image_is_foreign(const char *path) {
    static const char *const extensions[] = {".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp", ".gif", NULL};
    return has_extension(path, extensions);
}

void image_rows(const struct image_config *config, size_t *height, size_t *width) {
    *height = (size_t)config->size.items[0];
    *width = (size_t)config->size.items[config->size.count - 1];
}

status image_decoder_create(const struct image_config *config, struct image_decoder **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return status_memory("an image");
    (*out)->config = config;
    if (config->size.count) image_rows(config, &(*out)->height, &(*out)->width);
    return OK;
}

void image_decoder_destroy(struct image_decoder *decoder) {
    if (!decoder) return;
    resizer_free(&decoder->resizer);
    free(decoder->row);
    free(decoder->pixels);
    free(decoder->file);
    free(decoder);
}

/* ---- what both kinds of images need ---- */

static status image_damaged(const struct image_decoder *decoder, const char *reason) {
    return status_data("%s: the image is damaged: %s; replace or remove the file", decoder->name, reason);
}

/* Checks the size of an image. */
static status image_check_size(const struct image_decoder *decoder, size_t width, size_t height) {
    if (width > 0 && height > 0 && height <= IMAGE_MAX_PIXELS / width) return OK;
    return status_data("%s: the image has %zu x %zu pixels; at most %u in total are decoded", decoder->name, width,
                       height, IMAGE_MAX_PIXELS);
}

/* The size after the resize of an image of this size. */
static void image_resized(const struct image_decoder *decoder, size_t width, size_t height, size_t *new_width,
                          size_t *new_height) {
    const struct image_config *config = decoder->config;
    *new_width = decoder->width;
    *new_height = decoder->height;
    if (config->resize.count == 2) {
        *new_height = (size_t)config->resize.items[0];
        *new_width = (size_t)config->resize.items[1];
    } else if (config->resize.count == 1 || config->crop == CROP_CENTER) {
        size_t side = decoder->height > decoder->width ? decoder->height : decoder->width;
        if (config->resize.count) side = (size_t)config->resize.items[0];
        size_t minimum = width < height ? width : height, maximum = width < height ? height : width;
        size_t other = (size_t)((double)(side * maximum) / (double)minimum);
        *new_width = width <= height ? side : other;
        *new_height = width <= height ? other : side;
    }
}

/* torchvision's center_crop; round() of Python rounds halves to even numbers. */
static size_t crop_start(size_t resized, size_t kept) { return (size_t)rint((double)(resized - kept) / 2); }

/* The kept columns and rows of an image of this size. */
static void image_kept(const struct image_decoder *decoder, size_t width, size_t height, struct resize_range *x,
                       struct resize_range *y) {
    size_t new_width, new_height;
    image_resized(decoder, width, height, &new_width, &new_height);
    *x = (struct resize_range){width, new_width, crop_start(new_width, decoder->width), decoder->width};
    *y = (struct resize_range){height, new_height, crop_start(new_height, decoder->height), decoder->height};
}

/* Prepares for rows of [width] pixels of an image that is [height] rows high and will be resized to these sizes. */
static status image_start(struct image_decoder *decoder, size_t width, size_t height, size_t new_width,
                          size_t new_height) {
    struct resize_range x = {width, new_width, crop_start(new_width, decoder->width), decoder->width};
    struct resize_range y = {height, new_height, crop_start(new_height, decoder->height), decoder->height};
    TRY(grow(&decoder->row, &decoder->row_capacity, width, IMAGE_PIXEL));
    return resizer_start(&decoder->resizer, &x, &y, decoder->config->channels == 1 ? 1 : IMAGE_PIXEL);
}

/* Adds decoder->row (width, IMAGE_PIXEL). */
static void image_add_row(struct image_decoder *decoder, size_t width) {
    uint8_t *row = decoder->row;
    bool is_grey = decoder->config->channels == 1;
    for (size_t i = 0; is_grey && i < width; i++) { /* Pillow's convert("L") */
        const uint8_t *pixel = row + i * IMAGE_PIXEL;
        row[i] = (uint8_t)((pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16);
    }
    resizer_add(&decoder->resizer, row);
}

/* ---- JPEG ---- */

/* JPEG by libjpeg-turbo, with the settings of Pillow. */

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

static void fail_jpeg(j_common_ptr common) {
    struct jpeg *jpeg = common->client_data;
    char message[JMSG_LENGTH_MAX];
    common->err->format_message(common, message);
    snprintf(jpeg->decoder->message, sizeof jpeg->decoder->message, "%s", message);
    longjmp(jpeg->failed, 1);
}

/* Bytes that do not belong to the image are ignored; damaged or missing values are an error. */
static void warn_jpeg(j_common_ptr common, int level) {
    int code = common->err->msg_code;
    bool is_harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR ||
                       code == JWRN_TOO_MUCH_DATA || code == JWRN_BOGUS_PROGRESSION;
    if (level < 0 && !is_harmless) fail_jpeg(common);
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
static status start_jpeg(struct jpeg *jpeg) {
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

static status read_jpeg_row(struct jpeg *jpeg, uint8_t *row) {
    if (jpeg_read_scanlines(&jpeg->image, &row, 1) != 1) return image_damaged(jpeg->decoder, "rows are missing");
    if (jpeg->image.num_components == 4) convert_cmyk(row, jpeg->image.output_width);
    return OK;
}

static status read_jpeg_rows(struct jpeg *jpeg, bool may_stop) {
    struct jpeg_decompress_struct *image = &jpeg->image;
    struct image_decoder *decoder = jpeg->decoder;
    TRY(start_jpeg(jpeg));
    while (image->output_scanline < image->output_height && !(may_stop && resizer_is_complete(&decoder->resizer))) {
        TRY(read_jpeg_row(jpeg, decoder->row));
        image_add_row(decoder, image->output_width);
    }
    return OK;
}

/* The whole image is decoded, then turned row by row. */
static status read_jpeg_turned(struct jpeg *jpeg) {
    struct image_decoder *decoder = jpeg->decoder;
    TRY(start_jpeg(jpeg));
    size_t width = jpeg->image.output_width, height = jpeg->image.output_height;
    bool is_swapped = exif_is_swapped(jpeg->orientation);
    TRY(grow(&decoder->pixels, &decoder->pixel_capacity, height * width, IMAGE_PIXEL));
    for (size_t y = 0; y < height; y++) TRY(read_jpeg_row(jpeg, decoder->pixels + y * width * IMAGE_PIXEL));
    for (size_t y = 0, rows = is_swapped ? width : height; y < rows; y++) {
        exif_upright_row(jpeg->orientation, decoder->pixels, height, width, y, decoder->row);
        image_add_row(decoder, is_swapped ? height : width);
    }
    return OK;
}

static void decode_jpeg(struct jpeg *jpeg, const uint8_t *bytes, size_t size, bool size_only) {
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
    jpeg->failure = jpeg->orientation == 1 ? read_jpeg_rows(jpeg, has_end(bytes, size)) : read_jpeg_turned(jpeg);
}

static status image_decode_jpeg(struct image_decoder *decoder, const uint8_t *bytes, size_t size, bool size_only,
                                struct image_header *out) {
    struct jpeg jpeg = {.decoder = decoder, .orientation = 1};
    if (decoder->config->exif_orientation) jpeg.orientation = exif_orientation(bytes, size);
    bool is_swapped = exif_is_swapped(jpeg.orientation);
    jpeg.image.err = jpeg_std_error(&jpeg.errors);
    jpeg.image.client_data = &jpeg;
    jpeg.errors.error_exit = fail_jpeg;
    jpeg.errors.emit_message = warn_jpeg;
    jpeg.errors.output_message = ignore;
    decode_jpeg(&jpeg, bytes, size, size_only);
    size_t width = jpeg.image.image_width, height = jpeg.image.image_height;
    *out = (struct image_header){"JPEG", is_swapped ? height : width, is_swapped ? width : height,
                                 jpeg.image.num_components == 1};
    jpeg_destroy_decompress(&jpeg.image);
    return jpeg.failure;
}

/* ---- PNG ---- */

/* PNG by libpng: every kind of pixel becomes red, green, blue of 8 bits; of 16 bits the high byte is kept. libpng
 * accepts at most 1,000,000 columns and rows. */

struct png {
    png_structp reader;
    png_infop info;
    struct image_decoder *decoder;
    const uint8_t *next;
    size_t left;     /* bytes */
    uint8_t *pixels; /* (height, width, IMAGE_PIXEL) of an interlaced image; are_indexes: (height, width) */
    bool are_indexes, is_grey;
    size_t width, height;
    status failure; /* of this program, instead of a message of libpng */
};

static void fail_png(png_structp reader, png_const_charp message) {
    struct png *png = png_get_error_ptr(reader);
    snprintf(png->decoder->message, sizeof png->decoder->message, "%s", message);
    png_longjmp(reader, 1);
}

static void warn_png(png_structp reader, png_const_charp message) { (void)reader, (void)message; }

static void read_png_bytes(png_structp reader, png_bytep out, size_t size) {
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

static status read_png_rows(struct png *png) {
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
        TRY(buffer_new(png->height * png->width * IMAGE_PIXEL, "an interlaced image", &png->pixels));
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
static status read_png_indexes(struct png *png) {
    int type = png_get_color_type(png->reader, png->info), depth = png_get_bit_depth(png->reader, png->info);
    if ((type != PNG_COLOR_TYPE_GRAY && type != PNG_COLOR_TYPE_PALETTE) || depth > 8)
        return status_data(
            "%s: a mask must be a grey or palette image of at most 8 bits, whose pixels are classes, but "
            "this one has %s; convert the file",
            png->decoder->name, depth > 8 ? "16 bits" : "colours or transparency");
    png_set_packing(png->reader);
    int passes = png_set_interlace_handling(png->reader);
    png_read_update_info(png->reader, png->info);
    if (png_get_rowbytes(png->reader, png->info) != png->width)
        return image_damaged(png->decoder, "its pixels cannot be converted");
    TRY(buffer_new(png->height * png->width, "a mask", &png->pixels));
    for (int pass = 0; pass < passes; pass++)
        for (size_t y = 0; y < png->height; y++) png_read_row(png->reader, png->pixels + y * png->width, NULL);
    return OK;
}

/* Also after a failure behind the chunk that has them. */
static void take_png_size(struct png *png) {
    png->width = png_get_image_width(png->reader, png->info);
    png->height = png_get_image_height(png->reader, png->info);
    png->is_grey = !(png_get_color_type(png->reader, png->info) & PNG_COLOR_MASK_COLOR);
}

static void read_png_image(struct png *png, bool size_only) {
    if (setjmp(
            png_jmpbuf(png->reader))) { /* NOLINT(bugprone-unsafe-functions,cert-err52-cpp): libpng has no other way */
        png->failure = image_damaged(png->decoder, png->decoder->message);
        if (size_only) take_png_size(png);
        return;
    }
    png_set_read_fn(png->reader, png, read_png_bytes);
    png_read_info(png->reader, png->info);
    take_png_size(png);
    png->failure = image_check_size(png->decoder, png->width, png->height);
    if (!png->failure && !size_only) png->failure = png->are_indexes ? read_png_indexes(png) : read_png_rows(png);
}

/* [png]->pixels: for buffer_free. */
static status decode_png(struct png *result, bool size_only) {
    struct png png = *result;
    png.reader = png_create_read_struct(PNG_LIBPNG_VER_STRING, &png, fail_png, warn_png);
    png.info = png.reader ? png_create_info_struct(png.reader) : NULL;
    if (png.info)
        read_png_image(&png, size_only);
    else
        png.failure = status_memory("a PNG image");
    png_destroy_read_struct(&png.reader, &png.info, NULL);
    *result = png;
    return png.failure;
}

/* ---- files ---- */

/* With [size_only] the pixels are not decoded. *out: of the upright image with exif_orientation. */
static status decode(struct image_decoder *decoder, const char *name, const uint8_t *bytes, size_t size, bool size_only,
                     struct image_header *out) {
    decoder->name = name;
    if (size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0)
        return image_decode_jpeg(decoder, bytes, size, size_only, out);
    if (size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0) {
        struct png png = {.decoder = decoder, .next = bytes, .left = size};
        status s = decode_png(&png, size_only);
        buffer_free(png.pixels);
        *out = (struct image_header){"PNG", png.width, png.height, png.is_grey};
        return s;
    }
    if (size == 0) return status_data("%s: the file is empty; replace or remove it", name);
    return status_data("%s: this is not a JPEG or PNG image; convert or remove the file", name);
}

status image_decode(struct image_decoder *decoder, const char *name, const uint8_t *bytes, size_t size, uint8_t *out) {
    struct image_header header;
    TRY(decode(decoder, name, bytes, size, false, &header));
    resizer_finish(&decoder->resizer, (size_t)decoder->config->channels, out);
    return OK;
}

static status grow_file(struct image_decoder *decoder, const char *path, uint64_t bytes) {
    if (bytes > MAX_FILE)
        return status_data("%s: the file has %llu bytes; images of at most %llu are read", path,
                           (unsigned long long)bytes, (unsigned long long)MAX_FILE);
    return grow(&decoder->file, &decoder->file_capacity, (size_t)bytes, 1);
}

static status read_member(struct image_decoder *decoder, const struct image_place *place, size_t *size) {
    struct io_info info;
    TRY(archive_stat(place->archive, place->path, &info));
    TRY(grow_file(decoder, place->path, info.size));
    return archive_read(place->archive, place->path, decoder->file, (size_t)info.size, size);
}

static status read_file(struct image_decoder *decoder, const struct image_place *place, size_t *size) {
    const char *path = place->path;
    if (place->archive) return read_member(decoder, place, size);
    struct io_info info;
    int fd;
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (!s && !info.is_file)
        s = status_data("%s: it is %s, not a file", path, info.is_folder ? "a folder" : "a device");
    if (!s) s = grow_file(decoder, path, info.size);
    if (!s) s = io_read(fd, path, decoder->file, (size_t)info.size, size);
    return status_first(s, io_close(fd, path));
}

status image_decode_file(struct image_decoder *decoder, const struct image_place *place, uint8_t *out) {
    size_t size = 0;
    TRY(read_file(decoder, place, &size));
    return image_decode(decoder, place->path, decoder->file, size, out);
}

status image_describe_file(struct image_decoder *decoder, const struct image_place *place, struct text *out) {
    struct image_header header;
    size_t size = 0;
    TRY(read_file(decoder, place, &size));
    TRY(decode(decoder, place->path, decoder->file, size, true, &header));
    text_printf(out, "%s %zux%zu", header.kind, header.width, header.height);
    return OK;
}

status image_header_read(const struct image_place *place, struct image_header *out, bool *found) {
    const struct image_config config = {.channels = 3};
    struct image_decoder decoder = {.config = &config};
    uint8_t bytes[MAX_HEADER];
    size_t size = 0;
    *found = false;
    *out = (struct image_header){0};
    TRY(archive_read(place->archive, place->path, bytes, sizeof bytes, &size));
    status_free(decode(&decoder, place->path, bytes, size, true, out)); /* text in a PNG file may be longer than that */
    *found = out->width > 0 && out->height > 0;
    return OK;
}

status image_file_orientation(const struct image_place *place, int *orientation) {
    uint8_t bytes[MAX_HEADER];
    size_t size = 0;
    TRY(archive_read(place->archive, place->path, bytes, sizeof bytes, &size));
    *orientation = exif_orientation(bytes, size);
    return OK;
}

/* ---- masks ---- */

static status check_mask_size(struct image_decoder *decoder, const char *path, const struct image_place *image,
                              size_t width, size_t height) {
    struct image_header found;
    size_t size = 0;
    TRY(read_file(decoder, image, &size));
    TRY(decode(decoder, image->path, decoder->file, size, true, &found));
    if (found.width == width && found.height == height) return OK;
    bool is_turned = found.width == height && found.height == width && !decoder->config->exif_orientation &&
                     exif_is_swapped(exif_orientation(decoder->file, size));
    return status_data("%s: the mask has %zu x %zu pixels, but its image '%s' has %zu x %zu%s", path, width, height,
                       image->path, found.width, found.height,
                       is_turned ? "; dataset.image.exif_orientation: true turns the image upright" : "");
}

/* The pixel of each kept one; sums as in Pillow's ImagingScaleAffine, whose rounding decides between two neighbours. */
static void choose_pixels(const struct resize_range *range, size_t *chosen) {
    double scale = (double)range->in / (double)range->resized, at = scale * 0.5;
    for (size_t i = 0; i < range->first + range->count; i++, at += scale) {
        size_t pixel = (size_t)at < range->in ? (size_t)at : range->in - 1;
        if (i >= range->first) chosen[i - range->first] = pixel;
    }
}

static status crop_mask(const struct image_decoder *decoder, const uint8_t *pixels, size_t width, size_t height,
                        uint8_t *out) {
    struct resize_range x, y;
    image_kept(decoder, width, height, &x, &y);
    SCOPED_BUFFER size_t *columns = NULL;
    TRY(buffer_new((x.count + y.count) * sizeof *columns, "a mask", &columns));
    size_t *rows = columns + x.count;
    choose_pixels(&x, columns);
    choose_pixels(&y, rows);
    for (size_t i = 0; i < y.count; i++)
        for (size_t j = 0; j < x.count; j++) out[i * x.count + j] = pixels[rows[i] * width + columns[j]];
    return OK;
}

status image_decode_mask(struct image_decoder *decoder, const struct image_place *mask, const struct image_place *image,
                         uint8_t *out) {
    const char *path = mask->path;
    size_t size = 0;
    TRY(read_file(decoder, mask, &size));
    decoder->name = path;
    if (size < 8 || memcmp(decoder->file, "\x89PNG\r\n\x1a\n", 8) != 0)
        return status_data("%s: a mask must be a PNG image, whose pixels are exact; convert the file", path);
    struct png png = {.decoder = decoder, .next = decoder->file, .left = size, .are_indexes = true};
    status s = decode_png(&png, false);
    if (!s) s = check_mask_size(decoder, path, image, png.width, png.height);
    if (!s) s = crop_mask(decoder, png.pixels, png.width, png.height, out);
    buffer_free(png.pixels);
    return s;
}

/* ---- config ---- */

static const char *const crops[] = {"center", "none", NULL};

static const struct schema_row image_schema_rows[] = {
    SCHEMA_ROW(
        INT_LIST, struct image_config, size, .fallback = "[]", .min = 1, .max = 16384,
        .doc = "[height, width] of the rows, or one number for both. Required for a folder or an archive of images."),
    SCHEMA_ROW(INT_LIST, struct image_config, resize, .fallback = "[]", .min = 1, .max = 16384,
               .doc = "torchvision's Resize before the crop: one number is the new length of the shorter side, "
                      "[height, width] the new size whatever the shape of the image. When empty: with crop center the "
                      "larger number of size, else size."),
    SCHEMA_ROW(
        CHOICE, struct image_config, crop, .fallback = "center", .choices = crops,
        .doc =
            "center: the middle of the resized image (torchvision's CenterCrop); none: the image is resized to size."),
    SCHEMA_ROW(INT, struct image_config, channels, .fallback = "3", .min = 1, .max = 3,
               .doc = "3: red, green, blue; 1: grey (Pillow's convert(\"L\"), before the resize)."),
    SCHEMA_ROW(BOOL, struct image_config, dct_scaling, .fallback = "false",
               .doc = "Decode JPEG images at 1/2, 1/4 or 1/8 of their size where that is still at least the resized "
                      "size (Pillow's draft): faster, other values."),
    SCHEMA_ROW(BOOL, struct image_config, exif_orientation, .fallback = "false",
               .doc =
                   "Turn JPEG images upright by the orientation in their EXIF data (Pillow's ImageOps.exif_transpose), "
                   "such as photos of phones; false: as they are stored, as torchvision's ImageFolder."),
    SCHEMA_ROW(INT, struct image_config, threads, .fallback = "null", .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE,
               .min = 1, .max = 1024,
               .doc = "Threads of each rank that decode images; null: the processors of the rank."),
    SCHEMA_ROW(
        STRING, struct image_config, labels, .fallback = "null",
        .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE, /* the fingerprint is compared instead */
        .doc = "CSV file with a row for each image: the name of its file in the folder, and its targets in the columns "
               "that dataset.targets names (the last one when empty). Null: the class of an image is its folder."),
    SCHEMA_ROW(
        STRING, struct image_config, column, .fallback = "null", .flags = SCHEMA_INFERENCE,
        .doc = "Column of labels with the names of the files, with or without their extension; null: the first one."),
    SCHEMA_ROW(STRING, struct image_config, masks, .fallback = "null", .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE,
               .doc =
                   "Folder of masks, also one of an archive, the targets of a loss for each pixel: a grey or palette "
                   "PNG image for each image, of the same size, with the same path in the folder and the extension "
                   ".png. A pixel is the class (cross_entropy), or 0 and 1 or 255 (bce_with_logits, focal, dice)."),
    {0},
};

static void reject(const struct node *where, const char *key, const char *path, struct problems *problems,
                   const char *message) {
    const struct node *value = node_get(where, key);
    struct place place = value ? value->place : where ? where->place : (struct place){0};
    problems_add(problems, place, path, "%s", message);
}

static void check_image(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct image_config *image = config;
    size_t height, width;
    if (image->channels == 2) reject(where, "channels", path, problems, "channels must be 3 (RGB) or 1 (grey)");
    if (image->masks && image->labels)
        reject(where, "masks", path, problems, "labels and masks exclude each other; give one");
    if (image->size.count > 2 || image->resize.count > 2) {
        reject(where, image->size.count > 2 ? "size" : "resize", path, problems,
               "size and resize are [height, width] or one number");
        return;
    }
    if (image->size.count == 0 || image->resize.count == 0) return;
    image_rows(image, &height, &width);
    size_t resized = (size_t)image->resize.items[0], other = (size_t)image->resize.items[image->resize.count - 1];
    if (resized < height || other < width)
        reject(where, "resize", path, problems, "resize is smaller than size, so that there is nothing to crop");
    if (image->crop == CROP_NONE && (image->resize.count == 1 || resized != height || other != width))
        reject(where, "resize", path, problems, "with crop none the image is resized to size; remove resize");
}

const struct schema image_schema =
    SCHEMA("dataset.image", struct image_config, .rows = image_schema_rows, .shorthand = "size", .check = check_image);
