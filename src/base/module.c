/* dlopen in a list of folders. */
#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

static void program_folder(char *folder, size_t size) {
    ssize_t length = readlink("/proc/self/exe", folder, size - 1);
    folder[length > 0 ? length : 0] = 0;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
}

status module_open(const char *name, const char *symbol, void **address) {
    char program[PATH_MAX], beside[PATH_MAX + 32];
    program_folder(program, sizeof program);
    snprintf(beside, sizeof beside, "%s/../lib/ddptrain", program);
    const char *folders[] = {getenv("DDPTRAIN_MODULE_DIR"), program, beside, DDPTRAIN_MODULE_DIR};

    struct text tried = {0};
    status result = OK;
    void *handle = NULL;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && !handle && !result; i++) {
        if (!folders[i]) continue;
        char path[PATH_MAX + 64];
        snprintf(path, sizeof path, "%s/ddptrain_%s.so", folders[i], name);
        text_printf(&tried, "%s%s", tried.length ? ", " : "", path);
        if (access(path, F_OK) != 0) continue;
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!handle) result = status_new(STATUS_USAGE, "cannot load %s: %s", path, dlerror());
    }
    if (!handle && !result)
        result = status_new(STATUS_USAGE, "the module ddptrain_%s.so is not installed (looked for %s)", name,
                            text_string(&tried));
    if (!result && !(*address = dlsym(handle, symbol)))
        result = status_new(STATUS_USAGE, "ddptrain_%s.so is not a module of this program: it has no symbol '%s'", name,
                            symbol);
    text_free(&tried);
    return result;
}

status module_need(const char *name, const char *symbol, const char *needs, const char *remedy, void **address) {
    status s = module_open(name, symbol, address);
    if (!s) return OK;
    status failure = status_new(STATUS_USAGE, "%s: %s; %s", needs, status_message(s), remedy);
    status_free(s);
    return failure;
}
