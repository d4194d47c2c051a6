/* The CPU's convolutions: oneDNN for large ones if its module is installed, else those of sets/. */
#ifndef DEVICE_CPU_CONVOLUTION_H
#define DEVICE_CPU_CONVOLUTION_H

#include "device/image.h"

/* create selects those of sets/ from the device's kernels. */
extern const struct convolution_ops cpu_convolution_ops;

#endif
