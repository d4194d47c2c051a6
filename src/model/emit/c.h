/* c: an exported C file while layers write into it: the calls that compute the model, the tables of its weights, and
 * the functions that are called. Those are the files of functions/, which compute what the CPU's operators compute, in
 * the same order of operations, and the formulas of the headers device/activations.h and device/math.h; the build
 * embeds their texts. What a text defines is found by its name where it is used. */
#pragma once

#include "base/arena.h"
#include "base/text.h"
#include "device/image.h"
#include "model/emit/emit.h"

struct layer;
struct shape;

struct c_code {
    const struct emitted_model *m;
    struct arena *arena;
    struct text tables, body;
    struct c_definition *definitions;
    size_t definition_count, table_count, table_capacity;
    struct c_table *made; /* (table_count) tables that are in the file */
};

/* [arena] must live as long as the code. */
void c_code_init(struct c_code *c, const struct emitted_model *m, struct arena *arena);
void c_code_free(struct c_code *c);
/* Whether a layer has added a call of the function. */
bool c_code_calls(struct c_code *c, const char *function);
/* Adds all definitions that [code] uses, and those that they use, which are first. */
void c_code_add_definitions(struct c_code *c, const char *code, struct text *out);

/* What the call of a layer is written from. */
struct c_call {
    struct c_code *c;
    const struct layer *layer;
    const char *x, *y;          /* expressions; x: the first of [inputs] */
    const char *const *inputs;  /* (layer->in_count) */
    const char *const *scratch; /* two memories of the sizes of struct layer_type's [c_scratch] */
};

/* Adds the calls of a layer, with the relu that it includes. */
void c_layer(const struct c_call *call);

/* ---- calls ---- */

/* y (count) = [call] of each element of x, which may be y; [call]: "relu_value(", or with arguments before x. */
void c_each(struct c_code *c, const char *call, const char *x, const char *y, size_t count);
/* The size of the last dimension. */
size_t c_last(const struct shape *shape);
/* An expression: how many of [positions] are real by the lengths number [lengths] (struct shape; 0: all). */
const char *c_length(const struct c_call *call, size_t lengths, size_t positions);
/* Adds a call of columns: y (rows, width) = x (rows, width), rows x_stride and y_stride apart. */
void c_columns(const struct c_call *call, const char *x, size_t x_stride, const char *y, size_t y_stride, size_t rows,
               size_t width);
/* An array of the code: "(const size_t[]){1, 2}" */
const char *c_list(const struct c_call *call, const size_t *values, size_t count);

/* Values of struct model_image and struct model_window of the code. */
const char *c_image(const struct c_call *call, const struct image_shape *image);
const char *c_window(const struct c_call *call, const struct window *window);
size_t c_image_size(const struct image_shape *image);
/* The call between the two is made for each of [count] images, n; c_at_image: where image n of [size] floats is. */
void c_begin_images(const struct c_call *call, size_t count);
void c_end_images(const struct c_call *call, size_t count);
const char *c_at_image(const struct c_call *call, const char *array, size_t count, size_t size);

/* ---- tables: names of arrays of the code ---- */

/* [values] (count), which must live as long as the code; the same values are in it once. [what]: a comment. */
const char *c_table(const struct c_call *call, const float *values, size_t count, const char *what);
/* A parameter in its own order; "0" for NO_PARAM. */
const char *c_plain(const struct c_call *call, size_t param);
/* A matrix (out, in) as (in, out), or [count] rows of it from [first] on. */
const char *c_matrix(const struct c_call *call, size_t param);
const char *c_matrix_rows(const struct c_call *call, size_t param, size_t first, size_t count);

/* A name that may stand in a comment. */
const char *c_comment(struct c_code *c, const char *name);
/* "static const double name[] = {...};" */
void c_doubles(struct c_code *c, const char *name, const double *values, size_t count);
