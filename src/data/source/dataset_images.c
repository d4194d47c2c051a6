/* A folder of images, also in an archive, as torchvision's ImageFolder: each sub-folder is a class, and the order of
 * classes and files is the same. Images are decoded by several threads when they are read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/files/archive.h"
#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "base/system/machine.h"
#include "base/utf8.h"
#include "data/csv/csv.h"
#include "data/images/image.h"
#include "data/source/csv_source.h"
#include "data/source/first_look.h"
#include "data/source/source.h"

struct image_masks {
    const char *folder;            /* without slashes at the end; NULL: there are none */
    struct archive *archive;       /* that has the folder; NULL: it is in the file system */
    bool is_binary;                /* values are 0 and 1, or 0 and 255, which becomes 1; else they are classes */
    size_t size;                   /* height * width of a row */
    struct image_decoder *decoder; /* NULL: masks are not read */
    uint8_t *pixels;               /* (size) */
};

/* ---- archives ---- */

/* Opens the archive in *path, if there is one: *out. An archive has its files in a folder of its own more often than
 * not: when all of them are in one, *path becomes that folder, in [arena]. */
static status open_archive(const char **path, struct arena *arena, struct archive **out) {
    struct io_names names = {0};
    struct io_info info = {0};
    TRY(archive_open(*path, out));
    if (!*out || (*path)[archive_in_path(*path)]) return OK;
    status s = archive_list(*out, *path, &names);
    if (!s && names.count == 1) {
        const char *only = arena_printf(arena, "%s/%s", *path, names.items[0]);
        s = archive_stat(*out, only, &info);
        if (!s && info.is_folder) *path = only;
    }
    io_names_free(&names);
    if (!s) return OK;
    archive_close(*out);
    *out = NULL;
    return s;
}

/* ---- images that a CSV file names ---- */

/* A few rows are enough: an identifier that is the name of an image in each of them is no coincidence. */

#define ROWS 20 /* that are looked for */

/* Whether [folder]/[name] is a file. */
static status find(const struct archive *archive, const char *folder, const char *name, struct arena *arena,
                   bool *exists) {
    struct io_info info = {0};
    status s = archive_stat(archive, arena_printf(arena, "%s/%s", folder, name), &info);
    *exists = !s && info.is_file;
    return s;
}

/* Sets *name, in [arena], to the image [text] in [folder], which may be in [archive]; without the extension of an image
 * it gets that of the file that exists. *exists: there is one. */
static status image_names_complete(const struct archive *archive, const char *folder, const char *text,
                                   struct arena *arena, const char **name, bool *exists) {
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG", NULL};
    *name = arena_copy(arena, text);
    *exists = false;
    if (image_is_named(text)) return find(archive, folder, text, arena, exists);
    for (size_t i = 0; *text && !*exists && extensions[i]; i++) {
        *name = arena_printf(arena, "%s%s", text, extensions[i]);
        TRY(find(archive, folder, *name, arena, exists));
    }
    return OK;
}

/* The header, and the texts of the first column in the first rows. */
static status read_names(struct csv_reader *reader, struct arena *arena, struct image_names *out,
                         struct string_list *texts) {
    bool has_record;
    TRY(csv_next(reader, &has_record));
    if (!has_record) return OK;
    out->columns.items = arena_alloc(arena, reader->count * sizeof *out->columns.items);
    for (; out->columns.count < reader->count; out->columns.count++)
        out->columns.items[out->columns.count] = arena_copy(arena, reader->fields[out->columns.count].text);
    texts->items = arena_alloc(arena, ROWS * sizeof *texts->items);
    while (texts->count < ROWS) {
        TRY(csv_next(reader, &has_record));
        if (!has_record) return OK;
        texts->items[texts->count++] = arena_copy(arena, reader->fields[0].text);
    }
    return OK;
}

static status read_file(const char *path, struct arena *arena, struct image_names *out, struct string_list *texts) {
    static const struct csv_config automatic;
    struct csv_reader reader = {0};
    SCOPED_BUFFER char *text = NULL;
    status s = csv_open_first(path, &automatic, &reader, &text);
    if (!s) s = read_names(&reader, arena, out, texts);
    csv_free(&reader);
    return s;
}

static status has_all(const char *folder, const struct string_list *texts, struct arena *arena, bool *out) {
    const char *name;
    *out = texts->count > 0;
    for (size_t i = 0; *out && i < texts->count; i++)
        TRY(image_names_complete(NULL, folder, texts->items[i], arena, &name, out));
    return OK;
}

/* In [folder] and the folders in it. */
static status find_folder(const char *folder, const char *prefix, const struct string_list *texts, struct arena *arena,
                          struct image_names *out) {
    struct io_names names = {0};
    bool has = false;
    TRY(has_all(folder, texts, arena, &has));
    if (has) out->folder = folder;
    status s = has ? OK : io_list(folder, &names);
    for (size_t i = 0; !s && !has && i < names.count; i++) {
        const char *path = arena_printf(arena, "%s%s", prefix, names.items[i]);
        struct io_info info = {0};
        s = io_stat(path, &info);
        if (!s && info.is_folder) s = has_all(path, texts, arena, &has);
        if (!s && has) out->folder = path;
    }
    io_names_free(&names);
    return s;
}

