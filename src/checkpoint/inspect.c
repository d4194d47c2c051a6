/* A checkpoint is verified first and shown with its counters and the ranges of its values; of other HDF5 files only
 * names, types and shapes are shown; of files of safetensors the tensors with their ranges. */
#include "checkpoint/inspect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "base/files/sealed.h"
#include "base/scoped.h"
#include "checkpoint/checkpoint_hdf5.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/torch_file.h"

/* ---- the format of a file that was given as a checkpoint but is none, for a message that says more than "damaged"
 * ---- */

#define HEAD 512

struct head {
    unsigned char bytes[HEAD];
    size_t size;
    uint64_t file_size;
};

static bool starts_with(const struct head *head, const char *magic, size_t size) {
    return head->size >= size && memcmp(head->bytes, magic, size) == 0;
}

/* The little-endian length of a JSON header, and its opening brace. */
static bool is_safetensors(const struct head *head) {
    uint64_t length = 0;
    for (int i = 0; head->size > 8 && i < 8; i++) length |= (uint64_t)head->bytes[i] << (8 * i);
    return length >= 2 && head->bytes[8] == '{' && length <= head->file_size - 8;
}

/* A zip archive, or the older pickle of protocol 2. */
static bool is_torch(const struct head *head) {
    return starts_with(head, "PK\003\004", 4) || starts_with(head, "\200\002", 2);
}

static bool is_numpy(const struct head *head) { return starts_with(head, "\223NUMPY", 6); }

static bool is_empty(const struct head *head) { return head->file_size == 0; }

static bool is_text(const struct head *head) {
    for (size_t i = 0; i < head->size; i++) {
        unsigned char c = head->bytes[i];
        if (c < 32 && c != '\t' && c != '\n' && c != '\r') return false;
    }
    return head->size > 0;
}

static const struct {
    bool (*is)(const struct head *head);
    const char *sentence;
} kinds[] = {
    {is_empty, "an empty file"},
    {is_safetensors,
     "a safetensors file, which has weights but not the state of a run; start a run from it with model.init_from"},
    {is_torch,
     "a file of torch.save, which has weights but not the state of a run; start a run from it with model.init_from"},
    {is_numpy, "a file of numpy.save, not a checkpoint"},
    {is_text, "a text file, not a checkpoint; those are the .h5 files in checkpoints/ of a run folder"},
};

static status read_head(const char *path, struct head *head) {
    struct io_info info;
    int fd;
    *head = (struct head){0};
    TRY(io_open(path, &fd));
    status s = io_stat_fd(fd, path, &info);
    if (!s && info.is_file) s = io_read_at(fd, path, head->bytes, HEAD, 0, &head->size);
    if (!s && !info.is_file) s = status_data("%s: not a regular file", path);
    head->file_size = info.size;
    return status_first(s, io_close(fd, path));
}

status foreign_explain(const char *path, status failure) {
    struct head head;
    status unread = read_head(path, &head);
    for (size_t i = 0; !unread && i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].is(&head)) continue;
        status_free(failure);
        return status_data("%s: %s", path, kinds[i].sentence);
    }
    status_free(unread);
    return failure;
}

static bool begins_as(const char *path, bool (*is)(const struct head *)) {
    struct head head;
    status unread = read_head(path, &head);
    bool result = !unread && is(&head);
    status_free(unread);
    return result;
}

bool foreign_is_safetensors(const char *path) { return begins_as(path, is_safetensors); }

bool foreign_is_torch(const char *path) { return begins_as(path, is_torch); }

/* ---- minimum, maximum and mean of numbers ---- */

/* Non-finite values are counted separately. Start with RANGE_NONE. */
struct range {
    double min, max, sum;
    uint64_t finite, not_finite;
};
#define RANGE_NONE ((struct range){.min = INFINITY, .max = -INFINITY})

/* Sums in double, in the order of the numbers. */
static void range_add(struct range *range, double value) {
    if (!isfinite(value)) {
        range->not_finite++;
        return;
    }
    range->min = value < range->min ? value : range->min;
    range->max = value > range->max ? value : range->max;
    range->sum += value;
    range->finite++;
}

/* Adds "  min 0  max 1  mean 0.5  not finite: 2", without the parts that do not apply. */
static void range_print(const struct range *range, struct text *out) {
    if (range->finite)
        text_printf(out, "  min %.6g  max %.6g  mean %.6g", range->min, range->max, range->sum / (double)range->finite);
    if (range->not_finite) text_printf(out, "  not finite: %llu", (unsigned long long)range->not_finite);
}

/* ---- HDF5 files ---- */

#define MAX_LISTED 10000 /* datasets; others are only counted */
#define MAX_TEXT 60      /* bytes of a text; of longer ones only the length is shown */
#define MAX_PATH 400     /* bytes of a group's path that are shown */

struct inspection {
    const char *path; /* of the file */
    struct text *out;
    struct text group;          /* of the previous line; "" for the root */
    const unsigned char *image; /* (image_size) of a checkpoint, whose numbers are shown; else NULL */
    uint64_t image_size;
    uint64_t datasets, values;
};

