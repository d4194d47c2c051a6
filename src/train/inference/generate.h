/* generate: continues a prompt with a trained model of texts, one sampled token (a character, or a token of a
 * tokenizer) at a time. One process. Vocabulary and weights are those of the checkpoint, so the training text is not
 * needed, except for the checkpoint "initial". */
#pragma once

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "train/config/config.h"
#include "train/weights/weights.h"

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
