/* For a device whose memory the reducer cannot access: after backward all gradients are copied to the host, averaged,
 * and copied back. */
#include "train/loop/averaging/averaging.h"
#include "train/loop/micro_batch.h"
#include "train/loop/trainer.h"

status averaging_run_on_host(struct trainer *t, struct update *update) {
    const struct params *params = &t->model->params;
    float *host_gradients = t->averaging.host_gradients;
    size_t bytes = params->trained * sizeof *host_gradients;
    TRY(micro_batches_run(t, update));
    TRY(device_download(t->device, host_gradients, params->gradients, bytes));
    TRY(averaging_reduce_all(t));
    device_upload(t->device, params->gradients, host_gradients, bytes);
    return OK;
}

const struct averaging averaging_on_host = {.name = "on_host",
                                            .keeps_gradients = true,
                                            .run = averaging_run_on_host,
                                            .backward = averaging_backward_alone,
                                            .measure = averaging_measure,
                                            .wait = averaging_wait,
                                            .all_reduce_sums = averaging_all_reduce_sums,
                                            .update = averaging_update};
