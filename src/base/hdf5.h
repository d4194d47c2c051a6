/* hdf5: what every user of libhdf5 in this program shares. Files come from anywhere, so an attribute or a dataset is
 * read only after its type, size and number of values are known, and a file is first opened by a child process, because
 * libhdf5 can crash on a crafted one. */
#ifndef BASE_HDF5_H
#define BASE_HDF5_H

#include <hdf5.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* This thread's error printer, switched off meanwhile (libhdf5 prints to the terminal by default). */
struct hdf5_silence {
    H5E_auto2_t print;
    void *data;
};

/* Every call of libhdf5 is between these two. One thread at a time is there; the same thread may nest them. */
void hdf5_enter(struct hdf5_silence *silence);
void hdf5_leave(const struct hdf5_silence *silence);

/* The innermost reason on libhdf5's error stack of this thread; [otherwise] when there is none. */
void hdf5_reason(char *reason, size_t size, const char *otherwise);

/* Whether [object] has an attribute [name] that is one fixed-length text of less than [size] bytes; fills [value] then,
 * NUL-terminated. */
bool hdf5_read_text(hid_t object, const char *name, char *value, size_t size);
/* The same for one integer of at most 8 bytes. */
bool hdf5_read_int64(hid_t object, const char *name, int64_t *value);

/* The product of [count] factors; false when it does not fit. */
bool hdf5_product(const hsize_t *factors, int count, uint64_t *product);

/* Whether every step of the path "a/b/c" is a hard link, so that opening it reads no other file. */
bool hdf5_is_inside(hid_t file, const char *path);

/* Whether libhdf5 of this program can undo every filter of a dataset's creation properties [plan]. Only deflate,
 * shuffle, fletcher32 and szip are accepted; when false, [filter] is the first other one and [name] (size) its name. */
bool hdf5_has_known_filters(hid_t plan, H5Z_filter_t *filter, char *name, size_t size);

/* Runs [look] in a child process, which opens the file [path] and looks at what the caller is going to look at. The
 * child's failure is returned, so the caller parses only a file that the child could parse. STATUS_DATA when the child
 * crashes, is killed or uses HDF5_MAX_SECONDS of processor time, STATUS_IO when it has not ended after HDF5_MAX_WAIT
 * seconds. It gets HDF5_MAX_MEMORY at most, beside what the caller has, and libhdf5 fails when that is used up. Without
 * memory or a process for the child OK. Between hdf5_enter and hdf5_leave, which [look] must not call: the lock belongs
 * to the caller's thread, and the child would wait for ever. */
#define HDF5_MAX_SECONDS 60
#define HDF5_MAX_WAIT 300
#define HDF5_MAX_MEMORY ((size_t)4 << 30)
typedef status hdf5_look(void *context);
status hdf5_try_in_child(const char *path, hdf5_look *look, void *context);
/* The same with another limit of the time. */
status hdf5_try_for(const char *path, double seconds, hdf5_look *look, void *context);

#endif
