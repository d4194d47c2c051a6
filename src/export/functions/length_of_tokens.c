/* The tokens up to the last one that is not [padding], at least 1 */
INLINE size_t length_of_tokens(const int32_t *tokens, size_t count, int32_t padding) {
    while (count > 1 && tokens[count - 1] == padding) count--;
    return count;
}