static status find_images(const char *path, struct arena *arena, struct image_names *out) {
    struct string_list texts = {0};
    const char *slash = strrchr(path, '/');
    TRY(read_file(path, arena, out, &texts));
    if (out->columns.count < 2) return OK;
    if (!*out->columns.items[0] || image_is_named(out->columns.items[0])) return OK; /* there is no header */
    if (!slash) return find_folder(".", "", &texts, arena, out);
    const char *folder = slash == path ? "/" : arena_printf(arena, "%.*s", (int)(slash - path), path);
    return find_folder(folder, arena_printf(arena, "%.*s", (int)(slash - path) + 1, path), &texts, arena, out);
}

void image_names_find(const char *path, struct arena *arena, struct image_names *out) {
    *out = (struct image_names){0};
    status_free(
        find_images(path, arena, out)); /* texts that are too long for a name, folders that cannot be read, ... */
}

/* ---- parts ---- */

/* The names that data sets of images have for their parts. */

/* The part that a folder with this name usually has, such as IMAGE_PART_VALIDATION for "val" and "Valid". */
static enum image_part image_part_of(const char *name) {
    static const struct {
        const char *name;
        enum image_part part;
    } parts[] = {
        {"train", IMAGE_PART_TRAIN},      {"training", IMAGE_PART_TRAIN},        {"val", IMAGE_PART_VALIDATION},
        {"valid", IMAGE_PART_VALIDATION}, {"validation", IMAGE_PART_VALIDATION}, {"dev", IMAGE_PART_VALIDATION},
        {"test", IMAGE_PART_TEST},        {"testing", IMAGE_PART_TEST}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcasecmp(name, parts[i].name) == 0) return parts[i].part;
    return IMAGE_PART_NONE;
}

status image_parts_find(const char *folder, struct arena *arena, const char *paths[IMAGE_PARTS]) {
    struct io_names names = {0};
    const char *found[IMAGE_PARTS] = {NULL};
    struct archive *archive;
    memset(paths, 0, sizeof found);
    TRY(open_archive(&folder, arena, &archive));
    int length = (int)io_length_without_slashes(folder);
    status s = archive_list(archive, folder, &names);
    for (size_t i = 0; !s && i < names.count; i++) {
        struct io_info info = {0};
        if (*names.items[i] == '.') continue;
        const char *path = arena_printf(arena, "%.*s/%s", length, folder, names.items[i]);
        s = archive_stat(archive, path, &info);
        if (!s && info.is_folder) found[image_part_of(names.items[i])] = path;
    }
    io_names_free(&names);
    archive_close(archive);
    bool is_divided = found[IMAGE_PART_TRAIN] && (found[IMAGE_PART_VALIDATION] || found[IMAGE_PART_TEST]);
    if (!s && is_divided && !found[IMAGE_PART_NONE]) memcpy(paths, found, sizeof found);
    return s;
}

/* ---- labels ---- */

/* A CSV file of labels is opened as a dataset of format csv with one input, a text: the names of the images. */

/* The file of the labels of the training or the validation images; NULL: the folders are the classes. */
static const char *image_labels_path(const struct dataset_config *config, bool is_validation) {
    if (!config->image.labels) return NULL;
    return is_validation ? config->validation.targets : config->image.labels;
}

/* The name of the first column that has one; of a file without header the number of the first. */
static status find_first_column(const struct dataset_config *config, const char *path, struct arena *arena,
                                const char **name) {
    struct csv_reader reader = {0};
    bool has_record = false;
    SCOPED_BUFFER char *text = NULL;
    status s = csv_open_first(path, &config->csv, &reader, &text);
    if (!s) s = csv_next(&reader, &has_record);
    size_t column = 0;
    while (!s && has_record && column + 1 < reader.count && !*reader.fields[column].text) column++;
    bool has_names = has_record && !config->csv.has_no_header;
    if (!s) *name = arena_copy(arena, has_names ? reader.fields[column].text : "0");
    csv_free(&reader);
    return s;
}

/* Whether the model that [config] has the columns of was trained with a file of labels. */
static bool image_labels_trained(const struct dataset_config *config) {
    return config->request.columns.count && strcmp(config->request.columns.format, dataset_images.name) == 0;
}

/* The names of the targets that a model was trained with, else those of the config. */
static struct string_list targets_of(const struct dataset_config *config, struct arena *arena) {
    const struct column_list *trained = &config->request.columns;
    struct string_list targets = {.items = arena_alloc(arena, (trained->count + 1) * sizeof *targets.items)};
    if (!image_labels_trained(config)) return config->targets;
    for (size_t i = 0; i < trained->count; i++)
        if (trained->items[i].role == COLUMN_TARGET) targets.items[targets.count++] = trained->items[i].name;
    return targets;
}

