/* Each step of the set-up is a function that fills its part of struct run; tear_down releases whatever is there. The
 * order matters: what can fail because of the user comes first, and the run folder is touched last. */
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/io.h"
#include "dist/comm/comm_gpu.h"
#include "dist/comm/comm_processors.h"
#include "dist/process/launcher_channel.h"
#include "optim/optimizer_groups.h"
#include "train/device_memory.h"
#include "train/parallel/averaging.h"
#include "train/parallel/share.h"
#include "train/passes.h"
#include "train/plan.h"
#include "train/progress.h"
#include "train/rehearsal.h"
#include "train/run_folder.h"
#include "train/save.h"
#include "train/trainer.h"

struct run {
    const struct config *config;
    const struct dist_env *env;
    const struct run_options *options;
    struct log *log; /* NULL except on rank 0 */
    struct log *any_log;
    struct store *store;
    struct comm *alone; /* for evaluations that are not shared; NULL: they are */
    struct run_folder *folder;
    char *folder_path;
    struct text config_text;
    struct rng rng; /* PyTorch's default generator: seeded, then used to build the model */
    struct trainer trainer;
    bool is_resumed, is_complete; /* known on all ranks after resume */
};

static bool is_elastic(const struct run *run) { return run->config->determinism.mode == DETERMINISM_ELASTIC; }

static bool is_first_rank(const struct run *run) { return run->env->rank == 0; }

/* Large ones may be oneDNN's, which sums in an order that depends on the number of threads. */
static bool has_convolution(const struct model *model) {
    for (size_t i = 0; i < model->layer_count; i++)
        if (model->layers[i].type->depends_on_threads) return true;
    return false;
}

/* Who shares an evaluation: all ranks; with determinism elastic each does all of it by itself, since the sums of
 * shares would depend on how many there are. */
static struct dist_env evaluation_env(const struct run *run) {
    struct dist_env env = *run->env;
    if (is_elastic(run)) env = (struct dist_env){.rank = 0, .world_size = 1, .local_world_size = 1};
    return env;
}

/* Numbers of rows that batches will have. */
static struct rehearsal_rows rows_of_passes(const struct run *run) {
    const struct trainer *t = &run->trainer;
    struct rehearsal_rows rows = {0};
    loader_batch_rows(t->loader, &rows.training[0], &rows.training[1]);
    if (is_elastic(run)) { /* shards go through the model, of two sizes but for a short last batch */
        rows.training[0] = t->batch;
        rows.training[1] = (size_t)run->config->sampler.global_batch_size / run->config->sampler.shards;
    }
    if (t->validation) loader_batch_rows(t->validation, &rows.evaluation[0], &rows.evaluation[1]);
    return rows;
}

/* So that the loop allocates nothing. */
static status prepare_model(const struct run *run) {
    struct rehearsal_rows rows = rows_of_passes(run);
    struct model *model = run->trainer.model;
    for (int i = 0; i < 2; i++) TRY(model_prepare(model, rows.training[i], true));
    for (int i = 0; i < 2; i++) TRY(model_prepare(model, rows.evaluation[i], false));
    return OK;
}

/* What a GPU's operators work in. All ranks, each by itself. */
static status reserve_memory(struct run *run) {
    struct rehearsal_rows rows = rows_of_passes(run);
    return rehearsal_reserve(&run->trainer, &rows);
}