static double value_at(const unsigned char *bytes, enum entry_type type, uint64_t i) {
    float single;
    double value;
    if (type == ENTRY_FLOAT64)
        memcpy(&value, bytes + 8 * i, sizeof value);
    else {
        memcpy(&single, bytes + 4 * i, sizeof single);
        value = (double)single;
    }
    return value;
}

static void add_range(struct text *out, const unsigned char *bytes, enum entry_type type, uint64_t count) {
    struct range range = RANGE_NONE;
    for (uint64_t i = 0; i < count; i++) range_add(&range, value_at(bytes, type, i));
    range_print(&range, out);
}

/* Adds a short text in quotes; else its length. */
static void add_text(struct text *out, const unsigned char *bytes, size_t size) {
    size_t length = strnlen((const char *)bytes, size);
    if (length > MAX_TEXT || memchr(bytes, '\n', length)) {
        text_printf(out, "  %zu bytes", length);
        return;
    }
    char *text = strndup((const char *)bytes, length);
    text_add(out, "  ");
    text_add_json(out, text ? text : "");
    free(text);
}

/* Adds the value of a scalar or the range of a tensor. */
static void add_content(const struct inspection *report, const struct hdf5_shape *shape) {
    uint64_t count = hdf5_values(shape), size = hdf5_bytes(shape);
    if (!report->image || !shape->is_known || !shape->is_contiguous || count == 0) return;
    if (size > report->image_size || shape->offset > report->image_size - size) return;
    const unsigned char *bytes = report->image + shape->offset;
    if (shape->type == ENTRY_TEXT)
        add_text(report->out, bytes, size);
    else if (shape->type != ENTRY_INT64 && shape->dims)
        add_range(report->out, bytes, shape->type, count);
    else if (shape->type != ENTRY_INT64)
        text_printf(report->out, "  %.17g", value_at(bytes, shape->type, 0));
    else if (shape->dims == 0) {
        int64_t value;
        memcpy(&value, bytes, sizeof value);
        text_printf(report->out, "  %lld", (long long)value);
    }
}

/* Prints the group of [path] when it differs from that of the previous line; returns the last part of the path. */
static const char *begin_group(struct inspection *report, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t length = (size_t)(name - path);
    const char *before = text_string(&report->group);
    if (report->datasets > 0 && strlen(before) == length && strncmp(before, path, length) == 0) return name;
    text_clear(&report->group);
    text_add_bytes(&report->group, path, length);
    text_add(report->out, "\n");
    text_add_value(report->out, length ? report->group.data : "/", MAX_PATH);
    text_add(report->out, "\n");
    return name;
}

static void list_dataset(struct inspection *report, const char *path, const struct hdf5_shape *shape) {
    const char *name = begin_group(report, path);
    SCOPED_TEXT kind = {0};
    text_printf(&kind, "%s ", shape->type_name);
    text_add_shape(&kind, shape->dims, shape->shape);
    text_add(report->out, "  ");
    size_t start = report->out->length;
    text_add_value(report->out, name, TEXT_MAX_NAME);
    text_pad(report->out, start, 28);
    text_printf(report->out, " %-22s", kind.data);
    add_content(report, shape);
    while (report->out->length && report->out->data[report->out->length - 1] == ' ')
        report->out->data[--report->out->length] = 0;
    text_add(report->out, "\n");
}

static status report_dataset(void *context, const char *path, hid_t dataset) {
    struct inspection *report = context;
    struct hdf5_shape shape;
    TRY(hdf5_describe(dataset, report->path, &shape));
    if (report->datasets < MAX_LISTED) list_dataset(report, path, &shape);
    report->datasets++;
    if (__builtin_add_overflow(report->values, hdf5_values(&shape), &report->values)) report->values = UINT64_MAX;
    return OK;
}

static status report_tree(struct inspection *report, hid_t file) {
    status s = hdf5_walk(file, report->path, report_dataset, report);
    if (report->datasets > MAX_LISTED)
        text_printf(report->out, "\n... and %llu more\n", (unsigned long long)(report->datasets - MAX_LISTED));
    text_printf(report->out, "\n%llu dataset%s, %llu value%s\n", (unsigned long long)report->datasets,
                text_plural(report->datasets, "s"), (unsigned long long)report->values,
                text_plural(report->values, "s"));
    text_free(&report->group);
    return s;
}

/* A file on disk, or its verified image in memory. */
struct hdf5_source {
    const char *path;
    void *image; /* (size); NULL: the file */
    size_t size;
};

static status open_source(const struct hdf5_source *source, hid_t *file) {
    if (source->image) return hdf5_open_image(source->path, source->image, source->size, file);
    return hdf5_open_file(source->path, file);
}

/* In a child process: parses everything that the report parses. */
static status parse_source(void *context) {
    hid_t file;
    TRY(open_source(context, &file));
    return hdf5_parse_all(file, ((const struct hdf5_source *)context)->path);
}