static status open_file(const struct dataset_config *config, const char *path, bool wants_classes,
                        const struct source *train, struct arena *arena, struct source **out) {
    struct dataset_config table = *config;
    struct column_rule names = {.type = COLUMN_TEXT, .scale = -1, .is_given = {.type = true}}; /* also of digits */
    const char *nothing = "";
    uint64_t bytes;
    TRY(status_prefix(file_check(path, &bytes), "dataset.image.labels"));
    names.name = config->image.column;
    if (!names.name) TRY(find_first_column(config, path, arena, &names.name));
    table.path = table.validation.path = path;
    table.format = 0;
    table.others = table.validation.others = (struct string_list){0};
    table.inputs = (struct string_list){&names.name, 1};
    table.targets = targets_of(config, arena);
    table.weights = NULL;
    table.rules = (struct section_list){&names, 1};
    table.missing = (struct string_list){&nothing, 1}; /* NA may be a name */
    table.request.columns = (struct column_list){0};
    table.request.is_trained = false; /* names of files are no inputs of the model */
    table.request.preparation = NULL;
    return dataset_csv.open(&table, path, wants_classes, train, out);
}

/* Opens the file [path], whose only input is the column of the names: *out, for its format's close. [train]: the labels
 * of the training images when these are those of the validation; else NULL. */
static status image_labels_open(const struct dataset_config *config, const char *path, bool wants_classes,
                                const struct source *train, struct source **out) {
    if (!path)
        return status_new(
            STATUS_USAGE,
            "dataset.validation.targets is missing: give the CSV file of the labels of the images in '%s'",
            config->validation.path);
    SCOPED_ARENA arena = arena_create();
    return open_file(config, path, wants_classes, train, arena, out);
}

static status no_image(const struct source *labels, const char *folder, size_t row, const char *name) {
    SCOPED_TEXT place = {0};
    labels->format->describe(labels, ROW_INPUT, row, 0, &place);
    return status_data("%s: there is no image '%s' in the folder '%s'; correct or remove the line, or name the "
                       "column of the file names with dataset.image.column",
                       text_string(&place), text_name(name).s, folder);
}

/* *name, in [arena]: the image of [row], a file in [folder]; a name without the extension of an image gets that of the
 * file that exists. STATUS_DATA, with the line: there is none. */
static status image_labels_name(struct source *labels, const struct archive *archive, const char *folder, size_t row,
                                struct arena *arena, const char **name) {
    double value;
    bool exists = false;
    TRY(labels->format->read(labels, row, 1, &value, NULL));
    const char *text = isnan(value) ? "" : labels->columns[0].texts.items[(size_t)value];
    if (!image_is_named(text) && image_is_foreign(text))
        return status_data("%s/%s: only JPEG and PNG images are read; convert the file", folder, text);
    TRY(image_names_complete(archive, folder, text, arena, name, &exists));
    return exists ? OK : no_image(labels, folder, row, text);
}

/* The targets of the model, whose inputs have no names. */
static struct column_list image_labels_columns(const struct source *labels, struct arena *arena) {
    struct column_list all = labels->format->columns(labels, arena);
    struct column_list list = {dataset_images.name, arena_alloc(arena, (all.count + 1) * sizeof *list.items), 0};
    for (size_t i = 0; i < all.count; i++)
        if (all.items[i].role == COLUMN_TARGET) list.items[list.count++] = all.items[i];
    return list;
}

/* ---- masks ---- */

/* Masks are found by the paths of their images and decoded when their targets are read: to check them when the dataset
 * is opened, then once to keep them, or for each batch. */

static bool are_classes(const struct dataset_config *config, bool wants_classes) {
    return wants_classes || string_list_has(&config->request.class_targets, DATASET_TARGET_NAME);
}

static bool are_binary(const struct dataset_config *config) {
    return config->request.target_range == TARGETS_ARE_PROBABILITIES ||
           string_list_has(&config->request.range_targets[TARGETS_ARE_PROBABILITIES], DATASET_TARGET_NAME);
}

/* Whether the keys of [config] name masks and fit together. */
static status image_masks_check(const struct dataset_config *config, bool wants_classes) {
    if (!config->image.masks || config->request.without_targets) return OK;
    if (are_classes(config, wants_classes) || are_binary(config)) return OK;
    return status_usage("dataset.image.masks: the pixels of masks are classes; use loss: cross_entropy, "
                        "nll, bce_with_logits, focal or dice");
}

/* Finds the folder of the training or the validation images. */
static status image_masks_find(struct image_masks *masks, const struct dataset_config *config, bool wants_classes,
                               bool is_validation, struct arena *arena) {
    const char *folder = is_validation ? config->validation.targets : config->image.masks;
    if (!config->image.masks || config->request.without_targets) return OK;
    if (!folder)
        return status_usage("dataset.validation.targets is missing: give the folder of the masks of the images in '%s'",
                            config->validation.path);
    char *copy = arena_copy(arena, folder);
    copy[io_length_without_slashes(copy)] = 0;
    masks->folder = copy;
    masks->is_binary = !are_classes(config, wants_classes);
    TRY(folder_check(folder));
    return open_archive(&masks->folder, arena, &masks->archive);
}

/* Prepares to read masks for the images of [base], and sets its targets. [image] must stay valid. */
static status image_masks_start(struct image_masks *masks, const struct image_config *image, struct source *base,
                                struct arena *arena) {
    if (!masks->folder) return OK;
    masks->size = (size_t)base->input_shape[1] * (size_t)base->input_shape[2];
    masks->pixels = arena_alloc(arena, masks->size);
    base->target_size = masks->size;
    base->target_dims = 2;
    memcpy(base->target_shape, base->input_shape + 1, 2 * sizeof *base->target_shape);
    return image_decoder_create(image, &masks->decoder);
}

