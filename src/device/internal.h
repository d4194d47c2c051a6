/* Declarations shared by the devices. */
#pragma once

#include "device/device.h"

struct device {
    const struct device_ops *ops;
    const char *description;
    const char *code;               /* device_code */
    void *stream;                   /* device_stream */
    void (*close)(struct device *); /* frees what the device owns; NULL: nothing */
    status (*set_precision)(struct device *, enum precision);
    const struct memory_ops *memory; /* NULL: host memory, and operators that are complete when they return */
};

/* Implement the device_... functions of the same names; memory is not NULL, bytes are not 0. */
struct memory_ops {
    status (*alloc)(struct device *, size_t bytes, const char *what, void **out);
    void (*release)(struct device *, void *memory);
    status (*info)(struct device *, size_t *free_bytes, size_t *total);
    size_t (*used)(const struct device *);
    status (*map)(struct device *, void **array);
    status (*unmap)(struct device *, void **array, bool has_changed);
    void (*upload)(struct device *, void *to, const void *from, size_t bytes);
    status (*download)(struct device *, void *to, const void *from, size_t bytes);
    void (*zero)(struct device *, void *memory, size_t bytes);
    void (*mark_written)(struct device *, const void *memory, size_t bytes);
    void (*upload_async)(struct device *, const struct device_transfer *transfers, size_t count);
    status (*upload_wait)(struct device *);
    void (*pin)(struct device *, void *memory, size_t bytes);
    void (*unpin)(struct device *, void *memory);
    void (*download_begin)(struct device *, int slot, const void *from, size_t bytes);
    status (*download_end)(struct device *, int slot, void *to, size_t bytes);
    void *(*download_stream)(const struct device *, int slot);
    status (*state)(const struct device *);
    status (*wait)(struct device *);
    void (*dry_run_begin)(struct device *);
    status (*dry_run_end)(struct device *);
    uint64_t (*moves)(const struct device *); /* from here on: NULL if the device cannot record */
    status (*record_begin)(struct device *, status *why);
    status (*record_end)(struct device *, struct device_recording **out, status *why);
    bool (*replay)(struct device *, const struct device_recording *);
    void (*recording_destroy)(struct device *, struct device_recording *);
};

/* src/device/cpu. [set]: NULL picks the best instruction set of this machine; "baseline", "avx2", "avx512" for tests.
 */
status cpu_device_create(const char *set, struct device **out);
/* Whether PRECISION_TF32 divides factors into two bfloat16 on this machine. */
bool cpu_splits_factors(void);

/* Exported by ddptrain_cuda.so (src/device/cuda) as ddptrain_cuda_gpus. */
struct gpu_module {
    /* Number of GPUs that this process may use, 0 or more. STATUS_USAGE if all are too old, or if the driver is older
     * than the module requires. */
    status (*count)(int *gpus);
    status (*create)(int gpu, struct device **out); /* [gpu]: 0 to count - 1 */
    status (*identity)(int gpu, char text[128]);    /* gpus.h */
};

/* Opens the module and counts GPUs: 1 or more. STATUS_USAGE with what is missing and a hint. */
status gpu_find(const struct gpu_module **module, int *gpus);

/* Whether the driver is installed: a cheap test, because gpu_find loads hundreds of MB. */
status gpu_find_driver(void);
