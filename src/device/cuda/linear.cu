/* Products by cuBLASLt in float32 (no TF32). It counts columns first: a row-major (rows, columns) matrix is its
 * (columns, rows), so each product below is that of the transposes. */
#include <cstdint>
#include <cstring>

#include "device/cuda/gpu.cuh"

/* c (n, m; row-major) = a b [+ c], in cuBLASLt's order: m, n, k and leading dimensions as it wants them. */
struct product {
    cublasOperation_t turn_a, turn_b;
    size_t m, n, k, lda, ldb;
    const float *a, *b, *bias; /* bias (m) or NULL */
    float *c;
    bool adds, has_relu;
};

/* Powers of two that an address is a multiple of, up to 256. */
static uint32_t alignment(const void *p) {
    uintptr_t lowest = (uintptr_t)p & -(uintptr_t)p;
    return lowest == 0 || lowest > 256 ? 256 : (uint32_t)lowest;
}

struct description {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, c;
};

#define CHECK(expression)                                                                                              \
    do {                                                                                                               \
        cublasStatus_t status_ = (expression);                                                                         \
        if (status_ != CUBLAS_STATUS_SUCCESS) return status_;                                                          \
    } while (0)

static cublasStatus_t describe(const struct product *p, cublasLtEpilogue_t epilogue, struct description *d) {
    CHECK(cublasLtMatmulDescInit(&d->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_TRANSA, &p->turn_a, sizeof p->turn_a));
    CHECK(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_TRANSB, &p->turn_b, sizeof p->turn_b));
    CHECK(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (p->bias)
        CHECK(cublasLtMatmulDescSetAttribute(&d->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias));
    bool is_a_turned = p->turn_a == CUBLAS_OP_T, is_b_turned = p->turn_b == CUBLAS_OP_T;
    CHECK(cublasLtMatrixLayoutInit(&d->a, CUDA_R_32F, is_a_turned ? p->k : p->m, is_a_turned ? p->m : p->k,
                                   (int64_t)p->lda));
    CHECK(cublasLtMatrixLayoutInit(&d->b, CUDA_R_32F, is_b_turned ? p->n : p->k, is_b_turned ? p->k : p->n,
                                   (int64_t)p->ldb));
    return cublasLtMatrixLayoutInit(&d->c, CUDA_R_32F, p->m, p->n, (int64_t)p->m);
}

