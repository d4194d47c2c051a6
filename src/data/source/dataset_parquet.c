/* Files of Parquet and Arrow, which the module ddptrain_parquet.so reads with Arrow's C++ library (parquet.cc): it is
 * not in every distribution, and loading it takes longer than a small run. */
#include "data/source/frame.h"

static status open_parquet(const struct dataset_config *config, const char *path, bool wants_classes,
                           const struct source *train, struct source **out) {
    return frame_open(&dataset_parquet, config, path, wants_classes, train, out);
}

static status add_records(const struct dataset_config *config, bool is_validation, struct text *out) {
    return frame_add_records(&dataset_parquet, config, is_validation, out);
}

static status inspect(const char *path, struct text *out) { return frame_inspect(&dataset_parquet, path, out); }

static const char *const extensions[] = {".parquet", ".pq", ".arrow", ".feather", NULL};
const struct dataset_format dataset_parquet = {.name = "parquet",
                                               .keys = KEYS_OF_NAMES | KEY_COLUMNS,
                                               .extensions = extensions,
                                               .reads_patterns = true,
                                               .open = open_parquet,
                                               CSV_FUNCTIONS,
                                               .add_records = add_records,
                                               .inspect = inspect};