static void image_masks_close(struct image_masks *masks) {
    image_decoder_destroy(masks->decoder);
    archive_close(masks->archive);
}

/* "photos/a/1.jpg" has the mask "masks/a/1.png". */
static void add_path(const struct image_masks *masks, const char *below, const char *name, struct text *out) {
    const char *extension = strrchr(name, '.');
    text_printf(out, "%s%s/%.*s.png", masks->folder, below, (int)(extension - name), name);
}

static status check_exists(const struct image_place *mask, const char *image) {
    struct io_info info = {0};
    TRY(archive_stat(mask->archive, mask->path, &info));
    if (info.exists) return OK;
    return status_data("%s: the image '%s' has no such mask; add it, or remove the image", mask->path, image);
}

static status make_binary(const struct image_masks *masks, const char *mask, double *values) {
    for (size_t i = 0; i < masks->size; i++) {
        if (values[i] > 1 && values[i] < 255)
            return status_data("%s: a pixel is %g; with this loss the pixels of masks must be 0 and 1, or 0 and 255 "
                               "(for several classes use cross_entropy)",
                               mask, values[i]);
        values[i] = values[i] > 0;
    }
    return OK;
}

/* Reads the mask of [image], the file [name] in [below] ("" or "/folder") of the dataset, to values (size).
 */
static status image_masks_read(struct image_masks *masks, const struct image_place *image, const char *below,
                               const char *name, double *values) {
    SCOPED_TEXT path = {0};
    add_path(masks, below, name, &path);
    struct image_place mask = {masks->archive, text_string(&path)};
    TRY(check_exists(&mask, image->path));
    TRY(image_decode_mask(masks->decoder, &mask, image, masks->pixels));
    for (size_t i = 0; i < masks->size; i++) values[i] = masks->pixels[i];
    return masks->is_binary ? make_binary(masks, mask.path, values) : OK;
}

/* Adds the place of value [element] of the same mask, in rows of [width] pixels. */
static void image_masks_describe(const struct image_masks *masks, const char *below, const char *name, size_t width,
                                 size_t element, struct text *out) {
    add_path(masks, below, name, out);
    text_printf(out, ", column %zu and line %zu of the resized mask", element % width, element / width);
}

/* ---- the format ---- */

#define MAX_DEPTH 32 /* of folders in a class; symbolic links may form a circle */

struct image_file {
    const char *class, *folder, *name; /* the folder with the path of the dataset */
    size_t label;                      /* index of the class */
};

struct images {
    struct source base;
    struct arena *arena;
    const char *path;        /* without slashes at the end */
    struct archive *archive; /* that has the path; NULL: it is in the file system */
    struct image_config config;
    struct image_file *files; /* (base.rows) */
    size_t capacity;
    const char **classes; /* (n_classes), sorted */
    size_t n_classes;
    size_t unclassified;             /* images beside the folders of the classes */
    const char *first_unclassified;  /* the path of one of them */
    struct image_decoder **decoders; /* (base.threads) */
    bool had_labels;                 /* the model was trained with such a file */
    struct source *labels;           /* dataset.image.labels; NULL: there are none */
    struct image_masks masks;        /* dataset.image.masks */
};

/* ---- the list of files ---- */

static status add_file(struct images *images, const char *class, const char *folder, const char *name) {
    TRY(array_grow(&images->files, &images->capacity, images->base.rows + 1, sizeof *images->files,
                   "the names of the images"));
    images->files[images->base.rows++] = (struct image_file){.class = class, .folder = folder, .name = name};
    return OK;
}

/* Adds the images of [folder] and of the folders in it. Folders in that of the dataset may have the name of a file:
 * they may be classes, so each of its entries is looked at; below it, files are not. */
static status list_files(struct images *images, const char *class, const char *folder, int depth) {
    struct io_names names = {0};
    if (depth > MAX_DEPTH)
        return status_data("%s: the folders are more than %d deep; is there a link to a folder above?", folder,
                           MAX_DEPTH);
    status s = archive_list(images->archive, folder, &names);
    for (size_t i = 0; !s && i < names.count; i++) {
        const char *name = names.items[i], *path = NULL;
        struct io_info info = {0};
        if (*name == '.') continue; /* hidden, such as .ipynb_checkpoints and ._1.jpg */
        if (depth == 0 || (!image_is_foreign(name) && !image_is_named(name))) {
            path = arena_printf(images->arena, "%s/%s", folder, name);
            s = archive_stat(images->archive, path, &info);
        }
        if (s || info.is_folder) {
            if (!s) s = list_files(images, class, path, depth + 1);
        } else if (image_is_foreign(name)) {
            s = status_data("%s/%s: only JPEG and PNG images are read; convert or remove the file", folder, name);
        } else if (image_is_named(name)) {
            s = add_file(images, class, folder, arena_copy(images->arena, name));
        }
    }
    io_names_free(&names);
    return s;
}

