/* system: the real functions that the link replaces, for use by the simulation itself. */
#pragma once

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void __real_free(void *memory);
char *__real_strdup(const char *text);
void *__real_mmap(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t size);
ssize_t __real_write(int fd, const void *bytes, size_t size);
char *__real_getenv(const char *name);

#define real_malloc __real_malloc
#define real_calloc __real_calloc
#define real_realloc __real_realloc
#define real_free __real_free
#define real_strdup __real_strdup
#define real_mmap __real_mmap
#define real_munmap __real_munmap
