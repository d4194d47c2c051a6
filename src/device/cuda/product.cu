/* Matrix products by cuBLASLt. Descriptors and the selected algorithm are cached for the next product of the same
 * sizes, because steps repeat the same few sizes. */
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "device/cuda/product.cuh"

#define PLANS 256    /* a power of two */
#define MAX_PROBES 8 /* probes of the hash table */
#define KEY 15

/* Parameters of a product (the key), and its cached descriptors. */
struct gpu_plan {
    size_t key[KEY]; /* all 0: free, since no m is 0 */
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    bool is_missing; /* cuBLASLt has no algorithm for it */
};

struct gpu_plans {
    struct gpu_plan plans[PLANS];
};

#define CHECK(expression)                                                                                              \
    do {                                                                                                               \
        cublasStatus_t status_ = (expression);                                                                         \
        if (status_ != CUBLAS_STATUS_SUCCESS) return status_;                                                          \
    } while (0)

static cudaDataType_t type_of(enum precision precision) {
    return precision == PRECISION_BFLOAT16 ? CUDA_R_16BF : precision == PRECISION_FLOAT16 ? CUDA_R_16F : CUDA_R_32F;
}

static enum precision precision_of(const struct gpu_device *gpu, const struct gpu_product *p) {
    return p->is_float32 ? PRECISION_FLOAT32 : gpu->precision;
}

static cublasStatus_t describe(const struct gpu_device *gpu, const struct gpu_product *p, struct gpu_plan *plan) {
    cublasLtMatmulDescOpaque_t *d = &plan->product;
    enum precision precision = precision_of(gpu, p);
    cudaDataType_t type = type_of(precision);
    bool is_a_turned = p->transpose_a == CUBLAS_OP_T, is_b_turned = p->transpose_b == CUBLAS_OP_T;
    CHECK(cublasLtMatmulDescInit(d, precision == PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                 CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSA, &p->transpose_a, sizeof p->transpose_a));
    CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_TRANSB, &p->transpose_b, sizeof p->transpose_b));
    CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->epilogue, sizeof p->epilogue));
    CHECK(cublasLtMatrixLayoutInit(&plan->a, type, is_a_turned ? p->k : p->m, is_a_turned ? p->m : p->k,
                                   (int64_t)p->a.stride));
    CHECK(cublasLtMatrixLayoutInit(&plan->b, type, is_b_turned ? p->n : p->k, is_b_turned ? p->k : p->n,
                                   (int64_t)p->b.stride));
    return cublasLtMatrixLayoutInit(&plan->c, p->is_half ? type : CUDA_R_32F, p->m, p->n, (int64_t)p->m);
}

static cublasStatus_t set_operands(const struct gpu_product *p, struct gpu_plan *plan) {
    cublasLtMatmulDescOpaque_t *d = &plan->product;
    int64_t stride = (int64_t)p->m;
    if (p->bias) CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias));
    if (!p->aux) return CUBLAS_STATUS_SUCCESS;
    CHECK(cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux));
    return cublasLtMatmulDescSetAttribute(d, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &stride, sizeof stride);
}

/* cuBLASLt's first choice for addresses as aligned as these. */
static cublasStatus_t choose(struct gpu_device *gpu, const struct gpu_product *p, struct gpu_plan *plan) {
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    size_t workspace = GPU_WORKSPACE;
    uint32_t a = alignment(p->a.at), b = alignment(p->b.at), c = alignment(p->c);
    /* parts of a sum are not rounded to a result of 16 bits */
    uint32_t sums = p->is_half ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_MASK;
    CHECK(cublasLtMatmulPreferenceInit(&wish));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &sums, sizeof sums));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c));
    CHECK(cublasLtMatmulAlgoGetHeuristic(gpu->blas, &plan->product, &plan->a, &plan->b, &plan->c, &plan->c, &wish, 1,
                                         &found, &count));
    if (count == 0 || found.state != CUBLAS_STATUS_SUCCESS) return CUBLAS_STATUS_NOT_SUPPORTED;
    plan->algorithm = found.algo;
    return CUBLAS_STATUS_SUCCESS;
}

