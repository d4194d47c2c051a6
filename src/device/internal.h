/* What the devices share inside this floor. */
#ifndef DEVICE_INTERNAL_H
#define DEVICE_INTERNAL_H

#include "device/device.h"

struct device {
    const struct device_ops *ops;
    const char *description;
    void *stream;                    /* device_stream */
    void (*at_end)(struct device *); /* called by device_destroy; NULL: nothing to do */
    status (*set_precision)(struct device *, enum precision);
    const struct memory_ops *memory; /* NULL: the host's, and operators that are done when they return */
};

/* The functions device_... of the same names; memory is not NULL, bytes are not 0. */
struct memory_ops {
    status (*alloc)(struct device *, size_t bytes, const char *what, void **out);
    void (*release)(struct device *, void *memory);
    status (*room)(struct device *, size_t *left, size_t *all);
    size_t (*taken)(const struct device *);
    status (*lend)(struct device *, void **array);
    status (*take_back)(struct device *, void **array, bool has_changed);
    void (*upload)(struct device *, void *to, const void *from, size_t bytes);
    status (*download)(struct device *, void *to, const void *from, size_t bytes);
    void (*zero)(struct device *, void *memory, size_t bytes);
    void (*wrote)(struct device *, const void *memory, size_t bytes);
    void (*upload_beside)(struct device *, const struct device_piece *pieces, size_t count);
    status (*upload_wait)(struct device *);
    void (*pin)(struct device *, void *memory, size_t bytes);
    void (*unpin)(struct device *, void *memory);
    void (*download_later)(struct device *, int slot, const void *from, size_t bytes);
    status (*download_end)(struct device *, int slot, void *to, size_t bytes);
    void *(*download_stream)(const struct device *, int slot);
    status (*state)(const struct device *);
    status (*wait)(struct device *);
    void (*rehearse_begin)(struct device *);
    status (*rehearse_end)(struct device *);
    uint64_t (*moves)(const struct device *); /* this and what follows: NULL where nothing can be recorded */
    status (*record_begin)(struct device *, status *why);
    status (*record_end)(struct device *, struct device_recording **out, status *why);
    bool (*replay)(struct device *, const struct device_recording *);
    void (*recording_destroy)(struct device *, struct device_recording *);
};

/* src/device/cpu. [set]: NULL picks the best instruction set of this machine; "baseline", "avx2", "avx512" for tests.
 */
status cpu_device_create(const char *set, struct device **out);

/* What ddptrain_cuda.so (src/device/cuda) gives, under the name ddptrain_cuda_gpus. */
struct gpu_module {
    /* GPUs that this process may use, 0 or more. Only too old ones, or a driver that is older than the module needs:
     * STATUS_USAGE. */
    status (*count)(int *gpus);
    status (*create)(int gpu, struct device **out); /* [gpu]: 0 to count - 1 */
    status (*identity)(int gpu, char text[128]);    /* gpus.h */
};

/* Opens the module and looks for GPUs: 1 or more. STATUS_USAGE says what is missing, and what to do. */
status gpu_find(const struct gpu_module **module, int *gpus);

/* gpu_find where the driver is absent would load hundreds of MB to learn that: whether it is there. */
status gpu_find_driver(void);

#endif
