/* The CPU's losses, for its table of operators. */
#ifndef DEVICE_CPU_LOSSES_H
#define DEVICE_CPU_LOSSES_H

#include "device/losses.h"

extern const struct loss_ops cpu_losses;

#endif