static status no_images(const char *path, const char *class) {
    if (!class) return status_data("%s: there are no images (.jpg, .jpeg, .png) in this folder or below", path);
    return status_data("%s: the folder of class '%s' has no images (.jpg, .jpeg, .png)", path, class);
}

/* Folders of a dataset that is divided already, which would be taken for classes. */
static status check_parts(const struct images *images) {
    for (size_t i = 0; i < images->n_classes; i++)
        if (image_part_of(images->classes[i]) == IMAGE_PART_NONE) return OK;
    if (images->n_classes < 2) return OK;
    const char *path = images->path, *last = images->classes[images->n_classes - 1];
    return status_data("%s: the folders '%s' to '%s' are parts of a dataset, not classes; give each part by itself, as "
                       "dataset.path: %s/train and dataset.validation: %s/val",
                       path, images->classes[0], last, path, path);
}

static void count_unclassified(struct images *images, const char *path) {
    if (!image_is_named(path) && !image_is_foreign(path)) return;
    if (images->unclassified++ == 0) images->first_unclassified = path;
}

/* What is wrong with images beside the folders of classes, in [arena]; NULL: there are none. */
static const char *unclassified_warning(const struct images *images) {
    if (images->unclassified == 0) return NULL;
    return arena_printf(
        images->arena,
        "%zu image%s beside the folders of the classes, such as %s, %s not used; move %s into the folder of a class",
        images->unclassified, text_plural(images->unclassified, "s"), images->first_unclassified,
        images->unclassified == 1 ? "is" : "are", images->unclassified == 1 ? "it" : "them");
}

/* Each folder in the folder of the dataset is a class. */
static status list_classes(struct images *images) {
    struct io_names names = {0};
    TRY(archive_list(images->archive, images->path, &names));
    images->classes = arena_alloc(images->arena, (names.count + 1) * sizeof *images->classes);
    status s = OK;
    for (size_t i = 0; !s && i < names.count; i++) {
        struct io_info info;
        if (*names.items[i] == '.') continue;
        const char *class = arena_copy(images->arena, names.items[i]);
        const char *folder = arena_printf(images->arena, "%s/%s", images->path, class);
        size_t before = images->base.rows;
        s = archive_stat(images->archive, folder, &info);
        if (!s && info.is_file) count_unclassified(images, folder);
        if (s || !info.is_folder) continue;
        if (!utf8_is_valid(class)) s = status_data("%s: the name of the folder is not UTF-8 text; rename it", folder);
        if (!s) s = list_files(images, class, folder, 1);
        if (!s && images->base.rows == before) s = no_images(images->path, class);
        images->classes[images->n_classes++] = class;
    }
    io_names_free(&names);
    return s ? s : check_parts(images);
}

/* The order of torchvision: classes, then the paths of the folders, then names. */
static int compare_files(const void *left, const void *right) {
    const struct image_file *a = left, *b = right;
    int order = strcmp(a->class, b->class);
    if (order == 0) order = strcmp(a->folder, b->folder);
    return order != 0 ? order : strcmp(a->name, b->name);
}

/* The classes of a model or of the training files; those of this folder must be among them. */
static void use_classes(struct images *images, const struct string_list *known) {
    images->classes = arena_alloc(images->arena, (known->count + 1) * sizeof *images->classes);
    for (size_t i = 0; i < known->count; i++) images->classes[i] = arena_copy(images->arena, known->items[i]);
    images->n_classes = known->count;
}

static status number_classes(struct images *images) {
    for (size_t i = 0; i < images->base.rows; i++) {
        struct image_file *file = &images->files[i];
        const char **found = bsearch(&file->class, images->classes, images->n_classes, sizeof *found, text_compare);
        if (!found)
            return status_data(
                "%s: class '%s' is not in the data that the model was trained with%s", images->path, file->class,
                images->had_labels ? "; that had a file of labels: give dataset.image.labels=FILE, a CSV "
                                     "file with a row for each of these images"
                                   : "");
        file->label = (size_t)(found - images->classes);
    }
    images->base.classes = (int64_t)images->n_classes;
    return OK;
}

/* The images of a file of labels, in the order of its lines. */
static status list_labels(struct images *images) {
    if (images->labels->rows == 0) return status_data("%s: there are no images", images->path);
    for (size_t row = 0; row < images->labels->rows; row++) {
        const char *name = NULL;
        TRY(image_labels_name(images->labels, images->archive, images->path, row, images->arena, &name));
        TRY(add_file(images, "", images->path, name));
    }
    return OK;
}

static status no_folders(const char *path) {
    return status_data("%s: there are no sub-folders; the images of each class belong in one of its own, or give "
                       "dataset.image.labels, a CSV file with a row for each image, or dataset.image.masks",
                       path);
}

/* All images of the folder, or the single one that the path names. */
static status list_all(struct images *images) {
    struct io_info info = {0};
    TRY(archive_stat(images->archive, images->path, &info));
    if (!info.is_file) return list_files(images, "", images->path, 0);
    const char *slash = strrchr(images->path, '/');
    const char *name = slash ? slash + 1 : images->path;
    images->path = slash ? arena_printf(images->arena, "%.*s", (int)(slash - images->path), images->path) : ".";
    return add_file(images, "", images->path, name);
}

