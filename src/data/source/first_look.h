/* first_look: what formats find in a file that nobody has described yet, for the config that `ddptrain init` writes. */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"
#include "base/status.h"
#include "data/csv/csv.h"
#include "data/source/source.h"

/* ---- CSV ---- */

/* Whether the first record of a CSV file has the names of the columns, or is a row like those below. */

/* Compares the first record with the rows below it. It is a row if its values have their types: numbers above numbers,
 * dates above dates, texts that occur below again; but not if its numbers are plausible as names (0, 1, 2, ...; five or
 * more that increase; years). [dialect] NULL: recognised. False also for a file that cannot be read, which reading it
 * will report. */
bool csv_first_is_row(const char *path, const struct csv_config *dialect);

/* ---- SQLite ---- */

/* *table: the only table of the database, or the one with the most rows among those with a column [target] (NULL: any);
 * *tables: all of them. Memory in [arena]. */
status sqlite_choose_table(const char *path, const char *target, struct arena *arena, struct string_list *tables,
                           const char **table);

/* ---- HDF5 ---- */

/* Which datasets of an HDF5 file are probably the inputs and the targets, for the config that `ddptrain
 * init` writes. */

/* Sets *inputs and *targets to names of datasets; NULL: "x" and "y", the defaults. [target]: the targets, NULL: the
 * file is searched. *unused: other datasets with as many rows. STATUS_DATA when it is not clear, with the names that
 * the file has. Memory in [arena]. */
status hdf5_names_find(const char *path, const char *target, struct arena *arena, const char **inputs,
                       const char **targets, struct string_list *unused);

/* ---- images that a CSV file names ---- */

/* Finds the images that a CSV file without a config names. For the config that `ddptrain init` writes. */

struct image_names {
    const char *folder;         /* of the images; NULL: the file names none, or cannot be read */
    struct string_list columns; /* the header; the first one has the names of the images */
};

/* Looks for the first texts of the first column of [path] as images in the folder of [path] and in the folders in it.
 */
void image_names_find(const char *path, struct arena *arena, struct image_names *out);

/* ---- folders of images ---- */

/* A folder of images that is divided already: its folders are train, val and test, not classes. */

enum image_part { IMAGE_PART_NONE, IMAGE_PART_TRAIN, IMAGE_PART_VALIDATION, IMAGE_PART_TEST, IMAGE_PARTS };

/* Paths in [arena], by part: folders in [folder], or NULL. All are NULL unless there is a part for the training, at
 * least one other part, and no folder with another name. */
status image_parts_find(const char *folder, struct arena *arena, const char *paths[IMAGE_PARTS]);
