/* A kernel's grid: blocks one after another, the threads of a block as fibers. A thread runs until it returns or waits
 * at a barrier; then the next one runs. A kernel that never waits runs as a plain loop on one fiber. What real hardware
 * may hang on ends the process: a barrier that not all threads of the block reach, or different barriers; lanes of a
 * warp that do not meet in the same exchange. */
#include <link.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "emulation.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulation {
namespace {

constexpr unsigned MAX_THREADS = 1024, LANES = 32, SLOT = 64, MASKS = 8;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_UNDEFINED__)
constexpr size_t STACK = 256 << 10;
#else
constexpr size_t STACK = 128 << 10;
#endif
constexpr size_t GUARD = 4096, SHARED_MAX = 232448, PAGE = 4096;
constexpr unsigned char GARBAGE = 0xff; /* NaN as float32, bfloat16 and float16 */

enum state : unsigned char { NOT_STARTED, READY, AT_BARRIER, IN_WARP, ENDED };

/* An exchange among the lanes of one mask. */
struct meeting {
    unsigned mask, arrived, count; /* count: completed exchanges */
    const char *file;
    int line;
    unsigned char values[2][LANES][SLOT];
};

struct warp {
    unsigned masks;
    meeting meetings[MASKS];
};

struct block {
    const launch *job;
    unsigned threads, started, ended, waiting; /* waiting: at the barrier */
    const char *file;                          /* of the barrier */
    int line;
    unsigned cursor;                                                                  /* in order[] */
    unsigned order[MAX_THREADS], place[MAX_THREADS], warp_place[MAX_THREADS / LANES]; /* of its first thread */
    state states[MAX_THREADS];
    unsigned fiber_of[MAX_THREADS];
    unsigned idle[MAX_THREADS], idle_count, fibers; /* fibers without a thread; number of fibers created */
    void *contexts[MAX_THREADS];                    /* stack pointers of fibers */
    void *outside;                                  /* stack pointer of the kernel's caller */
    unsigned thread;                                /* the running one */
    bool has_waited;                                /* some thread of this block, at a barrier or an exchange */
    warp warps[MAX_THREADS / LANES];
    unsigned char *stacks, *shared_end;
    size_t shared_bytes;
};
block *b; /* created once; kernels run one at a time */
const char *kernel_name;

#ifdef __x86_64__
/* Saves the callee-saved registers on this stack and switches to the other stack. */
extern "C" void emulated_switch(void **from, void *to);
asm(".text\n.p2align 4\n.type emulated_switch,@function\nemulated_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size emulated_switch,.-emulated_switch\n");

void *new_context(unsigned char *stack_end, void (*start)()) {
    void **sp = (void **)stack_end - 1; /* as after a call: 8 bytes off the alignment of 16 */
    sp[0] = nullptr;
    *--sp = (void *)start;
    for (int i = 0; i < 6; i++) *--sp = nullptr;
    return sp;
}
#else
void emulated_switch(void **from, void *to) {
    ucontext_t own;
    *from = &own;
    swapcontext(&own, (ucontext_t *)to);
}

void *new_context(unsigned char *stack_end, void (*start)()) {
    ucontext_t *context = (ucontext_t *)(stack_end - STACK);
    getcontext(context);
    context->uc_stack.ss_sp = context + 1;
    context->uc_stack.ss_size = STACK - 2 * sizeof *context - PAGE;
    context->uc_link = nullptr;
    makecontext(context, start, 0);
    return context;
}
#endif

void *map(size_t bytes) {
    void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) die("no memory for %zu bytes", bytes);
    return p;
}

block *new_block() {
    block *made = (block *)map(sizeof(block));
    made->stacks = (unsigned char *)map(MAX_THREADS * (STACK + GUARD));
    for (size_t i = 0; i < MAX_THREADS; i++) mprotect(made->stacks + i * (STACK + GUARD), GUARD, PROT_NONE);
    size_t pages = (SHARED_MAX + PAGE - 1) / PAGE * PAGE;
    made->shared_end = (unsigned char *)map(pages + PAGE) + pages;
    mprotect(made->shared_end, PAGE, PROT_NONE);
    return made;
}

