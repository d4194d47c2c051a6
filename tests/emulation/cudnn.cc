/* cuDNN of the emulated GPU: graphs of one convolution and pointwise operations, by plain loops; sums are float32. Of
 * the engines that the heuristics return, the first rounds to TF32, the second is nondeterministic, the third is exact.
 * As in the library, the deterministic engines for 16 bits read and write one type; here they also require weights with
 * their channels innermost. */
#include "cudnn.h"

#include "numbers.h"

namespace emulation {
namespace {

constexpr int64_t WORKSPACE = 4096;

struct node;
using shared_node = std::shared_ptr<node>;

struct attribute {
    std::vector<unsigned char> bytes;
    std::vector<shared_node> nodes; /* the attribute's descriptors */
};

/* The object of a descriptor; other descriptors may use it after the descriptor is destroyed. */
struct node {
    cudnnBackendDescriptorType_t type;
    bool is_final;
    std::map<cudnnBackendAttributeName_t, attribute> attributes;
};

size_t size_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
    case CUDNN_TYPE_CHAR:
        return 1;
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default:
        return 4;
    }
}

template <typename T> std::vector<T> values_of(const node &n, cudnnBackendAttributeName_t name) {
    auto found = n.attributes.find(name);
    if (found == n.attributes.end()) die("cuDNN: a descriptor of type %d without attribute %d", n.type, name);
    const auto &bytes = found->second.bytes;
    std::vector<T> values(bytes.size() / sizeof(T));
    for (size_t i = 0; i < values.size(); i++) memcpy(&values[i], &bytes[i * sizeof(T)], sizeof(T));
    return values;
}

template <typename T> T value_of(const node &n, cudnnBackendAttributeName_t name) {
    return values_of<T>(n, name).at(0);
}

bool has(const node &n, cudnnBackendAttributeName_t name) { return n.attributes.count(name) > 0; }

const node &node_of(const node &n, cudnnBackendAttributeName_t name) {
    if (!has(n, name)) die("cuDNN: a descriptor of type %d without part %d", n.type, name);
    return *n.attributes.at(name).nodes.at(0);
}

/* ---- tensors ---- */

struct tensor {
    std::vector<int64_t> sizes, strides;
    cudaDataType type;
    void *data;
    bool is_tf32; /* values are rounded when they are read */

    size_t at(const int64_t index[4]) const {
        int64_t place = 0;
        for (size_t d = 0; d < 4; d++) place += (sizes[d] == 1 ? 0 : index[d]) * strides[d];
        return (size_t)place;
    }
    float get(int64_t a, int64_t b, int64_t c, int64_t d) const {
        const int64_t index[4] = {a, b, c, d};
        float value = load(type, data, at(index));
        return is_tf32 ? to_tf32(value) : value;
    }
    void put(int64_t a, int64_t b, int64_t c, int64_t d, float value) const {
        const int64_t index[4] = {a, b, c, d};
        store(type, data, at(index), value);
    }
    size_t bytes() const {
        size_t last = 0;
        for (size_t d = 0; d < 4; d++) last += (size_t)((sizes[d] - 1) * strides[d]);
        return (last + 1) * emulation::size_of(type);
    }
};

/* Addresses of the tensors of an execution. */
struct run {
    shared_node plan, arguments;
    std::map<int64_t, std::vector<float>> buffers; /* of virtual tensors */
    bool is_tf32;
};

cudaDataType type_of(const node &n) {
    switch (value_of<cudnnDataType_t>(n, CUDNN_ATTR_TENSOR_DATA_TYPE)) {
    case CUDNN_DATA_FLOAT:
        return CUDA_R_32F;
    case CUDNN_DATA_HALF:
        return CUDA_R_16F;
    default:
        return CUDA_R_16BF;
    }
}

