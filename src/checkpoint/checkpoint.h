/* checkpoint: the state of a run in one sealed HDF5 file (base/files/sealed.h). Parameters have PyTorch's state_dict
 * names; h5py, h5dump and `ddptrain inspect` can read the file. The file image is built in memory, sealed and written
 * with io_replace; when it is read, the seal is verified before the file is parsed. */
#pragma once

#include "base/dims.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

enum entry_type { ENTRY_FLOAT32, ENTRY_FLOAT64, ENTRY_INT64, ENTRY_TEXT };

/* One dataset of the file. The caller owns the memory. */
struct entry {
    const char *path; /* "model/0.weight", "optimizer/exp_avg/0.weight", "state/step", "scaler/mean", "config" */
    enum entry_type type;
    int dims; /* 0: a scalar */
    int64_t shape[MAX_DIMS];
    void *data; /* (product of shape); ENTRY_TEXT: a NUL-terminated string to write; on load: char ** that receives a
                   malloc'ed copy; a tensor, on load: NULL: its shape is compared only */
    bool is_optional; /* on load: when the file does not have it, data is unchanged */
};

/* Writes [entries] to DIR/[name].h5 with io_replace; the file is on disk on return. On a failure existing files are
 * unchanged and no temporary file is left (unless the process is killed; the next save removes it). Rank 0. */
status checkpoint_write(const char *dir, const char *name, const struct entry *entries, size_t count);

/* Creates the folder DIR, and removes temporary files of killed processes. It lists the folder: once, not before each
 * save. *count: its other files. */
status checkpoint_clean(const char *dir, size_t *count);
/* Writes an image (checkpoint_image.h) to DIR/[name].h5 in the same way, without checkpoint_clean. */
struct image;
status checkpoint_write_image(const char *dir, const char *name, const struct image *image);

/* A verified file, open for reading. */
struct checkpoint;
/* STATUS_DATA with the file's name and the error (truncated, damaged, not a checkpoint, newer format). */
status checkpoint_open(const char *path, struct checkpoint **out);
/* Its path, or the name of checkpoint_create. */
const char *checkpoint_path(const struct checkpoint *checkpoint);
/* A copy of [entries] in memory as an open checkpoint, without a file; [name]: for messages. */
status checkpoint_create(const char *name, const struct entry *entries, size_t count, struct checkpoint **out);
/* Fills all [entries], or none. Every path, type and shape is compared first; each difference is a line of the
 * STATUS_DATA failure ("model/0.weight: (64, 13) in the file, (128, 13) in the config"). Datasets of the file in the
 * top-level groups [complete] (NULL-terminated; may be NULL) that are not in [entries] are differences too; in the
 * group "state" only integer counters that are not 0, which a newer version has written and this one would not
 * continue; in a single group, that of weights alone, not the states of rows (carry_state). */
status checkpoint_read(struct checkpoint *checkpoint, struct entry *entries, size_t count, const char *const *complete);
/* The text at [path], which the caller frees; NULL: there is none. */
status checkpoint_read_text(struct checkpoint *checkpoint, const char *path, char **out);
/* Fills type, dims and shape of the dataset at entry->path; *exists false when there is none or an entry cannot have
 * its type. STATUS_DATA when its values are outside of the file, so the memory for them is limited by the file's size.
 */
status checkpoint_find(struct checkpoint *checkpoint, struct entry *entry, bool *exists);
/* Whether the file has the top-level [group] ("ema"). */
status checkpoint_has(struct checkpoint *checkpoint, const char *group, bool *has);
/* Calls [visit] with every float32 dataset in [group] ("model"), in order of names: its name relative to the group and
 * its values (product of shape), valid until checkpoint_close. A failure of [visit] ends the iteration. */
typedef status checkpoint_visitor(void *context, const char *name, int dims, const int64_t *shape, const float *values);
status checkpoint_visit(struct checkpoint *checkpoint, const char *group, checkpoint_visitor *visit, void *context);
/* Adds the first float32 value whose bits differ between two checkpoints, in their top-level [groups] (NULL-terminated)
 * in this order, with its tensor, index and both values, and how many differ; else the first of the datasets [others]
 * (likewise; whole numbers, float64 or texts) that differs; nothing: they are equal. A tensor that only one has is a
 * difference, except in optimizer and ema. [names]: of the files, for the text. */
status checkpoint_find_difference(struct checkpoint *const files[2], const char *const *groups,
                                  const char *const *others, const char *const names[2], struct text *out);
/* The same for the files [paths]. */
status checkpoint_compare(const char *const paths[2], const char *const *groups, const char *const *others,
                          const char *const names[2], struct text *out);
void checkpoint_close(struct checkpoint *checkpoint); /* takes NULL */
static inline void scoped_checkpoint_close(struct checkpoint **checkpoint) { checkpoint_close(*checkpoint); }
#define SCOPED_CHECKPOINT __attribute__((cleanup(scoped_checkpoint_close))) struct checkpoint * /* as base/scoped.h */

/* Opens and verifies the newest valid checkpoint of DIR (by the step in its seal, not by name or time). Damaged files
 * are skipped with a warning. *out NULL and *path NULL when there is none. *path is malloc'ed. STATUS_DATA when there
 * are checkpoints but none is valid; STATUS_IO or STATUS_MEMORY when one of them could not be read at all. */
status checkpoint_open_newest(const char *dir, struct log *log, struct checkpoint **out, char **path);

/* Removes all but the newest [keep] checkpoints (by step; 0: keep all) and temporary files of killed processes. The
 * newest that is kept is verified first (a damaged one does not count), so that a valid one always remains. [written]:
 * the name of a checkpoint that this process has just written, which was verified then; NULL: none. Files with an
 * invalid seal, or with a name that training does not use (copies), are not removed. */
status checkpoint_prune(const char *dir, int64_t keep, const char *written);

/* Name, without its extension, of the checkpoint of the best epoch. Any other name of a saver is pruned. */
#define CHECKPOINT_BEST "best"

/* Whether [name] has the form of a checkpoint saved by training: "epoch-0001.h5", "step-00000010.h5". */
bool checkpoint_is_name(const char *name);
/* Whether [name] has the extension of a checkpoint, so that checkpoint_open_newest considers it. */
bool checkpoint_has_ending(const char *name);
