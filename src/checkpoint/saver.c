/* One thread and one image. saver_save waits until the thread has written the image, fills it and passes it to the
 * thread. So memory is limited to one copy of the state, and training waits only for that copy. saver_save_later leaves
 * also the copy to the thread, as far as the data stay the same. saver_keep fills the image without passing it on. The
 * thread does not call libhdf5. It begins with the first save that is not waited for: a short run needs none. */
#include "checkpoint/saver.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/scoped.h"
#include "base/system/thread.h"
#include "checkpoint/checkpoint_image.h"

struct saver {
    int64_t keep;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t changed;
    bool is_busy, is_ending;
    bool is_copying; /* is_busy, and the image is not complete */
    bool is_kept;    /* the image is that of saver_keep, which is not on disk */
    status failure;  /* of the last save */
    /* Used by the thread while is_busy, else by the caller: */
    struct image *image;
    char *dir, *dir_name; /* where to write, and its name in messages */
    char *name;
    int64_t step;
    bool is_clean;     /* dir has no temporary file of a killed process, nor one of a failed save */
    size_t file_count; /* if is_clean: checkpoints in dir, at most */
    /* Set by the caller, read by the thread while is_busy: */
    void (*on_saved)(void *data, int64_t step);
    void *data;
    status (*before)(void *data);
    void *before_data;
    status (*before_copy)(void *data);
    void *copy_data;
    int64_t next_step; /* used by the caller only, as the next one */
    bool has_copied;   /* is_copying is false */
};

/* The folder is listed before the first save, and later only to prune more than [keep] files: it may have any number.
 */
static status write_image(struct saver *saver) {
    if (saver->before) TRY(saver->before(saver->before_data));
    if (!saver->is_clean) TRY(checkpoint_clean(saver->dir, &saver->file_count));
    saver->is_clean = false;
    TRY(checkpoint_write_image(saver->dir, saver->name, saver->image));
    saver->is_clean = true;
    saver->file_count++;
    if (saver->on_saved) saver->on_saved(saver->data, saver->step);
    bool may_prune = saver->keep > 0 && saver->file_count > (size_t)saver->keep;
    return may_prune ? checkpoint_prune(saver->dir, saver->keep, saver->name) : OK;
}

/* Consumes [failure] and replaces saver->dir by dir_name in its sentence. */
static status rename_folder(const struct saver *saver, status failure) {
    size_t length = strlen(saver->dir);
    SCOPED_TEXT sentence = {0};
    const char *rest = status_message(failure);
    for (const char *at; (at = strstr(rest, saver->dir)); rest = at + length) {
        text_add_bytes(&sentence, rest, (size_t)(at - rest));
        text_add(&sentence, saver->dir_name);
    }
    text_add(&sentence, rest);
    status named = status_new(status_code(failure), "%s", text_string(&sentence));
    status_free(failure);
    return named;
}

static status save(struct saver *saver) {
    status failure = write_image(saver);
    return failure ? rename_folder(saver, failure) : OK;
}

/* What saver_save_later has left. */
static status copy(struct saver *saver) {
    status failure = saver->before_copy ? saver->before_copy(saver->copy_data) : OK;
    image_fill_steady(saver->image);
    pthread_mutex_lock(&saver->mutex);
    saver->is_copying = false;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    return failure;
}

static void *work(void *data) {
    struct saver *saver = data;
    thread_stay_behind();
    pthread_mutex_lock(&saver->mutex);
    while (!saver->is_ending) {
        if (!saver->is_busy) {
            pthread_cond_wait(&saver->changed, &saver->mutex);
            continue;
        }
        bool is_copying = saver->is_copying;
        pthread_mutex_unlock(&saver->mutex);
        status failure = is_copying ? copy(saver) : OK;
        if (!failure) failure = save(saver);
        pthread_mutex_lock(&saver->mutex);
        saver->failure = failure;
        if (!failure) saver->is_kept = false;
        saver->is_busy = false;
        pthread_cond_broadcast(&saver->changed);
    }
    pthread_mutex_unlock(&saver->mutex);
    return NULL;
}

static void release(struct saver *saver) {
    image_destroy(saver->image);
    status_free(saver->failure);
    pthread_cond_destroy(&saver->changed);
    pthread_mutex_destroy(&saver->mutex);
    free(saver->name);
    free(saver->dir);
    free(saver->dir_name);
    free(saver);
}

status saver_create(const char *dir, int64_t keep, struct saver **out) {
    *out = NULL;
    struct saver *saver = calloc(1, sizeof *saver);
    if (!saver) return status_memory("the saver of checkpoints");
    pthread_mutex_init(&saver->mutex, NULL);
    pthread_cond_init(&saver->changed, NULL);
    saver->keep = keep;
    saver->dir = strdup(dir);
    saver->dir_name = strdup(dir);
    if (!saver->dir || !saver->dir_name) {
        release(saver);
        return status_memory("the saver of checkpoints");
    }
    *out = saver;
    return OK;
}

void saver_on_saved(struct saver *saver, void (*on_saved)(void *data, int64_t step), void *data) {
    saver->on_saved = on_saved;
    saver->data = data;
}

void saver_before_write(struct saver *saver, status (*before)(void *data), void *data) {
    saver->before = before;
    saver->before_data = data;
}

