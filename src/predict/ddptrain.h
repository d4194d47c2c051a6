/* ddptrain.h: predictions of models that ddptrain has trained, in a program of yours (libddptrain_predict).
 *
 *     ddptrain_model *model;
 *     char message[500];
 *     if (ddptrain_model_open("runs/wine_mlp", NULL, &model, message, sizeof message) != DDPTRAIN_OK) ...
 *     ddptrain_results results = {outputs, NULL, NULL};
 *     ddptrain_predict(model, rows, n, &results, message, sizeof message);
 *     ddptrain_model_close(model);
 *
 * Failures. A function that can fail returns enum ddptrain_status and writes one sentence to [message]
 * (message_size bytes, NUL-terminated, truncated if it is longer; NULL or 0: not wanted; "" after success). Results are
 * undefined after a failure. The library never ends the process, prints nothing and handles no signals. Where memory
 * for a small allocation is missing, what the call had allocated is lost (libhdf5 may crash without memory, which
 * concerns ddptrain_model_open only).
 *
 * Threads. Any number of threads may predict with one model at the same time; no lock is held while they compute. Each
 * takes an own set of activations, which is made when it is first needed and kept until ddptrain_model_close; the
 * weights exist once. The matrix products of a large model are split over threads of OpenMP (OMP_NUM_THREADS), of which
 * each calling thread has a team: with many threads of yours set OMP_NUM_THREADS=1. A thread needs 1 MiB of stack.
 *
 * Numbers. Outputs, predictions and probabilities have the bits of `ddptrain predict` for the same rows on the CPU of
 * the same machine. All rows of a call are computed in batches of the config's sampler.batch_size, as there.
 *
 * Memory. Arrays of the caller are used during the call only. Everything that ddptrain_model_info returns is owned by
 * the model. C99 and C++. */
#ifndef DDPTRAIN_H
#define DDPTRAIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values are the exit codes of ddptrain where it has them. */
enum ddptrain_status {
    DDPTRAIN_OK = 0,
    DDPTRAIN_NO_MEMORY = 1,
    DDPTRAIN_USAGE = 64, /* a wrong argument, or a call that does not fit the model */
    DDPTRAIN_DATA = 65,  /* a damaged checkpoint, or a value that the model cannot take */
    DDPTRAIN_BUG = 70,   /* a bug in ddptrain */
    DDPTRAIN_IO = 74     /* reading failed */
};

/* "0.1.0" */
const char *ddptrain_version(void);

/* ---- models ---- */

typedef struct ddptrain_model ddptrain_model;

/* Initialise it with DDPTRAIN_OPTIONS, so that members of later versions have their defaults. */
typedef struct ddptrain_options {
    size_t size;            /* sizeof(ddptrain_options) */
    const char *checkpoint; /* of a run folder: "best", "newest"; NULL: the best one if there is one, else the newest */
    const char *weights;    /* "trained" or "average" (with train.ema); NULL: those that the run's evaluations use */
} ddptrain_options;
#define DDPTRAIN_OPTIONS                                                                                               \
    { sizeof(ddptrain_options), NULL, NULL }

/* Loads a model from [path]: a checkpoint (epoch-0100.h5), a run folder (runs/wine_mlp), its folder of checkpoints, or
 * a config (wine_mlp.yaml; the run folder is then runs/wine_mlp below the working folder). Only the checkpoint is read;
 * the config in it describes the model, and the dataset need not exist. [options]: NULL: the defaults. DDPTRAIN_DATA
 * when the checkpoint is damaged, DDPTRAIN_USAGE when it is none. *model is NULL after a failure. Files are parsed in a
 * child process first, because libhdf5 can crash on a damaged file: SIGCHLD may be raised, and wait() for any child
 * could return this one. */
int ddptrain_model_open(const char *path, const ddptrain_options *options, ddptrain_model **model, char *message,
                        size_t message_size);

/* Frees the model; no call may use it any more. Takes NULL. */
void ddptrain_model_close(ddptrain_model *model);

