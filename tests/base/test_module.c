/* module: where it is looked for, in which order, and the sentence for each way in which it cannot be used.
 * ctest-labels: unit */
#include "base/system/module.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>

#include "check_main.h"
#include "files.h"

/* A folder whose ddptrain_test.so is the C library. */
static char *folder_with_module(void) {
    char *folder = make_folder(), *path = path_in(folder, "ddptrain_test.so");
    void *address;
    ck_failure(module_open("test", "gnu_get_libc_version", &address), STATUS_USAGE,
               "the module ddptrain_test.so is not installed");
    Dl_info library;
    ck_assert_int_ne(dladdr(dlsym(RTLD_DEFAULT, "gnu_get_libc_version"), &library), 0);
    ck_assert_int_eq(symlink(library.dli_fname, path), 0);
    setenv("DDPTRAIN_MODULE_DIR", folder, 1);
    free(path);
    return folder;
}

TEST(the_symbol_is_found) {
    unsetenv("DDPTRAIN_MODULE_DIR");
    SCOPED_FOLDER folder = folder_with_module();
    void *address = NULL;
    ck_ok(module_open("test", "gnu_get_libc_version", &address));
    ck_assert_ptr_nonnull(address);
    address = NULL;
    ck_ok(module_need("test", "gnu_get_libc_version", "dist.backend: gloo", "build it", &address));
    ck_assert_ptr_nonnull(address);
}

/* $DDPTRAIN_MODULE_DIR, the program's folder, ../lib/ddptrain beside it, the installed folder. */
TEST(every_folder_is_named) {
    char program[PATH_MAX] = {0}, expected[3 * PATH_MAX + 200];
    void *address;
    ck_assert_int_gt(readlink("/proc/self/exe", program, sizeof program - 1), 0);
    const char *folder = dirname(program);
    for (int is_given = 0; is_given < 2; is_given++) {
        if (is_given)
            setenv("DDPTRAIN_MODULE_DIR", "/nowhere", 1);
        else
            unsetenv("DDPTRAIN_MODULE_DIR");
        snprintf(expected, sizeof expected,
                 "the module ddptrain_none.so is not installed (looked for %s%s/ddptrain_none.so, "
                 "%s/../lib/ddptrain/ddptrain_none.so, /",
                 is_given ? "/nowhere/ddptrain_none.so, " : "", folder, folder);
        ck_failure(module_open("none", "cos", &address), STATUS_USAGE, expected);
        ck_failure(module_open("none", "cos", &address), STATUS_USAGE, "/ddptrain/ddptrain_none.so)");
    }
    ck_failure(module_need("none", "cos", "dist.backend: gloo", "build it", &address), STATUS_USAGE,
               "dist.backend: gloo: the module ddptrain_none.so is not installed (looked for /nowhere/");
    ck_failure(module_need("none", "cos", "dist.backend: gloo", "build it", &address), STATUS_USAGE, "); build it");
}

/* The first file of that name is the module, also if it is no good. */
TEST(bad_modules) {
    unsetenv("DDPTRAIN_MODULE_DIR");
    char *folder = folder_with_module(), *path = path_in(folder, "ddptrain_text.so"), *sentence;
    void *address;
    ck_failure(module_open("test", "no_such_symbol", &address), STATUS_USAGE,
               "ddptrain_test.so is not a module of this program: it has no symbol 'no_such_symbol'");
    spill(path, "text", 4);
    ck_assert_int_gt(asprintf(&sentence, "cannot load %s: ", path), 0);
    ck_failure(module_open("text", "cos", &address), STATUS_USAGE, sentence);
    free(sentence), free(path);
    remove_folder(folder);
}

CHECK_MAIN("module")
