/* scale_config: `dataset.scale`. */
#include "data/source/config.h"

static const char *const scale_choices[] = {"none", "standard", "minmax", NULL};

static const struct schema_row scale_rows[] = {
    {.key = "type",
     .type = SCHEMA_CHOICE,
     .offset = FIELD(struct scale_config, type),
     .fallback = "none",
     .choices = scale_choices,
     .doc =
         "Fitted on the training rows: standard is scikit-learn's StandardScaler, minmax its MinMaxScaler to 0..1, "
         "in double; per feature for vectors, one pair for all elements of N-D rows, or with per_feature one for each "
         "feature of a series."},
    {.key = "mean",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct scale_config, mean),
     .fallback = "[]",
     .doc = "Instead of type, with std: x' = (x - mean) / std, as torchvision's Normalize. One number, or one per "
            "feature (vectors) or per channel (the first dimension of N-D rows)."},
    {.key = "std",
     .type = SCHEMA_REAL_LIST,
     .offset = FIELD(struct scale_config, std),
     .fallback = "[]",
     .min = 0,
     .max = 1e300,
     .excludes_min = true,
     .doc = "See mean."},
    {.key = "per_feature",
     .type = SCHEMA_BOOL,
     .offset = FIELD(struct scale_config, per_feature),
     .fallback = "false",
     .doc = "For rows (steps, features), such as windows of a series: a mean and a scale for each feature, over all "
            "steps, instead of one for all elements; mean and std then have a number for each feature."},
    {0},
};

static void check_scale(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct scale_config *scale = config;
    struct place place = where ? where->place : (struct place){0};
    if (!scale->mean.count != !scale->std.count)
        problems_add(problems, place, path, "mean and std must be given together");
    else if (scale->mean.count && scale->type != SCALE_NONE)
        problems_add(problems, place, path,
                     "type (fitted to the rows) and mean/std (given) exclude each other; give one");
}

const struct schema scale_section = {.name = "dataset.scale",
                                     .size = sizeof(struct scale_config),
                                     .rows = scale_rows,
                                     .shorthand = "type",
                                     .check = check_scale};
