/* Opens the GPU module and reports what is missing (the module, one of its libraries, the driver, or a GPU), and
 * chooses a GPU for each process. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system/module.h"
#include "device/gpus.h"
#include "device/internal.h"

#define DRIVER "libcuda.so.1"

status gpu_find_driver(void) {
    void *driver = dlopen(DRIVER, RTLD_LAZY | RTLD_LOCAL);
    if (driver) return OK; /* not closed: the module needs it, too */
    return status_usage("NVIDIA's driver, which is not installed (%s): install it, or give the container access to the "
                        "GPU (docker run --gpus all)",
                        dlerror());
}

static status find_none(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible)
        return status_usage("a GPU, but CUDA_VISIBLE_DEVICES='%s' selects none: unset it or select one", visible);
    return status_usage("a GPU, but the driver finds none: check the output of nvidia-smi");
}

status gpu_find(const struct gpu_module **module, int *gpus) {
    void *address;
    TRY(module_need("cuda", "ddptrain_cuda_gpus", "a build with CUDA and its libraries",
                    "see docs/gpu.md for how to build and install them", &address));
    *module = address;
    TRY(gpu_find_driver());
    TRY((*module)->count(gpus));
    return *gpus > 0 ? OK : find_none();
}

/* ---- several GPUs ---- */

/* The result of the child process. */
struct count_result {
    int gpus, code;
    char message[2000];
};

static _Noreturn void count_in_child(int fd) {
    const struct gpu_module *module;
    struct count_result result = {0};
    status s = gpu_find(&module, &result.gpus);
    result.code = (int)status_code(s);
    snprintf(result.message, sizeof result.message, "%s", status_message(s));
    ssize_t written = write(fd, &result, sizeof result);
    _exit(written == sizeof result ? 0 : 1);
}

status gpus_count(int *gpus) {
    struct count_result result = {0};
    int ends[2];
    if (pipe(ends) != 0) return status_errno(STATUS_IO, errno, "cannot count the GPUs");
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) count_in_child(ends[1]);
    int error = errno;
    close(ends[1]);
    ssize_t got = child > 0 ? read(ends[0], &result, sizeof result) : -1;
    close(ends[0]);
    if (child < 0) return status_errno(STATUS_IO, error, "cannot count the GPUs");
    waitpid(child, NULL, 0);
    if (got != sizeof result) return status_new(STATUS_IO, "cannot count the GPUs: the driver terminated the process");
    *gpus = result.gpus;
    return result.code ? status_new((enum status_code)result.code, "%s", result.message) : OK;
}

static bool is_one(const char *list) { return list && *list && !strchr(list, ','); }

status gpus_choose(const struct gpus_process *process, int *gpu) {
    const struct gpu_module *module;
    int gpus, rank = process->local_rank, size = process->local_size;
    const char *share = getenv(GPUS_SHARE_VARIABLE);
    TRY(gpu_find(&module, &gpus));
    bool has_own = gpus == 1 && process->is_launched && is_one(getenv("CUDA_VISIBLE_DEVICES"));
    if (size > gpus && !has_own && !(share && strcmp(share, "1") == 0))
        return status_new(
            STATUS_USAGE,
            "a GPU for each process: %d processes on this host, %d GPU%s; start as many processes as GPUs (--nproc %d)",
            size, gpus, text_plural((uint64_t)gpus, "s"), gpus);
    *gpu = rank % gpus;
    return OK;
}

/* Whether the file [path] below [root] has [text], or cannot be read. */
static bool may_have(const char *root, const char *path, const char *text) {
    char name[PATH_MAX], bytes[1 << 15];
    snprintf(name, sizeof name, "%s%s", root, path);
    FILE *file = fopen(name, "re");
    size_t size = file ? fread(bytes, 1, sizeof bytes - 1, file) : 0;
    if (file) fclose(file);
    bytes[size] = 0;
    return size == 0 || size == sizeof bytes - 1 || strstr(bytes, text);
}

