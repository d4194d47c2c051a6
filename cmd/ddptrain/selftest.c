/* selftest: trains small models that are built in, on rows that are generated, with portable arithmetic, whose states
 * are the same on every processor: a state that differs from the one in the table is the fault of a processor, of
 * memory, of a compiler or of this build. The models are trained by child processes, as a user would train them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files/io.h"
#include "base/files/json_lines.h"
#include "base/stop.h"
#include "base/system/machine.h"
#include "command.h"
#include "device/cpu/cpu.h"
#include "device/cpu/parallel.h"
#include "device/device.h"
#include "device/gpus.h"
#include "dist/comm/comm_backend.h"
#include "train/metrics/metrics.h"

#define HASH_DIGITS 16 /* of a state's SHA-256, as a run prints it */

/* What a model needs besides the keys that all have. [is_quick]: also with --quick. */
struct model_case {
    const char *name, *text;
    const char *state; /* the first digits of the SHA-256 of the state; NULL: not compared */
    bool is_quick;
};

#define IMAGES                                                                                                         \
    "dataset: {format: synthetic, synthetic: {kind: classes, rows: 96, inputs: [3, 12, 12], classes: 4}, split: "      \
    "0.25}\n"
#define ROWS                                                                                                           \
    "dataset: {format: synthetic, synthetic: {kind: classes, rows: 256, inputs: 20, classes: 5}, scale: standard, "    \
    "split: 0.25}\n"
#define VALUES                                                                                                         \
    "dataset: {format: synthetic, synthetic: {kind: linear, rows: 256, inputs: 16, targets: 2}, scale: minmax, "       \
    "split: 0.25}\n"
#define STEPS                                                                                                          \
    "dataset: {format: synthetic, synthetic: {kind: classes, rows: 128, inputs: [10, 8], classes: 3}, split: 0.25}\n"
#define CLASSES "loss: cross_entropy\n"

