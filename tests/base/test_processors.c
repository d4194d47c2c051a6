/* Shares of processors for the processes of a host, and the split of a mask into parts, for given masks and topologies.
 */
#include "base/system/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/instructions.h"
#include "check_main.h"

static cpu_set_t range(int first, int last) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int cpu = first; cpu <= last; cpu++) CPU_SET(cpu, &set);
    return set;
}

static const struct {
    int ranges[4][2], count, quota, expected[4];
} shares[] = {
    {{{0, 7}, {0, 7}}, 2, 0, {4, 4}},                           /* not bound */
    {{{8, 15}, {8, 15}, {8, 15}}, 3, 0, {2, 2, 2}},             /* not bound, in a part of the host */
    {{{0, 3}, {4, 5}}, 2, 0, {4, 2}},                           /* bound */
    {{{0, 7}, {0, 7}, {8, 15}, {8, 15}}, 4, 0, {4, 4, 4, 4}},   /* two processes per socket */
    {{{0, 7}, {0, 3}}, 2, 0, {6, 2}},                           /* partly shared */
    {{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, 4, 0, {1, 1, 1, 1}},     /* more processes than processors */
    {{{0, 63}, {0, 63}}, 2, 4, {2, 2}},                         /* a container's quota */
    {{{0, 63}, {0, 63}, {0, 63}, {0, 63}}, 4, 2, {1, 1, 1, 1}}, /* quota smaller than the number of ranks */
    {{{0, 3}, {4, 7}}, 2, 16, {4, 4}},                          /* quota larger than their masks */
    {{{0, 2}, {0, 2}, {0, 2}}, 3, 0, {1, 1, 1}},                /* 1/3 + 1/3 + 1/3 is rounded to 1 */
};

TEST_EACH(threads_of_ranks, shares) {
    cpu_set_t masks[4];
    for (int i = 0; i < shares[_i].count; i++) masks[i] = range(shares[_i].ranges[i][0], shares[_i].ranges[i][1]);
    for (int i = 0; i < shares[_i].count; i++)
        ck_assert_int_eq(processors_share(masks, shares[_i].count, i, shares[_i].quota), shares[_i].expected[i]);
}

/* ---- parts ---- */

static void put(const char *folder, int cpu, const char *name, const char *text) {
    char path[300];
    snprintf(path, sizeof path, "%s/cpu%d", folder, cpu);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/cpu%d/topology", folder, cpu);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/cpu%d/topology/%s", folder, cpu, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static const struct {
    int kind; /* 0: unknown topology; 1: 4 cores of 2 threads, i and i + 4; 2: even numbers in one package, odd ones in
                 another */
    int first, last, count;
    const char *expected[4]; /* NULL: fewer processors than parts */
} splits[] = {
    {0, 0, 3, 2, {"0-1", "2-3"}},
    {0, 2, 7, 4, {"2", "3-4", "5", "6-7"}},
    {0, 1, 1, 1, {"1"}},
    {0, 0, 1, 3, {NULL}},
    {1, 0, 7, 2, {"0-1,4-5", "2-3,6-7"}},
    {1, 0, 7, 4, {"0,4", "1,5", "2,6", "3,7"}},
    {1, 0, 7, 3, {"0,4", "1,5", "2-3,6-7"}},
    {1, 0, 4, 4, {"0,4", "1", "2", "3"}},
    {1, 4, 7, 2, {"4-5", "6-7"}},
    {1, 3, 4, 2, {"4", "3"}},
    {2, 0, 3, 2, {"0,2", "1,3"}},
};

TEST_EACH(parts_are_whole_cores, splits) {
    char folder[] = "/tmp/test_processors.XXXXXX", text[64], command[128];
    cpu_set_t mask = range(splits[_i].first, splits[_i].last), parts[4];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    for (int cpu = 0; cpu < 8 && splits[_i].kind; cpu++) {
        bool has_threads = splits[_i].kind == 1;
        snprintf(text, sizeof text, has_threads ? "%d,%d\n" : "%d\n", has_threads ? cpu % 4 : cpu, cpu % 4 + 4);
        put(folder, cpu, "thread_siblings_list", text);
        put(folder, cpu, "physical_package_id", has_threads || cpu % 2 == 0 ? "0\n" : "1\n");
    }
    bool is_enough = processors_split(&mask, folder, splits[_i].count, parts);
    ck_assert_int_eq(is_enough, splits[_i].expected[0] != NULL);
    for (int p = 0; is_enough && p < splits[_i].count; p++) {
        SCOPED_TEXT list = {0};
        processors_list(&parts[p], &list);
        ck_assert_str_eq(text_string(&list), splits[_i].expected[p]);
    }
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Kernels before 6.12 report 0 and ignore the request; a container may forbid it. */
TEST(shorten_slice) {
    long before = processors_slice();
    processors_shorten_slice();
    long after = processors_slice();
    if (before && after == before && before != PROCESSORS_SLICE_NANOSECONDS) {
        printf("skipped: the kernel does not report time slices\n");
        return;
    }
    ck_assert_int_eq(after, before ? PROCESSORS_SLICE_NANOSECONDS : 0);
    processors_shorten_slice();
    ck_assert_int_eq(processors_slice(), after);
}

/* As the kernel's struct sched_attr. */
struct attributes {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
};

/* Whoever has chosen another policy keeps its time slice. */
TEST(other_policies_keep_their_slice) {
    struct attributes before = {0}, after = {0};
    ck_assert_int_eq(sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0}), 0);
    ck_assert_int_eq(syscall(SYS_sched_getattr, 0, &before, sizeof before, 0), 0);
    processors_shorten_slice();
    ck_assert_int_eq(syscall(SYS_sched_getattr, 0, &after, sizeof after, 0), 0);
    ck_assert_mem_eq(&before, &after, sizeof before);
    ck_assert_int_eq(processors_slice(), 0);
}

#ifdef __x86_64__
TEST(instructions_are_those_that_the_compiler_finds) {
    bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw");
    ck_assert(processor_has(INSTRUCTIONS_AVX2) == has_avx2);
    ck_assert(processor_has(INSTRUCTIONS_AVX512) == has_avx512);
    ck_assert(processor_has(INSTRUCTIONS_AVX512_BF16) == (has_avx512 && __builtin_cpu_supports("avx512bf16")));
    ck_assert(!processor_has(INSTRUCTIONS_AMX) || processor_has(INSTRUCTIONS_AVX512_BF16));
}
#endif

CHECK_MAIN("processors")
