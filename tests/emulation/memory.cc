/* Memory of the emulated GPU. It is in a range of addresses that the host cannot access: allocations are accessible
 * only while the GPU works. Each ends at an inaccessible page and starts as garbage, and its address is never reused,
 * so that an access outside, too early or too late is a SIGSEGV at once. Managed memory is always accessible. */
#include <execinfo.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emulation.h"

namespace emulation {
namespace {

constexpr size_t PAGE = 4096, ALIGNMENT = 256, RANGE = (size_t)1 << 38, FILL_MAX = 8 << 20, FILL_PART = 1 << 20;
constexpr unsigned char GARBAGE = 0xff, MARK = 0xa5; /* MARK: between an allocation's pages and its own bytes */

struct allocation {
    size_t bytes;
    unsigned char *pages; /* NULL: pinned by cudaHostRegister */
    size_t page_bytes;
    place where;
    int device;
};
std::map<uintptr_t, allocation> allocations; /* by address */
unsigned char *range, *next_free;
size_t used[64], peak;           /* bytes by device; peak of all devices */
size_t pinned, max_pinned_bytes; /* of cudaHostAlloc */
int open_count;
struct sigaction before;

void on_fault(int number, siginfo_t *info, void *) {
    unsigned char *at = (unsigned char *)info->si_addr;
    if (range && at >= range && at < range + RANGE) {
        char text[600];
        const char *kernel = running_kernel();
        auto found = allocations.upper_bound((uintptr_t)at);
        long offset = -1;
        size_t bytes = 0;
        if (found != allocations.begin()) {
            --found;
            offset = (long)((uintptr_t)at - found->first);
            bytes = found->second.bytes;
        }
        int length = snprintf(text, sizeof text,
                              "\nemulated GPU: %s%.300s accessed GPU memory at %p, byte %ld of an allocation of %zu "
                              "bytes before it\n",
                              kernel ? "kernel " : "",
                              kernel       ? kernel
                              : open_count ? "an operation"
                                           : "the host",
                              (void *)at, offset, bytes);
        void *frames[40];
        if (write(STDERR_FILENO, text, (size_t)length) < 0) abort();
        if (!kernel) backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
    }
    sigaction(number, &before, nullptr); /* the access is repeated and ends the process */
}

void begin() {
    if (range) return;
    void *p = mmap(nullptr, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) die("no address range for GPU memory");
    range = next_free = (unsigned char *)p;
    void *frames[1];
    backtrace(frames, 1); /* loads its library before the signal handler needs it */
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before);
}

bool is_guarded(const allocation &a) { return a.where == DEVICE; }

void set_access(int protection) {
    for (auto &[address, a] : allocations)
        if (is_guarded(a)) mprotect(a.pages, a.page_bytes, protection);
}

cudaError_t make(void **memory, size_t bytes, place where) {
    begin();
    int device = 0;
    cudaGetDevice(&device);
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    if (is_to_fail("malloc")) return result(cudaErrorMemoryAllocation);
    size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, page_bytes = (whole + PAGE - 1) / PAGE * PAGE;
    bool is_counted = where == DEVICE || where == MANAGED;
    if (is_counted && page_bytes > get_settings().memory - used[device]) {
        usleep(get_settings().refusal_ms * 1000);
        return result(cudaErrorMemoryAllocation);
    }
    if (next_free + page_bytes + PAGE > range + RANGE) die("no addresses left for GPU memory");
    unsigned char *pages = next_free, *own = pages + page_bytes - whole;
    next_free += page_bytes + PAGE;
    mprotect(pages, page_bytes, PROT_READ | PROT_WRITE);
    memset(pages, MARK, (size_t)(own - pages));
    size_t filled = bytes <= FILL_MAX ? bytes : FILL_PART; /* untouched pages cost no memory */
    memset(own, GARBAGE, filled);
    memset(own + bytes - filled, GARBAGE, filled);
    memset(own + bytes, MARK, whole - bytes);
    if (where == DEVICE && !open_count) mprotect(pages, page_bytes, PROT_NONE);
    allocations[(uintptr_t)own] = {bytes, pages, page_bytes, where, device};
    if (is_counted) used[device] += page_bytes;
    if (where == PINNED) max_pinned_bytes = std::max(max_pinned_bytes, pinned += bytes);
    if (is_counted) allocations_made++;
    if (is_counted && kernels_started > 0) late_allocations++;
    size_t now = 0;
    for (size_t bytes_of_one : used) now += bytes_of_one;
    peak = std::max(peak, now);
    *memory = own;
    return cudaSuccess;
}

/* Checks that nothing was written before or after an allocation. */
void check(uintptr_t address, const allocation &a) {
    if (!a.pages) return;
    unsigned char *own = (unsigned char *)address;
    for (unsigned char *p = a.pages; p < a.pages + a.page_bytes; p++) {
        if (p == own) p += a.bytes;
        if (p < a.pages + a.page_bytes && *p != MARK)
            die("a write outside of an allocation of %zu bytes, at its byte %ld", a.bytes, (long)(p - own));
    }
}

cudaError_t drop(void *memory, bool is_host) {
    if (!memory) return cudaSuccess;
    auto found = allocations.find((uintptr_t)memory);
    if (found == allocations.end() || (found->second.where == PINNED) != is_host) return result(cudaErrorInvalidValue);
    allocation a = found->second;
    {
        opened o;
        check(found->first, a);
    }
    allocations.erase(found);
    if (!is_host) used[a.device] -= a.page_bytes;
    if (is_host) pinned -= a.bytes;
    madvise(a.pages, a.page_bytes, MADV_DONTNEED);
    mprotect(a.pages, a.page_bytes, PROT_NONE);
    return cudaSuccess;
}

} // namespace

