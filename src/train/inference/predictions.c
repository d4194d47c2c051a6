/* The meaning of outputs: classes, probabilities, names of columns. */
#include "train/inference/predictions.h"

#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/files/io.h"
#include "base/numbers/statistics.h"
#include "base/scoped.h"
#include "checkpoint/checkpoint_hdf5.h"

/* ---- meaning ---- */

/* Classes of a position: the last dimension of the output. */
static size_t classes_of(const struct prediction_meaning *m) { return (size_t)m->output->size[m->output->dims - 1]; }

/* Whether a loss of [m] gives probabilities. */
static status check_terms(const struct prediction_meaning *m) {
    for (size_t i = 0; i < m->objective->count; i++) {
        const struct objective_term *t = &m->objective->terms[i];
        if (t->loss->is_binary || (t->loss->wants_classes && t->output.shape.dims == 1)) return OK;
    }
    return m->wants_probabilities
               ? status_usage("--probabilities: no loss predicts one class per row; --outputs gives logits")
               : OK;
}

status predictions_check(const struct prediction_meaning *m) {
    if (m->objective) return check_terms(m);
    if (m->target_scale && m->target_scale->size != shape_elements(m->output))
        return status_data("the model has %zu outputs, but its checkpoint has the scale of %zu targets",
                           shape_elements(m->output), m->target_scale->size);
    if (!m->wants_probabilities) return OK;
    if (!m->loss->wants_classes && !m->loss->is_binary)
        return status_usage("--probabilities: loss %s predicts values, not classes", m->loss->variant.name);
    if (m->loss->wants_classes && m->output->dims != 1)
        return status_usage("--probabilities needs one class per row, but this model predicts %lld classes per row; "
                            "--outputs gives its logits",
                            (long long)m->output->size[0]);
    return OK;
}

/* p_c = exp(z_c - max z) / sum */
static void softmax(const float *z, size_t size, float *p) {
    double max = (double)z[statistics_largest(z, size)], sum = 0;
    for (size_t c = 0; c < size; c++) sum += exp((double)z[c] - max);
    for (size_t c = 0; c < size; c++) p[c] = (float)(exp((double)z[c] - max) / sum);
}

static float sigmoid(float z) { return (float)(1 / (1 + exp(-(double)z))); }

/* ---- numbers ---- */

status predictions_spread(struct predictions *p, const bool *is_blank, size_t rows) {
    const float *from = p->outputs;
    TRY(buffer_new(rows * p->size * sizeof(float), "the predictions", (void **)&p->own_outputs));
    for (size_t r = 0; r < rows; r++) {
        float *to = p->own_outputs + r * p->size;
        for (size_t i = 0; i < p->size; i++) to[i] = is_blank[r] ? NAN : from[i];
        from += is_blank[r] ? 0 : p->size;
    }
    p->outputs = p->own_outputs;
    p->is_blank = is_blank;
    p->rows = rows;
    return OK;
}

static void choose_classes(struct predictions *p, const struct prediction_meaning *m) {
    size_t classes = m->loss->is_binary ? 1 : classes_of(m);
    for (size_t i = 0; i < p->rows * p->count; i++)
        p->classes[i] = p->is_blank && p->is_blank[i / p->count] ? -1
                        : m->loss->is_binary                     ? p->outputs[i] > 0
                                             : (int64_t)statistics_largest(p->outputs + i * classes, classes);
}

static void compute_probabilities(struct predictions *p, const struct prediction_meaning *m) {
    bool has_both = m->loss->is_binary && p->size == 1;
    for (size_t r = 0; r < p->rows; r++) {
        const float *z = p->outputs + r * p->size;
        float *to = p->probabilities + r * p->n_probabilities;
        if (has_both) {
            to[0] = sigmoid(-z[0]);
            to[1] = sigmoid(z[0]);
        } else if (m->loss->is_binary) {
            for (size_t i = 0; i < p->size; i++) to[i] = sigmoid(z[i]);
        } else {
            softmax(z, p->size, to);
        }
    }
}

/* What the outputs predict, in the unit of the file. p->values stays NULL where these are the outputs. */
static status make_values(struct predictions *p, const struct prediction_meaning *m) {
    bool is_logarithm = loss_predicts_logarithms(m->loss, m->loss_config);
    if (!m->target_scale && !is_logarithm) return OK;
    TRY(buffer_new(p->rows * p->size * sizeof *p->values, "the predictions", (void **)&p->values));
    for (size_t i = 0; i < p->rows * p->size; i++) {
        double y = is_logarithm ? exp((double)p->outputs[i]) : (double)p->outputs[i];
        p->values[i] = m->target_scale ? target_scale_undo(m->target_scale, i % p->size, y) : y;
    }
    return OK;
}