static status inspect_sealed(const char *path, struct text *out) {
    SCOPED_BUFFER void *image = NULL;
    struct seal seal;
    hid_t file;
    TRY(sealed_read(path, &image, &seal));
    struct hdf5_source source = {path, image, seal.image_size};
    status s = hdf5_try_in_child(path, parse_source, &source);
    if (s == OK) s = open_source(&source, &file);
    if (s == OK) {
        struct inspection report = {.path = path, .out = out, .image = image, .image_size = seal.image_size};
        int64_t version = hdf5_checkpoint_version(file);
        char hex[DIGEST_HEX_SIZE];
        digest_hex(seal.sha256, hex);
        text_printf(out, "file    %s\nseal    good, %llu bytes, sha256 %s%s\n", path,
                    (unsigned long long)seal.image_size, seal.is_chunked ? "of the hashes of its 4 MiB chunks " : "",
                    hex);
        if (version) text_printf(out, "format  %s, version %lld\n", CHECKPOINT_FORMAT, (long long)version);
        s = report_tree(&report, file);
        H5Fclose(file);
    }
    return s;
}

static status inspect_plain(const char *path, struct text *out) {
    hid_t file;
    struct hdf5_source source = {.path = path};
    TRY(hdf5_try_in_child(path, parse_source, &source));
    TRY(open_source(&source, &file));
    struct inspection report = {.path = path, .out = out};
    text_printf(out, "file    %s\n", path);
    if (hdf5_checkpoint_version(file))
        text_printf(out, "seal    none: this checkpoint was truncated or changed, and no run can resume from it\n");
    status s = report_tree(&report, file);
    H5Fclose(file);
    return s;
}

status checkpoint_inspect(const char *path, struct text *out) {
    struct io_info info;
    bool is_marked;
    struct hdf5_silence silence;
    TRY(io_stat(path, &info));
    if (!info.exists) return status_data("%s: there is no such file", path);
    TRY(sealed_has_trailer(path, &is_marked));
    hdf5_enter(&silence);
    status s = is_marked ? inspect_sealed(path, out) : inspect_plain(path, out);
    hdf5_leave(&silence);
    return status_code(s) == STATUS_DATA && !is_marked ? foreign_explain(path, s) : s;
}

/* ---- files of safetensors ---- */

/* The output of `ddptrain inspect` for a safetensors file, with the tensors in the order of the file. */

#define CHUNK 4096    /* values converted at a time */
#define MAX_VALUE 400 /* bytes of a value of the metadata that are shown */

static struct range range_of(const struct safetensors *file, const struct safetensors_entry *tensor) {
    struct range range = RANGE_NONE;
    float values[CHUNK];
    for (size_t i = 0; i < tensor->count; i += CHUNK) {
        size_t count = tensor->count - i < CHUNK ? tensor->count - i : CHUNK;
        tensor->dtype->convert(file->data + tensor->offset + i * tensor->dtype->bytes, values, count);
        for (size_t j = 0; j < count; j++) range_add(&range, (double)values[j]);
    }
    return range;
}

static void print_metadata(json_t *metadata, struct text *out) {
    const char *name;
    json_t *value;
    json_object_foreach(metadata, name, value) {
        if (!json_is_string(value)) continue;
        text_add_value(out, name, TEXT_MAX_NAME);
        text_add(out, "  ");
        text_add_value(out, json_string_value(value), MAX_VALUE);
        text_add(out, "\n");
    }
}

static status print_tensors(const struct safetensors *file, struct text *out) {
    const char *name;
    json_t *value;
    size_t tensors = 0, values = 0;
    text_add(out, "\n");
    json_object_foreach(file->header, name, value) {
        struct safetensors_entry tensor;
        SCOPED_TEXT kind = {0};
        if (!safetensors_is_tensor(name)) continue;
        TRY(safetensors_entry(file, name, value, &tensor));
        text_printf(&kind, "%s (", tensor.dtype->name);
        for (int d = 0; d < tensor.dims; d++) text_printf(&kind, "%s%lld", d ? ", " : "", (long long)tensor.shape[d]);
        text_add(&kind, ")");
        text_add(out, "  ");
        size_t start = out->length;
        text_add_value(out, name, TEXT_MAX_NAME);
        text_pad(out, start, 28);
        text_printf(out, " %-22s", kind.data);
        if (tensor.dtype->convert) {
            struct range range = range_of(file, &tensor);
            range_print(&range, out);
        }
        text_add(out, "\n");
        tensors++;
        values += tensor.count;
    }
    text_printf(out, "\n%zu tensor%s, %zu value%s\n", tensors, text_plural(tensors, "s"), values,
                text_plural(values, "s"));
    return OK;
}

status safetensors_inspect(const char *path, struct text *out) {
    struct safetensors file;
    bool is_index = tensor_index_is_name(path), is_torch = foreign_is_torch(path);
    status s = is_index   ? tensor_index_read(path, &file)
               : is_torch ? torch_file_read(path, &file)
                          : safetensors_read(path, &file);
    if (!s) {
        text_printf(out, "file    %s\nformat  %s\n", path,
                    is_index   ? "several files of tensors"
                    : is_torch ? "torch.save"
                               : "safetensors");
        print_metadata(json_object_get(file.header, "__metadata__"), out);
        s = print_tensors(&file, out);
    }
    safetensors_close(&file);
    return s;
}
