/* Tables (CSV, SQLite) are read here, because one with identifiers or missing values cannot be opened without rules;
 * other formats are opened with the defaults. */
#include "data/dataset/suggest.h"

#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "data/columns/columns.h"
#include "data/csv/csv.h"
#include "data/dataset/suggest_columns.h"
#include "data/files/files.h"
#include "data/images/image.h"
#include "data/source/first_look.h"
#include "data/source/source.h"

/* ---- CSV files ---- */

/* The records of a file. Without a header the names 0, 1, 2, ... are a record before the first one. */
struct records {
    struct csv_reader reader;
    struct csv_reader names;
    bool has_no_header, is_named, is_read; /* is_read: the first record is the current one of [reader] */
    struct arena *arena;
};

static void name_columns(struct records *records) {
    const struct csv_reader *reader = &records->reader;
    struct csv_field *fields = arena_alloc(records->arena, (reader->count + 1) * sizeof *fields);
    for (size_t i = 0; i < reader->count; i++) fields[i].text = arena_printf(records->arena, "%zu", i);
    records->names = (struct csv_reader){.fields = fields, .count = reader->count, .record_line = reader->record_line};
}

static status next_record(void *state, const struct csv_reader **record) {
    struct records *records = state;
    bool has_record = true, is_first = records->has_no_header && !records->is_named;
    if (!records->is_read) TRY(csv_next(&records->reader, &has_record));
    records->is_read = is_first;
    records->is_named = true;
    if (is_first && has_record) name_columns(records);
    *record = !has_record ? NULL : is_first ? &records->names : &records->reader;
    return OK;
}

static status read_table(const char *path, const char *target, const struct csv_config *dialect, bool has_no_header,
                         struct arena *arena, struct suggestion *out) {
    char *text = NULL;
    struct records records = {.arena = arena, .has_no_header = has_no_header};
    const char *note;
    status s = csv_open_file(path, dialect, &records.reader, &text, &note);
    struct record_reader reader = {.path = path,
                                   .header = "line 1",
                                   .advice = ", separated by , ; | tabs or blanks",
                                   .has_lines = true,
                                   .decimal = csv_decimal_of(&records.reader, dialect),
                                   .thousands = csv_config_char(dialect->thousands),
                                   .strip = dialect->strip,
                                   .state = &records,
                                   .next = next_record};
    if (!s) s = suggest_columns(&reader, target, arena, out);
    csv_free(&records.reader);
    buffer_free(text);
    return s;
}

/* The table is read again with each key that its numbers need. */
static status suggest_csv(const char *path, const char *target, const struct csv_choice *csv, struct arena *arena,
                          struct suggestion *out) {
    uint64_t bytes;
    struct csv_config dialect = {0};
    if (csv->dialect) dialect = *csv->dialect;
    TRY(file_check(path, &bytes));
    out->has_no_header = !csv->has_header_key && csv_first_is_row(path, csv->dialect);
    bool has_no_header = csv->has_header_key ? dialect.has_no_header : out->has_no_header;
    for (bool is_complete = false; !is_complete;) {
        TRY(read_table(path, target, &dialect, has_no_header, arena, out));
        bool needs_strip = out->strip && !dialect.strip, needs_thousands = out->thousands && !dialect.thousands;
        is_complete = !needs_strip && !needs_thousands;
        if (needs_strip) dialect.strip = out->strip;
        if (needs_thousands) dialect.thousands = arena_printf(arena, "%c", out->thousands);
    }
    return OK;
}

/* ---- SQLite ---- */

static void name_tables(const struct string_list *tables, const char *table, struct arena *arena,
                        struct suggestion *out) {
    struct text others = {0};
    out->table = table;
    for (size_t i = 0; i < tables->count && others.length < TEXT_MAX_NAME; i++) {
        if (tables->items[i] == table) continue;
        text_add(&others, others.length ? ", " : "");
        text_add_value(&others, tables->items[i], TEXT_MAX_NAME);
    }
    out->other_tables = arena_copy(arena, text_string(&others));
    text_free(&others);
}

static status suggest_sqlite(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    struct sqlite_rows *rows;
    struct string_list tables;
    const char *table;
    TRY(sqlite_rows_open(path, target, arena, &tables, &table, &rows));
    struct record_reader records = {
        .path = path, .header = "the table", .advice = "", .decimal = '.', .state = rows, .next = sqlite_rows_next};
    status s = suggest_columns(&records, target, arena, out);
    sqlite_rows_close(rows);
    if (tables.count > 1) name_tables(&tables, table, arena, out);
    return s;
}

/* ---- other formats ---- */

