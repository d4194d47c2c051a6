/* saver: writes checkpoints in a background thread while training continues; without one where training waits. */
#pragma once

#include "checkpoint/checkpoint.h"

struct saver;

/* Writes to [dir], of whose checkpoints it keeps the newest [keep] (checkpoint_prune). */
status saver_create(const char *dir, int64_t keep, struct saver **out);
/* Waits for the save in progress, copies [entries] and returns; the thread writes the copy and prunes. Returns the
 * failure of the earlier save, if any; then nothing is saved, and another call retries. The memory of the copy is
 * reused while paths, types and shapes stay the same. */
status saver_save(struct saver *saver, const char *name, const struct entry *entries, size_t count);
/* The same without a copy of large entries and without the thread: [entries] are written on return. */
status saver_save_in_place(struct saver *saver, const char *name, const struct entry *entries, size_t count);
/* As saver_save, but the thread copies the entries [is_steady] (count): their data must not change until
 * saver_wait_copy. Before, it calls the function of saver_before_copy. */
status saver_save_later(struct saver *saver, const char *name, const struct entry *entries, size_t count,
                        const bool *is_steady);
/* Waits until nothing of saver_save_later is left to copy. Cheap, so it may be called before every change. */
void saver_wait_copy(struct saver *saver);
/* Copies [entries] as saver_save does, but writes nothing: saver_write_kept writes the copy. Another saver_keep
 * replaces it. */
status saver_keep(struct saver *saver, const char *name, const struct entry *entries, size_t count);
/* Whether a state of saver_keep is not being written and not on disk; also after a failed write. It must be written, or
 * given up with saver_drop_kept, before the next saver_save, because there is one copy. */
bool saver_has_kept(struct saver *saver);
/* Lets the thread write the state of saver_keep; OK if there is none. [waits]: it is written on return, without the
 * thread. */
status saver_write_kept(struct saver *saver, bool waits);
void saver_drop_kept(struct saver *saver);
/* Whoever writes calls [on_saved] with [data] and the step of saver_set_step whenever a checkpoint is on disk. */
void saver_on_saved(struct saver *saver, void (*on_saved)(void *data, int64_t step), void *data);
/* Whoever writes calls [before] with [data] before it writes a checkpoint, for what must be on disk earlier; its
 * failure is that of the save. */
void saver_before_write(struct saver *saver, status (*before)(void *data), void *data);
/* The thread calls [before] with [data] before it copies for saver_save_later; it may set steady entries. Its failure
 * is that of the save. */
void saver_before_copy(struct saver *saver, status (*before)(void *data), void *data);
/* Sets the step of the next saver_save or saver_keep. */
void saver_set_step(struct saver *saver, int64_t step);
/* Waits for the save in progress and returns its failure. */
status saver_wait(struct saver *saver);
/* Writes to [dir] from the next saver_save on; messages call it [name]. No save may be in progress. */
status saver_move(struct saver *saver, const char *dir, const char *name);
/* Waits; a state of saver_keep is not written. Takes NULL. */
void saver_destroy(struct saver *saver);