void saver_before_copy(struct saver *saver, status (*before)(void *data), void *data) {
    saver->before_copy = before;
    saver->copy_data = data;
}

void saver_set_step(struct saver *saver, int64_t step) { saver->next_step = step; }

status saver_move(struct saver *saver, const char *dir, const char *name) {
    char *dir_copy = strdup(dir), *name_copy = strdup(name);
    if (!dir_copy || !name_copy) {
        free(dir_copy);
        free(name_copy);
        return status_memory("the saver of checkpoints");
    }
    free(saver->dir);
    free(saver->dir_name);
    saver->dir = dir_copy;
    saver->dir_name = name_copy;
    saver->is_clean = false;
    return OK;
}

status saver_wait(struct saver *saver) {
    pthread_mutex_lock(&saver->mutex);
    while (saver->is_busy) pthread_cond_wait(&saver->changed, &saver->mutex);
    status failure = saver->failure;
    saver->failure = OK;
    pthread_mutex_unlock(&saver->mutex);
    return failure;
}

void saver_wait_copy(struct saver *saver) {
    if (saver->has_copied) return;
    pthread_mutex_lock(&saver->mutex);
    while (saver->is_copying) pthread_cond_wait(&saver->changed, &saver->mutex);
    pthread_mutex_unlock(&saver->mutex);
    saver->has_copied = true;
}

/* What to copy at once. */
enum copying { COPY_ALL, COPY_UNSTEADY, COPY_NOTHING };

/* Updates the image and the name; the thread is idle. [is_steady]: of COPY_UNSTEADY. */
static status prepare(struct saver *saver, const char *name, const struct entry *entries, size_t count,
                      enum copying copying, const bool *is_steady) {
    bool fits = saver->image && image_fits(saver->image, entries, count);
    if (!fits || (copying != COPY_NOTHING && !image_has_data(saver->image))) {
        image_destroy(saver->image);
        saver->image = NULL;
        TRY(image_create(entries, count, copying == COPY_NOTHING, &saver->image));
    }
    if (copying == COPY_NOTHING)
        image_reference(saver->image, entries, count);
    else if (copying == COPY_UNSTEADY)
        image_fill_first(saver->image, entries, count, is_steady);
    else
        image_fill(saver->image, entries, count);
    free(saver->name);
    saver->name = strdup(name);
    saver->step = saver->next_step;
    return saver->name ? OK : status_memory("the saver of checkpoints");
}

/* The thread is idle. */
static status start(struct saver *saver, bool is_copying) {
    if (!saver->has_thread)
        TRY(thread_start(&saver->thread, "saver", "the thread that saves checkpoints", work, saver));
    saver->has_thread = true;
    pthread_mutex_lock(&saver->mutex);
    saver->is_busy = true;
    saver->is_copying = is_copying;
    saver->has_copied = !is_copying;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    return OK;
}

/* Without the thread, which is idle; saver_wait returns the failure, as that of the thread. */
static void save_now(struct saver *saver) {
    saver->failure = save(saver);
    if (!saver->failure) saver->is_kept = false;
}

static status prepare_next(struct saver *saver, const char *name, const struct entry *entries, size_t count,
                           enum copying copying, const bool *is_steady) {
    TRY(saver_wait(saver));
    assert(!saver->is_kept);
    return prepare(saver, name, entries, count, copying, is_steady);
}

status saver_save(struct saver *saver, const char *name, const struct entry *entries, size_t count) {
    TRY(prepare_next(saver, name, entries, count, COPY_ALL, NULL));
    return start(saver, false);
}

status saver_save_later(struct saver *saver, const char *name, const struct entry *entries, size_t count,
                        const bool *is_steady) {
    TRY(prepare_next(saver, name, entries, count, COPY_UNSTEADY, is_steady));
    return start(saver, true);
}

status saver_save_in_place(struct saver *saver, const char *name, const struct entry *entries, size_t count) {
    TRY(prepare_next(saver, name, entries, count, COPY_NOTHING, NULL));
    save_now(saver);
    return OK;
}

status saver_keep(struct saver *saver, const char *name, const struct entry *entries, size_t count) {
    TRY(saver_wait(saver));
    saver->is_kept = false;
    TRY(prepare(saver, name, entries, count, COPY_ALL, NULL));
    saver->is_kept = true;
    return OK;
}

bool saver_has_kept(struct saver *saver) {
    pthread_mutex_lock(&saver->mutex);
    bool has_kept = saver->is_kept && !saver->is_busy;
    pthread_mutex_unlock(&saver->mutex);
    return has_kept;
}

status saver_write_kept(struct saver *saver, bool waits) {
    TRY(saver_wait(saver));
    if (saver->is_kept && !waits) return start(saver, false);
    if (saver->is_kept) save_now(saver);
    return OK;
}

void saver_drop_kept(struct saver *saver) {
    if (saver_has_kept(saver)) saver->is_kept = false;
}

void saver_destroy(struct saver *saver) {
    if (!saver) return;
    status_free(saver_wait(saver));
    pthread_mutex_lock(&saver->mutex);
    saver->is_ending = true;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    if (saver->has_thread) pthread_join(saver->thread, NULL);
    release(saver);
}
