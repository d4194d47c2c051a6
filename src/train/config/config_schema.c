/* Rows of the run's own sections, and the composition of all the others. */
#include "train/config/config.h"

#include <math.h>

#include "train/config/extension.h"

static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const precisions[] = {"float32", "bfloat16", "float16", NULL};
static const char *const matmul_precisions[] = {"highest", "high", NULL};
static const char *const weightings[] = {"torch", "samples", NULL};
static const char *const modes[] = {"torch", "elastic", NULL};

static const char *const policies[] = {"stop", "skip", "rollback", NULL};

static const struct schema_row nonfinite_rows[] = {
    SCHEMA_ROW(CHOICE, struct nonfinite_config, policy, .fallback = "stop", .flags = SCHEMA_EXTENDS,
               .choices = policies,
               .doc = "`stop`: the run ends with 76; `skip`: the step is not applied (as torch.amp.GradScaler does); "
                      "`rollback`: the newest checkpoint is loaded and the batches of that step are skipped."),
    SCHEMA_ROW(INT, struct nonfinite_config, max, .fallback = "10", .flags = SCHEMA_EXTENDS, .min = 1, .max = 1 << 20,
               .doc = "Steps in a row that may be skipped, or roll-backs since the newest checkpoint; one more ends "
                      "the run with 76."),
    {0},
};
static const struct schema nonfinite_schema =
    SCHEMA("train.on_nonfinite", struct nonfinite_config, .rows = nonfinite_rows, .shorthand = "policy");

static const char *const ledger_modes[] = {"auto", "off", NULL};

static const struct schema_row ledger_rows[] = {
    SCHEMA_ROW(CHOICE, struct ledger_config, mode, .fallback = "auto", .flags = SCHEMA_EXTENDS, .choices = ledger_modes,
               .doc = "`off`: no ledger.jsonl."),
    SCHEMA_ROW(INT, struct ledger_config, every, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1, .max = INFINITY,
               .doc = "Steps between the lines with a hash of the parameters. Default: a power of two, by the size of "
                      "the model and the batch, for which they cost less than 1 % of the time of the steps."),
    {0},
};
static const struct schema ledger_schema =
    SCHEMA("train.ledger", struct ledger_config, .rows = ledger_rows, .shorthand = "mode");

static const struct schema_row check_compute_rows[] = {
    SCHEMA_ROW(INT, struct check_compute, every, .fallback = "0", .flags = SCHEMA_EXTENDS, .min = 0, .max = INFINITY,
               .doc = "One step of so many, chosen by the seed, is computed twice; 0: none."),
    {0},
};
static const struct schema check_compute_schema =
    SCHEMA("train.check_compute", struct check_compute, .rows = check_compute_rows, .shorthand = "every");

