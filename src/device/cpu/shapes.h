/* shapes: operators that change shapes, for every instruction set: they move memory. Threads split rows. */
#ifndef DEVICE_CPU_SHAPES_H
#define DEVICE_CPU_SHAPES_H

#include "device/shapes.h"

extern const struct shape_ops cpu_shape_ops;

#endif
