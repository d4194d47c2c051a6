/* Messages are encoded by hand: a field is a key (number << 3 | wire type) and a value; only a few fields of
 * tensorflow/core/util/event.proto and summary.proto are needed. */
#include "train/metrics/event_file.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/files/digest.h"
#include "base/files/io.h"
#include "base/scoped.h"
#include "train/metrics/append_file.h"

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */
enum { EVENT_WALL_TIME = 1, EVENT_STEP = 2, EVENT_FILE_VERSION = 3, EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1, VALUE_TAG = 1, VALUE_SIMPLE = 2, SESSION_STATUS = 1, SESSION_START = 1 };

struct event_file {
    struct append_file file;
    struct text event, summary, value; /* being encoded; summary: of the next event */
};

static void add_fixed(struct text *to, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) text_add_bytes(to, &(const char){(char)(value >> 8 * i & 0xFF)}, 1);
}

static void add_varint(struct text *to, uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_add_bytes(to, &(const char){(char)((value & 0x7F) | 0x80)}, 1);
    text_add_bytes(to, &(const char){(char)value}, 1);
}

static void add_key(struct text *to, unsigned field, unsigned wire_type) { add_varint(to, field << 3 | wire_type); }

static void add_message(struct text *to, unsigned field, const struct text *message) {
    add_key(to, field, BYTES);
    add_varint(to, message->length);
    text_add_bytes(to, text_string(message), message->length);
}

