/* completion: scripts for bash, zsh and fish that complete commands, options, keys and their values, from the tables of
 * commands and options and the schema of a config. */
#include <ctype.h>
#include <string.h>

#include "base/schema/schema.h"
#include "options.h"

#define FUNCTION_START "\n    case $1 in\n"
#define FUNCTION_END "    esac\n}\n"

/* Adds the values that an option lists, "none|cores", with [separator] between; words in upper case describe a value.
 */
static void add_values(const char *value, struct text *out, const char *separator) {
    for (const char *at = value; at && *at; at += *at == '|') {
        size_t length = strcspn(at, "|");
        if (islower((unsigned char)*at)) text_printf(out, "%s%.*s", out->length ? separator : "", (int)length, at);
        at += length;
    }
}

/* ---- bash and zsh: functions that print words for a command, an option or a key ---- */

static void add_verb_words(struct text *out) {
    for (size_t i = 0; subcommand_at(i); i++) text_printf(out, "%s%s", i ? " " : "", subcommand_at(i)->name);
}

static void add_case(struct text *out, const char *name, const char *words) {
    if (*words) text_printf(out, "        %s) echo \"%s\" ;;\n", name, words);
}

static void add_key_case(void *context, const char *path, const char *const *values) {
    struct text words = {0};
    for (size_t i = 0; values[i]; i++) text_printf(&words, "%s%s", i ? " " : "", values[i]);
    add_case(context, path, text_string(&words));
    text_free(&words);
}

static void add_key(void *context, const char *path, const char *const *values) {
    (void)values;
    text_printf(context, "%s= ", path);
}

/* Defines _ddptrain_options VERB, _ddptrain_values OPTION|KEY, _ddptrain_keys. */
static void add_tables(struct text *out) {
    text_add(out, "_ddptrain_options() {" FUNCTION_START);
    for (size_t v = 0; subcommand_at(v); v++) {
        struct text words = {0};
        for (size_t i = 0; option_at(i); i++)
            if (option_is_for(option_at(i), subcommand_at(v)))
                text_printf(&words, "%s%s", words.length ? " " : "", option_at(i)->name);
        add_case(out, subcommand_at(v)->name, text_string(&words));
        text_free(&words);
    }
    text_add(out, FUNCTION_END "_ddptrain_information() {\n    echo \"");
    for (size_t i = 0; information_at(i); i++) text_printf(out, "%s%s", i ? " " : "", information_at(i)->name);
    text_add(out, "\"\n}\n_ddptrain_values() {" FUNCTION_START);
    for (size_t i = 0; option_at(i); i++) {
        struct text words = {0};
        add_values(option_at(i)->value, &words, " ");
        add_case(out, option_at(i)->name, text_string(&words));
        text_free(&words);
    }
    add_case(out, "--completion", "bash zsh fish");
    schema_each_key(&config_schema, add_key_case, out);
    text_add(out, FUNCTION_END "_ddptrain_takes_value() {\n    case $1 in\n        ");
    const char *separator = "";
    for (size_t i = 0; option_at(i); i++)
        if (option_at(i)->type != VALUE_NONE) {
            text_printf(out, "%s%s", separator, option_at(i)->name);
            separator = " | ";
        }
    text_add(out, " | --completion) true ;;\n        *) false ;;\n" FUNCTION_END "_ddptrain_keys() {\n    echo \"");
    schema_each_key(&config_schema, add_key, out);
    text_add(out, "\"\n}\n");
}

