/* inference: evaluation and prediction with a trained model, exact on any number of ranks. Weights, running statistics
 * and scaler are those of a checkpoint, or of the start of a new run (session.h); the rows are those of the
 * config (dataset.path=FILE for new data). Nothing is written into the run folder. After a stop request to a rank all
 * ranks end with STATUS_STOPPED within a batch, and write nothing. */
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "dist/process/env.h"
#include "dist/store/store.h"
#include "train/config/config.h"
#include "train/weights/weights.h"

struct inference_options {
    struct weights_options weights;
    const char *part; /* "validation", "test", "train", or "all": every row of dataset.path, without split; NULL:
                         validation, or train when there is no validation part */
    const char *out;  /* predict: .csv or .h5; NULL or "-": standard output, as CSV */
    bool wants_probabilities, wants_inputs, wants_outputs; /* predict: see predictions.h */
    size_t ahead; /* predict: so many steps after each row, whose inputs are the outputs of the steps before; 0: the
                     outputs of the row */
    bool skips_bad_rows;             /* of the dataset; else they are STATUS_DATA */
    store_overdue_function *overdue; /* as in store_options; NULL: none */
};

/* The loss, accuracy and metrics over all rows of the part, each once, as a line of JSON: {"event":"eval","part":..,
 * "rows":..,"loss":..}. The same on every rank. All ranks. */
status inference_evaluate(const struct config *config, const struct dist_env *env,
                          const struct inference_options *options, struct log *log, struct text *out);

/* Predicts all rows of the part, in the order of the part, and writes them to options->out as predictions.h describes;
 * for the standard output rank 0 adds the CSV text to [text]. Targets are not read, except for dataset.split.stratify.
 * Labels and names of targets are those of the checkpoint. STATUS_USAGE for [ahead] with a model that does not compute
 * one step after the other, or whose outputs are no inputs. Rank 0 writes. All ranks. */
status inference_predict(const struct config *config, const struct dist_env *env,
                         const struct inference_options *options, struct log *log, struct text *text);

/* ---- generate.c: continues a prompt with a trained model of texts, one sampled token (a character, or a token of a
 * tokenizer) at a time. One process. Vocabulary and weights are those of the checkpoint, so the training text is not
 * needed, except for the checkpoint "initial". ---- */

struct generate_options {
    struct weights_options weights;
    const char *prompt;        /* at least one character, all in the vocabulary */
    const char *prompt_source; /* for messages: "--prompt", or the name of a file */
    int64_t characters;        /* to add, or tokens of a tokenizer */
    double temperature;        /* divides the logits; 0: always the most likely */
    int64_t top_k;             /* samples among the k most likely; 0: among all */
    double top_p;              /* of these, among the most likely ones whose probabilities sum to p; 1: all */
    int64_t seed;              /* the same seed gives the same text */
    const char *stop_text;     /* the new text ends before this, which is not written; NULL: nowhere */
};

/* Called with each new piece of text, the prompt first; false: the text cannot be written, which ends it. */
typedef bool generate_sink(void *context, const char *text);

/* STATUS_STOPPED after a stop request, between two tokens. STATUS_USAGE when the config is not that of a model of
 * texts, or the prompt is empty or has characters that are not in the vocabulary. */
status generate_text(const struct config *config, const struct generate_options *options, struct log *log,
                     generate_sink *sink, void *context);
