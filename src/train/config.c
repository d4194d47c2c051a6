/* Rows of the run's own sections, and the composition of all the others. */
#include "train/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/find_file.h"
#include "optim/optimizer_groups.h"
#include "train/config_aliases.h"
#include "train/metrics/evaluation.h"

static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const precisions[] = {"float32", "bfloat16", "float16", NULL};
static const char *const matmul_precisions[] = {"highest", "high", NULL};
static const char *const weightings[] = {"torch", "samples", NULL};
static const char *const modes[] = {"torch", "elastic", NULL};

static const struct schema_row train_rows[] = {
    {.key = "epochs",
     .type = SCHEMA_INT,
     .offset = offsetof(struct train_config, epochs),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = INFINITY,
     .doc = "Passes over the training rows; or give `steps`."},
    {.key = "steps",
     .type = SCHEMA_INT,
     .offset = offsetof(struct train_config, steps),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = INFINITY,
     .doc = "Optimizer updates of the whole run; or give `epochs`."},
    {.key = "device",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct train_config, device),
     .fallback = "auto",
     .choices = devices,
     .doc = "Where the model runs. `cuda`: one GPU for each process; `auto`: the same where there is a GPU for each "
            "process of the host, else the CPU; with `optimizer.in_backward` the CPU."},
    {.key = "precision",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct train_config, precision),
     .fallback = "float32",
     .choices = precisions,
     .doc = "Arithmetic of matrix products (linear, attention; on GPUs also convolutions). `bfloat16` and `float16` "
            "round the factors; weights, their gradients and all sums stay float32. On GPUs, activations between "
            "layers have 16 bits as under autocast (docs/gpu.md). On the CPU `bfloat16` requires AVX-512 BF16. "
            "`float16` requires a GPU and scales the loss (`grad_scaler`)."},
    {.key = "float32_matmul_precision",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct train_config, matmul_precision),
     .fallback = "highest",
     .choices = matmul_precisions,
     .doc = "Factors of float32 products on GPUs: `highest` does not round them, `high` rounds them to TF32, 10 bits "
            "of fraction (torch.set_float32_matmul_precision; here also for convolutions). Without effect on the CPU "
            "and with other precisions."},
    {.key = "grad_scaler",
     .type = SCHEMA_SECTION,
     .offset = offsetof(struct train_config, grad_scaler),
     .section = &loss_scale_schema,
     .present_offset = offsetof(struct train_config, has_grad_scaler),
     .doc = "Scaling of the loss, only for `precision: float16` (torch.amp.GradScaler, with its names and defaults)."},
    {.key = "cuda_graph",
     .type = SCHEMA_BOOL,
     .offset = offsetof(struct train_config, cuda_graph),
     .fallback = "true",
     .present_offset = offsetof(struct train_config, has_cuda_graph),
     .doc = "On GPUs, training passes without work on the host are recorded as CUDA graphs and launched by one call."},
    {.key = "accumulate",
     .type = SCHEMA_INT,
     .offset = offsetof(struct train_config, accumulate),
     .fallback = "1",
     .min = 1,
     .max = 1 << 20,
     .doc = "Micro-batches per optimizer update, without communication in between (DDP's no_sync)."},
    {.key = "accumulate_weighting",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct train_config, accumulate_weighting),
     .fallback = "torch",
     .choices = weightings,
     .doc = "`torch`: each micro-batch counts 1/accumulate, as the usual PyTorch loop divides its loss; `samples`: "
            "each counts by its rows, so that the mean of a short last group is correct."},
    {.key = "clip_grad_norm",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct train_config, clip_grad_norm),
     .fallback = "0",
     .min = 0,
     .max = INFINITY,
     .doc = "Gradients are scaled so that their norm is at most this (clip_grad_norm_); 0: off."},
    {.key = "clip_grad_value",
     .type = SCHEMA_REAL,
     .offset = offsetof(struct train_config, clip_grad_value),
     .fallback = "0",
     .min = 0,
     .max = INFINITY,
     .doc = "Instead, each element of the gradients is brought into [-value, value] (clip_grad_value_); 0: off."},
    {.key = "ema",
     .type = SCHEMA_SECTION,
     .offset = offsetof(struct train_config, ema),
     .section = &ema_schema,
     .doc = "A moving average of the weights, kept beside them and saved as `ema/`."},
    {.key = "on_nonfinite",
     .type = SCHEMA_SECTION,
     .offset = offsetof(struct train_config, on_nonfinite),
     .section = &guard_schema,
     .doc = "What all ranks do, in the same step, when the loss or a gradient is not finite on any rank."},
    {.key = "check_state_every",
     .type = SCHEMA_INT,
     .offset = offsetof(struct train_config, check_state_every),
     .fallback = "100",
     .flags = SCHEMA_EXTENDS,
     .min = 0,
     .max = INFINITY,
     .doc = "Steps between comparisons of a hash of parameters and optimizer state over the ranks; if a rank differs, "
            "the run names it and ends with 71. The hash is also compared before each save; 0: only then."},
    {.key = "early_stop",
     .type = SCHEMA_SECTION,
     .offset = offsetof(struct train_config, early_stop),
     .section = &early_stop_schema,
     .doc = "Ends the run at the end of an epoch when a metric no longer improves; with `metric` or `patience`."},
    {.key = "metrics",
     .type = SCHEMA_STRING_LIST,
     .offset = offsetof(struct train_config, metrics),
     .fallback = "[]",
     .flags = SCHEMA_EXTENDS,
     .doc = "Metrics of the validation rows besides the loss: accuracy, top5, perplexity, confusion_matrix, precision, "
            "recall, f1, auc, mae, r2 (docs/metrics.md)."},
    {.key = "evaluate_every",
     .type = SCHEMA_INT,
     .offset = offsetof(struct train_config, evaluate_every),
     .fallback = "1",
     .flags = SCHEMA_EXTENDS,
     .min = 0,
     .max = INFINITY,
     .doc = "Epochs between evaluations on the validation rows; 0: only after the last."},
    {.key = "log_every",
     .type = SCHEMA_INT,
     .offset = offsetof(struct train_config, log_every),
     .fallback = "1",
     .flags = SCHEMA_EXTENDS,
     .min = 0,
     .max = INFINITY,
     .doc = "Steps between `step` lines of metrics.jsonl; 0: none."},
    {.key = "tensorboard",
     .type = SCHEMA_BOOL,
     .offset = offsetof(struct train_config, tensorboard),
     .fallback = "false",
     .flags = SCHEMA_EXTENDS,
     .doc = "The numbers of metrics.jsonl's steps and epochs also as a TensorBoard event file in the run folder: "
            "tensorboard --logdir runs."},
    {0},
};

