/* checkpoint_folder: the folder of a run's checkpoints, which one process writes (see checkpoint.h for opening the
 * newest and pruning). */
#ifndef CHECKPOINT_FOLDER_H
#define CHECKPOINT_FOLDER_H

#include "checkpoint/checkpoint_image.h"

#define CHECKPOINT_ENDING ".h5"

/* Writes the image as DIR/[name].h5 the safe way; the folder is made, left-over temporary files go first. */
status folder_add(const char *dir, const char *name, const struct image *image);

#endif
