/* y (size): the mean (0), sum (1) or maximum (2) of the rows of w (vocabulary, size) without the token padding; 2 for a
 * token that w does not have. The tokens are tokens (count), or values (count) where tokens is NULL. */
INLINE int embedding_bag(const int32_t *tokens, const float *values, const float *w, float *y, size_t count,
                         int32_t vocabulary, size_t size, int32_t padding, int mode) {
    size_t i, j, used = 0;
    for (j = 0; j < size; j++) y[j] = 0;
    for (i = 0; i < count; i++) {
        int32_t token;
        const float *from;
        if (!tokens && !(values[i] >= 0 && values[i] < (float)vocabulary)) return 2;
        token = tokens ? tokens[i] : (int32_t)values[i];
        if (token < 0 || token >= vocabulary || (!tokens && (float)token != values[i])) return 2;
        from = w + (size_t)token * size;
        if (token == padding) continue;
        used++;
        for (j = 0; j < size; j++)
            if (mode != 2)
                y[j] += from[j];
            else if (used == 1 || from[j] > y[j])
                y[j] = from[j];
    }
    for (j = 0; mode == 0 && used > 0 && j < size; j++) y[j] /= (float)used;
    return 0;
}