#define LONGEST_NAME 240 /* file names end at 255; --fresh adds ".N" */

static struct place place_of(const struct node *where) { return where ? where->place : (struct place){0}; }

static void check_train(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct train_config *c = config;
    if (c->epochs == SCHEMA_NO_INT && c->steps == SCHEMA_NO_INT)
        problems_add(problems, place_of(where), path, "needs epochs or steps (train: {epochs: 10})");
    else if (c->epochs != SCHEMA_NO_INT && c->steps != SCHEMA_NO_INT)
        problems_add(problems, place_of(where), path, "give epochs or steps, not both");
    if (c->precision == TRAIN_FLOAT16 && c->device == DEVICE_CPU) {
        const struct node *own = where ? node_get(where, "precision") : NULL;
        problems_add(problems, place_of(own ? own : where), "train.precision",
                     "float16 needs a GPU (train.device: cuda or auto): use bfloat16 or float32");
    }
    if (c->clip_grad_norm > 0 && c->clip_grad_value > 0)
        problems_add(problems, place_of(where), path, "give clip_grad_norm or clip_grad_value, not both");
}

static const struct schema train_schema = {
    .name = "train", .size = sizeof(struct train_config), .rows = train_rows, .check = check_train};

static const struct schema_row save_every_rows[] = {
    {.key = "epochs",
     .type = SCHEMA_INT,
     .offset = offsetof(struct save_every, epochs),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = INFINITY,
     .doc = "Epochs between saves."},
    {.key = "steps",
     .type = SCHEMA_INT,
     .offset = offsetof(struct save_every, steps),
     .fallback = "null",
     .flags = SCHEMA_EXTENDS,
     .min = 1,
     .max = INFINITY,
     .doc = "Optimizer updates between saves."},
    {0},
};
static const struct schema save_every_schema = {
    .name = "checkpoint.save_every", .size = sizeof(struct save_every), .rows = save_every_rows, .shorthand = "epochs"};

