/* The real cuDNN creates plans without a GPU, from the properties of one: for the convolutions of the shipped configs
 * and every kind of convolution, on GPUs of several generations, in every precision. It offers engines that are
 * compiled at run time only if there is a driver; CUDA's stub of it is enough. Skipped if the module is not built or
 * cuDNN is not installed. ctest-labels: unit */
#include <dlfcn.h>
#include <stdio.h>

#include "base/system/module.h"
#include "check_main.h"
#include "device/cuda/cudnn/plans.h"

#define GIB ((size_t)1 << 30)

/* In the format of cuDNN: capability, multiprocessors, bytes of shared memory and of the L2 cache */
#define PROPERTIES(name, capability, processors, shared, cache)                                                        \
    "{\"deviceName\": \"" name "\", \"deviceVer\": " capability ", \"multiProcessorCount\": " processors               \
    ", \"maxSharedMemoryPerBlockOptin\": " shared ", \"l2CacheSize\": " cache                                          \
    ", \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], \"cudaDeviceId\": 0, "         \
    "\"driverVer\": 13000, \"regsPerBlock\": 65536, \"smClockRateKHz\": 1410000, \"memClockRateKHz\": 1215000, "       \
    "\"warpSize\": 32, \"maxSharedMemoryPerBlock\": 49152, \"reservedSharedMemoryPerBlock\": 1024, "                   \
    "\"maxRegistersPerSM\": 65536, \"pciDeviceId\": 0, \"maxCtasPerSM\": 32, \"maxThreadsPerBlock\": 1024, "           \
    "\"maxThreadsPerSM\": 2048, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"totalGlobalMem\": 42000000000}"

static const char *const gpus[] = {
    PROPERTIES("NVIDIA H100 80GB HBM3", "900", "132", "232448", "52428800"),
    PROPERTIES("NVIDIA A100-SXM4-40GB", "800", "108", "166912", "41943040"),
    PROPERTIES("NVIDIA L4", "890", "58", "101376", "50331648"),
    PROPERTIES("NVIDIA B200", "1000", "148", "232448", "132644864"),
};

static const struct {
    size_t rows;
    struct convolution c;
} cases[] = {
    /* configs/mnist_cnn.yaml: full and last batch */
    {64, {{28, 28, 1}, {26, 26, 32}, {{3, 3}, {1, 1}, {0, 0}, {1, 1}}, 1, true, true}},
    {64, {{26, 26, 32}, {24, 24, 64}, {{3, 3}, {1, 1}, {0, 0}, {1, 1}}, 1, true, true}},
    {16, {{26, 26, 32}, {24, 24, 64}, {{3, 3}, {1, 1}, {0, 0}, {1, 1}}, 1, true, true}},
    /* configs/cifar_resnet18.yaml */
    {128, {{32, 32, 3}, {32, 32, 64}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, false, false}},
    {128, {{32, 32, 64}, {32, 32, 64}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, false, false}},
    {128, {{32, 32, 64}, {16, 16, 128}, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, 1, false, false}},
    {128, {{32, 32, 64}, {16, 16, 128}, {{1, 1}, {2, 2}, {0, 0}, {1, 1}}, 1, false, false}},
    {128, {{16, 16, 128}, {16, 16, 128}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, false, false}},
    {128, {{16, 16, 128}, {8, 8, 256}, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, 1, false, false}},
    {128, {{8, 8, 256}, {8, 8, 256}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, false, false}},
    {128, {{8, 8, 256}, {4, 4, 512}, {{3, 3}, {2, 2}, {1, 1}, {1, 1}}, 1, false, false}},
    {128, {{4, 4, 512}, {4, 4, 512}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, false, false}},
    {80, {{4, 4, 512}, {4, 4, 512}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, false, false}},
    /* the first layers of a ResNet for ImageNet; with a bias; groups, a group per channel; dilation; odd channels; a
     * signal; one row */
    {256, {{224, 224, 3}, {112, 112, 64}, {{7, 7}, {2, 2}, {3, 3}, {1, 1}}, 1, false, false}},
    {256, {{56, 56, 64}, {56, 56, 256}, {{1, 1}, {1, 1}, {0, 0}, {1, 1}}, 1, false, false}},
    {32, {{28, 28, 64}, {28, 28, 64}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, true, false}},
    {32, {{28, 28, 64}, {28, 28, 128}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 4, true, false}},
    {32, {{28, 28, 96}, {28, 28, 96}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 96, true, false}},
    {32, {{28, 28, 64}, {28, 28, 64}, {{3, 3}, {1, 1}, {2, 2}, {2, 2}}, 1, true, false}},
    {7, {{17, 12, 10}, {15, 16, 15}, {{3, 2}, {1, 1}, {1, 3}, {2, 2}}, 5, true, false}},
    {64, {{1, 1000, 12}, {1, 500, 64}, {{1, 7}, {1, 2}, {0, 3}, {1, 1}}, 1, true, false}},
    {1, {{32, 32, 3}, {32, 32, 64}, {{3, 3}, {1, 1}, {1, 1}, {1, 1}}, 1, true, false}},
};
#define CASES (int)(sizeof cases / sizeof *cases)
#define GPUS (int)(sizeof gpus / sizeof *gpus)