/* [known]: the classes of the training; count 0: the folders are the classes. */
static status find_files(struct images *images, bool without_targets, const struct string_list *known) {
    if (images->labels) return list_labels(images);
    if (without_targets || images->masks.folder)
        TRY(list_all(images));
    else
        TRY(list_classes(images));
    if (images->base.rows == 0 && images->n_classes == 0 && !without_targets && !images->masks.folder)
        return no_folders(images->path);
    if (images->base.rows == 0) return no_images(images->path, NULL);
    qsort(images->files, images->base.rows, sizeof *images->files, compare_files);
    if (without_targets || images->masks.folder) return OK;
    if (known->count) use_classes(images, known);
    return number_classes(images);
}

/* ---- the source ---- */

static status open_path(struct images *images, const char *path) {
    char *copy = arena_copy(images->arena, path);
    copy[io_length_without_slashes(copy)] = 0;
    images->path = copy;
    return open_archive(&images->path, images->arena, &images->archive);
}

/* The fingerprint of a dataset that is too large to be digested has the names of the files and the targets of a file of
 * labels. */
static status hash_files(struct images *images, uint64_t *number) {
    struct digest digest;
    uint8_t hash[DIGEST_SIZE];
    struct source *labels = images->labels;
    double *targets = labels ? arena_alloc(images->arena, (labels->target_size + 1) * sizeof *targets) : NULL;
    digest_start(&digest);
    for (size_t i = 0; i < images->base.rows; i++) {
        const struct image_file *file = &images->files[i];
        digest_add(&digest, file->folder + strlen(images->path), strlen(file->folder) - strlen(images->path) + 1);
        digest_add(&digest, file->name, strlen(file->name) + 1);
    }
    for (size_t row = 0; labels && labels->target_size && row < labels->rows; row++) {
        TRY(labels->format->read(labels, row, 1, NULL, targets));
        digest_add(&digest, targets, labels->target_size * sizeof *targets);
    }
    digest_finish(&digest, hash);
    memcpy(number, hash, sizeof *number);
    return OK;
}

static size_t choose_threads(const struct dataset_config *config) {
    if (config->image.threads != SCHEMA_NO_INT) return (size_t)config->image.threads;
    int ranks = config->request.local_ranks > 0 ? config->request.local_ranks : 1;
    int share = (processors_online() + ranks - 1) / ranks, allowed = processors_allowed();
    return (size_t)(share < allowed ? share : allowed);
}

static struct int_list copy_list(struct arena *arena, const struct int_list *list) {
    struct int_list copy = {.items = arena_alloc(arena, (list->count + 1) * sizeof *copy.items), .count = list->count};
    for (size_t i = 0; i < list->count; i++) copy.items[i] = list->items[i];
    return copy;
}

static status set_shape(struct images *images, const struct dataset_config *config) {
    struct source *base = &images->base;
    size_t height, width;
    images->config = config->image;
    images->config.size = copy_list(images->arena, &config->image.size);
    images->config.resize = copy_list(images->arena, &config->image.resize);
    image_rows(&images->config, &height, &width);
    base->input_dims = 3;
    base->input_shape[0] = images->config.channels;
    base->input_shape[1] = (int64_t)height;
    base->input_shape[2] = (int64_t)width;
    base->input_size = (size_t)images->config.channels * height * width;
    base->target_size = images->labels ? images->labels->target_size : config->request.without_targets ? 0 : 1;
    TRY(image_masks_start(&images->masks, &images->config, base, images->arena));
    if (images->labels) base->classes = images->labels->classes;
    if (images->labels) base->note = images->labels->note;
    base->is_float32 = base->is_bytes = true;
    base->divide = 255; /* as torchvision's ToTensor */
    base->threads = choose_threads(config);
    images->decoders = arena_alloc(images->arena, base->threads * sizeof *images->decoders);
    for (size_t i = 0; i < base->threads; i++) TRY(image_decoder_create(&images->config, &images->decoders[i]));
    return OK;
}

#define EXAMINED 32 /* files, at equal distances */

/* Photos that lie on their side are only warned about, because torchvision's ImageFolder does not turn them. */
static void note_orientation(struct images *images) {
    size_t rows = images->base.rows, count = rows < EXAMINED ? rows : EXAMINED, turned = 0;
    const char *first = NULL;
    for (size_t i = 0; i < count && !images->config.exif_orientation; i++) {
        const struct image_file *file = &images->files[i * rows / count];
        const char *path = arena_printf(images->arena, "%s/%s", file->folder, file->name);
        int orientation = 1;
        status_free(image_file_orientation(&(struct image_place){images->archive, path},
                                           &orientation)); /* decoding reports what cannot be read */
        if (orientation == 1) continue;
        if (!first) first = path;
        turned++;
    }
    if (first && !images->base.note)
        images->base.note =
            arena_printf(images->arena,
                         "warning: %zu of %zu images that were examined, such as %s, have an orientation in their EXIF "
                         "data that is not applied; dataset.image.exif_orientation: true turns them upright",
                         turned, count, first);
}

