/* formats: the table of export formats, and what a format is written from. */
#pragma once

#include "base/arena.h"
#include "base/log.h"
#include "base/status.h"
#include "checkpoint/safetensors.h"

struct session;
struct config;

/* A checkpoint, as all formats see it. */
struct export_source {
    struct arena *arena;
    const char *path;        /* as given by the user, for messages */
    struct session *session; /* train/inference/session.h */
    struct log *log;
    struct named_tensor *tensors; /* (tensor_count) parameters and buffers, in the order of their names */
    size_t tensor_count;
};

struct export_format {
    const char *name;
    const char *extension; /* ".pt" */
    /* Writes [path] atomically, and logs what it holds. */
    status (*write)(const struct export_source *source, const char *path);
    /* Instead of the weights of a checkpoint it writes the training of [config], which the user named [source]; [write]
     * is NULL. */
    status (*write_training)(const struct config *config, const char *source, const char *path, struct log *log);
};

/* The table: a name here, and a `const struct export_format export_<name>` in a file of this folder. */
#define EXPORT_FORMATS(X) X(safetensors) X(pt) X(onnx) X(c) X(pytorch)
#define X(name) extern const struct export_format export_##name;
EXPORT_FORMATS(X)
#undef X
