/* muon: torch.optim.Muon. A matrix moves by its momentum with all singular values made about 1, by an iteration of
 * Newton and Schulz in bfloat16. It is for matrices; adamw updates the parameters with other numbers of dimensions, and
 * the matrices that adamw_match names: embeddings and the last layer. */
#include <fnmatch.h>
#include <math.h>

#include "base/bits.h"
#include "optim/optimizers.h"

struct muon_config {
    double lr, weight_decay, momentum, eps;
    bool nesterov;
    struct real_list ns_coefficients;
    int64_t ns_steps;
    int adjust_lr; /* enum adjust */
    struct string_list adamw_match;
    struct adam_config adamw;
};

static const char *const adjusts[] = {"original", "match_rms_adamw", NULL};
enum adjust { ORIGINAL, MATCH_RMS_ADAMW };

static const struct schema_row adamw_rows[] = {
    OPTIMIZER_REAL(adam_config, lr, "0.001", "Learning rate."),
    OPTIMIZER_BETAS(adam_config, "[0.9, 0.999]", "Decay of the running means of the gradient and of its square."),
    OPTIMIZER_REAL(adam_config, eps, "1e-08", "Added to the denominator."),
    OPTIMIZER_REAL(adam_config, weight_decay, "0.01", "Values are multiplied by 1 - lr * weight_decay."),
    {0},
};

static const struct schema adamw_schema =
    SCHEMA("optimizer.muon.adamw", struct adam_config, .rows = adamw_rows, .check = optimizer_check_betas);

static const struct schema_row rows[] = {
    OPTIMIZER_REAL(muon_config, lr, "0.001", "Learning rate of the matrices."),
    OPTIMIZER_REAL(muon_config, weight_decay, "0.1", "Matrices are multiplied by 1 - lr * weight_decay."),
    SCHEMA_ROW(REAL, struct muon_config, momentum, .fallback = "0.95", .min = 0, .max = 1,
               .doc = "Decay of the running mean of the gradient."),
    SCHEMA_ROW(BOOL, struct muon_config, nesterov, .fallback = "true",
               .doc = "Use the gradient moved towards its mean instead of the mean."),
    SCHEMA_ROW(REAL_LIST, struct muon_config, ns_coefficients, .fallback = "[3.4445, -4.775, 2.0315]", .min = -INFINITY,
               .max = INFINITY, .doc = "a, b, c of an iteration X = a X + (b A + c A A) X, A = X X^T."),
    OPTIMIZER_REAL(muon_config, eps, "1e-07", "The smallest norm by which a matrix is divided."),
    SCHEMA_ROW(INT, struct muon_config, ns_steps, .fallback = "5", .min = 0, .max = 99, .doc = "Iterations."),
    SCHEMA_ROW(
        CHOICE, struct muon_config, adjust_lr, .fallback = "original", .choices = adjusts,
        .doc =
            "Factor of the rate of a matrix (rows, columns): `original`: sqrt(max(1, rows / columns)); "
            "`match_rms_adamw`: 0.2 sqrt(max(rows, columns)), for rates as those of adamw (PyTorch's adjust_lr_fn)."),
    SCHEMA_ROW(STRING_LIST, struct muon_config, adamw_match, .fallback = "null",
               .doc = "Names of matrices that adamw updates, too, as shell patterns: embeddings and the last layer."),
    SCHEMA_ROW(SECTION, struct muon_config, adamw, .section = &adamw_schema,
               .doc = "adamw, for parameters that are not matrices, and those of `adamw_match`."),
    {0},
};

static void check(void *config, const struct node *where, const char *path, struct problems *problems) {
    const struct muon_config *c = config;
    if (c->ns_coefficients.count != 3)
        problems_add(problems, where ? where->place : (struct place){0}, path,
                     "ns_coefficients must be three numbers, got %zu", c->ns_coefficients.count);
}

static const struct schema schema = SCHEMA("optimizer.muon", struct muon_config, .rows = rows, .check = check);

static struct optimizer_settings settings(const void *config) {
    const struct muon_config *c = config;
    return (struct optimizer_settings){.lr = c->lr, .weight_decay = c->weight_decay, .momentum = c->momentum};
}

static struct optimizer_settings other_settings(const void *config) {
    return optimizer_settings_of(&optimizer_adamw, &((const struct muon_config *)config)->adamw);
}

static union optimizer_constants plan_other(const void *config, const struct optimizer_settings *own, int64_t t) {
    return optimizer_adamw.plan(&((const struct muon_config *)config)->adamw, own, t);
}

static bool is_other(const void *config, const struct param *p) {
    const struct muon_config *c = config;
    for (size_t i = 0; i < c->adamw_match.count; i++)
        if (fnmatch(c->adamw_match.items[i], p->name, 0) == 0) return true;
    return p->dims != 2;
}

enum { MOMENTUM_BUFFER, EXP_AVG };

static bool state_shape(const void *config, const struct param *p, size_t index, int64_t *shape) {
    (void)shape;
    return is_other(config, p) == (index >= EXP_AVG);
}

/* ---- the iteration; m <= n are the numbers of rows and columns, or the other way round ---- */

struct size {
    size_t m, n;
    bool is_transposed;
};

static struct size size_of(const struct param *p) {
    size_t r = (size_t)p->shape[0], c = (size_t)p->shape[1];
    return r > c ? (struct size){c, r, true} : (struct size){r, c, false};
}

/* Two matrices (m, n) and two (m, m). */
static size_t work(const struct param *p) {
    if (p->dims != 2) return 0;
    struct size s = size_of(p);
    return 2 * s.m * s.n + 2 * s.m * s.m;
}

