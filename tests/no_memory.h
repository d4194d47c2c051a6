/* Makes the n-th allocation of this process fail: the functions below replace those of the C library for the tested
 * code, too. For tests only; include it in one file of a program. Sanitizers have their own functions: with them
 * CAN_FAIL_ALLOCATIONS is false and no allocation fails. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

/* Allocations until one fails; 0: none does. */
static _Thread_local long allocations_left;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CAN_FAIL_ALLOCATIONS false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CAN_FAIL_ALLOCATIONS false
#endif
#endif

#ifndef CAN_FAIL_ALLOCATIONS
#define CAN_FAIL_ALLOCATIONS true

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);

static bool allocation_fails(void) {
    bool fails = allocations_left > 0 && --allocations_left == 0;
    if (fails) errno = ENOMEM;
    return fails;
}

void *malloc(size_t size) { return allocation_fails() ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return allocation_fails() ? NULL : __libc_calloc(count, size); }
void *realloc(void *block, size_t size) { return allocation_fails() ? NULL : __libc_realloc(block, size); }
#endif