/* ---- names ---- */

static void name_predictions(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    bool is_classification = m->loss->wants_classes || m->loss->is_binary;
    p->names = arena_alloc(arena, (p->count + 1) * sizeof *p->names);
    p->has_target_names =
        m->targets.count == p->count && !(is_classification && p->count == 1) && !m->loss->is_class_list;
    for (size_t i = 0; i < p->count; i++)
        p->names[i] = p->has_target_names ? m->targets.items[i]
                      : p->count == 1     ? "prediction"
                                          : arena_printf(arena, "prediction_%zu", i);
}

/* The labels of the classes, or the names of several binary targets. */
static void name_probabilities(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    bool has_targets = m->loss->is_binary && p->size > 1;
    struct string_list known = has_targets ? m->targets : m->labels;
    bool is_known = !has_targets || known.count == p->size;
    p->probability_names = arena_alloc(arena, (p->n_probabilities + 1) * sizeof *p->probability_names);
    for (size_t i = 0; i < p->n_probabilities; i++)
        p->probability_names[i] = is_known && i < known.count ? known.items[i]
                                  : has_targets               ? arena_printf(arena, "probability_%zu", i)
                                                              : arena_printf(arena, "%zu", i);
}

static status make_part(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    p->count = m->loss->wants_classes ? p->size / classes_of(m) : p->size;
    name_predictions(p, m, arena);
    if (!m->loss->wants_classes && !m->loss->is_binary) return make_values(p, m);
    if (m->loss->wants_classes || p->size == 1) p->labels = m->labels;
    TRY(buffer_new(p->rows * p->count * sizeof *p->classes, "the predictions", (void **)&p->classes));
    choose_classes(p, m);
    if (!m->wants_probabilities) return OK;
    p->n_probabilities = m->loss->is_binary && p->size == 1 ? 2 : p->size;
    name_probabilities(p, m, arena);
    TRY(buffer_new(p->rows * p->n_probabilities * sizeof(float), "the probabilities", (void **)&p->probabilities));
    compute_probabilities(p, m);
    return OK;
}

/* ---- several losses ---- */

static struct prediction_meaning meaning_of_term(const struct prediction_meaning *m, size_t term) {
    const struct objective_term *t = &m->objective->terms[term];
    bool has_classes = t->loss->is_binary || (t->loss->wants_classes && t->output.shape.dims == 1);
    return (struct prediction_meaning){.loss = t->loss,
                                       .loss_config = t->config,
                                       .output = &t->output.shape,
                                       .wants_probabilities = m->wants_probabilities && has_classes};
}

/* The columns of the part have the name of its loss, with the number of the value where it has several. */
static void name_part(struct predictions *p, struct arena *arena) {
    for (size_t i = 0; i < p->count; i++)
        p->names[i] = p->count == 1 ? p->name : arena_printf(arena, "%s_%zu", p->name, i);
    for (size_t i = 0; i < p->n_probabilities; i++)
        p->probability_names[i] = arena_printf(arena, "%s_probability_%zu", p->name, i);
}

/* The part of a loss: its columns of the outputs. */
static status make_term(const struct predictions *p, const struct prediction_meaning *m, size_t term,
                        struct predictions *part, struct arena *arena) {
    const struct objective_term *t = &m->objective->terms[term];
    size_t size = t->output.size;
    float *outputs;
    *part = (struct predictions){.rows = p->rows, .size = size, .is_blank = p->is_blank, .name = t->name};
    TRY(buffer_new(p->rows * size * sizeof *outputs, "the predictions", (void **)&outputs));
    part->outputs = part->own_outputs = outputs;
    for (size_t r = 0; r < p->rows; r++)
        memcpy(outputs + r * size, p->outputs + r * p->size + t->output.first, size * sizeof *outputs);
    struct prediction_meaning meaning = meaning_of_term(m, term);
    TRY(make_part(part, &meaning, arena));
    name_part(part, arena);
    return OK;
}

status predictions_make(struct predictions *p, const struct prediction_meaning *m, struct arena *arena) {
    TRY(predictions_check(m));
    if (!m->objective) return make_part(p, m, arena);
    p->part_count = m->objective->count;
    p->parts = arena_alloc(arena, p->part_count * sizeof *p->parts);
    for (size_t i = 0; i < p->part_count; i++) TRY(make_term(p, m, i, &p->parts[i], arena));
    return OK;
}

