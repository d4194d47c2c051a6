/* generate: text from a trained character model: the prompt's characters, then one after the other drawn from what the
 * model expects next. One process; the vocabulary and the weights are the checkpoint's, so the training text is not
 * needed. */
#ifndef TRAIN_GENERATE_H
#define TRAIN_GENERATE_H

#include <signal.h>
#include <stdint.h>

#include "base/log.h"
#include "base/status.h"
#include "base/text.h"
#include "train/config.h"
#include "train/weights.h"

struct generate_options {
    struct weights_options weights;
    const char *prompt;                /* at least one character, all in the vocabulary */
    int64_t characters;                /* how many are added */
    double temperature;                /* divides the logits; 0: always the most likely */
    int64_t top_k;                     /* only the k most likely are drawn from; 0: all */
    int64_t seed;                      /* the same seed gives the same text */
    const volatile sig_atomic_t *stop; /* set by a request to stop; NULL: never */
    volatile sig_atomic_t
        *can_save; /* set when a request to stop waits for the end of a character; NULL: nobody asks */
};

/* Called with each piece of text as it comes, the prompt first. */
typedef void generate_sink(void *context, const char *text);

/* STATUS_STOPPED between two characters, after a request to stop. STATUS_USAGE for a config that is no character model,
 * a prompt that is empty or has characters the model does not know. */
status generate_text(const struct config *config, const struct generate_options *options, struct log *log,
                     generate_sink *sink, void *context);

#endif
