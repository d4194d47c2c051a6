/* The CPU's convolutions: oneDNN's for large ones where its module is installed, else the own ones of sets/. */
#ifndef DEVICE_CPU_CONVOLUTION_H
#define DEVICE_CPU_CONVOLUTION_H

#include "device/image.h"

/* Its create takes the own ones from the device's kernels. */
extern const struct convolution_ops cpu_convolution_ops;

#endif
