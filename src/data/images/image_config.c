/* The `image:` section of a dataset. */
#include "data/images/image.h"

static const char *const crops[] = {"center", "none", NULL};

static const struct schema_row image_schema_rows[] = {
    {.key = "size",
     .type = SCHEMA_INT_LIST,
     .offset = FIELD(struct image_config, size),
     .fallback = "[]",
     .min = 1,
     .max = 16384,
     .doc = "[height, width] of the rows, or one number for both. Required for a folder of images."},
    {.key = "resize",
     .type = SCHEMA_INT_LIST,
     .offset = FIELD(struct image_config, resize),
     .fallback = "[]",
     .min = 1,
     .max = 16384,
     .doc =
         "torchvision's Resize before the crop: one number is the new length of the shorter side, [height, width] "
         "the new size whatever the shape of the image. When empty: with crop center the larger number of size, else "
         "size."},
    {.key = "crop",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct image_config, crop),
     .fallback = "center",
     .choices = crops,
     .doc = "center: the middle of the resized image (torchvision's CenterCrop); none: the image is resized to size."},
    {.key = "channels",
     .type = SCHEMA_INT,
     .offset = FIELD(struct image_config, channels),
     .fallback = "3",
     .min = 1,
     .max = 3,
     .doc = "3: red, green, blue; 1: grey (Pillow's convert(\"L\"), before the resize)."},
    {.key = "dct_scaling",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct image_config, dct_scaling),
     .fallback = "false",
     .doc = "Decode JPEG images at 1/2, 1/4 or 1/8 of their size where that is still at least the resized size "
            "(Pillow's draft): faster, other values."},
    {.key = "exif_orientation",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct image_config, exif_orientation),
     .fallback = "false",
     .doc =
         "Turn JPEG images upright by the orientation in their EXIF data (Pillow's ImageOps.exif_transpose), such as "
         "photos of phones; false: as they are stored, as torchvision's ImageFolder."},
    {.key = "threads",
     .type = SCHEMA_INT,
     .offset = FIELD(struct image_config, threads),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE,
     .min = 1,
     .max = 1024,
     .doc = "Threads of each rank that decode images; null: the processors of the rank."},
    {.key = "labels",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct image_config, labels),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE, /* the fingerprint is compared instead */
     .doc = "CSV file with a row for each image: the name of its file in the folder, and its targets in the columns "
            "that dataset.targets names (the last one when empty). Null: the class of an image is its folder."},
    {.key = "column",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct image_config, column),
     .fallback = "null",
     .flags = SCHEMA_INFERENCE,
     .doc = "Column of labels with the names of the files, with or without their extension; null: the first one."},
    {.key = "masks",
     .type = SCHEMA_STRING,
     .offset = FIELD(struct image_config, masks),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS | SCHEMA_INFERENCE,
     .doc = "Folder of masks, the targets of a loss for each pixel: a grey or palette PNG image for each image, of the "
            "same size, with the same path in the folder and the extension .png. A pixel is the class (cross_entropy), "
            "or 0 and 1 or 255 (bce_with_logits, focal, dice)."},
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

const struct schema image_schema = {.name = "dataset.image",
                                    .size = sizeof(struct image_config),
                                    .rows = image_schema_rows,
                                    .shorthand = "size",
                                    .check = check_image};
