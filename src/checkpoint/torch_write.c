/* The pickle has protocol 2 and needs no memo. Each tensor is the call that torch.save pickles,
 * torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks), and its storage is the
 * persistent id ("storage", torch.FloatStorage, key, "cpu", elements): the bytes of the member data/<key>. */
#include <string.h>

#include "base/arena.h"
#include "base/dims.h"
#include "base/files/zip_write.h"
#include "base/text.h"
#include "checkpoint/torch_file.h"

#define ROOT "archive/" /* torch.load takes the folder of the first member */

/* ---- pickle ---- */

static void add_bytes(struct text *out, uint64_t number, int bytes) {
    for (int i = 0; i < bytes; i++) {
        char byte = (char)(number >> (8 * i) & 0xff);
        text_add_bytes(out, &byte, 1);
    }
}

static void add_string(struct text *out, const char *string) {
    text_add(out, "X"); /* BINUNICODE */
    add_bytes(out, strlen(string), 4);
    text_add(out, string);
}

/* A number that is not negative. */
static void add_int(struct text *out, uint64_t number) {
    if (number < 256) {
        text_add(out, "K"); /* BININT1 */
        add_bytes(out, number, 1);
    } else if (number <= INT32_MAX) {
        text_add(out, "J"); /* BININT */
        add_bytes(out, number, 4);
    } else {
        text_add(out, "\x8a"); /* LONG1 */
        add_bytes(out, 8, 1);
        add_bytes(out, number, 8);
    }
}

static void add_tuple(struct text *out, const int64_t *numbers, int count) {
    text_add(out, "("); /* MARK */
    for (int i = 0; i < count; i++) add_int(out, (uint64_t)numbers[i]);
    text_add(out, "t"); /* TUPLE */
}

/* OrderedDict(): GLOBAL, EMPTY_TUPLE, REDUCE */
static void add_dictionary(struct text *out) { text_add(out, "ccollections\nOrderedDict\n)R"); }

static void add_tensor(struct text *out, const struct named_tensor *tensor, const char *key) {
    int64_t strides[MAX_DIMS], stride = 1;
    for (int d = tensor->dims; d-- > 0; stride *= tensor->shape[d]) strides[d] = stride;
    text_add(out, "ctorch._utils\n_rebuild_tensor_v2\n((");
    add_string(out, "storage");
    text_add(out, "ctorch\nFloatStorage\n");
    add_string(out, key);
    add_string(out, "cpu");
    add_int(out, named_tensor_elements(tensor));
    text_add(out, "tQ"); /* TUPLE, BINPERSID */
    add_int(out, 0);
    add_tuple(out, tensor->shape, tensor->dims);
    add_tuple(out, strides, tensor->dims);
    text_add(out, "\x89"); /* NEWFALSE */
    add_dictionary(out);
    text_add(out, "tR"); /* TUPLE, REDUCE */
}

static const char *key_of(struct arena *arena, size_t index) { return arena_printf(arena, "%zu", index); }

static void add_pickle(struct text *out, struct arena *arena, const struct named_tensor *tensors, size_t count) {
    text_add_bytes(out, "\x80\x02", 2); /* PROTO 2 */
    add_dictionary(out);
    text_add(out, "(");
    for (size_t i = 0; i < count; i++) {
        add_string(out, tensors[i].name);
        add_tensor(out, &tensors[i], key_of(arena, i));
    }
    text_add(out, "u."); /* SETITEMS, STOP */
}

/* ---- archive ---- */

status torch_file_write(const char *path, const struct named_tensor *tensors, size_t count) {
    struct arena *arena = arena_create();
    struct text pickle = {0};
    add_pickle(&pickle, arena, tensors, count);
    struct zip_new_member *members = arena_alloc(arena, (count + 3) * sizeof *members);
    members[0] = (struct zip_new_member){ROOT "data.pkl", pickle.data, pickle.length};
    members[1] = (struct zip_new_member){ROOT "byteorder", "little", 6};
    for (size_t i = 0; i < count; i++)
        members[i + 2] = (struct zip_new_member){arena_printf(arena, ROOT "data/%s", key_of(arena, i)),
                                                 tensors[i].values, named_tensor_elements(&tensors[i]) * sizeof(float)};
    members[count + 2] = (struct zip_new_member){ROOT "version", "3\n", 2};
    status s = zip_write(path, members, count + 3);
    text_free(&pickle);
    arena_destroy(arena);
    return s;
}
