/* The emulated GPU: what its parts share. One lock guards all; whoever must wait for work does it meanwhile. */
#ifndef EMULATION_EMULATION_H
#define EMULATION_EMULATION_H

#include "cuda_runtime.h"

namespace emulation {

/* Held by every call; taken again by calls within calls. */
extern std::recursive_mutex lock;
struct guard {
    explicit guard(std::recursive_mutex &mutex);
    ~guard();
};
void pause(); /* a moment without the lock */

/* Says what is wrong in the program under test, and aborts. */
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Keeps [error] for cudaGetLastError and returns it. */
cudaError_t result(cudaError_t error);

/* Which GPU of the machine CUDA_VISIBLE_DEVICES means by [device]. */
int physical(int device);

/* From the environment, see tests/emulation/README.md. */
struct settings {
    int gpus, driver, capability;
    size_t memory;       /* bytes of each GPU */
    bool has_epilogues;  /* cuBLASLt has algorithms with GELU and gradients of biases */
    unsigned refusal_ms; /* until memory that is not there is refused */
    bool has_half;       /* cuDNN has deterministic engines for 16 bits */
    enum { LATE, RANDOM } streams;
    enum { FORWARD, REVERSE, SHUFFLED } threads;
    char fails[32]; /* what fails, "": nothing */
    long fails_at;  /* its how-manieth time, from 1 */
};
const settings &get_settings();
/* What this process did, for DDPTRAIN_EMULATED_COUNTS. */
extern long idle_waits; /* of the host, that left nothing to do to any stream */
extern long allocations_made, late_allocations, kernels_started, graphs_launched, memsets_done;
extern std::map<std::string, long> kernels_run; /* by what C++ calls them: the types of their parameters */

/* Whether [what] fails now, this being its next time. */
bool is_to_fail(const char *what);

/* An error of work done late: every later call returns it. */
extern cudaError_t sticky;

/* ---- block.cc ---- */
struct launch {
    dim3 grid, block;
    size_t shared;
    const char *name;
    std::function<void()> thread;
};
void run_kernel(const launch &l);
const char *running_kernel();                   /* NULL: none */
unsigned running_thread();                      /* of its block */
bool is_in_shared(const void *p, size_t bytes); /* in the block's dynamic shared memory */

/* ---- copies.cc: what block.cc tells it of a thread ---- */
void copies_before_barrier(unsigned thread);
void copies_after_barrier();
void copies_are_seen(unsigned thread); /* by its warp */
void copies_end(unsigned thread);

/* ---- memory.cc ---- */
size_t max_used(); /* bytes of all GPUs, the most so far */
/* While one lives, this process may touch memory of the GPU. */
struct opened {
    opened();
    ~opened();
};
enum place { PAGEABLE, PINNED, DEVICE, MANAGED };
/* Where [bytes] at p lie; dies if they are partly outside of an allocation. */
place place_of(const void *p, size_t bytes, const char *who);
void check_all_memory();

/* ---- streams.cc ---- */
/* Work that a stream does later; the work runs with memory opened. */
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
bool is_capturing(cudaStream_t stream); /* NULL: any stream */
bool is_idle();                         /* no stream has anything left to do */
cudaError_t run_all();                  /* until nothing is left to do */
/* From now on a thread does work that nobody waits for, so that other processes can wait for it. */
void start_background();

} // namespace emulation

#endif
