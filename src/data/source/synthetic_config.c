/* synthetic_config: `dataset.synthetic`. */
#include "data/source/config.h"

static const char *const kind_choices[] = {"uniform", "linear", "classes", NULL};

static const struct schema_row synthetic_rows[] = {
    {.key = "kind",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct synthetic_config, kind),
     .fallback = "uniform",
     .choices = kind_choices,
     .doc =
         "uniform: each row is (torch.rand(inputs), torch.rand(targets)), as the PyTorch tutorial's toy data; "
         "linear: targets are a linear function of the inputs plus noise; classes: one normal distribution per class."},
    {.key = "rows",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, rows),
     .fallback = "2048",
     .min = 1,
     .max = 1e12,
     .doc = "Number of rows."},
    {.key = "inputs",
     .type = SCHEMA_INT_LIST,
     .offset = FIELD(struct synthetic_config, inputs),
     .fallback = "20",
     .min = 1,
     .max = 1e9,
     .doc = "Shape of one input row: 20 for a vector, [3, 32, 32] for an image."},
    {.key = "targets",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, targets),
     .fallback = "1",
     .min = 1,
     .max = 1e9,
     .doc = "Values of one target row (uniform, linear)."},
    {.key = "classes",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, classes),
     .fallback = "3",
     .min = 2,
     .max = 1e6,
     .doc = "Number of classes (classes)."},
    {.key = "noise",
     .type = SCHEMA_REAL,
     .offset = FIELD(struct synthetic_config, noise),
     .fallback = "0.1",
     .min = 0,
     .max = 1e6,
     .doc = "Standard deviation of the noise of the targets (linear), or of a class (classes)."},
    {.key = "seed",
     .type = SCHEMA_INT,
     .offset = FIELD(struct synthetic_config, seed),
     .fallback = "0",
     .doc = "The rows are drawn from PyTorch's generator with this seed (torch.manual_seed)."},
    {0},
};

static void check_synthetic(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct synthetic_config *synthetic = config;
    if (synthetic->inputs.count < 1 || synthetic->inputs.count > MAX_DIMS)
        problems_add(problems, dataset_place(where, "inputs"), path, "inputs must be a shape of 1 to %d numbers",
                     MAX_DIMS);
}

const struct schema synthetic_section = {.name = "dataset.synthetic",
                                         .size = sizeof(struct synthetic_config),
                                         .rows = synthetic_rows,
                                         .check = check_synthetic};
