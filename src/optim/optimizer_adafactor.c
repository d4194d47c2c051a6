/* adafactor: torch.optim.Adafactor. The squares of the gradient of a matrix are kept as a mean of each row and of each
 * column, so that the state is a fraction of the parameters. */
#include <float.h>
#include <math.h>

#include "optim/optimizers.h"

struct adafactor_config {
    double lr, beta2_decay, eps1, eps2, d, weight_decay; /* eps1 NAN: FLT_EPSILON */
};

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(adafactor_config, lr, "0.01", "The largest step, relative to the size of a parameter."),
    SCHEMA_ROW(REAL, struct adafactor_config, beta2_decay, .fallback = "-0.8", .min = -INFINITY, .max = 0,
               .doc = "Update t moves the means of squares by the part t^beta2_decay."),
    OPTIMIZER_REAL(
        adafactor_config, eps1, "null",
        "The smallest root of a mean of squares; null: the epsilon of float32, 1.19e-7 (eps[0] in PyTorch)."),
    OPTIMIZER_REAL(adafactor_config, eps2, "0.001",
                   "The smallest size of a parameter, by which steps are multiplied (eps[1] in PyTorch)."),
    SCHEMA_ROW(REAL, struct adafactor_config, d, .fallback = "1", .min = 1, .max = INFINITY,
               .doc = "The largest size of an update before it is scaled."),
    OPTIMIZER_REAL(adafactor_config, weight_decay, "0", "Values are multiplied by 1 - lr * weight_decay."),
    {0},
};
static const struct schema schema = SCHEMA("optimizer.adafactor", struct adafactor_config, .rows = rows);

enum { ROW_VAR, COL_VAR, VARIANCE };

static bool state_shape(const void *config, const struct param *p, size_t index, int64_t *shape) {
    (void)config;
    if (index == ROW_VAR && p->dims > 1) shape[p->dims - 1] = 1;
    if (index == COL_VAR && p->dims > 1) shape[p->dims - 2] = 1;
    return (index == VARIANCE) == (p->dims < 2);
}

/* The update before it is scaled, and the columns' sums. */
static size_t work(const struct param *p) { return p->count + (p->dims > 1 ? (size_t)p->shape[p->dims - 1] : 0); }

static double norm(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* The mean of squares [variance] as a factor of the gradient: 1 / sqrt(max(variance, eps1^2)) */
static float inverse_root(float variance, double eps1) {
    float least = (float)(eps1 * eps1);
    return 1 / sqrtf(variance < least ? least : variance);
}

/* row_var = lerp(row_var, mean of g^2 of each row);  col_var likewise;
 * u = g / sqrt(row_var col_var / mean(row_var)) of a matrix g (rows, columns) */
static void factor(const float *g, size_t row_count, size_t columns, float weight, double eps1, float *row_var,
                   float *col_var, float *sums, float *u) {
    double total = 0;
    for (size_t c = 0; c < columns; c++) sums[c] = 0;
    for (size_t r = 0; r < row_count; r++) {
        const float *row = g + r * columns;
        float length = (float)norm(row, columns);
        row_var[r] = optimizer_lerp(row_var[r], length * length / (float)columns, weight);
        total += (double)row_var[r];
        for (size_t c = 0; c < columns; c++) sums[c] = fmaf(row[c], row[c], sums[c]);
    }
    for (size_t c = 0; c < columns; c++) col_var[c] = optimizer_lerp(col_var[c], sums[c] / (float)row_count, weight);
    float mean = (float)(total / (double)row_count);
    mean = mean < (float)eps1 ? (float)eps1 : mean;
    for (size_t r = 0; r < row_count; r++)
        for (size_t c = 0; c < columns; c++)
            u[r * columns + c] = g[r * columns + c] * inverse_root(row_var[r] * col_var[c] / mean, eps1);
}

/* rho = min(lr, 1 / sqrt(t));  alpha = max(eps2, rms(p)) rho;  p -= alpha u / max(1, rms(u) / d) */
static void update(const struct optimizer_whole *w) {
    const struct adafactor_config *c = w->config;
    const struct param *p = w->param;
    double lr = w->settings->lr, eps1 = isnan(c->eps1) ? (double)FLT_EPSILON : c->eps1, root = sqrt((double)p->count);
    double rho = fmin(lr, 1 / sqrt((double)w->t)), alpha = fmax(c->eps2, norm(w->values, p->count) / root) * rho;
    float weight = (float)pow((double)w->t, c->beta2_decay), decay = (float)(1 - lr * w->settings->weight_decay);
    float *u = w->work;
    size_t columns = p->dims > 1 ? (size_t)p->shape[p->dims - 1] : 1;
    size_t row_count = p->dims > 1 ? (size_t)p->shape[p->dims - 2] : 1;
    for (size_t i = 0; p->dims < 2 && i < p->count; i++) {
        float *variance = &w->states[VARIANCE][i];
        *variance = optimizer_lerp(*variance, w->gradient[i] * w->gradient[i], weight);
        u[i] = w->gradient[i] * inverse_root(*variance, eps1);
    }
    for (size_t m = 0; p->dims > 1 && m < p->count / (row_count * columns); m++)
        factor(w->gradient + m * row_count * columns, row_count, columns, weight, eps1,
               w->states[ROW_VAR] + m * row_count, w->states[COL_VAR] + m * columns, w->work + p->count,
               u + m * row_count * columns);
    float step = (float)(-alpha / fmax(1, norm(u, p->count) / (root * c->d)));
    for (size_t i = 0; i < p->count; i++) w->values[i] = fmaf(step, u[i], w->values[i] * decay);
}

static const struct optimizer_whole_rule whole = {.update = update, .work = work, .state_shape = state_shape};

static const struct schema_alias aliases[] = {
    VALUE_ALIAS("optimizer", "ada_factor", "adafactor"),
    CALL_ALIAS("optimizer", "adafactor", "? lr beta2_decay"),
    {0},
};

const struct optimizer_type optimizer_adafactor = {
    .aliases = aliases,
    .variant = {"adafactor", &schema,
                "Adafactor: the squares of gradients as means of rows and columns, for a small state "
                "(torch.optim.Adafactor)."},
    .buffers = {"row_var", "col_var", "variance"},
    .whole = &whole,
    .pytorch = "torch.optim.Adafactor({groups}, lr={lr}{,beta2_decay}, eps=({eps1|None}, {eps2}){,d}{,weight_decay})",
};