void predictions_free(struct predictions *p) {
    for (size_t i = 0; i < p->part_count; i++) predictions_free(&p->parts[i]);
    buffer_free(p->own_outputs);
    buffer_free(p->classes);
    buffer_free(p->values);
    buffer_free(p->probabilities);
}

/* ---- files ---- */

/* Both formats are built in memory and written by io_replace, so that a reader never finds an incomplete file. */

bool predictions_is_stdout(const char *path) { return !path || strcmp(path, "-") == 0; }

status predictions_check_name(const char *path) {
    if (predictions_is_stdout(path) || text_ends_with(path, ".csv") || text_ends_with(path, ".h5") ||
        text_ends_with(path, ".hdf5"))
        return OK;
    return status_usage("--out: the formats are .csv and .h5, got '%s'", path);
}

/* The parts of several losses, or the only one. */
static size_t parts_of(const struct predictions *p, const struct predictions **parts) {
    *parts = p->part_count ? p->parts : p;
    return p->part_count ? p->part_count : 1;
}

/* ---- CSV ---- */

/* The header: names, and the prefix of each for the case that an earlier column has the same name. */
struct header {
    struct arena *arena;
    const char **names;
    const char **prefixes;
    size_t count;
};

static void add_name(struct header *header, const char *name, const char *prefix) {
    header->names[header->count] = name;
    header->prefixes[header->count++] = prefix;
}

struct named {
    const char *name;
    size_t index;
};

static int by_name(const void *left, const void *right) {
    const struct named *a = left, *b = right;
    int order = strcmp(a->name, b->name);
    return order ? order : a->index < b->index ? -1 : 1;
}

/* Adds prefixes until no two names are equal; names without a prefix, those of the file, stay. */
static void make_unique(struct header *header) {
    struct named *sorted = arena_alloc(header->arena, (header->count + 1) * sizeof *sorted);
    for (bool has_changed = true; has_changed;) {
        has_changed = false;
        for (size_t i = 0; i < header->count; i++) sorted[i] = (struct named){header->names[i], i};
        qsort(sorted, header->count, sizeof *sorted, by_name);
        for (size_t i = 1; i < header->count; i++) {
            size_t column = sorted[i].index;
            if (strcmp(sorted[i].name, sorted[i - 1].name) != 0 || !header->prefixes[column]) continue;
            header->names[column] = arena_printf(header->arena, "%s%s", header->prefixes[column], sorted[i].name);
            has_changed = true;
        }
    }
}

static struct header make_header(const struct predictions *p, struct arena *arena) {
    struct string_list columns = p->inputs ? csv_texts_names(p->inputs) : (struct string_list){0};
    const struct predictions *parts;
    const struct string_list *members = &p->names_of_members;
    size_t n = parts_of(p, &parts), max = columns.count + members->count + 1 + (p->wants_outputs ? p->size : 0);
    for (size_t i = 0; i < n; i++) max += parts[i].count + parts[i].n_probabilities;
    struct header header = {.arena = arena,
                            .names = arena_alloc(arena, max * sizeof *header.names),
                            .prefixes = arena_alloc(arena, max * sizeof *header.prefixes)};
    for (size_t i = 0; i < columns.count; i++) add_name(&header, columns.items[i], NULL);
    for (size_t i = 0; i < members->count; i++)
        add_name(&header, arena_printf(arena, "%s_row", members->items[i]), "dataset_");
    if (!members->count) add_name(&header, "row", "dataset_");
    for (const struct predictions *part = parts; part < parts + n; part++) {
        for (size_t i = 0; i < part->count; i++) add_name(&header, part->names[i], "predicted_");
        for (size_t i = 0; i < part->n_probabilities; i++)
            add_name(&header, part->probability_names[i], "probability_");
    }
    for (size_t i = 0; i < p->size && p->wants_outputs; i++)
        add_name(&header, arena_printf(arena, "output_%zu", i), "model_");
    make_unique(&header);
    return header;
}

static void add_numbers(struct text *out, const float *numbers, size_t count) {
    char number[32];
    for (size_t i = 0; i < count; i++) {
        int length = snprintf(number, sizeof number, ",%.9g", (double)numbers[i]);
        text_add_bytes(out, number, (size_t)length);
    }
}

