/* netCDF-4 files, which are HDF5 files with conventions: variables over shared dimensions, packed numbers, missing
 * values, texts and axes of time. Rows are those of xarray's Dataset.to_dataframe(): one for each combination of the
 * dimensions of the largest variable that is used, in which a variable with fewer dimensions repeats its values. The
 * attributes and the texts are read here, numbers by the format hdf5. */
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/hdf5.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "data/source/frame.h"

#define MAX_TEXT 256   /* bytes of an attribute that is read */
#define MAX_MISSING 32 /* values of missing_value */
#define MAX_DEPTH 32   /* of groups in groups */
#define NO_TEXT UINT32_MAX
#define MAX_JOINED 16777216        /* characters of a text */
#define STRING_BYTES 16            /* in the file, of one of any length */
#define MAX_EXACT 9007199254740992 /* 2^53, which 2^53 + 1 becomes as a double, too */

enum kind {
    NUMBERS,
    STRINGS,    /* of any length */
    CHARACTERS, /* of fixed lengths; of arrays of characters the last of several dimensions is that of a text */
    MEMBERS     /* numbers that their type, an enumeration, gives names to */
};

struct variable {
    const char *name;
    int dims;
    hsize_t shape[MAX_DIMS];
    const char *axes[MAX_DIMS]; /* names of the dimensions */
    const char *unread;
    H5T_class_t class;
    enum kind kind;
    size_t bytes;                /* of a value in the file */
    size_t width;                /* CHARACTERS: bytes of a text */
    bool is_signed, is_unsigned; /* is_unsigned: _Unsigned, the bits of a signed integer are those of an unsigned one */
    double missing[MAX_MISSING + 2];
    size_t n_missing;
    char missing_text[MAX_TEXT]; /* of texts, beside the empty one */
    double valid_min, valid_max; /* values outside are missing; of unpacked values, if are_valid_unpacked */
    bool are_valid_unpacked;
    double scale, offset;
    bool is_packed;
    char units[MAX_TEXT], calendar[MAX_TEXT], bounds[MAX_TEXT];
    double date_start, date_unit; /* seconds; unit 0: not a date */
    size_t strides[MAX_DIMS];     /* by dimension of the base; 0: it does not have it */
    size_t group, first;          /* NUMBERS: of its values in a row of the group */
    /* Of other kinds, once values are read; of is_wide, once one from 2^53 on is, of these alone. */
    struct text_pool pool;
    uint32_t *texts; /* (elements): indices into the pool; NO_TEXT: missing */
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
    struct variable **texts; /* (n_texts): those whose texts are wanted */
    size_t n_texts;
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

/* Adds the numbers of an attribute, at most [max]; the number of them. Those of an enumeration are numbers, too. */
static size_t read_numbers(hid_t object, const char *name, double *out, size_t max) {
    double values[MAX_MISSING];
    size_t count = 0;
    if (H5Aexists(object, name) <= 0) return 0;
    hid_t attribute = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(attribute);
    hid_t space = H5Aget_space(attribute);
    hssize_t points = space < 0 ? 0 : H5Sget_simple_extent_npoints(space);
    H5T_class_t class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    bool is_good = (class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM) && H5Tget_size(type) <= 8 &&
                   points > 0 && points <= MAX_MISSING && H5Aread(attribute, H5T_NATIVE_DOUBLE, values) >= 0;
    for (; is_good && count < (size_t)points && count < max; count++) out[count] = values[count];
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    if (attribute >= 0) H5Aclose(attribute);
    return count;
}

/* The same of an attribute that has [count] numbers; false: it is absent. With others, values would be wrong. */
static bool read_exactly(hid_t dataset, struct variable *v, const char *name, double *out, size_t count,
                         const char *reason) {
    double values[MAX_MISSING];
    if (H5Aexists(dataset, name) <= 0) return false;
    bool is_good = read_numbers(dataset, name, values, MAX_MISSING) == count;
    if (is_good) memcpy(out, values, count * sizeof *out);
    if (!is_good && v->kind == NUMBERS && !v->unread) v->unread = reason;
    return is_good;
}

/* What netCDF's library writes where nobody has written a value; of bytes each value is one. */
static double default_fill(const struct variable *v) {
    if (v->class == H5T_FLOAT) return v->bytes == 4 ? (double)9.9692099683868690e+36f : 9.9692099683868690e+36;
    if (v->bytes == 4 && v->is_signed) return -2147483647.0;
    if (v->bytes == 8 && v->is_signed) return -9223372036854775806.0;
    return (double)NAN;
}

/* valid_range, valid_min and valid_max are of the numbers in the file, but floats for packed integers are of those that
 * these mean (the netCDF User Guide's rule). */
static void read_valid(hid_t dataset, struct variable *v) {
    static const char *const names[] = {"valid_range", "valid_min", "valid_max"};
    double range[2];
    v->valid_min = (double)-INFINITY;
    v->valid_max = (double)INFINITY;
    read_exactly(dataset, v, "valid_min", &v->valid_min, 1, "its valid_min is not one number");
    read_exactly(dataset, v, "valid_max", &v->valid_max, 1, "its valid_max is not one number");
    if (read_exactly(dataset, v, "valid_range", range, 2, "its valid_range is not two numbers")) {
        v->valid_min = range[0];
        v->valid_max = range[1];
    }
    for (size_t i = 0; v->is_packed && v->class == H5T_INTEGER && i < sizeof names / sizeof *names; i++) {
        if (H5Aexists(dataset, names[i]) <= 0) continue;
        hid_t attribute = H5Aopen(dataset, names[i], H5P_DEFAULT), type = H5Aget_type(attribute);
        if (type >= 0 && H5Tget_class(type) == H5T_FLOAT) v->are_valid_unpacked = true;
        if (type >= 0) H5Tclose(type);
        if (attribute >= 0) H5Aclose(attribute);
    }
}

static void read_missing(hid_t dataset, struct variable *v) {
    read_text(dataset, "_FillValue", v->missing_text);
    if (!*v->missing_text) read_text(dataset, "missing_value", v->missing_text);
    size_t fills = read_numbers(dataset, "_FillValue", v->missing, 1);
    if (fills == 0) v->missing[0] = default_fill(v);
    v->n_missing = 1 + read_numbers(dataset, "missing_value", v->missing + 1, MAX_MISSING);
    v->scale = 1;
    v->offset = 0;
    v->is_packed = read_exactly(dataset, v, "scale_factor", &v->scale, 1, "its scale_factor is not one number");
    v->is_packed =
        read_exactly(dataset, v, "add_offset", &v->offset, 1, "its add_offset is not one number") || v->is_packed;
    read_valid(dataset, v);
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

/* "", "UTC", "+02:00", "-0530", "+2": *seconds that the time is ahead of UTC. */
static bool read_zone(const char *text, double *seconds) {
    static const char *const names[] = {"", "Z", "UTC", "GMT", "00:00", "0:00"};
    int hours, minutes = 0, used = 0, more = 0;
    *seconds = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(text, names[i]) == 0) return true;
    bool has_sign = (*text == '+' || *text == '-') && text[1] >= '0' && text[1] <= '9';
    if (!has_sign || sscanf(text + 1, "%4d%n", &hours, &used) != 1) return false;
    const char *rest = text + 1 + used;
    bool has_minutes =
        *rest == ':' && rest[1] >= '0' && rest[1] <= '9' && sscanf(rest + 1, "%2d%n", &minutes, &more) == 1;
    if (used > 2 && !has_minutes) {
        minutes = hours % 100;
        hours /= 100;
    }
    if (rest[has_minutes ? 1 + more : 0] || hours > 18 || minutes > 59) return false;
    *seconds = (*text == '-' ? -1 : 1) * (hours * 3600.0 + minutes * 60.0);
    return true;
}

/* "2000-01-01 00:00:00 +02:00": *seconds since 1970, of UTC. */
static bool read_start(const char *text, bool is_mixed, double *seconds) {
    int year, month, day, hour = 0, minute = 0, used = 0, more = 0;
    double second = 0, ahead;
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
    if (!read_zone(text, &ahead) || year < 1 || year > 9999 || month < 1 || month > 12) return false;
    bool is_julian = is_mixed && (year < 1582 || (year == 1582 && (month < 10 || (month == 10 && day < 15))));
    double days = days_of(year, month + 1, 1, is_julian) - days_of(year, month, 1, is_julian);
    if (day < 1 || day > days || hour < 0 || hour > 23 || minute < 0 || minute > 59 || !(second >= 0 && second < 60))
        return false;
    *seconds = days_of(year, month, day, is_julian) * 86400 + hour * 3600.0 + minute * 60.0 + second - ahead;
    return true;
}

/* "days since 2000-01-01", in the calendar of dates: the Gregorian one, with Julian days before 1582-10-15 where the
 * calendar is the mixed one, CF's standard. Numbers of other calendars stay numbers. */
static void find_date(hid_t dataset, struct variable *v) {
    read_text(dataset, "units", v->units);
    read_text(dataset, "calendar", v->calendar);
    const char *since = strcasestr(v->units, " since ");
    bool is_mixed = !*v->calendar || strcmp(v->calendar, "standard") == 0 || strcmp(v->calendar, "gregorian") == 0;
    if (!since || (!is_mixed && strcmp(v->calendar, "proleptic_gregorian") != 0)) return;
    const char *start = since + 7;
    while (*start == ' ') start++;
    while (since > v->units && since[-1] == ' ') since--;
    for (size_t i = 0; i < sizeof date_units / sizeof *date_units; i++)
        if (strlen(date_units[i].name) == (size_t)(since - v->units) &&
            strncasecmp(v->units, date_units[i].name, (size_t)(since - v->units)) == 0 &&
            read_start(start, is_mixed, &v->date_start))
            v->date_unit = date_units[i].seconds;
}

/* ---- variables ---- */

static void read_type(hid_t dataset, struct variable *v) {
    hid_t type = H5Dget_type(dataset);
    v->class = type < 0 ? H5T_NO_CLASS : H5Tget_class(type);
    v->bytes = type < 0 ? 0 : H5Tget_size(type);
    v->is_signed = v->class == H5T_INTEGER && H5Tget_sign(type) == H5T_SGN_2;
    if (v->class == H5T_STRING) v->kind = H5Tis_variable_str(type) > 0 ? STRINGS : CHARACTERS;
    if (v->class == H5T_ENUM) v->kind = MEMBERS;
    v->width = v->bytes;
    if (type >= 0) H5Tclose(type);
    if (v->kind == NUMBERS && v->class != H5T_INTEGER && v->class != H5T_FLOAT)
        v->unread = "only numbers, texts and enumerations are read";
}

static void read_shape(hid_t dataset, struct variable *v) {
    hid_t space = H5Dget_space(dataset);
    int dims = space < 0 ? -1 : H5Sget_simple_extent_ndims(space);
    if (dims == 0) v->unread = "it is one value without dimensions";
    if (dims < 0 || dims > MAX_DIMS) v->unread = "it has more than 8 dimensions";
    if (!v->unread && H5Sget_simple_extent_dims(space, v->shape, NULL) == dims) v->dims = dims;
    if (space >= 0) H5Sclose(space);
}

/* Of arrays of characters the last dimension is no dimension of the texts. */
static void join_characters(struct variable *v) {
    if (v->kind != CHARACTERS || v->bytes != 1 || v->dims < 2) return;
    v->dims--;
    if (v->shape[v->dims] == 0 || v->shape[v->dims] > MAX_JOINED)
        v->unread = "its texts have no characters, or too many";
    v->width = (size_t)v->shape[v->dims];
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

/* Whole numbers that a double does not always hold. */
static bool is_wide(const struct variable *v) {
    return v->kind == NUMBERS && v->class == H5T_INTEGER && v->bytes == 8 && !v->is_packed && v->date_unit == 0;
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
    join_characters(v);
    read_missing(dataset, v);
    read_text(dataset, "bounds", v->bounds);
    find_date(dataset, v);
}

/* A group and those above it. */
struct group_place {
    struct netcdf *netcdf;
    const char *path; /* "" or "winter/" */
    int depth;
};

static bool visit_group(hid_t group, struct group_place *place);

static herr_t visit(hid_t group, const char *name, const H5L_info_t *info, void *context) {
    const struct group_place *place = context;
    struct netcdf *n = place->netcdf;
    if (info->type != H5L_TYPE_HARD) return 0;
    hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    H5I_type_t type = object < 0 ? H5I_BADID : H5Iget_type(object);
    struct group_place inner = {n, arena_printf(n->arena, "%s%s/", place->path, name), place->depth + 1};
    bool is_visited = type != H5I_GROUP || visit_group(object, &inner);
    if (type == H5I_DATASET) add_variable(n, arena_printf(n->arena, "%s%s", place->path, name), object);
    if (object >= 0) H5Oclose(object);
    return is_visited ? 0 : -1;
}

/* In the order of creation, if that is stored. */
static bool visit_group(hid_t group, struct group_place *place) {
    size_t before = place->netcdf->count;
    if (place->depth > MAX_DEPTH) return false; /* perhaps a group that contains itself */
    if (H5Literate(group, H5_INDEX_CRT_ORDER, H5_ITER_INC, NULL, visit, place) >= 0) return true;
    place->netcdf->count = before;
    return H5Literate(group, H5_INDEX_NAME, H5_ITER_INC, NULL, visit, place) >= 0;
}

static status check_magic(const char *path) {
    uint8_t magic[4] = {0};
    size_t got = 0;
    int fd;
    TRY(io_open(path, &fd));
    status s = io_read(fd, path, magic, sizeof magic, &got);
    TRY(status_first(s, io_close(fd, path)));
    if (memcmp(magic, "CDF", 3) != 0) return OK;
    return status_data("%s: this is a netCDF-3 file; netCDF-4 is read. Convert it first: nccopy -k nc4 FILE NEW.nc, or "
                       "xarray.open_dataset(FILE).to_netcdf(NEW)",
                       path);
}

static status open_file(const char *path, hid_t *file) {
    *file = -1;
    H5PLset_loading_state(0); /* no plugins */
    if (H5Fis_hdf5(path) <= 0) return status_data("%s: this is not a netCDF-4 file", path);
    TRY(hdf5_check_memory());
    hid_t access = hdf5_read_access();
    *file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    char reason[160];
    if (*file >= 0) return OK;
    hdf5_reason(reason, sizeof reason, "libhdf5 reports no reason");
    return status_data("%s: cannot be opened as netCDF-4 file: %s", path, reason);
}

/* In a child process first, as every part of libhdf5 that reads a file. */
static status read_variables(void *context) {
    struct netcdf *n = context;
    hid_t file;
    TRY(open_file(n->path, &file));
    n->count = 0;
    bool is_read = visit_group(file, &(struct group_place){n, "", 0});
    H5Fclose(file);
    return is_read ? OK : status_data("%s: its variables cannot be listed", n->path);
}

/* ---- rows ---- */

static double elements(const struct variable *v) {
    double count = 1;
    for (int i = 0; i < v->dims; i++) count *= (double)v->shape[i];
    return count;
}

/* Whether another variable says that this one has the bounds of its values, which CF stores with a dimension more. */
static bool has_bounds(const struct netcdf *n, const struct variable *v) {
    const char *slash = strrchr(v->name, '/');
    size_t group = slash ? (size_t)(slash + 1 - v->name) : 0; /* bounds are named as in their group */
    for (size_t i = 0; i < n->count; i++)
        if (strncmp(n->variables[i].name, v->name, group) == 0 && strcmp(n->variables[i].bounds, v->name + group) == 0)
            return true;
    return false;
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

/* The largest of those that are named, else of all but bounds. */
static const struct variable *find_largest(const struct netcdf *n, const struct string_list *names) {
    const struct variable *base = NULL;
    for (int pass = 0; pass < 2 && !base; pass++)
        for (size_t i = 0; i < n->count; i++) {
            const struct variable *v = &n->variables[i];
            if (v->unread || (pass == 0 ? !string_list_has(names, v->name) : has_bounds(n, v))) continue;
            if (!base || elements(v) > elements(base)) base = v;
        }
    return base;
}

/* Whether all that are named have dimensions of [base] alone. */
static bool holds_all(struct netcdf *n, const struct string_list *names, const struct variable *base) {
    for (size_t i = 0; i < n->count; i++) {
        struct variable *v = &n->variables[i];
        if (!v->unread && string_list_has(names, v->name) && !set_strides(v, base)) return false;
    }
    return true;
}

/* The variable whose values are the rows: the largest of those that are named, else of all; if others that are named
 * do not fit, the smallest in which all do, such as that of the targets when new rows are predicted. */
static const struct variable *find_base(struct netcdf *n, const struct string_list *names) {
    const struct variable *largest = find_largest(n, names), *base = NULL;
    if (!largest || holds_all(n, names, largest)) return largest;
    for (size_t i = 0; i < n->count; i++) {
        const struct variable *v = &n->variables[i];
        bool is_smaller = !v->unread && !has_bounds(n, v) && (!base || elements(v) < elements(base));
        if (is_smaller && holds_all(n, names, v)) base = v;
    }
    return base ? base : largest;
}

static const char *type_of(const struct netcdf *n, const struct variable *v) {
    SCOPED_TEXT text = {0};
    const char *kind = v->kind != NUMBERS        ? "text"
                       : v->class == H5T_FLOAT   ? "float"
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
    return arena_copy(n->arena, text_string(&text));
}

static status set_columns(struct netcdf *n, struct frame *frame, const struct string_list *names) {
    const struct variable *base = find_base(n, names);
    if (!base) return status_data("%s: the file has no variables of numbers or texts", n->path);
    if (elements(base) > 1e15) return status_data("%s: variable '%s' has too many values", n->path, base->name);
    n->dims = base->dims;
    memcpy(n->shape, base->shape, sizeof n->shape);
    frame->rows = (uint64_t)elements(base);
    frame->columns = arena_alloc(frame->arena, n->count * sizeof *frame->columns);
    for (frame->count = 0; frame->count < n->count; frame->count++) {
        struct variable *v = &n->variables[frame->count];
        if (!v->unread && !set_strides(v, base))
            v->unread = arena_printf(
                n->arena, "its dimensions are not those of '%s' or some of them, in the same order", base->name);
        frame->columns[frame->count] = (struct frame_column){.name = v->name,
                                                             .type = type_of(n, v),
                                                             .unread = v->unread,
                                                             .is_date = v->date_unit > 0,
                                                             .holds_texts = v->kind != NUMBERS,
                                                             .is_wide = is_wide(v)};
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
    for (size_t i = 0; n && i < n->count; i++) {
        text_pool_free(&n->variables[i].pool);
        free(n->variables[i].texts);
    }
}

/* ---- texts ---- */

/* The members of an enumeration, read as int64. */
struct members {
    size_t count;
    int64_t *values;
    const char **names;
};

static bool read_members(hid_t type, struct arena *arena, struct members *out) {
    int count = H5Tget_nmembers(type);
    hid_t numbers = H5Tget_super(type);
    bool is_good = count > 0 && numbers >= 0 && H5Tget_size(type) <= sizeof(int64_t);
    out->values = arena_alloc(arena, (size_t)(count > 0 ? count : 1) * sizeof *out->values);
    out->names = arena_alloc(arena, (size_t)(count > 0 ? count : 1) * sizeof *out->names);
    for (int i = 0; is_good && i < count; i++) {
        char *name = H5Tget_member_name(type, (unsigned)i);
        int64_t value = 0;
        is_good = name && H5Tget_member_value(type, (unsigned)i, &value) >= 0 &&
                  H5Tconvert(numbers, H5T_NATIVE_INT64, 1, &value, NULL, H5P_DEFAULT) >= 0;
        out->values[i] = value;
        out->names[i] = name ? arena_copy(arena, name) : "";
        if (name) H5free_memory(name);
    }
    out->count = is_good ? (size_t)count : 0;
    if (numbers >= 0) H5Tclose(numbers);
    return is_good;
}

/* What reads the values of one variable. */
struct reading {
    const struct netcdf *netcdf;
    struct variable *v;
    hid_t dataset, type; /* type: of the values in memory */
    struct members members;
    char *buffer; /* (values of a slice) */
    struct text text;
};

static bool is_missing_text(const struct variable *v, const char *text) {
    if (!*text || strcmp(text, v->missing_text) == 0) return true;
    return v->kind == CHARACTERS && *v->missing_text && text[strspn(text, v->missing_text)] == 0;
}

/* Value [i] of the buffer; NULL: it is missing. */
static const char *text_at(struct reading *r, size_t i) {
    const struct variable *v = r->v;
    if (v->kind == STRINGS) return ((const char *const *)(const void *)r->buffer)[i];
    if (v->kind == CHARACTERS) {
        const char *start = r->buffer + i * v->width;
        size_t length = strnlen(start, v->width);
        while (length > 0 && start[length - 1] == ' ') length--; /* Fortran's */
        text_clear(&r->text);
        text_add_bytes(&r->text, start, length);
        return text_string(&r->text);
    }
    int64_t value;
    memcpy(&value, r->buffer + i * sizeof value, sizeof value);
    if (v->kind == NUMBERS) {
        bool is_signed = v->is_signed && !v->is_unsigned;
        if (is_signed && value > -MAX_EXACT && value < MAX_EXACT) return NULL;
        if (!is_signed && (uint64_t)value < MAX_EXACT) return NULL;
        text_clear(&r->text);
        text_printf(&r->text, is_signed ? "%lld" : "%llu", (long long)value);
        return text_string(&r->text);
    }
    for (size_t k = 0; k < v->n_missing; k++)
        if ((double)value == v->missing[k]) return NULL;
    for (size_t k = 0; k < r->members.count; k++)
        if (r->members.values[k] == value) return r->members.names[k];
    return NULL;
}

/* Adds the texts of the values first .. first + count - 1 in the buffer. */
static status add_texts(struct reading *r, size_t first, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const char *text = text_at(r, i);
        size_t index;
        r->v->texts[first + i] = NO_TEXT;
        if (!text || is_missing_text(r->v, text)) continue;
        TRY(text_pool_add(&r->v->pool, text, first + i, &index));
        if (index >= NO_TEXT) return status_memory("the texts of %s", r->netcdf->path);
        r->v->texts[first + i] = (uint32_t)index;
    }
    return OK;
}

/* Reads rows first .. first + count - 1 of the first dimension, of [size] values each. */
static status read_slice(struct reading *r, hsize_t first, hsize_t count, size_t size) {
    hsize_t start[MAX_DIMS] = {first}, extent[MAX_DIMS];
    memcpy(extent, r->v->shape, sizeof extent);
    extent[0] = count;
    int dims = r->v->dims + (r->v->kind == CHARACTERS && r->v->width != r->v->bytes);
    hid_t space = H5Dget_space(r->dataset), memory = H5Screate_simple(dims, extent, NULL);
    bool is_read = space >= 0 && memory >= 0 &&
                   H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, extent, NULL) >= 0 &&
                   H5Dread(r->dataset, r->type, memory, space, H5P_DEFAULT, r->buffer) >= 0;
    char reason[160];
    if (!is_read) hdf5_reason(reason, sizeof reason, "libhdf5 reports no reason");
    status s = is_read ? add_texts(r, (size_t)first * size, (size_t)count * size)
                       : status_data("%s: the texts of '%s' cannot be read: %s", r->netcdf->path, r->v->name, reason);
    if (is_read && r->v->kind == STRINGS) H5Dvlen_reclaim(r->type, memory, H5P_DEFAULT, r->buffer);
    if (memory >= 0) H5Sclose(memory);
    if (space >= 0) H5Sclose(space);
    return s;
}

static status read_slices(struct reading *r) {
    struct variable *v = r->v;
    size_t size = 1, width = v->kind == CHARACTERS ? v->width : sizeof(int64_t);
    for (int i = 1; i < v->dims; i++) size *= (size_t)v->shape[i];
    hsize_t count = MAX_JOINED / (size * width), rows = v->shape[0];
    if (count == 0) count = 1;
    if (count > rows) count = rows;
    v->pool = (struct text_pool){.arena = r->netcdf->arena};
    v->texts = calloc((size_t)rows * size + 1, sizeof *v->texts);
    r->buffer = calloc((size_t)count * size + 1, width);
    if (!v->texts || !r->buffer) return status_memory("the texts of %s", r->netcdf->path);
    for (hsize_t first = 0; first < rows; first += count)
        TRY(read_slice(r, first, rows - first < count ? rows - first : count, size));
    return OK;
}

static status open_texts(struct reading *r, hid_t file) {
    struct variable *v = r->v;
    r->dataset = H5Dopen(file, v->name, H5P_DEFAULT);
    hid_t type = r->dataset < 0 ? -1 : H5Dget_type(r->dataset);
    hid_t whole = is_wide(v) && !v->is_signed ? H5T_NATIVE_UINT64 : H5T_NATIVE_INT64;
    r->type = type < 0 ? -1 : H5Tcopy(v->kind == MEMBERS || v->kind == NUMBERS ? whole : type);
    bool is_good = r->type >= 0 && (v->kind != MEMBERS || read_members(type, r->netcdf->arena, &r->members));
    if (type >= 0) H5Tclose(type);
    if (!is_good) return status_data("%s: the texts of '%s' cannot be read", r->netcdf->path, v->name);
    return hdf5_check_stored(r->dataset, r->netcdf->path, v->name, v->kind == STRINGS ? STRING_BYTES : v->bytes);
}

/* In a child process first; each variable as a whole, since several of its values may be in the same place. */
static status read_texts(void *context) {
    const struct netcdf *n = context;
    hid_t file;
    TRY(open_file(n->path, &file));
    status s = OK;
    for (size_t i = 0; !s && i < n->n_texts; i++) {
        struct reading r = {.netcdf = n, .v = n->texts[i], .dataset = -1, .type = -1};
        s = open_texts(&r, file);
        if (!s) s = read_slices(&r);
        free(r.buffer);
        text_free(&r.text);
        if (r.type >= 0) H5Tclose(r.type);
        if (r.dataset >= 0) H5Dclose(r.dataset);
    }
    H5Fclose(file);
    return s;
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

static status read_all_texts(struct netcdf *n) {
    struct hdf5_silence silence;
    hdf5_enter(&silence);
    status s = n->n_texts ? hdf5_try_in_child(n->path, read_texts, n) : OK;
    if (!s) s = read_texts(n);
    hdf5_leave(&silence);
    return s;
}

static status open_groups(struct netcdf *n, const struct frame *frame) {
    n->groups = arena_alloc(n->arena, n->count * sizeof *n->groups);
    n->texts = arena_alloc(n->arena, n->count * sizeof *n->texts);
    for (size_t i = 0; i < frame->count; i++) {
        if (!frame->columns[i].is_wanted) continue;
        struct variable *v = variable_of(n, frame->columns[i].name);
        if (v->kind == NUMBERS)
            add_to_group(n, v);
        else
            n->texts[n->n_texts++] = v;
    }
    TRY(read_all_texts(n));
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
    double low = v->valid_min, high = v->valid_max;
    if (v->is_unsigned && low < 0) low += ldexp(1, (int)(8 * v->bytes));
    if (v->is_unsigned && high < 0) high += ldexp(1, (int)(8 * v->bytes));
    if (!v->are_valid_unpacked && (value < low || value > high)) return (double)NAN;
    if (v->is_packed) value = value * v->scale + v->offset;
    if (v->are_valid_unpacked && (value < v->valid_min || value > v->valid_max)) return (double)NAN;
    return v->date_unit > 0 ? v->date_start + value * v->date_unit : value;
}

/* The texts of whole numbers that a double does not hold are read when the first of them is. */
static status read_digits(struct netcdf *n, struct variable *v, size_t element, const char **text) {
    n->texts[0] = v;
    n->n_texts = 1;
    if (!v->texts) TRY(read_all_texts(n));
    *text = v->texts[element] == NO_TEXT ? NULL : v->pool.items[v->texts[element]].text;
    return OK;
}

static status read_values(struct netcdf *n, struct variable *v, uint64_t first, size_t count,
                          struct frame_column *out) {
    const struct group *g = v->kind == NUMBERS ? &n->groups[v->group] : NULL;
    size_t row_size = g ? g->source->input_size : 0, inner = 1, at[MAX_DIMS];
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
        if (!g)
            out->texts[row] = v->texts[element] == NO_TEXT ? NULL : v->pool.items[v->texts[element]].text;
        else
            out->numbers[row] =
                unpack(v, g->values[(element / inner - g->first) * row_size + v->first + element % inner]);
        if (out->is_wide) {
            out->texts[row] = NULL;
            if (fabs(out->numbers[row]) >= MAX_EXACT) TRY(read_digits(n, v, element, &out->texts[row]));
        }
        for (int i = n->dims - 1; i >= 0 && ++at[i] == n->shape[i]; i--) at[i] = 0;
    }
    return OK;
}

static status read_frame(struct frame *frame, uint64_t first, size_t count) {
    struct netcdf *n = frame->state;
    if (!n->groups) TRY(open_groups(n, frame));
    for (size_t i = 0; i < n->n_groups; i++) TRY(fill(n, &n->groups[i], first, count));
    for (size_t i = 0; i < frame->count; i++)
        if (frame->columns[i].is_wanted)
            TRY(read_values(n, variable_of(n, frame->columns[i].name), first, count, &frame->columns[i]));
    return OK;
}

/* ---- the format ---- */

const struct frame_reader netcdf_reader = {
    .unit = "variable", .open = open_frame, .read = read_frame, .close = close_frame};

static status open_netcdf(const struct dataset_config *config, const char *path, bool wants_classes,
                          const struct source *train, struct source **out) {
    return csv_open(&dataset_netcdf, config, path, wants_classes, train, out);
}

static status inspect(const char *path, struct text *out) { return frame_inspect(&dataset_netcdf, path, out); }

static const char *const extensions[] = {".nc", ".nc4", ".netcdf", NULL};
const struct dataset_format dataset_netcdf = {.name = "netcdf",
                                              .keys = KEYS_OF_NAMES | KEY_COLUMNS,
                                              .extensions = extensions,
                                              .reads_patterns = true,
                                              .open = open_netcdf,
                                              CSV_FUNCTIONS,
                                              .records = &frame_input,
                                              .inspect = inspect};