static const struct schema_row checkpoint_rows[] = {
    {.key = "save_every",
     .type = SCHEMA_SECTION,
     .offset = offsetof(struct checkpoint_config, save_every),
     .section = &save_every_schema,
     .doc =
         "How often a checkpoint is written, in epochs or steps; one is always written at the end and on a stop "
         "request. Without this key also at the end of an epoch where that costs less than 1 % of the time since the "
         "last save, and every 10 minutes."},
    {.key = "keep",
     .type = SCHEMA_INT,
     .offset = offsetof(struct checkpoint_config, keep),
     .fallback = "3",
     .flags = SCHEMA_EXTENDS,
     .min = 0,
     .max = INFINITY,
     .doc = "Newest checkpoints that are kept; 0: all. With 2 or more, a run can resume from the previous file when "
            "the newest is damaged."},
    {.key = "best",
     .type = SCHEMA_SECTION,
     .offset = offsetof(struct checkpoint_config, best),
     .section = &monitor_schema,
     .doc = "The checkpoint of the epoch with the best value of a metric is kept as checkpoints/best.h5 besides the "
            "newest ones; eval, predict, generate and export take it with --checkpoint best."},
    {.key = "resume",
     .type = SCHEMA_STRING,
     .offset = offsetof(struct checkpoint_config, resume),
     .fallback = "auto",
     .flags = SCHEMA_EXTENDS,
     .doc = "`auto`: continue from the newest checkpoint of the run folder; `never`: an error if the run folder has "
            "one; a file: start from it when the run folder has none."},
    {0},
};
static const struct schema checkpoint_schema = {
    .name = "checkpoint", .size = sizeof(struct checkpoint_config), .rows = checkpoint_rows};

static const struct schema_row determinism_rows[] = {
    {.key = "mode",
     .type = SCHEMA_CHOICE,
     .offset = offsetof(struct determinism_config, mode),
     .fallback = "torch",
     .choices = modes,
     .doc =
         "`torch`: PyTorch's arithmetic; the same bits again on the same number of ranks. `elastic`: the same bits on "
         "any number of ranks, also when it changes in the middle of an epoch; needs `shards` and "
         "sampler.global_batch_size (docs/determinism.md)."},
    {.key = "shards",
     .type = SCHEMA_INT,
     .offset = offsetof(struct determinism_config, shards),
     .fallback = "null",
     .min = 1,
     .max = 65536,
     .doc = "elastic: number of parts of each batch whose gradients are computed separately and summed in one fixed "
            "tree; choose the maximum number of ranks of the run, preferably a power of two."},
    {0},
};

static void check_determinism(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct determinism_config *c = config;
    bool is_elastic = c->mode == DETERMINISM_ELASTIC, has_shards = c->shards != SCHEMA_NO_INT;
    if (is_elastic && !has_shards)
        problems_add(problems, place_of(where), path, "elastic needs shards (determinism: {mode: elastic, shards: 8})");
    if (!is_elastic && has_shards) problems_add(problems, place_of(where), path, "shards is for mode elastic");
}

static const struct schema determinism_schema = {.name = "determinism",
                                                 .size = sizeof(struct determinism_config),
                                                 .rows = determinism_rows,
                                                 .shorthand = "mode",
                                                 .check = check_determinism};

#define SECTION(field_, schema_, doc_)                                                                                 \
    {                                                                                                                  \
        .key = #field_, .type = SCHEMA_SECTION, .offset = offsetof(struct config, field_), .section = &(schema_),      \
        .doc = doc_                                                                                                    \
    }

