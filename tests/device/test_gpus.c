/* What says that a GPU may be in a machine, so that its driver is searched. ctest-labels: unit */
#include "device/gpus.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "check_main.h"
#include "files.h"

/* Writes root/[name], with its folders, and returns whether a GPU may exist then. */
static bool may_exist_with(const char *root, const char *name, const char *content) {
    char *path = path_in(root, name), *folder = io_folder_of(path);
    ck_ok(io_make_folders(folder));
    spill(path, content, strlen(content));
    free(folder);
    free(path);
    return gpus_may_exist(root);
}

TEST(a_driver_or_a_device_is_a_sign) {
    char *root = make_folder(), *path = path_in(root, "dev/nvidiactl");
    ck_assert(gpus_may_exist(root)); /* the devices are not known */
    ck_assert(!may_exist_with(root, "proc/bus/pci/devices", "0000\t80860d57\t0\n0008\t1af410de\tb\n"));
    ck_assert(may_exist_with(root, "dev/nvidiactl", ""));
    ck_ok(io_remove(path));
    ck_assert(may_exist_with(root, "proc/bus/pci/devices", "0000\t80860d57\t0\n0100\t10de2335\tb\n"));
    ck_assert(!may_exist_with(root, "proc/bus/pci/devices", "0000\t80860d57\t0\n"));
    ck_assert(!may_exist_with(root, "usr/lib/libcudart.so.12", ""));
    ck_assert(may_exist_with(root, "usr/lib/libcuda.so.1", "")); /* of a GPU in another machine */
    remove_folder(root);
    free(path);
}

CHECK_MAIN("gpus")
