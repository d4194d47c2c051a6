/* image_parts: a folder of images that is divided already: its folders are train, val and test, not classes. */
#ifndef DATA_IMAGE_PARTS_H
#define DATA_IMAGE_PARTS_H

#include "base/arena.h"
#include "base/status.h"

enum image_part { IMAGE_PART_NONE, IMAGE_PART_TRAIN, IMAGE_PART_VALIDATION, IMAGE_PART_TEST, IMAGE_PARTS };

/* The part that a folder with this name usually has, such as IMAGE_PART_VALIDATION for "val" and "Valid". */
enum image_part image_part_of(const char *name);

/* Paths in [arena], by part: folders in [folder], or NULL. All are NULL unless there is a part for the training, at
 * least one other part, and no folder with another name. */
status image_parts_find(const char *folder, struct arena *arena, const char *paths[IMAGE_PARTS]);

#endif
