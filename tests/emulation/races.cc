/* Races in shared memory. A build with -DDDPTRAIN_EMULATION_RACES=ON compiles kernels with -fsanitize=thread, but links
 * no ThreadSanitizer: the functions below are called before every access to memory instead. For every byte of shared
 * memory they keep the last writer and the last reader, with the number of the block's barriers and of the warp's
 * __syncwarp so far. Two accesses of different threads, one of them a write, without either between them end the
 * process: on a GPU their order is undefined, even if the emulation, which runs threads one by one, computes the right
 * numbers. Bytes of static shared memory that a kernel accesses are counted. */
#include <dlfcn.h>

#include "emulation.h"

namespace emulation {
namespace {

constexpr unsigned MANY = 0xffff, WARP = 0x8000, LANES = 32, WARPS = 32;

/* Threads that accessed a byte last: a thread, WARP | w for several of warp w, or MANY. */
struct access_record {
    unsigned epoch, syncs; /* barriers and the warp's __syncwarp before it */
    unsigned short who;
};
struct cell {
    access_record written, read;
    unsigned kernel; /* the last one that accessed it */
};
struct region {
    unsigned char *start;
    size_t bytes;
    bool is_static;
    std::vector<cell> cells;
};
std::vector<region> regions;
unsigned epoch, kernel, syncs[WARPS];
size_t static_bytes;
bool is_active; /* within a kernel that was compiled for it */

bool is_before(const access_record &r, unsigned thread) {
    if (r.epoch != epoch) return true;
    if (r.who == MANY) return false;
    bool is_warp = r.who & WARP;
    unsigned warp = is_warp ? r.who & ~WARP : r.who / LANES;
    if (!is_warp && r.who == thread) return true;
    return warp == thread / LANES && r.syncs < syncs[warp];
}

[[noreturn]] void report(const access_record &other, unsigned thread, bool is_write, const char *earlier, size_t offset,
                         bool is_static, const void *where) {
    Dl_info info = {};
    char who[60];
    dladdr(where, &info);
    if (other.who == MANY)
        snprintf(who, sizeof who, "several threads");
    else if (other.who & WARP)
        snprintf(who, sizeof who, "several threads of warp %u", other.who & ~WARP);
    else
        snprintf(who, sizeof who, "thread %u", (unsigned)other.who);
    die("%s: block (%u,%u,%u): a race in shared memory: thread %u %s byte %zu of %s shared memory, which %s %s, "
        "without "
        "a barrier between them; addr2line -e %s %#zx",
        running_kernel(), blockIdx.x, blockIdx.y, blockIdx.z, thread, is_write ? "writes" : "reads", offset,
        is_static ? "static" : "dynamic", who, earlier, info.dli_fname ? info.dli_fname : "?",
        (size_t)where - (size_t)info.dli_fbase);
}

void record(access_record *r, unsigned thread) {
    unsigned warp = thread / LANES, own = r->who & WARP && r->who != MANY ? r->who & ~WARP : r->who / LANES;
    if (r->epoch != epoch || r->who == thread)
        *r = {epoch, syncs[warp], (unsigned short)thread};
    else if (r->who == MANY || own != warp)
        r->who = MANY;
    else
        *r = {epoch, syncs[warp], (unsigned short)(r->syncs < syncs[warp] ? thread : WARP | warp)};
}

void access(const void *p, size_t bytes, bool is_write, const void *where) {
    if (!is_active) return;
    for (region &r : regions) {
        size_t at = (size_t)((const unsigned char *)p - r.start);
        if ((const unsigned char *)p < r.start || at >= r.bytes) continue;
        unsigned thread = running_thread();
        for (size_t i = at; i < at + bytes && i < r.bytes; i++) {
            cell &c = r.cells[i];
            if (c.kernel != kernel) c.kernel = kernel, static_bytes += r.is_static;
            if (!is_before(c.written, thread)) report(c.written, thread, is_write, "wrote", i, r.is_static, where);
            if (is_write && !is_before(c.read, thread)) report(c.read, thread, is_write, "read", i, r.is_static, where);
            record(is_write ? &c.written : &c.read, thread);
        }
        return;
    }
}

bool is_compiled; /* some module calls these functions */

} // namespace

void races_begin_kernel() {
    is_active = is_compiled;
    regions.clear();
    static_bytes = 0;
    kernel++;
}

void races_add(unsigned char *start, size_t bytes, bool is_static) {
    if (is_active && bytes) regions.push_back({start, bytes, is_static, std::vector<cell>(bytes)});
}

/* Also at the start of a block. */
void races_barrier() { epoch++; }

void races_warp(unsigned thread) { syncs[thread / LANES]++; }

void races_write(const void *p, size_t bytes) { access(p, bytes, true, __builtin_return_address(0)); }

size_t races_end_kernel() {
    is_active = false;
    return static_bytes;
}

} // namespace emulation

using namespace emulation;

#define HOOK __attribute__((visibility("default")))
#define ACCESS(name, bytes)                                                                                            \
    HOOK void __tsan_read##name(void *p) { access(p, bytes, false, __builtin_return_address(0)); }                     \
    HOOK void __tsan_write##name(void *p) { access(p, bytes, true, __builtin_return_address(0)); }                     \
    HOOK void __tsan_unaligned_read##name(void *p) { access(p, bytes, false, __builtin_return_address(0)); }           \
    HOOK void __tsan_unaligned_write##name(void *p) { access(p, bytes, true, __builtin_return_address(0)); }

extern "C" {
HOOK void __tsan_init() { is_compiled = true; }
HOOK void __tsan_func_entry(void *) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_vptr_update(void **, void *) {}
HOOK void __tsan_vptr_read(void **) {}
HOOK void __tsan_read_range(void *p, size_t bytes) { access(p, bytes, false, __builtin_return_address(0)); }
HOOK void __tsan_write_range(void *p, size_t bytes) { access(p, bytes, true, __builtin_return_address(0)); }
/* guards of static variables */
HOOK char __tsan_atomic8_load(const volatile char *p, int) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }
ACCESS(1, 1)
ACCESS(2, 2)
ACCESS(4, 4)
ACCESS(8, 8)
ACCESS(16, 16)
}
