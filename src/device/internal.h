/* What the devices share inside this floor. */
#ifndef DEVICE_INTERNAL_H
#define DEVICE_INTERNAL_H

#include "device/device.h"

struct device {
    const struct device_ops *ops;
    const char *description;
    void (*at_end)(struct device *); /* called by device_destroy; NULL: nothing to do */
    status (*set_precision)(struct device *, enum precision);
};

/* src/device/cpu. [set]: NULL picks the best instruction set of this machine; "baseline", "avx2", "avx512" for tests.
 */
status cpu_device_create(const char *set, struct device **out);

#endif
