/* extension: writes the first version of an extension, checks one, and compiles one for machines without a compiler. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/files/io.h"
#include "command.h"
#include "train/config/extension.h"
#include "train/metrics/own_metric.h"
#include "train/plan/plan.h"

#define PLACEHOLDER "my_name" /* of a template: the name */
#define MAX_NAME 60

/* ---- new ---- */

static const struct {
    const char *kind, *text, *config;
} kinds[] = {
    {"loss", "extension_loss.c.in",
     "model:\n  layers: [{linear: 16}, tanh, {linear: 1}]\nloss: my_name\noptimizer: {type: adam, lr: 0.01}\n"},
    {"layer", "extension_layer.c.in",
     "model:\n  layers: [{linear: 16}, my_name, {linear: 1}]\nloss: mse\noptimizer: {type: adam, lr: 0.01}\n"},
    {"optimizer", "extension_optimizer.c.in",
     "model:\n  layers: [{linear: 16}, tanh, {linear: 1}]\nloss: mse\noptimizer: my_name\n"},
    {"sampler", "extension_sampler.c.in",
     "sampler: {batch_size: 16, order: my_name}\nmodel:\n  layers: [{linear: 16}, tanh, {linear: 1}]\nloss: mse\n"
     "optimizer: {type: adam, lr: 0.01}\n"},
    {"metric", "extension_metric.c.in",
     "model:\n  layers: [{linear: 16}, tanh, {linear: 1}]\nloss: mse\noptimizer: {type: adam, lr: 0.01}\n"
     "checkpoint: {best: val_my_name}\n"},
};
#define KINDS (sizeof kinds / sizeof *kinds)

static const char rows_of_config[] = "extensions: [my_name.c]\n\n"
                                     "dataset:\n  format: synthetic # replace it by your data: path: data.csv\n"
                                     "  synthetic: {kind: linear, rows: 512, inputs: 8, targets: 1}\n  split: 0.25\n";

/* [template] with the name. */
static void add_named(const char *template, const char *name, struct text *out) {
    for (const char *at; (at = strstr(template, PLACEHOLDER)); template = at + strlen(PLACEHOLDER)) {
        text_add_bytes(out, template, (size_t)(at - template));
        text_add(out, name);
    }
    text_add(out, template);
}

static status check_name(const char *name) {
    bool is_name = (isalpha((unsigned char)*name) || *name == '_') && strlen(name) <= MAX_NAME;
    for (const char *c = name; *c; c++) is_name = is_name && (isalnum((unsigned char)*c) || *c == '_');
    if (is_name) return OK;
    return status_usage("the name is one of the C language, of letters, digits and '_', got '%.80s'", name);
}

static status write_new(const char *path, const struct text *text) {
    int fd;
    struct io_info info;
    TRY(io_stat(path, &info));
    if (info.exists) return status_usage("'%s' exists already; it is not replaced", path);
    TRY(io_create(path, &fd));
    status s = io_write(fd, path, text_string(text), text->length);
    return status_first(s, io_close(fd, path));
}

static status new (const char *kind, const char *name) {
    SCOPED_TEXT source = {0}, config = {0};
    SCOPED_STRING source_path = text_format("%s.c", name), *config_path = text_format("%s.yaml", name);
    size_t k = 0;
    while (k < KINDS && strcmp(kinds[k].kind, kind) != 0) k++;
    if (k == KINDS)
        return status_usage("extension new: expected loss, layer, optimizer, sampler or metric, got '%.80s'", kind);
    TRY(check_name(name));
    add_named(command_text(kinds[k].text), name, &source);
    add_named(rows_of_config, name, &config);
    add_named(kinds[k].config, name, &config);
    bool is_metric = strcmp(kind, "metric") == 0;
    text_printf(&config, "train: {epochs: 20%s%s%s}\n", is_metric ? ", metrics: [" : "", is_metric ? name : "",
                is_metric ? "]" : "");
    TRY(write_new(source_path, &source));
    TRY(write_new(config_path, &config));
    printf("%s.c, %s.yaml; next: ddptrain extension test %s.c, ddptrain %s.yaml\n", name, name, name, name);
    return OK;
}

/* ---- test ---- */

#define BATCH 16
#define STEP 4e-3f   /* of the differences: large, because values are float32 */
#define PER_PARAM 40 /* elements of a parameter that are compared, nearly */
#define STEPS 200    /* of an optimizer */

/* A model with a batch of rows. */
struct trial {
    struct plan *plan;
    struct loader *loader;
    struct comm *ranks; /* this one alone */
    struct batch batch;
    uint64_t pass_number;
};

static void close_trial(struct trial *t) {
    loader_destroy(t->loader);
    comm_destroy(t->ranks);
    plan_destroy(t->plan);
}

