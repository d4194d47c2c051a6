/* hdf5: common functions for libhdf5. Files are not trusted: an attribute or a dataset is read only after its type,
 * size and number of values were checked, and a child process opens each file first, because libhdf5 can crash on a
 * crafted file. Datasets of the simplest kind are found without libhdf5. */
#pragma once

#include <hdf5.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dims.h"
#include "base/status.h"

/* The error printer of this thread, which is disabled between hdf5_enter and hdf5_leave. */
struct hdf5_silence {
    H5E_auto2_t print;
    void *data;
};

/* Lock and unlock libhdf5; every call of libhdf5 is between these two. One thread may nest them. */
void hdf5_enter(struct hdf5_silence *silence);
void hdf5_leave(const struct hdf5_silence *silence);
/* Leaves as often as this thread has entered and not left: after status_catch_memory has caught a failure. */
void hdf5_leave_all(void);

/* Leaves what libhdf5 has at the end of the process to the system, which frees it sooner: for a program, whose files
 * are all closed before. Before any other function of libhdf5. */
void hdf5_skip_end(void);

/* Whether there is memory for an open file, without which H5Fopen and H5Fcreate of libhdf5 1.10 crash. */
status hdf5_check_memory(void);

/* Access properties for H5Fopen that take no lock: locks fail on NFS and Lustre, and readers need none. To be closed.
 */
hid_t hdf5_read_access(void);

/* The innermost error on this thread's libhdf5 error stack; [otherwise] when the stack is empty. */
void hdf5_reason(char *reason, size_t size, const char *otherwise);

/* Whether that stack says that libhdf5 had no memory. */
bool hdf5_lacks_memory(void);

/* Reads the attribute [name] of [object] to [value], NUL-terminated. False when it is absent or not one fixed-length
 * string of less than [size] bytes. */
bool hdf5_read_text(hid_t object, const char *name, char *value, size_t size);
/* The same for one integer of at most 8 bytes. */
bool hdf5_read_int64(hid_t object, const char *name, int64_t *value);

/* The product of [count] factors; false when it does not fit. */
bool hdf5_product(const hsize_t *factors, int count, uint64_t *product);

/* Whether this program's libhdf5 can decode every filter of a dataset's creation properties [plan]. Only deflate,
 * shuffle, fletcher32 and szip are accepted; when false, [filter] is the first other one and [name] (size) its name. */
bool hdf5_has_known_filters(hid_t plan, H5Z_filter_t *filter, char *name, size_t size);

/* Runs [look] in a child process, which opens the file [path] and reads everything that the caller is going to read.
 * Returns the child's failure, so the caller parses only a file that the child could parse. STATUS_DATA when the child
 * crashes, is killed or uses HDF5_MAX_SECONDS of processor time, STATUS_IO when it has not ended after HDF5_MAX_WAIT
 * seconds, or has ended without a report and its end is unknown. The child may allocate HDF5_MAX_MEMORY; libhdf5 fails
 * when that is exceeded. OK when no child can be started. Call it between hdf5_enter and hdf5_leave. [look] must not
 * call these: the lock belongs to the caller's thread, and the child would deadlock. */
#define HDF5_MAX_SECONDS 60
#define HDF5_MAX_WAIT 300
#define HDF5_MAX_MEMORY ((size_t)4 << 30)
typedef status hdf5_look(void *context);
status hdf5_try_in_child(const char *path, hdf5_look *look, void *context);
/* The same with [seconds] instead of HDF5_MAX_WAIT. */
status hdf5_try_for(const char *path, double seconds, hdf5_look *look, void *context);

/* A dataset in one piece. */
struct hdf5_plain {
    int dims; /* 0: one value */
    uint64_t shape[MAX_DIMS + 1];
    uint64_t start;     /* of the values in the file, all of which are in it, unless there are none */
    size_t value_bytes; /* 1, 2, 4 or 8; of a text: all of it */
    bool is_text;       /* else a number */
    bool is_float, is_signed, is_big;
};

/* Finds the dataset [name] ("a/b") in the open file without libhdf5. false: the file or the dataset is of another kind,
 * damaged or not there; libhdf5 says what. Needs no hdf5_enter. */
bool hdf5_plain_find(int fd, uint64_t file_bytes, const char *name, struct hdf5_plain *out);

/* Two attributes of the root. */
struct hdf5_plain_attributes {
    char format[64];        /* empty: there is none */
    int64_t format_version; /* 0: there is none */
};

/* Calls [visit] with all datasets of the file (size) in memory and their paths ("a/b"), without libhdf5. false: as
 * above, or a failure of [visit]; some may have been visited. */
typedef bool hdf5_plain_visitor(void *context, const char *path, const struct hdf5_plain *dataset);
bool hdf5_plain_walk(const void *image, size_t size, struct hdf5_plain_attributes *attributes,
                     hdf5_plain_visitor *visit, void *context);
