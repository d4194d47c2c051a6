/* All names and shapes of the file and the model are compared before values are copied. */
#include "checkpoint/loading.h"

#include <math.h>
#include <string.h>

#include "base/scoped.h"
#include "checkpoint/torch_file.h"

/* A name of the model, or another name of a parameter. */
struct own_name {
    const char *name;
    const struct param *param;             /* NULL: an alias */
    const struct safetensors_alias *alias; /* NULL: a parameter */
    size_t index;                          /* of the parameter in all sets, one after the other */
    bool is_product;                       /* the target's products have it */
    size_t *comparisons;                   /* of the target */
};

/* A file and the model it is compared with. */
struct loading {
    struct safetensors file;
    const struct safetensors_target *target;
    struct text prefix;     /* of every name in the file */
    struct own_name *names; /* (count) sorted, each once */
    size_t count;
};

/* ---- names ---- */

static bool starts_with(const char *name, const char *start) { return strncmp(name, start, strlen(start)) == 0; }

static int compare_names(const void *left, const void *right) {
    const struct own_name *a = left, *b = right;
    if (b->comparisons) ++*b->comparisons;
    return strcmp(a->name, b->name);
}

/* Parameters come before aliases of the same name. */
static int compare_entries(const void *left, const void *right) {
    const struct own_name *a = left, *b = right;
    int order = compare_names(a, b);
    return order ? order : (a->alias != NULL) - (b->alias != NULL);
}

static struct own_name *find_name(const struct loading *l, const char *name) {
    return bsearch(&(struct own_name){.name = name}, l->names, l->count, sizeof *l->names, compare_names);
}

static status index_names(struct loading *l) {
    const struct safetensors_target *target = l->target;
    size_t count = target->alias_count, kept = 0;
    for (size_t s = 0; s < target->set_count; s++) count += target->sets[s]->count;
    l->names = calloc(count + 1, sizeof *l->names);
    if (!l->names) return status_memory("the names of the parameters");
    struct own_name *next = l->names;
    for (size_t s = 0; s < target->set_count; s++)
        for (size_t i = 0; i < target->sets[s]->count; i++, next++)
            *next = (struct own_name){target->sets[s]->items[i].name,
                                      &target->sets[s]->items[i],
                                      NULL,
                                      (size_t)(next - l->names),
                                      false,
                                      target->comparisons};
    for (size_t i = 0; i < target->alias_count; i++)
        *next++ = (struct own_name){target->aliases[i].name, NULL, &target->aliases[i], 0, false, target->comparisons};
    qsort(l->names, count, sizeof *l->names, compare_entries);
    for (size_t i = 0; i < count; i++)
        if (i == 0 || compare_names(&l->names[i], &l->names[kept - 1]) != 0) l->names[kept++] = l->names[i];
    l->count = kept;
    for (size_t i = 0; i < target->product_count; i++) {
        struct own_name *product = find_name(l, target->products[i]);
        if (product) product->is_product = true;
    }
    return OK;
}

static const struct param *find_param(const struct loading *l, const char *name) {
    const struct own_name *found = find_name(l, name);
    return found ? found->param : NULL;
}

static const struct safetensors_alias *find_alias(const struct loading *l, const char *name) {
    const struct own_name *found = find_name(l, name);
    return found ? found->alias : NULL;
}

bool loading_is_carried_state(const char *name) { return text_ends_with(name, ".carried_state"); }

/* What is no weight: PyTorch's batch counter of BatchNorm, which only momentum=None uses, and states of rows. */
static bool is_no_weight(const char *name) {
    const char *dot = strrchr(name, '.');
    return strcmp(dot ? dot + 1 : name, "num_batches_tracked") == 0 || loading_is_carried_state(name);
}

/* Whether the names of all tensors start with l->prefix and [more]. */
static bool is_common_prefix(const struct loading *l, const char *more) {
    const char *name;
    json_t *entry;
    size_t count = 0;
    json_object_foreach(l->file.header, name, entry) {
        if (!safetensors_is_tensor(name)) continue;
        if (!starts_with(name + l->prefix.length, more)) return false;
        if (find_param(l, name + l->prefix.length)) return false; /* a name of the model without prefix */
        count++;
    }
    return count > 0;
}

/* Finds the prefixes of wrappers: DistributedDataParallel's "module.", torch.compile's "_orig_mod.". */
static void find_prefix(struct loading *l) {
    static const char *const wrappers[] = {"module.", "_orig_mod."};
    for (size_t i = 0; i < 2 * sizeof wrappers / sizeof *wrappers; i++)
        if (is_common_prefix(l, wrappers[i % 2])) text_add(&l->prefix, wrappers[i % 2]);
}

/* ---- the file ---- */

static void copy_wanted(const struct loading *l) {
    const json_t *metadata = json_object_get(l->file.header, "__metadata__");
    for (size_t i = 0; i < l->target->wanted_count; i++) {
        struct safetensors_wanted *wanted = &l->target->wanted[i];
        const char *text = json_string_value(json_object_get(metadata, wanted->key));
        wanted->value = text ? strdup(text) : NULL;
    }
}

