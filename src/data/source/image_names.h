/* image_names: finds the images that a CSV file without a config names. For the config that `ddptrain init` writes. */
#ifndef DATA_IMAGE_NAMES_H
#define DATA_IMAGE_NAMES_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/schema/schema.h"

struct image_names {
    const char *folder;         /* of the images; NULL: the file names none, or cannot be read */
    struct string_list columns; /* the header; the first one has the names of the images */
};

/* Looks for the first texts of the first column of [path] as images in the folder of [path] and in the folders in it.
 */
void image_names_find(const char *path, struct arena *arena, struct image_names *out);

/* Sets *name, in [arena], to the image [text] in [folder]; without the extension of an image it gets that of the file
 * that exists. *exists: there is one. */
status image_names_complete(const char *folder, const char *text, struct arena *arena, const char **name, bool *exists);

#endif
