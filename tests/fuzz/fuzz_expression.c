/* Any bytes, read as a formula of the config: a sentence with a place in the text, or a list of operations that can be
 * evaluated and derived; a list is never longer than its limit. */
#include <stdlib.h>
#include <string.h>

#include "base/expression/expression.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void check(bool is_good) {
    if (!is_good) abort();
}

/* Operands come before what uses them. */
static void check_list(const struct expression *e) {
    check(e->count <= EXPRESSION_MAX_NODES && e->own <= e->count && e->value < e->own);
    for (size_t i = 0; i < e->count; i++)
        for (int k = 0; k < expression_operands(e->nodes[i].op); k++) check(e->nodes[i].operands[k] < i);
}

static void read_as(const char *text, const struct expression_options *options) {
    static struct expression e;
    double values[EXPRESSION_MAX_VARIABLES];
    uint16_t by[EXPRESSION_MAX_VARIABLES], derivatives[EXPRESSION_MAX_VARIABLES];
    size_t at, count = options->names ? 3 : 0;
    struct text python = {0};
    status s = expression_parse(text, options, &e, &at, options->names ? &python : NULL);
    check(at <= strlen(text));
    if (!s) {
        check_list(&e);
        if (!options->names) count = e.name_count;
        for (size_t i = 0; i < EXPRESSION_MAX_VARIABLES; i++) values[i] = (double)i - 1.5;
        for (size_t i = 0; i < count; i++) by[i] = (uint16_t)i;
        expression_evaluate(&e, values);
        uint16_t seed = expression_variable(&e, EXPRESSION_MAX_VARIABLES - 1);
        s = expression_differentiate(&e, e.value, seed, by, count, derivatives);
        if (!s) check_list(&e);
        for (size_t i = 0; !s && i < count; i++) check(derivatives[i] < e.count || derivatives[i] == EXPRESSION_NONE);
    }
    status_free(s);
    text_free(&python);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    static const char *const names[] = {"y", "t", "w", NULL};
    char *text = malloc(size + 1);
    if (!text) return 0;
    memcpy(text, bytes, size);
    text[size] = '\0';
    read_as(text, &(struct expression_options){.names = names, .python = names});
    read_as(text, &(struct expression_options){.is_of_numbers = true});
    free(text);
    return 0;
}
