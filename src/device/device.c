/* Selects the device by its name; the only file that refers to every device. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "device/internal.h"

static bool is_gpu(const char *name) { return strcmp(name, "cuda") == 0; }

/* [s]: a clause with what is missing. */
static status explain(status s) {
    if (!s) return OK;
    status explanation =
        status_new(status_code(s), "train.device: cuda needs %s, or use device: cpu", status_message(s));
    status_free(s);
    return explanation;
}

status device_check(const char *name) {
    const struct gpu_module *module;
    int gpus;
    return is_gpu(name) ? explain(gpu_find(&module, &gpus)) : OK;
}

static status create_cpu(struct device **out) {
    const char *set = getenv("DDPTRAIN_CPU");
    return status_prefix(cpu_device_create(set && *set ? set : NULL, out), "DDPTRAIN_CPU");
}

status device_create(const char *name, struct device **out) {
    static const struct gpus_process alone = {.local_rank = 0, .local_size = 1};
    return device_create_local(name, &alone, out);
}

status device_create_local(const char *name, const struct gpus_process *process, struct device **out) {
    const struct gpu_module *module;
    int gpus, own;
    if (!is_gpu(name)) return create_cpu(out);
    TRY(explain(gpu_find(&module, &gpus)));
    TRY(explain(gpus_choose(process, &own)));
    return module->create(own, out);
}

status device_set_precision(struct device *device, enum precision precision) {
    return device->set_precision(device, precision);
}

bool device_has_tf32(const char *name) { return is_gpu(name) || cpu_splits_factors(); }

void device_destroy(struct device *device) {
    if (device && device->close) device->close(device);
    free(device);
}

const struct device_ops *device_ops(const struct device *device) { return device->ops; }

void *device_stream(const struct device *device) { return device->stream; }

const char *device_describe(const struct device *device) { return device->description; }

const char *device_code(const struct device *device) { return device->code; }

status device_status(const struct device *device) { return device->memory ? device->memory->state(device) : OK; }

status device_wait(struct device *device) { return device->memory ? device->memory->wait(device) : OK; }

status device_alloc(struct device *device, size_t bytes, const char *what, void **out) {
    return device->memory ? device->memory->alloc(device, bytes, what, out) : buffer_new(bytes, what, out);
}

void device_free(struct device *device, void *memory) {
    if (!memory) return;
    if (device->memory)
        device->memory->release(device, memory);
    else
        buffer_free(memory);
}

status device_memory_info(struct device *device, size_t *free_bytes, size_t *total) {
    return device->memory->info(device, free_bytes, total);
}

size_t device_memory_used(const struct device *device) { return device->memory->used(device); }

void device_dry_run_begin(struct device *device) { device->memory->dry_run_begin(device); }

status device_dry_run_end(struct device *device) { return device->memory->dry_run_end(device); }

bool device_is_host(const struct device *device) { return !device->memory; }

status device_map(struct device *device, void **array) {
    return device->memory && *array ? device->memory->map(device, array) : OK;
}

status device_unmap(struct device *device, void **array, bool has_changed) {
    return device->memory && *array ? device->memory->unmap(device, array, has_changed) : OK;
}

void device_upload(struct device *device, void *to, const void *from, size_t bytes) {
    if (bytes == 0) return;
    if (device->memory)
        device->memory->upload(device, to, from, bytes);
    else
        memcpy(to, from, bytes);
}

status device_download(struct device *device, void *to, const void *from, size_t bytes) {
    if (device->memory) return bytes ? device->memory->download(device, to, from, bytes) : OK;
    if (bytes) memcpy(to, from, bytes);
    return OK;
}

void device_zero(struct device *device, void *memory, size_t bytes) {
    if (bytes == 0) return;
    if (device->memory)
        device->memory->zero(device, memory, bytes);
    else
        memset(memory, 0, bytes);
}

void device_mark_written(struct device *device, const void *memory, size_t bytes) {
    if (device->memory) device->memory->mark_written(device, memory, bytes);
}

void device_upload_async(struct device *device, const struct device_transfer *transfers, size_t count) {
    device->memory->upload_async(device, transfers, count);
}

status device_upload_wait(struct device *device) { return device->memory->upload_wait(device); }

void device_pin(struct device *device, void *memory, size_t bytes) { device->memory->pin(device, memory, bytes); }

void device_unpin(struct device *device, void *memory) { device->memory->unpin(device, memory); }

void device_download_begin(struct device *device, int slot, const void *from, size_t bytes) {
    device->memory->download_begin(device, slot, from, bytes);
}

status device_download_end(struct device *device, int slot, void *to, size_t bytes) {
    return device->memory->download_end(device, slot, to, bytes);
}

void *device_download_stream(const struct device *device, int slot) {
    return device->memory->download_stream(device, slot);
}

bool device_can_record(const struct device *device) { return device->memory && device->memory->record_begin; }

uint64_t device_moves(const struct device *device) {
    return device_can_record(device) ? device->memory->moves(device) : 0;
}

status device_record_begin(struct device *device, status *why) { return device->memory->record_begin(device, why); }

status device_record_end(struct device *device, struct device_recording **out, status *why) {
    return device->memory->record_end(device, out, why);
}

bool device_replay(struct device *device, const struct device_recording *recording) {
    return device->memory->replay(device, recording);
}

void device_recording_destroy(struct device *device, struct device_recording *recording) {
    if (recording) device->memory->recording_destroy(device, recording);
}
