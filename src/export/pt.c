/* The weights as a state_dict that torch.load reads. */
#include "checkpoint/torch_file.h"
#include "export/formats.h"

static status write(const struct export_source *source, const char *path) {
    return torch_file_write(path, source->tensors, source->tensor_count);
}

const struct export_format export_pt = {.name = "pt", .extension = ".pt", .write = write};
