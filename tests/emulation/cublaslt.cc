/* cuBLASLt of the emulated GPU: d = epilogue(alpha op(a) op(b) + beta c), columns first, by plain loops; sums are
 * float32 in the order of k. Its workspace is filled with garbage, as if it had been used. */
#include "cublasLt.h"

#include "numbers.h"

namespace emulation {
namespace {

constexpr int GELU = 32, BIAS = 4, AUX = 128;
constexpr uint64_t AUX_ROWS = 8;        /* its leading dimension is a multiple of this */
constexpr uintptr_t AUX_ALIGNMENT = 16; /* bytes, of it and of biases */
constexpr size_t GARBAGE_BYTES = 4096;  /* of the workspace, filled with garbage */

struct product {
    cublasLtMatmulDescOpaque_t what;
    cublasLtMatrixLayoutOpaque_t la, lb, lc, ld;
    float alpha, beta;
    const char *a, *b, *c;
    char *d, *workspace;
    size_t workspace_bytes;
};

size_t bytes_of(const cublasLtMatrixLayoutOpaque_t &l) {
    size_t elements = l.columns ? (size_t)l.ld * (l.columns - 1) + l.rows : 0;
    return ((size_t)l.batch_stride * (size_t)(l.batches - 1) + elements) * size_of(l.type);
}

void check_place(const void *p, size_t bytes, const char *who) {
    if (p && bytes && place_of(p, bytes, who) == PAGEABLE) die("%s is in host memory", who);
}

/* Tanh's approximation, and its slope, as cuBLASLt has them. */
float gelu(float x) { return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x))); }
float gelu_slope(float x) {
    float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

struct matrix {
    std::vector<float> values; /* (rows, columns), each row together */
    size_t rows, columns;
};

/* op(it), or its transpose where [is_turned_again] */
matrix read(const cublasLtMatrixLayoutOpaque_t &l, const void *p, bool is_turned, bool is_tf32) {
    matrix m = {{}, is_turned ? l.columns : l.rows, is_turned ? l.rows : l.columns};
    m.values.resize(m.rows * m.columns);
    for (size_t i = 0; i < m.rows; i++)
        for (size_t j = 0; j < m.columns; j++) {
            float value = load(l.type, p, is_turned ? i * (size_t)l.ld + j : j * (size_t)l.ld + i);
            m.values[i * m.columns + j] = is_tf32 ? to_tf32(value) : value;
        }
    return m;
}

/* y (n columns of m), each the sum over k in order */
std::vector<float> multiply(const matrix &a_columns, const matrix &b_columns, size_t m, size_t n, size_t k) {
    std::vector<float> y(m * n);
    for (size_t j = 0; j < n; j++)
        for (size_t l = 0; l < k; l++) {
            float b = b_columns.values[j * k + l];
            const float *a = &a_columns.values[l * m];
            float *to = &y[j * m];
            for (size_t i = 0; i < m; i++) to[i] = fmaf(a[i], b, to[i]);
        }
    return y;
}

void run_batch(const product &p, size_t batch) {
    const auto &w = p.what;
    auto at = [batch](const cublasLtMatrixLayoutOpaque_t &l, const char *first) {
        return first + batch * (size_t)l.batch_stride * size_of(l.type);
    };
    bool is_tf32 = w.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    matrix a = read(p.la, at(p.la, p.a), w.transpose_a == CUBLAS_OP_N, is_tf32); /* (k, m) */
    matrix b = read(p.lb, at(p.lb, p.b), w.transpose_b == CUBLAS_OP_N, is_tf32); /* (n, k) */
    size_t m = p.ld.rows, n = p.ld.columns, k = a.rows;
    cudaDataType bias_type = w.has_bias_type ? w.bias_type : p.ld.type,
                 aux_type = w.has_aux_type ? w.aux_type : p.ld.type;
    std::vector<float> y = multiply(a, b, m, n, k);
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < m; i++) {
            float value = p.alpha * y[j * m + i];
            if (p.beta != 0) value += p.beta * load(p.lc.type, at(p.lc, p.c), j * (size_t)p.lc.ld + i);
            bool is_back = w.epilogue == CUBLASLT_EPILOGUE_DGELU;
            size_t aux_at = j * (size_t)w.aux_ld + i;
            if (is_back) value *= gelu_slope(load(aux_type, w.aux, aux_at));
            if (!is_back) {
                if (w.epilogue & BIAS) value += load(bias_type, w.bias, i);
                if (w.epilogue & AUX) store(aux_type, w.aux, aux_at, value);
                if (w.epilogue & GELU) value = gelu(value);
            }
            y[j * m + i] = value;
        }
    char *d = p.d + batch * (size_t)p.ld.batch_stride * size_of(p.ld.type);
    for (size_t j = 0; j < n; j++)
        for (size_t i = 0; i < m; i++) store(p.ld.type, d, j * (size_t)p.ld.ld + i, y[j * m + i]);
}

