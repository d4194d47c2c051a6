/* A list of chunks, each filled from its start; chunks double in size up to 64 KiB. */
#include "base/arena.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

struct chunk {
    struct chunk *next;
    size_t used, size; /* bytes in data */
    alignas(max_align_t) char data[];
};

struct arena {
    struct chunk *chunks; /* the newest first */
};

struct arena *arena_create(void) {
    return status_need(calloc(1, sizeof(struct arena)));
}

void arena_destroy(struct arena *arena) {
    if (!arena) return;
    for (struct chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

void *arena_alloc(struct arena *arena, size_t size) {
    size = (size + alignof(max_align_t) - 1) / alignof(max_align_t) * alignof(max_align_t);
    struct chunk *c = arena->chunks;
    if (!c || c->size - c->used < size) {
        size_t capacity = c ? c->size * 2 : 1024;
        if (capacity > 65536) capacity = 65536;
        if (capacity < size) capacity = size;
        c = status_need(calloc(1, sizeof *c + capacity));
        c->size = capacity;
        c->next = arena->chunks;
        arena->chunks = c;
    }
    void *block = c->data + c->used;
    c->used += size;
    return block;
}

char *arena_copy(struct arena *arena, const char *text) {
    size_t size = strlen(text) + 1;
    return memcpy(arena_alloc(arena, size), text, size);
}

char *arena_printf(struct arena *arena, const char *format, ...) {
    char short_text[128]; /* most are, so that they are formatted once */
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(short_text, sizeof short_text, format, again);
    va_end(again);
    size_t size = length > 0 ? (size_t)length + 1 : 1;
    char *text = arena_alloc(arena, size);
    if (size <= sizeof short_text)
        memcpy(text, short_text, size);
    else
        vsnprintf(text, size, format, arguments);
    va_end(arguments);
    return text;
}
