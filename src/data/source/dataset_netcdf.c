/* netCDF-4 files, which are HDF5 files with conventions: variables over shared dimensions, packed numbers, missing
 * values and axes of time. Rows are those of xarray's Dataset.to_dataframe(): one for each combination of the
 * dimensions of the largest variable that is used, in which a variable with fewer dimensions repeats its values. The
 * attributes are read here, the values by the format hdf5. */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/hdf5.h"
#include "base/files/io.h"
#include "data/source/frame.h"

#define MAX_TEXT 256  /* bytes of an attribute that is read */
#define MAX_MISSING 8 /* values of missing_value */

struct variable {
    const char *name;
    int dims;
    hsize_t shape[MAX_DIMS];
    const char *axes[MAX_DIMS]; /* names of the dimensions */
    const char *unread;
    H5T_class_t class;
    size_t bytes;
    bool is_signed, is_unsigned; /* is_unsigned: _Unsigned, the bits of a signed integer are those of an unsigned one */
    double missing[MAX_MISSING + 2];
    size_t n_missing;
    double scale, offset;
    bool is_packed;
    char units[MAX_TEXT], calendar[MAX_TEXT], bounds[MAX_TEXT];
    double date_start, date_unit; /* seconds; unit 0: not a date */
    size_t strides[MAX_DIMS];     /* by dimension of the base; 0: it does not have it */
    size_t group, first;          /* of its values in a row of the group */
};

/* Variables of one dimension with as many rows, or one of several dimensions, which one source reads. */
struct group {
    struct source *source;
    hsize_t rows;
    bool are_vectors;
    bool has_first; /* its rows are those of the base's first dimension; else all of them are read at once */
    struct string_list names;
    double *values; /* (count, source->input_size): rows first .. first + count - 1 */
    size_t first, count, capacity;
};

struct netcdf {
    const char *path;
    struct arena *arena;
    struct variable *variables; /* (count) */
    size_t count, capacity;
    int dims; /* of the base */
    hsize_t shape[MAX_DIMS];
    struct group *groups; /* (n_groups), once values are read */
    size_t n_groups;
};

/* ---- attributes ---- */

/* A text of fixed or variable length; "": there is none, or it is too long. */
static void read_text(hid_t object, const char *name, char out[MAX_TEXT]) {
    *out = 0;
    if (hdf5_read_text(object, name, out, MAX_TEXT)) return;
    *out = 0;
    if (H5Aexists(object, name) <= 0) return;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    hid_t space = H5Aget_space(attribute), memory = H5Tcopy(H5T_C_S1);
    char *text = NULL;
    bool is_text = type >= 0 && H5Tget_class(type) == H5T_STRING && H5Tis_variable_str(type) > 0 &&
                   H5Sget_simple_extent_npoints(space) == 1;
    if (is_text && H5Tset_size(memory, H5T_VARIABLE) >= 0 && H5Tset_cset(memory, H5Tget_cset(type)) >= 0 &&
        H5Aread(attribute, memory, &text) >= 0 && text && strlen(text) < MAX_TEXT)
        memcpy(out, text, strlen(text) + 1);
    if (text) H5free_memory(text);
    H5Tclose(memory);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
}

/* Adds the numbers of an attribute, at most [max]; the number of them. */
static size_t read_numbers(hid_t object, const char *name, double *out, size_t max) {
    double values[MAX_MISSING];
    size_t count = 0;
    if (H5Aexists(object, name) <= 0) return 0;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    hid_t space = H5Aget_space(attribute);
    hssize_t points = space < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    bool is_good = (class == H5T_INTEGER || class == H5T_FLOAT) && H5Tget_size(type) <= 8 && points > 0 &&
                   points <= MAX_MISSING && H5Aread(attribute, H5T_NATIVE_DOUBLE, values) >= 0;
    for (; is_good && count < (size_t)points && count < max; count++) out[count] = values[count];
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
    return count;
}

/* What netCDF's library writes where nobody has written a value; of bytes each value is one. */
static double default_fill(const struct variable *v) {
    if (v->class == H5T_FLOAT) return v->bytes == 4 ? (double)9.9692099683868690e+36f : 9.9692099683868690e+36;
    if (v->bytes == 4 && v->is_signed) return -2147483647.0;
    if (v->bytes == 8 && v->is_signed) return -9223372036854775806.0;
    return (double)NAN;
}

