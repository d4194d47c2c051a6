/* The store is opened first: it reports missing and failed ranks. Then the ranks compare their invariants, and only
 * after that open connections for data. */
#include "train/run/run.h"
#include "train/run/run_internal.h"

#include "dist/comm/comm.h"
#include "dist/comm/comm_gpu.h"
#include "train/loop/averaging/averaging.h"

/* Everything that must be identical on all ranks, one line each, so that a difference is a line. */
static void describe_invariants(const struct run *run, struct text *out) {
    const struct params *params = &run->trainer.model->params;
    text_add(out, "ddptrain: " DDPTRAIN_VERSION "\n");
    text_add(out, text_string(&run->config_text));
    text_printf(out, "device: %s\n", config_device_name(run->config));
    text_printf(out, "dataset fingerprint: %s\n", run->plan->info.fingerprint);
    for (size_t i = 0; i < params->count; i++) {
        text_printf(out, "parameter %s:", params->items[i].name);
        for (int d = 0; d < params->items[i].dims; d++) text_printf(out, " %lld", (long long)params->items[i].shape[d]);
        text_add(out, "\n");
    }
}

static status open_evaluation(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dataset_info *info = &run->plan->info;
    size_t first, rows, test_rows;
    if (!t->validation) return OK;
    struct dist_env env = plan_evaluation_env(run->plan);
    if (plan_is_elastic(run->plan)) TRY(comm_create("auto", &env, NULL, run->config->dist.timeout, &run->own_comm));
    sampler_evaluation_range(info->validation_rows, env.rank, env.world_size, &first, &rows);
    struct evaluation_options options = {.metrics = &run->config->train.metrics,
                                         .loss = t->loss,
                                         .loss_config = t->loss_config,
                                         .info = info,
                                         .dataset = t->dataset,
                                         .part = DATASET_VALIDATION,
                                         .device = t->device,
                                         .comm = run->own_comm ? run->own_comm : t->comm,
                                         .output = &t->model->out,
                                         .model = t->model,
                                         .rows = rows,
                                         .all_rows = info->validation_rows,
                                         .batch = t->batch};
    TRY(evaluation_create(&options, &t->evaluation));
    if (!t->test.loader) return OK;
    sampler_evaluation_range(info->test_rows, env.rank, env.world_size, &first, &test_rows);
    options.part = DATASET_TEST;
    options.rows = test_rows;
    options.all_rows = info->test_rows;
    return evaluation_create(&options, &t->test.evaluation);
}

static status open_elastic(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dataset_info *info = &run->plan->info;
    struct elastic_options options = {.shards = run->config->sampler.shards,
                                      .batch = (size_t)run->config->sampler.global_batch_size,
                                      .accumulates = run->config->train.accumulate > 1,
                                      .rows = sampler_length(&run->config->sampler, info->train_rows, 1),
                                      .model = t->model,
                                      .loss = t->loss,
                                      .loss_config = t->loss_config,
                                      .input_size = info->input_size,
                                      .target_bytes = dataset_target_bytes(info),
                                      .comm = t->comm};
    return elastic_create(&options, &t->averaging.elastic);
}

/* *is_available: every rank has the GPU backend; *missing: why this rank has not, or NULL. All ranks. */
static status check_gpu_backend(struct comm *comm, int backend, bool *is_available, status *missing) {
    *missing = comm_gpu_check(backend);
    uint8_t has = *missing ? 0 : 1;
    status s = comm_all_reduce(comm, &has, 1, COMM_UINT8, COMM_MIN);
    *is_available = has;
    return s;
}

/* Opens the GPU backend, if every rank has a GPU and the backend, so that gradients are averaged in GPU memory. All
 * ranks.
 */
static status open_gpus(struct run *run) {
    struct trainer *t = &run->trainer;
    int backend = run->config->dist.backend, gpu;
    char identity[128];
    if (run->env->world_size == 1 || !device_stream(t->device)) return OK;
    struct gpus_process process = dist_env_gpus(run->env);
    TRY(gpus_choose(&process, &gpu));
    TRY(gpus_identity(gpu, identity));
    TRY(comm_check_gpus(t->comm, identity));
    if (!comm_backend_uses_gpus(backend) || plan_is_elastic(run->plan)) return OK;
    bool is_available = false;
    status missing = OK, s = check_gpu_backend(t->comm, backend, &is_available, &missing);
    if (!s && is_available) s = comm_open_gpu(t->comm, backend, gpu, identity, run->config->dist.nccl_nvls);
    if (!s && !is_available && comm_backend_needs_gpus(backend)) {
        s = missing ? missing
                    : status_new(STATUS_USAGE, "dist.backend: %s: another rank does not have it; use auto",
                                 comm_backend_names[backend]);
        missing = OK;
    }
    if (missing) log_line(run->log, "gradients are averaged through the host: %s", status_message(missing));
    status_free(missing);
    return s;
}

/* Opens the store and compares the invariants, if there are other ranks. */
static status open_store(struct run *run) {
    const struct dist_config *d = &run->config->dist;
    struct text invariants = {0};
    struct store_options options = {.timeout = d->timeout,
                                    .hang = d->hang_timeout,
                                    .log = run->any_log,
                                    .overdue = run->options->overdue,
                                    .stop_fd = run->options->stop_fd};
    if (run->env->world_size == 1) return OK;
    TRY(store_open_with(run->env, &options, &run->store));
    run->trainer.activity = store_activity(run->store);
    describe_invariants(run, &invariants);
    status s =
        store_agree(run->store, "the program, the config, the data or the model", text_string(&invariants), d->timeout);
    text_free(&invariants);
    return s;
}

/* Puts the gradients into memory of the group: ranks of a host then average without a copy. */
static status alloc_gradients(struct trainer *t) {
    struct params *params = &t->model->params;
    void *gradients;
    if (comm_world_size(t->comm) == 1 || comm_gpu(t->comm)) return OK;
    TRY(comm_alloc(t->comm, params->total * sizeof(float), &gradients));
    if (device_is_host(t->device))
        params_use_gradients(params, t->device, gradients);
    else
        t->averaging.host_gradients = gradients;
    return OK;
}

static status open_reducer(struct trainer *t) {
    const struct dist_config *d = &t->config->dist;
    struct averaging_state *a = &t->averaging;
    struct reducer_config buckets = {.bucket_cap_mb = d->bucket_cap_mb,
                                     .first_bucket_mb = d->first_bucket_mb,
                                     .is_scattered = a->zero != NULL,
                                     .is_compressed = d->gradient_compression == COMPRESSION_BFLOAT16,
                                     .stream = device_stream(t->device)};
    TRY(comm_overlaps(t->comm, &buckets.is_overlapped));
    float *gradients = a->host_gradients ? a->host_gradients : t->model->params.gradients;
    return reducer_create(&buckets, a->ranges.ranges, a->ranges.count, gradients, t->comm, &a->reducer);
}

status run_join(struct run *run) {
    struct trainer *t = &run->trainer;
    const struct dist_config *d = &run->config->dist;
    bool is_elastic = plan_is_elastic(run->plan);
    TRY(open_store(run));
    TRY(comm_create(comm_backend_names[d->backend], run->env, run->store, d->timeout, &t->comm));
    if (!is_elastic) TRY(comm_limit_threads(t->comm)); /* elastic: the bits must not depend on the ranks */
    TRY(open_gpus(run));
    TRY(trainer_open_recordings(t, run->log));
    TRY(alloc_gradients(t));
    TRY(open_evaluation(run));
    TRY(is_elastic ? open_elastic(run) : open_reducer(t));
    t->averaging.method = averaging_choose(t);
    return OK;
}