static status open_data_and_model(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct config *c = run->config;
    t->loss = loss_type_at((size_t)c->loss.index);
    TRY(config_create_device(c, run->env, &t->device));
    TRY(dataset_open(&c->dataset, t->loss->wants_classes, false, &t->dataset));
    const struct dataset_info *info = dataset_info(t->dataset);
    struct shape input = dataset_shape(info);
    TRY(model_plan(&c->model, &input, &t->model));
    TRY(model_check_used(t->model));
    TRY(config_check_model(c, t->model));
    /* the library of threads reads this when it is opened, at the first large operation */
    if (is_elastic(run) && has_convolution(t->model)) setenv("OMP_NUM_THREADS", "1", 0);
    TRY(config_check_loss(c, t->model, info));
    TRY(sampler_batch(&c->sampler, run->env->world_size, &t->batch));
    TRY(passes_check(c, t->model, info->train_rows, run->env->world_size));
    if (t->loss->accepts_half) model_allow_half_output(t->model);
    TRY(model_adapt_to_device(t->model, t->device));
    struct device_memory memory = device_memory_of(c, t->model, info, t->batch, run->env->world_size);
    TRY(device_memory_check(&memory, t->device));
    if (averaging_is_in_backward(c, run->env->world_size)) model_split_gradients(t->model);
    TRY(model_alloc(t->model, t->device, t->batch));
    TRY(model_map(t->model));
    rng_seed(&run->rng, (uint64_t)c->seed);
    model_init(t->model, &run->rng);
    TRY(model_unmap(t->model, true));
    struct sampler_config sampler = c->sampler;
    sampler.generator = &run->rng;
    TRY(loader_create(t->dataset, &sampler, t->batch, run->env->rank, run->env->world_size, c->dataset.prefetch,
                      &t->loader));
    if (loader_batches(t->loader) == 0)
        return status_new(
            STATUS_USAGE,
            "sampler: an epoch has no batch: %zu training row%s, %d process%s, drop_last or drop_last_batch "
            "leave nothing",
            info->train_rows, text_plural(info->train_rows, "s"), run->env->world_size,
            text_plural((uint64_t)run->env->world_size, "es"));
    if (info->validation_rows)
        TRY(loader_create_evaluation(t->dataset, t->batch, evaluation_env(run).rank, evaluation_env(run).world_size,
                                     &t->validation));
    TRY(prepare_model(run));
    TRY(zero_create(&c->dist, &t->model->params, run->env->rank, run->env->world_size, &t->averaging.zero));
    TRY(optimizer_create_shard(&c->optimizer, &t->model->params, t->device, zero_shard(t->averaging.zero),
                               &t->optimizer));
    TRY(ema_create(&c->train.ema, &t->model->params, t->device, &t->ema));
    return state_create(t->model, t->optimizer, t->ema, t->dataset, text_string(&run->config_text), &t->state);
}

/* What every rank must believe alike, one line each, so that a difference shows as a line. */
static void describe_beliefs(const struct run *run, struct text *out) {
    const struct params *params = &run->trainer.model->params;
    text_add(out, "ddptrain: " DDPTRAIN_VERSION "\n");
    text_add(out, text_string(&run->config_text));
    text_printf(out, "device: %s\n", config_device_name(run->config));
    text_printf(out, "dataset fingerprint: %s\n", dataset_info(run->trainer.dataset)->fingerprint);
    for (size_t i = 0; i < params->count; i++) {
        text_printf(out, "parameter %s:", params->items[i].name);
        for (int d = 0; d < params->items[i].dims; d++) text_printf(out, " %lld", (long long)params->items[i].shape[d]);
        text_add(out, "\n");
    }
}

static status open_evaluation(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dataset_info *info = dataset_info(t->dataset);
    size_t first, rows;
    if (!t->validation) return OK;
    struct dist_env env = evaluation_env(run);
    if (is_elastic(run)) TRY(comm_create("auto", &env, NULL, run->config->dist.timeout, &run->alone));
    sampler_evaluation_range(info->validation_rows, env.rank, env.world_size, &first, &rows);
    struct evaluation_options options = {.metrics = &run->config->train.metrics,
                                         .loss = t->loss,
                                         .loss_config = run->config->loss.config,
                                         .info = info,
                                         .device = t->device,
                                         .comm = run->alone ? run->alone : t->comm,
                                         .output = &t->model->out,
                                         .rows = rows,
                                         .batch = t->batch};
    return evaluation_create(&options, &t->evaluation);
}

static status open_elastic(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dataset_info *info = dataset_info(t->dataset);
    struct elastic_options options = {.shards = run->config->sampler.shards,
                                      .batch = (size_t)run->config->sampler.global_batch_size,
                                      .rows = sampler_length(&run->config->sampler, info->train_rows, 1),
                                      .model = t->model,
                                      .loss = t->loss,
                                      .loss_config = run->config->loss.config,
                                      .input_size = info->input_size,
                                      .target_bytes = dataset_target_bytes(info),
                                      .comm = t->comm};
    return elastic_create(&options, &t->averaging.elastic);
}