static const struct schema_row config_rows[] = {
    {.key = "name",
     .type = SCHEMA_STRING,
     .offset = offsetof(struct config, name),
     .fallback = "null",
     .doc = "Name of the run; its folder is runs/<name>. Default: the name of the config file."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = offsetof(struct config, seed),
     .fallback = "42",
     .doc = "Initial weights and every random draw of the model (torch.manual_seed)."},
    SECTION(dataset, dataset_schema, "Where the rows come from, how they are split and scaled."),
    SECTION(sampler, sampler_schema, "Which rows a rank sees in which order (DistributedSampler)."),
    SECTION(model, model_schema, "The layers."),
    {.key = "loss",
     .type = SCHEMA_VARIANT,
     .offset = offsetof(struct config, loss),
     .flags = SCHEMA_REQUIRED,
     .variants = &loss_variants,
     .doc = "What training minimizes, such as `cross_entropy` or `mse`."},
    {.key = "optimizer",
     .type = SCHEMA_VARIANT,
     .offset = offsetof(struct config, optimizer),
     .fallback = "adam",
     .variants = &optimizer_variants,
     .doc = "The update rule."},
    {.key = "schedule",
     .type = SCHEMA_VARIANT,
     .offset = offsetof(struct config, schedule),
     .fallback = "constant",
     .variants = &schedule_variants,
     .doc = "The learning rate over time."},
    SECTION(train, train_schema, "Length of the run, device and precision."),
    SECTION(checkpoint, checkpoint_schema, "What is saved and when."),
    SECTION(dist, dist_schema, "Processes and communication."),
    SECTION(determinism, determinism_schema, "What repeats bit for bit."),
    {0},
};

static bool has_control(const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; c && *c; c++)
        if (*c < 32 || *c == 127) return true;
    return false;
}

static void check_name(const struct config *c, const struct node *where, struct problems *problems) {
    if (c->name && (strchr(c->name, '/') || !*c->name || strcmp(c->name, ".") == 0 || strcmp(c->name, "..") == 0))
        problems_add(problems, place_of(node_get(where, "name")), "name", "must be a file name without '/', got '%s'",
                     c->name);
    else if (c->name && strlen(c->name) > LONGEST_NAME)
        problems_add(problems, place_of(node_get(where, "name")), "name",
                     "names the run's folder, so it must have at most %d bytes, got %zu", LONGEST_NAME,
                     strlen(c->name));
    else if (has_control(c->name))
        problems_add(problems, place_of(node_get(where, "name")), "name",
                     "names the run's folder, so it must have no line ends or other control characters");
}

static void check_resume(const struct config *c, const struct node *where, struct problems *problems) {
    const struct node *section = node_get(where, "checkpoint");
    const struct node *resume = section && section->kind == NODE_MAPPING ? node_get(section, "resume") : NULL;
    if (c->checkpoint.resume && !*c->checkpoint.resume)
        problems_add(problems, place_of(resume), "checkpoint.resume", "must be auto, never or a file, got ''");
    struct text hint = {0};
    static const char *const none[] = {NULL}; /* any other word may be a file */
    if (resume && resume->kind == NODE_SCALAR)
        schema_suggest_value(&config_schema, "checkpoint.resume", resume->text, none, &hint);
    if (hint.length)
        problems_add(problems, place_of(resume), "checkpoint.resume", "expected auto, never or a file, got '%.40s'; %s",
                     resume->text, text_string(&hint));
    text_free(&hint);
}

/* Shards are cut from the batches of one process, and are what accumulation would be. */
static void check_elastic(struct config *c, const struct node *where, struct problems *problems) {
    struct place place = place_of(node_get(where, "determinism"));
    if (c->determinism.mode != DETERMINISM_ELASTIC || c->determinism.shards == SCHEMA_NO_INT) return;
    c->sampler.shards = (size_t)c->determinism.shards;
    if (c->sampler.global_batch_size == SCHEMA_NO_INT)
        problems_add(problems, place, "determinism", "elastic needs sampler.global_batch_size, the rows of all ranks");
    else if (c->determinism.shards > c->sampler.global_batch_size)
        problems_add(problems, place, "determinism.shards", "must be at most sampler.global_batch_size, %lld",
                     (long long)c->sampler.global_batch_size);
    if (c->train.accumulate > 1)
        problems_add(problems, place, "determinism",
                     "elastic computes each shard by itself, so train.accumulate saves nothing; raise shards instead");
    if (c->train.precision == TRAIN_FLOAT16)
        problems_add(problems, place, "determinism", "elastic does not go with train.precision: float16");
    if (c->dist.gradient_compression != COMPRESSION_NONE)
        problems_add(
            problems, place, "determinism",
            "elastic does not go with dist.gradient_compression: what is rounded would depend on the number of "
            "processes");
}