/* Whether a tensor has a name of the model after l->prefix and [length] more characters. */
static bool is_in_model(const struct loading *l, size_t length) {
    const char *name;
    json_t *entry;
    bool is_in = false;
    json_object_foreach(l->file.header, name, entry) {
        bool is_tensor = safetensors_is_tensor(name);
        is_in = is_in || (is_tensor && find_param(l, name + l->prefix.length + length));
    }
    return is_in;
}

#define MAX_PARTS 3 /* of a prefix */

static void find_member(struct loading *l) {
    SCOPED_TEXT part = {0};
    const char *first = NULL;
    json_t *entry;
    json_object_foreach(l->file.header, first, entry) {
        if (safetensors_is_tensor(first)) break;
    }
    const char *dot = first ? strchr(first + l->prefix.length, '.') : NULL;
    for (int i = 0; dot && i < MAX_PARTS; i++, dot = strchr(dot + 1, '.')) {
        text_clear(&part);
        text_add_bytes(&part, first + l->prefix.length, (size_t)(dot + 1 - first) - l->prefix.length);
        if (!is_common_prefix(l, text_string(&part))) break;
        if (!is_in_model(l, part.length)) continue;
        text_add(&l->prefix, text_string(&part));
        break;
    }
}

/* The length of "0." of "0.weight". */
static size_t module_length(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? (size_t)(dot + 1 - name) : 0;
}

/* The first parameter of a model whose parameters and buffers are all of one layer; else NULL. */
static const char *single_module(const struct loading *l) {
    const char *first = NULL;
    for (size_t s = 0; s < l->target->set_count; s++)
        for (size_t i = 0; i < l->target->sets[s]->count; i++) {
            const char *name = l->target->sets[s]->items[i].name;
            first = first ? first : name;
            size_t length = module_length(first);
            if (module_length(name) != length || strncmp(name, first, length) != 0) return NULL;
        }
    return first;
}

/* A model that is a single module without a Sequential around it, such as torch.nn.Linear(20, 1), has the names
 * "weight" and "bias". They get the name of the model's only layer. */
static void name_module(struct loading *l) {
    const char *module = single_module(l), *name;
    json_t *entry, *named = json_object();
    size_t length = module ? module_length(module) : 0;
    SCOPED_TEXT renamed = {0};
    json_object_foreach(l->file.header, name, entry) {
        bool is_tensor = safetensors_is_tensor(name);
        if (is_tensor && strchr(name, '.')) length = 0;
        text_clear(&renamed);
        text_printf(&renamed, "%.*s%s", is_tensor ? (int)length : 0, module ? module : "", name);
        json_object_set(named, text_string(&renamed), entry);
    }
    if (length > 0) {
        json_decref(l->file.header);
        l->file.header = named;
    } else {
        json_decref(named);
    }
}

static status loading_open(struct loading *l, const char *path) {
    TRY(index_names(l));
    if (l->target->tensors) {
        l->file = *l->target->tensors;
        l->file.bytes = NULL;
        json_incref(l->file.header);
    } else {
        TRY(tensor_index_is_name(path) ? tensor_index_read(path, &l->file)
            : l->target->is_torch      ? torch_file_read(path, &l->file)
                                       : safetensors_read(path, &l->file));
    }
    copy_wanted(l);
    find_prefix(l);
    return OK;
}

static void loading_close(struct loading *l) {
    text_free(&l->prefix);
    free(l->names);
    safetensors_close(&l->file);
}

/* ---- values ---- */

static status check_type(const struct loading *l, const char *name, const struct safetensors_entry *entry) {
    if (entry->dtype->convert) return OK;
    return safetensors_bad(&l->file, name, "its dtype must be F32, F64, F16 or BF16");
}

static status read_entry(const struct loading *l, const char *name, const json_t *entry,
                         struct safetensors_entry *out) {
    TRY(safetensors_entry(&l->file, name, entry, out));
    return check_type(l, name, out);
}

static void add_shape(struct text *out, int dims, const int64_t *shape) {
    text_add(out, "(");
    for (int d = 0; d < dims; d++) text_printf(out, "%s%lld", d ? ", " : "", (long long)shape[d]);
    text_add(out, dims == 1 ? ",)" : ")");
}

/* Rejects the first of the converted values (found->count) that is not finite. */
static status check_finite(const struct loading *l, const char *name, const struct safetensors_entry *found,
                           const float *values) {
    size_t at = 0;
    while (at < found->count && isfinite(values[at])) at++;
    if (at == found->count) return OK;
    double value = (double)values[at];
    if (found->dtype->bytes == sizeof value)
        memcpy(&value, l->file.data + found->offset + at * sizeof value, sizeof value);
    SCOPED_TEXT what = {0};
    text_printf(&what, "value %zu (from 0) is ", at);
    if (isfinite(value))
        text_printf(&what, "%g, too large for float32", value);
    else
        text_printf(&what, "%s; a run starts from finite numbers", isnan(value) ? "NaN" : value > 0 ? "Inf" : "-Inf");
    return safetensors_bad(&l->file, name, text_string(&what));
}

