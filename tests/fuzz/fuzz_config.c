/* Any bytes as the config of a run, with every section, layer and call in PyTorch's words: bound or rejected with a
 * sentence; what is bound is written so that it binds again to the same text. The config in a checkpoint is read by the
 * same functions. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "train/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* The resolved config, or false. [text] has no NUL. */
static bool resolve(const char *text, struct text *out) {
    struct config_file *file;
    status s = config_parse("fuzz.yaml", text, &file);
    if (s && (status_code(s) != STATUS_USAGE || strncmp(status_message(s), "fuzz.yaml", 9) != 0)) abort();
    bool is_good = !s;
    status_free(s);
    if (is_good) {
        struct text ignored = {0};
        for (size_t i = 0; config_ignored(config_of(file), i, &ignored); i++) text_add(&ignored, "\n");
        text_free(&ignored);
        schema_write_yaml(&config_schema, config_of(file), out);
    }
    config_free(file);
    return is_good;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct text first = {0}, second = {0};
    char *text = strndup((const char *)bytes, size);
    if (!text) abort();
    if (resolve(text, &first)) {
        if (!resolve(text_string(&first), &second)) abort();
        if (strcmp(text_string(&first), text_string(&second)) != 0) abort();
    }
    free(text);
    text_free(&first);
    text_free(&second);
    return 0;
}