static void check_backend(const struct config *c, const struct node *where, struct problems *problems) {
    const struct node *dist = node_get(where, "dist");
    const struct node *backend = dist && dist->kind == NODE_MAPPING ? node_get(dist, "backend") : NULL;
    const char *name = comm_backend_names[c->dist.backend];
    if (!comm_backend_needs_gpus(c->dist.backend)) return;
    if (c->train.device == DEVICE_CPU)
        problems_add(problems, place_of(backend ? backend : dist), "dist.backend",
                     "%s is for the memory of GPUs: it needs train.device: cuda or auto; on the CPU use auto here",
                     name);
    else if (c->determinism.mode == DETERMINISM_ELASTIC)
        problems_add(problems, place_of(backend ? backend : dist), "dist.backend",
                     "determinism: elastic sums its shards in an order of its own, which %s has not; use auto", name);
}

/* What needs all gradients at once, or a step that can be taken back. */
static void check_in_backward(const struct config *c, const struct node *where, struct problems *problems) {
    const struct node *section = node_get(where, "optimizer");
    const struct node *key = section && section->kind == NODE_MAPPING ? node_get(section, "in_backward") : NULL;
    const struct train_config *t = &c->train;
    const struct {
        bool is_set;
        const char *why;
    } reasons[] = {
        {t->clip_grad_norm > 0, "train.clip_grad_norm: the norm is known only when all gradients are"},
        {t->accumulate > 1, "train.accumulate: gradients of micro-batches are summed before an update"},
        {t->on_nonfinite.policy != NONFINITE_STOP, "train.on_nonfinite: skip or rollback: part of the step is applied "
                                                   "when a gradient turns out not to be finite"},
        {t->precision == TRAIN_FLOAT16, "train.precision: float16: a step whose gradients overflow is undone"},
        {t->device == DEVICE_CUDA, "train.device: cuda: it is for the CPU"},
        {comm_backend_needs_gpus(c->dist.backend), "dist.backend: nccl: it is for the CPU"},
        {c->dist.zero_stage > 0, "dist.zero_stage: the optimizer's shares are updated after gradients are averaged"},
        {c->determinism.mode == DETERMINISM_ELASTIC,
         "determinism.mode: elastic: the gradients of shards are summed before an update"},
    };
    if (!optimizer_is_in_backward(&c->optimizer)) return;
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].is_set)
            problems_add(problems, place_of(key ? key : section), "optimizer.in_backward", "does not go with %s",
                         reasons[i].why);
}

/* The metrics that checkpoint.best and train.early_stop monitor are those of the epochs. */
static void check_monitors(const struct config *c, const struct node *where, struct problems *problems) {
    const struct early_stop stop = early_stop_of(&c->train.early_stop);
    const struct {
        const char *section, *key, *path;
        const struct monitor *monitor;
    } monitors[] = {{"checkpoint", "best", "checkpoint.best", &c->checkpoint.best},
                    {"train", "early_stop", "train.early_stop", &stop.monitor}};
    for (size_t i = 0; i < sizeof monitors / sizeof *monitors; i++) {
        const struct monitor *m = monitors[i].monitor;
        const struct node *section = node_get(where, monitors[i].section);
        const struct node *node = section && section->kind == NODE_MAPPING ? node_get(section, monitors[i].key) : NULL;
        status s = m->metric || m->mode == MONITOR_AUTO
                       ? monitor_check(m, &c->train.metrics, loss_type_at((size_t)c->loss.index),
                                       dataset_has_validation(&c->dataset), c->train.evaluate_every)
                       : status_new(STATUS_USAGE, "mode goes with metric; give the metric");
        if (s) problems_add(problems, place_of(node ? node : where), monitors[i].path, "%s", status_message(s));
        status_free(s);
    }
}

/* What a schedule watches must be measured, in time, and be better in the direction that it is told. */
static void check_monitor(const struct config *c, const struct node *where, struct problems *problems) {
    struct place place = place_of(node_get(where, "schedule"));
    enum schedule_monitor monitor = schedule_monitor(&c->schedule);
    if (monitor == MONITOR_VAL_ACCURACY && !loss_type_at((size_t)c->loss.index)->wants_classes)
        problems_add(problems, place, "schedule.monitor", "the loss '%s' has no accuracy", c->loss.name);
    else if (monitor == MONITOR_VAL_ACCURACY && !schedule_wants_more(&c->schedule))
        problems_add(problems, place, "schedule.mode",
                     "min takes a rising val_accuracy for no progress and cuts the rate; give mode: max");
    if (monitor != MONITOR_VAL_LOSS && monitor != MONITOR_VAL_ACCURACY) return;
    if (!dataset_has_validation(&c->dataset))
        problems_add(problems, place, "schedule.monitor",
                     "there are no validation rows (dataset.split or dataset.validation); use monitor: train_loss");
    else if (c->train.evaluate_every == 0)
        problems_add(problems, place, "schedule.monitor",
                     "is measured only after the last epoch (train.evaluate_every: 0), too late to act; use monitor: "
                     "train_loss");
}