/* ---- loading by the names of the model ---- */

static const json_t *find(const struct loading *l, const char *name) {
    SCOPED_STRING wrapped = text_format("%s%s", text_string(&l->prefix), name);
    const json_t *entry = json_object_get(l->file.header, wrapped);
    return entry;
}

/* The tensor of a parameter; the file may have a tied one under an alias only. */
static const json_t *find_any(const struct loading *l, const char *name) {
    const json_t *entry = find(l, name);
    for (size_t i = 0; !entry && i < l->target->alias_count; i++)
        if (strcmp(l->target->aliases[i].of, name) == 0) entry = find(l, l->target->aliases[i].name);
    return entry;
}

static status compare_param(const struct loading *l, const struct param *param, struct text *differences) {
    const json_t *entry = find_any(l, param->name);
    struct safetensors_entry found;
    if (!entry) {
        text_printf(differences, "\n  %s: ", param->name);
        add_shape(differences, param->dims, param->shape);
        text_add(differences, " in the model, not in the file");
        return OK;
    }
    TRY(read_entry(l, param->name, entry, &found));
    if (found.dims == param->dims && memcmp(found.shape, param->shape, (size_t)found.dims * sizeof *found.shape) == 0)
        return OK;
    text_printf(differences, "\n  %s: ", param->name);
    add_shape(differences, found.dims, found.shape);
    text_add(differences, " in the file, ");
    add_shape(differences, param->dims, param->shape);
    text_add(differences, " in the model");
    return OK;
}

/* Whether the file has the matrix [param] with its dimensions swapped, (in, out) instead of (out, in). */
static bool is_transposed(const struct loading *l, const struct param *param) {
    const json_t *entry = find_any(l, param->name);
    struct safetensors_entry found;
    if (!entry || param->dims != 2 || param->shape[0] == param->shape[1]) return false;
    status s = read_entry(l, param->name, entry, &found);
    bool is_readable = s == OK;
    status_free(s);
    return is_readable && found.dims == 2 && found.shape[0] == param->shape[1] && found.shape[1] == param->shape[0];
}

static bool has_transposed(const struct loading *l) {
    for (size_t s = 0; s < l->target->set_count; s++)
        for (size_t i = 0; i < l->target->sets[s]->count; i++)
            if (is_transposed(l, &l->target->sets[s]->items[i])) return true;
    return false;
}

/* Lists the square product matrices of a file whose other matrices are (in, out): they probably are transposed too. */
static void add_squares(const struct loading *l, struct text *differences) {
    bool is_any = false;
    for (size_t i = 0; i < l->target->product_count; i++) {
        const struct param *param = find_param(l, l->target->products[i]);
        if (!param || param->dims != 2 || param->shape[0] != param->shape[1] || !find_any(l, param->name)) continue;
        is_any = true;
        text_printf(differences, "\n  %s: ", param->name);
        add_shape(differences, param->dims, param->shape);
        text_add(differences, " is square and cannot be distinguished by shape");
    }
    text_printf(differences,
                "\nsome matrices of the file match only transposed, (in, out) as in Hugging Face's Conv1D; transpose "
                "them before saving%s",
                is_any ? ", and also the square ones, which are then transposed too" : "");
}

/* An alias of a tied parameter must have the same values. */
static status compare_alias(const struct loading *l, const struct safetensors_alias *alias, struct text *differences) {
    struct safetensors_entry one, other;
    const json_t *entry = find(l, alias->name), *original = find_any(l, alias->of);
    TRY(read_entry(l, alias->name, entry, &one));
    TRY(read_entry(l, alias->of, original, &other));
    bool is_same = one.dtype == other.dtype && one.dims == other.dims &&
                   memcmp(one.shape, other.shape, (size_t)one.dims * sizeof *one.shape) == 0 &&
                   memcmp(l->file.data + one.offset, l->file.data + other.offset, one.count * one.dtype->bytes) == 0;
    if (!is_same)
        text_printf(differences, "\n  %s: differs from %s, to which the model ties it", alias->name, alias->of);
    return OK;
}

/* A name of the file that is not a parameter's. */
static status compare_other(const struct loading *l, const char *name, struct text *differences) {
    const struct safetensors_alias *alias = find_alias(l, name);
    if (alias) return compare_alias(l, alias, differences);
    if (!is_no_weight(name)) text_printf(differences, "\n  %s: in the file, not in the model", name);
    return OK;
}

