/* Declarations shared by the files of the predictor. */
#ifndef TRAIN_PREDICTOR_INTERNAL_H
#define TRAIN_PREDICTOR_INTERNAL_H

#include <pthread.h>

#include "train/inference/predictions.h"
#include "train/inference/predictor.h"
#include "train/plan/plan.h"

/* A set of activations: what one thread needs for a prediction. */
struct predictor_worker {
    struct predictor_worker *next;
    struct plan *plan;  /* with the device and the model */
    float *inputs;      /* (batch, inputs.size) */
    double *values;     /* (batch, inputs.size) before scaling */
    int64_t *positions; /* (batch) */
    size_t prepared;    /* rows that model_prepare was called for; 0: none */
};

struct predictor {
    struct arena *arena;
    struct config_file *file;
    struct config config;          /* of the checkpoint, on the CPU */
    struct dataset_config dataset; /* how rows of a table are read */
    struct dataset_info info;
    struct predictor_description about;
    struct vocabulary *vocabulary;     /* NULL: not known */
    struct prediction_meaning meaning; /* of the outputs */
    struct input_scaling *scaling;     /* NULL: tokens, or columns with a preparation */
    struct predictor_worker *first;    /* has the weights */
    float *values, *buffers;           /* of [first], which all workers use; NULL: not loaded yet */
    pthread_mutex_t lock;              /* of [idle] */
    struct predictor_worker *idle;
};

status predictor_new_worker(struct predictor *p, struct predictor_worker **out);
void predictor_destroy_worker(struct predictor_worker *w); /* takes NULL */
void predictor_release_worker(struct predictor *p, struct predictor_worker *w);

#endif