/* A value in the unit of the file, whose digits may be far from its first one (years, sums of money). */
static void add_value(struct text *out, double value) {
    text_add(out, ",");
    if (isfinite(value))
        text_add_double(out, value);
    else
        text_printf(out, "%g", value);
}

/* The label of a class; the number of one without label. */
static void add_class(struct text *out, const struct predictions *p, int64_t class) {
    text_add(out, ",");
    if ((size_t) class >= p->labels.count)
        text_printf(out, "%lld", (long long)class);
    else
        csv_add_field(out, p->labels.items[class]);
}

static void add_part(struct text *out, const struct predictions *p, size_t row) {
    for (size_t i = 0; i < p->count && p->classes; i++) add_class(out, p, p->classes[row * p->count + i]);
    for (size_t i = 0; i < p->count && p->values; i++) add_value(out, p->values[row * p->count + i]);
    if (!p->classes && !p->values) add_numbers(out, p->outputs + row * p->size, p->size);
    if (p->probabilities) add_numbers(out, p->probabilities + row * p->n_probabilities, p->n_probabilities);
}

/* The end of the line of a row without predictions. */
static void add_blanks(struct text *out, const struct predictions *p) {
    const struct predictions *parts;
    size_t n = parts_of(p, &parts), count = p->wants_outputs ? p->size : 0;
    for (size_t i = 0; i < n; i++) count += parts[i].count + parts[i].n_probabilities;
    for (size_t i = 0; i < count; i++) text_add(out, ",");
    text_add(out, "\n");
}

static void add_row(struct text *out, const struct predictions *p, size_t row) {
    const struct predictions *parts;
    size_t n = parts_of(p, &parts);
    size_t columns = p->inputs ? csv_texts_names(p->inputs).count : 0;
    for (size_t i = 0; i < columns; i++) {
        csv_add_field(out, csv_texts_field(p->inputs, (size_t)p->row_of[row], i));
        text_add(out, ",");
    }
    for (size_t i = 0; i < p->names_of_members.count; i++)
        text_printf(out, "%s%lld", i ? "," : "", (long long)p->members[row * p->names_of_members.count + i]);
    if (!p->names_of_members.count) text_printf(out, "%lld", (long long)p->row_of[row]);
    if (p->is_blank && p->is_blank[row]) {
        add_blanks(out, p);
        return;
    }
    for (size_t i = 0; i < n; i++) add_part(out, &parts[i], row);
    if (p->wants_outputs) add_numbers(out, p->outputs + row * p->size, p->size);
    text_add(out, "\n");
}

void predictions_add_csv(const struct predictions *p, struct arena *arena, struct text *out) {
    struct header header = make_header(p, arena);
    for (size_t i = 0; i < header.count; i++) {
        text_add(out, i ? "," : "");
        csv_add_field(out, header.names[i]);
    }
    text_add(out, "\n");
    for (size_t r = 0; r < p->rows; r++) add_row(out, p, r);
}

/* ---- HDF5 ---- */

struct hdf5_output {
    hid_t file, at; /* at: the file, or the group of a loss */
    bool is_valid;
};