/* The plan with this key; else a free or the oldest entry, with is_new. */
static struct gpu_plan *find(struct gpu_plans *plans, const size_t *key, bool *is_new) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a, by words */
    for (int i = 0; i < KEY; i++) hash = (hash ^ key[i]) * 0x100000001b3u;
    hash ^= hash >> 32;
    struct gpu_plan *place = nullptr;
    *is_new = false;
    for (size_t i = 0; i < MAX_PROBES; i++) {
        struct gpu_plan *plan = &plans->plans[(hash + i) % PLANS];
        if (memcmp(plan->key, key, sizeof plan->key) == 0) return plan;
        if (!place && plan->key[0] == 0) place = plan;
    }
    *is_new = true;
    return place ? place : &plans->plans[hash % PLANS];
}

static cublasStatus_t plan_for(struct gpu_device *gpu, const struct gpu_product *p, struct gpu_plan **out) {
    bool is_new;
    const size_t key[KEY] = {p->m,
                             p->n,
                             p->k,
                             p->a.stride,
                             p->b.stride,
                             (size_t)p->transpose_a << 8 | (size_t)p->transpose_b,
                             (size_t)p->epilogue,
                             alignment(p->a.at),
                             alignment(p->b.at),
                             alignment(p->c),
                             p->adds,
                             (size_t)precision_of(gpu, p),
                             p->is_half,
                             alignment(p->bias),
                             alignment(p->aux)};
    if (!gpu->plans) gpu->plans = (struct gpu_plans *)calloc(1, sizeof *gpu->plans);
    if (!gpu->plans) return CUBLAS_STATUS_ALLOC_FAILED;
    struct gpu_plan *plan = find(gpu->plans, key, &is_new);
    *out = plan;
    if (is_new) {
        plan->key[0] = 0;
        CHECK(describe(gpu, p, plan));
        CHECK(set_operands(p, plan));
        cublasStatus_t chosen = choose(gpu, p, plan);
        /* some versions return this for an epilogue with a matrix of one row or column */
        if (chosen == CUBLAS_STATUS_INVALID_VALUE && p->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
            chosen = CUBLAS_STATUS_NOT_SUPPORTED;
        plan->is_missing = chosen == CUBLAS_STATUS_NOT_SUPPORTED;
        if (!plan->is_missing) CHECK(chosen);
        memcpy(plan->key, key, sizeof key);
    }
    return plan->is_missing ? CUBLAS_STATUS_NOT_SUPPORTED : set_operands(p, plan);
}

static cublasStatus_t multiply(struct gpu_device *gpu, const struct gpu_product *p) {
    struct gpu_plan *plan;
    CHECK(plan_for(gpu, p, &plan));
    if (gpu->is_dry_run) return CUBLAS_STATUS_SUCCESS;
    float one = 1, beta = p->adds ? 1 : 0;
    return cublasLtMatmul(gpu->blas, &plan->product, &one, p->a.at, &plan->a, p->b.at, &plan->b, &beta, p->c, &plan->c,
                          p->c, &plan->c, &plan->algorithm, gpu->workspace, GPU_WORKSPACE, gpu->stream);
}

static cublasStatus_t multiply_if_any(operator_call *c, const struct gpu_product *p) {
    if (!c->is_ok() || p->m == 0 || p->n == 0 || p->k == 0) return CUBLAS_STATUS_SUCCESS;
    return multiply(c->gpu, p);
}

static void check(operator_call *c, cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS) gpu_fail(c->gpu, "a product of cuBLASLt", cublasLtGetStatusString(status));
}

void gpu_multiply(operator_call *c, const struct gpu_product *p) { check(c, multiply_if_any(c, p)); }

bool gpu_try_multiply(operator_call *c, const struct gpu_product *p) {
    cublasStatus_t status = multiply_if_any(c, p);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
    check(c, status);
    return true;
}

void gpu_products_close(struct gpu_device *gpu) {
    cudaFree(gpu->parameters.copy.memory);
    free(gpu->plans);
}