/* Whether every rank has NCCL; *why: what is missing here, NULL when it is not here. All ranks. */
static status is_nccl_everywhere(struct comm *comm, bool *is_there, status *why) {
    *why = comm_gpu_check();
    uint8_t has = *why ? 0 : 1;
    status s = comm_all_reduce(comm, &has, 1, COMM_UINT8, COMM_MIN);
    *is_there = has;
    return s;
}

/* Gradients are averaged where they are: in the memory of GPUs, when every rank has a GPU and NCCL. All ranks. */
static status open_gpus(struct run *run) {
    struct trainer *t = &run->trainer;
    int backend = run->config->dist.backend, gpu;
    char identity[128];
    if (run->env->world_size == 1 || !device_stream(t->device)) return OK;
    struct gpus_process place = dist_env_place(run->env);
    TRY(gpus_choose(&place, &gpu));
    TRY(gpus_identity(gpu, identity));
    TRY(comm_check_gpus(t->comm, identity));
    if ((backend != BACKEND_NCCL && backend != BACKEND_AUTO) || is_elastic(run)) return OK;
    bool is_there = false;
    status missing = OK, s = is_nccl_everywhere(t->comm, &is_there, &missing);
    if (!s && is_there) s = comm_open_gpu(t->comm, gpu, identity);
    if (!s && !is_there && backend == BACKEND_NCCL) {
        s = missing ? missing : status_new(STATUS_USAGE, "dist.backend: nccl: another rank has no NCCL; use auto");
        missing = OK;
    }
    if (missing) log_line(run->log, "gradients are averaged by way of the host: %s", status_message(missing));
    status_free(missing);
    return s;
}

/* Of a batch, in training or evaluation. */
static size_t most_rows(const struct trainer *t) {
    size_t most, first, last;
    loader_batch_rows(t->loader, &most, &last);
    if (!t->validation) return most;
    loader_batch_rows(t->validation, &first, &last);
    return first > most ? first : most;
}

static status join_group(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dist_config *d = &run->config->dist;
    if (run->env->world_size > 1) {
        struct text beliefs = {0};
        struct store_options options = {.timeout = d->timeout,
                                        .hang = d->hang_timeout,
                                        .log = run->any_log,
                                        .overdue = run->options->overdue,
                                        .stop_fd = run->options->stop_fd};
        TRY(store_open_with(run->env, &options, &run->store));
        t->pulse = store_pulse(run->store);
        describe_beliefs(run, &beliefs);
        status s = store_agree(run->store, "the program, the config, the data or the model", text_string(&beliefs),
                               d->timeout);
        text_free(&beliefs);
        TRY(s);
    }
    TRY(comm_create(comm_backend_names[d->backend], run->env, run->store, d->timeout, &t->comm));
    if (!is_elastic(run)) TRY(comm_limit_threads(t->comm)); /* whose bits must be those of any number of ranks */
    TRY(open_gpus(run));
    struct params *params = &t->model->params;
    TRY(ranges_create(params, &t->averaging.ranges));
    TRY(parts_alloc(t, most_rows(t), run->log));
    if (run->env->world_size > 1 && !comm_gpu(t->comm)) { /* where ranks share memory, nothing is copied to average */
        void *gradients;
        TRY(comm_alloc(t->comm, params->total * sizeof(float), &gradients));
        if (device_is_host(t->device))
            params_use_gradients(params, t->device, gradients);
        else
            t->averaging.host_gradients = gradients;
    }
    struct reducer_config buckets = {.bucket_cap_mb = d->bucket_cap_mb,
                                     .first_bucket_mb = d->first_bucket_mb,
                                     .is_scattered = t->averaging.zero != NULL,
                                     .is_compressed = d->gradient_compression == COMPRESSION_BFLOAT16,
                                     .stream = device_stream(t->device)};
    TRY(open_evaluation(run));
    struct averaging_parts *a = &t->averaging;
    float *gradients = a->host_gradients ? a->host_gradients : params->gradients;
    TRY(is_elastic(run) ? open_elastic(run)
                        : reducer_create(&buckets, a->ranges.ranges, a->ranges.count, gradients, t->comm, &a->reducer));
    a->way = averaging_choose(t);
    return OK;
}

