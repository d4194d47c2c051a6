/* The table of dataset formats. */
#include <string.h>
#include <strings.h>

#include "data/source/source.h"

static const struct dataset_format *const formats[] = {
#define X(name) &dataset_##name,
    DATASET_FORMATS(X)
#undef X
};

#define X(name) +1
enum { N_FORMATS = DATASET_FORMATS(X) };
#undef X

const struct dataset_format *dataset_format_at(size_t index) { return index < N_FORMATS ? formats[index] : NULL; }

static bool ends_with(const char *path, const char *extension) {
    size_t length = strlen(path), tail = strlen(extension);
    return length > tail && strcasecmp(path + length - tail, extension) == 0;
}

static const struct dataset_format *format_in_table(const struct dataset_config *config, const char *path) {
    if (config->format > 0) return dataset_format_at((size_t)config->format - 1);
    if (path && config->image.size.count > 0) return &dataset_images;
    for (size_t i = 0; path && dataset_format_at(i); i++) {
        const char *const *extension = formats[i]->extensions;
        for (; extension && *extension; extension++)
            if (ends_with(path, *extension)) return formats[i];
    }
    return NULL;
}

const struct dataset_format *dataset_format_of(const struct dataset_config *config, const char *path) {
    const struct dataset_format *format = format_in_table(config, path);
    return format == &dataset_text && config->tokens.tokenizer ? &dataset_tokenized : format;
}

const char *dataset_format_advice(const char *path) {
    static const struct {
        const char *extension, *advice;
    } others[] = {
        {".bz2", "; decompress it first: bunzip2 --keep FILE"},
        {".xz", "; decompress it first: unxz --keep FILE"},
        {".zst", "; decompress it first: zstd -d FILE"},
        {".zip", "; unpack it first: unzip FILE"},
        {".jsonl", "; convert it first: pandas.read_json(FILE, lines=True).to_csv('new.csv', index=False)"},
        {".json", "; convert it first: pandas.read_json(FILE).to_csv('new.csv', index=False)"},
        {".arff", "; write CSV: remove the lines up to @data, and use dataset.csv.no_header"},
        {".xlsx", "; save the sheet as CSV"},
        {".parquet", "; convert it first: pandas.read_parquet(FILE).to_csv('new.csv', index=False)"},
    };
    size_t length = strlen(path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        size_t end = strlen(others[i].extension);
        if (length > end && strcmp(path + length - end, others[i].extension) == 0) return others[i].advice;
    }
    return "";
}

void dataset_format_names(struct text *out) {
    for (size_t i = 0; dataset_format_at(i); i++) text_printf(out, "%s%s", i ? ", " : "", formats[i]->name);
}

bool dataset_has_texts(const struct dataset_config *config) {
    const struct dataset_format *format = dataset_format_of(config, config->path);
    return format && (format == &dataset_csv || format->add_records);
}

/* NULL: unknown. */
static const struct dataset_format *format_of_extension(const char *path) {
    static const struct dataset_config automatic;
    return dataset_format_of(&automatic, path);
}

bool dataset_knows_extension(const char *path) { return format_of_extension(path) != NULL; }

bool dataset_has_queries(const char *path) {
    const struct dataset_format *format = format_of_extension(path);
    return format && format->has_queries;
}

bool dataset_has_other_names(const struct dataset_config *a, const struct dataset_config *b) {
    const struct dataset_format *one = dataset_format_of(a, a->path), *other = dataset_format_of(b, b->path);
    return one && other && one != other && !(one->keys & other->keys & KEY_COLUMNS);
}

bool dataset_has_target_file(const char *path) {
    const struct dataset_format *format = format_of_extension(path);
    return format && format->has_target_file;
}