static const struct model_case cases[] = {
    {"perceptron",
     ROWS CLASSES "model: {layers: [{linear: 64}, relu, {linear: 5}]}\noptimizer: {type: adam, lr: 0.01}\n",
     "31f86ef807d47457", true},
    {"perceptron, average of weights",
     ROWS CLASSES "model: {layers: [{linear: 300}, gelu, {dropout: 0.2}, {linear: 5}]}\n"
                  "optimizer: {type: adamw, lr: 0.01, weight_decay: 0.1}\ntrain: {ema: 0.9, clip_grad_norm: 1}\n",
     "d6d20ab5dbc14283", false},
    {"regression",
     VALUES "loss: mse\nmodel: {layers: [{linear: 32}, tanh, {linear: 2}]}\n"
            "optimizer: {type: sgd, lr: 0.05, momentum: 0.9, nesterov: true}\n",
     "6f53a672113850dd", true},
    {"regression, accumulated",
     VALUES "loss: huber\nmodel: {layers: [{linear: 40}, silu, layer_norm, {linear: 2}]}\n"
            "optimizer: {type: rmsprop, lr: 0.01}\ntrain: {accumulate: 3}\n",
     "bc5b6fbfe49560a6", false},
    {"convolutions",
     IMAGES CLASSES "model: {layers: [{conv2d: {out: 16, kernel_size: 3, padding: 1}}, batch_norm, relu, {max_pool2d: "
                    "2}, {conv2d: {out: 32, kernel_size: 3}}, relu, {adaptive_avg_pool2d: 1}, flatten, {linear: "
                    "4}]}\noptimizer: {type: sgd, lr: 0.05, momentum: 0.9}\n",
     "c69e1fe94419bd89", true},
    {"large convolutions",
     IMAGES CLASSES "model: {layers: [{conv2d: {out: 40, kernel_size: 5, padding: 2}}, relu, {conv2d: {out: 40, "
                    "kernel_size: 5, padding: 2}}, {group_norm: 8}, relu, {conv2d: {out: 64, kernel_size: 5, stride: "
                    "2}}, relu, {adaptive_avg_pool2d: 1}, flatten, {linear: 4}]}\noptimizer: {type: adam, lr: 0.001}\n",
     "9345de215d6eb1ac", false},
    {"Winograd's convolutions",
     IMAGES CLASSES
     "model: {layers: [{conv2d: {out: 32, kernel_size: 5, padding: 2}}, relu, {conv2d: {out: 64, kernel_size: 3, "
     "padding: 1}}, batch_norm, relu, {max_pool2d: 2}, {conv2d: {out: 352, kernel_size: 3, padding: 1}}, relu, "
     "{adaptive_avg_pool2d: 1}, flatten, {linear: 4}]}\noptimizer: {type: adam, lr: 0.001}\n",
     "f1aafd6ed40a7a8a", false},
    {"residual network",
     IMAGES CLASSES "model: {layers: [{conv2d: {out: 16, kernel_size: 3, padding: 1, bias: false}}, batch_norm, relu, "
                    "{residual: [{conv2d: {out: 16, kernel_size: 3, padding: 1}}, batch_norm, relu, {conv2d: {out: 16, "
                    "kernel_size: 3, padding: 1}}, batch_norm]}, relu, {conv2d: {out: 16, kernel_size: 3, groups: "
                    "16}}, {avg_pool2d: 2}, flatten, {linear: 4}]}\n"
                    "optimizer: {type: adam, lr: 0.01}\n",
     "26a58f4cb6a4ab5c", false},
    {"LSTM",
     STEPS CLASSES
     "model: {layers: [{lstm: {hidden_size: 24, output: last}}, {linear: 3}]}\noptimizer: {type: adam, lr: 0.01}\n",
     "ea071d0cd5f6d32c", true},
    {"GRU, both directions",
     STEPS CLASSES "model: {layers: [{gru: {hidden_size: 16, bidirectional: true, output: last}}, {linear: 3}]}\n"
                   "optimizer: {type: adagrad, lr: 0.05}\n",
     "d7351f869c72e7d2", false},
    {"transformer",
     STEPS CLASSES "model: {layers: [{linear: 32}, positional_embedding, {residual: [layer_norm, {attention: {heads: "
                   "4}}]}, {residual: [layer_norm, {linear: 64}, {gelu: {approximate: tanh}}, {linear: 32}]}, "
                   "rms_norm, mean, {linear: 3}]}\noptimizer: {type: adamw, lr: 0.003}\n",
     "f0c54dc38d5cfb43", true},
    {"U-Net",
     IMAGES CLASSES
     "model: {layers: [{conv2d: {out: 8, kernel_size: 3, padding: 1, bias: false}}, batch_norm, {relu: {name: fine}}, "
     "{max_pool2d: 2}, {conv2d: {out: 16, kernel_size: 3, padding: 1, bias: false}}, batch_norm, relu, "
     "{conv_transpose2d: {out: 8, kernel_size: 2, stride: 2, name: up}}, {concat: {from: [fine, up]}}, {conv2d: {out: "
     "8, kernel_size: 3, padding: 1}}, relu, {adaptive_avg_pool2d: 2}, flatten, {linear: 4}]}\n"
     "optimizer: {type: adamw, lr: 0.003}\n",
     "4e7f7555b2cf71de", false},
    {"densely connected network",
     IMAGES CLASSES "model: {layers: [{conv2d: {out: 12, kernel_size: 3, padding: 1, bias: false}}, {repeat: {times: "
                    "3, layers: [{parallel: {branches: [[], [batch_norm, relu, {conv2d: {out: 24, kernel_size: 1, "
                    "bias: false}}, batch_norm, relu, {conv2d: {out: 6, kernel_size: 3, padding: 1, bias: "
                    "false}}]]}}]}}, batch_norm, relu, {avg_pool2d: 2}, {adaptive_avg_pool2d: 1}, flatten, {linear: "
                    "4}]}\noptimizer: {type: sgd, lr: 0.1, momentum: 0.9, nesterov: true, weight_decay: 0.0001}\n",
     "fbab9fa108f4d3d6", false},
    {"inception",
     IMAGES CLASSES "model: {layers: [{parallel: {branches: [[{conv2d: {out: 4, kernel_size: 1}}, batch_norm, relu], "
                    "[{conv2d: {out: 4, kernel_size: 1}}, relu, {conv2d: {out: 8, kernel_size: 5, padding: 2}}, relu], "
                    "[{max_pool2d: {kernel_size: 3, stride: 1, padding: 1}}, {conv2d: {out: 4, kernel_size: 1}}, "
                    "relu]]}}, {max_pool2d: 2}, {adaptive_avg_pool2d: 1}, flatten, {linear: 4}]}\n"
                    "optimizer: {type: nadam, lr: 0.002}\n",
     "7bebfba54c0f1a7f", false},
    {"mobile network",
     IMAGES CLASSES
     "model: {init: [{kaiming_normal: {layers: [conv2d], match: '*.weight', mode: fan_out}}], layers: [{conv2d: {out: "
     "16, kernel_size: 3, padding: 1, bias: false}}, batch_norm, relu6, {residual: [{conv2d: {out: 48, kernel_size: 1, "
     "bias: false}}, batch_norm, relu6, {conv2d: {out: 48, kernel_size: 3, padding: 1, groups: 48, bias: false}}, "
     "batch_norm, relu6, {conv2d: {out: 16, kernel_size: 1, bias: false}}, batch_norm]}, {adaptive_avg_pool2d: 1}, "
     "flatten, {dropout: 0.2}, {linear: 4}]}\noptimizer: {type: rmsprop, lr: 0.002, momentum: 0.9}\n"
     "schedule: {type: cosine}\n",
     "28d696a3476f5954", false},
    {"vision transformer",
     IMAGES "loss: {type: cross_entropy, label_smoothing: 0.1}\n"
            "model: {layers: [{patch_embedding: {embed_dim: 24, patch_size: 4}}, class_token, positional_embedding, "
            "{residual: [layer_norm, {attention: {heads: 3}}]}, {residual: [layer_norm, {linear: 48}, gelu, {linear: "
            "24}]}, layer_norm, {slice: {end: 1}}, flatten, {linear: 4}]}\n"
            "optimizer: {type: adamw, lr: 0.001, weight_decay: 0.05, decay: matrices}\n",
     "3f56a91506826ebf", false},
    {"rotary transformer",
     STEPS CLASSES
     "model: {layers: [{linear: 32}, {residual: [rms_norm, {linear: {out: 64, bias: false}}, {rotary_embedding: "
     "{head_size: 8, heads: 6}}, {scaled_dot_product_attention: {heads: 4, num_kv_heads: 2, causal: true}}, {linear: "
     "{out: 32, bias: false}}]}, {residual: [{rms_norm: {name: norm}}, {linear: 48}, {silu: {name: gate}}, {linear: "
     "{out: 48, name: w3, from: norm}}, {multiply: {from: [gate, w3]}}, {linear: 32}]}, rms_norm, mean, {linear: 3}]}\n"
     "optimizer: {type: adamw, lr: 0.003, betas: [0.9, 0.95]}\n",
     "bcb740dd4af5dae1", false},
    {"convolutions of a signal",
     STEPS CLASSES "model: {layers: [{conv1d: {out: 16, kernel_size: 3, padding: 1}}, relu, {conv1d: {out: 24, "
                   "kernel_size: 3, stride: 2}}, {instance_norm: {affine: true}}, tanh, flatten, {linear: 3}]}\n"
                   "optimizer: {type: radam, lr: 0.01}\n",
     "601aa4bb936f0337", false},
    {"autoencoder",
     "dataset: {format: synthetic, synthetic: {kind: classes, rows: 256, inputs: 20, classes: 5}, scale: minmax, "
     "split: 0.25}\nlosses: [{type: mse, output: whole, target: input}]\n"
     "model: {layers: [{linear: 16}, elu, {linear: {out: 4, name: code}}, sigmoid, {linear: 16}, softplus, {linear: "
     "{out: 20, name: whole}}]}\noptimizer: {type: lion, lr: 0.001}\n",
     "14bd495da07e25f9", false},
    {"large products",
     "dataset: {format: synthetic, synthetic: {kind: classes, rows: 512, inputs: 256, classes: 10}, split: "
     "0.25}\n" CLASSES
     "sampler: {batch_size: 128}\nmodel: {layers: [{linear: 512}, relu, {linear: 512}, relu, {linear: 10}]}\n"
     "optimizer: {type: sgd, lr: 0.05}\n",
     "4d2379f3658ff659", false},
};
#define CASES (sizeof cases / sizeof *cases)
#define FIRST_EPOCH "4b587d2dcbf81795" /* the state of the first case after one epoch */
#define ELASTIC "f6ee65bf6fe9d991"     /* and in two shards */

