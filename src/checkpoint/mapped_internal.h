/* What mapped.c finds out about a file, for mapped_report.c. */
#ifndef CHECKPOINT_MAPPED_INTERNAL_H
#define CHECKPOINT_MAPPED_INTERNAL_H

#include "base/arena.h"
#include "checkpoint/loading.h"
#include "model/weight_map.h"

/* A tensor of the file, or some of its rows, as values of a parameter. */
struct tensor_piece {
    const char *tensor;
    struct safetensors_entry entry;
    int dims; /* in the layout of the model */
    int64_t shape[MAX_DIMS];
    enum weight_layout layout;
    int part, parts;         /* as in weight_rule */
    int64_t row_to_add;      /* as in weight_rule */
    bool is_divided;         /* the piece is [rows] rows from [first_row] on */
    int64_t first_row, rows; /* 0 unless it is divided */
    struct tensor_piece *next;
};

/* A parameter or buffer of the model; its pieces in the order of their parts. */
struct param_slot {
    const struct params *set;
    size_t index;
    struct tensor_piece *pieces;
    bool is_missing; /* the file has no values for it */
};

/* What becomes of a tensor of the file. */
struct tensor_use {
    const char *name;
    const struct weight_rule *rule; /* NULL: none matched */
    bool is_used, is_skipped;       /* skipped by source->skip */
    const char *missing;            /* the parameter that the model does not have; NULL: none */
};

struct tensor_mapping {
    struct loading loading;
    const struct weight_source *source;
    struct weight_map map;
    struct param_slot *slots;
    size_t slot_count;
    struct tensor_use *uses;
    size_t use_count;
    struct text differences;
    struct arena *arena;
};

static inline const struct param *slot_param(const struct param_slot *slot) { return &slot->set->items[slot->index]; }

/* Whether a layer multiplies by the parameter. */
bool mapped_is_product(const struct tensor_mapping *m, const struct param *param);

/* Add lines "\n  ..." about what does not match: one tensor; the parts of a parameter; names without a counterpart. */
void mapped_add_mismatch(const struct tensor_mapping *m, const struct param_slot *slot,
                         const struct tensor_piece *piece, struct text *out);
void mapped_add_parts(const struct param_slot *slot, struct text *out);
void mapped_add_unused(const struct tensor_mapping *m, struct text *out);

/* Adds lines about what was used and what was not. */
void mapped_report(const struct tensor_mapping *m, struct text *out);

#endif
