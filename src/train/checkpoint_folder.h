/* checkpoint_folder: the folder of a run's checkpoints, which one process writes (see checkpoint.h for opening the
 * newest and pruning). */
#ifndef TRAIN_CHECKPOINT_FOLDER_H
#define TRAIN_CHECKPOINT_FOLDER_H

#include "train/checkpoint_image.h"

#define CHECKPOINT_ENDING ".h5"

/* Writes the image as DIR/[name].h5 the safe way; the folder is made, left-over temporary files go first. */
status folder_add(const char *dir, const char *name, const struct image *image);

#endif
