/* recurrent: the CPU's recurrent layers (device/recurrent.h). */
#ifndef DEVICE_CPU_RECURRENT_H
#define DEVICE_CPU_RECURRENT_H

#include "device/recurrent.h"

extern const struct recurrent_ops cpu_recurrent_ops;

#endif