/* Mid-epoch, the place in the data depends on the number of ranks. */
static status check_world_size(const struct run *run, const struct counters *c, const char *path) {
    bool is_between_epochs = c->batch == 0 || c->pending_end == PENDING_END_OF_EPOCH;
    if (is_between_epochs || c->world_size == run->env->world_size || is_elastic(run)) return OK;
    return status_new(STATUS_USAGE,
                      "%s was saved in the middle of an epoch by %lld process%s; continue with --nproc %lld (now %d)",
                      path, (long long)c->world_size, text_plural((uint64_t)c->world_size, "es"),
                      (long long)c->world_size, run->env->world_size);
}

static status load(struct run *run, struct checkpoint *checkpoint, const char *path) {
    struct state *state = run->trainer.state;
    TRY(state_map(state));
    status s = state_load(state, checkpoint, path);
    TRY(status_first(s, state_unmap(state, true)));
    TRY(check_world_size(run, &state->counters, path));
    if (state->counters.pending_end == PENDING_END_OF_EPOCH) /* of this number of ranks */
        state->counters.batch = (int64_t)loader_batches(run->trainer.loader);
    run->is_resumed = true;
    return OK;
}

/* The newest checkpoint of the run folder, else the file that the config names, else none. What a job that was started
 * again finds there is its own, which `never` does not mean. Rank 0. */
static status find_and_load(struct run *run) {
    const char *resume = run->config->checkpoint.resume;
    struct checkpoint *checkpoint = NULL;
    char *path = NULL;
    TRY(checkpoint_open_newest(run_folder_checkpoints(run->folder), run->log, &checkpoint, &path));
    status s = OK;
    if (checkpoint && strcmp(resume, "never") == 0 && !run->env->has_begun) {
        s = status_new(
            STATUS_USAGE,
            "%s has checkpoints and checkpoint.resume is never; use --fresh (the old folder is kept) or another "
            "--run-dir",
            run->folder_path);
    } else if (checkpoint) {
        s = load(run, checkpoint, path);
    } else if (strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0) {
        free(path);
        path = strdup(resume);
        s = checkpoint_open(resume, &checkpoint);
        if (!s) s = load(run, checkpoint, resume);
        run->trainer.state->counters.metrics_bytes = 0; /* another folder's file */
    }
    checkpoint_close(checkpoint);
    const struct counters *c = &run->trainer.state->counters;
    if (!s && run->is_resumed && !progress_is_complete(run->config, c))
        log_line(run->log, "resuming from %s: epoch %lld, step %lld", path, (long long)c->epoch, (long long)c->step);
    free(path);
    return s;
}

/* model.init_from, where it is set. */
static status init_from(const struct run *run) {
    const char *path = run->config->model.init_from;
    struct model *model = run->trainer.model;
    if (!path) return OK;
    TRY(model_map(model));
    status s = state_init_from(run->trainer.state, path);
    return status_first(s, model_unmap(model, true));
}

/* --fresh moves the old folder away, so what the new run starts from is read before: it may be missing, or lie in that
 * folder. Rank 0. */
static status load_before_fresh(struct run *run) {
    const char *resume = run->config->checkpoint.resume;
    if (strcmp(resume, "auto") != 0 && strcmp(resume, "never") != 0) {
        struct checkpoint *checkpoint;
        TRY(checkpoint_open(resume, &checkpoint));
        status s = load(run, checkpoint, resume);
        checkpoint_close(checkpoint);
        run->trainer.state->counters.metrics_bytes = 0; /* another folder's file */
        if (!s) log_line(run->log, "starting from %s", resume);
        return s;
    }
    return init_from(run);
}

/* The launcher knows that the folder was made; other launchers only that this is not the first start. */
static enum run_folder_start folder_start(const struct run *run, bool is_fresh) {
    bool is_ours = run->env->has_begun && run->env->launcher == LAUNCHER_OWN;
    return is_fresh ? RUN_FOLDER_FRESH : is_ours ? RUN_FOLDER_OURS : RUN_FOLDER_ANY;
}

