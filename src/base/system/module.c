/* dlopen in a list of folders. */
#include "base/system/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/scoped.h"

/* The path of the shared library that this code is part of; false: it is the program's. */
static bool find_library(char *path) {
    static const char here;
    struct link_map *map = NULL;
    Dl_info info;
    bool is_library = dladdr1(&here, &info, (void **)&map, RTLD_DL_LINKMAP) != 0 && map && map->l_name[0] != 0;
    return is_library && realpath(map->l_name, path);
}

void module_program_path(char *path) {
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = 0;
}

#define MODULE_MAX_PATH (PATH_MAX + 64)

/* path (MODULE_MAX_PATH): of the first file of that name; false: there is none. [tried] gets the paths. */
static bool find_module(const char *name, char *path, struct text *tried) {
    char own[PATH_MAX], below[PATH_MAX + 32], beside[PATH_MAX + 32];
    bool is_library = find_library(own);
    if (!is_library) module_program_path(own);
    char *slash = strrchr(own, '/');
    if (slash) *slash = 0;
    snprintf(below, sizeof below, "%s/ddptrain", own);
    snprintf(beside, sizeof beside, "%s/../lib/ddptrain", own);
    const char *folders[] = {getenv("DDPTRAIN_MODULE_DIR"), own, is_library ? below : NULL, beside,
                             DDPTRAIN_MODULE_DIR};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (!folders[i]) continue;
        snprintf(path, MODULE_MAX_PATH, "%s/ddptrain_%s.so", folders[i], name);
        text_printf(tried, "%s%s", tried->length ? ", " : "", path);
        if (access(path, F_OK) == 0) return true;
    }
    return false;
}

bool module_is_installed(const char *name) {
    char path[MODULE_MAX_PATH];
    SCOPED_TEXT tried = {0};
    return find_module(name, path, &tried);
}

status module_open(const char *name, const char *symbol, void **address) {
    char path[MODULE_MAX_PATH];
    SCOPED_TEXT tried = {0};
    status result = OK;
    bool is_found = find_module(name, path, &tried);
    void *handle = is_found ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (is_found && !handle) result = status_usage("cannot load %s: %s", path, dlerror());
    if (!is_found)
        result = status_usage("the module ddptrain_%s.so is not installed (looked for %s)", name, text_string(&tried));
    if (!result && !(*address = dlsym(handle, symbol)))
        result = status_usage("ddptrain_%s.so is not a module of this program: it has no symbol '%s'", name, symbol);
    return result;
}

status module_need(const char *name, const char *symbol, const char *needs, const char *remedy, void **address) {
    status s = module_open(name, symbol, address);
    if (!s) return OK;
    status failure = status_usage("%s: %s; %s", needs, status_message(s), remedy);
    status_free(s);
    return failure;
}
