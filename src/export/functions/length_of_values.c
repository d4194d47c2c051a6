/* The tokens up to the last one that is not [padding], at least 1 */
INLINE size_t length_of_values(const float *tokens, size_t count, float padding) {
    while (count > 1 && !(tokens[count - 1] < padding) && !(tokens[count - 1] > padding)) count--;
    return count;
}