/* From rank 0's to all ranks'. On a GPU the host borrows no more than has to move: what it borrows becomes pinned
 * memory. */
static status share_loaded(struct run *run) {
    struct trainer *t = &run->trainer;
    if (!run->is_resumed && !t->averaging.zero) return share_start(t);
    TRY(state_map(t->state));
    status s = share_state(t);
    return status_first(s, state_unmap(t->state, true));
}

/* What a checkpoint is read over, where ranks share the optimizer's state. */
static status gather_shares(struct trainer *t) {
    if (!t->averaging.zero) return OK;
    TRY(state_map(t->state));
    status s = zero_gather(t->averaging.zero, t->state, t->comm);
    return status_first(s, state_unmap(t->state, false));
}

/* Rank 0 opens the folder and loads; the state reaches the others by broadcast, so that only rank 0 needs the file. */
static status resume(struct run *run) {
    struct trainer *t = &run->trainer;
    TRY(gather_shares(t));
    if (is_first_rank(run)) {
        bool is_fresh = run->options->is_fresh && !run->env->has_begun;
        if (is_fresh) TRY(load_before_fresh(run));
        TRY(run_folder_open(run->folder_path, folder_start(run, is_fresh), run->config, run->log, &run->folder));
        if (!is_fresh) TRY(find_and_load(run));
        if (!is_fresh && !run->is_resumed) TRY(init_from(run));
        run->is_complete = run->is_resumed && progress_is_complete(run->config, &t->state->counters);
    }
    struct counters *c = &t->state->counters;
    c->world_size = run->env->world_size;
    uint8_t flags[] = {run->is_resumed, run->is_complete};
    TRY(comm_broadcast(t->comm, flags, sizeof flags, COMM_UINT8, 0));
    run->is_resumed = flags[0];
    run->is_complete = flags[1];
    TRY(share_loaded(run));
    launcher_send(MESSAGE_RESUMED, 0, c->step, run->folder_path);
    return OK;
}

static void warn_of_activation(const struct run *run) {
    struct text warning = {0};
    loss_warn_of_activation(run->trainer.loss, run->trainer.model, &warning);
    if (warning.length) log_warning(run->log, "%s", text_string(&warning));
    text_free(&warning);
}

static void log_start(struct run *run) {
    const struct trainer *t = &run->trainer;
    const struct dataset_info *info = dataset_info(t->dataset);
    const char *backend = comm_describe(t->comm);
    bool is_compressed = run->config->dist.gradient_compression == COMPRESSION_BFLOAT16;
    log_line(run->log, "%s: %zu parameter%s, %zu training row%s, %zu validation row%s", run->config->name,
             t->model->params.elements, text_plural(t->model->params.elements, "s"), info->train_rows,
             text_plural(info->train_rows, "s"), info->validation_rows, text_plural(info->validation_rows, "s"));
    if (is_elastic(run))
        log_line(run->log, "elastic: batches of %lld row%s in %zu shard%s; the same bits on any number of processes",
                 (long long)run->config->sampler.global_batch_size,
                 text_plural((uint64_t)run->config->sampler.global_batch_size, "s"), run->config->sampler.shards,
                 text_plural(run->config->sampler.shards, "s"));
    log_line(run->log, "%d process%s on %s%s%s%s, %zu row%s per batch and process, %zu batch%s per epoch",
             run->env->world_size, text_plural((uint64_t)run->env->world_size, "es"), device_describe(t->device),
             run->env->world_size > 1 ? ", gradients averaged by " : "", run->env->world_size > 1 ? backend : "",
             run->env->world_size > 1 && is_compressed ? " as bfloat16" : "", t->batch, text_plural(t->batch, "s"),
             loader_batches(t->loader), text_plural(loader_batches(t->loader), "es"));
    if (optimizer_is_in_backward(&run->config->optimizer) &&
        !averaging_is_in_backward(run->config, run->env->world_size))
        log_line(run->log, "optimizer.in_backward: not with %d processes, which average gradients: they are kept",
                 run->env->world_size);
    struct text saves = {0};
    save_describe(run->config, &saves);
    if (save_is_automatic(run->config)) log_line(run->log, "checkpoints: %s", text_string(&saves));
    text_free(&saves);
    const struct string_list notes = dataset_notes(t->dataset);
    for (size_t i = 0; i < notes.count; i++) log_line(run->log, "%s", notes.items[i]);
    for (size_t i = 0; config_ignored(run->config, i); i++)
        log_line(run->log, "ignored: %s", config_ignored(run->config, i));
    warn_of_activation(run);
    if (run->config->train.device == DEVICE_AUTO && run->config->device == DEVICE_CUDA)
        log_line(run->log, "train.device: auto takes the GPU, which has been tried on emulated ones only so far "
                           "(docs/gpu.md); train.device: cpu takes the CPU");
    if (run->config->device_why && gpus_are_expected())
        log_line(run->log, "train.device: auto takes the CPU: %s", run->config->device_why);
}

