/* The test rows are evaluated once, at the end. The weights of the best checkpoint are in its file only, so rank 0
 * reads them from there; the newest ones are copied before and put back. */
#include "train/run/run_internal.h"

#include <string.h>

#include "base/buffer.h"
#include "checkpoint/checkpoint.h"
#include "train/loop/epoch.h"
#include "train/loop/rank_sync.h"
#include "train/weights/weights.h"

/* Rank 0 reads the best checkpoint into the mapped model; *is_read 0: there is none that fits. */
static void read_best(struct run *run, uint8_t *is_read) {
    struct trainer *t = &run->trainer;
    struct checkpoint *checkpoint = NULL;
    struct text path = {0};
    text_printf(&path, "%s/" CHECKPOINT_BEST ".h5", run_folder_checkpoints(run->folder));
    status s = checkpoint_open(text_string(&path), &checkpoint);
    if (!s) s = weights_load(t->model, checkpoint, t->ema != NULL);
    checkpoint_close(checkpoint);
    text_free(&path);
    *is_read = !s;
    if (s) log_warning(run->log, "the test is that of the newest state: %s", status_message(s));
    status_free(s);
}

/* Copies the parameters and buffers of the mapped model to values, or back. */
static void copy_weights(const struct model *model, float *values, bool is_back) {
    const struct params *parts[] = {&model->params, &model->buffers};
    for (int i = 0; i < 2; values += parts[i++]->total)
        if (parts[i]->total)
            memcpy(is_back ? parts[i]->values : values, is_back ? values : parts[i]->values,
                   parts[i]->total * sizeof *values);
}

/* Replaces the weights of all ranks by those of the best checkpoint. */
static status load_best(struct run *run) {
    struct trainer *t = &run->trainer;
    uint8_t is_read = 0;
    if (run_is_first_rank(run)) read_best(run, &is_read);
    TRY(comm_broadcast(t->comm, &is_read, 1, COMM_UINT8, 0));
    t->test.is_best = is_read;
    struct params *params = &t->model->params, *buffers = &t->model->buffers;
    if (is_read) TRY(comm_broadcast(t->comm, params->values, params->total, COMM_FLOAT32, 0));
    return is_read && buffers->total ? comm_broadcast(t->comm, buffers->values, buffers->total, COMM_FLOAT32, 0) : OK;
}

static status test_best(struct run *run, float *newest, bool *is_stopped) {
    struct trainer *t = &run->trainer;
    TRY(model_map(t->model));
    copy_weights(t->model, newest, false);
    status s = load_best(run);
    TRY(status_first(s, model_unmap(t->model, true)));
    TRY(epoch_evaluate_test(t, !t->test.is_best, is_stopped));
    TRY(model_map(t->model));
    copy_weights(t->model, newest, true);
    return model_unmap(t->model, true);
}

status run_test(struct run *run, bool *is_stopped) {
    struct trainer *t = &run->trainer;
    void *newest;
    if (!t->test.loader) return OK;
    if (!run->config->checkpoint.best.metric || t->state->counters.best_epoch == 0)
        return epoch_evaluate_test(t, true, is_stopped);
    TRY(buffer_new((t->model->params.total + t->model->buffers.total) * sizeof(float), "the newest weights", &newest));
    status s = test_best(run, newest, is_stopped);
    buffer_free(newest);
    return s;
}