void run(const product &p) {
    memset(p.workspace, 0xff, p.workspace_bytes < GARBAGE_BYTES ? p.workspace_bytes : GARBAGE_BYTES);
    for (int batch = 0; batch < p.ld.batches; batch++) run_batch(p, (size_t)batch);
}

bool has_aux(const product &p) { return p.what.epilogue & AUX; }

bool is_plain(const product &p) {
    return p.what.epilogue == CUBLASLT_EPILOGUE_DEFAULT || p.what.epilogue == CUBLASLT_EPILOGUE_BIAS;
}

/* Checks the operands of an epilogue as the documentation requires. */
bool has_right_operands(const product &p) {
    const auto &w = p.what;
    bool wants_bias = w.epilogue != CUBLASLT_EPILOGUE_DGELU && w.epilogue & BIAS;
    if (wants_bias && (!w.bias || (uintptr_t)w.bias % AUX_ALIGNMENT)) return false;
    if (wants_bias && w.has_bias_type && w.bias_type != p.ld.type) return false;
    if (!has_aux(p)) return true;
    return w.aux && (uintptr_t)w.aux % AUX_ALIGNMENT == 0 && (uint64_t)w.aux_ld % AUX_ROWS == 0 &&
           (uint64_t)w.aux_ld >= p.ld.rows && (!w.has_aux_type || w.aux_type == p.ld.type) && p.ld.batches == 1;
}

bool fits(const product &p) {
    bool is_a_turned = p.what.transpose_a == CUBLAS_OP_T, is_b_turned = p.what.transpose_b == CUBLAS_OP_T;
    uint64_t m = is_a_turned ? p.la.columns : p.la.rows, k = is_a_turned ? p.la.rows : p.la.columns;
    uint64_t n = is_b_turned ? p.lb.rows : p.lb.columns, other_k = is_b_turned ? p.lb.columns : p.lb.rows;
    return k == other_k && p.lc.rows == m && p.lc.columns == n && p.ld.rows == m && p.ld.columns == n &&
           p.la.type == p.lb.type && (uint64_t)p.la.ld >= p.la.rows && (uint64_t)p.lb.ld >= p.lb.rows &&
           (uint64_t)p.lc.ld >= m && (uint64_t)p.ld.ld >= m && p.lc.type == p.ld.type && has_right_operands(p);
}

void check_places(const product &p) {
    size_t m = p.ld.rows, n = p.ld.columns;
    check_place(p.a, bytes_of(p.la), "cublasLtMatmul: a");
    check_place(p.b, bytes_of(p.lb), "cublasLtMatmul: b");
    if (p.beta != 0) check_place(p.c, bytes_of(p.lc), "cublasLtMatmul: c");
    check_place(p.d, bytes_of(p.ld), "cublasLtMatmul: d");
    check_place(p.workspace, p.workspace_bytes, "cublasLtMatmul: the workspace");
    check_place(p.what.bias, m * size_of(p.what.has_bias_type ? p.what.bias_type : p.ld.type),
                "cublasLtMatmul: the bias");
    if (has_aux(p))
        check_place(p.what.aux, ((n - 1) * (size_t)p.what.aux_ld + m) * size_of(p.ld.type),
                    "cublasLtMatmul: the epilogue's matrix");
}

} // namespace
} // namespace emulation

