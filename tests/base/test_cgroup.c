/* cgroup: the groups that are visited for lines of /proc/self/cgroup, and the memory below the limits of all of them.
 * ctest-labels: unit */
#include "base/system/machine.h"

#include <string.h>

#include "base/files/io.h"
#include "base/text.h"
#include "check_main.h"
#include "files.h"

/* Writes root/[name], with its folders. */
static void put(const char *root, const char *name, const char *content) {
    SCOPED_MEMORY char *path = path_in(root, name), *folder = io_folder_of(path);
    ck_ok(io_make_folders(folder));
    spill(path, content, strlen(content));
}

struct visits {
    const char *root;
    struct text list; /* "v2:/a v1:/memory/a " */
    int left;         /* visits until the visitor ends it */
};

static bool note(void *context, const char *folder, bool is_v2) {
    struct visits *visits = context;
    size_t length = strlen(visits->root);
    ck_assert_int_eq(strncmp(folder, visits->root, length), 0);
    ck_assert_int_eq(strncmp(folder + length, "/sys/fs/cgroup", 14), 0);
    text_printf(&visits->list, "v%d:%s ", is_v2 ? 2 : 1, folder + length + 14);
    return --visits->left > 0;
}

static const struct {
    const char *lines, *controller;
    int left;
    const char *expected;
} files[] = {
    {"0::/\n", "memory", 99, "v2: "},
    {"0::/a/b.slice/c\n", "memory", 99, "v2:/a/b.slice/c v2:/a/b.slice v2:/a v2: "},
    {"0::/a/b\n", "memory", 2, "v2:/a/b v2:/a "},
    {"7:cpuset:/x\n4:cpu,cpuacct:/a\n3:memory:/b/c\n", "memory", 99, "v1:/memory/b/c v1:/memory/b v1:/memory "},
    {"7:cpuset:/x\n4:cpu,cpuacct:/a\n3:memory:/b/c\n", "cpu", 99, "v1:/cpu/a v1:/cpu "},
    {"4:cpuacct,cpu:/a:b\n", "cpu", 99, "v1:/cpu/a:b v1:/cpu "},
    {"1:name=systemd:/s\n3:memory:/b\n0::/a\n", "memory", 99, "v1:/memory/b v1:/memory v2:/a v2: "},
    {"1:name=systemd:/s\n3:memory:/b\n0::/a\n", "memory", 1, "v1:/memory/b "},
    {"0::a\nmemory\n\n:memory\n", "memory", 99, ""},
    {"", "memory", 99, ""},
    {NULL, "memory", 99, ""},
};

TEST_EACH(leaf_first, files) {
    SCOPED_FOLDER root = make_folder();
    struct visits visits = {.root = root, .left = files[_i].left};
    if (files[_i].lines) put(root, "proc/self/cgroup", files[_i].lines);
    cgroup_visit(root, files[_i].controller, note, &visits);
    ck_assert_str_eq(text_string(&visits.list), files[_i].expected);
    text_free(&visits.list);
}

/* A limit of a group in the middle counts, too: with Slurm and systemd it is often the only one. */
TEST(memory_of_all_groups) {
    SCOPED_FOLDER root = make_folder();
    put(root, "proc/self/cgroup", "0::/job/step/task\n");
    ck_assert_uint_eq(memory_available_in_groups(root), UINT64_MAX);
    put(root, "sys/fs/cgroup/job/step/task/memory.max", "max\n");
    put(root, "sys/fs/cgroup/job/step/task/memory.current", "100\n");
    ck_assert_uint_eq(memory_available_in_groups(root), UINT64_MAX);
    put(root, "sys/fs/cgroup/job/memory.max", "5000\n");
    put(root, "sys/fs/cgroup/job/memory.current", "1000\n");
    ck_assert_uint_eq(memory_available_in_groups(root), 4000);
    put(root, "sys/fs/cgroup/job/step/memory.max", "300\n");
    put(root, "sys/fs/cgroup/job/step/memory.current", "400\n");
    ck_assert_uint_eq(memory_available_in_groups(root), 0);
    put(root, "proc/self/cgroup", "5:memory:/job/step\n");
    put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "900\n");
    put(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "200\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(root, "sys/fs/cgroup/memory/memory.usage_in_bytes", "200\n");
    ck_assert_uint_eq(memory_available_in_groups(root), 700);
}

/* The cache of files that were read counts as used, but the kernel frees it when memory is needed. */
TEST(the_cache_of_files_is_available) {
    SCOPED_FOLDER root = make_folder();
    put(root, "proc/self/cgroup", "0::/job\n");
    put(root, "sys/fs/cgroup/job/memory.max", "5000\n");
    put(root, "sys/fs/cgroup/job/memory.current", "4900\n");
    put(root, "sys/fs/cgroup/job/memory.stat", "anon 900\nfile 4000\ninactive_file 3500\nactive_file 500\n");
    ck_assert_uint_eq(memory_available_in_groups(root), 3600);
    put(root, "sys/fs/cgroup/job/memory.stat", "inactive_file 6000\n"); /* read later: more than is used */
    ck_assert_uint_eq(memory_available_in_groups(root), 5000);
    put(root, "proc/self/cgroup", "5:memory:/job\n");
    put(root, "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "900\n");
    put(root, "sys/fs/cgroup/memory/job/memory.usage_in_bytes", "800\n");
    put(root, "sys/fs/cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 300\n");
    ck_assert_uint_eq(memory_available_in_groups(root), 400);
}

CHECK_MAIN("cgroup")