static float rounded(float x) { return bits_from_bfloat16(bits_to_bfloat16(x)); }

/* y = rounded(a x + b y) */
static void combine(float a, const float *x, float b, float *y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] = rounded(fmaf(a, x[i], b * y[i]));
}

/* Makes the singular values of x (m, n) about 1; returns it in x or in the work memory behind it. */
static float *orthogonalize(const struct optimizer_whole *w, const struct muon_config *c, struct size s, float *x) {
    const struct device_ops *ops = device_ops(w->device);
    const double *k = c->ns_coefficients.items;
    float *next = x + s.m * s.n, *gram = next + s.m * s.n, *square = gram + s.m * s.m;
    float length = rounded(ops->norm(w->device, x, s.m * s.n)), least = rounded((float)c->eps);
    length = length < least ? least : length;
    for (size_t i = 0; i < s.m * s.n; i++) x[i] = rounded(x[i] / length);
    for (int64_t step = 0; step < c->ns_steps; step++) {
        ops->linear_forward(w->device, F32(x), x, NULL, false, F32(gram), s.m, s.n, s.m);
        for (size_t i = 0; i < s.m * s.m; i++) gram[i] = rounded(gram[i]);
        ops->linear_forward(w->device, F32(gram), gram, NULL, false, F32(square), s.m, s.m, s.m);
        combine((float)k[1], gram, (float)k[2], square, s.m * s.m);
        ops->linear_backward_input(w->device, F32(square), x, F32(next), s.m, s.n, s.m);
        combine((float)k[0], x, 1, next, s.m * s.n);
        float *last = x;
        x = next, next = last;
    }
    return x;
}

/* buf = lerp(buf, g, 1 - mu);  x = lerp(g, buf, mu), or buf;  p = p (1 - lr wd) - lr factor orthogonalize(x) */
static void update(const struct optimizer_whole *w) {
    const struct muon_config *c = w->config;
    struct size s = size_of(w->param);
    size_t columns = (size_t)w->param->shape[1], count = w->param->count;
    float mu = (float)w->settings->momentum, rest = (float)(1 - w->settings->momentum), *x = w->work;
    for (size_t i = 0; i < count; i++) {
        float g = w->gradient[i], *buf = &w->states[MOMENTUM_BUFFER][i];
        *buf = optimizer_lerp(*buf, g, rest);
        size_t to = s.is_transposed ? i % columns * s.n + i / columns : i;
        x[to] = rounded(c->nesterov ? optimizer_lerp(g, *buf, mu) : *buf);
    }
    x = orthogonalize(w, c, s, x);
    double larger = (double)s.n, ratio = s.is_transposed ? larger / (double)s.m : 1, lr = w->settings->lr;
    float step = (float)-(lr * (c->adjust_lr == ORIGINAL ? sqrt(ratio) : 0.2 * sqrt(larger)));
    float decay = (float)(1 - lr * w->settings->weight_decay);
    for (size_t i = 0; i < count; i++) {
        size_t from = s.is_transposed ? i % columns * s.n + i / columns : i;
        w->values[i] = fmaf(step, x[from], w->values[i] * decay);
    }
}

/* ---- the same in PyTorch: two optimizers with the groups of both ---- */

static status write_pytorch(const void *config, struct text *out) {
    const struct muon_config *c = config;
    text_add(out, "class Together(torch.optim.Optimizer):\n"
                  "    def __init__(self, parts):\n"
                  "        self.parts = parts\n"
                  "        super().__init__([group for part in parts for group in part.param_groups], {})\n\n"
                  "    def step(self):\n"
                  "        for part in self.parts:\n"
                  "            part.step()\n\n\n"
                  "patterns = ");
    text_add_json_list(out, c->adamw_match.items, c->adamw_match.count);
    text_add(out, "\nmatrices, others = [], []\n"
                  "for name, p in model.named_parameters():\n"
                  "    is_other = p.dim() != 2 or any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)\n"
                  "    (others if is_other else matrices).append(p)\n"
                  "parts = [");
    TRY(schema_fill(&schema, config,
                    "torch.optim.Muon(matrices, "
                    "lr={lr}{,weight_decay}{,momentum}{,nesterov}{,ns_coefficients}{,eps}{,ns_steps}{,adjust_lr:adjust_"
                    "lr_fn})]\nif others:\n    parts.append(",
                    NULL, NULL, out));
    TRY(schema_fill(&adamw_schema, &c->adamw, "torch.optim.AdamW(others, lr={lr}{,betas}{,eps}{,weight_decay}))\n",
                    NULL, NULL, out));
    text_add(out, "optimizer = Together(parts)\n");
    return OK;
}

static const struct optimizer_whole_rule whole = {
    .update = update,
    .work = work,
    .state_shape = state_shape,
    .is_other = is_other,
    .other_settings = other_settings,
    .other_buffer = EXP_AVG,
    .write_pytorch = write_pytorch,
    .what = "matrices",
};

static const struct schema_alias aliases[] = {
    KEY_ALIAS("optimizer.muon", "adjust_lr_fn", ".adjust_lr"),
    CALL_ALIAS("optimizer", "muon", "? lr weight_decay momentum nesterov ns_coefficients eps ns_steps adjust_lr"),
    {0},
};

const struct optimizer_type optimizer_muon = {
    .aliases = aliases,
    .variant = {"muon", &schema,
                "Muon: matrices move by their momentum with equal singular values, all other parameters by adamw "
                "(torch.optim.Muon)."},
    .buffers = {"momentum_buffer", "exp_avg", "exp_avg_sq"},
    .settings = settings,
    .plan = plan_other,
    .rule = RULE_ADAM,
    .whole = &whole,
};