static const struct cudnn_module *module;

/* The plan's workspace, or -1: none. With 16 bits and without groups it uses tensor cores if channels allow it. */
static long long workspace_of(struct cudnn *cudnn, const struct plan_request *request) {
    struct convolution_plan *plan;
    status s = module->plan(cudnn, request, &plan);
    ck_assert_msg(!s, "%s", status_message(s));
    long long bytes = plan ? (long long)module->workspace(plan) : -1;
    ck_assert_msg(!plan || module->compilations(plan) == 0, "an engine was compiled");
    const struct convolution *c = request->convolution;
    bool is_half = request->precision == PRECISION_BFLOAT16 || request->precision == PRECISION_FLOAT16;
    if (plan && is_half && c->groups == 1 && c->in.channels % 8 == 0 && c->out.channels % 8 == 0)
        ck_assert_msg(module->uses_tensor_cores(plan), "pass %d: no tensor cores", (int)request->pass);
    module->destroy(plan);
    return bytes;
}

TEST_LOOP(every_convolution_has_plans, 0, (GPUS * CASES)) {
    const struct convolution *c = &cases[_i % CASES].c;
    struct cudnn *cudnn;
    status s = module->open_for(gpus[_i / CASES], &cudnn);
    ck_assert_msg(!s, "%s", status_message(s));
    for (int pass = PLAN_FORWARD; pass <= PLAN_BACKWARD_WEIGHT; pass++)
        for (enum precision precision = PRECISION_FLOAT32; precision <= PRECISION_FLOAT16; precision++) {
            struct plan_request request = {c, cases[_i % CASES].rows, (enum plan_pass)pass, precision, false, GIB};
            ck_assert_msg(workspace_of(cudnn, &request) >= 0, "pass %d, precision %d: no plan", pass, (int)precision);
            if (pass != PLAN_FORWARD || !c->has_bias || precision > PRECISION_TF32) continue;
            request.adds_bias = true;
            ck_assert_msg(workspace_of(cudnn, &request) >= 0, "precision %d: no plan with a bias", (int)precision);
        }
    module->close(cudnn);
}

/* A request for no workspace is met, and properties that are none are a failure. (cuDNN makes plans also for sizes that
 * do not match, so only the layers check them.) */
TEST(requests_are_met) {
    struct cudnn *cudnn;
    ck_assert(!module->open_for(gpus[0], &cudnn));
    struct plan_request request = {&cases[4].c, 128, PLAN_FORWARD, PRECISION_FLOAT32, false, 0};
    ck_assert_int_eq(workspace_of(cudnn, &request), 0);
    module->close(cudnn);
    status s = module->open_for("{}", &cudnn);
    ck_assert(s != OK);
    ck_assert_ptr_null(cudnn);
    status_free(s);
}

/* So that cuDNN finds a driver: the installed one, or else CUDA's stub, which has its name. */
static void load_driver(void) {
#ifdef CUDA_DRIVER_STUB
    if (!dlopen("libcuda.so.1", RTLD_NOW)) dlopen(CUDA_DRIVER_STUB, RTLD_NOW);
#endif
}

int main(void) {
    void *address;
    load_driver();
    status s = module_open("cudnn", "ddptrain_cudnn_plans", &address);
    if (s) {
        printf("skipped: %s\n", status_message(s));
        status_free(s);
        return 77;
    }
    module = address;
    setenv("CK_FORK", "no", 1); /* cuDNN takes seconds to load its heuristics, in each process */
    return check_suite("cudnn_plans");
}
