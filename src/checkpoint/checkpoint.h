/* checkpoint: the state of a run in one HDF5 file that proves itself. Parameters stand under PyTorch's state_dict
 * names, so h5py, h5dump and `ddptrain inspect` read it as it is. The image is built in memory, sealed with its length
 * and SHA-256, and written the safe way (temporary file, fsync, read back, rename, fsync of the folder, then prune); it
 * is verified before libhdf5 parses a byte. */
#ifndef CHECKPOINT_H
#define CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dims.h"
#include "base/log.h"
#include "base/status.h"
#include "base/text.h"

enum entry_type { ENTRY_FLOAT32, ENTRY_FLOAT64, ENTRY_INT64, ENTRY_TEXT };

/* One dataset of the file. The memory is the caller's. */
struct entry {
    const char *path; /* "model/0.weight", "optimizer/exp_avg/0.weight", "state/step", "scaler/mean", "config" */
    enum entry_type type;
    int dims; /* 0: a scalar */
    int64_t shape[MAX_DIMS];
    void *data; /* (product of shape); ENTRY_TEXT: a NUL-terminated string to write; on load: char ** that receives a
                   malloc'ed copy */
    bool is_optional; /* on load: absent in the file leaves data as it is */
};

/* Writes [entries] as DIR/[name].h5 the safe way and returns when it is safe on disk. On a failure the files that
 * were there are untouched and no temporary file is left (unless the process is killed; the next save removes it). Rank
 * 0. */
status checkpoint_write(const char *dir, const char *name, const struct entry *entries, size_t count);

/* A file, verified and opened for reading. */
struct checkpoint;
/* STATUS_DATA with the file's name and what is wrong (truncated, damaged, not a checkpoint, newer format). */
status checkpoint_open(const char *path, struct checkpoint **out);
/* Fills all [entries], or none: first every path, type and shape is compared, and every difference is a line of the
 * STATUS_DATA failure ("model/0.weight: (64, 13) in the file, (128, 13) in the config"); entries of the file under the
 * top-level groups named in [complete] (NULL-terminated; may be NULL) that are not asked for are differences too. Of
 * the group "state" only counters (integers) are, and only where they are not 0: a later version has counted what this
 * one would not continue. */
status checkpoint_read(struct checkpoint *checkpoint, struct entry *entries, size_t count, const char *const *complete);
/* What stands at entry->path: fills its type, dims and shape; *exists false when there is nothing or nothing that an
 * entry can be. STATUS_DATA when its values are not in the file, so memory for them is never more than the file. */
status checkpoint_find(struct checkpoint *checkpoint, struct entry *entry, bool *exists);
/* Whether the file has anything under the top-level [group] ("ema"). */
status checkpoint_has(struct checkpoint *checkpoint, const char *group, bool *has);
/* Calls [visit] with every float32 dataset under [group] ("model"), in order of names: its name below the group and its
 * values (product of shape), valid until checkpoint_close. A failure of [visit] ends the walk. */
typedef status checkpoint_visitor(void *context, const char *name, int dims, const int64_t *shape, const float *values);
status checkpoint_visit(struct checkpoint *checkpoint, const char *group, checkpoint_visitor *visit, void *context);
void checkpoint_close(struct checkpoint *checkpoint); /* takes NULL */

/* The newest complete checkpoint of DIR (by the state/step inside, not by name or time): verified and opened. Damaged
 * files are skipped with a warning that names the file and the reason. *out NULL and *path NULL when there is none.
 * *path is malloc'ed. When files exist but none verifies: STATUS_DATA. */
status checkpoint_open_newest(const char *dir, struct log *log, struct checkpoint **out, char **path);

/* Removes all but the newest [keep] checkpoints (by step; 0: keep all) and left-over temporary files. The newest of
 * those kept is verified in full first (a damaged one does not count), so that a good one always stays; files whose
 * seal is not good, or whose name is not one that training gives (a copy), are left alone. */
status checkpoint_prune(const char *dir, int64_t keep);

/* Name, without its ending, of the checkpoint of the best epoch. Any other name of a saver is pruned. */
#define CHECKPOINT_BEST "best"

/* A file of this name may be one that training saved: "epoch-0001.h5", "step-00000010.h5". */
bool checkpoint_is_name(const char *name);
/* A file of this name is looked at by checkpoint_open_newest. */
bool checkpoint_has_ending(const char *name);

/* What is in a checkpoint or any HDF5 dataset file: groups, names, shapes, types, counters, and for checkpoints the
 * seal. */
status checkpoint_inspect(const char *path, struct text *out);

/* A saver writes in a background thread: training goes on while a save is under way. */
struct saver;
status saver_create(const char *dir, int64_t keep, struct saver **out);
/* Copies [entries] now (waiting first for a save under way) and returns; the copy is written, then pruned, in the
 * background. The failure of an earlier save is returned here; then nothing is saved, and another call tries again.
 * The memory for the copy stays with the saver and is used again while paths, types and shapes stay the same. */
status saver_save(struct saver *saver, const char *name, const struct entry *entries, size_t count);
/* The same without a copy of what is large, for a state that changes no more: [entries] and what they point to must
 * stay as they are until saver_wait. */
status saver_save_in_place(struct saver *saver, const char *name, const struct entry *entries, size_t count);
/* From now on [is_saved] is called with [data] and the newest number of saver_mark whenever a checkpoint is complete on
 * disk; by the saver's thread. */
void saver_tell(struct saver *saver, void (*is_saved)(void *data, int64_t step), void *data);
/* The step of the next saver_save. */
void saver_mark(struct saver *saver, int64_t step);
/* Waits for the save under way and returns its failure. */
status saver_wait(struct saver *saver);
/* Writes into [dir] from the next saver_save on; failures call it [name]. No save is under way. */
status saver_move(struct saver *saver, const char *dir, const char *name);
void saver_destroy(struct saver *saver); /* waits; takes NULL */

#endif