static status compare_all(const struct loading *l, struct text *differences) {
    const char *name;
    json_t *entry;
    for (size_t s = 0; s < l->target->set_count; s++)
        for (size_t i = 0; i < l->target->sets[s]->count; i++)
            TRY(compare_param(l, &l->target->sets[s]->items[i], differences));
    json_object_foreach(l->file.header, name, entry) {
        const char *own = name + l->prefix.length;
        if (safetensors_is_tensor(name) && !find_param(l, own)) TRY(compare_other(l, own, differences));
    }
    if (has_transposed(l)) add_squares(l, differences);
    return OK;
}

static status compare(const struct loading *l) {
    SCOPED_TEXT differences = {0};
    status s = compare_all(l, &differences);
    if (!s && differences.length)
        s = status_data("%s: does not match the model:%s", l->file.path, text_string(&differences));
    return s;
}

static status fill(const struct loading *l, const struct params *params) {
    for (size_t i = 0; i < params->count; i++) {
        struct safetensors_entry found;
        TRY(read_entry(l, params->items[i].name, find_any(l, params->items[i].name), &found));
        found.dtype->convert(l->file.data + found.offset, params_value(params, i), found.count);
        TRY(check_finite(l, params->items[i].name, &found, params_value(params, i)));
        if (l->target->used) l->target->used(l->target->user, &params->items[i], found.offset);
    }
    return OK;
}

status safetensors_load(const char *path, const struct safetensors_target *target) {
    struct loading l = {.target = target};
    status s = loading_open(&l, path);
    if (!s) find_member(&l);
    if (!s && !l.prefix.length) name_module(&l);
    if (!s) s = compare(&l);
    for (size_t i = 0; !s && i < target->set_count; i++) s = fill(&l, target->sets[i]);
    loading_close(&l);
    return s;
}

/* ---- loading by a map: what is found out about the file ---- */

/* Each tensor of the file becomes pieces of parameters; then each parameter's pieces are compared with its shape, and
 * at last, when all match, the values are copied. */

/* A tensor of the file, or some of its rows, as values of a parameter. */
struct tensor_piece {
    const char *tensor;
    struct safetensors_entry entry;
    int dims; /* in the layout of the model */
    int64_t shape[MAX_DIMS];
    enum weight_layout layout;
    int part, parts;         /* as in weight_rule */
    int64_t row_to_add;      /* as in weight_rule */
    bool is_divided;         /* the piece is [rows] rows from [first_row] on */
    int64_t first_row, rows; /* 0 unless it is divided */
    struct tensor_piece *next;
};

/* A parameter or buffer of the model; its pieces in the order of their parts. */
struct param_slot {
    const struct params *set;
    size_t index;
    struct tensor_piece *pieces;
    bool is_missing; /* the file has no values for it */
};

/* What becomes of a tensor of the file. */
struct tensor_use {
    const char *name;
    const struct weight_rule *rule; /* NULL: none matched */
    bool is_used, is_skipped;       /* skipped by source->skip */
    int64_t rows, divided;          /* of a tensor that is divided: its rows, and those that parameters get */
    const char *missing;            /* the parameter that the model does not have; NULL: none */
};

struct tensor_mapping {
    struct loading loading;
    const struct weight_source *source;
    struct weight_map map;
    struct param_slot *slots;
    size_t slot_count;
    struct tensor_use *uses;
    size_t use_count;
    struct text differences;
    struct arena *arena;
};

static inline const struct param *slot_param(const struct param_slot *slot) { return &slot->set->items[slot->index]; }

static bool is_product(const struct tensor_mapping *m, const struct param *param) {
    return find_name(&m->loading, param->name)->is_product;
}

/* ---- sentences about what was found ---- */

#define MAX_LISTED 8 /* names in a line of the report */

static void describe_tensor(const struct tensor_piece *p, struct text *out) {
    text_printf(out, "%s of the file is ", p->tensor);
    add_shape(out, p->entry.dims, p->entry.shape);
    if (p->layout == LAYOUT_TRANSPOSED && p->entry.dims == 2) {
        text_add(out, ", transposed ");
        add_shape(out, p->dims, p->shape);
    }
}

static void describe_param(const struct param *param, struct text *out) {
    text_printf(out, "%s of the model is ", param->name);
    add_shape(out, param->dims, param->shape);
}

/* Whether the tensor has more rows than the table of an embedding. */
static bool is_longer_table(const struct tensor_mapping *m, const struct tensor_piece *piece,
                            const struct param *param) {
    return piece->dims == 2 && param->dims == 2 && piece->shape[1] == param->shape[1] &&
           piece->shape[0] > param->shape[0] && !is_product(m, param);
}

static void add_mismatch(const struct tensor_mapping *m, const struct param_slot *slot,
                         const struct tensor_piece *piece, struct text *out) {
    const struct param *param = slot_param(slot);
    text_add(out, "\n  ");
    describe_tensor(piece, out);
    text_add(out, "; ");
    describe_param(param, out);
    if (piece->row_to_add >= 0)
        text_printf(out, ", whose rows cannot be added to row %lld", (long long)piece->row_to_add);
    else if (piece->layout == LAYOUT_UNSTATED && piece->dims == 2 && param->dims == 2 &&
             piece->shape[0] == param->shape[1] && piece->shape[1] == param->shape[0])
        text_add(out, "; it matches with `transpose` in its rule");
    else if (is_longer_table(m, piece, param))
        text_printf(out, "; it matches with `num_embeddings: %lld` of the layer", (long long)piece->shape[0]);
}

