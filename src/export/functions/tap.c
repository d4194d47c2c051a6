/* The elements of x that element [o] of an upsampled dimension is made of: (1 - weight) x[first] + weight x[second] */
struct tap {
    size_t first, second;
    float weight;
};

INLINE struct tap tap_of(size_t in, size_t out, float scale, int is_nearest, int align_corners, size_t o) {
    struct tap t = {0, 0, 0};
    float at = scale * (float)o;
    if (!is_nearest && !align_corners) at = scale * ((float)o + 0.5f) - 0.5f;
    if (at < 0) at = 0;
    t.first = in == out && !(is_nearest && scale < 1) ? o : (size_t)at;
    if (t.first >= in) t.first = in - 1;
    t.second = t.first;
    if (is_nearest || in == out) return t;
    t.weight = at - (float)t.first;
    if (t.weight > 1) t.weight = 1;
    if (t.first + 1 < in) t.second = t.first + 1;
    return t;
}
