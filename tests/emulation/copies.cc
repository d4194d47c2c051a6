/* Asynchronous copies to shared memory (cp.async), done as late as the rules allow. Until the thread has waited for a
 * copy, its destination is filled with NaN; the source is read at the wait. Then the thread sees the copy; other
 * threads see NaN until the block's next barrier or an exchange of the thread's warp. What is undefined on real
 * hardware ends the process: addresses that are not multiples of the size, a destination outside of dynamic shared
 * memory, a thread that ends without a wait. */
#include "emulation.h"

namespace emulation {
namespace {

constexpr unsigned char GARBAGE = 0xff; /* NaN as float32, bfloat16 and float16 */

struct copy {
    unsigned char *to;
    const unsigned char *from; /* NULL: zeros */
    unsigned bytes;
    unsigned group;
    unsigned char hidden[16]; /* the copied bytes, not visible to other threads yet */
};

/* The copies of one thread. Groups are numbered from 0; [committed] is the number of the open group. */
struct copies {
    std::vector<copy> started, arrived;
    unsigned committed;
};
std::vector<copies> of_thread;
std::vector<unsigned> hiding; /* threads whose copies are hidden */

copies &own() {
    unsigned thread = running_thread();
    if (thread >= of_thread.size()) of_thread.resize(thread + 1);
    return of_thread[thread];
}

} // namespace

void copies_before_barrier(unsigned thread) {
    if (thread >= of_thread.size() || of_thread[thread].arrived.empty()) return;
    for (copy &c : of_thread[thread].arrived) {
        memcpy(c.hidden, c.to, c.bytes);
        memset(c.to, GARBAGE, c.bytes);
    }
    hiding.push_back(thread);
}

void copies_after_barrier() {
    for (unsigned thread : hiding) {
        for (const copy &c : of_thread[thread].arrived) memcpy(c.to, c.hidden, c.bytes);
        of_thread[thread].arrived.clear();
    }
    hiding.clear();
}

void copies_are_seen(unsigned thread) {
    if (thread < of_thread.size()) of_thread[thread].arrived.clear();
}

void copies_end(unsigned thread) {
    if (thread >= of_thread.size()) return;
    if (!of_thread[thread].started.empty())
        die("%s: thread %u ends without waiting for its copies to shared memory", running_kernel(), thread);
    of_thread[thread].arrived.clear();
    of_thread[thread].committed = 0;
}

} // namespace emulation

using namespace emulation;

void emulated_copy(void *to, const void *from, unsigned bytes, bool is_there, const char *file, int line) {
    if (bytes != 4 && bytes != 8 && bytes != 16) die("a copy of %u bytes at %s:%d", bytes, file, line);
    if (((uintptr_t)to | (uintptr_t)from) % bytes != 0)
        die("%s: a copy of %u bytes from %p to %p, which are not multiples of the size, at %s:%d", running_kernel(),
            bytes, from, to, file, line);
    if (!is_in_shared(to, bytes) || is_in_shared(from, 1))
        die("%s: a copy from %p to %p, which is not in the block's dynamic shared memory, at %s:%d", running_kernel(),
            from, to, file, line);
    copies &c = own();
    c.started.push_back(
        {(unsigned char *)to, is_there ? (const unsigned char *)from : nullptr, bytes, c.committed, {}});
    races_write(to, bytes);
    memset(to, GARBAGE, bytes);
}

void emulated_copy_commit() { own().committed++; }

void emulated_copy_wait(unsigned groups) {
    copies &c = own();
    size_t count = 0;
    while (count < c.started.size() && c.started[count].group + groups < c.committed) {
        const copy &done = c.started[count++];
        if (done.from)
            memcpy(done.to, done.from, done.bytes);
        else
            memset(done.to, 0, done.bytes);
        c.arrived.push_back(done);
    }
    c.started.erase(c.started.begin(), c.started.begin() + (std::ptrdiff_t)count);
}