static const struct schema_row train_rows[] = {
    SCHEMA_ROW(INT, struct train_config, epochs, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1, .max = INFINITY,
               .doc = "Passes over the training rows; or give `steps`."),
    SCHEMA_ROW(INT, struct train_config, steps, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1, .max = INFINITY,
               .doc = "Optimizer updates of the whole run; or give `epochs`."),
    SCHEMA_ROW(CHOICE, struct train_config, device, .fallback = "auto", .choices = devices,
               .doc = "Where the model runs. `cuda`: one GPU for each process; `auto`: the same where there is a GPU "
                      "for each process of the host, else the CPU; with `optimizer.in_backward` the CPU."),
    SCHEMA_ROW(
        CHOICE, struct train_config, precision, .fallback = "float32", .choices = precisions,
        .doc =
            "Arithmetic of matrix products (linear, attention; on GPUs and with AMX also convolutions). `bfloat16` and "
            "`float16` round the operands; weights, their gradients and all sums stay float32. On GPUs, activations "
            "between layers have 16 bits as under autocast (docs/gpu.md). On the CPU `bfloat16` requires AVX-512 BF16, "
            "and AMX makes it faster. `float16` requires a GPU and scales the loss (`grad_scaler`)."),
    SCHEMA_KEY(CHOICE, "float32_matmul_precision", struct train_config, matmul_precision, .fallback = "highest",
               .choices = matmul_precisions,
               .doc =
                   "Factors of float32 products (torch.set_float32_matmul_precision): `highest` does not round them. "
                   "`high` is faster: GPUs round them to TF32, 10 bits of fraction, also in convolutions; CPUs with "
                   "AMX divide each into two bfloat16, 15 bits of fraction, in all products but those of attention, "
                   "convolutions and the loss `contrastive`. Without effect on other CPUs and with other precisions."),
    SCHEMA_ROW(
        SECTION, struct train_config, grad_scaler, .section = &loss_scale_schema,
        .present_offset = offsetof(struct train_config, has_grad_scaler),
        .doc =
            "Scaling of the loss, only for `precision: float16` (torch.amp.GradScaler, with its names and defaults)."),
    SCHEMA_ROW(BOOL, struct train_config, cuda_graph, .fallback = "true",
               .present_offset = offsetof(struct train_config, has_cuda_graph),
               .doc = "On GPUs, training passes in which the host computes nothing are recorded as CUDA graphs and "
                      "launched by one call."),
    SCHEMA_ROW(INT, struct train_config, accumulate, .fallback = "1", .min = 1, .max = 1 << 20,
               .doc = "Micro-batches per optimizer update, without communication in between (DDP's no_sync)."),
    SCHEMA_ROW(CHOICE, struct train_config, accumulate_weighting, .fallback = "torch", .choices = weightings,
               .doc = "`torch`: each micro-batch counts 1/accumulate, as the usual PyTorch loop divides its loss; "
                      "`samples`: each counts by its rows, so that the mean of a short last group is correct."),
    SCHEMA_ROW(REAL, struct train_config, clip_grad_norm, .fallback = "0", .min = 0, .max = INFINITY,
               .doc = "Gradients are scaled so that their norm is at most this (clip_grad_norm_); 0: off."),
    SCHEMA_ROW(REAL, struct train_config, clip_grad_value, .fallback = "0", .min = 0, .max = INFINITY,
               .doc = "Each element of the gradients is clamped to [-value, value] (clip_grad_value_); 0: off."),
    SCHEMA_ROW(SECTION, struct train_config, ema, .section = &ema_schema,
               .doc = "A moving average of the weights, saved as `ema/`."),
    SCHEMA_ROW(SECTION, struct train_config, on_nonfinite, .section = &nonfinite_schema,
               .doc = "What all ranks do, in the same step, when the loss or a gradient is not finite on any rank."),
    SCHEMA_ROW(
        INT, struct train_config, check_state_every, .fallback = "100", .flags = SCHEMA_EXTENDS, .min = 0,
        .max = INFINITY,
        .doc = "Steps between comparisons of a hash of parameters and optimizer state over the ranks; if a rank "
               "differs, the run names it and ends with 71. The hash is also compared before each save; 0: only then."),
    SCHEMA_ROW(
        SECTION, struct train_config, check_compute, .section = &check_compute_schema,
        .doc =
            "Computes one step of so many twice on each rank, and compares gradients, loss and running statistics bit "
            "by bit before the update; a difference ends the run with 71 and is named (docs/resume-and-faults.md)."),
    SCHEMA_ROW(
        SECTION, struct train_config, early_stop, .section = &early_stop_schema,
        .doc =
            "Ends the run at the end of an epoch when a metric no longer improves; enabled by `metric` or `patience`."),
    SCHEMA_ROW(
        STRING_LIST, struct train_config, metrics, .fallback = "[]", .flags = SCHEMA_EXTENDS,
        .groups_offset = offsetof(struct train_config, metric_groups),
        .doc =
            "Metrics of the validation rows in addition to the loss: accuracy, top5 (or another k), perplexity, "
            "confusion_matrix, balanced_accuracy, precision, recall, f1, mean_iou, specificity, mcc, cohen_kappa, auc, "
            "average_precision, mae, rmse, mape, max_error, r2, explained_variance (docs/metrics.md). Or a mapping "
            "from names to expressions: {within_10: 'mean(abs(y - t) <= 10)', mae: mae} (docs/expressions.md)."),
    SCHEMA_ROW(INT, struct train_config, evaluate_every, .fallback = "1", .flags = SCHEMA_EXTENDS, .min = 0,
               .max = INFINITY, .doc = "Epochs between evaluations on the validation rows; 0: only after the last."),
    SCHEMA_ROW(INT, struct train_config, log_every, .fallback = "1", .flags = SCHEMA_EXTENDS, .min = 0, .max = INFINITY,
               .doc = "Steps between `step` lines of metrics.jsonl; 0: none."),
    SCHEMA_ROW(SECTION, struct train_config, ledger, .section = &ledger_schema,
               .doc = "ledger.jsonl in the run folder, a chain of hashes by which `ddptrain audit` verifies the run "
                      "(docs/verify.md)."),
    SCHEMA_ROW(BOOL, struct train_config, tensorboard, .fallback = "false", .flags = SCHEMA_EXTENDS,
               .doc = "Writes the numbers of steps and epochs also to a TensorBoard event file in the run folder: "
                      "tensorboard --logdir runs."),
    {0},
};

