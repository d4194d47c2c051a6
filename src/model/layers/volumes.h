/* volumes: what the layers over (channels, depth, height, width) have in common. In memory a volume is a sequence of
 * images, (depth, height, width, channels), so operators over images compute all but the depth. */
#ifndef MODEL_LAYERS_VOLUMES_H
#define MODEL_LAYERS_VOLUMES_H

#include "model/layer.h"

/* The input must be (channels, depth, height, width). */
status volume_check(const struct layer *layer);

/* One image of a volume. */
struct image_shape volume_image(const struct shape *shape);

struct shape volume_shape(size_t channels, size_t depth, size_t height, size_t width);

/* Adds a problem unless the list, if it is given, has one or three numbers. */
void triple_check(const struct int_list *list, const char *key, const struct node *where, const char *path,
                  struct problems *problems);

/* The number of dimension [d]: 0 the depth, 1 the height, 2 the width. */
size_t triple_at(const struct int_list *list, int d);

#endif