enum ddptrain_inputs {
    DDPTRAIN_INPUTS_NUMBERS = 0, /* ddptrain_predict, ddptrain_predict_doubles */
    DDPTRAIN_INPUTS_TOKENS = 1,  /* ddptrain_predict_tokens */
    DDPTRAIN_INPUTS_COLUMNS = 2  /* ddptrain_predict_table only: columns are not only numbers */
};

/* Later versions may add members at the end. */
typedef struct ddptrain_info {
    const char *name; /* of the run */
    int64_t epoch;    /* of the checkpoint */
    int64_t step;
    size_t parameters; /* their number */

    int inputs;                 /* enum ddptrain_inputs */
    size_t input_size;          /* numbers or tokens of a row; DDPTRAIN_INPUTS_COLUMNS: features after preparation */
    size_t input_dims;          /* 1: a vector */
    const int64_t *input_shape; /* (input_dims): {13}, {1, 28, 28} */
    int64_t vocabulary;         /* tokens are 0 .. vocabulary - 1; 0: no tokens */
    size_t columns;             /* inputs of a table; 0: rows have no column names */
    const char *const *column_names;

    size_t outputs;     /* numbers of a row of the model's output: logits of classes, values */
    size_t predictions; /* classes or values of a row: 1 for a classifier, one for each target of a regression */
    const char *const *prediction_names;
    const unsigned char *prediction_is_class; /* (predictions) 1: a class, 0: a value */
    size_t probabilities;                     /* of a row; 0: the model gives none */
    const char *const *probability_names;
    size_t labels; /* texts of the classes 0 .. labels - 1; 0: classes are numbers */
    const char *const *label_names;
} ddptrain_info;

const ddptrain_info *ddptrain_model_info(const ddptrain_model *model);

/* ---- predictions ---- */

/* Arrays of the caller for the results of the rows of a call, row after row; NULL: not wanted. */
typedef struct ddptrain_results {
    float *outputs;       /* (rows, info->outputs) */
    double *predictions;  /* (rows, info->predictions): the number of a class, or a value in the unit of the training
                             file */
    float *probabilities; /* (rows, info->probabilities) */
} ddptrain_results;

/* Rows of numbers as the training file has them: (rows, info->input_size), row-major, images as (channels, height,
 * width). Division and scaling are part of the model. For files of float64 values use ddptrain_predict_doubles: a
 * float32 is another number. A table whose columns are all numbers may be given this way, in the order of
 * info->column_names. DDPTRAIN_DATA with row and value of a number that is not finite. */
int ddptrain_predict(ddptrain_model *model, const float *inputs, size_t rows, const ddptrain_results *results,
                     char *message, size_t message_size);
int ddptrain_predict_doubles(ddptrain_model *model, const double *inputs, size_t rows, const ddptrain_results *results,
                             char *message, size_t message_size);

/* Rows of tokens (rows, info->input_size), each below info->vocabulary. */
int ddptrain_predict_tokens(ddptrain_model *model, const int32_t *tokens, size_t rows, const ddptrain_results *results,
                            char *message, size_t message_size);

/* The tokens of [text] (UTF-8), for a model that was trained with the characters of a text or with a tokenizer: *count,
 * of which at most [capacity] are written to [tokens]. DDPTRAIN_USAGE with the first character that the model does not
 * know. */
int ddptrain_encode(const ddptrain_model *model, const char *text, int32_t *tokens, size_t capacity, size_t *count,
                    char *message, size_t message_size);

/* A column of a table: texts or numbers; the other pointer is NULL. */
typedef struct ddptrain_column {
    const char *name;
    const char *const *texts; /* (rows) as the cells of a CSV file; NULL: a missing value */
    const double *numbers;    /* (rows) NaN: a missing value */
} ddptrain_column;

/* Rows of a table whose columns are found by name; columns that the model does not use are ignored, those of the
 * targets need not be there. Cells mean what they mean in the CSV file of `ddptrain predict`: the same texts are
 * missing values, missing values and unknown categories are replaced as in training or, where the config says so, are
 * DDPTRAIN_DATA with the row (from 0) and the column. */
int ddptrain_predict_table(ddptrain_model *model, const ddptrain_column *columns, size_t column_count, size_t rows,
                           const ddptrain_results *results, char *message, size_t message_size);

#ifdef __cplusplus
}
#endif

#endif
