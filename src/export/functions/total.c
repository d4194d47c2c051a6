/* Sums have 16 partial sums, of the elements with equal index modulo 16, which are added by halves. */
INLINE float total(const float *sums) {
    float four[4];
    size_t i;
    for (i = 0; i < 4; i++) four[i] = (sums[i] + sums[i + 8]) + (sums[i + 4] + sums[i + 12]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}
