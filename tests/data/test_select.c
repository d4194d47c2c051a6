/* A selected value is that of a sort, and its neighbours are on their sides. ctest-labels: unit */
#include <math.h>
#include <stdlib.h>

#include "check_main.h"
#include "data/columns/preparation.h"

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { MOST = 400 };

/* Value [i] of [count] in one of several orders. */
static double value_of(int kind, size_t i, size_t count, uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    double draw = (double)(*state >> 11);
    switch (kind) {
    case 0:
        return draw;
    case 1:
        return (double)((*state >> 33) % 3);
    case 2:
        return (double)i;
    case 3:
        return -(double)i;
    case 4:
        return (double)(i < count / 2 ? i : count - i);
    case 5:
        return i % 7 == 0 ? INFINITY : i % 11 == 0 ? -INFINITY : draw;
    default:
        return 5;
    }
}

TEST(is_the_value_of_a_sort) {
    uint64_t state = 3;
    double values[MOST], sorted[MOST];
    for (int kind = 0; kind < 7; kind++)
        for (size_t count = 1; count <= MOST; count += count < 40 ? 1 : 71)
            for (size_t index = 0; index < count; index += count < 40 ? 1 : 13) {
                for (size_t i = 0; i < count; i++) sorted[i] = values[i] = value_of(kind, i, count, &state);
                qsort(sorted, count, sizeof *sorted, compare);
                ck_assert(select_value(values, count, index) == sorted[index]);
                ck_assert(values[index] == sorted[index]);
                for (size_t i = 0; i < count; i++)
                    ck_assert(i < index ? values[i] <= values[index] : values[i] >= values[index]);
                qsort(values, count, sizeof *values, compare);
                ck_assert_mem_eq(values, sorted, count * sizeof *values);
            }
}

CHECK_MAIN("select")
