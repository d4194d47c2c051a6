/* checkpoint_folder: the folder of a run's checkpoints, written by one process (see checkpoint.h for opening the newest
 * and pruning). */
#ifndef CHECKPOINT_FOLDER_H
#define CHECKPOINT_FOLDER_H

#include "checkpoint/checkpoint_image.h"

#define CHECKPOINT_ENDING ".h5"

/* Writes the image to DIR/[name].h5 with io_replace. Creates the folder and removes old temporary files first. */
status folder_add(const char *dir, const char *name, const struct image *image);

#endif
