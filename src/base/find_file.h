/* find_file: where a file lies that a config names. */
#ifndef BASE_FIND_FILE_H
#define BASE_FIND_FILE_H

#include "base/arena.h"
#include "base/status.h"

/* Looks for *path, when it is relative: in the working directory, in the folder of the file [config], and in the folder
 * above that (a project with configs/ and datasets/). The first that is there wins. In the working directory *path
 * stays as it is; elsewhere it becomes the absolute path, in [arena], so that it means the same from everywhere. A path
 * that is nowhere stays as it is. *path may be NULL. */
status find_file(const char **path, const char *config, struct arena *arena);

#endif