/* ---- checks ---- */

struct selftest {
    char *folder;
    size_t done, wrong;
    bool is_comparable; /* this processor has the bits of the table */
    bool has_gloo;
    bool has_wrong_bits;  /* a result is wrong, not only missing */
    int code;             /* the exit code of a run that failed, of one that was killed if there is one; 0: none */
    struct text problems; /* a line each */
};

/* [code]: the exit code of a run that failed; 0: its result is wrong. */
static void fail(struct selftest *t, const char *what, int code, const char *sentence) {
    t->wrong++;
    t->has_wrong_bits |= code == 0 || code == STATUS_DIVERGED;
    if (!t->code || code > 128) t->code = code;
    text_printf(&t->problems, "%s: %s\n", what, sentence);
}

/* The state at the end of a run; "": it has not ended. */
static void read_state(const char *folder, char state[HASH_DIGITS + 1]) {
    SCOPED_LINES lines = {0};
    struct json_line line;
    SCOPED_STRING path = text_path(folder, "metrics.jsonl");
    state[0] = 0;
    status s = metrics_read(path, &lines);
    if (!s && lines.other && json_line_read(lines.other, strcspn(lines.other, "\n"), &line)) {
        const struct json_field *hash = json_line_find(&line, "state_sha256");
        SCOPED_STRING text = hash && hash->kind == KIND_TEXT ? json_field_text(hash) : NULL;
        if (text) snprintf(state, HASH_DIGITS + 1, "%s", text);
    }
    status_free(s);
}