static status open_trial(const struct config *config, struct trial *t) {
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    struct rng rng;
    TRY(plan_create(config, &(struct plan_options){.purpose = PLAN_TRAINING, .env = &alone}, &t->plan));
    struct plan *p = t->plan;
    if (!device_is_host(p->device)) return status_usage("an extension is checked on the CPU; use cpu");
    TRY(model_alloc(p->model, p->device, p->batch));
    TRY(model_prepare(p->model, p->batch, true));
    TRY(loss_prepare(p->loss, p->loss_config, p->device, &p->model->out, p->model->target_size, p->batch, 1));
    rng_seed(&rng, (uint64_t)config->seed);
    model_init(p->model, &rng);
    TRY(comm_create("auto", &alone, NULL, config->dist.timeout, &t->ranks));
    TRY(loader_create(p->dataset, &p->sampler, p->batch, 0, 1, 0, &t->loader));
    TRY(loader_start_sampler(t->loader, t->ranks));
    TRY(loader_seek(t->loader, 0, 0));
    return loader_next(t->loader, &t->batch);
}

/* The mean loss of the batch; with [backward] gradients, too. */
static double loss_of(struct trial *t, bool backward) {
    struct plan *p = t->plan;
    struct pass pass = {.device = p->device,
                        .rows = t->batch.rows,
                        .is_training = true,
                        .draws = {.seed = 1, .pass = &t->pass_number, .row_stride = 1}};
    struct loss_sums sums = {0};
    const struct tensor *output = model_forward(p->model, &pass, t->batch.inputs);
    loss_run(p->loss, p->loss_config, p->model, output, t->batch.targets, t->batch.weights, NULL, t->batch.rows, 1,
             &sums);
    if (backward) {
        device_zero(p->device, p->model->params.gradients, params_gradient_floats(&p->model->params) * sizeof(float));
        model_backward(p->model, &pass, t->batch.inputs, NULL, NULL);
    }
    return sums.loss / sums.count;
}

/* What the comparison of a parameter has found. */
struct comparison {
    size_t compared, kinks, wrong;
    size_t at; /* the element that differs most */
    double exact, numeric, worst;
};

/* Adds element [i] at [value], whose gradient is [exact]. */
static void compare(struct trial *t, float *value, size_t i, double exact, double largest, struct comparison *c) {
    float keep = *value;
    *value = keep + STEP;
    double above = loss_of(t, false), upper = (double)*value;
    *value = keep - STEP;
    double below = loss_of(t, false), lower = (double)*value;
    *value = keep;
    double here = loss_of(t, false), numeric = (above - below) / (upper - lower);
    double right = (above - here) / (upper - (double)keep), left = (here - below) / ((double)keep - lower);
    double allowed = 5e-3 * (fabs(exact) + fabs(numeric)) + 2e-4 * largest + 2e-5, error = fabs(exact - numeric);
    c->compared++;
    if (error <= allowed) return;
    if (fabs(right - left) > 0.1 * (fabs(right) + fabs(left)) && (exact - right) * (exact - left) <= 0) {
        c->kinks++;
        return;
    }
    if (c->wrong++ == 0 || error > c->worst) c->worst = error, c->at = i, c->exact = exact, c->numeric = numeric;
}

static status compare_gradients(struct trial *t, struct text *out) {
    struct params *params = &t->plan->model->params;
    size_t wrong = 0, compared = 0, kinks = 0;
    double largest = 0, loss = loss_of(t, true);
    float *exact = malloc(params->trained * sizeof *exact);
    if (!exact) return status_memory("the gradients");
    memcpy(exact, params->gradients, params->trained * sizeof *exact);
    for (size_t i = 0; i < params->trained; i++) { /* gcc 12 for ARM fails at an fmax in this loop */
        double size = fabs((double)exact[i]);
        if (size > largest) largest = size;
    }
    text_printf(out, "loss %.6g of %zu rows\n", loss, t->batch.rows);
    for (size_t p = 0; p < params->count; p++) {
        const struct param *param = &params->items[p];
        struct comparison c = {0};
        for (size_t i = 0; !param->is_frozen && i < param->count; i += 1 + param->count / PER_PARAM)
            compare(t, params_value(params, p) + i, i, (double)exact[param->offset + i], largest, &c);
        text_printf(out, "%-30s %4zu elements  ", param->name, c.compared);
        if (c.wrong)
            text_printf(out, "%zu wrong: [%zu] is %g, by differences %g\n", c.wrong, c.at, c.exact, c.numeric);
        else
            text_printf(out, "right%s\n", c.kinks ? ", with kinks" : "");
        wrong += c.wrong, compared += c.compared, kinks += c.kinks;
    }
    free(exact);
    if (!isfinite(loss)) return status_new(STATUS_NOT_FINITE, "the loss of the first batch is not finite");
    if (largest == 0 || kinks * 4 > compared)
        return status_new(
            STATUS_DIVERGED,
            largest == 0
                ? "every gradient is zero"
                : "more than a quarter of the gradients jump within a step of the differences, so nothing can be said");
    return wrong ? status_new(STATUS_DIVERGED, "%zu of %zu gradients differ from those by differences of the loss",
                              wrong, compared)
                 : OK;
}

