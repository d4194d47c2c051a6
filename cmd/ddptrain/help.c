/* help: the same schema rows as text, as JSON schema and as the reference page. */
#include <stdio.h>

#include "command.h"
#include "train/config.h"

status help_config(const char *section) {
    struct text out = {0};
    status s = schema_help(&config_schema, section, &out);
    if (!s) fputs(text_string(&out), stdout);
    text_free(&out);
    return s;
}

static status print(void (*write)(const struct schema *, struct text *)) {
    struct text out = {0};
    write(&config_schema, &out);
    fputs(text_string(&out), stdout);
    text_free(&out);
    return OK;
}

status help_schema(void) { return print(schema_write_json); }
status help_markdown(void) { return print(schema_write_markdown); }
