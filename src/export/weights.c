/* The weights alone: as a safetensors file, with the columns of the inputs, the labels of the classes and the scale of
 * the targets as metadata; and as a state_dict that torch.load reads. */
#include <stdlib.h>

#include "checkpoint/torch_file.h"
#include "export/formats.h"
#include "train/inference/session.h"

#define NOTES 3

/* They are JSON texts of the checkpoint; absent ones are omitted. */
static status write_file(const struct export_source *source, const char *path) {
    static const char *const paths[] = {"data/columns", "data/labels", "data/target_scale"}, *const keys[] = {
                                                                                                 "columns", "labels",
                                                                                                 "target_scale"};
    struct entry entries[NOTES];
    struct safetensors_note notes[NOTES];
    char *texts[NOTES] = {0};
    for (size_t i = 0; i < NOTES; i++)
        entries[i] =
            (struct entry){.path = paths[i], .type = ENTRY_TEXT, .data = (void *)&texts[i], .is_optional = true};
    TRY(checkpoint_read(source->session->checkpoint, entries, NOTES, NULL));
    for (size_t i = 0; i < NOTES; i++) notes[i] = (struct safetensors_note){keys[i], texts[i]};
    status s = safetensors_write(path, notes, NOTES, source->tensors, source->tensor_count);
    for (size_t i = 0; i < NOTES; i++) free(texts[i]);
    return s;
}

const struct export_format export_safetensors = {
    .name = "safetensors", .extension = ".safetensors", .write = write_file};

static status write_pt(const struct export_source *source, const char *path) {
    return torch_file_write(path, source->tensors, source->tensor_count);
}

const struct export_format export_pt = {.name = "pt", .extension = ".pt", .write = write_pt};
