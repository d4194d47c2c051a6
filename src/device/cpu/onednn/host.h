/* host: what the module of oneDNN calls in the code that opens it, the program or libddptrain_predict.so. The library
 * exports nothing of it, so the module gets the addresses instead of symbols. */
#pragma once

#include "base/status.h"
#include "device/cpu/cpu.h"

struct onednn_host {
    status (*status_new)(enum status_code code, const char *format, ...);
    status (*status_memory)(const char *what, ...);
    void (*status_free)(status s);
    status (*workspace_reserve)(struct device *device, size_t bytes, const char *what);
    void *(*workspace_of)(struct device *device);
    /* whether the factors of a convolution are rounded to bfloat16 */
    bool (*is_rounded)(struct device *device, const struct convolution *c);
};

/* The only symbol of the module. [host] must stay valid. Thread-safe: every call must pass the same host. */
#define ONEDNN_OPEN "ddptrain_onednn_open"
typedef const struct convolution_kernels *onednn_open(const struct onednn_host *host);
onednn_open ddptrain_onednn_open;