/* Sections that do not go together. */
static void check_config(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct config *c = config;
    const struct loss_type *loss = loss_type_at((size_t)c->loss.index);
    check_elastic(config, where, problems);
    check_backend(c, where, problems);
    struct place place = place_of(node_get(where, "schedule"));
    (void)path;
    check_name(c, where, problems);
    check_resume(c, where, problems);
    check_in_backward(c, where, problems);
    if (schedule_moves_momentum(&c->schedule) && isnan(optimizer_settings(&c->optimizer).momentum))
        problems_add(
            problems, place, "schedule",
            "one_cycle moves the momentum, and this optimizer has none; give it one, or cycle_momentum: false");
    status metrics = evaluation_check(&c->train.metrics, loss, &config_schema);
    if (metrics) {
        const struct node *train = node_get(where, "train");
        const struct node *list = train && train->kind == NODE_MAPPING ? node_get(train, "metrics") : NULL;
        problems_add(problems, place_of(list ? list : train), "train.metrics", "%s", status_message(metrics));
        status_free(metrics);
    }
    check_monitor(c, where, problems);
    check_monitors(c, where, problems);
}

const struct schema config_schema = {.name = "config",
                                     .size = sizeof(struct config),
                                     .rows = config_rows,
                                     .check = check_config,
                                     .aliases = config_aliases};

struct config_file {
    struct document *document;
    struct config config;
};

/* "configs/wine_mlp.yaml" -> "wine_mlp" */
static const char *name_of_file(const char *path, struct arena *arena) {
    const char *slash = strrchr(path, '/');
    char *name = arena_copy(arena, slash ? slash + 1 : path);
    char *dot = strrchr(name, '.');
    if (dot && dot != name) *dot = 0;
    return name;
}

/* Takes [document]. */
static status bind(struct document *document, const char *path, struct problems *problems, struct config_file **out) {
    struct config_file *file = calloc(1, sizeof *file);
    if (!file) {
        document_destroy(document);
        return status_memory("the config");
    }
    file->document = document;
    if (document)
        schema_bind(&config_schema, document_root(document), "", &config_schema, &file->config,
                    document_arena(document), problems);
    file->config.device = file->config.train.device == DEVICE_CUDA ? DEVICE_CUDA : DEVICE_CPU;
    status s = problems_status(problems, STATUS_USAGE);
    if (s) {
        config_free(file);
        return s;
    }
    file->config.dataset.targets_are_probabilities = loss_type_at((size_t)file->config.loss.index)->is_binary;
    if (!file->config.name) file->config.name = name_of_file(path, document_arena(document));
    *out = file;
    return OK;
}

/* Replaces the names of files by where they lie. */
static status find_files(struct config *c, const char *path, struct arena *arena) {
    bool is_resume_file = strcmp(c->checkpoint.resume, "auto") != 0 && strcmp(c->checkpoint.resume, "never") != 0;
    TRY(dataset_find_files(&c->dataset, path, arena));
    TRY(find_file(&c->model.init_from, path, arena));
    return is_resume_file ? find_file(&c->checkpoint.resume, path, arena) : OK;
}

status config_load(const char *path, char *const *overrides, size_t count, struct config_file **out) {
    struct problems problems = {0};
    struct document *document = NULL;
    *out = NULL;
    status s = document_read(path, &problems, &document);
    for (size_t i = 0; !s && document && i < count; i++) document_override(document, overrides[i], &problems);
    if (!s) s = bind(document, path, &problems, out);
    if (!s) s = find_files(&(*out)->config, path, document_arena((*out)->document));
    if (s && *out) {
        config_free(*out);
        *out = NULL;
    }
    problems_free(&problems);
    return s;
}

status config_parse(const char *name, const char *text, struct config_file **out) {
    struct problems problems = {0};
    struct document *document = NULL;
    *out = NULL;
    status s = document_parse(name, text, strlen(text), &problems, &document);
    if (!s) s = bind(document, name, &problems, out);
    problems_free(&problems);
    return s;
}

