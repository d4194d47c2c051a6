/* The emulated GPU: what its files share. One lock protects all state; a thread that waits for work runs it itself. */
#pragma once

#include "cuda_runtime.h"

namespace emulation {

/* Locked during every call; recursive because calls call others. */
extern std::recursive_mutex lock;
struct guard {
    explicit guard(std::recursive_mutex &mutex);
    ~guard();
};
void pause(); /* releases the lock for a moment */

/* Prints the error of the program under test and aborts. */
[[noreturn]] void die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Stores [error] for cudaGetLastError and returns it. */
cudaError_t result(cudaError_t error);

/* The GPU of the machine that is [device] under CUDA_VISIBLE_DEVICES. */
int physical(int device);

/* From the environment, see tests/emulation/README.md. */
struct settings {
    int gpus, driver, capability;
    size_t memory;       /* bytes of each GPU */
    bool has_epilogues;  /* cuBLASLt has algorithms with GELU and gradients of biases */
    unsigned refusal_ms; /* before an allocation without free memory fails */
    bool has_half;       /* cuDNN has deterministic engines for 16 bits */
    enum { LATE, RANDOM } streams;
    enum order { FORWARD, REVERSE, SHUFFLED } threads, blocks;
    unsigned seed;  /* of shuffled orders */
    char fails[32]; /* the operation that fails, "": none */
    long fails_at;  /* which call of it fails, from 1 */
};
const settings &get_settings();
/* What this process did, for DDPTRAIN_EMULATED_COUNTS. */
extern long idle_waits; /* waits of the host after which all streams were empty */
extern long allocations_made, late_allocations, kernels_started, graphs_launched, memsets_done, copies_done,
    products_done;                              /* copies and products: also those of graphs */
extern std::map<std::string, long> kernels_run; /* by type name: the types of their parameters */

/* Whether this call of [what] fails; counts the call. */
bool is_to_fail(const char *what);

/* An error of asynchronous work: every later call returns it. */
extern cudaError_t sticky;

/* ---- block.cc ---- */
struct launch {
    dim3 grid, block;
    size_t shared;      /* dynamic */
    bool has_attribute; /* for more dynamic shared memory: else static and dynamic together have at most 48 KB */
    const char *name;
    std::function<void()> thread;
};
void run_kernel(const launch &l);
const char *running_kernel();                   /* NULL: none */
unsigned running_thread();                      /* of its block */
bool is_in_shared(const void *p, size_t bytes); /* in the block's dynamic shared memory */

/* ---- copies.cc: called by block.cc ---- */
void copies_before_barrier(unsigned thread);
void copies_after_barrier();
void copies_are_seen(unsigned thread); /* by its warp */
void copies_end(unsigned thread);

/* ---- races.cc: called by block.cc and copies.cc ---- */
void races_begin_kernel();
void races_add(unsigned char *start, size_t bytes, bool is_static); /* shared memory of the kernel */
void races_barrier();
void races_warp(unsigned thread); /* its warp has passed __syncwarp */
void races_write(const void *p, size_t bytes);
size_t races_end_kernel(); /* bytes of static shared memory that were accessed */

/* ---- runtime.cc ---- */
/* Bytes of shared memory, static and dynamic, that a block may have, with cudaFuncSetAttribute. */
size_t max_shared();

/* ---- memory.cc ---- */
size_t max_used();   /* peak bytes of all GPUs */
size_t max_pinned(); /* peak bytes of cudaHostAlloc */
/* While an object exists, this process can access GPU memory. */
struct opened {
    opened();
    ~opened();
};
enum place { PAGEABLE, PINNED, DEVICE, MANAGED };
/* The kind of memory of [bytes] at p; aborts if they are partly outside of an allocation. */
place place_of(const void *p, size_t bytes, const char *who);
void check_all_memory();

/* ---- streams.cc ---- */
/* Appends work to a stream; it runs later, with access to GPU memory. */
cudaError_t enqueue(cudaStream_t stream, std::function<void()> work);
bool is_capturing(cudaStream_t stream); /* NULL: any stream */
/* For calls that may wait for the GPU, such as allocations: an error, and an invalid capture, if the capture modes
 * forbid them to this thread. */
cudaError_t forbid_unsafe_call();
bool is_idle();        /* all streams are empty */
cudaError_t run_all(); /* until all streams are empty */
/* Starts a thread that runs work that this process does not wait for, so that other processes can wait for it. */
void start_background();

} // namespace emulation