static void add_parts(const struct param_slot *slot, struct text *out) {
    int parts = 0;
    text_add(out, "\n  ");
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0) continue;
        if (parts) text_add(out, ", ");
        describe_tensor(p, out);
        text_printf(out, " (part %d of %d)", p->part, p->parts);
        parts = p->parts > parts ? p->parts : parts;
    }
    text_printf(out, "; %d part%s, each once, must give the rows of ", parts, text_plural((uint64_t)parts, "s"));
    text_printf(out, "%s, and ", slot_param(slot)->name);
    describe_param(slot_param(slot), out);
}

static void add_unused(const struct tensor_mapping *m, struct text *out) {
    for (size_t i = 0; i < m->slot_count; i++) {
        const struct param *param = slot_param(&m->slots[i]);
        if (!m->slots[i].is_missing) continue;
        text_printf(out, "\n  %s: ", param->name);
        add_shape(out, param->dims, param->shape);
        text_add(out, " in the model, not in the file");
    }
    for (size_t i = 0; i < m->use_count; i++) {
        const struct tensor_use *use = &m->uses[i];
        if (!use->missing) continue;
        text_printf(out, "\n  %s: in the file, not in the model", use->name);
        if (strcmp(use->missing, use->name) != 0) text_printf(out, ", which has no %s", use->missing);
    }
}

/* ---- the report ---- */

struct listing {
    size_t count;
    struct text names;
};

static void list_name(struct listing *list, const char *name) {
    if (list->count++ < MAX_LISTED) text_printf(&list->names, "%s%s", list->names.length ? ", " : "", name);
}

/* Adds "\n  WHAT: a, b, c and 5 more" and empties the list. */
static void end_list(struct listing *list, const char *what, struct text *out) {
    if (list->count) text_printf(out, "\n  %s: %s", what, text_string(&list->names));
    if (list->count > MAX_LISTED) text_printf(out, " and %zu more", list->count - MAX_LISTED);
    text_free(&list->names);
    *list = (struct listing){0};
}

/* "\n  h.*.c_fc.weight -> h.*.c_fc.weight, transposed: 12 tensors" */
static void report_rule(const struct tensor_mapping *m, const struct weight_rule *rule, struct text *out) {
    size_t used = 0;
    for (size_t i = 0; i < m->use_count; i++) used += m->uses[i].rule == rule && m->uses[i].is_used;
    if (!used) return;
    text_printf(out, "\n  %s -> ", rule->pattern);
    for (size_t i = 0; i < rule->target_count; i++) text_printf(out, "%s%s", i ? ", " : "", rule->targets[i]);
    if (rule->layout == LAYOUT_TRANSPOSED) text_add(out, ", transposed");
    if (rule->layout == LAYOUT_RESHAPED) text_add(out, ", reshaped");
    if (rule->parts) text_printf(out, ", part %d of %d", rule->part, rule->parts);
    if (rule->row_to_add >= 0) text_printf(out, ", row %lld added to each row", (long long)rule->row_to_add);
    text_printf(out, ": %zu tensor%s", used, text_plural(used, "s"));
}

static void report_unused(const struct tensor_mapping *m, struct text *out) {
    struct listing list = {0};
    for (size_t i = 0; i < m->use_count; i++)
        if (m->uses[i].is_skipped) list_name(&list, m->uses[i].name);
    end_list(&list, "not used, as `skip` matches", out);
    for (size_t i = 0; i < m->use_count; i++)
        if (m->uses[i].rule && m->uses[i].rule->target_count == 0) list_name(&list, m->uses[i].name);
    end_list(&list, "not used, as the map has no use for them", out);
    for (size_t i = 0; i < m->use_count; i++)
        if (m->uses[i].missing) list_name(&list, m->uses[i].name);
    end_list(&list, "not used, as the model has no such parameters", out);
    for (size_t i = 0; i < m->slot_count; i++)
        if (m->slots[i].is_missing) list_name(&list, slot_param(&m->slots[i])->name);
    end_list(&list, "keep their initial values, as the file has none", out);
}

static void report_mapped(const struct tensor_mapping *m, struct text *out) {
    size_t used = 0, filled = 0, same = 0;
    for (size_t i = 0; i < m->use_count; i++) {
        used += m->uses[i].is_used;
        same += m->uses[i].is_used && !m->uses[i].rule;
    }
    for (size_t i = 0; i < m->slot_count; i++) filled += !m->slots[i].is_missing;
    text_printf(out, "%s: %zu of %zu tensors used, for %zu of %zu parameters", m->loading.file.path, used, m->use_count,
                filled, m->slot_count);
    for (size_t i = 0; i < m->map.count; i++) report_rule(m, &m->map.rules[i], out);
    if (same) text_printf(out, "\n  with the same name: %zu tensor%s", same, text_plural(same, "s"));
    report_unused(m, out);
}