static void close_images(struct source *source) {
    struct images *images = (struct images *)source;
    for (size_t i = 0; images->decoders && i < source->threads; i++) image_decoder_destroy(images->decoders[i]);
    if (images->labels) images->labels->format->close(images->labels);
    image_masks_close(&images->masks);
    archive_close(images->archive);
    free(images->files);
    arena_destroy(images->arena);
    free(images);
}

/* What the keys say about the targets. */
static status check_targets(const struct dataset_config *config, const char *path, bool wants_classes) {
    if (config->image.labels || config->request.without_targets) return OK;
    if (config->image.column && !config->request.is_trained)
        return status_usage("dataset.image.column is a column of dataset.image.labels, a CSV file with a "
                            "row for each image; give it, or remove column");
    if (config->targets.count && !config->request.is_trained)
        return status_usage("dataset.targets: the columns of images are those of dataset.image.labels, a "
                            "CSV file with a row for each image; give it, or remove targets");
    if (config->image.masks) return image_masks_check(config, wants_classes);
    if (wants_classes) return OK;
    return status_usage("%s: the target of an image is the class of its folder; use loss: cross_entropy, or give "
                        "dataset.image.labels, a CSV file with the targets of each image, or dataset.image.masks",
                        path);
}

static status open_labels(struct images *images, const struct dataset_config *config, bool wants_classes,
                          const struct images *train) {
    if (!config->image.labels) return OK;
    const char *path = image_labels_path(config, train != NULL);
    return image_labels_open(config, path, wants_classes, train ? train->labels : NULL, &images->labels);
}

static status open_images(const struct dataset_config *config, const char *path, bool wants_classes,
                          const struct source *train, struct source **out) {
    if (config->image.size.count == 0)
        return status_usage("dataset.image.size is missing: give [height, width] of the rows of the images in '%s'",
                            path);
    TRY(check_targets(config, path, wants_classes));
    struct images *images = calloc(1, sizeof *images);
    if (!images) return status_memory("a dataset");
    struct string_list known = train && train->format == &dataset_images ? train->labels : config->request.classes;
    images->base.format = &dataset_images;
    images->arena = arena_create();
    images->had_labels = config->request.is_trained && image_labels_trained(config);
    status s = open_path(images, path);
    if (!s) s = open_labels(images, config, wants_classes, (const struct images *)train);
    if (!s) s = image_masks_find(&images->masks, config, wants_classes, train != NULL, images->arena);
    if (!s) s = find_files(images, config->request.without_targets, &known);
    if (!s) s = set_shape(images, config);
    if (!s) note_orientation(images);
    if (!s) images->base.warning = unclassified_warning(images);
    if (!s) s = hash_files(images, &images->base.file_bytes);
    if (images->labels)
        images->base.labels = images->labels->labels;
    else if (!images->masks.folder)
        images->base.labels = (struct string_list){.items = images->classes, .count = images->n_classes};
    if (s) close_images(&images->base);
    if (!s) *out = &images->base;
    return s;
}

static status decode_image(struct source *source, size_t row, size_t thread, uint8_t *inputs) {
    const struct images *images = (struct images *)source;
    const struct image_file *file = &images->files[row];
    SCOPED_STRING path = text_path(file->folder, file->name);
    struct image_place place = {images->archive, path};
    return image_decode_file(images->decoders[thread], &place, inputs);
}

/* The folder of an image below that of the dataset: "" or "/folder". */
static const char *folder_below(const struct images *images, size_t row) {
    return images->files[row].folder + strlen(images->path);
}

static status read_mask(struct images *images, size_t row, double *values) {
    const struct image_file *file = &images->files[row];
    SCOPED_STRING image = text_path(file->folder, file->name);
    struct image_place place = {images->archive, image};
    return image_masks_read(&images->masks, &place, folder_below(images, row), file->name, values);
}

static status read_targets(struct images *images, size_t first, size_t count, double *targets) {
    if (images->labels) return images->labels->format->read(images->labels, first, count, NULL, targets);
    for (size_t i = 0; i < count && images->masks.decoder; i++)
        TRY(read_mask(images, first + i, targets + i * images->base.target_size));
    for (size_t i = 0; i < count && !images->masks.decoder; i++) targets[i] = (double)images->files[first + i].label;
    return OK;
}

/* The bytes of a row are decoded to the end of its doubles. */
static status read_images(struct source *source, size_t first, size_t count, double *inputs, double *targets) {
    struct images *images = (struct images *)source;
    size_t size = source->input_size;
    if (targets && source->target_size) TRY(read_targets(images, first, count, targets));
    for (size_t i = 0; i < count && inputs; i++) {
        double *values = inputs + i * size;
        uint8_t *bytes = (uint8_t *)values + size * (sizeof *values - 1);
        TRY(decode_image(source, first + i, 0, bytes));
        for (size_t k = 0; k < size; k++) values[k] = (double)bytes[k];
    }
    return OK;
}

