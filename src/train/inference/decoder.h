/* decoder: computes a causal model of tokens position by position, with the keys and values of earlier positions
 * stored, on the host. */
#ifndef TRAIN_DECODER_H
#define TRAIN_DECODER_H

#include "checkpoint/checkpoint.h"
#include "train/config/config.h"

struct decoder;

/* For texts of up to [block] tokens below [classes]. *out is NULL if a layer needs all positions at once, or the device
 * is not the host. [average]: as in weights_load. */
status decoder_create(const struct config *config, size_t classes, size_t block, struct checkpoint *checkpoint,
                      bool average, struct decoder **out);
void decoder_destroy(struct decoder *decoder); /* takes NULL */

/* Logits of a position, at least [classes]. */
size_t decoder_logits(const struct decoder *decoder);

/* Computes the logits that follow tokens (count), which begin with those of the call before. */
status decoder_run(struct decoder *decoder, const int32_t *tokens, size_t count, float *logits);

#endif