/* ---- tensors to pieces ---- */

static struct param_slot *find_slot(struct tensor_mapping *m, const char *name) {
    const struct own_name *found = find_name(&m->loading, name);
    if (found && found->alias) found = find_name(&m->loading, found->alias->of);
    return found && found->param ? &m->slots[found->index] : NULL;
}

static void add_piece(struct tensor_mapping *m, struct param_slot *slot, const struct tensor_piece *piece) {
    struct tensor_piece *copy = arena_alloc(m->arena, sizeof *copy);
    struct tensor_piece **end = &slot->pieces;
    *copy = *piece;
    while (*end && (*end)->part <= copy->part) end = &(*end)->next;
    copy->next = *end;
    *end = copy;
}

/* The name without the prefix of the map. */
static const char *stripped_name(const struct tensor_mapping *m, const char *own) {
    size_t prefix = strlen(m->map.prefix);
    return strncmp(own, m->map.prefix, prefix) == 0 ? own + prefix : own;
}

static bool matches(const struct tensor_mapping *m, const char *pattern, const char *own) {
    return weight_pattern_matches(pattern, own) || weight_pattern_matches(pattern, stripped_name(m, own));
}

static bool is_skipped(const struct tensor_mapping *m, const char *own) {
    const struct string_list *skip = &m->source->skip;
    for (size_t i = 0; i < skip->count; i++)
        if (matches(m, skip->items[i], own)) return true;
    return false;
}

static const struct weight_rule *find_rule(const struct tensor_mapping *m, const char *stripped) {
    for (size_t i = 0; i < m->map.count; i++)
        if (weight_pattern_matches(m->map.rules[i].pattern, stripped)) return &m->map.rules[i];
    return NULL;
}

/* The tensor's dimensions as the rule gives them to the model. */
static void apply_layout(struct tensor_piece *piece) {
    const struct safetensors_entry *e = &piece->entry;
    piece->dims = e->dims;
    memcpy(piece->shape, e->shape, sizeof piece->shape);
    if (piece->layout != LAYOUT_TRANSPOSED || e->dims != 2) return;
    piece->shape[0] = e->shape[1];
    piece->shape[1] = e->shape[0];
}

static void add_target(struct tensor_mapping *m, struct tensor_use *use, const char *name, struct tensor_piece *piece,
                       bool is_divided) {
    struct param_slot *slot = find_slot(m, name);
    if (!slot) {
        use->missing = name;
        return;
    }
    const struct param *param = slot_param(slot);
    if (is_divided) {
        piece->is_divided = true;
        piece->rows = param->shape[0];
        use->rows = piece->dims ? piece->shape[0] : -1;
        use->divided += piece->rows;
    }
    use->is_used = true;
    add_piece(m, slot, piece);
    piece->first_row += piece->rows;
}

/* Adds the pieces of the tensor [name] of the file, which is [own] without prefixes of wrappers. */
static status take_tensor(struct tensor_mapping *m, const char *name, const char *own, const json_t *entry) {
    struct tensor_use *use = &m->uses[m->use_count++];
    const char *stripped = stripped_name(m, own);
    use->name = own;
    use->is_skipped = is_skipped(m, own);
    const struct weight_rule *rule = use->rule = use->is_skipped ? NULL : find_rule(m, stripped);
    if (use->is_skipped || (rule && rule->target_count == 0)) return OK;
    struct tensor_piece piece = {.tensor = own, .row_to_add = rule ? rule->row_to_add : -1};
    piece.layout = rule ? rule->layout : LAYOUT_UNSTATED;
    piece.part = rule ? rule->part : 0;
    piece.parts = rule ? rule->parts : 0;
    TRY(safetensors_entry(&m->loading.file, name, entry, &piece.entry));
    apply_layout(&piece);
    for (size_t i = 0; rule && i < rule->target_count; i++)
        add_target(m, use, weight_pattern_replace(rule->pattern, stripped, rule->targets[i], m->arena), &piece,
                   rule->target_count > 1);
    if (!rule) add_target(m, use, own, &piece, false);
    return use->is_used ? check_type(&m->loading, name, &piece.entry) : OK;
}

static status add_tensors(struct tensor_mapping *m) {
    const char *name;
    json_t *entry;
    m->uses = arena_alloc(m->arena, (json_object_size(m->loading.file.header) + 1) * sizeof *m->uses);
    json_object_foreach(m->loading.file.header, name, entry) {
        const char *own = name + m->loading.prefix.length;
        if (safetensors_is_tensor(name) && !is_no_weight(own)) TRY(take_tensor(m, name, own, entry));
    }
    return OK;
}

/* ---- comparison ---- */

