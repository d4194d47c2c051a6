/* Masks are found by the paths of their images and decoded when their targets are read: to check them when the dataset
 * is opened, then once to keep them, or for each batch. */
#include "data/source/image_masks.h"

#include <string.h>

#include "base/files/io.h"

static bool are_classes(const struct dataset_config *config, bool wants_classes) {
    return wants_classes || string_list_has(&config->class_targets, DATASET_TARGET_NAME);
}

static bool are_binary(const struct dataset_config *config) {
    return config->target_range == TARGETS_ARE_PROBABILITIES ||
           string_list_has(&config->probability_targets, DATASET_TARGET_NAME);
}

status image_masks_check(const struct dataset_config *config, bool wants_classes) {
    if (!config->image.masks || config->without_targets) return OK;
    if (are_classes(config, wants_classes) || are_binary(config)) return OK;
    return status_new(STATUS_USAGE,
                      "dataset.image.masks: the pixels of masks are classes; use loss: cross_entropy, nll, "
                      "bce_with_logits, focal or dice");
}

status image_masks_find(struct image_masks *masks, const struct dataset_config *config, bool wants_classes,
                        bool is_validation, struct arena *arena) {
    const char *folder = is_validation ? config->validation.targets : config->image.masks;
    if (!config->image.masks || config->without_targets) return OK;
    if (!folder)
        return status_new(STATUS_USAGE,
                          "dataset.validation.targets is missing: give the folder of the masks of the images in '%s'",
                          config->validation.path);
    char *copy = arena_copy(arena, folder);
    copy[io_length_without_slashes(copy)] = 0;
    masks->folder = copy;
    masks->is_binary = !are_classes(config, wants_classes);
    return folder_check(folder);
}

status image_masks_start(struct image_masks *masks, const struct image_config *image, struct source *base,
                         struct arena *arena) {
    if (!masks->folder) return OK;
    masks->size = (size_t)base->input_shape[1] * (size_t)base->input_shape[2];
    masks->pixels = arena_alloc(arena, masks->size);
    base->target_size = masks->size;
    base->target_dims = 2;
    memcpy(base->target_shape, base->input_shape + 1, 2 * sizeof *base->target_shape);
    return image_decoder_create(image, &masks->decoder);
}

void image_masks_close(struct image_masks *masks) { image_decoder_destroy(masks->decoder); }

/* "photos/a/1.jpg" has the mask "masks/a/1.png". */
static void add_path(const struct image_masks *masks, const char *below, const char *name, struct text *out) {
    const char *extension = strrchr(name, '.');
    text_printf(out, "%s%s/%.*s.png", masks->folder, below, (int)(extension - name), name);
}

static status check_exists(const char *mask, const char *image) {
    struct io_info info = {0};
    TRY(io_stat(mask, &info));
    if (info.exists) return OK;
    return status_new(STATUS_DATA, "%s: the image '%s' has no such mask; add it, or remove the image", mask, image);
}

static status make_binary(const struct image_masks *masks, const char *mask, double *values) {
    for (size_t i = 0; i < masks->size; i++) {
        if (values[i] > 1 && values[i] < 255)
            return status_new(
                STATUS_DATA,
                "%s: a pixel is %g; with this loss the pixels of masks must be 0 and 1, or 0 and 255 (for "
                "several classes use cross_entropy)",
                mask, values[i]);
        values[i] = values[i] > 0;
    }
    return OK;
}

status image_masks_read(struct image_masks *masks, const char *image, const char *below, const char *name,
                        double *values) {
    struct text path = {0};
    add_path(masks, below, name, &path);
    const char *mask = text_string(&path);
    status s = check_exists(mask, image);
    if (!s) s = image_decode_mask(masks->decoder, mask, image, masks->pixels);
    for (size_t i = 0; !s && i < masks->size; i++) values[i] = masks->pixels[i];
    if (!s && masks->is_binary) s = make_binary(masks, mask, values);
    text_free(&path);
    return s;
}

void image_masks_describe(const struct image_masks *masks, const char *below, const char *name, size_t width,
                          size_t element, struct text *out) {
    add_path(masks, below, name, out);
    text_printf(out, ", column %zu and line %zu of the resized mask", element % width, element / width);
}