/* Trains on the first batch: its loss must fall. */
static status try_optimizer(const struct config *config, struct trial *t, struct text *out) {
    struct optimizer *optimizer = NULL;
    struct params *params = &t->plan->model->params;
    const float clip = 1;
    double first = loss_of(t, false);
    TRY(optimizer_create(&config->optimizer, params, t->plan->device, &optimizer));
    for (int64_t step = 1; step <= STEPS; step++) {
        loss_of(t, true);
        optimizer_step(optimizer, params, step, NULL, NULL, &clip);
    }
    optimizer_destroy(optimizer);
    double last = loss_of(t, false);
    text_printf(out, "loss of the first batch: %.6g, after %d updates %.6g\n", first, STEPS, last);
    if (!isfinite(last)) return status_new(STATUS_NOT_FINITE, "the loss is not finite after %d updates", STEPS);
    return last < first ? OK : status_new(STATUS_DIVERGED, "the loss has not fallen in %d updates", STEPS);
}

#define EPOCHS 20 /* of a sampler */

/* Draws epochs, which the program verifies. */
static status try_sampler(struct trial *t, struct text *out) {
    const struct sampler_config *sampler = &t->plan->sampler;
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) TRY(loader_seek(t->loader, epoch, 0));
    text_printf(out, "%d epochs of %zu rows in range%s; the first one is the same when it is drawn again\n", EPOCHS,
                sampler->indices->length,
                sampler_type_at((size_t)sampler->order.index)->each_row_once ? ", each training row once" : "");
    return OK;
}

#define PARTS 3 /* of the batch, as if each were evaluated by a rank */

/* The value of the batch, added in [parts] one after another whose sums and records are merged. */
static status value_of_parts(const struct trial *t, const struct metric_type *type, const struct metric_rows *batch,
                             size_t parts, double *out) {
    struct metric_state all = {0}, part = {0};
    status s = own_metric_create(type, batch->output_size, batch->target_size, t->ranks, &all);
    for (size_t p = 0; p < parts && !s; p++) {
        size_t first = p * batch->rows / parts, end = (p + 1) * batch->rows / parts;
        struct metric_rows rows = *batch;
        rows.rows = end - first;
        rows.outputs += first * batch->output_size;
        rows.targets += first * batch->target_size;
        s = own_metric_create(type, batch->output_size, batch->target_size, t->ranks, &part);
        if (!s) type->add(&rows, &part);
        for (size_t i = 0; !s && i <= type->sums; i++) all.sums[i] += part.sums[i];
        if (!s) text_add_bytes(&all.written, text_string(&part.written), part.written.length);
        all.is_mixed = all.is_mixed || part.is_mixed;
        own_metric_free(&part);
    }
    if (!s) s = own_metric_value(type, &all, out);
    own_metric_free(&all);
    return s;
}

static status try_metric(struct trial *t, const struct metric_type *type, struct text *out) {
    struct plan *p = t->plan;
    struct pass pass = {.device = p->device, .rows = t->batch.rows};
    bool has_classes = p->loss->wants_classes;
    size_t count = t->batch.rows * p->info.target_size;
    float *targets = malloc((count + 1) * sizeof *targets);
    double whole = 0, merged = 0;
    if (!targets) return status_memory("the targets");
    for (size_t i = 0; i < count; i++)
        targets[i] = has_classes ? (float)((const int64_t *)t->batch.targets)[i] : ((const float *)t->batch.targets)[i];
    const struct metric_rows batch = {.rows = t->batch.rows,
                                      .output_size = p->model->out_size,
                                      .target_size = p->info.target_size,
                                      .outputs = floats(model_forward(p->model, &pass, t->batch.inputs)),
                                      .targets = targets};
    status s = value_of_parts(t, type, &batch, 1, &whole);
    if (!s) s = value_of_parts(t, type, &batch, PARTS, &merged);
    free(targets);
    TRY(s);
    text_printf(out, "metric %s: %.9g of %zu rows, %.9g merged of %d parts\n", type->name, whole, batch.rows, merged,
                PARTS);
    bool is_same = fabs(whole - merged) <= 1e-9 * fabs(whole) || (isnan(whole) && isnan(merged));
    return is_same ? OK
                   : status_new(STATUS_DIVERGED, "the metric '%s' depends on how the rows are divided over processes",
                                type->name);
}

