/* Element-wise functions. */

/* ---- relu ---- */
/* y (count) = max(x, 0); y may be x */
INLINE void relu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i];
}

/* ---- hyperbolic_tangent (tangent) ---- */
/* y (count) = tanh(x); y may be x */
INLINE void hyperbolic_tangent(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = tangent(x[i]);
}

/* ---- sigmoid (exponential) ---- */
/* y (count) = 1 / (1 + exp(-x)); y may be x */
INLINE void sigmoid(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = 1 / (1 + exponential(-x[i]));
}

/* ---- silu (exponential) ---- */
/* y (count) = x / (1 + exp(-x)); y may be x */
INLINE void silu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] / (1 + exponential(-x[i]));
}

/* ---- gelu (error_function) ---- */
/* y (count) = x (1 + erf(x / sqrt(2))) / 2; y may be x */
INLINE void gelu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] * 0.5f * (1 + error_function(x[i] * 0.70710678118654752440f));
}

/* ---- gelu_tanh (tangent) ---- */
/* y (count) = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2; y may be x */
INLINE void gelu_tanh(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float v = x[i];
        y[i] = 0.5f * v * (1 + tangent(0.79788456080286535588f * (v + 0.044715f * v * v * v)));
    }
}

/* ---- leaky_relu ---- */
/* y (count) = x above 0, slope x below; y may be x */
INLINE void leaky_relu(const float *x, float slope, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slope * x[i];
}

/* ---- relu6 ---- */
/* y (count) = min(max(x, 0), 6); y may be x */
INLINE void relu6(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 6 ? 6 : x[i] <= 0 ? 0 : x[i];
}

/* ---- elu (exp_minus_one) ---- */
/* y (count) = x above 0, alpha (exp(x) - 1) below; y may be x */
INLINE void elu(const float *x, float alpha, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : alpha * exp_minus_one(x[i]);
}

/* ---- celu (exp_minus_one) ---- */
/* y (count) = x above 0, alpha (exp(x / alpha) - 1) below; inverse: 1 / alpha; y may be x */
INLINE void celu(const float *x, float alpha, float inverse, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : alpha * exp_minus_one(x[i] * inverse);
}

/* ---- selu (exp_minus_one) ---- */
/* y (count) = x above 0, 1.6733 (exp(x) - 1) below, times 1.0507; y may be x */
INLINE void selu(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++)
        y[i] = x[i] > 0 ? x[i] * 1.0507009873554804934f : exp_minus_one(x[i]) * 1.7580993408473768600f;
}

/* ---- hardswish ---- */
/* y (count) = x min(max(x + 3, 0), 6) / 6; y may be x */
INLINE void hardswish(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float v = x[i] + 3;
        y[i] = x[i] * (v > 6 ? 6 : v <= 0 ? 0 : v) / 6;
    }
}

/* ---- hardsigmoid ---- */
/* y (count) = min(max(x + 3, 0), 6) / 6; y may be x */
INLINE void hardsigmoid(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float v = x[i] + 3;
        y[i] = (v > 6 ? 6 : v <= 0 ? 0 : v) / 6;
    }
}

/* ---- mish (exponential) ---- */
/* y (count) = x tanh(log(1 + exp(x))); y may be x */
INLINE void mish(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float e = exponential(x[i] < 20 ? x[i] : 20), w = e * (e + 2);
        y[i] = x[i] * (w / (w + 2));
    }
}

/* ---- softplus (exponential, log_plus_one) ---- */
/* y (count) = log(1 + exp(beta x)) / beta, x where beta x is above the threshold; y may be x */
INLINE void softplus(const float *x, float beta, float threshold, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) {
        float z = beta * x[i];
        y[i] = z > threshold ? x[i] : ((z > 0 ? z : 0) + log_plus_one(exponential(-fabsf(z)))) / beta;
    }
}

/* ---- hardtanh ---- */
/* y (count) = min(max(x, low), high); y may be x */
INLINE void hardtanh(const float *x, float low, float high, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] < low ? low : x[i] > high ? high : x[i];
}

/* ---- threshold ---- */
/* y (count) = x above the limit, else value; y may be x */
INLINE void threshold(const float *x, float limit, float value, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] <= limit ? value : x[i];
}

/* ---- softshrink ---- */
/* y (count) = x moved towards 0 by lambda, 0 where it is nearer; y may be x */
INLINE void softshrink(const float *x, float lambda, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > lambda ? x[i] - lambda : x[i] < -lambda ? x[i] + lambda : x[i] * 0;
}

/* ---- hardshrink ---- */
/* y (count) = x, 0 from -lambda to lambda; y may be x */
INLINE void hardshrink(const float *x, float lambda, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] >= -lambda && x[i] <= lambda ? 0 : x[i];
}

/* ---- logsigmoid (exponential, log_plus_one) ---- */
/* y (count) = -log(1 + exp(-x)); y may be x */
INLINE void logsigmoid(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = (x[i] > 0 ? 0 : x[i]) - log_plus_one(exponential(-fabsf(x[i])));
}

/* ---- softsign ---- */
/* y (count) = x / (1 + |x|); y may be x */
INLINE void softsign(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] / (1 + fabsf(x[i]));
}

/* ---- tanhshrink (tangent) ---- */
/* y (count) = x - tanh(x); y may be x */
INLINE void tanhshrink(const float *x, float *y, size_t count) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] - tangent(x[i]);
}

/* ---- prelu ---- */
/* x above 0, else x times the slope of its channel */
INLINE void prelu(const float *x, const float *slopes, float *y, size_t count, size_t channels) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] > 0 ? x[i] : slopes[i % channels] * x[i];
}

/* ---- scale ---- */
/* x times the factor of its channel */
INLINE void scale(const float *x, const float *factors, float *y, size_t count, size_t channels) {
    size_t i;
    for (i = 0; i < count; i++) y[i] = x[i] * factors[i % channels];
}