/* Trains a case with further arguments, of the command line, and compares its state. */
static status train(struct selftest *t, const struct model_case *c, const char *what, const char *run,
                    const char *const *more) {
    SCOPED_TEXT output = {0}, reason = {0};
    const char *arguments[16] = {"ddptrain", NULL, "--quiet", "--run-dir", NULL};
    char state[HASH_DIGITS + 1];
    int code = 0;
    SCOPED_STRING config = text_path(t->folder, "model.yaml");
    SCOPED_STRING folder = text_path(t->folder, run);
    text_printf(&output, "%s/output.txt", t->folder);
    arguments[1] = config;
    arguments[4] = folder;
    for (size_t i = 0; more[i]; i++) arguments[5 + i] = more[i];
    SCOPED_STRING yaml = text_format("name: selftest\nseed: 7\ndeterminism: {portable: true}\n%s%s", c->text,
                                     strstr(c->text, "sampler:") ? "" : "sampler: {batch_size: 16}\n");
    status s = io_replace_text(config, yaml);
    if (!s) s = command_run_child(arguments, text_string(&output), &code);
    t->done++;
    if (!s && code != 0) {
        text_printf(&reason, "exit code %d: ", code);
        command_add_reason(text_string(&output), &reason);
        fail(t, what, code, text_string(&reason));
    } else if (!s && c->state) {
        read_state(folder, state);
        if (!state[0]) fail(t, what, STATUS_IO, "its log does not end with its state");
        text_printf(&reason, "its state is %s, but %s on other processors", state, c->state);
        if (state[0] && strcmp(state, c->state) != 0) fail(t, what, 0, text_string(&reason));
    }
    return s;
}

/* The last validation loss of a run; NaN: none. */
static double read_loss(const struct selftest *t, const char *run) {
    SCOPED_LINES lines = {0};
    struct json_line line;
    double loss = NAN;
    SCOPED_STRING path = text_format("%s/%s/metrics.jsonl", t->folder, run);
    status s = metrics_read(path, &lines);
    if (!s && lines.epoch && json_line_read(lines.epoch, strcspn(lines.epoch, "\n"), &line))
        loss = json_line_number(&line, "val_loss");
    status_free(s);
    return loss;
}

/* A line of the table: what was checked, "12 of 12", and the time. */
static void print_row(const struct selftest *t, const char *what, size_t done, size_t wrong, double start) {
    size_t checks = t->done - done, failures = t->wrong - wrong;
    printf("%-44s %2zu of %2zu right %8.2f s\n", what, checks - failures, checks, clock_seconds() - start);
    fflush(stdout);
}

#define EPOCHS "train.epochs=2", "train.device=cpu"

static status check_models(struct selftest *t, bool is_quick) {
    size_t done = t->done, wrong = t->wrong;
    double start = clock_seconds();
    for (size_t i = 0; i < CASES; i++) {
        char run[16];
        snprintf(run, sizeof run, "%zu", i);
        struct model_case c = cases[i];
        if (is_quick && !c.is_quick) continue;
        if (!t->is_comparable) c.state = NULL;
        TRY(train(t, &c, c.name, run, (const char *const[]){EPOCHS, "--nproc", "1", NULL}));
    }
    print_row(t, t->is_comparable ? "models, with the bits of every processor" : "models", done, wrong, start);
    return OK;
}

