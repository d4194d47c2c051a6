/* check: the config and the head of the dataset, without a device or a run folder. */
#include <stdio.h>

#include "command.h"
#include "train/plan.h"

status verb_check(const struct command_line *line) {
    struct config_file *config;
    struct text out = {0};
    static const struct dist_env alone = {.world_size = 1, .local_world_size = 1};
    int nproc = 1;
    TRY(config_load(line->config, line->overrides, line->override_count, &config));
    status s = command_nproc(line, config_device_name(config_of(config)), &nproc);
    if (!s) s = command_settle_device(line, config, &alone, &nproc);
    if (!s) s = plan_describe(config_of(config), nproc * line->nnodes, nproc, &out);
    if (!s) fputs(text_string(&out), stdout);
    text_free(&out);
    config_free(config);
    return s;
}
