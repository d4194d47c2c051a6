/* Which of the kernels a processor has; compiled for every processor. */
#include "device/cpu/bf16/kernels.h"

#include <string.h>

#ifdef DDPTRAIN_X86_KERNELS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/cpu/bf16/sets.h"

static bool has_avx512_bf16(void) {
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma");
}

/* Of arch_prctl (Linux 5.16), whose header older systems lack. */
#define REQUEST_PERMISSION 0x1023
#define TILE_DATA 18

/* cpuid (7, 0), edx; compilers do not know these names yet */
#define HAS_AMX_BF16 (1u << 22)
#define HAS_AMX_TILE (1u << 24)

static bool has_amx(void) {
    unsigned a, b, c, d;
    if (!has_avx512_bf16() || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    return d & HAS_AMX_BF16 && d & HAS_AMX_TILE && syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

const struct bf16_kernels *bf16_kernels_find(const char *name) {
    if ((!name || strcmp(name, "amx") == 0) && has_amx()) return &bf16_kernels_amx;
    if ((!name || strcmp(name, "avx512_bf16") == 0) && has_avx512_bf16()) return &bf16_kernels_avx512;
    return NULL;
}

const struct bf16_kernels *bf16_kernels_find_parts(const char *name, size_t parts) {
    if (bf16_kernels_find(name) != &bf16_kernels_amx) return NULL;
    return parts == 2 ? &bf16_kernels_amx_two : &bf16_kernels_amx_three;
}
#else
const struct bf16_kernels *bf16_kernels_find(const char *name) {
    (void)name;
    return NULL;
}

const struct bf16_kernels *bf16_kernels_find_parts(const char *name, size_t parts) {
    (void)parts;
    return bf16_kernels_find(name);
}
#endif
