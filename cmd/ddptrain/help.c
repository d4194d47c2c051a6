/* help: the same schema rows as text, as JSON schema and as the reference pages. */
#include <stdio.h>

#include "command.h"
#include "train/config.h"

static status print_section(const struct schema *schema, const char *section) {
    struct text out = {0};
    status s = schema_help(schema, section, &out);
    if (!s) fputs(text_string(&out), stdout);
    text_free(&out);
    return s;
}

static status print(const struct schema *schema, void (*write)(const struct schema *, struct text *)) {
    struct text out = {0};
    write(schema, &out);
    fputs(text_string(&out), stdout);
    text_free(&out);
    return OK;
}

status help_config(const char *section) { return print_section(&config_schema, section); }
status help_sweep(const char *section) { return print_section(&sweep_schema, section); }
status help_schema(void) { return print(&config_schema, schema_write_json); }
status help_markdown(void) { return print(&config_schema, schema_write_markdown); }
status help_sweep_markdown(void) { return print(&sweep_schema, schema_write_markdown); }
