/* Rows of the run's own sections, the composition of all the others, and names that other programs use for keys and
 * values. */
#include "train/config/config.h"

#include <math.h>

#include "model/layer.h"
#include "model/loss.h"
#include "optim/optimizer.h"
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

/* ---- names of other programs ---- */

/* Names that PyTorch, Keras, Lightning, Hugging Face and scikit-learn use for keys and values of a config, and common
 * misspellings, for suggestions; those of a layer, a loss or an optimizer are in its file. The first row that matches
 * is used. */

#define INFERRED "the size of the input is inferred; leave the key out"
#define NO_OPTION "there is no such option; leave the key out"
#define OWN_LAYER                                                                                                      \
    "an activation is a layer of its own: write it after this one, such as '- relu'; none before cross_entropy"
#define PROCESSES "the number of processes is an option of the command line: --nproc N"
#define NODES "nodes are options of the command line: --nnodes N --node-rank R --master-addr HOST --master-port PORT"
#define FOLDER "the folder of a run is an option of the command line: --run-dir DIR"
#define COUNTS_EPOCHS "It counts epochs; there are no evaluations by steps"
#define MAY_COUNT_STEPS "It counts epochs; with interval: step all keys of the schedule count steps"
#define COUNTS_INTERVALS "It is not a fraction of the run: it counts epochs, or with interval: step, steps"
#define RESUMES_ITSELF "It names a file to start from; a run continues by itself when the same command runs again"
#define HUBER "It is Huber's loss divided by its delta, which is beta here: with 1, the default, they are the same"
#define STOPPING "Write train: {early_stop: {metric: val_loss, patience: 10}}"
#define SWEEP "This file describes a sweep: start it with ddptrain sweep FILE"
#define NO_LOGGER "each run writes metrics.jsonl and log.txt into its folder; other loggers can read these"
#define KERAS_COUNTS_STEPS "Keras counts steps: add interval: step"
#define RESUMES "It is the default: a run continues by itself when the same command runs again"

