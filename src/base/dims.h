/* dims: the most dimensions of a tensor, in the model, in the data and in files. */
#pragma once

#define MAX_DIMS 8