static void read_missing(hid_t dataset, struct variable *v) {
    size_t fills = read_numbers(dataset, "_FillValue", v->missing, 1);
    if (fills == 0) v->missing[0] = default_fill(v);
    v->n_missing = 1 + read_numbers(dataset, "missing_value", v->missing + 1, MAX_MISSING);
    v->scale = 1;
    v->offset = 0;
    v->is_packed = read_numbers(dataset, "scale_factor", &v->scale, 1) > 0;
    v->is_packed = read_numbers(dataset, "add_offset", &v->offset, 1) > 0 || v->is_packed;
    char text[MAX_TEXT];
    read_text(dataset, "_Unsigned", text);
    v->is_unsigned = v->class == H5T_INTEGER && v->is_signed && strcmp(text, "true") == 0;
}

/* ---- dates ---- */

static const struct {
    const char *name;
    double seconds;
} date_units[] = {{"days", 86400},  {"day", 86400},         {"d", 86400},          {"hours", 3600},
                  {"hour", 3600},   {"hrs", 3600},          {"hr", 3600},          {"h", 3600},
                  {"minutes", 60},  {"minute", 60},         {"mins", 60},          {"min", 60},
                  {"seconds", 1},   {"second", 1},          {"secs", 1},           {"sec", 1},
                  {"s", 1},         {"milliseconds", 1e-3}, {"millisecond", 1e-3}, {"msec", 1e-3},
                  {"ms", 1e-3},     {"microseconds", 1e-6}, {"microsecond", 1e-6}, {"nanoseconds", 1e-9},
                  {"weeks", 604800}};

/* Days since 1970-01-01 of a day in the Gregorian calendar, or in the Julian one. */
static double days_of(int year, int month, int day, bool is_julian) {
    long y = year - (month <= 2), m = month > 2 ? month - 3 : month + 9;
    long days = 365 * y + y / 4 + (153 * m + 2) / 5 + day - 1;
    return (double)(is_julian ? days - 719470 : days - y / 100 + y / 400 - 719468);
}

/* "2000-01-01 00:00:00 UTC": *seconds since 1970. */
static bool read_start(const char *text, bool is_mixed, double *seconds) {
    static const char *const zones[] = {"",      "Z",     "UTC",   "GMT",  "+00:00", "+0:00",
                                        "-0:00", "+0000", "00:00", "0:00", "+00",    NULL};
    int year, month, day, hour = 0, minute = 0, used = 0, more = 0;
    double second = 0;
    if (sscanf(text, "%d-%d-%d%n", &year, &month, &day, &used) != 3) return false;
    text += used;
    if ((*text == 'T' || *text == ' ') && text[1] >= '0' && text[1] <= '9') {
        text++;
        if (sscanf(text, "%d:%d%n", &hour, &minute, &used) == 2 && text[used] == ':' &&
            sscanf(text + used + 1, "%lf%n", &second, &more) == 1)
            used += 1 + more;
        else if (sscanf(text, "%d:%d%n", &hour, &minute, &used) != 2)
            hour = minute = used = 0;
        text += used;
    }
    while (*text == ' ') text++;
    size_t zone = 0;
    while (zones[zone] && strcmp(zones[zone], text) != 0) zone++;
    if (!zones[zone] || year < 1 || year > 9999 || month < 1 || month > 12 || day < 1 || day > 31) return false;
    bool is_julian = is_mixed && (year < 1582 || (year == 1582 && (month < 10 || (month == 10 && day < 15))));
    *seconds = days_of(year, month, day, is_julian) * 86400 + hour * 3600.0 + minute * 60.0 + second;
    return true;
}

/* "days since 2000-01-01", in the calendar of dates: the Gregorian one, with Julian days before 1582-10-15 where the
 * calendar is the mixed one, CF's standard. Numbers of other calendars stay numbers. */