tensor tensor_of(run *r, const node &n, bool is_factor) {
    tensor t = {values_of<int64_t>(n, CUDNN_ATTR_TENSOR_DIMENSIONS), values_of<int64_t>(n, CUDNN_ATTR_TENSOR_STRIDES),
                type_of(n), nullptr, is_factor && r->is_tf32};
    if (t.sizes.size() != 4 || t.strides.size() != 4) die("cuDNN: a tensor of %zu sizes", t.sizes.size());
    int64_t name = value_of<int64_t>(n, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    if (has(n, CUDNN_ATTR_TENSOR_IS_VIRTUAL) && value_of<unsigned char>(n, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        t.type = CUDA_R_32F;
        r->buffers[name].resize(t.bytes() / sizeof(float), std::nanf(""));
        t.data = r->buffers[name].data();
        return t;
    }
    auto names = values_of<int64_t>(*r->arguments, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    auto addresses = values_of<void *>(*r->arguments, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    for (size_t i = 0; i < names.size(); i++)
        if (names[i] == name) t.data = addresses[i];
    place where = place_of(t.data, t.bytes(), "a tensor of cuDNN");
    if (where == PAGEABLE || where == PINNED) die("cuDNN: tensor %d is in host memory", (int)name);
    if ((uintptr_t)t.data % (uintptr_t)value_of<int64_t>(n, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT))
        die("cuDNN: tensor %d is less aligned than its descriptor says", (int)name);
    return t;
}

/* ---- operations ---- */

struct convolution {
    std::vector<int64_t> padding, padding_after, dilation, stride;
    float alpha, beta;
    tensor x, w, y;
};

/* f(row, out channel, y's place, in channel of x, of w, kernel's place, x's place) for each product of the convolution
 */
template <typename F> void each_product(const convolution &c, F f) {
    int64_t groups = c.x.sizes[1] / c.w.sizes[1], outs = c.w.sizes[0] / groups;
    for (int64_t n = 0; n < c.y.sizes[0]; n++)
        for (int64_t o = 0; o < c.y.sizes[1]; o++)
            for (int64_t h = 0; h < c.y.sizes[2]; h++)
                for (int64_t v = 0; v < c.y.sizes[3]; v++)
                    for (int64_t i = 0; i < c.w.sizes[1]; i++)
                        for (int64_t k = 0; k < c.w.sizes[2]; k++)
                            for (int64_t l = 0; l < c.w.sizes[3]; l++) {
                                int64_t row = h * c.stride[0] - c.padding[0] + k * c.dilation[0];
                                int64_t column = v * c.stride[1] - c.padding[1] + l * c.dilation[1];
                                if (row >= 0 && row < c.x.sizes[2] && column >= 0 && column < c.x.sizes[3])
                                    f(n, o, h, v, o / outs * c.w.sizes[1] + i, i, k, l, row, column);
                            }
}

void check_sizes(const convolution &c) {
    bool fits = c.x.sizes[0] == c.y.sizes[0] && c.w.sizes[0] == c.y.sizes[1] && c.x.sizes[1] % c.w.sizes[1] == 0;
    for (size_t d = 0; fits && d < 2; d++) {
        int64_t reach = c.dilation[d] * (c.w.sizes[2 + d] - 1) + 1;
        fits = c.y.sizes[2 + d] == (c.x.sizes[2 + d] + c.padding[d] + c.padding_after[d] - reach) / c.stride[d] + 1;
    }
    if (!fits) die("cuDNN: the sizes of a convolution do not fit");
}

/* to = alpha sum + beta to, sums in float32 */
void put_sums(const convolution &c, const tensor &to, const std::vector<float> &sums) {
    for (int64_t a = 0; a < to.sizes[0]; a++)
        for (int64_t b = 0; b < to.sizes[1]; b++)
            for (int64_t d = 0; d < to.sizes[2]; d++)
                for (int64_t e = 0; e < to.sizes[3]; e++) {
                    const int64_t index[4] = {a, b, d, e};
                    float sum = c.alpha * sums[to.at(index)];
                    to.put(a, b, d, e, c.beta != 0 ? sum + c.beta * to.get(a, b, d, e) : sum);
                }
}

template <typename F> void convolve(const convolution &c, const tensor &to, F product) {
    std::vector<float> sums(to.bytes() / emulation::size_of(to.type));
    check_sizes(c);
    product(sums);
    put_sums(c, to, sums);
}

size_t place_in(const tensor &t, int64_t a, int64_t b, int64_t c, int64_t d) {
    const int64_t index[4] = {a, b, c, d};
    return t.at(index);
}

convolution convolution_of(run *r, const node &n, cudnnBackendAttributeName_t alpha, cudnnBackendAttributeName_t beta,
                           cudnnBackendAttributeName_t window, cudnnBackendAttributeName_t w,
                           cudnnBackendAttributeName_t x, cudnnBackendAttributeName_t y) {
    const node &how = node_of(n, window);
    convolution c = {values_of<int64_t>(how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                     values_of<int64_t>(how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS),
                     values_of<int64_t>(how, CUDNN_ATTR_CONVOLUTION_DILATIONS),
                     values_of<int64_t>(how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                     value_of<float>(n, alpha),
                     value_of<float>(n, beta),
                     tensor_of(r, node_of(n, x), true),
                     tensor_of(r, node_of(n, w), true),
                     tensor_of(r, node_of(n, y), true)};
    if (value_of<cudnnConvolutionMode_t>(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
        die("cuDNN: a convolution that is no cross correlation");
    return c;
}

#define CONVOLUTION(pass, w, x, y)                                                                                     \
    convolution_of(r, n, CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_ALPHA,                                              \
                   CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_BETA,                                                     \
                   CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##w, \
                   CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##x, CUDNN_ATTR_OPERATION_CONVOLUTION_##pass##_##y)

void run_forward(run *r, const node &n) {
    convolution c = CONVOLUTION(FORWARD, W, X, Y);
    c.y.is_tf32 = false;
    convolve(c, c.y, [&](std::vector<float> &sums) {
        each_product(c, [&](int64_t row, int64_t o, int64_t h, int64_t v, int64_t in, int64_t i, int64_t k, int64_t l,
                            int64_t y, int64_t x) {
            float &sum = sums[place_in(c.y, row, o, h, v)];
            sum = fmaf(c.x.get(row, in, y, x), c.w.get(o, i, k, l), sum);
        });
    });
}

void run_backward_input(run *r, const node &n) {
    convolution c = CONVOLUTION(BWD_DATA, W, DX, DY);
    c.x.is_tf32 = false;
    convolve(c, c.x, [&](std::vector<float> &sums) {
        each_product(c, [&](int64_t row, int64_t o, int64_t h, int64_t v, int64_t in, int64_t i, int64_t k, int64_t l,
                            int64_t y, int64_t x) {
            float &sum = sums[place_in(c.x, row, in, y, x)];
            sum = fmaf(c.y.get(row, o, h, v), c.w.get(o, i, k, l), sum);
        });
    });
}

void run_backward_weight(run *r, const node &n) {
    convolution c = CONVOLUTION(BWD_FILTER, DW, X, DY);
    c.w.is_tf32 = false;
    convolve(c, c.w, [&](std::vector<float> &sums) {
        each_product(c, [&](int64_t row, int64_t o, int64_t h, int64_t v, int64_t in, int64_t i, int64_t k, int64_t l,
                            int64_t y, int64_t x) {
            float &sum = sums[place_in(c.w, o, i, k, l)];
            sum = fmaf(c.x.get(row, in, y, x), c.y.get(row, o, h, v), sum);
        });
    });
}

void run_pointwise(run *r, const node &n) {
    tensor x = tensor_of(r, node_of(n, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), false), b = x;
    tensor y = tensor_of(r, node_of(n, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), false);
    if (has(n, CUDNN_ATTR_OPERATION_POINTWISE_BDESC))
        b = tensor_of(r, node_of(n, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), false);
    auto f = value_of<cudnnPointwiseMode_t>(node_of(n, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR),
                                            CUDNN_ATTR_POINTWISE_MODE);
    for (int64_t i = 0; i < y.sizes[0]; i++)
        for (int64_t c = 0; c < y.sizes[1]; c++)
            for (int64_t h = 0; h < y.sizes[2]; h++)
                for (int64_t w = 0; w < y.sizes[3]; w++) {
                    float value = x.get(i, c, h, w);
                    if (f == CUDNN_POINTWISE_ADD) value += b.get(i, c, h, w);
                    if (f == CUDNN_POINTWISE_RELU_FWD) value = value > 0 ? value : (value != value ? value : 0);
                    y.put(i, c, h, w, value);
                }
}

/* ---- engines ---- */

const node &engine_of(const node &plan) {
    return node_of(node_of(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), CUDNN_ATTR_ENGINECFG_ENGINE);
}

bool is_tf32(const node &engine) {
    for (auto note : values_of<cudnnBackendNumericalNote_t>(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE))
        if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return true;
    return false;
}

shared_node engine_with(const shared_node &graph, const std::vector<cudnnBackendNumericalNote_t> &notes) {
    shared_node engine = std::make_shared<node>(node{CUDNN_BACKEND_ENGINE_DESCRIPTOR, true, {}});
    attribute a;
    a.bytes.resize(notes.size() * sizeof notes[0]);
    if (!notes.empty()) memcpy(a.bytes.data(), notes.data(), a.bytes.size());
    engine->attributes[CUDNN_ATTR_ENGINE_NUMERICAL_NOTE] = a;
    engine->attributes[CUDNN_ATTR_ENGINE_OPERATION_GRAPH].nodes = {graph};
    shared_node choice = std::make_shared<node>(node{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, true, {}});
    choice->attributes[CUDNN_ATTR_ENGINECFG_ENGINE].nodes = {engine};
    return choice;
}

/* The types of a convolution's tensors, and whether the channels of its weights are innermost. */
struct types {
    cudnnDataType_t x, w, y;
    bool is_last;
    bool is_wide() const { return x == CUDNN_DATA_FLOAT && w == x && y == x; }
    bool is_half() const { return x != CUDNN_DATA_FLOAT && w == x && y == x && is_last; }
};

types types_of(const node &o) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t x, w, y;
    } names[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
    };
    for (const auto &n : names) {
        if (o.type != n.type) continue;
        auto type = [&](cudnnBackendAttributeName_t t) {
            return value_of<cudnnDataType_t>(node_of(o, t), CUDNN_ATTR_TENSOR_DATA_TYPE);
        };
        return {type(n.x), type(n.w), type(n.y),
                values_of<int64_t>(node_of(o, n.w), CUDNN_ATTR_TENSOR_STRIDES).at(1) == 1};
    }
    die("cuDNN: a graph that begins with an operation of type %d", o.type);
}

std::vector<shared_node> engines_for(const shared_node &graph) {
    const shared_node &convolution = graph->attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).nodes.at(0);
    types t = types_of(*convolution);
    shared_node unordered = engine_with(graph, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC});
    if (t.is_wide())
        return {engine_with(graph, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}),
                unordered, engine_with(graph, {})};
    if (t.is_half() && get_settings().has_half)
        return {unordered, engine_with(graph, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE})};
    return {unordered};
}

/* The attributes that the library computes when the descriptor is finalized. */
void complete(node *n) {
    if (n->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
        shared_node graph = n->attributes.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).nodes.at(0);
        n->attributes[CUDNN_ATTR_ENGINEHEUR_RESULTS].nodes = engines_for(graph);
    }
    if (n->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        attribute a;
        a.bytes.resize(sizeof WORKSPACE);
        memcpy(a.bytes.data(), &WORKSPACE, sizeof WORKSPACE);
        n->attributes[CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE] = a;
    }
}

void run_plan(run *r) {
    const node &engine = engine_of(*r->plan);
    r->is_tf32 = is_tf32(engine);
    void *workspace = value_of<void *>(*r->arguments, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (place_of(workspace, WORKSPACE, "cuDNN's workspace") != DEVICE) die("cuDNN: the workspace is not in GPU memory");
    memset(workspace, 0xff, WORKSPACE);
    const node &graph = node_of(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH);
    for (const shared_node &o : graph.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).nodes) {
        switch (o->type) {
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
            run_forward(r, *o);
            break;
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
            run_backward_input(r, *o);
            break;
        case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
            run_backward_weight(r, *o);
            break;
        case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
            run_pointwise(r, *o);
            break;
        default:
            die("cuDNN: an operation of type %d", o->type);
        }
    }
}

} // namespace
} // namespace emulation