static status log_start_metrics(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct counters *c = &t->state->counters;
    const struct dataset_info *info = dataset_info(t->dataset);
    metrics_begin(t->outputs.metrics, c->metrics_bytes ? "resume" : "start");
    metrics_text(t->outputs.metrics, "name", run->config->name);
    metrics_int(t->outputs.metrics, "world_size", run->env->world_size);
    metrics_int(t->outputs.metrics, "parameters", (int64_t)t->model->params.elements);
    metrics_int(t->outputs.metrics, "seed", run->config->seed);
    metrics_int(t->outputs.metrics, "train_rows", (int64_t)info->train_rows);
    metrics_int(t->outputs.metrics, "val_rows", (int64_t)info->validation_rows);
    metrics_int(t->outputs.metrics, "batch_size", (int64_t)t->batch);
    metrics_text(t->outputs.metrics, "device", device_describe(t->device));
    metrics_int(t->outputs.metrics, "gradient_bytes",
                (int64_t)(params_gradient_floats(&t->model->params) * sizeof(float)));
    metrics_text(t->outputs.metrics, "backend", comm_backend(t->comm));
    metrics_text(t->outputs.metrics, "dataset_fingerprint", info->fingerprint);
    metrics_int(t->outputs.metrics, "epoch", c->epoch);
    metrics_int(t->outputs.metrics, "first_step", c->step + 1);
    metrics_real(t->outputs.metrics, "startup_seconds", clock_seconds() - run->options->started);
    return metrics_end(t->outputs.metrics);
}

/* The agents count restarts by it. Called by the saver's thread. */
static void checkpoint_is_complete(void *pulse, int64_t step) {
    pulse_saved(pulse, step);
    launcher_send(MESSAGE_SAVED, 0, step, "");
}

/* From here on the run folder belongs to this run. Rank 0. */
static status open_outputs(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct config *c = run->config;
    TRY(run_folder_write_config(run->folder, text_string(&run->config_text)));
    TRY(log_open_file(run->log, run_folder_log(run->folder)));
    struct io_info metrics;
    TRY(io_stat(run_folder_metrics(run->folder), &metrics));
    if ((int64_t)metrics.size < t->state->counters.metrics_bytes)
        log_warning(run->log,
                    "%s is shorter than at the last save: lines of earlier steps are lost; the training itself is not",
                    run_folder_metrics(run->folder));
    TRY(metrics_open(run_folder_metrics(run->folder), t->state->counters.metrics_bytes, &t->outputs.metrics));
    if (c->train.tensorboard) TRY(metrics_open_events(t->outputs.metrics, t->state->counters.step));
    TRY(saver_create(run_folder_checkpoints(run->folder), c->checkpoint.keep, &t->outputs.saver));
    TRY(saver_move(t->outputs.saver, run_folder_checkpoints_held(run->folder), run_folder_checkpoints(run->folder)));
    saver_tell(t->outputs.saver, checkpoint_is_complete, t->pulse);
    t->outputs.folder = run->folder;
    t->outputs.log = run->log;
    t->outputs.report = (struct report){.log = run->log,
                                        .counts_steps = c->train.steps != SCHEMA_NO_INT,
                                        .total = c->train.steps != SCHEMA_NO_INT ? c->train.steps : c->train.epochs,
                                        .has_accuracy = t->loss->wants_classes};
    log_start(run);
    return log_start_metrics(run);
}