static void find_date(hid_t dataset, struct variable *v) {
    read_text(dataset, "units", v->units);
    read_text(dataset, "calendar", v->calendar);
    const char *since = strstr(v->units, " since ");
    bool is_mixed = !*v->calendar || strcmp(v->calendar, "standard") == 0 || strcmp(v->calendar, "gregorian") == 0;
    if (!since || (!is_mixed && strcmp(v->calendar, "proleptic_gregorian") != 0)) return;
    for (size_t i = 0; i < sizeof date_units / sizeof *date_units; i++)
        if (strlen(date_units[i].name) == (size_t)(since - v->units) &&
            strncmp(v->units, date_units[i].name, (size_t)(since - v->units)) == 0 &&
            read_start(since + 7, is_mixed, &v->date_start))
            v->date_unit = date_units[i].seconds;
}

/* ---- variables ---- */

static void read_type(hid_t dataset, struct variable *v) {
    hid_t type = H5Dget_type(dataset);
    v->class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    v->bytes = type < 0 ? 0 : H5Tget_size(type);
    v->is_signed = v->class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    if (type >= 0) H5Tclose(type);
    if (v->class == H5T_STRING)
        v->unread = "texts of netCDF are not read; write the column as numbers";
    else if (v->class != H5T_INTEGER && v->class != H5T_FLOAT)
        v->unread = "only integers and floats are read";
}

static void read_shape(hid_t dataset, struct variable *v) {
    hid_t space = H5Dget_space(dataset);
    int dims = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    if (dims == 0) v->unread = "it is one value without dimensions";
    if (dims < 0 || dims > MAX_DIMS) v->unread = "it has more than 8 dimensions";
    if (!v->unread && H5Sget_simple_extent_dims(space, v->shape, NULL) == dims) v->dims = dims;
    if (space >= 0) H5Sclose(space);
}

/* The names of the dimensions, to which each element of DIMENSION_LIST refers. */
static void read_axes(struct netcdf *n, hid_t dataset, struct variable *v) {
    for (int i = 0; i < v->dims; i++) v->axes[i] = arena_printf(n->arena, "%llu", (unsigned long long)v->shape[i]);
    char class[MAX_TEXT];
    read_text(dataset, "CLASS", class);
    if (v->dims == 1 && strcmp(class, "DIMENSION_SCALE") == 0) v->axes[0] = arena_printf(n->arena, "/%s", v->name);
    if (H5Aexists(dataset, "DIMENSION_LIST") <= 0) return;
    hid_t attribute = H5Aopen(dataset, "DIMENSION_LIST", H5P_DEFAULT), type = H5Aget_type(attribute);
    hid_t space = H5Aget_space(attribute), of = type < 0 ? -1 : H5Tget_super(type);
    hvl_t lists[MAX_DIMS] = {{0}};
    bool is_list = type >= 0 && H5Tget_class(type) == H5T_VLEN && of >= 0 && H5Tget_class(of) == H5T_REFERENCE &&
                   H5Tequal(of, H5T_STD_REF_OBJ) > 0 && space >= 0 && H5Sget_simple_extent_npoints(space) == v->dims &&
                   H5Aread(attribute, type, lists) >= 0;
    for (int i = 0; is_list && i < v->dims; i++) {
        char name[MAX_TEXT];
        bool has_name = lists[i].len > 0 && H5Rget_name(dataset, H5R_OBJECT, lists[i].p, name, sizeof name) > 0;
        if (has_name) v->axes[i] = arena_copy(n->arena, name);
    }
    if (is_list) H5Dvlen_reclaim(type, space, H5P_DEFAULT, lists);
    if (of >= 0) H5Tclose(of);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
}

static void add_variable(struct netcdf *n, const char *name, hid_t dataset) {
    static const char nothing[] = "This is a netCDF dimension but not a netCDF variable";
    char note[MAX_TEXT];
    read_text(dataset, "NAME", note);
    if (strncmp(note, nothing, sizeof nothing - 1) == 0) return;
    if (n->count == n->capacity) {
        size_t capacity = n->capacity ? n->capacity * 2 : 64;
        struct variable *more = arena_alloc(n->arena, capacity * sizeof *more);
        if (n->count) memcpy(more, n->variables, n->count * sizeof *more);
        n->variables = more;
        n->capacity = capacity;
    }
    struct variable *v = &n->variables[n->count++];
    *v = (struct variable){.name = arena_copy(n->arena, name)};
    read_type(dataset, v);
    read_shape(dataset, v);
    read_axes(n, dataset, v);
    read_missing(dataset, v);
    read_text(dataset, "bounds", v->bounds);
    find_date(dataset, v);
}