static bool has_shape(const struct tensor_piece *p, const struct param *param) {
    if (p->layout == LAYOUT_RESHAPED) return p->entry.count == param->count;
    return p->dims == param->dims && memcmp(p->shape, param->shape, (size_t)p->dims * sizeof *p->shape) == 0;
}

static bool has_row(const struct tensor_piece *p, const struct param *param) {
    return p->entry.dims == 2 && param->dims == 2 && p->entry.shape[1] == param->shape[1] &&
           p->row_to_add < p->entry.shape[0];
}

/* Whether the dimensions after the first are equal. */
static bool has_columns(const struct tensor_piece *p, const struct param *param) {
    return p->dims == param->dims && p->dims > 0 &&
           memcmp(p->shape + 1, param->shape + 1, (size_t)(p->dims - 1) * sizeof *p->shape) == 0;
}

/* Whether parts 1 to N are there once each, and together have the rows of the parameter. */
static bool parts_match(const struct param_slot *slot, const struct param *param) {
    int64_t rows = 0;
    int part = 0, parts = 0;
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0) continue;
        if (++part != p->part || (parts && parts != p->parts) || !has_columns(p, param)) return false;
        parts = p->parts;
        if (p->shape[0] > param->shape[0]) return false;
        rows += p->shape[0];
    }
    return part == parts && rows == param->shape[0];
}

static bool is_same(const struct tensor_mapping *m, const struct tensor_piece *a, const struct tensor_piece *b) {
    const unsigned char *data = m->loading.file.data;
    return a->entry.dtype == b->entry.dtype && a->layout == b->layout && a->entry.dims == b->entry.dims &&
           a->is_divided == b->is_divided && a->first_row == b->first_row &&
           memcmp(a->entry.shape, b->entry.shape, (size_t)a->entry.dims * sizeof *a->entry.shape) == 0 &&
           memcmp(data + a->entry.offset, data + b->entry.offset, a->entry.count * a->entry.dtype->bytes) == 0;
}

static bool piece_matches(const struct tensor_piece *p, const struct param *param) {
    if (p->row_to_add >= 0) return has_row(p, param);
    if (p->is_divided) return has_columns(p, param) && p->first_row + p->rows <= p->shape[0];
    return has_shape(p, param);
}

static void compare_slot(struct tensor_mapping *m, struct param_slot *slot) {
    const struct param *param = slot_param(slot);
    const struct tensor_piece *whole = NULL;
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0 || !whole) {
            if (p->row_to_add < 0) whole = p;
            if (!p->parts && !piece_matches(p, param)) add_mismatch(m, slot, p, &m->differences);
        } else if (p->parts ? !whole->parts : !is_same(m, whole, p)) {
            text_printf(&m->differences, "\n  %s and %s of the file are both for %s and differ", whole->tensor,
                        p->tensor, param->name);
        }
    }
    slot->is_missing = !whole;
    if (whole && whole->parts && !parts_match(slot, param)) add_parts(slot, &m->differences);
}

/* All rows of a tensor that is divided must be used. */
static void compare_divided(struct tensor_mapping *m) {
    for (const struct tensor_use *use = m->uses; use < m->uses + m->use_count; use++)
        if (use->divided && use->rows >= 0 && use->rows != use->divided)
            text_printf(&m->differences,
                        "\n  %s: %lld rows in the file, but the parameters it is divided among have %lld", use->name,
                        (long long)use->rows, (long long)use->divided);
}

/* Whether the tensor matches the parameter only with its dimensions swapped. */
static bool needs_transpose(const struct tensor_piece *p, const struct param *param) {
    if (p->layout == LAYOUT_TRANSPOSED) return p->entry.dims == 2;
    return p->layout == LAYOUT_UNSTATED && p->dims == 2 && param->dims == 2 && p->shape[0] != p->shape[1] &&
           p->shape[0] == param->shape[1] && p->shape[1] == param->shape[0];
}

/* A square matrix has the same shape in both layouts: a rule must state it when other matrices are transposed. */
static void compare_squares(struct tensor_mapping *m) {
    bool is_any_transposed = false;
    for (size_t i = 0; i < m->slot_count; i++)
        for (const struct tensor_piece *p = m->slots[i].pieces; p; p = p->next)
            is_any_transposed |= needs_transpose(p, slot_param(&m->slots[i]));
    for (size_t i = 0; is_any_transposed && i < m->slot_count; i++) {
        const struct param *param = slot_param(&m->slots[i]);
        for (const struct tensor_piece *p = m->slots[i].pieces; p; p = p->next)
            if (p->layout == LAYOUT_UNSTATED && p->dims == 2 && p->shape[0] == p->shape[1] && is_product(m, param))
                text_printf(&m->differences,
                            "\n  %s of the file is square, so its shape does not show whether it must be transposed "
                            "like others; its rule must have `transpose` or `as is`",
                            p->tensor);
    }
}