/* The state that runs of [c] must have: that of the table, or where it cannot be compared that of the run [run]. */
static void expect_state(const struct selftest *t, struct model_case *c, const char *run, char state[HASH_DIGITS + 1]) {
    SCOPED_STRING folder = text_path(t->folder, run);
    if (!t->is_comparable) read_state(folder, state), c->state = state;
}

/* The disk: what a run saves is read again, and gives the bits of a run that was not interrupted. */
static status check_resume(struct selftest *t) {
    size_t done = t->done, wrong = t->wrong;
    double start = clock_seconds();
    struct model_case before = cases[0], after = cases[0];
    char state[HASH_DIGITS + 1];
    before.state = t->is_comparable ? FIRST_EPOCH : NULL;
    expect_state(t, &after, "0", state);
    TRY(train(t, &before, "a run before it is resumed", "resumed",
              (const char *const[]){"train.epochs=1", "train.device=cpu", "--nproc", "1", NULL}));
    TRY(train(t, &after, "a resumed run", "resumed", (const char *const[]){EPOCHS, "--nproc", "1", NULL}));
    print_row(t, "checkpoints, saved and resumed", done, wrong, start);
    return OK;
}

#define ELASTIC_KEYS                                                                                                   \
    "determinism.mode=elastic", "determinism.shards=2", "sampler.global_batch_size=16", "sampler.batch_size=null"

static const char *const backends[] = {"shm", "gloo"};

static size_t count_backends(const struct selftest *t) { return t->has_gloo ? 2 : 1; }

/* One process and two have the same bits, whatever carries the gradients. */
static status check_processes(struct selftest *t) {
    size_t done = t->done, wrong = t->wrong;
    double start = clock_seconds();
    struct model_case elastic = cases[0];
    char state[HASH_DIGITS + 1];
    elastic.state = t->is_comparable ? ELASTIC : NULL;
    TRY(train(t, &elastic, "one process", "one", (const char *const[]){EPOCHS, ELASTIC_KEYS, "--nproc", "1", NULL}));
    expect_state(t, &elastic, "one", state);
    for (size_t i = 0; i < count_backends(t); i++) {
        SCOPED_STRING backend = text_format("dist.backend=%s", backends[i]);
        SCOPED_STRING what = text_format("two processes, %s", backends[i]);
        TRY(train(t, &elastic, what, backends[i],
                  (const char *const[]){EPOCHS, ELASTIC_KEYS, backend, "--nproc", "2", NULL}));
    }
    print_row(t, "processes, with the bits of one", done, wrong, start);
    return OK;
}

static status check_collectives(struct selftest *t) {
    size_t done = t->done, wrong = t->wrong;
    double start = clock_seconds();
    SCOPED_TEXT output = {0};
    text_printf(&output, "%s/output.txt", t->folder);
    for (size_t i = 0; i < count_backends(t); i++) {
        const char *arguments[] = {"ddptrain", "comm", "--nproc", "2", "--backend", backends[i], "--sizes", "4K", NULL};
        SCOPED_TEXT what = {0}, reason = {0};
        int code = 0;
        status s = command_run_child(arguments, text_string(&output), &code);
        t->done++;
        if (!s && code != 0) {
            text_printf(&what, "collectives, %s", backends[i]);
            text_printf(&reason, "exit code %d: ", code);
            command_add_reason(text_string(&output), &reason);
            fail(t, text_string(&what), code, text_string(&reason));
        }
        if (s) return s;
    }
    print_row(t, "collectives of two processes", done, wrong, start);
    return OK;
}

/* A GPU's bits are its own: it has to train, to a loss near that of the CPU. */
static status check_gpu(struct selftest *t) {
    size_t done = t->done, wrong = t->wrong;
    double start = clock_seconds(), losses[2];
    SCOPED_TEXT why = {0};
    int gpus;
    bool has_gpu = gpus_available(&(struct gpus_process){0}, &gpus, &why);
    if (!has_gpu) printf("%-44s %s\n", "GPU", gpus_are_expected() ? text_string(&why) : "none");
    if (!has_gpu) return OK;
    static const char *const devices[] = {"train.device=cpu", "train.device=cuda"};
    for (int i = 0; i < 2; i++) {
        struct model_case any = cases[0];
        any.state = NULL;
        TRY(train(
            t, &any, i ? "a run on the GPU" : "a run for the GPU", devices[i],
            (const char *const[]){"train.epochs=2", devices[i], "determinism.portable=false", "--nproc", "1", NULL}));
        losses[i] = read_loss(t, devices[i]);
    }
    t->done++;
    bool has_losses = t->wrong == wrong;
    SCOPED_STRING reason = text_format("its loss is %.6g, and %.6g on the CPU", losses[1], losses[0]);
    if (has_losses && !(fabs(losses[1] - losses[0]) <= 1e-3 * (1 + fabs(losses[0])))) fail(t, "the GPU", 0, reason);
    print_row(t, "GPU", done, wrong, start);
    return OK;
}

