/* export: writes the model of a checkpoint as a file for other programs. The formats are a table (formats.h);
 * docs/adding.md explains how to add one. */
#pragma once

#include "base/arena.h"
#include "base/log.h"
#include "base/status.h"
#include "train/weights/weights.h"

struct export_options {
    struct weights_options weights; /* with --checkpoint initial also the config, weights.training */
    const struct config *config;    /* that names the run, and must be the one of its training; NULL: none */
    const char *format;             /* --format; NULL: by the extension of [out] */
    const char *out;                /* --out; NULL: STATUS_USAGE */
};

/* Writes the file atomically and logs what it holds. STATUS_USAGE when the format or its extension is not known, when
 * [out] is a checkpoint, or when the format cannot express the model. */
status export_run(const struct export_options *options, struct log *log);

/* Whether the format of [options] writes the training of a config, by export_training; false also if it is not known.
 */
bool export_is_of_training(const struct export_options *options);
/* Writes the training of [config], which the user named [source]. STATUS_USAGE for a key or a layer that the format
 * cannot express, before anything is written. */
status export_training(const struct export_options *options, const struct config *config, const char *source,
                       struct log *log);

/* The file beside the script [path] with the initial weights of a config with model.init_from, which export_training
 * writes, too: "train_initial.pt" of train.py. In [arena]. */
const char *export_initial_weights(const char *path, struct arena *arena);
