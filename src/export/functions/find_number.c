/* The index of value in items (count); -1: it is none of them. */
INLINE int find_number(double value, const double *items, int count) {
    int i;
    for (i = 0; i < count; i++)
        if (!(items[i] < value) && !(items[i] > value)) return i;
    return -1;
}