using namespace emulation;

const char *cublasLtGetStatusString(cublasStatus_t status) {
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
        return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown";
}

size_t cublasLtGetVersion() { return 130000; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    if (is_to_fail("blas")) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = (cublasLtHandle_t)malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t d, cublasComputeType_t compute, cudaDataType scale) {
    *d = {};
    d->compute = compute;
    d->scale = scale;
    d->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    return scale == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

template <typename T> static cublasStatus_t set(T *to, const void *value, size_t bytes) {
    if (bytes != sizeof *to) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        d->has_bias_type = true;
        return set(&d->bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set(&d->aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set(&d->aux_ld, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
        d->has_aux_type = true;
        return set(&d->aux_type, value, bytes);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t l, cudaDataType type, uint64_t rows, uint64_t columns,
                                        int64_t ld) {
    *l = {type, rows, columns, ld, 0, 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l, cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t bytes) {
    return attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT ? set(&l->batches, value, bytes)
                                                           : set(&l->batch_stride, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t p) {
    *p = {0, {256, 256, 256, 256}, CUBLASLT_REDUCTION_SCHEME_MASK};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t bytes) {
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->reductions, value, bytes);
    default:
        return set(&p->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    }
}

/* The algorithm stores the alignments that it was chosen for. */
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t what, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                                              cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference,
                                              int limit, cublasLtMatmulHeuristicResult_t *found, int *count) {
    product p = {*what, *a, *b, *c, *d, 1, 0, nullptr, nullptr, nullptr, nullptr, nullptr, 0};
    *count = 0;
    if (!fits(p)) return CUBLAS_STATUS_INVALID_VALUE;
    if (d->type != CUDA_R_32F && preference->reductions & ~CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
        return CUBLAS_STATUS_INVALID_VALUE; /* stricter than cuBLASLt: partial sums in 16 bits are not allowed */
    bool is_vector = a->rows == 1 || a->columns == 1 || b->rows == 1 || b->columns == 1;
    if (is_vector && what->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        return CUBLAS_STATUS_INVALID_VALUE; /* as some versions do */
    if (!get_settings().has_epilogues && !is_plain(p)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (limit < 1 || is_to_fail("heuristic")) return CUBLAS_STATUS_SUCCESS;
    found[0] = {};
    found[0].workspaceSize = preference->workspace < GARBAGE_BYTES ? preference->workspace : GARBAGE_BYTES;
    for (int i = 0; i < 4; i++) found[0].algo.data[i] = preference->alignment[i];
    found[0].algo.data[4] = what->epilogue;
    *count = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t what, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t la, const void *b, cublasLtMatrixLayout_t lb, const void *beta,
                              const void *c, cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream) {
    guard g(lock);
    product p = {*what,
                 *la,
                 *lb,
                 *lc,
                 *ld,
                 *(const float *)alpha,
                 *(const float *)beta,
                 (const char *)a,
                 (const char *)b,
                 (const char *)c,
                 (char *)d,
                 (char *)workspace,
                 workspace_bytes};
    if (!fits(p)) return CUBLAS_STATUS_INVALID_VALUE;
    if (is_to_fail("product") || (has_aux(p) && is_to_fail("gelu"))) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (algorithm && algorithm->data[4] != (uint64_t)what->epilogue)
        die("cublasLtMatmul: not the epilogue that its algorithm was chosen for");
    const void *addresses[4] = {a, b, c, d};
    for (int i = 0; algorithm && i < 4; i++)
        if (algorithm->data[i] && (uintptr_t)addresses[i] % algorithm->data[i] && !(i == 2 && p.beta == 0))
            die("cublasLtMatmul: an address is less aligned than its algorithm requires");
    check_places(p);
    return enqueue(stream, [p]() { run(p), products_done++; }) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                              : CUBLAS_STATUS_EXECUTION_FAILED;
}