static herr_t visit(hid_t file, const char *name, const H5L_info_t *info, void *context) {
    if (info->type != H5L_TYPE_HARD) return 0;
    hid_t object = H5Oopen(file, name, H5P_DEFAULT);
    if (object >= 0 && H5Iget_type(object) == H5I_DATASET) add_variable(context, name, object);
    if (object >= 0) H5Oclose(object);
    return 0;
}

static status check_magic(const char *path) {
    uint8_t magic[4] = {0};
    size_t got = 0;
    int fd;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, magic, sizeof magic, &got);
    TRY(status_first(s, io_close(fd, path)));
    if (memcmp(magic, "CDF", 3) != 0) return OK;
    return status_new(STATUS_DATA,
                      "%s: this is a netCDF-3 file; netCDF-4 is read. Convert it first: nccopy -k nc4 FILE NEW.nc, or "
                      "xarray.open_dataset(FILE).to_netcdf(NEW)",
                      path);
}

/* In a child process first, as every part of libhdf5 that reads a file. */
static status read_variables(void *context) {
    struct netcdf *n = context;
    H5PLset_loading_state(0); /* no plugins */
    if (H5Fis_hdf5(n->path) <= 0) return status_new(STATUS_DATA, "%s: this is not a netCDF-4 file", n->path);
    hid_t access = hdf5_read_access(), file = H5Fopen(n->path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    char reason[160];
    if (file < 0) {
        hdf5_reason(reason, sizeof reason, "libhdf5 reports no reason");
        return status_new(STATUS_DATA, "%s: cannot be opened as netCDF-4 file: %s", n->path, reason);
    }
    n->count = 0;
    bool is_read = H5Literate(file, H5_INDEX_CRT_ORDER, H5_ITER_INC, NULL, visit, n) >= 0; /* if it is stored */
    if (!is_read) n->count = 0;
    is_read = is_read || H5Literate(file, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, n) >= 0;
    H5Fclose(file);
    return is_read ? OK : status_new(STATUS_DATA, "%s: its variables cannot be listed", n->path);
}

/* ---- rows ---- */

static double elements(const struct variable *v) {
    double count = 1;
    for (int i = 0; i < v->dims; i++) count *= (double)v->shape[i];
    return count;
}

/* Whether another variable says that this one has the bounds of its values, which CF stores with a dimension more. */
static bool has_bounds(const struct netcdf *n, const struct variable *v) {
    for (size_t i = 0; i < n->count; i++)
        if (strcmp(n->variables[i].bounds, v->name) == 0) return true;
    return false;
}

/* The largest of those that are named, else of all but bounds. */
static const struct variable *find_base(const struct netcdf *n, const struct string_list *names) {
    const struct variable *base = NULL;
    for (int pass = 0; pass < 2 && !base; pass++)
        for (size_t i = 0; i < n->count; i++) {
            const struct variable *v = &n->variables[i];
            if (v->unread || (pass == 0 ? !string_list_has(names, v->name) : has_bounds(n, v))) continue;
            if (!base || elements(v) > elements(base)) base = v;
        }
    return base;
}

/* Its dimensions are some of those of the base, in the same order. */
static bool set_strides(struct variable *v, const struct variable *base) {
    int at = 0;
    for (int i = 0; i < base->dims; i++) {
        v->strides[i] = 0;
        if (at == v->dims || strcmp(v->axes[at], base->axes[i]) != 0 || v->shape[at] != base->shape[i]) continue;
        v->strides[i] = 1;
        at++;
    }
    size_t stride = 1;
    for (int i = base->dims - 1; at == v->dims && i >= 0; i--) {
        if (v->strides[i] == 0) continue;
        v->strides[i] = stride;
        stride *= (size_t)base->shape[i];
    }
    return at == v->dims;
}

static const char *type_of(const struct netcdf *n, const struct variable *v) {
    struct text text = {0};
    const char *kind = v->class == H5T_FLOAT     ? "float"
                       : v->class != H5T_INTEGER ? "other"
                       : v->is_signed            ? "int"
                                                 : "uint";
    text_add(&text, kind);
    if (v->class == H5T_FLOAT || v->class == H5T_INTEGER) text_printf(&text, "%zu", 8 * v->bytes);
    text_add(&text, " (");
    for (int i = 0; i < v->dims; i++)
        text_printf(&text, "%s%s %llu", i ? ", " : "", v->axes[i][0] == '/' ? v->axes[i] + 1 : "rows",
                    (unsigned long long)v->shape[i]);
    text_add(&text, ")");
    if (*v->units) text_add(&text, ", ");
    if (*v->units) text_add_value(&text, v->units, TEXT_MAX_NAME);
    const char *copy = arena_copy(n->arena, text_string(&text));
    text_free(&text);
    return copy;
}

static status set_columns(struct netcdf *n, struct frame *frame, const struct string_list *names) {
    const struct variable *base = find_base(n, names);
    if (!base) return status_new(STATUS_DATA, "%s: the file has no variables of numbers", n->path);
    if (elements(base) > 1e15)
        return status_new(STATUS_DATA, "%s: variable '%s' has too many values", n->path, base->name);
    n->dims = base->dims;
    memcpy(n->shape, base->shape, sizeof n->shape);
    frame->rows = (uint64_t)elements(base);
    frame->columns = arena_alloc(frame->arena, n->count * sizeof *frame->columns);
    for (frame->count = 0; frame->count < n->count; frame->count++) {
        struct variable *v = &n->variables[frame->count];
        if (!v->unread && !set_strides(v, base))
            v->unread = arena_printf(
                n->arena, "its dimensions are not those of '%s' or some of them, in the same order", base->name);
        frame->columns[frame->count] = (struct frame_column){
            .name = v->name, .type = type_of(n, v), .unread = v->unread, .is_date = v->date_unit > 0};
    }
    return OK;
}

static status open_frame(struct frame *frame, const char *const *names, size_t name_count) {
    struct netcdf *n = frame->state = arena_alloc(frame->arena, sizeof *n);
    struct hdf5_silence silence;
    *n = (struct netcdf){.path = frame->path, .arena = frame->arena};
    TRY(check_magic(n->path));
    hdf5_enter(&silence);
    status s = hdf5_try_in_child(n->path, read_variables, n);
    if (!s) s = read_variables(n);
    hdf5_leave(&silence);
    struct string_list named = {(const char **)names, name_count};
    return s ? s : set_columns(n, frame, &named);
}

static void close_frame(struct frame *frame) {
    struct netcdf *n = frame->state;
    for (size_t i = 0; n && i < n->n_groups; i++) {
        if (n->groups[i].source) n->groups[i].source->format->close(n->groups[i].source);
        free(n->groups[i].values);
    }
}

/* ---- values ---- */

static struct variable *variable_of(const struct netcdf *n, const char *name) {
    size_t i = 0;
    while (strcmp(n->variables[i].name, name) != 0) i++;
    return &n->variables[i];
}

static void add_to_group(struct netcdf *n, struct variable *v) {
    bool has_first = v->strides[0] > 0;
    size_t at = 0, size = 1;
    while (at < n->n_groups && (v->dims > 1 || !n->groups[at].are_vectors || n->groups[at].rows != v->shape[0] ||
                                n->groups[at].has_first != has_first))
        at++;
    struct group *g = &n->groups[at];
    if (at == n->n_groups) {
        *g = (struct group){.rows = v->shape[0], .are_vectors = v->dims == 1, .has_first = has_first};
        g->names.items = arena_alloc(n->arena, n->count * sizeof *g->names.items);
        n->n_groups++;
    }
    for (int i = 1; i < v->dims; i++) size *= (size_t)v->shape[i];
    v->group = at;
    v->first = g->capacity; /* until values are read: of a row */
    g->capacity += size;
    g->names.items[g->names.count++] = v->name;
}

static status open_groups(struct netcdf *n, const struct frame *frame) {
    n->groups = arena_alloc(n->arena, n->count * sizeof *n->groups);
    for (size_t i = 0; i < frame->count; i++)
        if (frame->columns[i].is_wanted) add_to_group(n, variable_of(n, frame->columns[i].name));
    for (size_t i = 0; i < n->n_groups; i++) {
        struct dataset_config config = {.inputs = n->groups[i].names, .request.without_targets = true};
        n->groups[i].capacity = 0;
        TRY(dataset_hdf5.open(&config, n->path, false, NULL, &n->groups[i].source));
    }
    return OK;
}

/* Makes the rows that rows first .. first + count - 1 of the table need the group's. */
static status fill(const struct netcdf *n, struct group *g, uint64_t first, size_t count) {
    uint64_t inner = 1;
    for (int i = 1; i < n->dims; i++) inner *= n->shape[i];
    size_t from = g->has_first ? (size_t)(first / inner) : 0;
    size_t to = g->has_first ? (size_t)((first + count - 1) / inner) + 1 : (size_t)g->rows;
    if (from >= g->first && to <= g->first + g->count) return OK;
    if (to - from > g->capacity) {
        free(g->values);
        g->capacity = to - from;
        g->values = calloc(g->capacity * g->source->input_size, sizeof *g->values);
        if (!g->values) return status_memory("the variables of %s", n->path);
    }
    g->first = from;
    g->count = to - from;
    return g->source->format->read(g->source, from, to - from, g->values, NULL);
}

static double unpack(const struct variable *v, double value) {
    if (v->is_unsigned && value < 0) value += ldexp(1, (int)(8 * v->bytes));
    for (size_t i = 0; i < v->n_missing; i++) {
        double missing = v->missing[i];
        if (v->is_unsigned && missing < 0) missing += ldexp(1, (int)(8 * v->bytes));
        if (value == missing) return (double)NAN;
    }
    if (v->is_packed) value = value * v->scale + v->offset;
    return v->date_unit > 0 ? v->date_start + value * v->date_unit : value;
}

static void read_values(const struct netcdf *n, const struct variable *v, uint64_t first, size_t count, double *out) {
    const struct group *g = &n->groups[v->group];
    size_t row_size = g->source->input_size, inner = 1, at[MAX_DIMS];
    uint64_t rest = first;
    for (int i = n->dims - 1; i >= 0; i--) {
        at[i] = (size_t)(rest % n->shape[i]);
        rest /= n->shape[i];
    }
    for (int i = 0, seen = 0; i < n->dims;
         i++) { /* values of a row of the variable: the stride of its first dimension */
        if (v->strides[i] && !seen++) inner = v->strides[i];
    }
    for (size_t row = 0; row < count; row++) {
        size_t element = 0;
        for (int i = 0; i < n->dims; i++) element += at[i] * v->strides[i];
        out[row] = unpack(v, g->values[(element / inner - g->first) * row_size + v->first + element % inner]);
        for (int i = n->dims - 1; i >= 0 && ++at[i] == n->shape[i]; i--) at[i] = 0;
    }
}

static status read_frame(struct frame *frame, uint64_t first, size_t count) {
    struct netcdf *n = frame->state;
    if (!n->groups) TRY(open_groups(n, frame));
    for (size_t i = 0; i < n->n_groups; i++) TRY(fill(n, &n->groups[i], first, count));
    for (size_t i = 0; i < frame->count; i++)
        if (frame->columns[i].is_wanted)
            read_values(n, variable_of(n, frame->columns[i].name), first, count, frame->columns[i].numbers);
    return OK;
}

/* ---- the format ---- */

const struct frame_reader netcdf_reader = {
    .unit = "variable", .open = open_frame, .read = read_frame, .close = close_frame};

static status open_netcdf(const struct dataset_config *config, const char *path, bool wants_classes,
                          const struct source *train, struct source **out) {
    return frame_open(&dataset_netcdf, config, path, wants_classes, train, out);
}

static status add_records(const struct dataset_config *config, bool is_validation, struct text *out) {
    return frame_add_records(&dataset_netcdf, config, is_validation, out);
}

static status inspect(const char *path, struct text *out) { return frame_inspect(&dataset_netcdf, path, out); }

static const char *const extensions[] = {".nc", ".nc4", ".netcdf", NULL};
const struct dataset_format dataset_netcdf = {.name = "netcdf",
                                              .keys = KEYS_OF_NAMES | KEY_COLUMNS,
                                              .extensions = extensions,
                                              .reads_patterns = true,
                                              .open = open_netcdf,
                                              CSV_FUNCTIONS,
                                              .add_records = add_records,
                                              .inspect = inspect};