void completion_write_bash(struct text *out) {
    text_add(out, "# Completion of ddptrain for bash; written by: ddptrain --completion bash\n");
    add_tables(out);
    text_add(out, "_ddptrain() {\n"
                  "    # bash splits words at '=', so the line is read instead\n"
                  "    local line=${COMP_LINE:0:COMP_POINT} word previous verb=train name\n"
                  "    local -a words\n"
                  "    read -ra words <<<\"$line\"\n"
                  "    word=${line##*[[:space:]]}\n"
                  "    [ -n \"$word\" ] && unset 'words[-1]'\n"
                  "    previous=${words[-1]}\n"
                  "    for name in ");
    add_verb_words(out);
    text_add(out, "; do [ \"${words[1]-}\" = \"$name\" ] && verb=$name; done\n"
                  "    COMPREPLY=()\n"
                  "    case $word in\n"
                  "        *=*)\n"
                  "            local prefix=\n"
                  "            case $COMP_WORDBREAKS in *=*) ;; *) prefix=${word%%=*}= ;; esac\n"
                  "            mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -W \"$(_ddptrain_values "
                  "\"${word%%=*}\")\" -- \"${word#*=}\")\n"
                  "            [ ${#COMPREPLY[@]} -gt 0 ] && return\n"
                  "            compopt -o filenames 2>/dev/null\n"
                  "            mapfile -t COMPREPLY < <(compgen -P \"$prefix\" -f -- \"${word#*=}\")\n"
                  "            return\n"
                  "            ;;\n"
                  "    esac\n"
                  "    if _ddptrain_takes_value \"$previous\"; then\n"
                  "        mapfile -t COMPREPLY < <(compgen -W \"$(_ddptrain_values \"$previous\")\" -- \"$word\")\n"
                  "        [ ${#COMPREPLY[@]} -gt 0 ] && return\n"
                  "    elif [[ $word == -* ]]; then\n"
                  "        local options\n"
                  "        options=$(_ddptrain_options \"$verb\")\n"
                  "        [ ${#words[@]} -eq 1 ] && options=\"$options $(_ddptrain_information)\"\n"
                  "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
                  "        return\n"
                  "    elif [ ${#words[@]} -eq 1 ]; then\n"
                  "        mapfile -t COMPREPLY < <(compgen -W \"");
    add_verb_words(out);
    text_add(out, "\" -- \"$word\")\n"
                  "    elif [ -n \"$word\" ]; then\n"
                  "        mapfile -t COMPREPLY < <(compgen -W \"$(_ddptrain_keys)\" -- \"$word\")\n"
                  "        [ ${#COMPREPLY[@]} -gt 0 ] && compopt -o nospace 2>/dev/null\n"
                  "    fi\n"
                  "    local -a files\n"
                  "    mapfile -t files < <(compgen -f -- \"$word\")\n"
                  "    [ ${#files[@]} -gt 0 ] && compopt -o filenames 2>/dev/null\n"
                  "    COMPREPLY+=(\"${files[@]}\")\n"
                  "}\n"
                  "complete -F _ddptrain ddptrain\n");
}

void completion_write_zsh(struct text *out) {
    text_add(out, "#compdef ddptrain\n# Completion of ddptrain for zsh; written by: ddptrain --completion zsh\n");
    add_tables(out);
    text_add(out, "_ddptrain() {\n"
                  "    local verb=train name word=${words[CURRENT]} previous=${words[CURRENT-1]}\n"
                  "    local -a verbs list\n"
                  "    verbs=(\n");
    for (size_t i = 0; subcommand_at(i); i++) {
        text_printf(out, "        '%s:", subcommand_at(i)->name);
        for (const char *c = subcommand_at(i)->help; *c; c++)
            text_add_bytes(out, *c == '\'' ? "'\\''" : c, *c == '\'' ? 4 : 1);
        text_add(out, "'\n");
    }
    text_add(out, "    )\n"
                  "    for name in ${verbs%%:*}; do [[ ${words[2]} == $name ]] && verb=$name; done\n"
                  "    if [[ $word == *=* ]]; then\n"
                  "        list=(${=\"$(_ddptrain_values ${word%%=*})\"})\n"
                  "        compset -P '*='\n"
                  "        if (( $#list )); then compadd -- $list; else _files; fi\n"
                  "    elif _ddptrain_takes_value $previous; then\n"
                  "        list=(${=\"$(_ddptrain_values $previous)\"})\n"
                  "        (( $#list )) && compadd -- $list\n"
                  "        [[ $#list -eq 0 || $previous == --checkpoint ]] && _files\n"
                  "    elif [[ $word == -* ]]; then\n"
                  "        list=(${=\"$(_ddptrain_options $verb)\"})\n"
                  "        (( CURRENT == 2 )) && list+=(${=\"$(_ddptrain_information)\"})\n"
                  "        compadd -- $list\n"
                  "    else\n"
                  "        (( CURRENT == 2 )) && _describe command verbs\n"
                  "        list=(${=\"$(_ddptrain_keys)\"})\n"
                  "        (( CURRENT > 2 )) && [[ -n $word ]] && compadd -S '' -- $list\n"
                  "        _files\n"
                  "    fi\n"
                  "    return 0\n"
                  "}\n"
                  "if [[ $funcstack[1] == _ddptrain ]]; then _ddptrain \"$@\"; else compdef _ddptrain ddptrain; fi\n");
}

