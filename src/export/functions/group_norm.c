/* y (positions, channels) = (x - mean) / sqrt(variance + eps) w + b over each group of channels */
INLINE void group_norm(const float *x, const float *w, const float *b, double eps, float *y, size_t positions,
                       size_t channels, size_t groups) {
    size_t size = channels / groups, g, i, c;
    for (g = 0; g < groups; g++) {
        const float *from = x + g * size;
        double sum = 0, squares = 0, count = (double)(size * positions), origin = (double)from[0], mean, variance;
        float center, inverse;
        for (i = 0; i < positions; i++)
            for (c = 0; c < size; c++) {
                double d = (double)from[i * channels + c] - origin;
                sum += d;
                squares += d * d;
            }
        mean = origin + sum / count;
        variance = squares / count - sum / count * (sum / count);
        center = (float)mean;
        inverse = (float)(1 / sqrt((variance < 0 ? 0 : variance) + eps));
        for (i = 0; i < positions; i++)
            for (c = 0; c < size; c++) {
                float v = (from[i * channels + c] - center) * inverse;
                y[i * channels + g * size + c] = w ? fmaf(v, w[g * size + c], b[g * size + c]) : v;
            }
    }
}