static status count_smallest(struct dataset *dataset, struct suggestion *out) {
    const struct dataset_info *info = dataset_info(dataset);
    int64_t *classes = NULL;
    size_t *counts = NULL;
    status s = rows_alloc(info->train_rows, sizeof *classes, "the classes", (void **)&classes);
    if (!s) s = rows_alloc((size_t)info->classes, sizeof *counts, "the classes", (void **)&counts);
    if (!s) s = dataset_train_classes(dataset, classes);
    for (size_t i = 0; !s && i < info->train_rows; i++) counts[classes[i]]++;
    out->smallest_class = info->train_rows;
    for (int64_t c = 0; !s && c < info->classes; c++)
        if (counts[c] > 0 && counts[c] < out->smallest_class) out->smallest_class = counts[c];
    out->has_one_target = !s && out->smallest_class == info->train_rows;
    buffer_free(classes);
    buffer_free(counts);
    return s;
}

static void keep_warnings(const struct dataset *dataset, struct arena *arena, struct suggestion *out) {
    static const char start[] = "warning: ";
    struct string_list notes = dataset_notes(dataset);
    out->warnings = (struct string_list){.items = arena_alloc(arena, (notes.count + 1) * sizeof *notes.items)};
    for (size_t i = 0; i < notes.count; i++)
        if (strncmp(notes.items[i], start, strlen(start)) == 0)
            out->warnings.items[out->warnings.count++] = arena_copy(arena, notes.items[i] + strlen(start));
}

/* Many classes with few rows each are probably whole numbers of a regression. */
static bool are_values(const struct suggestion *s) {
    return s->input_kind == INPUT_VALUES && s->names.count == 0 && s->classes > SUGGESTED_NUMBER_CLASSES &&
           (size_t)s->classes * 10 > s->rows;
}

static status describe(struct dataset *dataset, struct arena *arena, struct suggestion *out) {
    const struct dataset_info *info = dataset_info(dataset);
    struct string_list labels = dataset_labels(dataset);
    out->rows = info->train_rows;
    out->input_kind = info->input_kind;
    out->input_dims = info->input_dims;
    memcpy(out->input_shape, info->input_shape, sizeof out->input_shape);
    out->features = info->input_size;
    out->target_kind = info->target_kind;
    out->classes = info->classes;
    out->target_size = info->target_size;
    out->names = (struct string_list){arena_alloc(arena, (labels.count + 1) * sizeof *labels.items), labels.count};
    for (size_t i = 0; i < labels.count; i++) out->names.items[i] = arena_copy(arena, labels.items[i]);
    keep_warnings(dataset, arena, out);
    bool has_classes = info->target_kind == TARGET_CLASS && info->input_kind == INPUT_VALUES &&
                       info->target_size == 1 && !are_values(out);
    return has_classes ? count_smallest(dataset, out) : OK;
}

static status open_once(const struct dataset_config *config, bool wants_classes, struct arena *arena,
                        struct suggestion *out) {
    struct dataset *dataset;
    TRY(dataset_open(config, wants_classes, true, &dataset));
    status s = describe(dataset, arena, out);
    dataset_close(dataset);
    return s;
}

/* Opens images (height, width, channels) again, with this layout. */
static status open_as(const struct dataset_config *config, bool wants_classes, struct arena *arena,
                      struct suggestion *out) {
    struct dataset_config turned = *config;
    const struct dataset_format *format = dataset_format_of(config, config->path);
    TRY(open_once(config, wants_classes, arena, out));
    out->is_channels_last = format->has_layout && source_seems_channels_last(out->input_dims, out->input_shape);
    if (!out->is_channels_last) return OK;
    turned.layout = LAYOUT_NHWC;
    return open_once(&turned, wants_classes, arena, out);
}

#define MAX_HEADERS 100    /* images whose sizes are read */
#define MAX_IMAGE_SIZE 256 /* pixels that need no resize */

struct image_sizes {
    int64_t items[2][MAX_HEADERS]; /* heights, widths */
    size_t count, grey;
};

