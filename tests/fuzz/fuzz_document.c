/* Any bytes, read as a config, overridden by their first line, and bound: no crash, no leak, nothing slow; and what
 * binds without a problem is written so that it binds again to the same text. */
#include <stdlib.h>
#include <string.h>

#include "base/schema_example.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* Binds [document] (destroyed here) and adds the resolved config to [out]; false when there were problems. */
static bool resolve(struct document *document, struct problems *problems, struct text *out) {
    if (document) {
        struct example config;
        schema_bind(&example_schema, document_root(document), "", &example_schema, &config, document_arena(document),
                    problems);
        if (problems->count == 0) schema_write_yaml(&example_schema, &config, out);
    }
    bool is_good = document && problems->count == 0;
    status_free(problems_status(problems, STATUS_USAGE));
    problems_free(problems);
    document_destroy(document);
    return is_good;
}

static struct document *parse(const char *bytes, size_t size, struct problems *problems) {
    struct document *document = NULL;
    if (document_parse("fuzz.yaml", bytes, size, problems, &document) != OK) abort();
    if (!document && problems->count == 0) abort();
    return document;
}

/* The first line as an override. Without a '=' it is always rejected; only short texts are parsed for that. */
static void bind_overridden(const char *bytes, size_t size) {
    struct problems problems = {0};
    struct text out = {0};
    const char *end = memchr(bytes, '\n', size);
    size_t length = end ? (size_t)(end - bytes) : size;
    if (size > 64 && !memchr(bytes, '=', length)) return;
    struct document *document = parse(bytes, size, &problems);
    char *line = strndup(bytes, length);
    if (document && line) schema_override(&example_schema, document, line, &problems);
    free(line);
    resolve(document, &problems, &out);
    text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    struct problems problems = {0};
    struct text first = {0}, second = {0};
    if (size > 0) bind_overridden((const char *)bytes, size);
    struct document *document = parse((const char *)bytes, size, &problems);
    if (resolve(document, &problems, &first)) {
        document = parse(text_string(&first), first.length, &problems);
        if (!resolve(document, &problems, &second)) abort();
        if (strcmp(text_string(&first), text_string(&second)) != 0) abort();
    }
    text_free(&first);
    text_free(&second);
    return 0;
}