/* Rank 0. [is_stopped]: on request, before the end of the run. */
static status log_end(struct run *run, bool is_stopped) {
    struct trainer *t = &run->trainer;
    const struct counters *c = &t->state->counters;
    char hex[DIGEST_HEX_SIZE], duration[32];
    state_sha256(t->state, hex);
    metrics_begin(t->outputs.metrics, is_stopped ? "stopped" : "end");
    metrics_int(t->outputs.metrics, "epoch", c->epoch);
    metrics_int(t->outputs.metrics, "step", c->step);
    metrics_int(t->outputs.metrics, "samples", c->samples);
    metrics_int(t->outputs.metrics, "skipped", c->skipped);
    metrics_real(t->outputs.metrics, "seconds", c->seconds);
    metrics_int(t->outputs.metrics, "best_epoch", c->best_epoch); /* from 1, as on the screen; 0: none yet */
    metrics_int(t->outputs.metrics, "best_epoch_index",
                c->best_epoch - 1); /* from 0, as in the epoch's own line; -1: none */
    metrics_real(t->outputs.metrics, "best_value", c->best_value);
    if (progress_stops_early(run->config, c)) metrics_int(t->outputs.metrics, "early_stop_wait", c->early_stop_wait);
    metrics_text(t->outputs.metrics, "state_sha256", hex);
    TRY(metrics_end(t->outputs.metrics));
    if (is_stopped) return OK;
    report_duration(c->seconds, duration);
    const struct dataset_info *info = dataset_info(t->dataset);
    bool has_accuracy = t->loss->wants_classes && info->validation_rows;
    char skipped[48] = "";
    if (c->skipped) snprintf(skipped, sizeof skipped, " (%lld more skipped)", (long long)c->skipped);
    log_line(run->log, "done: %lld epoch%s, %lld step%s%s in %s of training, %.0f samples/s", (long long)c->epoch,
             text_plural((uint64_t)c->epoch, "s"), (long long)c->step, text_plural((uint64_t)c->step, "s"), skipped,
             duration, (double)c->samples / (c->seconds > 0 ? c->seconds : 1e-9));
    struct early_stop early = early_stop_of(&run->config->train.early_stop);
    if (progress_stops_early(run->config, c))
        log_line(run->log, "stopped early: %s has not improved in %lld evaluation%s", early.monitor.metric,
                 (long long)c->early_stop_wait, text_plural((uint64_t)c->early_stop_wait, "s"));
    if (t->epoch.result.rows > 0) {
        struct text line = {0};
        text_printf(&line, "validation: loss %.4f", t->epoch.result.loss);
        if (has_accuracy) text_printf(&line, ", accuracy %.2f %%", 100 * t->epoch.result.accuracy);
        text_printf(&line, " on %zu row%s; best epoch %lld: ", info->validation_rows,
                    text_plural(info->validation_rows, "s"), (long long)c->best_epoch);
        const char *metric = run->config->checkpoint.best.metric;
        if (metric)
            text_printf(&line, "%s %.6g", metric, c->best_value);
        else if (has_accuracy)
            text_printf(&line, "accuracy %.2f %%", 100 * c->best_value);
        else
            text_printf(&line, "loss %.4f", c->best_value);
        log_line(run->log, "%s", text_string(&line));
        text_free(&line);
        report_metrics(run->log, &t->epoch.result);
    }
    log_line(run->log, "checkpoint: the newest in %s; state sha256 %.16s", run_folder_checkpoints(run->folder), hex);
    return OK;
}

static status stopped_on_request(const struct counters *c) {
    return status_new(
        STATUS_STOPPED,
        "stopped on request after step %lld%s; the state is saved, run the same command again to continue",
        (long long)c->step, c->pending_end ? ", before the end of the evaluation" : "");
}

