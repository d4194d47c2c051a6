/* One lock for all calls of libhdf5, which need not be built thread-safe. */
#include "base/files/hdf5.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t library = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static struct hdf5_silence outermost; /* of the thread that has the lock */
static size_t depth;                  /* how often it has it */

void hdf5_enter(struct hdf5_silence *silence) {
    pthread_mutex_lock(&library);
    H5Eget_auto2(H5E_DEFAULT, &silence->print, &silence->data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    if (depth++ == 0) outermost = *silence;
}

void hdf5_leave(const struct hdf5_silence *silence) {
    H5Eset_auto2(H5E_DEFAULT, silence->print, silence->data);
    depth--;
    pthread_mutex_unlock(&library);
}

void hdf5_leave_all(void) {
    if (pthread_mutex_trylock(&library) != 0) return; /* another thread has it, so this one does not */
    for (struct hdf5_silence silence = outermost; depth > 0;) hdf5_leave(&silence);
    pthread_mutex_unlock(&library);
}

void hdf5_skip_end(void) { H5dont_atexit(); }

status hdf5_check_memory(void) {
    void *volatile memory = malloc((size_t)1 << 20); /* volatile: or the compiler leaves both calls out */
    free(memory);
    return memory ? OK : status_memory("an open HDF5 file");
}

struct reason {
    char *text;
    size_t size;
};

static herr_t copy_innermost(unsigned number, const H5E_error2_t *error, void *context) {
    struct reason *reason = context;
    if (number == 0 && error->desc) snprintf(reason->text, reason->size, "%s", error->desc);
    return 0;
}

void hdf5_reason(char *text, size_t size, const char *otherwise) {
    struct reason reason = {text, size};
    snprintf(text, size, "%s", otherwise);
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, copy_innermost, &reason);
}

static herr_t look_for_memory(unsigned number, const H5E_error2_t *error, void *context) {
    bool *lacks_memory = context;
    (void)number;
    *lacks_memory = *lacks_memory || (error->maj_num == H5E_RESOURCE && error->min_num == H5E_NOSPACE);
    return 0;
}

bool hdf5_lacks_memory(void) {
    bool lacks_memory = false;
    H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, look_for_memory, &lacks_memory);
    return lacks_memory;
}

/* ---- attributes ---- */

/* An open scalar attribute. */
struct attribute {
    hid_t attribute, type;
    H5T_class_t class;
    size_t size; /* bytes of the value in the file */
};

static void close_attribute(const struct attribute *a) {
    if (a->type >= 0) H5Tclose(a->type);
    if (a->attribute >= 0) H5Aclose(a->attribute);
}

static bool open_attribute(hid_t object, const char *name, struct attribute *a) {
    *a = (struct attribute){.attribute = -1, .type = -1, .class = H5T_NO_CLASS};
    if (H5Aexists(object, name) <= 0) return false;
    a->attribute = H5Aopen(object, name, H5P_DEFAULT);
    hid_t space = a->attribute < 0 ? -1 : H5Aget_space(a->attribute);
    a->type = space < 0 ? -1 : H5Aget_type(a->attribute);
    bool is_good = a->type >= 0 && H5Sget_simple_extent_type(space) == H5S_SCALAR;
    if (space >= 0) H5Sclose(space);
    if (is_good) {
        a->class = H5Tget_class(a->type);
        a->size = H5Tget_size(a->type);
    }
    return is_good;
}

bool hdf5_read_text(hid_t object, const char *name, char *value, size_t size) {
    struct attribute a;
    bool is_good = open_attribute(object, name, &a) && a.class == H5T_STRING && H5Tis_variable_str(a.type) == 0 &&
                   a.size > 0 && a.size < size;
    if (is_good) {
        memset(value, 0, size);
        is_good = H5Aread(a.attribute, a.type, value) >= 0;
    }
    close_attribute(&a);
    return is_good;
}

bool hdf5_read_int64(hid_t object, const char *name, int64_t *value) {
    struct attribute a;
    bool is_good = open_attribute(object, name, &a) && a.class == H5T_INTEGER && a.size <= sizeof *value &&
                   H5Aread(a.attribute, H5T_NATIVE_INT64, value) >= 0;
    close_attribute(&a);
    return is_good;
}

/* ---- datasets ---- */

bool hdf5_product(const hsize_t *factors, int count, uint64_t *product) {
    *product = 1;
    for (int i = 0; i < count; i++)
        if (__builtin_mul_overflow(*product, (uint64_t)factors[i], product)) return false;
    return true;
}

hid_t hdf5_read_access(void) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
    H5Pset_file_locking(access, 0, 1);
#endif
    return access;
}

bool hdf5_has_known_filters(hid_t plan, H5Z_filter_t *filter, char *name, size_t size) {
    int filters = H5Pget_nfilters(plan);
    for (int i = 0; i < filters; i++) {
        unsigned flags, values[32], config;
        size_t n_values = 32;
        name[0] = 0;
        *filter = H5Pget_filter2(plan, (unsigned)i, &flags, &n_values, values, size, name, &config);
        name[size - 1] = 0;
        bool is_known = *filter == H5Z_FILTER_DEFLATE || *filter == H5Z_FILTER_SHUFFLE ||
                        *filter == H5Z_FILTER_FLETCHER32 || *filter == H5Z_FILTER_SZIP;
        if (!is_known || H5Zfilter_avail(*filter) <= 0) return false;
    }
    return filters >= 0;
}
