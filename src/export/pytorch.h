/* pytorch: what the parts of a PyTorch script share. pytorch_data.c writes x, y and the rows of the parts,
 * pytorch_model.c the module, pytorch.c the training and the file around all. */
#pragma once

#include "base/text.h"
#include "model/model.h"
#include "train/plan/plan.h"

struct script {
    const char *source; /* the config or run as the user named it */
    const char *path;   /* of the script */
    const struct config *config;
    const struct plan *plan;
    const struct model *model;
    struct arena *arena;
    struct string_list files[2]; /* of the training and the validation rows */
    bool is_validation;          /* the file of dataset.validation is written */
    bool is_group;               /* the groups of dataset.split are written */
    status failure;              /* of a place of a template */
    struct text data, network, training;
};

/* STATUS_USAGE for what has no form in a script: a key, or a noun with a key. */
status script_refuse(const char *what);

/* Add Python: [value], or [text] in quotes (NULL: None), between two texts; "1, 0.5"; the sizes of a shape from
 * dimension [from] on; a list of texts, of [fallback] alone (NULL: none) if there are none. */
void script_add_real(struct text *out, const char *before, double value, const char *after);
void script_add_text(struct text *out, const char *before, const char *text, const char *after);
void script_add_numbers(struct text *out, const struct real_list *list);
void script_add_sizes(struct text *out, const struct shape *shape, int from);
void script_add_names(struct text *out, const struct string_list *names, const char *fallback);

/* A tensor as (classes, ...) if the targets classify each of its positions, else as it is. */
const struct shape *script_shape_of(const struct script *s, size_t tensor);
/* The number of the lengths of the rows of the only output; 0: all positions are real. */
size_t script_output_lengths(const struct script *s);
/* Whether a batch is scaled when it is used, by the script's inputs_of: images of files, and those that change. */
bool script_scales_batches(const struct script *s);
/* Whether losses compare with inputs of drawn samples (dataset.draw), by the script's targets_of. */
bool script_has_drawn_targets(const struct script *s);
/* Whether targets are images that augmentation moves with the inputs. */
bool script_moves_targets(const struct script *s);

status script_write_data(struct script *s);
status script_write_network(struct script *s);
