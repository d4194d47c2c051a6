/* The index of text in items (count); -1: it is none of them. */
INLINE int find_text(const char *text, const char *const *items, int count) {
    int i;
    for (i = 0; i < count; i++)
        if (strcmp(items[i], text) == 0) return i;
    return -1;
}