static void check_train(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct train_config *c = config;
    if (c->epochs == SCHEMA_NO_INT && c->steps == SCHEMA_NO_INT)
        problems_add(problems, config_place(where), path, "needs epochs or steps (train: {epochs: 10})");
    else if (c->epochs != SCHEMA_NO_INT && c->steps != SCHEMA_NO_INT)
        problems_add(problems, config_place(where), path, "give epochs or steps, not both");
    if (c->precision == TRAIN_FLOAT16 && c->device == DEVICE_CPU) {
        const struct node *own = where ? node_get(where, "precision") : NULL;
        problems_add(problems, config_place(own ? own : where), "train.precision",
                     "float16 needs a GPU (train.device: cuda or auto): use bfloat16 or float32");
    }
    if (c->clip_grad_norm > 0 && c->clip_grad_value > 0) {
        const struct node *own = where ? node_get(where, "clip_grad_value") : NULL;
        problems_add(problems, config_place(own ? own : where), path,
                     "give clip_grad_norm or clip_grad_value, not both");
    }
}

static const struct schema train_schema =
    SCHEMA("train", struct train_config, .rows = train_rows, .check = check_train);

static const struct schema_row save_every_rows[] = {
    SCHEMA_ROW(INT, struct save_every, epochs, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1, .max = INFINITY,
               .doc = "Epochs between saves."),
    SCHEMA_ROW(INT, struct save_every, steps, .fallback = "null", .flags = SCHEMA_EXTENDS, .min = 1, .max = INFINITY,
               .doc = "Optimizer updates between saves."),
    {0},
};
static const struct schema save_every_schema =
    SCHEMA("checkpoint.save_every", struct save_every, .rows = save_every_rows, .shorthand = "epochs");

static const struct schema_row checkpoint_rows[] = {
    SCHEMA_ROW(SECTION, struct checkpoint_config, save_every, .section = &save_every_schema,
               .doc = "How often a checkpoint is written, in epochs or steps; one is always written at the end and on "
                      "a stop request. Without this key one is also written at the end of an epoch if that takes less "
                      "than 1 % of the time since the last save, and every 10 minutes."),
    SCHEMA_ROW(INT, struct checkpoint_config, keep, .fallback = "3", .flags = SCHEMA_EXTENDS, .min = 0, .max = INFINITY,
               .doc = "Number of newest checkpoints that are kept; 0: all. With 2 or more, a run can resume from the "
                      "previous file when the newest is damaged."),
    SCHEMA_ROW(
        SECTION, struct checkpoint_config, best, .section = &monitor_schema,
        .doc = "The checkpoint of the epoch with the best value of a metric is kept as checkpoints/best.h5 in addition "
               "to the newest ones; eval, predict, generate and export use it, with --checkpoint newest the newest."),
    SCHEMA_ROW(STRING, struct checkpoint_config, resume, .fallback = "auto", .flags = SCHEMA_EXTENDS,
               .doc = "`auto`: continue from the newest checkpoint of the run folder; `never`: an error if the run "
                      "folder has one; a file: start from it when the run folder has none."),
    {0},
};
static const struct schema checkpoint_schema = SCHEMA("checkpoint", struct checkpoint_config, .rows = checkpoint_rows);

static const struct schema_row determinism_rows[] = {
    SCHEMA_ROW(CHOICE, struct determinism_config, mode, .fallback = "torch", .choices = modes,
               .doc = "`torch`: PyTorch's arithmetic; the same bits again on the same number of ranks. `elastic`: the "
                      "same bits on any number of ranks, also when it changes in the middle of an epoch; needs "
                      "`shards` and sampler.global_batch_size (docs/determinism.md)."),
    SCHEMA_ROW(INT, struct determinism_config, shards, .fallback = "null", .min = 1, .max = 65536,
               .doc = "elastic: number of parts of each batch whose gradients are computed separately and summed in "
                      "one fixed tree; choose the maximum number of ranks of the run, preferably a power of two."),
    SCHEMA_KEY(BOOL, "portable", struct determinism_config, is_portable, .fallback = "false",
               .doc = "Whether a run on CPUs has the same bits on every processor with AVX2, AVX-512, AMX or NEON, and "
                      "on any number of threads: neither AMX nor oneDNN is used (docs/determinism.md)."),
    {0},
};

