/* image_labels: `dataset.image.labels`, a CSV file with a row for each image: the name of its file, and its targets in
 * other columns. It is read as any CSV file: dialect, labels of classes and messages are those of format csv. */
#ifndef DATA_IMAGE_LABELS_H
#define DATA_IMAGE_LABELS_H

#include "base/arena.h"
#include "data/source/source.h"

/* The file of the labels of the training or the validation images; NULL: the folders are the classes. */
const char *image_labels_path(const struct dataset_config *config, bool is_validation);

/* Opens the file [path], whose only input is the column of the names: *out, for its format's close. [train]: the labels
 * of the training images when these are those of the validation; else NULL. */
status image_labels_open(const struct dataset_config *config, const char *path, bool wants_classes,
                         const struct source *train, struct source **out);

/* *name, in [arena]: the image of [row], a file in [folder]; a name without the extension of an image gets that of the
 * file that exists. STATUS_DATA, with the line: there is none. */
status image_labels_name(struct source *labels, const char *folder, size_t row, struct arena *arena, const char **name);

/* Whether the model that [config] has the columns of was trained with a file of labels. */
bool image_labels_trained(const struct dataset_config *config);

/* The targets of the model, whose inputs have no names. */
struct column_list image_labels_columns(const struct source *labels, struct arena *arena);

#endif