bool gpus_may_exist(const char *root) {
    /* the last ones: a GPU may be in another machine */
    static const char *const signs[] = {"/proc/driver/nvidia",
                                        "/dev/nvidiactl",
                                        "/dev/dxg" /* Windows' WSL */,
                                        "/dev/nvmap",
                                        "/dev/nvhost-gpu" /* of GPUs that are a part of the processor */,
                                        "/etc/ld.so.preload",
                                        "/usr/lib/" DRIVER,
                                        "/usr/lib64/" DRIVER,
                                        "/usr/lib/x86_64-linux-gnu/" DRIVER,
                                        "/usr/lib/aarch64-linux-gnu/" DRIVER};
    char name[PATH_MAX];
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        snprintf(name, sizeof name, "%s%s", root, signs[i]);
        if (access(name, F_OK) == 0) return true;
    }
    return may_have(root, "/proc/bus/pci/devices", "\t10de"); /* NVIDIA's number */
}

/* The search for a library that is not installed, in 40 folders, takes a twentieth of the time of a short run; it is
 * left out where no GPU can be, unless the user says where libraries are. */
static bool has_driver(void) {
    if (!getenv("LD_LIBRARY_PATH") && !getenv("LD_PRELOAD") && !gpus_may_exist("")) return false;
    status s = gpu_find_driver();
    status_free(s);
    return !s;
}

bool gpus_available(const struct gpus_process *process, int *gpus, struct text *why) {
    int own;
    *gpus = 0;
    if (!has_driver()) {
        text_add(why, "there is no NVIDIA driver");
        return false;
    }
    status s = process->is_launched ? gpus_choose(process, &own) : gpus_count(gpus);
    if (s) text_printf(why, "a run on GPUs needs %s", status_message(s));
    if (!s && !process->is_launched && process->local_size > *gpus)
        text_printf(why, "%d process%s on this host, %d GPU%s", process->local_size,
                    text_plural((uint64_t)process->local_size, "es"), *gpus, text_plural((uint64_t)*gpus, "s"));
    status_free(s);
    return why->length == 0;
}

bool gpus_are_expected(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return (!visible || *visible) && has_driver();
}

/* ---- the parts of the driver ---- */

#define PCI_DEVICES "/sys/bus/pci/devices"
#define NVIDIA_VENDOR "0x10de"
#define PCI_DISPLAY "0x03" /* the class: VGA and 3D controllers */

static bool starts_with(const char *folder, const char *name, const char *start) {
    char path[512], text[16] = "";
    snprintf(path, sizeof path, PCI_DEVICES "/%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool is_read = file && fgets(text, sizeof text, file);
    if (file) fclose(file);
    return is_read && strncmp(text, start, strlen(start)) == 0;
}

static bool has_device(void) {
    DIR *devices = opendir(PCI_DEVICES);
    bool is_found = false;
    for (const struct dirent *d; devices && !is_found && (d = readdir(devices));)
        is_found = starts_with(d->d_name, "vendor", NVIDIA_VENDOR) && starts_with(d->d_name, "class", PCI_DISPLAY);
    if (devices) closedir(devices);
    return is_found;
}

/* "535.54.03" of "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun 6 ..." */
static void read_kernel_version(char version[32]) {
    char line[256] = "", *rest = NULL;
    FILE *file = fopen("/proc/driver/nvidia/version", "re");
    bool is_read = file && fgets(line, sizeof line, file);
    if (file) fclose(file);
    if (is_read) snprintf(version, 32, "unknown");
    for (char *word = strtok_r(line, " \t\n", &rest); is_read && word; word = strtok_r(NULL, " \t\n", &rest))
        if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
            snprintf(version, 32, "%.31s", word);
            return;
        }
}

void gpus_find_driver(struct gpus_driver *out) {
    struct link_map *map = NULL;
    char path[PATH_MAX];
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    *out = (struct gpus_driver){.has_device = has_device(), .has_library = library != NULL};
    read_kernel_version(out->kernel);
    if (!library || dlinfo(library, RTLD_DI_LINKMAP, (void *)&map) != 0 || !realpath(map->l_name, path)) return;
    snprintf(out->library, sizeof out->library, "%s", path);
    const char *name = strrchr(path, '/') + 1, *version = name + strlen("libcuda.so.");
    if (strncmp(name, "libcuda.so.", strlen("libcuda.so.")) == 0 && strchr(version, '.'))
        snprintf(out->version, sizeof out->version, "%.31s", version);
}

status gpus_identity(int gpu, char text[128]) {
    const struct gpu_module *module;
    int gpus;
    TRY(gpu_find(&module, &gpus));
    return module->identity(gpu, text);
}