static void check_determinism(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct determinism_config *c = config;
    bool is_elastic = c->mode == DETERMINISM_ELASTIC, has_shards = c->shards != SCHEMA_NO_INT;
    if (is_elastic && !has_shards)
        problems_add(problems, config_place(where), path,
                     "elastic needs shards (determinism: {mode: elastic, shards: 8})");
    if (!is_elastic && has_shards) problems_add(problems, config_place(where), path, "shards is for mode elastic");
}

static const struct schema determinism_schema =
    SCHEMA("determinism", struct determinism_config, .rows = determinism_rows, .shorthand = "mode",
           .check = check_determinism);

#define SECTION(field_, schema_, doc_)                                                                                 \
    {                                                                                                                  \
        .key = #field_, .type = SCHEMA_SECTION, .offset = offsetof(struct config, field_), .section = &(schema_),      \
        .doc = doc_                                                                                                    \
    }

/* Names of the user's with values of any kind. */
static const struct schema_row no_rows[] = {{0}};
static const struct schema variables_schema = {.name = "variables", .size = sizeof(const char *), .rows = no_rows};

static const struct schema_row config_rows[] = {
    SCHEMA_ROW(STRING_LIST, struct config, base, .fallback = "null",
               .present_offset = offsetof(struct config, has_base),
               .doc = "Configs that this one is based on, relative to its folder: it has their keys, and its own ones "
                      "replace them (docs/config-parts.md). Of several the later one wins."),
    SCHEMA_ROW(SECTION_MAP, struct config, variables, .fallback = "{}", .section = &variables_schema,
               .present_offset = offsetof(struct config, has_variables),
               .doc = "Values with names, {width: 64}, which other keys use as \"${width}\" (docs/config-parts.md)."),
    SCHEMA_ROW(STRING, struct config, name, .fallback = "null",
               .doc = "Name of the run; its folder is runs/<name>. Default: the name of the config file."),
    SCHEMA_ROW(INT, struct config, seed, .fallback = "42",
               .doc = "Seed of the initial weights and of all random numbers of the model (torch.manual_seed)."),
    SECTION(dataset, dataset_schema,
            "Where the rows come from, how they are split and scaled. `eval`, `predict`, `generate` and `export` "
            "accept another value than that of the training only for keys whose meaning ends with *May differ in eval "
            "and predict.*"),
    SECTION(sampler, sampler_schema, "Which rows a rank uses in which order (DistributedSampler)."),
    SECTION(model, model_schema, "The layers."),
    SCHEMA_ROW(VARIANT, struct config, loss, .fallback = "null", .variants = &loss_variants,
               .doc = "What training minimizes, such as `cross_entropy` or `mse`. Required, unless `losses` is given."),
    SCHEMA_ROW(VARIANT_LIST, struct config, losses, .present_offset = offsetof(struct config, has_losses),
               .fallback = "[]", .variants = &objective_variants,
               .doc =
                   "Instead of `loss`: several losses, whose weighted sum training minimizes: [{type: cross_entropy, "
                   "output: kind, target: kind}, {type: mse, output: box, target: box, loss_weight: 0.5}]."),
    SCHEMA_ROW(VARIANT, struct config, optimizer, .fallback = "adam", .variants = &optimizer_variants,
               .doc = "The update rule."),
    SCHEMA_ROW(VARIANT, struct config, schedule, .fallback = "constant", .variants = &schedule_variants,
               .doc = "The learning rate over time."),
    SECTION(train, train_schema, "Length of the run, device and precision."),
    SECTION(checkpoint, checkpoint_schema, "What is saved and when."),
    SECTION(dist, dist_schema, "Processes and communication."),
    SECTION(determinism, determinism_schema, "Which runs have the same bits."),
    SCHEMA_ROW(SECTION_LIST, struct config, extensions, .fallback = "[]", .section = &extension_schema,
               .present_offset = offsetof(struct config, has_extensions),
               .doc = "C files that define own layers, losses, optimizers, dataset formats and samplers "
                      "(docs/extensions.md): [my_loss.c]. They are code, which runs with the rights of the user."),
    {0},
};

const struct schema config_schema =
    SCHEMA("config", struct config, .rows = config_rows, .check = config_check, .alias_table = config_alias_table);

const char *config_device_name(const struct config *config) { return devices[config->device]; }