using namespace emulation;

struct cudnnContext {
    cudaStream_t stream;
};

struct cudnnDescriptor {
    shared_node is;
};

size_t cudnnGetVersion() { return CUDNN_VERSION; }

const char *cudnnGetErrorString(cudnnStatus_t status) {
    return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS of the emulation";
}

void cudnnGetLastErrorString(char *message, size_t size) {
    if (size) *message = 0;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    if (is_to_fail("cudnn")) return CUDNN_STATUS_NOT_INITIALIZED;
    *handle = new cudnnContext{nullptr};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
    *descriptor = new cudnnDescriptor{std::make_shared<node>(node{type, false, {}})};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    delete descriptor;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    node *n = descriptor->is.get();
    if (n->is_final) return CUDNN_STATUS_BAD_PARAM;
    for (const auto &[name, a] : n->attributes)
        for (const shared_node &part : a.nodes)
            if (!part->is_final) return CUDNN_STATUS_BAD_PARAM;
    complete(n);
    n->is_final = true;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (descriptor->is->is_final) return CUDNN_STATUS_BAD_PARAM;
    attribute a;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++) a.nodes.push_back(((const cudnnBackendDescriptor_t *)values)[i]->is);
    else
        a.bytes.assign((const unsigned char *)values, (const unsigned char *)values + (size_t)count * size_of(type));
    descriptor->is->attributes[name] = std::move(a);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t limit, int64_t *count, void *values) {
    const node &n = *descriptor->is;
    if (!n.is_final || !has(n, name)) return CUDNN_STATUS_BAD_PARAM;
    const attribute &a = n.attributes.at(name);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        *count = (int64_t)a.nodes.size();
        for (int64_t i = 0; i < *count && i < limit; i++)
            ((cudnnBackendDescriptor_t *)values)[i]->is = a.nodes[(size_t)i];
        return CUDNN_STATUS_SUCCESS;
    }
    *count = (int64_t)(a.bytes.size() / size_of(type));
    if (!a.bytes.empty()) memcpy(values, a.bytes.data(), (size_t)std::min(*count, limit) * size_of(type));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t arguments) {
    guard g(lock);
    if (!plan->is->is_final || !arguments->is->is_final || is_to_fail("convolution"))
        return CUDNN_STATUS_EXECUTION_FAILED;
    shared_node kept = plan->is, operands = arguments->is;
    cudaError_t error = enqueue(handle->stream, [kept, operands]() {
        run r = {kept, operands, {}, false};
        run_plan(&r);
    });
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}