static status train(struct run *run) {
    struct trainer *t = &run->trainer;
    if (is_first_rank(run)) TRY(open_outputs(run));
    fault_delay(run->env->rank);
    if (run->options->can_save) *run->options->can_save = 1;
    bool is_stopped;
    status s = trainer_run(t, run->is_resumed, &is_stopped);
    log_progress(run->log, NULL);
    TRY(s);
    TRY(state_map(t->state));
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (t->outputs.metrics) TRY(log_end(run, is_stopped));
    TRY(comm_barrier(t->comm)); /* a rank that exits early could not answer another */
    return is_stopped ? stopped_on_request(&t->state->counters) : OK;
}

/* A finished run: nothing to train. If the process ended between its last checkpoint and its last line, that line is
 * written now. */
static status conclude(struct run *run) {
    struct trainer *t = &run->trainer;
    bool has_end;
    TRY(state_map(t->state)); /* to the end */
    TRY(zero_gather(t->averaging.zero, t->state, t->comm));
    if (!is_first_rank(run)) return OK;
    const struct counters *c = &t->state->counters;
    TRY(metrics_ends_with(run_folder_metrics(run->folder), "end", &has_end));
    if (!has_end) {
        TRY(open_outputs(run));
        TRY(log_end(run, false));
    }
    log_line(run->log, "%s: complete (%sepoch %lld, step %lld); raise %s to continue, or use --fresh to start over",
             run->folder_path, progress_stops_early(run->config, c) ? "stopped early, " : "", (long long)c->epoch,
             (long long)c->step,
             progress_stops_early(run->config, c) ? "train.early_stop.patience" : "train.epochs or train.steps");
    return OK;
}

static void tear_down(struct run *run, status *result) {
    struct trainer *t = &run->trainer;
    /* so that the others can name the cause when this rank's connections close */
    if (run->store && *result && status_code(*result) != STATUS_STOPPED) store_report(run->store, *result);
    reducer_destroy(t->averaging.reducer);
    elastic_destroy(t->averaging.elastic);
    ranges_free(&t->averaging.ranges);
    if (t->device) parts_free(t);
    comm_destroy(run->alone);
    comm_destroy(t->comm);
    saver_destroy(t->outputs.saver); /* its thread uses the store's pulse */
    store_close(run->store);
    *result = status_first(*result, metrics_close(t->outputs.metrics));
    state_destroy(t->state);
    optimizer_destroy(t->optimizer);
    zero_destroy(t->averaging.zero);
    loader_destroy(t->loader);
    loader_destroy(t->validation);
    evaluation_destroy(t->evaluation);
    ema_destroy(t->ema);
    model_destroy(t->model);
    dataset_close(t->dataset);
    device_destroy(t->device);
    run_folder_close(run->folder);
    text_free(&run->config_text);
    free(run->folder_path);
}

static char *folder_path(const struct config *config, const struct run_options *options) {
    struct text path = {0};
    if (options->folder)
        text_add(&path, options->folder);
    else
        text_printf(&path, "runs/%s", config->name);
    while (path.length > 1 && path.data[path.length - 1] == '/') path.data[--path.length] = 0;
    return path.data;
}

status run_train(const struct config *config, const struct dist_env *env, const struct run_options *options,
                 struct log *log) {
    struct run run = {.config = config,
                      .env = env,
                      .options = options,
                      .log = env->rank == 0 ? log : NULL,
                      .any_log = log,
                      .folder_path = folder_path(config, options),
                      .trainer = {.config = config, .stop = options->stop}};
    schema_write_yaml(&config_schema, config, &run.config_text);
    status s = plan_explain_memory(open_data_and_model(&run));
    if (s) store_report_before_joining(env, NULL, 0, log, s);
    if (!s) s = plan_explain_memory(join_group(&run));
    if (!s) s = plan_explain_memory(reserve_memory(&run));
    if (!s) s = comm_barrier(run.trainer.comm); /* no folder is made where one rank has too little */
    if (!s) s = resume(&run);
    if (!s && run.is_complete) {
        s = conclude(&run);
    } else if (!s) {
        s = train(&run);
    }
    tear_down(&run, &s);
    return s;
}
