/* The kind of a file is found by its first bytes, as Pillow does, not by its name. */
#include "data/images/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "data/images/image_decoder.h"
#include "data/images/image_exif.h"

#define MAX_FILE ((uint64_t)1 << 30) /* bytes */
#define MAX_HEADER 65536             /* bytes in which EXIF data are searched for */

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

status image_damaged(const struct image_decoder *decoder, const char *reason) {
    return status_new(STATUS_DATA, "%s: the image is damaged: %s; replace or remove the file", decoder->name, reason);
}

status image_grow(uint8_t **memory, size_t *capacity, size_t bytes) {
    if (bytes <= *capacity) return OK;
    uint8_t *more = realloc(*memory, bytes);
    if (!more) return status_memory("an image");
    *memory = more;
    *capacity = bytes;
    return OK;
}

status image_check_size(const struct image_decoder *decoder, size_t width, size_t height) {
    if (width > 0 && height > 0 && height <= IMAGE_MAX_PIXELS / width) return OK;
    return status_new(STATUS_DATA, "%s: the image has %zu x %zu pixels; at most %u in total are decoded", decoder->name,
                      width, height, IMAGE_MAX_PIXELS);
}

void image_resized(const struct image_decoder *decoder, size_t width, size_t height, size_t *new_width,
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

void image_kept(const struct image_decoder *decoder, size_t width, size_t height, struct resize_range *x,
                struct resize_range *y) {
    size_t new_width, new_height;
    image_resized(decoder, width, height, &new_width, &new_height);
    *x = (struct resize_range){width, new_width, crop_start(new_width, decoder->width), decoder->width};
    *y = (struct resize_range){height, new_height, crop_start(new_height, decoder->height), decoder->height};
}

status image_start(struct image_decoder *decoder, size_t width, size_t height, size_t new_width, size_t new_height) {
    struct resize_range x = {width, new_width, crop_start(new_width, decoder->width), decoder->width};
    struct resize_range y = {height, new_height, crop_start(new_height, decoder->height), decoder->height};
    TRY(image_grow(&decoder->row, &decoder->row_capacity, width * IMAGE_PIXEL));
    return resizer_start(&decoder->resizer, &x, &y, decoder->config->channels == 1 ? 1 : IMAGE_PIXEL);
}

void image_add_row(struct image_decoder *decoder, size_t width) {
    uint8_t *row = decoder->row;
    bool is_grey = decoder->config->channels == 1;
    for (size_t i = 0; is_grey && i < width; i++) { /* Pillow's convert("L") */
        const uint8_t *pixel = row + i * IMAGE_PIXEL;
        row[i] = (uint8_t)((pixel[0] * 19595U + pixel[1] * 38470U + pixel[2] * 7471U + 0x8000U) >> 16);
    }
    resizer_add(&decoder->resizer, row);
}

/* ---- decoding ---- */

static status decode(struct image_decoder *decoder, const char *name, const uint8_t *bytes, size_t size, bool size_only,
                     const char **kind, size_t *width, size_t *height) {
    decoder->name = name;
    if (size >= 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0) {
        *kind = "JPEG";
        return image_decode_jpeg(decoder, bytes, size, size_only, width, height);
    }
    if (size >= 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0) {
        *kind = "PNG";
        return image_decode_png(decoder, bytes, size, size_only, width, height);
    }
    if (size == 0) return status_new(STATUS_DATA, "%s: the file is empty; replace or remove it", name);
    return status_new(STATUS_DATA, "%s: this is not a JPEG or PNG image; convert or remove the file", name);
}

status image_decode(struct image_decoder *decoder, const char *name, const uint8_t *bytes, size_t size, uint8_t *out) {
    const char *kind;
    size_t width, height;
    TRY(decode(decoder, name, bytes, size, false, &kind, &width, &height));
    resizer_finish(&decoder->resizer, (size_t)decoder->config->channels, out);
    return OK;
}

static status grow_file(struct image_decoder *decoder, const char *path, uint64_t bytes) {
    if (bytes > MAX_FILE)
        return status_new(STATUS_DATA, "%s: the file has %llu bytes; images of at most %llu are read", path,
                          (unsigned long long)bytes, (unsigned long long)MAX_FILE);
    return image_grow(&decoder->file, &decoder->file_capacity, (size_t)bytes);
}

static status read_file(struct image_decoder *decoder, const char *path, size_t *size) {
    struct io_info info;
    int fd;
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (!s && !info.is_file)
        s = status_new(STATUS_DATA, "%s: it is %s, not a file", path, info.is_folder ? "a folder" : "a device");
    if (!s) s = grow_file(decoder, path, info.size);
    if (!s) s = io_read(fd, path, decoder->file, (size_t)info.size, size);
    return status_first(s, io_close(fd, path));
}

status image_decode_file(struct image_decoder *decoder, const char *path, uint8_t *out) {
    size_t size = 0;
    TRY(read_file(decoder, path, &size));
    return image_decode(decoder, path, decoder->file, size, out);
}

status image_describe_file(struct image_decoder *decoder, const char *path, struct text *out) {
    const char *kind = "";
    size_t size = 0, width = 0, height = 0;
    TRY(read_file(decoder, path, &size));
    TRY(decode(decoder, path, decoder->file, size, true, &kind, &width, &height));
    text_printf(out, "%s %zux%zu", kind, width, height);
    return OK;
}

status image_file_orientation(const char *path, int *orientation) {
    uint8_t bytes[MAX_HEADER];
    size_t size = 0;
    int fd;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, bytes, sizeof bytes, &size);
    if (!s) *orientation = exif_orientation(bytes, size);
    return status_first(s, io_close(fd, path));
}

/* ---- masks ---- */

static status check_mask_size(struct image_decoder *decoder, const char *path, const char *image, size_t width,
                              size_t height) {
    const char *kind;
    size_t size = 0, image_width = 0, image_height = 0;
    TRY(read_file(decoder, image, &size));
    TRY(decode(decoder, image, decoder->file, size, true, &kind, &image_width, &image_height));
    if (image_width == width && image_height == height) return OK;
    bool is_turned = image_width == height && image_height == width && !decoder->config->exif_orientation &&
                     exif_is_swapped(exif_orientation(decoder->file, size));
    return status_new(STATUS_DATA, "%s: the mask has %zu x %zu pixels, but its image '%s' has %zu x %zu%s", path, width,
                      height, image, image_width, image_height,
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
    size_t *columns = calloc(x.count + y.count, sizeof *columns);
    if (!columns) return status_memory("a mask");
    size_t *rows = columns + x.count;
    choose_pixels(&x, columns);
    choose_pixels(&y, rows);
    for (size_t i = 0; i < y.count; i++)
        for (size_t j = 0; j < x.count; j++) out[i * x.count + j] = pixels[rows[i] * width + columns[j]];
    free(columns);
    return OK;
}

status image_decode_mask(struct image_decoder *decoder, const char *path, const char *image, uint8_t *out) {
    uint8_t *pixels = NULL;
    size_t size = 0, width = 0, height = 0;
    TRY(read_file(decoder, path, &size));
    decoder->name = path;
    if (size < 8 || memcmp(decoder->file, "\x89PNG\r\n\x1a\n", 8) != 0)
        return status_new(STATUS_DATA, "%s: a mask must be a PNG image, whose pixels are exact; convert the file",
                          path);
    status s = image_decode_png_indexes(decoder, decoder->file, size, &pixels, &width, &height);
    if (!s) s = check_mask_size(decoder, path, image, width, height);
    if (!s) s = crop_mask(decoder, pixels, width, height, out);
    buffer_free(pixels);
    return s;
}