static void describe_images(const struct source *source, enum row_value kind, size_t row, size_t element,
                            struct text *out) {
    const struct images *images = (const struct images *)source;
    if (kind == ROW_TARGET && images->labels) {
        images->labels->format->describe(images->labels, kind, row, element, out);
    } else if (kind == ROW_TARGET && images->masks.folder) {
        image_masks_describe(&images->masks, folder_below(images, row), images->files[row].name,
                             (size_t)source->target_shape[1], element, out);
    } else {
        text_printf(out, "%s/%s", images->files[row].folder, images->files[row].name);
    }
}

static struct column_list columns_of(const struct source *source, struct arena *arena) {
    const struct images *images = (const struct images *)source;
    return images->labels ? image_labels_columns(images->labels, arena) : (struct column_list){0};
}

/* One column: the files, in the order of the rows. */
static status start_records(struct csv *csv, const struct dataset_config *config, bool is_validation) {
    struct images *images = csv->records;
    struct dataset_config names = *config; /* of the files only */
    names.request.without_targets = true;
    const char *labels = image_labels_path(config, is_validation);
    images->arena = csv->arena;
    TRY(open_path(images, csv->path));
    if (labels) TRY(image_labels_open(&names, labels, true, NULL, &images->labels));
    bool without_classes = config->request.without_targets || config->image.masks;
    TRY(find_files(images, without_classes, &(const struct string_list){0}));
    return csv_make_fields(&csv->reader, csv->path, 1);
}

static status next_record(struct csv *csv, bool *has_record) {
    const struct images *images = csv->records;
    size_t at = csv->reader.record_line++; /* 0: the name of the column; then row + 1 */
    *has_record = at <= images->base.rows;
    if (at == 0) csv->reader.fields[0].text = "file";
    if (at == 0 || !*has_record) return OK;
    const struct image_file *file = &images->files[at - 1];
    csv->reader.fields[0].text = arena_printf(csv->arena, "%s/%s", file->folder, file->name);
    return OK;
}

static void close_records(struct csv *csv) {
    struct images *images = csv->records;
    if (images->labels) images->labels->format->close(images->labels);
    archive_close(images->archive);
    free(images->files);
}

static const struct csv_input image_records = {.unit = "row",
                                               .state_bytes = sizeof(struct images),
                                               .start = start_records,
                                               .next = next_record,
                                               .close = close_records};

/* ---- inspect ---- */

#define MAX_SHOWN 50 /* classes */

static status describe_class(const struct images *images, size_t first, size_t count, struct text *out) {
    struct image_config config = {.channels = 3};
    struct image_decoder *decoder;
    text_add(out, "  ");
    size_t start = out->length;
    text_add_value(out, images->n_classes ? images->files[first].class : "without classes", TEXT_MAX_NAME);
    text_pad(out, start, 28);
    text_printf(out, " %zu image%s, the first: ", count, text_plural(count, "s"));
    SCOPED_STRING path = text_path(images->files[first].folder, images->files[first].name);
    status s = image_decoder_create(&config, &decoder);
    struct image_place place = {images->archive, path};
    if (!s) s = image_describe_file(decoder, &place, out);
    image_decoder_destroy(decoder);
    text_add(out, "\n");
    return s;
}

/* Whether the folder without sub-folders has images. */
static bool try_all(struct images *images) {
    status s = find_files(images, true, &(const struct string_list){0});
    bool has_images = !s;
    status_free(s);
    return has_images;
}

static status inspect(const char *path, struct text *out) {
    struct images images = {.arena = arena_create()};
    const struct string_list none = {0};
    status opened = open_path(&images, path), s = opened ? opened : find_files(&images, false, &none);
    bool has_no_folders = !opened && s && images.base.rows == 0 && images.n_classes == 0;
    if (has_no_folders && try_all(&images)) {
        status_free(s);
        s = OK;
    }
    if (!s)
        text_printf(out, "folder  %s\nformat  images, %zu image%s, %zu class%s\n\n", images.path, images.base.rows,
                    text_plural(images.base.rows, "s"), images.n_classes, text_plural(images.n_classes, "es"));
    const char *warning = s || images.n_classes == 0 ? NULL : unclassified_warning(&images);
    if (warning) text_printf(out, "warning: %s\n\n", warning);
    for (size_t i = 0, count, shown = 0; !s && i < images.base.rows; i += count) {
        for (count = 1; i + count < images.base.rows && images.files[i + count].label == images.files[i].label;)
            count++;
        if (shown++ < MAX_SHOWN) s = describe_class(&images, i, count, out);
    }
    if (!s && images.n_classes > MAX_SHOWN) text_add(out, "  ...\n");
    archive_close(images.archive);
    free(images.files);
    arena_destroy(images.arena);
    return s;
}

static const char *const extensions[] = {"/",        ".zip",    ".tar",     ".tar.gz", ".tgz",
                                         ".tar.bz2", ".tar.xz", ".tar.zst", NULL};
const struct dataset_format dataset_images = {.name = "images",
                                              .keys = KEY_IMAGE | KEY_TARGETS | KEY_CSV,
                                              .extensions = extensions,
                                              .is_folder = true,
                                              .open = open_images,
                                              .read = read_images,
                                              .decode = decode_image,
                                              .columns = columns_of,
                                              .describe = describe_images,
                                              .close = close_images,
                                              .records = &image_records,
                                              .inspect = inspect,
                                              .pytorch = "{images}"};