static void add_dataset(struct hdf5_output *image, const char *name, hid_t file_type, hid_t memory_type, int dims,
                        const hsize_t *shape, const void *data) {
    if (!image->is_valid) return;
    hid_t space = H5Screate_simple(dims, shape, NULL);
    hid_t set = space < 0 ? -1 : H5Dcreate2(image->at, name, file_type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    image->is_valid = set >= 0 && H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (set >= 0) H5Dclose(set);
    if (space >= 0) H5Sclose(space);
}

static void add_floats(struct hdf5_output *image, const char *name, size_t rows, size_t columns, const float *data) {
    add_dataset(image, name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, (hsize_t[]){rows, columns}, data);
}

/* Texts of any length; UTF-8. */
static void add_texts(struct hdf5_output *image, const char *name, int dims, const hsize_t *shape,
                      const char *const *texts) {
    hid_t type = image->is_valid ? H5Tcopy(H5T_C_S1) : -1;
    image->is_valid = type >= 0 && H5Tset_size(type, H5T_VARIABLE) >= 0 && H5Tset_cset(type, H5T_CSET_UTF8) >= 0;
    add_dataset(image, name, type, type, dims, shape, texts);
    if (type >= 0) H5Tclose(type);
}

static void add_list(struct hdf5_output *image, const char *name, const char *const *texts, size_t count) {
    if (count) add_texts(image, name, 1, (hsize_t[]){count}, texts);
}

/* One prediction per row: (rows); several: (rows, count). */
static void add_predictions(struct hdf5_output *image, const struct predictions *p) {
    hsize_t shape[] = {p->rows, p->count};
    int dims = p->count == 1 ? 1 : 2;
    if (p->classes)
        add_dataset(image, "prediction", H5T_STD_I64LE, H5T_NATIVE_INT64, dims, shape, p->classes);
    else if (p->values)
        add_dataset(image, "prediction", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, dims, shape, p->values);
    else
        add_dataset(image, "prediction", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, dims, shape, p->outputs);
    add_list(image, "labels", p->labels.items, p->labels.count);
    if (p->has_target_names) add_list(image, "targets", p->names, p->count);
    if (p->probabilities) add_floats(image, "probabilities", p->rows, p->n_probabilities, p->probabilities);
}

/* Each of several losses has a group in `predictions`. */
static void add_parts(struct hdf5_output *image, const struct predictions *p) {
    hid_t all = p->part_count && image->is_valid
                    ? H5Gcreate2(image->file, "predictions", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)
                    : -1;
    for (size_t i = 0; i < p->part_count && image->is_valid; i++) {
        image->at = H5Gcreate2(all, p->parts[i].name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        image->is_valid = image->at >= 0;
        add_predictions(image, &p->parts[i]);
        if (image->at >= 0) H5Gclose(image->at);
    }
    if (all >= 0) H5Gclose(all);
    image->at = image->file;
    if (p->part_count == 0) add_predictions(image, p);
}

static status add_inputs(struct hdf5_output *image, const struct predictions *p) {
    if (!p->inputs) return OK;
    struct string_list names = csv_texts_names(p->inputs);
    const char **texts;
    TRY(buffer_new(p->rows * names.count * sizeof *texts, "the columns of the rows", (void **)&texts));
    for (size_t r = 0; r < p->rows; r++)
        for (size_t i = 0; i < names.count; i++)
            texts[r * names.count + i] = csv_texts_field(p->inputs, (size_t)p->row_of[r], i);
    add_texts(image, "inputs", 2, (hsize_t[]){p->rows, names.count}, texts);
    add_list(image, "columns", names.items, names.count);
    buffer_free(texts);
    return OK;
}

/* *bytes is the HDF5 file, malloc'ed. */
static status create_image(const struct predictions *p, void **bytes, size_t *size) {
    TRY(hdf5_check_memory());
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    bool has_access = access >= 0 && H5Pset_fapl_core(access, 1 << 20, 0) >= 0;
    struct hdf5_output image = {.file =
                                    has_access ? H5Fcreate(HDF5_IN_MEMORY, H5F_ACC_TRUNC, H5P_DEFAULT, access) : -1};
    image.is_valid = image.file >= 0;
    image.at = image.file;
    add_floats(&image, "outputs", p->rows, p->size, p->outputs);
    const hsize_t shape[] = {p->rows, p->names_of_members.count};
    add_dataset(&image, "row", H5T_STD_I64LE, H5T_NATIVE_INT64, shape[1] ? 2 : 1, shape,
                shape[1] ? p->members : p->row_of);
    add_parts(&image, p);
    status s = image.is_valid ? add_inputs(&image, p) : OK;
    bool is_valid = !s && image.is_valid && H5Fflush(image.file, H5F_SCOPE_LOCAL) >= 0;
    ssize_t length = is_valid ? H5Fget_file_image(image.file, NULL, 0) : -1;
    *bytes = length > 0 ? malloc((size_t)length) : NULL;
    is_valid = *bytes && H5Fget_file_image(image.file, *bytes, (size_t)length) == length;
    *size = is_valid ? (size_t)length : 0;
    if (!s && !is_valid) s = image_failure(STATUS_BUG, "cannot create an HDF5 file of the predictions");
    if (image.file >= 0) H5Fclose(image.file);
    if (access >= 0) H5Pclose(access);
    return s;
}

static status write_hdf5(const char *path, const struct predictions *p) {
    void *image = NULL;
    size_t bytes = 0;
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    status s = create_image(p, &image, &bytes);
    hdf5_leave(&silence);
    struct io_part part = {image, bytes};
    if (!s) s = io_replace(path, &part, 1);
    free(image);
    return s;
}

status predictions_write(const char *path, const struct predictions *p, struct arena *arena) {
    if (!text_ends_with(path, ".csv")) return write_hdf5(path, p);
    SCOPED_TEXT text = {0};
    predictions_add_csv(p, arena, &text);
    struct io_part part = {text.data, text.length};
    return io_replace(path, &part, 1);
}