void config_free(struct config_file *file) {
    if (!file) return;
    document_destroy(file->document);
    free(file);
}

const struct config *config_of(const struct config_file *file) { return &file->config; }

status config_check_model(const struct config *config, const struct model *model) {
    if (model->params.count == 0)
        return status_new(STATUS_USAGE, "model.layers: no layer has parameters, so there is nothing to train");
    if (config->determinism.mode == DETERMINISM_ELASTIC)
        return model_check_independent(model, "determinism.mode: elastic");
    return config->sampler.uneven ? model_check_independent(model, "sampler.uneven") : OK;
}

status config_check_loss(const struct config *config, const struct model *model, const struct dataset_info *info) {
    struct loss_targets targets = {
        .size = info->target_size, .classes = info->classes, .first_class = info->first_class};
    const struct loss_type *loss = loss_type_at((size_t)config->loss.index);
    struct place place = config->loss.place;
    status s = loss_check(loss, config->loss.config, model, &targets);
    return place.line > 0 ? status_prefix(s, "%s:%d:%d: loss", place.file, place.line, place.column)
                          : status_prefix(s, "loss");
}

const char *config_device_name(const struct config *config) { return devices[config->device]; }

bool config_leaves_device(const struct config *config) {
    return config->train.device == DEVICE_AUTO && !optimizer_is_in_backward(&config->optimizer);
}

status config_settle_device(struct config_file *file, const char *why_not) {
    struct config *c = &file->config;
    if (!why_not) {
        c->device = DEVICE_CUDA;
        return OK;
    }
    c->device_why = arena_copy(document_arena(file->document), why_not);
    if (c->train.precision == TRAIN_FLOAT16)
        return status_new(STATUS_USAGE, "train.precision: float16 needs a GPU: %s", why_not);
    if (comm_backend_needs_gpus(c->dist.backend))
        return status_new(STATUS_USAGE, "dist.backend: %s is for the memory of GPUs: %s",
                          comm_backend_names[c->dist.backend], why_not);
    return OK;
}

enum precision config_precision(const struct config *config) {
    const struct train_config *c = &config->train;
    if (c->precision == TRAIN_BFLOAT16) return PRECISION_BFLOAT16;
    if (c->precision == TRAIN_FLOAT16) return PRECISION_FLOAT16;
    return c->matmul_precision == MATMUL_HIGH ? PRECISION_TF32 : PRECISION_FLOAT32;
}

bool config_updates_in_backward(const struct config *config, int world_size) {
    return world_size == 1 && optimizer_is_in_backward(&config->optimizer);
}

const char *config_ignored(const struct config *config, size_t index) {
    const struct train_config *c = &config->train;
    bool is_on_gpu = config->device == DEVICE_CUDA;
    const struct {
        bool is_so;
        const char *line;
    } lines[] = {
        {c->matmul_precision == MATMUL_HIGH && !is_on_gpu,
         "train.float32_matmul_precision: high is for GPUs; the CPU has no TF32"},
        {c->matmul_precision == MATMUL_HIGH && is_on_gpu && c->precision != TRAIN_FLOAT32,
         "train.float32_matmul_precision: high is for precision: float32"},
        {c->precision != TRAIN_FLOAT16 && c->has_grad_scaler,
         "train.grad_scaler is for precision: float16; the loss is not scaled"},
        {c->has_cuda_graph && !is_on_gpu, "train.cuda_graph is for GPUs; the CPU records nothing"},
        {c->metrics.count > 0 && !dataset_has_validation(&config->dataset),
         "train.metrics are measured on validation rows, and there are none (dataset.split or dataset.validation)"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (lines[i].is_so && index-- == 0) return lines[i].line;
    return NULL;
}

status config_create_device(const struct config *config, const struct dist_env *env, struct device **out) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct gpus_process place = dist_env_place(env ? env : &alone);
    TRY(device_create_local(config_device_name(config), &place, out));
    return device_set_precision(*out, config_precision(config));
}

struct shape dataset_shape(const struct dataset_info *info) {
    struct shape shape = {
        .dims = info->input_dims, .is_tokens = info->input_kind == INPUT_TOKENS, .vocabulary = info->vocabulary};
    memcpy(shape.size, info->input_shape, (size_t)info->input_dims * sizeof *shape.size);
    return shape;
}
