/* hdf5: what every user of libhdf5 in this program shares: the library stays silent (it prints to the terminal by
 * default), and its reason becomes part of our sentence. */
#ifndef BASE_HDF5_H
#define BASE_HDF5_H

#include <hdf5.h>
#include <stddef.h>

/* The innermost reason on libhdf5's error stack of this thread; [otherwise] when there is none. */
void hdf5_reason(char *reason, size_t size, const char *otherwise);

#endif
