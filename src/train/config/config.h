/* config: the complete config of a run, composed of the sections that each module declares and a few sections of the
 * run itself. */
#pragma once

#include "base/schema/schema.h"
#include "base/status.h"
#include "base/text.h"
#include "data/dataset/dataset.h"
#include "data/sampling/sampler.h"
#include "dist/dist_config.h"
#include "dist/process/env.h"
#include "model/model.h"
#include "model/objective.h"
#include "optim/ema.h"
#include "optim/loss_scale.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "train/metrics/metric_table.h"
#include "train/metrics/monitor.h"

enum train_device { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };
enum train_precision { TRAIN_FLOAT32, TRAIN_BFLOAT16, TRAIN_FLOAT16 };
enum matmul_precision { MATMUL_HIGHEST, MATMUL_HIGH };
enum accumulate_weighting { WEIGHTING_TORCH, WEIGHTING_SAMPLES };

enum nonfinite_policy { NONFINITE_STOP, NONFINITE_SKIP, NONFINITE_ROLLBACK };

enum ledger_mode { LEDGER_AUTO, LEDGER_OFF };

/* `train.ledger:` */
struct ledger_config {
    int mode;      /* enum ledger_mode */
    int64_t every; /* steps between lines; SCHEMA_NO_INT: by the size of the model */
};

/* `train.on_nonfinite:` */
struct nonfinite_config {
    int policy;  /* enum nonfinite_policy */
    int64_t max; /* skipped steps in a row; roll-backs since the last checkpoint */
};

/* `train.check_compute:` */
struct check_compute {
    int64_t every; /* one step of so many is computed twice; 0: none */
};

struct train_config {
    int64_t epochs, steps;                /* one of them is SCHEMA_NO_INT */
    int device;                           /* enum train_device */
    int precision;                        /* enum train_precision */
    int matmul_precision;                 /* enum matmul_precision: of float32 on GPUs */
    struct loss_scale_config grad_scaler; /* of float16 */
    bool cuda_graph;
    bool has_grad_scaler, has_cuda_graph; /* whether they were given */
    int64_t accumulate;
    int accumulate_weighting; /* enum accumulate_weighting */
    double clip_grad_norm;    /* 0: off */
    double clip_grad_value;   /* 0: off */
    struct ema_config ema;
    struct nonfinite_config on_nonfinite;
    struct ledger_config ledger;
    int64_t check_state_every; /* steps between comparisons of the ranks' states; 0: only before saves */
    struct check_compute check_compute;
    struct early_stop early_stop;
    struct string_list metrics; /* of the validation rows */
    struct string_groups metric_groups;
    struct metric_list metric_list; /* the same, when the config is complete */
    int64_t evaluate_every;         /* epochs; 0: only at the end */
    int64_t log_every;              /* steps between "step" lines of metrics.jsonl; 0: none */
    bool tensorboard;
};

struct save_every {
    int64_t epochs, steps; /* SCHEMA_NO_INT: not given */
};

struct checkpoint_config {
    struct save_every save_every;
    int64_t keep;
    struct monitor best;
    const char *resume; /* "auto", "never" or a file */
};

enum determinism_mode { DETERMINISM_TORCH, DETERMINISM_ELASTIC };

struct determinism_config {
    int mode; /* enum determinism_mode */
    bool is_portable;
    int64_t shards; /* SCHEMA_NO_INT unless the mode is elastic */
};

struct config {
    int device;                /* not a key: DEVICE_CPU or DEVICE_CUDA, the result of train.device */
    const char *device_reason; /* not a key: a clause, why `auto` is the CPU; NULL: it is not */
    const char *name;
    int64_t seed;
    struct dataset_config dataset;
    struct sampler_config sampler;
    struct model_config model;
    struct variant loss, optimizer, schedule; /* loss.index -1: [losses] */
    struct variant_list losses;               /* of objective_variants; count 0: [loss] */
    bool has_losses;                          /* whether `losses` was given */
    struct train_config train;
    struct checkpoint_config checkpoint;
    struct dist_config dist;
    struct determinism_config determinism;
    struct section_list extensions; /* of struct extension_file */
    bool has_extensions;            /* whether `extensions` was given */
    struct string_list base;        /* not set: document_read_merged has read it */
    struct section_list variables;  /* not set: document_substitute has replaced them */
    bool has_base, has_variables;
    const struct node *root; /* not a key: the document, while the config_file is open */
};

/* Puts "FILE:LINE:COLUMN: " before a failure whose sentence begins with a key that was given, or with one of a section
 * that was. Consumes it; takes NULL. */
status config_add_place(const struct config *config, status failure);

/* The schema of a config file; its check reports combinations of keys of different sections that contradict each
 * other. */
extern const struct schema config_schema;
void config_check(void *config, const struct node *where, const char *path, struct problems *problems);

/* The place of [node]; NULL: no place. */
static inline struct place config_place(const struct node *node) { return node ? node->place : (struct place){0}; }

struct config_file;

/* Adds a line for each key that was given, with the file and line, or the argument, that it is from. */
void config_write_sources(const struct config_file *file, struct text *out);

/* Reads [path] with its bases, applies the [overrides] (count) "KEY=VALUE" and finds the files that it names
 * (find_file). An override replaces a key of the file that it excludes, such as train.epochs for train.steps. A wrong
 * config is one STATUS_USAGE failure that lists every problem, one a line, as file:line:column: key: sentence. */
