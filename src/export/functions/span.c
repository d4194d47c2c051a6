/* The elements of a window along one dimension, in the image; [padded]: with those in the padding. */
struct span {
    size_t from, to, padded;
};

INLINE struct span span_of(struct model_window w, int is_adaptive, int d, size_t in, size_t out, size_t o) {
    struct span s = {0, 0, 0};
    size_t start, end, last;
    if (is_adaptive) {
        s.from = o * in / out;
        s.to = ((o + 1) * in + out - 1) / out;
        return s;
    }
    start = o * w.stride[d];
    end = start + w.kernel[d];
    last = in + 2 * w.padding[d];
    s.from = start < w.padding[d] ? 0 : start - w.padding[d];
    s.to = (end < in + w.padding[d] ? end : in + w.padding[d]) - w.padding[d];
    s.padded = (end < last ? end : last) - start;
    return s;
}
