/* Hoare's algorithm FIND with the median of three as pivot; after too many bad pivots the rest is sorted, so that no
 * order of the values takes quadratic time. */
#include "data/columns/select.h"

#include <stdlib.h>

#define MAX_ROUNDS 128 /* a good pivot halves the rest */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double middle_of(double a, double b, double c) {
    double low = a < b ? a : b, high = a < b ? b : a;
    return c < low ? low : c > high ? high : c;
}

/* Afterwards values first .. *right are at most the pivot, *left .. last at least, and those between are the pivot. */
static void part(double *values, ptrdiff_t first, ptrdiff_t last, ptrdiff_t *left, ptrdiff_t *right) {
    double pivot = middle_of(values[first], values[first + (last - first) / 2], values[last]);
    ptrdiff_t i = first, j = last;
    while (i <= j) {
        while (values[i] < pivot) i++;
        while (values[j] > pivot) j--;
        if (i > j) break;
        double other = values[i];
        values[i++] = values[j];
        values[j--] = other;
    }
    *left = i;
    *right = j;
}

double select_value(double *values, size_t count, size_t index) {
    ptrdiff_t first = 0, last = (ptrdiff_t)count - 1, wanted = (ptrdiff_t)index, left, right;
    for (int rounds = 0; first < last; rounds++) {
        if (rounds == MAX_ROUNDS) {
            qsort(values + first, (size_t)(last - first + 1), sizeof *values, by_value);
            break;
        }
        part(values, first, last, &left, &right);
        if (right < wanted) first = left;
        if (wanted < left) last = right;
    }
    return values[index];
}
