/* A plugin of qemu-user that counts the instructions of a program for 64-bit ARM, in all its threads, and how many of
 * them are multiply-adds: tests/proof/test-aarch64.sh count. Debian has no header of this interface (qemu-plugin.h), so
 * that what is used of it is declared here. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void tb_callback(plugin_id id, struct qemu_plugin_tb *tb);
typedef void exit_callback(plugin_id id, void *data);
enum { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id id, tb_callback *callback);
void qemu_plugin_register_atexit_cb(plugin_id id, exit_callback *callback, void *data);
void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, int op, void *to, uint64_t value);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
void qemu_plugin_outs(const char *text);
int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv);

#define EXPORT __attribute__((visibility("default")))

EXPORT int qemu_plugin_version = 1;

static uint64_t all, vector_multiply_adds, scalar_multiply_adds;

static const struct {
    uint32_t mask, bits;
    uint64_t *count;
} kinds[] = {
    {0xbf20fc00, 0x0e20cc00, &vector_multiply_adds}, /* fmla, fmls of vectors */
    {0xbf80b400, 0x0f801000, &vector_multiply_adds}, /* ... by an element */
    {0xff000000, 0x1f000000, &scalar_multiply_adds}, /* fmadd, fmsub, fnmadd, fnmsub */
};

static void on_translation(plugin_id id, struct qemu_plugin_tb *tb) {
    (void)id;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        uint32_t code;
        memcpy(&code, qemu_plugin_insn_data(insn), sizeof code);
        qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, &all, 1);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            if ((code & kinds[k].mask) == kinds[k].bits)
                qemu_plugin_register_vcpu_insn_exec_inline(insn, QEMU_PLUGIN_INLINE_ADD_U64, kinds[k].count, 1);
    }
}

static void on_exit(plugin_id id, void *data) {
    char text[160];
    (void)id, (void)data;
    snprintf(text, sizeof text, "instructions %" PRIu64 " vector_multiply_adds %" PRIu64 " scalar %" PRIu64 "\n", all,
             vector_multiply_adds, scalar_multiply_adds);
    qemu_plugin_outs(text);
}

EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit, NULL);
    return 0;
}