/* ---- shared memory ---- */

struct piece {
    unsigned char *start;
    size_t bytes;
};
extern "C" void *__tls_get_addr(size_t *); /* {module, offset} */

int add_piece(struct dl_phdr_info *info, size_t, void *pieces) {
    const char *name = strrchr(info->dlpi_name, '/');
    if (!name || strncmp(name, "/ddptrain_", 10) != 0 || info->dlpi_tls_modid == 0) return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_TLS) {
            size_t at[2] = {info->dlpi_tls_modid, 0};
            ((std::vector<piece> *)pieces)
                ->push_back({(unsigned char *)__tls_get_addr(at), info->dlpi_phdr[i].p_memsz});
        }
    return 0;
}

/* This host thread's __shared__ variables of all modules with kernels. */
std::vector<piece> static_shared() {
    std::vector<piece> pieces;
    dl_iterate_phdr(add_piece, &pieces);
    return pieces;
}

void spoil_shared(const std::vector<piece> &pieces) {
    for (const piece &p : pieces) memset(p.start, GARBAGE, p.bytes);
    memset(b->shared_end - b->shared_bytes, GARBAGE, b->shared_bytes);
}

/* Bytes of static shared memory that a block has written: those that are not garbage, in words. */
size_t written_static(const std::vector<piece> &pieces) {
    size_t words = 0;
    uint32_t word, garbage;
    memset(&garbage, GARBAGE, sizeof garbage);
    for (const piece &p : pieces)
        for (size_t i = 0; i + sizeof word <= p.bytes; i += sizeof word) {
            memcpy(&word, p.start + i, sizeof word);
            words += word != garbage;
        }
    return words * sizeof word;
}

/* ---- threads ---- */

