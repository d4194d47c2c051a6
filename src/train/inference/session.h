/* session: a trained model that is used: its checkpoint, the config that it is used with, and what the checkpoint says
 * about the data of its training. It is the only way to weights for outputs, so that eval, predict, generate, exports
 * and programs that embed a model choose the same weights and reject the same configs: session_load fills no model
 * whose config differs from that of the training in a key that outputs depend on.
 *
 *   session_open   the weights that the options select; rejects a dataset that is read otherwise than in the training
 *
 *   session_read   how rows are read and what outputs mean: columns, preparation, scaler, tokenizer, labels
 *
 *   plan_create    by the caller, for the rows that it has
 *
 *   session_load   the rest of the config is compared; memory and weights
 *
 *   session_run    rows to outputs */
#pragma once

#include "base/arena.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset/dataset.h"
#include "data/dataset/input_layout.h"
#include "data/text/vocabulary.h"
#include "train/config/config.h"
#include "train/inference/predictions.h"
#include "train/plan/plan.h"
#include "train/weights/weights.h"

struct session_options {
    struct weights_options weights;
    const char *path;            /* as given by the user, for messages about the checkpoint's config */
    const struct config *config; /* that the model is used with; NULL: that of the checkpoint */
    bool is_own;                 /* the model is used with the config of the checkpoint; [config] names the run, if it
                                    is not NULL, and must not differ in a key that predictions depend on */
    bool predicts;               /* outputs are used, so that the losses are compared, too */
};

struct session {
    struct session_options options;
    struct arena *arena;
    struct checkpoint *checkpoint; /* NULL: closed */
    bool average;                  /* the weights are the moving average */
    struct config_file *trained;   /* the config of the checkpoint; NULL: this version cannot read it */
    const struct config *config;   /* that the model is used with */

    /* set by session_read */
    struct dataset_config dataset; /* how rows are read: that of [config] with what is fitted in the training */
    struct real_list mean, scale;  /* of the scaler of the checkpoint; count 0: it has none */
    struct input_layout inputs;    /* valid with has_inputs; a checkpoint of an earlier version does not have it */
    bool has_inputs;
    struct string_list labels;         /* of the classes; count 0: numbers */
    struct string_list targets;        /* names of the targets; count 0: none */
    struct target_scale *target_scale; /* NULL: none */
};

/* Opens the checkpoint, and compares the configs if a key of the dataset differs. Call session_close also after a
 * failure. STATUS_USAGE with both values of each key that outputs depend on (SCHEMA_INFERENCE) and that [config] has
 * otherwise than the training: columns, scale, windows, layers; if it predicts also the loss. A difference of other
 * sections is that of session_compare, because the model is planned before, whose own errors are those of every
 * command. Where this version cannot read the config of the checkpoint nothing is compared, with a warning. */
status session_open(const struct session_options *options, struct log *log, struct session *out);
void session_close(struct session *session);

/* Ends what needs the checkpoint, whose memory is freed. */
void session_close_checkpoint(struct session *session);

/* Sets what determines how rows are read, which is not fitted to new rows: columns, preparation, scaler and tokenizer
 * of the checkpoint, and the meaning of outputs. STATUS_USAGE when the config of the checkpoint is used and this
 * version cannot read it. */
status session_read(struct session *session);

/* STATUS_USAGE as session_open, for all sections. */
status session_compare(const struct session *session);

/* Gives the model of [plan] memory for [rows] rows and the weights. Fails as session_compare for the config of
 * the plan; STATUS_DATA for weights that do not fit. */
status session_load(const struct session *session, struct plan *plan, size_t rows);

/* Computes *outputs (rows, outputs of the model), on the device, valid until the next call. [position]: of the rows,
 * with cached positions; else 0. [continues_rows]: as in struct pass. */
status session_run(struct plan *plan, size_t rows, size_t position, bool continues_rows, const float *inputs,
                   const float **outputs);

/* What the outputs of the model of [plan] mean, without probabilities. */
struct prediction_meaning session_meaning(const struct session *session, const struct plan *plan);

/* The vocabulary of a model of texts; *out NULL: its inputs are no texts. */
status session_vocabulary(const struct session *session, struct vocabulary **out);

/* Removes from *dataset, those of the config, the names of inputs and targets that are of the training's file, which
 * has another format. False: there are none. */
bool session_leave_names(const struct session *session, struct dataset_config *dataset);

/* *why = why dataset.split gives other rows than in the training, "the data are not those ..."; NULL: it gives the
 * same, or the checkpoint does not say. [fingerprint]: of the rows; NULL: unknown. */
status session_compare_split(const struct session *session, const char *fingerprint, const char **why);
