/* long_sums: when a sum of float32 numbers gets a new accumulator. The error of one chain of additions grows with the
 * number of terms. A sum of more than LONG_SUM terms is therefore divided into runs: each has a float32 sum, and the
 * sums of the runs are added in double where they are few numbers, else in float32. The order of the terms depends only
 * on their number: neither on threads nor on the instruction set. */
#ifndef DEVICE_LONG_SUMS_H
#define DEVICE_LONG_SUMS_H

#define LONG_SUM 4096
#define LONG_SUM_RUN 512     /* terms of a run */
#define LONG_PRODUCT_RUN 384 /* maximum terms of a run of the sums of a matrix product */

#endif
