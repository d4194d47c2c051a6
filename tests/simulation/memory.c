/* Memory of processes is kept in a list, so that it can be freed when a process is killed. Memory of the simulation
 * itself is allocated by the real functions. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "simulation.h"
#include "system.h"
#include "wraps.h"

#define MAGIC 0x53494d4d454d4f52u

struct block {
    struct block *next, *previous;
    struct process *process;
    size_t size;
    uint64_t magic, padding; /* 16 bytes before the memory: there malloc's own blocks have other numbers */
};

static struct block *block_of(void *memory) {
    struct block *b = (struct block *)memory - 1;
    return b->magic == MAGIC ? b : NULL;
}

static void *link_block(struct block *b, size_t size) {
    struct process *p = current_process();
    *b = (struct block){.next = p->blocks, .process = p, .size = size, .magic = MAGIC};
    if (p->blocks) p->blocks->previous = b;
    p->blocks = b;
    return b + 1;
}

static void unlink_block(struct block *b) {
    if (b->previous)
        b->previous->next = b->next;
    else
        b->process->blocks = b->next;
    if (b->next) b->next->previous = b->previous;
    b->magic = 0;
}

void memory_free_all(struct process *p) {
    while (p->blocks) {
        struct block *b = p->blocks;
        unlink_block(b);
        real_free(b);
    }
}

size_t memory_used(const struct process *p) {
    size_t used = 0;
    for (const struct block *b = p->blocks; b; b = b->next) used += b->size;
    return used;
}

void *__wrap_malloc(size_t size) {
    if (!world.current) return real_malloc(size);
    struct block *b = real_malloc(sizeof *b + size);
    return b ? link_block(b, size) : NULL;
}

void *__wrap_calloc(size_t count, size_t size) {
    if (!world.current) return real_calloc(count, size);
    struct block *b = real_calloc(1, sizeof *b + count * size);
    return b ? link_block(b, count * size) : NULL;
}

void __wrap_free(void *memory) {
    if (!memory) return;
    struct block *b = block_of(memory);
    if (!b) {
        real_free(memory);
        return;
    }
    unlink_block(b);
    real_free(b);
}

void *__wrap_realloc(void *memory, size_t size) {
    struct block *old = memory ? block_of(memory) : NULL;
    if (memory && !old) return real_realloc(memory, size);
    void *more = __wrap_malloc(size);
    if (more && old) memcpy(more, memory, old->size < size ? old->size : size);
    if (more && old) __wrap_free(memory);
    return more;
}

char *__wrap_strdup(const char *text) {
    size_t size = strlen(text) + 1;
    char *copy = __wrap_malloc(size);
    return copy ? memcpy(copy, text, size) : NULL;
}

/* Only memfds are mapped, as a whole. */
void *__wrap_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset) {
    struct file *file = world.current && fd >= 0 ? descriptor_file(fd) : NULL;
    if (!file) return real_mmap(address, size, protection, flags, fd, offset);
    int error = kernel_enter(SYS_MMAP, fd);
    errno = error;
    return error ? MAP_FAILED : file->memory;
}

/* Mapped files are not freed. */
int __wrap_munmap(void *address, size_t size) { return world.current ? 0 : real_munmap(address, size); }
