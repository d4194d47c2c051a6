/* The only place that knows every device. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "device/internal.h"

status device_check(const char *name) {
    if (strcmp(name, "cuda") == 0)
        return status_new(STATUS_USAGE, "train.device: cuda needs a build with CUDA; this one has the CPU only "
                                        "(use device: cpu or auto)");
    return OK;
}

status device_create(const char *name, struct device **out) {
    TRY(device_check(name));
    return cpu_device_create(NULL, out);
}

status device_set_precision(struct device *device, enum precision precision) {
    return device->set_precision(device, precision);
}

void device_destroy(struct device *device) {
    if (device && device->at_end) device->at_end(device);
    free(device);
}

const struct device_ops *device_ops(const struct device *device) { return device->ops; }

const char *device_describe(const struct device *device) { return device->description; }

status device_alloc(struct device *device, size_t bytes, const char *what, void **out) {
    (void)device;
    return buffer_new(bytes, what, out);
}

void device_free(struct device *device, void *memory) {
    (void)device;
    buffer_free(memory);
}
