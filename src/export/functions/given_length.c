/* The length that is an input, 1 to [positions]; 0: it is none */
INLINE size_t given_length(float value, size_t positions) {
    if (!(value >= 1 && value <= (float)positions)) return 0;
    return (float)(size_t)value < value ? 0 : (size_t)value;
}