void set_indices(unsigned thread) {
    b->thread = thread;
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

void describe(unsigned thread, char *text, size_t size) {
    static const char *const names[] = {"has not begun", "is ready", "waits at __syncthreads of", "waits in a warp",
                                        "has ended"};
    snprintf(text, size, "thread %u %s", thread, names[b->states[thread]]);
}

/* Ends the process: no thread can continue. */
[[noreturn]] void deadlock() {
    char first[100] = "", other[100] = "";
    unsigned one = b->thread;
    describe(one, first, sizeof first);
    for (unsigned t = 0; t < b->threads; t++)
        if (b->states[t] != b->states[one]) {
            describe(t, other, sizeof other);
            break;
        }
    die("%s: block (%u,%u,%u): threads wait forever at %s:%d: %s, %s", kernel_name, blockIdx.x, blockIdx.y, blockIdx.z,
        b->file ? b->file : "a warp's exchange", b->line, first, other);
}

/* Stores the next thread that can run, starting at the cursor; false: there is none. */
bool find_next(unsigned *thread) {
    for (unsigned i = 0; i < b->threads; i++) {
        unsigned at = b->cursor + i;
        unsigned t = b->order[at < b->threads ? at : at - b->threads];
        if (b->states[t] == READY || b->states[t] == NOT_STARTED) {
            b->cursor = b->place[t];
            *thread = t;
            return true;
        }
    }
    return false;
}

void run_threads();

/* Switches from the running fiber, whose state is saved, to the fiber of the thread or to the caller. */
void go(unsigned own_fiber, bool is_outside, unsigned thread) {
    void *to = b->outside;
    if (!is_outside) {
        if (b->states[thread] == NOT_STARTED) {
            unsigned fiber = b->idle_count ? b->idle[--b->idle_count] : b->fibers++;
            if (!b->contexts[fiber]) /* ends at different places of a page, so that stacks share the cache */
                b->contexts[fiber] =
                    new_context(b->stacks + (fiber + 1) * (STACK + GUARD) - fiber % 32 * 128, run_threads);
            b->fiber_of[thread] = fiber;
        }
        to = b->contexts[b->fiber_of[thread]];
        set_indices(thread);
    }
    emulated_switch(&b->contexts[own_fiber], to);
}

/* The entry function of a fiber: runs one thread after another until all have started. */
void run_threads() {
    for (;;) {
        unsigned own = b->thread, fiber = b->fiber_of[own], next = 0;
        b->states[own] = READY;
        b->started++;
        b->job->thread();
        copies_end(own);
        b->states[own] = ENDED;
        bool is_last = ++b->ended == b->threads;
        if (!is_last && !find_next(&next)) deadlock();
        if (!is_last && b->states[next] == NOT_STARTED) {
            b->fiber_of[next] = fiber;
            set_indices(next);
            continue;
        }
        b->idle[b->idle_count++] = fiber;
        go(fiber, is_last, next);
        /* continues here for another thread of this block or of a later one */
    }
}

/* Suspends the running thread until it can continue. */
void wait(state why) {
    unsigned own = b->thread, next;
    b->states[own] = why;
    b->has_waited = true;
    if (!find_next(&next)) deadlock();
    if (next != own) go(b->fiber_of[own], false, next);
    set_indices(own);
}

/* Puts [count] numbers in the order of the settings. */
template <typename T> void arrange(enum settings::order order, T *numbers, size_t count) {
    static unsigned seed = get_settings().seed;
    if (order == settings::REVERSE) std::reverse(numbers, numbers + count);
    for (size_t left = count; order == settings::SHUFFLED && left > 1; left--) {
        seed = seed * 1664525 + 1013904223;
        std::swap(numbers[left - 1], numbers[(seed >> 8) % left]);
    }
}

/* Warps, and lanes within one, in the order of the settings. */
void put_in_order() {
    unsigned warps[MAX_THREADS / LANES], count = (b->threads + LANES - 1) / LANES, i = 0;
    for (unsigned w = 0; w < count; w++) warps[w] = w;
    arrange(get_settings().threads, warps, count);
    for (unsigned w = 0; w < count; w++) {
        unsigned first = i, lane = warps[w] * LANES;
        b->warp_place[warps[w]] = first;
        while (lane < b->threads && i < first + LANES) b->order[i++] = lane++;
        arrange(get_settings().threads, b->order + first, i - first);
    }
    for (i = 0; i < b->threads; i++) b->place[b->order[i]] = i;
}

void run_block() {
    races_barrier();
    b->started = b->ended = b->waiting = b->cursor = 0;
    b->has_waited = false;
    b->file = nullptr;
    memset(b->states, NOT_STARTED, b->threads);
    for (unsigned w = 0; w < (b->threads + LANES - 1) / LANES; w++) b->warps[w].masks = 0;
    unsigned first = b->order[0], fiber = b->idle_count ? b->idle[--b->idle_count] : b->fibers++;
    if (!b->contexts[fiber])
        b->contexts[fiber] = new_context(b->stacks + (fiber + 1) * (STACK + GUARD) - fiber % 32 * 128, run_threads);
    b->fiber_of[first] = fiber;
    set_indices(first);
    emulated_switch(&b->outside, b->contexts[fiber]);
}

/* In the order of the settings. Returns the bytes of static shared memory that the first block has written. */
size_t run_blocks(const launch &l, const std::vector<piece> &pieces) {
    size_t count = (size_t)l.grid.x * l.grid.y * l.grid.z;
    std::vector<size_t> order(get_settings().blocks == settings::FORWARD ? 0 : count);
    for (size_t i = 0; i < order.size(); i++) order[i] = i;
    arrange(get_settings().blocks, order.data(), order.size());
    size_t written = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = order.empty() ? i : order[i];
        blockIdx = {(unsigned)(at % l.grid.x), (unsigned)(at / l.grid.x % l.grid.y),
                    (unsigned)(at / l.grid.x / l.grid.y)};
        run_block();
        if (i == 0) written = written_static(pieces);
        if (b->has_waited) spoil_shared(pieces);
    }
    return written;
}

} // namespace

const char *running_kernel() { return kernel_name; }

unsigned running_thread() { return b->thread; }