/* The config of a check without one: a small model with the type. */
static void add_config(const struct extension *e, struct text *out) {
    bool has_classes = e->loss ? e->loss->wants_classes : e->sampler != NULL;
    const char *layer = e->layer ? e->layer->variant.name : "tanh";
    const char *loss = e->loss ? e->loss->variant.name : has_classes ? "cross_entropy" : "mse";
    int values = e->metric ? 1 : 3; /* most metrics are of one */
    SCOPED_TEXT order = {0};
    if (e->sampler) text_printf(&order, ", order: %s", e->sampler->variant.name);
    text_printf(out,
                "dataset: {format: synthetic, synthetic: {kind: %s, rows: 64, inputs: 6, %s: %d}}\n"
                "sampler: {batch_size: %d%s}\n"
                "model: {layers: [{linear: 8}, %s, {linear: %d}]}\n"
                "loss: %s\noptimizer: %s\ntrain: {epochs: 1}\n",
                has_classes ? "classes" : "linear", has_classes ? "classes" : "targets", values, BATCH,
                text_string(&order), layer, values, loss, e->optimizer ? e->optimizer->variant.name : "adam");
}

static status test(const struct command_line *line) {
    const char *path = line->operands[1];
    const struct extension *e;
    SCOPED_CONFIG file = NULL;
    SCOPED_TEXT text = {0}, out = {0};
    struct trial trial = {0};
    TRY(extension_load(path, &e));
    add_config(e, &text);
    status s = line->operand_count > 2 ? config_load(line->operands[2], line->overrides, line->override_count, &file)
                                       : config_parse(path, text_string(&text), &file);
    if (!s) s = open_trial(config_of(file), &trial);
    if (s && line->operand_count == 2)
        s = status_prefix(
            s, "the built-in check does not suit it, name a config that uses it (ddptrain extension test FILE CONFIG)");
    if (!s && (e->layer || e->loss || (line->operand_count > 2 && !e->sampler && !e->metric)))
        s = compare_gradients(&trial, &out);
    if (!s && e->optimizer) s = try_optimizer(config_of(file), &trial, &out);
    if (!s && e->sampler && !trial.plan->indices)
        s = status_usage("the config has no sampler.order: %s", e->sampler->variant.name);
    if (!s && e->sampler) s = try_sampler(&trial, &out);
    if (!s && e->metric) s = try_metric(&trial, e->metric, &out);
    if (!s && e->format) text_printf(&out, "dataset format %s\n", e->format->name);
    command_print(stdout, &out);
    close_trial(&trial);
    return s ? status_prefix(s, "%s", path) : OK;
}

/* ---- build ---- */

static status build(const struct command_line *line) {
    const char *source = line->operands[1];
    const struct extension *e;
    size_t length = strlen(source);
    SCOPED_TEXT out = {0};
    if (length < 3 || strcmp(source + length - 2, ".c") != 0)
        return status_usage("extension build: expected a C file (.c), got '%.200s'", source);
    if (line->out)
        text_add(&out, line->out);
    else
        text_printf(&out, "%.*s.so", (int)(length - 2), source);
    if (out.length < 4 || strcmp(text_string(&out) + out.length - 3, ".so") != 0)
        return status_usage("--out: expected a shared object (.so), got '%.200s'", line->out);
    status s = io_check_replace(text_string(&out));
    if (!s) s = extension_compile(source, source, text_string(&out));
    if (!s) s = extension_load(text_string(&out), &e);
    if (!s) printf("%s\n", text_string(&out));
    return s;
}

static status run(const struct command_line *line) {
    const char *verb = line->operand_count ? line->operands[0] : "";
    if (strcmp(verb, "new") == 0 && line->operand_count == 3) return new (line->operands[1], line->operands[2]);
    if (strcmp(verb, "test") == 0 && line->operand_count >= 2) return test(line);
    if (strcmp(verb, "build") == 0 && line->operand_count == 2) return build(line);
    return status_usage("expected one of: ddptrain extension new loss|layer|optimizer|sampler|metric NAME, ddptrain "
                        "extension test FILE [CONFIG], ddptrain extension build FILE [--out FILE.so]");
}

const struct subcommand subcommand_extension = {
    .name = "extension",
    .arguments = "new KIND NAME | test FILE [CONFIG] | build FILE",
    .help = "a layer, loss, optimizer, sampler or metric of your own in C: write, check or compile it",
    .run = run,
    .options = OPTION_OUT,
    .operand = "file",
    .max_operands = 3,
};