/* ---- fish ---- */

/* Adds [string] in single quotes. */
static void add_quoted(struct text *out, const char *string) {
    text_add(out, "'");
    for (const char *c = string; *c && *c != '\n'; c++)
        text_printf(out, "%s%c", *c == '\'' || *c == '\\' ? "\\" : "", *c);
    text_add(out, "'");
}

#define FISH "complete -c ddptrain"

static void add_fish_option(struct text *out, const struct option *option) {
    const struct option *with_help = option;
    struct text words = {0}, values = {0};
    while (!with_help->help && with_help->value) with_help++;
    bool is_for_training = option_is_for(option, subcommand_at(0)); /* which needs no command */
    for (size_t i = 0; option->subcommands && subcommand_at(i); i++)
        if (option_is_for(option, subcommand_at(i)) != is_for_training)
            text_printf(&words, " %s", subcommand_at(i)->name);
    text_add(out, FISH);
    if (option->subcommands)
        text_printf(out, " -n '%s__fish_seen_subcommand_from%s'", is_for_training ? "not " : "", text_string(&words));
    text_printf(out, " -l %s", option->name + 2);
    add_values(option->value, &values, " ");
    bool is_listed = values.length && !strpbrk(option->value, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (option->type != VALUE_NONE) text_add(out, is_listed ? " -x" : " -r");
    if (values.length) {
        text_add(out, " -a ");
        add_quoted(out, text_string(&values));
    }
    if (with_help->help) {
        text_add(out, " -d ");
        add_quoted(out, with_help->help);
    }
    text_add(out, "\n");
    text_free(&values);
    text_free(&words);
}

static void add_fish_key(void *context, const char *path, const char *const *values) {
    if (!values[0]) text_printf(context, "    echo %s=\n", path);
    for (size_t i = 0; values[i]; i++) text_printf(context, "    echo %s=%s\n", path, values[i]);
}

void completion_write_fish(struct text *out) {
    text_add(out, "# Completion of ddptrain for fish; written by: ddptrain --completion fish\n"
                  "function __ddptrain_keys\n");
    schema_each_key(&config_schema, add_fish_key, out);
    text_add(out, "end\n");
    for (size_t i = 0; subcommand_at(i); i++) {
        text_printf(out, FISH " -n __fish_use_subcommand -a %s -d ", subcommand_at(i)->name);
        add_quoted(out, subcommand_at(i)->help);
        text_add(out, "\n");
    }
    for (size_t i = 0; information_at(i); i++) {
        const struct information *information = information_at(i);
        struct text values = {0};
        add_values(information->argument, &values, " ");
        text_printf(out, FISH " -n __fish_use_subcommand -l %s", information->name + 2);
        if (values.length) text_printf(out, " -x -a '%s'", text_string(&values));
        if (information->help) {
            text_add(out, " -d ");
            add_quoted(out, information->help);
        }
        text_add(out, "\n");
        text_free(&values);
    }
    for (size_t i = 0; option_at(i); i++) add_fish_option(out, option_at(i));
    text_add(out, FISH " -n 'test -n \"$(commandline -ct)\"; and not __fish_use_subcommand' -a '(__ddptrain_keys)'\n");
}
