/* inspect: what is in a checkpoint, an HDF5 dataset or a safetensors file. */
#include <stdio.h>
#include <string.h>

#include "command.h"
#include "train/checkpoint.h"
#include "train/safetensors.h"

status verb_inspect(const struct command_line *line) {
    struct text out = {0};
    const char *dot = strrchr(line->config, '.');
    bool is_safetensors = dot && strcmp(dot, ".safetensors") == 0;
    status s = is_safetensors ? safetensors_inspect(line->config, &out) : checkpoint_inspect(line->config, &out);
    if (!s) fputs(text_string(&out), stdout);
    text_free(&out);
    return s;
}