static int compare_sizes(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* [records]: a line for each image. */
static void read_sizes(char *records, struct image_sizes *out) {
    size_t lines = 0, line = 0;
    for (const char *c = records; *c; c++) lines += *c == '\n';
    size_t step = lines / MAX_HEADERS + 1;
    for (char *c = records, *end; *c && (end = strchr(c, '\n')); c = end + 1, line++) {
        struct image_header header;
        bool found;
        if (line == 0 || line % step != step - 1 || *c == '"' || out->count == MAX_HEADERS) continue;
        *end = 0;
        status s = image_header_read(c, &header, &found);
        if (s || !found) {
            status_free(s);
            continue;
        }
        out->items[0][out->count] = header.height;
        out->items[1][out->count++] = header.width;
        out->grey += header.is_grey;
    }
}

/* The size of all images, if it is the same and not large; else the median, if it is small. */
static void choose_image_size(const struct dataset_config *config, struct suggestion *out) {
    struct image_sizes sizes = {0};
    struct text records = {0};
    status s = dataset_images.add_records(config, false, &records);
    if (!s && records.data) read_sizes(records.data, &sizes);
    text_free(&records);
    status_free(s); /* reported when the dataset is opened */
    out->image_channels = sizes.count > 0 && sizes.grey == sizes.count ? 1 : 3;
    out->are_images_resized = sizes.count == 0;
    for (int i = 0; i < 2; i++) {
        qsort(sizes.items[i], sizes.count, sizeof **sizes.items, compare_sizes);
        int64_t first = sizes.items[i][0], median = sizes.items[i][sizes.count / 2];
        bool is_same = sizes.count > 0 && first == sizes.items[i][sizes.count - 1] && first <= MAX_IMAGE_SIZE;
        out->are_images_resized = out->are_images_resized || !is_same;
        bool is_small = sizes.count > 0 && median < SUGGESTED_IMAGE_SIZE;
        int64_t rounded = median < 12 ? 8 : (median + 4) / 8 * 8;
        out->image_size[i] = is_same ? median : is_small ? rounded : SUGGESTED_IMAGE_SIZE;
    }
}

static status suggest_rows(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    struct dataset_config config;
    struct problems problems = {0};
    bool is_hdf5 = strcmp(out->format, dataset_hdf5.name) == 0;
    schema_bind(&dataset_schema, NULL, "dataset", &dataset_schema, &config, arena, &problems); /* the defaults */
    problems_free(&problems);
    config.path = path;
    config.text.block_size = SUGGEST_TEXT_BLOCK;
    config.text.stride = SUGGEST_TEXT_STRIDE;
    if (is_hdf5) TRY(hdf5_names_find(path, target, arena, &out->inputs, &out->target, &out->unused));
    const char *targets = out->target ? out->target : target;
    if (out->inputs) config.inputs = (struct string_list){&out->inputs, 1};
    if (targets) config.targets = (struct string_list){&targets, 1};
    config.image.labels = out->labels;
    if (out->is_image_folder) {
        choose_image_size(&config, out);
        config.image.size = (struct int_list){.items = out->image_size, .count = 2};
        config.image.channels = out->image_channels;
    }
    status failure = open_as(&config, true, arena, out);
    if (!failure && !are_values(out)) return OK;
    status s = open_as(&config, false, arena, out);
    if (s && failure) {
        status_free(s);
        return failure;
    }
    status_free(failure);
    return s;
}

/* A folder of images; without a part for the validation that for tests is taken. */
static status suggest_folder(const char *path, const char *target, struct arena *arena, struct suggestion *out) {
    const char *parts[IMAGE_PARTS];
    TRY(image_parts_find(path, arena, parts));
    out->format = dataset_images.name;
    out->is_image_folder = true;
    out->validation = parts[IMAGE_PART_VALIDATION] ? parts[IMAGE_PART_VALIDATION] : parts[IMAGE_PART_TEST];
    if (parts[IMAGE_PART_VALIDATION]) out->test = parts[IMAGE_PART_TEST];
    if (parts[IMAGE_PART_TRAIN]) out->path = parts[IMAGE_PART_TRAIN];
    return suggest_rows(out->path, target, arena, out);
}

/* Of the columns after that of the images. */
static const char *usual_target(const struct string_list *columns) {
    struct target_choice choice = {0};
    for (size_t i = 1; i < columns->count; i++)
        target_choice_add(&choice, i, columns->items[i], *columns->items[i] != 0);
    return columns->items[choice.column];
}

/* A CSV file of labels: the images that its first column names are the inputs. Its target: as that of a table. */
static status suggest_labels(const char *path, const struct image_names *images, const char *target,
                             struct arena *arena, struct suggestion *out) {
    const struct string_list *columns = &images->columns;
    out->format = dataset_images.name;
    out->is_image_folder = true;
    out->path = images->folder;
    out->labels = path;
    out->image_column = columns->items[0];
    out->target = target ? target : usual_target(columns);
    out->target_why = target ? "by --target" : target_why(out->target);
    return suggest_rows(out->path, out->target, arena, out);
}

status suggest(const char *path, const char *target, const struct csv_choice *csv, struct arena *arena,
               struct suggestion *out) {
    static const struct dataset_config automatic;
    struct io_info info;
    *out = (struct suggestion){.path = path};
    TRY(io_stat(path, &info));
    if (info.is_folder) return suggest_folder(path, target, arena, out);
    const struct dataset_format *format = dataset_format_of(&automatic, path);
    if (!format) {
        uint64_t bytes;
        struct text names = {0};
        TRY(file_check(path, &bytes));
        dataset_format_names(&names);
        status s = status_new(STATUS_USAGE, "'%s': unknown file extension%s; the formats are: %s", path,
                              dataset_format_advice(path), text_string(&names));
        text_free(&names);
        return s;
    }
    out->format = format->name;
    if (format == &dataset_sqlite) return suggest_sqlite(path, target, arena, out);
    if (format != &dataset_csv) return suggest_rows(path, target, arena, out);
    struct string_list files;
    TRY(file_pattern_expand(path, arena, &files)); /* the first file is typical */
    struct image_names images;
    image_names_find(files.items[0], arena, &images);
    if (images.folder && files.count == 1) return suggest_labels(path, &images, target, arena, out);
    TRY(suggest_csv(files.items[0], target, csv, arena, out));
    out->rows *= files.count;
    return OK;
}