size_t max_used() { return peak; }

size_t max_pinned() { return max_pinned_bytes; }

opened::opened() {
    if (open_count++ == 0) set_access(PROT_READ | PROT_WRITE);
}

opened::~opened() {
    if (--open_count == 0) set_access(PROT_NONE);
}

void check_all_memory() {
    opened o;
    for (auto &[address, a] : allocations) check(address, a);
}

place place_of(const void *p, size_t bytes, const char *who) {
    uintptr_t address = (uintptr_t)p;
    auto found = allocations.upper_bound(address);
    if (found != allocations.begin()) {
        --found;
        uintptr_t end = found->first + found->second.bytes;
        if (address < end && bytes <= end - address) return found->second.where;
        if (address < end)
            die("%s: %zu bytes at byte %zu of an allocation of %zu bytes", who, bytes, (size_t)(address - found->first),
                found->second.bytes);
    }
    if (range && address >= (uintptr_t)range && address < (uintptr_t)range + RANGE)
        die("%s: %p is in no allocation of the GPU", who, p);
    return PAGEABLE;
}

} // namespace emulation

using namespace emulation;

/* Not during a capture. */
static cudaError_t make_if_allowed(void **memory, size_t bytes, place where) {
    if (sticky != cudaSuccess) return sticky;
    cudaError_t error = forbid_unsafe_call();
    return error == cudaSuccess ? make(memory, bytes, where) : error;
}

/* [is_host]: pinned memory. */
static cudaError_t drop_if_allowed(void *memory, bool is_host) {
    if (!memory) return cudaSuccess;
    cudaError_t error = forbid_unsafe_call();
    if (error == cudaSuccess) error = run_all(); /* it waits for the GPU */
    return error == cudaSuccess ? drop(memory, is_host) : error;
}

cudaError_t emulated_malloc(void **memory, size_t bytes) {
    guard g(lock);
    return make_if_allowed(memory, bytes, DEVICE);
}

cudaError_t emulated_malloc_async(void **memory, size_t bytes, cudaStream_t) {
    guard g(lock);
    return sticky != cudaSuccess ? sticky : make(memory, bytes, DEVICE);
}

cudaError_t emulated_malloc_managed(void **memory, size_t bytes) {
    guard g(lock);
    return make_if_allowed(memory, bytes, MANAGED);
}

cudaError_t emulated_malloc_host(void **memory, size_t bytes) {
    guard g(lock);
    return make_if_allowed(memory, bytes, PINNED);
}

cudaError_t cudaFree(void *memory) {
    guard g(lock);
    return drop_if_allowed(memory, false);
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
    guard g(lock);
    return enqueue(stream, [memory]() { drop(memory, false); });
}

cudaError_t cudaFreeHost(void *memory) {
    guard g(lock);
    return drop_if_allowed(memory, true);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned) {
    guard g(lock);
    cudaError_t error = forbid_unsafe_call();
    if (error != cudaSuccess) return error;
    begin();
    if (place_of(memory, bytes, "cudaHostRegister") != PAGEABLE) return result(cudaErrorInvalidValue);
    allocations[(uintptr_t)memory] = {bytes, nullptr, 0, PINNED, 0};
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory) {
    guard g(lock);
    auto found = allocations.find((uintptr_t)memory);
    if (found == allocations.end() || found->second.pages) return result(cudaErrorInvalidValue);
    cudaError_t error = forbid_unsafe_call();
    if (error == cudaSuccess) error = run_all();
    if (error == cudaSuccess) allocations.erase(found);
    return error;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all_bytes) {
    guard g(lock);
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error != cudaSuccess) return error;
    *all_bytes = get_settings().memory;
    *free_bytes = *all_bytes - used[device];
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory) {
    guard g(lock);
    *attributes = {};
    place where = place_of(memory, 1, "cudaPointerGetAttributes");
    if (where == PAGEABLE) return cudaSuccess;
    attributes->type = where == PINNED   ? cudaMemoryTypeHost
                       : where == DEVICE ? cudaMemoryTypeDevice
                                         : cudaMemoryTypeManaged;
    attributes->devicePointer = const_cast<void *>(memory);
    attributes->hostPointer = where == DEVICE ? nullptr : const_cast<void *>(memory);
    return cudaSuccess;
}

cudaError_t cudaMemPrefetchAsync(const void *memory, size_t bytes, cudaMemLocation, unsigned, cudaStream_t) {
    guard g(lock);
    place where = place_of(memory, bytes, "cudaMemPrefetchAsync");
    return where == MANAGED ? cudaSuccess : result(cudaErrorInvalidValue);
}