status config_load(const char *path, char *const *overrides, size_t count, struct config_file **out);

/* Whether the file [path] is one of a sweep (sweep_load). */
bool config_is_sweep(const char *path);

/* The file [path], read once for many configs with other overrides: config_source_load is config_load, but does not
 * read the file again. A config must be freed before its source. */
struct config_source;
status config_source_open(const char *path, struct config_source **out);
status config_source_load(struct config_source *source, char *const *overrides, size_t count, struct config_file **out);
void config_source_close(struct config_source *source); /* takes NULL */

/* Whether both are of one source and device, and differ in the optimizer and the seeds alone; the rest is shared. */
bool config_has_same_base(const struct config_file *a, const struct config_file *b);

/* As config_load for [text] in memory, without overrides: the resolved config of a run folder or a checkpoint. */
status config_parse(const char *name, const char *text, struct config_file **out);
/* The config that [checkpoint] was trained with; *out NULL: it has none that this version can read. */
struct checkpoint;
status config_of_checkpoint(struct checkpoint *checkpoint, struct config_file **out);
void config_free(struct config_file *file); /* takes NULL */
static inline void scoped_config_free(struct config_file **file) { config_free(*file); }
#define SCOPED_CONFIG __attribute__((cleanup(scoped_config_free))) struct config_file *
void config_retain(struct config_file *file); /* until one more config_free */

/* STATUS_USAGE when [written], the resolved config that a run folder and checkpoints contain, could not be read again:
 * with a path that is not UTF-8, or larger than a config may be. */
status config_check_written(const char *written);

const struct config *config_of(const struct config_file *file);

/* Adds a line for each key in which a run cannot continue from [before] with [now] (schema_diff), and for the
 * expression of a metric that checkpoint.best, train.early_stop or the schedule compares with earlier values; returns
 * their number.
 */
size_t config_diff(const struct config *before, const struct config *now, struct text *out);

/* Whether train.device is `auto` and no other key needs the CPU. The device is the CPU until config_set_auto_device. */
bool config_device_is_auto(const struct config *config);
/* Sets the device of `auto`: the CPU for the reason [why_cpu], a clause, or the GPU when that is NULL. STATUS_USAGE
 * when the config needs a GPU. */
status config_set_auto_device(struct config_file *file, const char *why_cpu);

/* The loss; loss_objective for `losses`. */
const struct loss_type *config_loss(const struct config *config);

/* The model's input shape for rows of this dataset. */
struct shape dataset_shape(const struct dataset_info *info);

/* Rows of a batch of all ranks, as struct model_names has them; 0: not known. */
size_t config_batch_rows(const struct config *config);

/* model_plan for rows of this dataset, with its named inputs and the outputs of `losses`. [by_position]: an output
 * (classes, ...) with a target for each position is computed as (positions, classes) (struct model_names). */
status config_plan_model(const struct config *config, const struct dataset_info *info, size_t cached_positions,
                         bool by_position, struct model **out);

/* Sets *objective for `losses` and the model that was planned for them; without them count is 0. STATUS_USAGE for an
 * output that does not fit its target. */
status config_plan_objective(const struct config *config, const struct model *model, const struct dataset_info *info,
                             struct objective *objective);

/* STATUS_USAGE for a model that contradicts the rest of the config. */
status config_check_model(const struct config *config, const struct model *model);

/* STATUS_USAGE for a model whose output does not fit the targets of the rows. After model_plan. */
status config_check_loss(const struct config *config, const struct model *model, const struct dataset_info *info);

/* "cpu" or "cuda": what device_create takes. */
const char *config_device_name(const struct config *config);

/* The precision of matrix products. */
enum precision config_precision(const struct config *config);

/* Whether parameters are updated during backward. *why_not: why not, although optimizer.in_backward is on; else NULL.
 */
bool config_updates_in_backward(const struct config *config, const struct dist_env *env, const char **why_not);

/* Whether accumulated gradients are summed in the order of dist.zero_stage 2 and 3, which has other bits. */
static inline bool config_sums_by_shards(const struct config *config) {
    return config->dist.zero_stage >= 2 && config->train.accumulate > 1;
}

/* Appends sentence [index] about a given key that has no effect ("train.cuda_graph is for GPUs"). False: there are no
 * more. */
bool config_ignored(const struct config *config, size_t index, struct text *out);

/* Creates the device of the config with its precision, for this process of its host ([env] NULL: the only one). If it
 * is not for training, outputs of a row in float32 do not depend on the rows that are computed with it. Destroy *out
 * also after a failure, unless it is NULL. */
status config_create_device(const struct config *config, const struct dist_env *env, bool is_training,
                            struct device **out);

/* ---- a config for a data file that nobody has written one for, `ddptrain init` (first_config.c) ---- */

/* Adds a commented config that trains at once on [path]. [target]: the column or dataset to predict; NULL: chosen
 * (data/dataset/suggest.h). [overrides] (count): dataset.csv.KEY=VALUE, how a CSV file is written; they become a part
 * of the config. Adds sentences about what was recognised to [notes], each with a line end. */
status first_config_write(const char *path, const char *target, char *const *overrides, size_t count, struct text *out,
                          struct text *notes);
