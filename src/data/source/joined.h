/* joined: the rows of several files of one format, one file after another. */
#ifndef DATA_JOINED_H
#define DATA_JOINED_H

#include "data/source/source.h"

/* Whether [format] can be joined; others read all files themselves, or only one. */
bool joined_supports(const struct dataset_format *format);

/* As dataset_format.open, for [files] (two or more), which have rows of the same shape. */
status joined_open(const struct dataset_format *format, const struct dataset_config *config,
                   const struct string_list *files, bool wants_classes, const struct source *train,
                   struct source **out);

/* [source], or the first of its files when it is joined; takes NULL. */
const struct source *joined_first(const struct source *source);

#endif
