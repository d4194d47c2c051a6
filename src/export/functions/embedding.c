/* y (count, size): row tokens[i] of w; 2 for a token that w does not have */
INLINE int embedding(const int32_t *tokens, const float *w, float *y, size_t count, int32_t vocabulary, size_t size) {
    size_t i;
    for (i = 0; i < count; i++) {
        if (tokens[i] < 0 || tokens[i] >= vocabulary) return 2;
        memcpy(y + i * size, w + (size_t)tokens[i] * size, size * sizeof *y);
    }
    return 0;
}