static void compare_pattern(struct tensor_mapping *m, const char *key, const char *pattern) {
    for (size_t i = 0; i < m->use_count; i++)
        if (matches(m, pattern, m->uses[i].name)) return;
    text_printf(&m->differences, "\n  %s: the pattern '%s' matches no tensor of the file", key, pattern);
}

/* A pattern without a tensor is a typo; not in a ready map, nor in a map of several models (partial). */
static void compare_patterns(struct tensor_mapping *m) {
    for (size_t i = 0; i < m->source->skip.count; i++) compare_pattern(m, "skip", m->source->skip.items[i]);
    for (size_t i = 0; m->source->rules.count && !m->source->is_partial && i < m->map.count; i++)
        compare_pattern(m, "map", m->map.rules[i].pattern);
}

static status compare_mapped(struct tensor_mapping *m) {
    for (size_t i = 0; i < m->slot_count; i++) compare_slot(m, &m->slots[i]);
    compare_divided(m);
    compare_squares(m);
    compare_patterns(m);
    if (!m->source->is_partial) add_unused(m, &m->differences);
    if (!m->differences.length) return OK;
    return status_data("%s: does not match the model:%s", m->loading.file.path, text_string(&m->differences));
}

/* ---- values ---- */

/* Copies rows of [values], the tensor in the file's layout, to [to], or adds one row to each row there. */
static void place_values(const struct tensor_piece *p, const struct param *param, const float *values, float *to) {
    size_t columns = p->dims == 2 ? (size_t)p->shape[1] : 0, rows = p->dims ? (size_t)p->shape[0] : 1;
    size_t first = (size_t)p->first_row, count = p->is_divided ? (size_t)p->rows : rows;
    if (p->row_to_add >= 0) {
        for (size_t i = 0; columns > 0 && i < param->count; i++)
            to[i] += values[(size_t)p->row_to_add * columns + i % columns];
    } else if (p->layout == LAYOUT_TRANSPOSED && p->dims == 2) {
        for (size_t r = 0; r < count; r++)
            for (size_t c = 0; c < columns; c++) to[r * columns + c] = values[c * rows + first + r];
    } else {
        size_t row = p->entry.count / (rows ? rows : 1);
        memcpy(to, values + first * row, count * row * sizeof *to);
    }
}

static status fill_piece(struct tensor_mapping *m, const struct tensor_piece *p, const struct param *param, float *to) {
    SCOPED_BUFFER float *values = NULL;
    TRY(buffer_new(p->entry.count * sizeof *values, "a tensor of the file", (void **)&values));
    p->entry.dtype->convert(m->loading.file.data + p->entry.offset, values, p->entry.count);
    status s = check_finite(&m->loading, p->tensor, &p->entry, values);
    if (!s) place_values(p, param, values, to);
    if (!s && m->loading.target->used) m->loading.target->used(m->loading.target->user, param, p->entry.offset);
    return s;
}

static status fill_slot(struct tensor_mapping *m, const struct param_slot *slot) {
    float *to = params_value(slot->set, slot->index);
    bool is_whole = false;
    for (const struct tensor_piece *p = slot->pieces; p; p = p->next) {
        if (p->row_to_add >= 0 || (is_whole && !p->parts)) continue; /* later; an equal copy */
        TRY(fill_piece(m, p, slot_param(slot), to));
        is_whole = true;
        to += p->parts ? p->entry.count : 0;
    }
    for (const struct tensor_piece *p = slot->pieces; p && is_whole; p = p->next)
        if (p->row_to_add >= 0) TRY(fill_piece(m, p, slot_param(slot), params_value(slot->set, slot->index)));
    return OK;
}

/* ---- all ---- */

static void add_slots(struct tensor_mapping *m) {
    const struct safetensors_target *target = m->loading.target;
    for (size_t s = 0; s < target->set_count; s++) m->slot_count += target->sets[s]->count;
    m->slots = arena_alloc(m->arena, (m->slot_count + 1) * sizeof *m->slots);
    struct param_slot *slot = m->slots;
    for (size_t s = 0; s < target->set_count; s++)
        for (size_t i = 0; i < target->sets[s]->count; i++)
            *slot++ = (struct param_slot){.set = target->sets[s], .index = i};
}

static status load_mapped(struct tensor_mapping *m, struct text *report) {
    add_slots(m);
    TRY(add_tensors(m));
    TRY(compare_mapped(m));
    for (size_t i = 0; i < m->slot_count; i++) TRY(fill_slot(m, &m->slots[i]));
    report_mapped(m, report);
    return OK;
}

status mapped_load(const char *path, const struct safetensors_target *target, const struct weight_source *source,
                   struct text *report) {
    struct tensor_mapping m = {.loading = {.target = target}, .source = source, .arena = arena_create()};
    weight_map_create(source, m.arena, &m.map);
    status s = loading_open(&m.loading, path);
    if (!s) s = load_mapped(&m, report);
    text_free(&m.differences);
    loading_close(&m.loading);
    arena_destroy(m.arena);
    return s;
}