/* TFRecord's masked CRC: rotated and offset, because a CRC over data that contains its own CRC has problems. */
static uint32_t masked_crc(const void *bytes, size_t size) {
    uint32_t crc = crc32c(bytes, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void begin_event(struct event_file *f, int64_t step) {
    struct timespec now;
    double seconds;
    uint64_t bits;
    clock_gettime(CLOCK_REALTIME, &now);
    seconds = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
    memcpy(&bits, &seconds, sizeof bits);
    text_clear(&f->event);
    add_key(&f->event, EVENT_WALL_TIME, FIXED64);
    add_fixed(&f->event, bits, 8);
    add_key(&f->event, EVENT_STEP, VARINT);
    add_varint(&f->event, (uint64_t)step);
}

static void end_event(struct event_file *f) {
    struct text *buffer = &f->file.buffer;
    size_t start = buffer->length, length = f->event.length;
    add_fixed(buffer, length, 8);
    add_fixed(buffer, masked_crc(buffer->data + start, 8), 4);
    text_add_bytes(buffer, f->event.data, length);
    add_fixed(buffer, masked_crc(f->event.data, length), 4);
}

static void add_version(struct event_file *f) {
    static const char version[] = "brain.Event:2";
    begin_event(f, 0);
    add_key(&f->event, EVENT_FILE_VERSION, BYTES);
    add_varint(&f->event, sizeof version - 1);
    text_add(&f->event, version);
    end_event(f);
}

void event_file_restart(struct event_file *f, int64_t step) {
    if (!f) return;
    text_clear(&f->value);
    add_key(&f->value, SESSION_STATUS, VARINT);
    add_varint(&f->value, SESSION_START);
    begin_event(f, step + 1); /* the first discarded step */
    add_message(&f->event, EVENT_SESSION_LOG, &f->value);
    end_event(f);
}

void event_file_add_scalar(struct event_file *f, const char *group, const char *name, double value) {
    if (!f) return;
    float rounded = (float)value;
    uint32_t bits;
    size_t length = strlen(group) + 1 + strlen(name);
    memcpy(&bits, &rounded, sizeof bits);
    text_clear(&f->value);
    add_key(&f->value, VALUE_TAG, BYTES);
    add_varint(&f->value, length);
    text_add(&f->value, group);
    text_add(&f->value, "/");
    text_add(&f->value, name);
    add_key(&f->value, VALUE_SIMPLE, FIXED32);
    add_fixed(&f->value, bits, 4);
    add_message(&f->summary, SUMMARY_VALUE, &f->value);
}

static void add_summary(struct event_file *f, int64_t step) {
    begin_event(f, step);
    add_message(&f->event, EVENT_SUMMARY, &f->summary);
    end_event(f);
    text_clear(&f->summary);
}

void event_file_end_event(struct event_file *f, int64_t step) {
    if (f && f->summary.length) add_summary(f, step);
}

/* ---- HParams: plugin_data.proto of TensorBoard's plugin, google/protobuf/struct.proto ---- */

enum { VALUE_TENSOR = 8, VALUE_METADATA = 9, METADATA_PLUGIN = 1, PLUGIN_NAME = 1, PLUGIN_CONTENT = 2 };
enum { TENSOR_TYPE = 1, TENSOR_SHAPE = 2, TENSOR_FLOATS = 5, TYPE_FLOAT = 1, SHAPE_DIM = 2, DIM_SIZE = 1 };
enum { HPARAMS_START = 3, HPARAMS_END = 4, START_HPARAMS = 1, END_STATUS = 1, STATUS_SUCCESS = 1, STATUS_FAILURE = 2 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2, ANY_NUMBER = 2, ANY_STRING = 3 };

static void add_text(struct text *to, unsigned field, const char *text) {
    add_key(to, field, BYTES);
    add_varint(to, strlen(text));
    text_add(to, text);
}

/* The tensor of such a value is not read, but must be there. */
static void add_null_tensor(struct text *to) {
    SCOPED_TEXT dim = {0}, shape = {0}, tensor = {0};
    add_key(&dim, DIM_SIZE, VARINT);
    add_varint(&dim, 1);
    add_message(&shape, SHAPE_DIM, &dim);
    add_key(&tensor, TENSOR_TYPE, VARINT);
    add_varint(&tensor, TYPE_FLOAT);
    add_message(&tensor, TENSOR_SHAPE, &shape);
    add_key(&tensor, TENSOR_FLOATS, FIXED32);
    add_fixed(&tensor, 0, 4);
    add_message(to, VALUE_TENSOR, &tensor);
}

/* An event whose summary has the plugin's [data] (HPARAMS_START or HPARAMS_END in a message). */
static void add_plugin_event(struct event_file *f, const char *tag, const struct text *data) {
    SCOPED_TEXT plugin = {0}, metadata = {0};
    add_text(&plugin, PLUGIN_NAME, "hparams");
    add_message(&plugin, PLUGIN_CONTENT, data);
    add_message(&metadata, METADATA_PLUGIN, &plugin);
    text_clear(&f->value);
    add_text(&f->value, VALUE_TAG, tag);
    add_message(&f->value, VALUE_METADATA, &metadata);
    add_null_tensor(&f->value);
    add_message(&f->summary, SUMMARY_VALUE, &f->value);
    add_summary(f, 0);
}

static void add_hparam(struct text *to, const struct hparam *hparam) {
    SCOPED_TEXT any = {0}, entry = {0};
    uint64_t bits;
    memcpy(&bits, &hparam->value, sizeof bits);
    if (hparam->text) {
        add_text(&any, ANY_STRING, hparam->text);
    } else {
        add_key(&any, ANY_NUMBER, FIXED64);
        add_fixed(&any, bits, 8);
    }
    add_text(&entry, ENTRY_KEY, hparam->name);
    add_message(&entry, ENTRY_VALUE, &any);
    add_message(to, START_HPARAMS, &entry);
}

void event_file_add_session(struct event_file *f, const struct hparam *hparams, size_t count, bool is_success) {
    SCOPED_TEXT start = {0}, end = {0}, data = {0};
    if (!f) return;
    for (size_t i = 0; i < count; i++) add_hparam(&start, &hparams[i]);
    add_message(&data, HPARAMS_START, &start);
    add_plugin_event(f, "_hparams_/session_start_info", &data);
    text_clear(&data);
    add_key(&end, END_STATUS, VARINT);
    add_varint(&end, is_success ? STATUS_SUCCESS : STATUS_FAILURE);
    add_message(&data, HPARAMS_END, &end);
    add_plugin_event(f, "_hparams_/session_end_info", &data);
}

/* The name contains the process id, and a number in case the process creates two files within a second. */
static status create(struct event_file *f, const char *folder) {
    char host[256] = "localhost";
    gethostname(host, sizeof host - 1);
    struct io_info info = {.exists = true};
    status s = OK;
    for (int number = 0; info.exists && !s; number++) {
        struct text path = {0};
        text_printf(&path, "%s/events.out.tfevents.%lld.%s.%ld.%d", folder, (long long)time(NULL), host, (long)getpid(),
                    number);
        free(f->file.path);
        f->file.path = path.data;
        s = io_stat(f->file.path, &info);
    }
    return s ? s : io_open_append(f->file.path, &f->file.fd);
}

status event_file_open(const char *folder, int64_t step, struct event_file **out) {
    struct event_file *f = calloc(1, sizeof *f);
    if (!f) return status_memory("the event file");
    f->file.fd = -1;
    status s = create(f, folder);
    if (s) {
        status_free(event_file_close(f));
        return s;
    }
    add_version(f);
    event_file_restart(f, step);
    *out = f;
    return OK;
}

status event_file_flush(struct event_file *f) {
    if (!f) return OK;
    status s = append_file_flush(&f->file);
    if (s && f->file.buffer.length >= APPEND_FILE_MAX_BUFFER) text_clear(&f->file.buffer);
    return s;
}

status event_file_close(struct event_file *f) {
    if (!f) return OK;
    status s = append_file_close(&f->file);
    text_free(&f->event);
    text_free(&f->summary);
    text_free(&f->value);
    free(f);
    return s;
}
