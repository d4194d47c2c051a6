/* trained: what a checkpoint says about the data of its training: how other rows are read and scaled, and what the
 * outputs mean. */
#ifndef TRAIN_TRAINED_H
#define TRAIN_TRAINED_H

#include "base/arena.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "data/dataset/dataset.h"
#include "data/text/vocabulary.h"
#include "train/config/config.h"

struct trained {
    struct string_list labels;         /* of the classes; count 0: numbers */
    struct string_list targets;        /* names of the targets; count 0: none */
    struct target_scale *target_scale; /* NULL: none */
};

/* Reads them into [arena], and sets what determines how [dataset] reads rows: columns, preparation, scaler and
 * tokenizer of the checkpoint, which are not fitted to the new rows. */
status trained_read(struct arena *arena, struct checkpoint *checkpoint, struct dataset_config *dataset,
                    struct trained *out);

/* STATUS_USAGE with both values of each key that predictions depend on (SCHEMA_INFERENCE) and that [config] has
 * otherwise than the training: columns, scale, windows, layers; with [predicts] also the loss. trained_compare_rows
 * only if one of them is of the dataset, before that is opened; then the model is planned, whose own errors are those
 * of every command, and trained_compare_config compares all. OK where this version cannot read the config of the
 * checkpoint, with a warning. */
status trained_compare_rows(struct checkpoint *checkpoint, const struct config *config, bool predicts, struct log *log);
status trained_compare_config(struct checkpoint *checkpoint, const struct config *config, bool predicts);

/* Removes from *dataset, those of [config], the names of inputs and targets that are of the training's file, which has
 * another format; *left: there were some. */
status trained_leave_names(struct checkpoint *checkpoint, const struct config *config, struct dataset_config *dataset,
                           bool *left);

/* *why = why dataset.split gives other rows than in the training, "the data are not those ..."; NULL: it gives the
 * same, or the checkpoint does not say. [fingerprint]: of the rows; NULL: unknown. */
status trained_compare_split(struct checkpoint *checkpoint, const struct dataset_config *dataset,
                             const char *fingerprint, const char **why);

/* The vocabulary of a model of texts; *out NULL: its inputs are no texts. */
status trained_vocabulary(struct checkpoint *checkpoint, struct vocabulary **out);

#endif