bool is_in_shared(const void *p, size_t bytes) {
    const unsigned char *at = (const unsigned char *)p;
    return at >= b->shared_end - b->shared_bytes && at + bytes <= b->shared_end;
}

void run_kernel(const launch &l) {
    if (!b) b = new_block();
    if (kernel_name) die("%s: started within %s", l.name, kernel_name);
    kernels_run[l.name]++;
    std::vector<piece> pieces = static_shared();
    b->job = &l;
    b->threads = l.block.x * l.block.y * l.block.z;
    b->shared_bytes = (l.shared + 127) / 128 * 128;
    kernel_name = l.name;
    blockDim = l.block;
    gridDim = l.grid;
    put_in_order();
    spoil_shared(pieces);
    races_begin_kernel();
    for (const piece &p : pieces) races_add(p.start, p.bytes, true);
    races_add(b->shared_end - b->shared_bytes, b->shared_bytes, false);
    size_t written = run_blocks(l, pieces), accessed = races_end_kernel(), all = std::max(written, accessed) + l.shared;
    size_t limit = l.has_attribute ? max_shared() : 48 << 10;
    if (all > limit) die("%s: %zu bytes of shared memory, of at most %zu", l.name, all, limit);
    kernel_name = nullptr;
}

} // namespace emulation

using namespace emulation;

void emulated_block_barrier(const char *file, int line) {
    if (!kernel_name) die("__syncthreads outside of a kernel");
    if (b->waiting == 0) b->file = file, b->line = line;
    if (b->line != line || strcmp(b->file, file) != 0)
        die("%s: threads of a block wait at different barriers: %s:%d and %s:%d", kernel_name, b->file, b->line, file,
            line);
    copies_before_barrier(b->thread);
    if (++b->waiting < b->threads) {
        wait(AT_BARRIER);
        return;
    }
    races_barrier();
    b->waiting = 0;
    b->file = nullptr;
    b->has_waited = true;
    copies_after_barrier();
    for (unsigned t = 0; t < b->threads; t++) b->states[t] = READY;
    b->cursor = 0;
    unsigned own = b->thread;
    if (b->order[0] != own) go(b->fiber_of[own], false, b->order[0]);
    set_indices(own);
}

unsigned emulated_lane() { return b->thread % LANES; }

void *emulated_shared_bytes() { return b->shared_end - b->shared_bytes; }

const unsigned char *emulated_exchange(unsigned mask, const void *own, size_t bytes, const char *file, int line) {
    unsigned lane = b->thread % LANES;
    warp *w = &b->warps[b->thread / LANES];
    if (!(mask >> lane & 1)) die("%s: lane %u is not in the mask %#x at %s:%d", kernel_name, lane, mask, file, line);
    copies_are_seen(b->thread);
    if (bytes > SLOT) die("%s: %zu bytes in an exchange at %s:%d", kernel_name, bytes, file, line);
    unsigned i = 0;
    while (i < w->masks && w->meetings[i].mask != mask) i++;
    if (i == MASKS) die("%s: more than %u masks in a warp at %s:%d", kernel_name, MASKS, file, line);
    meeting *m = &w->meetings[i];
    if (i == w->masks) w->masks++, m->mask = mask, m->arrived = m->count = 0;
    if (m->arrived == 0) m->file = file, m->line = line;
    if (m->line != line || strcmp(m->file, file) != 0)
        die("%s: lanes of a warp are at different places: %s:%d and %s:%d", kernel_name, m->file, m->line, file, line);
    unsigned char(*values)[SLOT] = m->values[m->count & 1];
    if (bytes) memcpy(values[lane], own, bytes);
    m->arrived |= 1u << lane;
    if (m->arrived != mask) {
        wait(IN_WARP);
        return values[0];
    }
    m->arrived = 0;
    m->count++;
    if (bytes == 0) races_warp(b->thread);
    unsigned base = b->thread - lane, thread = b->thread;
    for (unsigned l = 0; l < LANES; l++)
        if (mask >> l & 1 && base + l != thread) b->states[base + l] = READY;
    b->has_waited = true;
    b->cursor = b->warp_place[base / LANES];
    return values[0];
}
