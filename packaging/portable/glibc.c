/* What programs for Debian 12's glibc (2.36) call and glibc 2.28 does not have, by functions that it has. They are
 * linked into the portable program and its shared objects (glibc.py), in front of libc. */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

/* ---- the start: what crt1.o did for libc before 2.34, which does not call the constructors of a program itself ----
 */

typedef void constructor(int, char **, char **);
extern constructor *__preinit_array_start[] __attribute__((weak, visibility("hidden")));
extern constructor *__preinit_array_end[] __attribute__((weak, visibility("hidden")));
extern constructor *__init_array_start[] __attribute__((weak, visibility("hidden")));
extern constructor *__init_array_end[] __attribute__((weak, visibility("hidden")));
extern void _init(void) __attribute__((weak));

static void construct(int argc, char **argv, char **env) {
    for (constructor **f = __preinit_array_start; f < __preinit_array_end; f++) (*f)(argc, argv, env);
    if (_init) _init();
    for (constructor **f = __init_array_start; f < __init_array_end; f++) (*f)(argc, argv, env);
}

typedef int main_function(int, char **, char **);
int __real___libc_start_main(main_function *, int, char **, constructor *, void (*)(void), void (*)(void), void *)
    __attribute__((weak));
int __wrap___libc_start_main(main_function *, int, char **, constructor *, void (*)(void), void (*)(void), void *);

/* Linked with --wrap=__libc_start_main. A newer libc leaves the constructors to [init] where it is given. */
int __wrap___libc_start_main(main_function *main, int argc, char **argv, constructor *init, void (*fini)(void),
                             void (*loader_fini)(void), void *stack) {
    (void)init;
    return __real___libc_start_main(main, argc, argv, construct, fini, loader_fini, stack);
}

/* ---- 2.33: stat was a macro for these before ---- */

int __xstat(int, const char *, struct stat *);
int __lxstat(int, const char *, struct stat *);
int __fxstat(int, int, struct stat *);

/* On 64-bit machines struct stat64 is the same as struct stat. */
int stat(const char *restrict path, struct stat *restrict out) { return __xstat(1, path, out); }
int lstat(const char *restrict path, struct stat *restrict out) { return __lxstat(1, path, out); }
int fstat(int fd, struct stat *out) { return __fxstat(1, fd, out); }
int stat64(const char *restrict path, struct stat64 *restrict out) { return __xstat(1, path, (struct stat *)out); }
int lstat64(const char *restrict path, struct stat64 *restrict out) { return __lxstat(1, path, (struct stat *)out); }
int fstat64(int fd, struct stat64 *out) { return __fxstat(1, fd, (struct stat *)out); }

/* ---- 2.32 ---- */

char __libc_single_threaded = 0; /* false may be said at any time */

const char *sigabbrev_np(int number) {
    static const char *const names[] = {NULL,     "HUP",  "INT",    "QUIT", "ILL",   "TRAP", "ABRT", "BUS",
                                        "FPE",    "KILL", "USR1",   "SEGV", "USR2",  "PIPE", "ALRM", "TERM",
                                        "STKFLT", "CHLD", "CONT",   "STOP", "TSTP",  "TTIN", "TTOU", "URG",
                                        "XCPU",   "XFSZ", "VTALRM", "PROF", "WINCH", "POLL", "PWR",  "SYS"};
    return number > 0 && (size_t)number < sizeof names / sizeof *names ? names[number] : NULL;
}

/* ---- 2.30 ---- */

/* By the realtime clock, to which glibc 2.28 can only wait: where that is set in between, it returns too early or too
 * late. */
int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
                           const struct timespec *until) {
    struct timespec now, real;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) return EINVAL;
    int64_t wait = (int64_t)(until->tv_sec - now.tv_sec) * 1000000000 + until->tv_nsec - now.tv_nsec;
    int64_t end = real.tv_nsec + (wait > 0 ? wait : 0);
    struct timespec at = {.tv_sec = real.tv_sec + end / 1000000000, .tv_nsec = end % 1000000000};
    return pthread_cond_timedwait(condition, mutex, &at);
}

/* ---- 2.36 ---- */

uint32_t arc4random(void) {
    uint32_t number = 0;
    while (getrandom(&number, sizeof number, 0) != (ssize_t)sizeof number)
        if (errno != EINTR) __builtin_trap();
    return number;
}

/* ---- 2.35: where the unwinder of gcc 12 finds the tables of the code at an address ---- */

struct search {
    uintptr_t address;
    struct dl_find_object *out;
};

static int find_in(struct dl_phdr_info *info, size_t size, void *context) {
    struct search *s = context;
    uintptr_t start = 0, end = 0, tables = 0;
    int is_found = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr, after = at + info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME) tables = at;
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        if (!end || at < start) start = at;
        if (after > end) end = after;
        if (s->address >= at && s->address < after) is_found = 1;
    }
    if (!is_found || !tables) return 0;
    *s->out = (struct dl_find_object){
        .dlfo_map_start = (void *)start, .dlfo_map_end = (void *)end, .dlfo_eh_frame = (void *)tables};
    return 1;
}

int _dl_find_object(void *address, struct dl_find_object *out) {
    struct search s = {(uintptr_t)address, out};
    return dl_iterate_phdr(find_in, &s) == 1 ? 0 : -1;
}