#define SIDE 768          /* of the matrices of the products that are timed */
#define SPEED_SECONDS 1.0 /* an emulator is slow */

/* The speed of a product of matrices on all threads of the process, and what the processor can do. */
static status print_speed(struct device *device) {
    float *x = calloc(3 * (size_t)SIDE * SIDE, sizeof *x), *w = x + (size_t)SIDE * SIDE;
    if (!x) return status_memory("a product");
    double best = 0, begin = clock_seconds();
    for (int i = 0; i < 12 && (i == 0 || clock_seconds() - begin < SPEED_SECONDS); i++) {
        double start = clock_seconds();
        device_ops(device)->linear_forward(device, F32(x), w, NULL, false, F32(w + (size_t)SIDE * SIDE), SIDE, SIDE,
                                           SIDE);
        double rate = 2.0 * SIDE * SIDE * SIDE / (clock_seconds() - start) * 1e-9;
        if (rate > best) best = rate;
    }
    double limit = cpu_register_rate(device) * 1e-9;
    int digits = limit < 10 ? 2 : 0;
    printf("%-44s %.*f GFLOP/s in float32 on %zu thread%s, %s\n", "products of matrices", digits, best,
           parallel_threads(), parallel_threads() > 1 ? "s" : "", device_describe(device));
    printf("%-44s %.*f GFLOP/s: products reach %.0f %%\n", "its limit, multiply-adds of registers alone", digits, limit,
           100 * best / limit);
    free(x);
    return OK;
}

/* ---- the command ---- */

static status check_all(struct selftest *t, struct device *device, bool is_quick) {
    const struct comm_backend *gloo;
    status s = comm_backend_gloo(&gloo);
    t->has_gloo = s == OK;
    status_free(s);
    t->is_comparable = strcmp(device_describe(device), "cpu") != 0;
    if (!t->is_comparable)
        printf("this processor has no fused multiply-add (AVX2): states are compared with each other only\n");
    TRY(check_models(t, is_quick));
    TRY(check_resume(t));
    TRY(check_processes(t));
    TRY(check_collectives(t));
    TRY(check_gpu(t));
    return print_speed(device);
}

/* The failure of checks that are wrong; [failure]: what ended the checks before their end, or OK. */
static status summary_of(const struct selftest *t, status failure) {
    SCOPED_TEXT text = {0};
    int code = t->has_wrong_bits ? STATUS_DIVERGED : t->code > 128 ? STATUS_BUG : t->code;
    text_printf(&text, "selftest: %zu of %zu checks are wrong:\n%s", t->wrong, t->done, text_string(&t->problems));
    if (failure) text_printf(&text, "%s\n", status_message(failure));
    if (text.length && text.data[text.length - 1] == '\n') text.data[text.length - 1] = 0;
    status s = status_new((enum status_code)code, "%s", text_string(&text));
    status_free(failure);
    return s;
}

static status run(const struct command_line *line) {
    struct selftest t = {0};
    struct device *device;
    TRY(device_create("cpu", &device));
    status s = command_make_folder(line->run_dir, "selftest", &t.folder);
    if (s) {
        device_destroy(device);
        return s;
    }
    stop_defer(); /* the folder is removed first */
    double start = clock_seconds();
    int processors = processors_allowed();
    printf("ddptrain %s, %d processor%s\n\n", DDPTRAIN_VERSION, processors, text_plural((uint64_t)processors, "s"));
    s = check_all(&t, device, line->is_quick);
    if (!s && t.wrong == 0) printf("\nselftest: %zu checks, all right, %.1f s\n", t.done, clock_seconds() - start);
    if (t.wrong > 0 && status_code(s) != STATUS_STOPPED) s = summary_of(&t, s);
    command_remove_folder(t.folder);
    device_destroy(device);
    text_free(&t.problems);
    return s;
}

const struct subcommand subcommand_selftest = {
    .name = "selftest",
    .arguments = "[--quick]",
    .help = "train built-in models and compare their bits; check collectives, checkpoints and the GPU",
    .run = run,
    .options = OPTION_QUICK | OPTION_RUN_DIR,
};