/* cuBLASLt's first choice for addresses as aligned as these. */
static cublasStatus_t choose(struct gpu_device *gpu, const struct product *p, struct description *d,
                             cublasLtMatmulAlgo_t *algorithm) {
    cublasLtMatmulPreferenceOpaque_t wish;
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    size_t workspace = GPU_WORKSPACE;
    uint32_t a = alignment(p->a), b = alignment(p->b), c = alignment(p->c);
    CHECK(cublasLtMatmulPreferenceInit(&wish));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                                               sizeof workspace));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &c, sizeof c));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &c, sizeof c));
    CHECK(cublasLtMatmulAlgoGetHeuristic(gpu->blas, &d->product, &d->a, &d->b, &d->c, &d->c, &wish, 1, &found, &count));
    if (count == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    *algorithm = found.algo;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t multiply(struct gpu_device *gpu, const struct product *p) {
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    if (p->bias) epilogue = p->has_relu ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
    struct description d;
    CHECK(describe(p, epilogue, &d));
    const size_t key[12] = {p->m,
                            p->n,
                            p->k,
                            p->lda,
                            p->ldb,
                            (size_t)p->turn_a,
                            (size_t)p->turn_b,
                            (size_t)epilogue,
                            alignment(p->a),
                            alignment(p->b),
                            alignment(p->c),
                            p->adds};
    struct gpu_plan *plan = nullptr;
    for (size_t i = 0; i < gpu->plan_count && i < GPU_PLANS && !plan; i++)
        if (memcmp(gpu->plans[i].key, key, sizeof key) == 0) plan = &gpu->plans[i];
    if (!plan) {
        cublasLtMatmulAlgo_t algorithm;
        CHECK(choose(gpu, p, &d, &algorithm));
        plan = &gpu->plans[gpu->plan_count++ % GPU_PLANS];
        memcpy(plan->key, key, sizeof key);
        plan->algorithm = algorithm;
    }
    float one = 1, beta = p->adds ? 1 : 0;
    return cublasLtMatmul(gpu->blas, &d.product, &one, p->a, &d.a, p->b, &d.b, &beta, p->c, &d.c, p->c, &d.c,
                          &plan->algorithm, gpu->workspace, GPU_WORKSPACE, gpu->stream);
}

static void run(call *c, const struct product *p) {
    if (!c->is_ok() || p->m == 0 || p->n == 0 || p->k == 0) return;
    cublasStatus_t status = multiply(c->gpu, p);
    if (status != CUBLAS_STATUS_SUCCESS) gpu_fail(c->gpu, "a product of cuBLASLt", cublasLtGetStatusString(status));
}

void gpu_linear_forward(struct device *device, const float *x, const float *w, const float *bias, bool has_relu,
                        float *y, size_t rows, size_t in, size_t out) {
    call c(device, "linear_forward");
    const float *from = c.in(x, rows * in), *weight = c.in(w, out * in), *row = c.in(bias, out);
    float *to = c.out(y, rows * out);
    bool is_fused = row && alignment(row) >= 16; /* else in a pass of its own */
    struct product p = {.turn_a = CUBLAS_OP_T,
                        .turn_b = CUBLAS_OP_N,
                        .m = out,
                        .n = rows,
                        .k = in,
                        .lda = in,
                        .ldb = in,
                        .a = weight,
                        .b = from,
                        .bias = is_fused ? row : nullptr,
                        .c = to,
                        .adds = false,
                        .has_relu = has_relu};
    run(&c, &p);
    if (is_fused || (!row && !has_relu)) return;
    c.each(rows * out, [=] __device__(size_t i) {
        float sum = to[i] + (row ? row[i % out] : 0);
        to[i] = has_relu && sum < 0 ? 0 : sum;
    });
}

void gpu_linear_backward_input(struct device *device, const float *dy, const float *w, float *dx, size_t rows,
                               size_t in, size_t out) {
    call c(device, "linear_backward_input");
    const float *from = c.in(dy, rows * out), *weight = c.in(w, out * in);
    struct product p = {.turn_a = CUBLAS_OP_N,
                        .turn_b = CUBLAS_OP_N,
                        .m = in,
                        .n = rows,
                        .k = out,
                        .lda = in,
                        .ldb = out,
                        .a = weight,
                        .b = from,
                        .bias = nullptr,
                        .c = c.out(dx, rows * in),
                        .adds = false,
                        .has_relu = false};
    run(&c, &p);
}

void gpu_linear_backward_weight(struct device *device, const float *dy, const float *x, float *dw, float *dbias,
                                size_t rows, size_t in, size_t out) {
    call c(device, "linear_backward_weight");
    const float *from = c.in(dy, rows * out), *input = c.in(x, rows * in);
    float *sum = c.inout(dbias, out);
    struct product p = {.turn_a = CUBLAS_OP_N,
                        .turn_b = CUBLAS_OP_T,
                        .m = in,
                        .n = out,
                        .k = rows,
                        .lda = in,
                        .ldb = out,
                        .a = input,
                        .b = from,
                        .bias = nullptr,
                        .c = c.inout(dw, out * in),
                        .adds = true,
                        .has_relu = false};
    run(&c, &p);
    if (!sum) return;
    c.each(out, [=] __device__(size_t j) { /* row after row, as on the CPU */
                                           float total = sum[j];
                                           for (size_t i = 0; i < rows; i++) total += from[i * out + j];
                                           sum[j] = total;
    });
}