static const struct schema_alias aliases[] = {
    /* keys of all layers */
    KEY_ALIAS("layer.*", "strides", ".stride"),
    KEY_ALIAS("layer.*", "pad paddings", ".padding"),
    KEY_ALIAS("layer.*", "dilation_rate dilations", ".dilation"),
    KEY_ALIAS_NOTE("layer.*", "padding_mode", NULL, "the padding is zeros; leave the key out"),
    KEY_ALIAS("layer.*", "num_heads n_heads n_head", ".heads"),
    KEY_ALIAS("layer.*", "is_causal mask causal_mask", ".causal"),
    KEY_ALIAS("layer.*", "inputs input sources source", ".from"),
    KEY_ALIAS_NOTE("layer.*", "num_features num_channels normalized_shape axis", NULL, INFERRED),
    KEY_ALIAS_NOTE("layer.*", "in_features in_channels input_dim input_size input_shape in_dim n_in", NULL, INFERRED),
    KEY_ALIAS("layer.*", "epsilon", ".eps"),
    KEY_ALIAS_NOTE("layer.*", "activation act act_fn nonlinearity", NULL, OWN_LAYER),
    KEY_ALIAS_NOTE("layer.*", "dropout dropout_p attn_dropout", NULL,
                   "dropout is a layer of its own: write '- dropout: 0.1'"),
    KEY_ALIAS_NOTE("layer.*", "batch_norm bn norm normalization", NULL,
                   "a norm is a layer of its own: write '- batch_norm' after this one"),
    KEY_ALIAS_NOTE("layer.*", "init kernel_initializer initializer weight_init bias_initializer", "model.init", NULL),
    KEY_ALIAS_NOTE("layer.*", "kernel_regularizer bias_regularizer activity_regularizer l2", "optimizer.weight_decay",
                   NULL),
    KEY_ALIAS_NOTE("layer.*", "trainable requires_grad frozen", "model.freeze", NULL),
    KEY_ALIAS_NOTE("layer.*", "device dtype inplace", NULL, NO_OPTION),
    /* ---- the file of a sweep in place of a config ---- */
    KEY_ALIAS_NOTE("", "method parameters early_terminate", NULL, SWEEP),
    /* ---- loss, optimizer, schedule ---- */
    KEY_ALIAS_NOTE("loss.bce_with_logits", "weight weights class_weight class_weights", ".pos_weight",
                   "It is the weight of the positive targets"),
    KEY_ALIAS("loss", "weights class_weight class_weights", ".weight"),
    KEY_ALIAS("loss", "smoothing smooth", ".label_smoothing"),
    KEY_ALIAS("loss", "ignore ignore_label padding_idx", ".ignore_index"),
    KEY_ALIAS_NOTE("loss", "delta", ".beta", HUBER),
    KEY_ALIAS_NOTE("loss", "size_average reduce reduction", ".reduction", "Other losses are means"),
    KEY_ALIAS("loss", "name kind loss", ".type"),
    KEY_ALIAS_NOTE("loss", "from_logits", NULL,
                   "the loss takes logits; leave the key out, and end the model without softmax or sigmoid"),
    KEY_ALIAS_NOTE("optimizer", "beta1 beta2 beta", ".betas", "Both are in a list: betas: [0.9, 0.999]"),
    KEY_ALIAS("optimizer", "epsilon", ".eps"),
    KEY_ALIAS("optimizer", "l2 wd", ".weight_decay"),
    KEY_ALIAS("optimizer", "rho", ".alpha"),
    KEY_ALIAS("optimizer.groups", "learning_rate base_lr", ".lr"),
    KEY_ALIAS("optimizer.groups", "lr_mult lr_scale lr_multiplier multiplier", ".lr_factor"),
    KEY_ALIAS("optimizer.groups", "params parameters name names pattern", ".match"),
    KEY_ALIAS("optimizer.groups", "wd l2", ".weight_decay"),
    KEY_ALIAS("optimizer", "name kind optimizer optim algorithm", ".type"),
    KEY_ALIAS("optimizer", "param_groups parameter_groups params", ".groups"),
    KEY_ALIAS("optimizer", "use_nesterov", ".nesterov"),
    KEY_ALIAS_NOTE("optimizer", "foreach fused capturable maximize differentiable", NULL, NO_OPTION),
    KEY_ALIAS("schedule", "name kind schedule scheduler", ".type"),
    KEY_ALIAS_NOTE("schedule", "decay_steps steps", ".step_size", MAY_COUNT_STEPS),
    KEY_ALIAS("schedule", "step_epochs step every", ".step_size"),
    KEY_ALIAS_NOTE("schedule", "decay_steps steps steps_size", ".milestones", MAY_COUNT_STEPS),
    KEY_ALIAS("schedule", "step_size boundaries epochs at", ".milestones"),
    KEY_ALIAS_NOTE("schedule", "decay_steps steps max_steps total_steps num_training_steps", ".t_max", MAY_COUNT_STEPS),
    KEY_ALIAS("schedule", "max_epochs epochs period tmax total_iters", ".t_max"),
    KEY_ALIAS_NOTE("schedule", "decay_steps steps max_steps total_steps num_training_steps", ".total_iters",
                   MAY_COUNT_STEPS),
    KEY_ALIAS("schedule", "max_epochs epochs period t_max", ".total_iters"),
    KEY_ALIAS_NOTE("schedule", "decay_steps first_decay_steps", ".t_0", MAY_COUNT_STEPS),
    KEY_ALIAS("schedule", "period t0 restart_period", ".t_0"),
    KEY_ALIAS_NOTE(
        "schedule.exponential", "decay_steps steps step_size every", NULL,
        "the rate is multiplied by gamma at each interval; write gamma: decay_rate^(1 / decay_steps) as a number"),
    KEY_ALIAS("schedule", "decay_rate decay rate", ".gamma"),
    KEY_ALIAS("schedule", "min_lr lr_min end_learning_rate final_lr", ".eta_min"),
    KEY_ALIAS_NOTE("schedule.cosine", "alpha", ".eta_min", "It is a rate, not a fraction of the first one"),
    KEY_ALIAS_NOTE("schedule", "warmup_epochs num_warmup_epochs", ".warmup", MAY_COUNT_STEPS),
    KEY_ALIAS_NOTE("schedule", "warmup_steps num_warmup_steps warmup_iters n_warmup_steps", ".warmup", MAY_COUNT_STEPS),
    KEY_ALIAS_NOTE("schedule", "warmup_ratio warmup_fraction warmup_proportion", ".warmup", COUNTS_INTERVALS),
    KEY_ALIAS("schedule", "metric", ".monitor"),
    KEY_ALIAS_NOTE("schedule", "max_lr", "optimizer.lr", "It is the peak of one_cycle"),
    KEY_ALIAS("schedule", "anneal_strategy", ".anneal"),
    KEY_ALIAS_NOTE("schedule", "last_epoch verbose", NULL, NO_OPTION),
    /* ---- other sections ---- */
    KEY_ALIAS("dataset", "sample_weight sample_weights weight weight_column", ".weights"),
    KEY_ALIAS("dataset.split", "test_size val val_size test_fraction valid", ".test"),
    KEY_ALIAS("dataset.split", "train_size train_fraction", ".train"),
    KEY_ALIAS("dataset.split", "random_state random_seed", ".seed"),
    KEY_ALIAS("dataset.split", "stratified", ".stratify"),
    KEY_ALIAS("dataset.split", "groups group_column group_by", ".group"),
    KEY_ALIAS("dataset.window",
              "sequence_length seq_length seq_len lookback window_size window_length input_chunk_length input_steps "
              "max_encoder_length length size",
              ".steps"),
    KEY_ALIAS("dataset.window",
              "output_chunk_length output_steps forecast_steps prediction_length pred_len max_prediction_length",
              ".predict_steps"),
    KEY_ALIAS("dataset.window", "lead delay", ".horizon"),
    KEY_ALIAS("dataset.window", "sequence_stride step hop", ".stride"),
    KEY_ALIAS("dataset.window", "groups group_ids group_column series series_id", ".group"),
    KEY_ALIAS("dataset", "windows sliding_window timeseries series lookback window_size", ".window"),
    KEY_ALIAS("dataset.scale", "means", ".mean"),
    KEY_ALIAS("dataset.scale", "stds stdev sigma scale", ".std"),
    KEY_ALIAS("dataset.scale", "method kind name scaler", ".type"),
    KEY_ALIAS("dataset", "type kind file_format filetype", "dataset.format"),
    KEY_ALIAS("dataset", "name file filename file_path path_train source files paths", "dataset.path"),
    KEY_ALIAS("dataset", "data_format image_format", "dataset.layout"),
    KEY_ALIAS("dataset", "x x_train", "dataset.inputs"),
    KEY_ALIAS("dataset", "y y_train", "dataset.targets"),
    KEY_ALIAS("dataset", "rescale", "dataset.divide"),
    KEY_ALIAS("dataset", "cache cache_size", "dataset.cache_mb"),
    KEY_ALIAS_NOTE("dataset", "download", NULL, "files are not downloaded; see datasets/README.md for how to get them"),
    KEY_ALIAS("dataset", "sep delimiter separator", "dataset.csv.delimiter"),
    KEY_ALIAS("dataset", "quotechar quote", "dataset.csv.quote"),
    KEY_ALIAS("dataset", "decimal", "dataset.csv.decimal"),
    KEY_ALIAS("dataset", "thousands", "dataset.csv.thousands"),
    KEY_ALIAS("dataset", "encoding", "dataset.csv.encoding"),
    KEY_ALIAS_NOTE("dataset", "header no_header", "dataset.csv.no_header",
                   "The first line has the names, unless it is true"),
    KEY_ALIAS_NOTE("dataset.csv", "header", ".no_header", "The first line has the names, unless it is true"),
    KEY_ALIAS("dataset.csv", "sep separator", ".delimiter"),
    KEY_ALIAS("dataset.csv", "quotechar", ".quote"),
    KEY_ALIAS_NOTE("dataset", "usecols", "dataset.inputs", "dataset.targets names the target"),
    KEY_ALIAS_NOTE("dataset", "skiprows index_col", NULL,
                   "the first line of a CSV file names its columns, and columns: {NAME: ignore} leaves one out "
                   "(docs/tables.md); leave the key out"),
    KEY_ALIAS_NOTE("sampler", "sampler name kind", "sampler.type", NULL),
    KEY_ALIAS("sampler", "file indices order rows row_order", "sampler.path"),
    KEY_ALIAS_NOTE("sampler", "replacement num_samples", NULL,
                   "type: weighted draws with replacement, as many as there are rows"),
    KEY_ALIAS_NOTE("sampler", "weights weight class_weight class_weights", NULL,
                   "type: weighted has one weight, 1 / rows of the class, so that each class is drawn equally often; "
                   "weights of the loss are loss: {type: cross_entropy, weight: [...]}"),
    KEY_ALIAS_NOTE("model",
                   "type kind architecture arch units out out_features hidden hidden_size hidden_sizes hidden_layers "
                   "hidden_dim hidden_units num_layers n_layers depth mlp",
                   ".layers", "It lists each layer: layers: [{linear: {out: 64}}, relu, {linear: {out: 3}}]"),
    KEY_ALIAS_NOTE("model", "name", "name", "It names the run; parts of a model are named by a layer's key 'name'"),
    KEY_ALIAS("checkpoint", "every_n_epochs save_every_n_epochs save_epochs", "checkpoint.save_every"),
    KEY_ALIAS_NOTE("checkpoint", "every interval period frequency save_freq save_interval save_period",
                   "checkpoint.save_every", "A number counts epochs; {steps: N} counts steps"),
    KEY_ALIAS("checkpoint", "every_n_train_steps save_steps every_n_steps save_every_n_steps",
              "checkpoint.save_every.steps"),
    KEY_ALIAS_NOTE("checkpoint", "save_top_k save_total_limit max_to_keep keep_last num_to_keep", "checkpoint.keep",
                   "The newest are kept; checkpoint.best keeps the best one"),
    KEY_ALIAS_NOTE("checkpoint", "save_weights_only save_last", NULL,
                   "every checkpoint has the whole state, and the last state is always saved"),
    KEY_ALIAS_NOTE("checkpoint", "monitor mode save_best_only save_best", "checkpoint.best", "Write best: val_loss"),
    KEY_ALIAS_NOTE("checkpoint", "dir dirpath path folder save_dir directory filename", NULL, FOLDER),
    KEY_ALIAS("checkpoint", "load restore resume_from", "checkpoint.resume"),
    KEY_ALIAS("dist", "bucket_cap bucket_size", ".bucket_cap_mb"),
    KEY_ALIAS("dist", "strategy distributed_backend", ".backend"),
    KEY_ALIAS("dist", "zero stage sharding fsdp deepspeed", ".zero_stage"),
    KEY_ALIAS("dist", "compression fp16_compress bf16_compress", ".gradient_compression"),
    KEY_ALIAS_NOTE("dist", "world_size nproc nproc_per_node num_processes rank local_rank gpus", NULL, PROCESSES),
    KEY_ALIAS_NOTE("dist", "init_method master_addr master_port nnodes node_rank", NULL, NODES),
    KEY_ALIAS("train.ema", "beta alpha momentum rate", ".decay"),
    KEY_ALIAS("train.grad_scaler", "scale", ".init_scale"),
    /* ---- keys anywhere else ---- */
    KEY_ALIAS(
        NULL,
        "lr learning_rate learning_rate_init initial_learning_rate base_lr initial_lr init_lr lr0 eta0 step_length",
        "optimizer.lr"),
    KEY_ALIAS(NULL, "weight_decay wd l2 l2_penalty l2_regularization regularization", "optimizer.weight_decay"),
    KEY_ALIAS("", "gamma", "schedule.gamma"),
    KEY_ALIAS(NULL, "optim optimiser solver", "optimizer"),
    KEY_ALIAS(NULL, "loss_fn loss_function criterion objective loss_type", "loss"),
    KEY_ALIAS(NULL, "class_weight class_weights", "loss.weight"),
    KEY_ALIAS(NULL, "label_smoothing_factor", "loss.label_smoothing"),
    KEY_ALIAS_NOTE(NULL, "alpha", "optimizer.weight_decay",
                   "It is scikit-learn's alpha, the L2 penalty; optimizer.alpha is a key of rmsprop"),
    KEY_ALIAS_NOTE(NULL, "adam_beta1 adam_beta2 beta1 beta2", "optimizer.betas",
                   "Both are in a list: betas: [0.9, 0.999]"),
    KEY_ALIAS(NULL, "adam_epsilon epsilon", "optimizer.eps"),
    KEY_ALIAS_NOTE(NULL, "load_best_model_at_end metric_for_best_model greater_is_better", "checkpoint.best",
                   "Write checkpoint: {best: val_loss}; eval and predict take it with --checkpoint best"),
    KEY_ALIAS(NULL, "n_iter_no_change", "train.early_stop.patience"),
    KEY_ALIAS_NOTE(NULL, "tol", "train.early_stop.min_delta", "scikit-learn's tol is the minimum improvement"),
    KEY_ALIAS_NOTE(NULL, "per_device_eval_batch_size eval_batch_size val_batch_size test_batch_size", NULL,
                   "evaluations use sampler.batch_size; leave the key out"),
    KEY_ALIAS_NOTE(NULL, "overwrite_output_dir", NULL, "an option of the command line starts a run again: --fresh"),
    KEY_ALIAS_NOTE(NULL, "do_train do_eval do_predict", NULL,
                   "commands do that: ddptrain CONFIG trains, ddptrain eval CONFIG evaluates"),
    KEY_ALIAS(NULL, "model_name_or_path pretrained_model_name_or_path", "model.init_from"),
    KEY_ALIAS_NOTE(NULL, "warm_start", "checkpoint.resume", RESUMES_ITSELF),
    KEY_ALIAS_NOTE(NULL, "class_path init_args", NULL,
                   "classes of Python are not loaded; the sections and their keys are in docs/config.md"),
    KEY_ALIAS_NOTE(NULL, "group_by_length gradient_checkpointing torch_compile_mode push_to_hub remove_unused_columns",
                   NULL, NO_OPTION),
    KEY_ALIAS(NULL, "scheduler lr_scheduler lr_schedule learning_rate_schedule sched lr_scheduler_type", "schedule"),
    KEY_ALIAS_NOTE(NULL, "warmup_epochs num_warmup_epochs", "schedule.warmup", MAY_COUNT_STEPS),
    KEY_ALIAS_NOTE(NULL, "warmup_steps num_warmup_steps warmup_iters n_warmup_steps", "schedule.warmup",
                   MAY_COUNT_STEPS),
    KEY_ALIAS_NOTE(NULL, "warmup_ratio warmup_fraction warmup_proportion", "schedule.warmup", COUNTS_INTERVALS),
    KEY_ALIAS(NULL, "t_max cosine_t_max", "schedule.t_max"),
    KEY_ALIAS_NOTE(NULL, "patience", "train.early_stop.patience", "schedule.patience is that of reduce_on_plateau"),
    KEY_ALIAS(NULL, "epoch epochs max_epochs num_epochs n_epochs nb_epoch num_train_epochs total_epochs",
              "train.epochs"),
    KEY_ALIAS(NULL, "max_steps num_steps total_steps max_iters iterations num_iterations training_steps train_steps",
              "train.steps"),
    KEY_ALIAS_NOTE(
        NULL, "max_iter", "train.epochs",
        "It counts passes over the rows, as max_iter of scikit-learn's MLPClassifier does; train.steps counts updates"),
    KEY_ALIAS(NULL, "training trainer fit", "train"),
    KEY_ALIAS_NOTE(NULL, "accelerator use_cuda use_gpu cuda map_location", "train.device", "One of auto, cpu, cuda"),
    KEY_ALIAS_NOTE(NULL, "gpus devices num_gpus n_gpus gpu nproc nproc_per_node world_size num_processes n_procs", NULL,
                   PROCESSES),
    KEY_ALIAS_NOTE(NULL, "num_nodes nnodes node_rank master_addr master_port", NULL, NODES),
    KEY_ALIAS_NOTE(NULL, "fp16 amp use_amp mixed_precision half bf16 autocast dtype", "train.precision",
                   "One of float32, bfloat16, float16"),
    KEY_ALIAS_NOTE(NULL, "tf32 allow_tf32 matmul_precision set_float32_matmul_precision",
                   "train.float32_matmul_precision", "high rounds to TF32 on GPUs"),
    KEY_ALIAS(NULL,
              "gradient_clip_val clip_grad grad_clip max_grad_norm clip_norm gradient_clipping clip gradient_clip "
              "clip_gradients grad_norm_clip",
              "train.clip_grad_norm"),
    KEY_ALIAS(NULL, "clipvalue grad_clip_value", "train.clip_grad_value"),
    KEY_ALIAS(NULL,
              "accumulate_grad_batches gradient_accumulation_steps grad_accum accumulation_steps grad_accumulation "
              "gradient_accumulation accum_steps",
              "train.accumulate"),
    KEY_ALIAS(NULL, "check_val_every_n_epoch eval_every validate_every validation_freq eval_epochs",
              "train.evaluate_every"),
    KEY_ALIAS_NOTE(NULL,
                   "val_interval eval_interval val_freq eval_freq val_check_interval evaluation_strategy eval_strategy "
                   "eval_steps eval_every_n_steps eval_iters",
                   "train.evaluate_every", COUNTS_EPOCHS),
    KEY_ALIAS(NULL, "log_every_n_steps logging_steps print_freq log_interval log_freq log_steps print_every",
              "train.log_every"),
    KEY_ALIAS(NULL, "metric eval_metric eval_metrics", "train.metrics"),
    KEY_ALIAS(NULL, "ema_decay", "train.ema.decay"),
    KEY_ALIAS(NULL, "gradscaler loss_scale scaler_init_scale", "train.grad_scaler"),
    KEY_ALIAS_NOTE(NULL, "early_stopping early_stop early_stopping_patience early_stopping_rounds min_delta",
                   "train.early_stop", STOPPING),
    KEY_ALIAS_NOTE(NULL, "callbacks callback hooks", NULL,
                   "there are no callbacks; see the sections checkpoint and schedule, and train.metrics"),
    KEY_ALIAS(NULL, "tensorboard tensorboard_dir use_tensorboard tb", "train.tensorboard"),
    KEY_ALIAS_NOTE(NULL, "logger wandb log_dir mlflow report_to logging", NULL, NO_LOGGER),
    KEY_ALIAS_NOTE(
        NULL, "output_dir default_root_dir save_dir out_dir run_dir checkpoint_dir ckpt_dir dirpath workdir run_folder",
        NULL, FOLDER),
    KEY_ALIAS_NOTE(NULL, "verbose quiet enable_progress_bar progress_bar", NULL,
                   "what is printed is an option of the command line: --quiet, --no-progress"),
    KEY_ALIAS_NOTE(NULL, "deterministic cudnn_deterministic use_deterministic_algorithms", "determinism.mode",
                   "Every run repeats bit for bit on the same number of processes; elastic: on any number"),
    KEY_ALIAS_NOTE(NULL,
                   "benchmark cudnn_benchmark profiler compile torch_compile jit pin_memory persistent_workers "
                   "non_blocking channels_last fast_dev_run limit_train_batches overfit_batches",
                   NULL, NO_OPTION),
    KEY_ALIAS(NULL, "data datasets datamodule train_dataset", "dataset"),
    KEY_ALIAS(NULL,
              "data_path data_dir data_file train_path train_file train_data dataset_path data_root root csv csv_file "
              "train_csv",
              "dataset.path"),
    KEY_ALIAS(NULL,
              "val_path val_file validation_file validation_path validation_data val_data val_dataset valid_path "
              "test_path test_file eval_dataset val_csv",
              "dataset.validation"),
    KEY_ALIAS(NULL, "features input input_columns feature_columns feature_names columns feature_cols input_cols x_col",
              "dataset.inputs"),
    KEY_ALIAS(NULL, "label labels target target_column label_column y_col target_col label_col target_name labels_path",
              "dataset.targets"),
    KEY_ALIAS(NULL,
              "val_split validation_split val_size test_size test_split train_test_split val_fraction "
              "validation_fraction valid_size holdout val_ratio test_ratio",
              "dataset.split.test"),
    KEY_ALIAS(NULL, "train_size train_split train_ratio train_fraction random_split", "dataset.split.train"),
    KEY_ALIAS(NULL, "random_state split_seed", "dataset.split.seed"),
    KEY_ALIAS(NULL, "scaler normalize normalise normalization standardize standard_scaler preprocessing scaling",
              "dataset.scale"),
    KEY_ALIAS(NULL, "augmentation augmentations data_augmentation transform transforms train_transforms",
              "dataset.augment"),
    KEY_ALIAS(NULL, "random_horizontal_flip hflip flip random_flip", "dataset.augment.horizontal_flip"),
    KEY_ALIAS(NULL, "random_vertical_flip vflip", "dataset.augment.vertical_flip"),
    KEY_ALIAS("dataset.augment", "random_rotation rotate", "dataset.augment.rotation"),
    KEY_ALIAS("dataset.augment", "colour_jitter random_color_jitter jitter", "dataset.augment.color_jitter"),
    KEY_ALIAS("dataset.augment", "random_erasing cutout", "dataset.augment.erasing"),
    KEY_ALIAS_NOTE(
        "dataset.augment",
        "random_affine mixup cutmix gaussian_blur rand_augment auto_augment random_grayscale random_perspective", NULL,
        "there is no such augmentation; leave the key out"),
    KEY_ALIAS_NOTE(NULL, "num_workers workers prefetch_factor dataloader_num_workers n_jobs", "dataset.prefetch",
                   "It is the number of batches that a thread reads ahead; there are no worker processes"),
    KEY_ALIAS_NOTE(NULL,
                   "seq_len seq_length max_seq_length sequence_length context_length max_seq_len max_length n_ctx",
                   "dataset.text.block_size", "With format: tokens it is dataset.tokens.block_size"),
    KEY_ALIAS(NULL, "lookback window_size sliding_window input_chunk_length", "dataset.window.steps"),
    KEY_ALIAS(NULL, "output_chunk_length forecast_steps prediction_length pred_len", "dataset.window.predict_steps"),
    KEY_ALIAS(NULL, "vocab_size n_vocab", "dataset.tokens.vocabulary"),
    KEY_ALIAS(NULL, "dataloader loader train_loader train_dataloader samplers", "sampler"),
    KEY_ALIAS(NULL,
              "batch batchsize bs minibatch_size minibatch train_batch_size micro_batch_size "
              "per_device_train_batch_size batch_size_per_gpu",
              "sampler.batch_size"),
    KEY_ALIAS(NULL, "total_batch_size effective_batch_size global_batch", "sampler.global_batch_size"),
    KEY_ALIAS(NULL, "drop_remainder", "sampler.drop_last_batch"),
    KEY_ALIAS(NULL, "random_seed manual_seed seed_everything torch_seed rng_seed", "seed"),
    KEY_ALIAS(NULL, "run_name experiment experiment_name exp_name project title", "name"),
    KEY_ALIAS(NULL, "network net architecture arch backbone nn module", "model"),
    KEY_ALIAS(NULL, "layer modules sequential", "model.layers"),
    KEY_ALIAS(NULL,
              "pretrained pretrained_weights load_from init_weights weights initial_weights load_weights state_dict",
              "model.init_from"),
    KEY_ALIAS(NULL, "freeze_layers frozen frozen_layers requires_grad trainable", "model.freeze"),
    KEY_ALIAS(NULL, "weight_init initializer kernel_initializer initialization init_type", "model.init"),
    KEY_ALIAS_NOTE(NULL,
                   "hidden_size hidden_sizes hidden_dim hidden_dims hidden_layers hidden_units n_hidden num_layers "
                   "n_layers hidden mlp hidden_layer_sizes depth",
                   "model.layers", "It lists each layer: layers: [{linear: {out: 64}}, relu, {linear: {out: 3}}]"),
    KEY_ALIAS_NOTE(NULL, "input_shape input_dim input_size num_features in_features in_channels n_features", NULL,
                   INFERRED),
    KEY_ALIAS_NOTE(NULL, "num_classes n_classes output_dim output_size out_features num_labels num_outputs", NULL,
                   "the model's output is the 'out' of its last layer: model: {layers: [..., {linear: {out: 3}}]}"),
    KEY_ALIAS_NOTE(NULL, "activation activations", NULL, "an activation is an entry of model.layers, such as '- relu'"),
    KEY_ALIAS_NOTE(NULL, "dropout dropout_rate", NULL, "dropout is an entry of model.layers: '- dropout: 0.5'"),
    KEY_ALIAS_NOTE(NULL, "sync_batchnorm sync_bn", NULL, "it is a key of the layer: '- batch_norm: {sync: true}'"),
    KEY_ALIAS(NULL, "save_every_n_epochs every_n_epochs save_every_epochs save_epochs", "checkpoint.save_every"),
    KEY_ALIAS(NULL, "save_steps save_every_n_steps every_n_train_steps save_every_steps",
              "checkpoint.save_every.steps"),
    KEY_ALIAS_NOTE(NULL, "save_freq save_interval save_strategy snapshot_every checkpoint_every",
                   "checkpoint.save_every", "A number counts epochs; {steps: N} counts steps"),
    KEY_ALIAS_NOTE("", "resume", "checkpoint.resume", RESUMES_ITSELF),
    KEY_ALIAS("", "dataset", "dataset.path"),
    /* of options: --dataset FILE */
    KEY_ALIAS("", "checkpoint", "checkpoint.resume"),
    KEY_ALIAS_NOTE("train", "resume", "checkpoint.resume", RESUMES_ITSELF),
    KEY_ALIAS_NOTE(NULL, "auto_resume resume_training restore", "checkpoint.resume", RESUMES_ITSELF),
    KEY_ALIAS(NULL,
              "ckpt_path resume_from_checkpoint resume_from checkpoint_path load_checkpoint snapshot_path resume_path",
              "checkpoint.resume"),
    KEY_ALIAS(NULL, "model_checkpoint checkpointing checkpoints snapshot enable_checkpointing", "checkpoint"),
    KEY_ALIAS_NOTE(NULL, "save_top_k save_total_limit max_to_keep", "checkpoint.keep",
                   "The newest are kept; checkpoint.best keeps the best one"),
    KEY_ALIAS_NOTE(NULL, "save_best_only save_best", "checkpoint.best", "Write checkpoint: {best: val_loss}"),
    KEY_ALIAS(NULL, "distributed ddp strategy parallel", "dist"),
    KEY_ALIAS(NULL, "distributed_backend process_group_backend ddp_backend", "dist.backend"),
    KEY_ALIAS(NULL, "fsdp zero deepspeed zero_optimization", "dist.zero_stage"),
    /* ---- types ---- */
    VALUE_ALIAS_NOTE("layer", "Identity Input InputLayer", NULL, "it is not needed: leave it out"),
    VALUE_ALIAS_NOTE("layer", "Bidirectional", NULL,
                     "write it in the layer, as 'lstm: {hidden_size: 64, bidirectional: true}'"),
    VALUE_ALIAS_NOTE("layer", "activation act", NULL, "write the activation itself, such as '- relu'"),
    VALUE_ALIAS_NOTE("layer", "Transformer TransformerEncoder TransformerEncoderLayer TransformerDecoderLayer", NULL,
                     "write it with residual, layer_norm and attention, as configs/char_gpt.yaml does"),
    VALUE_ALIAS_NOTE("optimizer", "LAMB LARS LBFGS Adafactor SparseAdam", NULL,
                     "there is no such optimizer; adamw is the nearest"),
    VALUE_ALIAS("schedule", "CosineAnnealingLR cosine_annealing", "cosine"),
    VALUE_ALIAS_NOTE("schedule", "CosineDecay", "cosine", KERAS_COUNTS_STEPS),
    VALUE_ALIAS("schedule", "StepLR step_decay", "step"),
    VALUE_ALIAS("schedule", "MultiStepLR multi_step", "multistep"),
    VALUE_ALIAS_NOTE("schedule", "PiecewiseConstantDecay", "multistep", KERAS_COUNTS_STEPS),
    VALUE_ALIAS("schedule", "ExponentialLR exp", "exponential"),
    VALUE_ALIAS_NOTE("schedule", "ExponentialDecay", "exponential", KERAS_COUNTS_STEPS),
    VALUE_ALIAS("schedule", "LinearLR linear_decay", "linear"),
    VALUE_ALIAS("schedule", "PolynomialLR poly", "polynomial"),
    VALUE_ALIAS_NOTE("schedule", "PolynomialDecay", "polynomial", KERAS_COUNTS_STEPS),
    VALUE_ALIAS("schedule", "CosineAnnealingWarmRestarts sgdr cosine_warm_restarts cosine_with_restarts",
                "cosine_restarts"),
    VALUE_ALIAS("schedule", "OneCycleLR 1cycle", "one_cycle"),
    VALUE_ALIAS("schedule", "ReduceLROnPlateau plateau", "reduce_on_plateau"),
    VALUE_ALIAS("schedule", "ConstantLR none fixed", "constant"),
    VALUE_ALIAS_NOTE("schedule", "warmup linear_warmup warmup_cosine cosine_with_warmup", NULL,
                     "warm-up is a key of every schedule: {type: cosine, warmup: 5}"),
    VALUE_ALIAS("schedule", "CyclicLR", "cyclic"),
    VALUE_ALIAS_NOTE("schedule", "LambdaLR MultiplicativeLR lambda table", "piecewise",
                     "It takes the factors of lr at some points"),
    VALUE_ALIAS_NOTE("schedule", "SequentialLR ChainedScheduler", NULL, "there is no such schedule"),
    VALUE_ALIAS("init", "xavier glorot glorot_uniform", "xavier_uniform"),
    VALUE_ALIAS("init", "glorot_normal", "xavier_normal"),
    VALUE_ALIAS("init", "he kaiming he_normal", "kaiming_normal"),
    VALUE_ALIAS("init", "he_uniform", "kaiming_uniform"),
    VALUE_ALIAS("init", "truncated_normal trunc_normal_ init.trunc_normal_", "trunc_normal"),
    VALUE_ALIAS("init", "zero", "zeros"),
    VALUE_ALIAS("init", "one", "ones"),
    VALUE_ALIAS("init", "gaussian RandomNormal", "normal"),
    /* ---- values ---- */
    VALUE_ALIAS("train.device", "gpu gpus nvidia", "cuda"),
    VALUE_ALIAS_NOTE("train.device", "cuda:0 cuda:1 gpu:0 0", "cuda", "CUDA_VISIBLE_DEVICES selects the GPUs"),
    VALUE_ALIAS_NOTE("train.device", "mps tpu xpu rocm hip", NULL, "GPUs are NVIDIA's: cuda"),
    VALUE_ALIAS("train.precision", "fp32 32 32-true single float full", "float32"),
    VALUE_ALIAS("train.precision", "bf16 bf16-mixed bf16-true bfloat bfloat16-mixed", "bfloat16"),
    VALUE_ALIAS("train.precision", "fp16 16 16-mixed 16-true half mixed amp mixed_float16 float16-mixed", "float16"),
    VALUE_ALIAS_NOTE("train.precision", "tf32", "float32", "Set train.float32_matmul_precision: high as well"),
    VALUE_ALIAS_NOTE("train.precision", "64 fp64 float64 double 64-true", NULL, "there is no float64"),
    VALUE_ALIAS("train.float32_matmul_precision", "medium tf32", "high"),
    VALUE_ALIAS("train.on_nonfinite.policy", "raise error abort fail", "stop"),
    VALUE_ALIAS("train.on_nonfinite.policy", "ignore continue", "skip"),
    VALUE_ALIAS("train.metrics", "acc categorical_accuracy", "accuracy"),
    VALUE_ALIAS("train.metrics", "roc_auc AUROC roc_auc_score", "auc"),
    VALUE_ALIAS("train.metrics", "ap average_precision_score AveragePrecision pr_auc auprc", "average_precision"),
    VALUE_ALIAS("train.metrics", "balanced_accuracy_score balanced_acc", "balanced_accuracy"),
    VALUE_ALIAS("train.metrics", "f1_score", "f1"),
    VALUE_ALIAS("train.metrics", "miou MeanIoU iou jaccard jaccard_score JaccardIndex", "mean_iou"),
    VALUE_ALIAS_NOTE("train.metrics", "dice dice_score", "f1", "the Dice coefficient is the F1 score of the pixels"),
    VALUE_ALIAS("train.metrics", "r2_score", "r2"),
    VALUE_ALIAS("train.metrics", "mean_absolute_error l1", "mae"),
    VALUE_ALIAS("train.metrics", "mean_absolute_percentage_error MAPE", "mape"),
    VALUE_ALIAS_NOTE(
        "train.metrics", "mse MeanSquaredError l2", NULL,
        "the mean squared error is the loss of the validation rows with loss: mse; rmse, mae and r2 are metrics"),
    VALUE_ALIAS("train.metrics", "RootMeanSquaredError", "rmse"),
    VALUE_ALIAS_NOTE("train.metrics", "loss val_loss", NULL, "the loss is always measured; leave it out"),
    VALUE_ALIAS("train.metrics", "true_negative_rate tnr Specificity BinarySpecificity", "specificity"),
    VALUE_ALIAS("train.metrics", "matthews_corrcoef matthews MCC", "mcc"),
    VALUE_ALIAS("train.metrics", "kappa cohen_kappa_score CohenKappa", "cohen_kappa"),
    VALUE_ALIAS("train.metrics", "explained_variance_score ExplainedVariance", "explained_variance"),
    VALUE_ALIAS_NOTE("train.metrics", "bleu rouge wer map log_loss", NULL,
                     "there is no such metric; 'ddptrain predict' writes what it can be computed from"),
    VALUE_ALIAS("train.metrics", "top_k top5_accuracy top_5 top_k_accuracy", "top5"),
    VALUE_ALIAS("train.metrics", "ppl", "perplexity"),
    VALUE_ALIAS("train.metrics", "confusion", "confusion_matrix"),
    VALUE_ALIAS("dataset.scale.type", "StandardScaler standardize standardise z_score normalize", "standard"),
    VALUE_ALIAS("dataset.scale.type", "MinMaxScaler min_max 01", "minmax"),
    VALUE_ALIAS_NOTE("dataset.scale.type", "RobustScaler MaxAbsScaler Normalizer PowerTransformer", NULL,
                     "there is no such scaler; scale the file before"),
    VALUE_ALIAS_NOTE("dataset.scale.type", "imagenet", NULL,
                     "write its numbers: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225]}"),
    VALUE_ALIAS("dataset.format", "h5 hdf h5py", "hdf5"),
    VALUE_ALIAS("dataset.format", "mnist ubyte", "idx"),
    VALUE_ALIAS("dataset.format", "txt", "text"),
    VALUE_ALIAS("dataset.format", "bin", "tokens"),
    VALUE_ALIAS("dataset.format", "random fake", "synthetic"),
    VALUE_ALIAS("dataset.format", "numpy", "npy"),
    VALUE_ALIAS("dataset.format", "savez", "npz"),
    VALUE_ALIAS("dataset.format", "nc netcdf4", "netcdf"),
    VALUE_ALIAS("dataset.format", "arrow feather pq", "parquet"),
    VALUE_ALIAS("dataset.format", "tsv", "csv"),
    VALUE_ALIAS_NOTE("dataset.format", "json jsonl xlsx pickle pt", NULL,
                     "write the rows to HDF5 (h5py) or CSV (docs/data.md)"),
    VALUE_ALIAS("dataset.layout", "channels_first chw", "nchw"),
    VALUE_ALIAS("dataset.layout", "channels_last hwc", "nhwc"),
    VALUE_ALIAS("dist.backend", "ddp", "auto"),
    VALUE_ALIAS("determinism.mode", "true deterministic", "torch"),
    VALUE_ALIAS("*.conv1d.padding", "same", "same"),
    VALUE_ALIAS("*.conv1d.padding", "valid", "valid"),
    VALUE_ALIAS("*.conv2d.padding", "same", "same"),
    VALUE_ALIAS("*.conv2d.padding", "valid", "valid"),
    VALUE_ALIAS_NOTE("*.padding", "same", NULL,
                     "write the number; with stride 1 and an odd kernel it is (kernel_size - 1) / 2"),
    VALUE_ALIAS("*.padding", "valid", "0"),
    VALUE_ALIAS("schedule.interval", "epochs", "epoch"),
    VALUE_ALIAS("schedule.interval", "steps batch batches iteration iter", "step"),
    VALUE_ALIAS_NOTE("checkpoint.resume", "true yes on latest last newest", "auto", RESUMES),
    VALUE_ALIAS_NOTE("checkpoint.resume", "false no off", "never",
                     "Or leave the key out and use --fresh to start over"),
    VALUE_ALIAS_NOTE("checkpoint.resume", "best", NULL,
                     "write the file, RUN/checkpoints/best.h5 of a run with the key checkpoint.best"),
    VALUE_ALIAS("sampler.type", "random RandomSampler DistributedSampler", "distributed"),
    VALUE_ALIAS("sampler.type", "WeightedRandomSampler balanced", "weighted"),
    VALUE_ALIAS_NOTE("sampler.type", "custom Sampler SubsetRandomSampler file", "indices",
                     "its order is a file, sampler.path (docs/split.md)"),
    VALUE_ALIAS_NOTE("sampler.type", "sequential SequentialSampler", NULL, "set sampler.shuffle: false"),
    /* ---- arguments of calls such as "Adam(params, 0.1)", by position ---- */
    CALL_ALIAS("schedule", "cosine", "? t_max eta_min"),
    CALL_ALIAS("schedule", "cosine_restarts", "? t_0 t_mult eta_min"),
    CALL_ALIAS("schedule", "step", "? step_size gamma"),
    CALL_ALIAS("schedule", "multistep", "? milestones gamma"),
    CALL_ALIAS("schedule", "exponential", "? gamma"),
    CALL_ALIAS("schedule", "linear", "? start_factor end_factor total_iters"),
    CALL_ALIAS("schedule", "polynomial", "? total_iters power"),
    CALL_ALIAS("schedule", "reduce_on_plateau", "? mode factor patience threshold threshold_mode cooldown min_lr eps"),
    CALL_ALIAS("schedule", "one_cycle", "? max_lr total_iters"),
    CALL_ALIAS("schedule", "cyclic", "? base_lr max_lr step_size_up step_size_down mode gamma"),
    CALL_ALIAS("schedule", "CosineDecay", "initial_learning_rate t_max alpha"),
    CALL_ALIAS("schedule", "ExponentialDecay", "initial_learning_rate decay_steps gamma"),
    CALL_ALIAS("schedule", "PolynomialDecay", "initial_learning_rate total_iters"),
    CALL_ALIAS("schedule", "PiecewiseConstantDecay", "milestones"),
    {0},
};

/* Those of each layer, loss and optimizer, then those of the other sections. Rows of one layer precede rows of all
 * layers. */
static const struct schema_alias *alias_table(size_t index) {
    static const struct schema_alias none = {0};
    const struct schema_alias *own;
    if (index < layer_type_count())
        own = layer_type_at(index)->aliases;
    else if ((index -= layer_type_count()) < loss_type_count())
        own = loss_type_at(index)->aliases;
    else if ((index -= loss_type_count()) < optimizer_type_count())
        own = optimizer_type_at(index)->aliases;
    else
        return index == optimizer_type_count() ? aliases : NULL;
    return own ? own : &none;
}

/* ---- the schema ---- */

const struct schema config_schema =
    SCHEMA("config", struct config, .rows = config_rows, .check = config_check, .alias_table = alias_table);

const char *config_device_name(const struct config *config) { return devices[config->device]; }
