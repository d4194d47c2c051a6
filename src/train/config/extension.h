/* extension: a layer, a loss, an optimizer, a dataset format, a sampler or a metric of the user's, in one C file that a
 * config names:
 *
 *     extensions: [tweedie.c]
 *     loss: {type: tweedie, power: 1.5}
 *
 * The file defines a row of one of the tables of the program (struct layer_type, loss_type, optimizer_type,
 * dataset_format, sampler_type, metric_type), just as the files of the program do, and ends with DDPTRAIN_EXTENSION. It
 * is compiled at its first use with the system's compiler against these headers, into the user's cache
 * (extension_load), or beforehand
 * (`ddptrain extension build`) to a .so, which a config may name instead. An extension is code and runs with the user's
 * rights: docs/extensions.md.
 *
 * Types of an extension are for the CPU, unless it says runs_on_gpus and calls the device's operators alone. */
#pragma once

#include "base/arena.h"
#include "base/schema/schema.h"
#include "data/sampling/sampler.h"
#include "data/source/source.h"
#include "dist/comm/comm.h"
#include "model/layer.h"
#include "model/layers/layers.h"
#include "model/loss.h"
#include "model/losses/losses.h"
#include "optim/optimizer.h"
#include "optim/optimizers.h"
#include "train/metrics/own_metric.h"

/* What a file defines: one of each kind at most. */
struct extension {
    const char *version; /* of the program that compiled it */
    size_t sizes[8];     /* of the structs that it shares with the program */
    const char *headers; /* their SHA-256, verified when it was compiled; "": another program compiled it */
    bool runs_on_gpus;
    const struct layer_type *layer;
    const struct loss_type *loss;
    const struct optimizer_type *optimizer;
    const struct dataset_format *format; /* chosen by the extensions of its files */
    const struct sampler_type *sampler;  /* chosen by sampler.order */
    const struct metric_type *metric;    /* named in train.metrics */
};

#define EXTENSION_SYMBOL "ddptrain_extension"
#define EXTENSION_SIZES                                                                                                \
    {                                                                                                                  \
        sizeof(struct extension), sizeof(struct layer_type), sizeof(struct loss_type), sizeof(struct optimizer_type),  \
            sizeof(struct dataset_format), sizeof(struct sampler_type), sizeof(struct metric_type),                    \
            sizeof(struct loss_batch)                                                                                  \
    }

#ifndef DDPTRAIN_HEADERS
#define DDPTRAIN_HEADERS ""
#endif

/* The last line of an extension: DDPTRAIN_EXTENSION(.loss = &tweedie); */
#define DDPTRAIN_EXTENSION(...)                                                                                        \
    extern const struct extension ddptrain_extension;                                                                  \
    const struct extension ddptrain_extension = {                                                                      \
        .version = DDPTRAIN_VERSION, .sizes = EXTENSION_SIZES, .headers = DDPTRAIN_HEADERS, __VA_ARGS__}

/* ---- for extensions ---- */

/* The loss of one row: [y] (size) outputs, [t] (targets) targets; dy (size), unless NULL, = its derivative. */
typedef double extension_row_loss(const void *config, const float *y, size_t size, const float *t, size_t targets,
                                  float *dy);

/* For struct loss_type's run: the mean over the rows of the batch of [loss], weighted by the rows' weights. */
void extension_run_rows(extension_row_loss *loss, const void *config, const struct loss_batch *batch);

/* For struct optimizer_type's plan: constants of the update [update] of one number (rule_number), which gets [numbers]
 * (count, at most OWN_NUMBERS). The type's rule is RULE_OWN. */
union optimizer_constants extension_constants(own_formula *update, const float *numbers, size_t count);

/* ---- for the program ---- */

/* An entry of `extensions`. */
struct extension_file {
    const char *path;
    const char *sha256; /* of the file; NULL: not given */
};
extern const struct schema extension_schema;

/* Loads the extensions that the config of the tree [root] names, before the tree is bound: their types are in the
 * tables from then on, and each is loaded once in a process. A file that is named without its SHA-256 is the user's
 * word: it is compiled, and remembered in the user's cache. With one, as in the config of a run folder or a checkpoint,
 * the remembered file is used; the program runs none that its user has not named before. [is_users]: the config is a
 * file that the user named, not one that came with a checkpoint, whose entries must have the SHA-256. *files, in
 * [arena], are those of the list, with their SHA-256 and the paths where they were found (find_file, from [config]).
 * Failures are [problems]. */
void extensions_load(const struct node *root, const char *config, bool is_users, struct arena *arena,
                     struct problems *problems, struct extension_file **files, size_t *count);

/* Compiles [source] to the shared object [out]. STATUS_USAGE if the headers are not those of this program, or with the
 * first error of the compiler, as file:line:column, where the file is called [name]. */
status extension_compile(const char *source, const char *name, const char *out);

/* Loads the file [path], a .c or a .so, as an entry without a SHA-256. */
status extension_load(const char *path, const struct extension **out);

/* STATUS_USAGE if [written], the resolved config of the run [path], has another version of one of [extensions] (of
 * struct extension_file). */
status extensions_check_same(const struct section_list *extensions, const char *written, const char *path);

/* Whether all extensions that this process has loaded run on GPUs; true without any. */
bool extensions_run_on_gpus(void);
