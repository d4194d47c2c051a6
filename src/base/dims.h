/* dims: the most dimensions of a tensor, in the model, in the data and in files. */
#ifndef BASE_DIMS_H
#define BASE_DIMS_H

#define MAX_DIMS 8

#endif
