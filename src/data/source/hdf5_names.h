/* hdf5_names: which datasets of an HDF5 file are probably the inputs and the targets, for the config that `ddptrain
 * init` writes. */
#ifndef DATA_HDF5_NAMES_H
#define DATA_HDF5_NAMES_H

#include "base/arena.h"
#include "data/source/source.h"

/* Sets *inputs and *targets to names of datasets; NULL: "x" and "y", the defaults. [target]: the targets, NULL: the
 * file is searched. *unused: other datasets with as many rows. STATUS_DATA when it is not clear, with the names that
 * the file has. Memory in [arena]. */
status hdf5_names_find(const char *path, const char *target, struct arena *arena, const char **inputs,
                       const char **targets, struct string_list *unused);

#endif
