/* slice: its keys, with which chunk and split make their parts. */
#ifndef MODEL_LAYERS_SLICE_H
#define MODEL_LAYERS_SLICE_H

#include <stdint.h>

struct slice_config {
    int64_t dim, start, end;
};

#endif
