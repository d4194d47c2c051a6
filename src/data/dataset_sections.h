/* dataset_sections: the parts of the `dataset:` section of the config, which dataset_config.c puts together. */
#ifndef DATA_DATASET_SECTIONS_H
#define DATA_DATASET_SECTIONS_H

#include "data/dataset.h"

extern const struct schema scale_section, split_section, window_section, text_section, tokens_section,
    synthetic_section;

/* Whether keys of `text:` are given; the config of a run has all of them. */
bool text_config_is_given(const struct text_config *text);

/* `dataset.window`: what it cannot be combined with. Without `split.shuffle` a split is in the order of time. [format]:
 * NULL: unknown. */
struct dataset_format;
void window_check(struct dataset_config *dataset, const struct dataset_format *format, const struct node *where,
                  struct problems *problems);

/* The place of the value of [key] in [where], else of [where]; NULL: none. */
struct place dataset_place(const struct node *where, const char *key);

/* schema.check of `dataset:`. */
void dataset_check_config(void *config, const struct node *where, const char *path, struct problems *problems);

#endif
