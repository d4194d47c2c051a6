/* find_file: finds a file that a config names. */
#pragma once

#include "base/arena.h"
#include "base/status.h"

/* Searches a relative *path in the working directory, in the folder of the file [config], in the parent of that folder
 * (a project with configs/ and datasets/) and, where [config] is a symbolic link, in these two folders of its target;
 * the first match is used. A match outside of the working directory makes *path absolute, in [arena]. Otherwise *path
 * is unchanged. *path may be NULL. */
status find_file(const char **path, const char *config, struct arena *arena);
/* The same for a folder. */
status find_folder(const char **path, const char *config, struct arena *arena);
/* The same for what may be either: the first match of any kind, but not the folder that has [config] itself: a run that
 * starts from a file may have its name. All take patterns (*, ?, [, {) for files that exist; of {a,b} one is enough. */
status find_file_or_folder(const char **path, const char *config, struct arena *arena);
