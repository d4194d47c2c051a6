# Completion of ddptrain for bash; written by: ddptrain --completion bash
@FUNCTIONS@
_ddptrain() {
    # bash splits words at '=', so the line is read instead
    local line=${COMP_LINE:0:COMP_POINT} word previous verb=train name
    local -a words
    read -ra words <<<"$line"
    word=${line##*[[:space:]]}
    [ -n "$word" ] && unset 'words[-1]'
    previous=${words[-1]}
    for name in @COMMANDS@; do [ "${words[1]-}" = "$name" ] && verb=$name; done
    COMPREPLY=()
    case $word in
        *=*)
            local prefix=
            case $COMP_WORDBREAKS in *=*) ;; *) prefix=${word%%=*}= ;; esac
            mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$(_ddptrain_values "${word%%=*}")" -- "${word#*=}")
            [ ${#COMPREPLY[@]} -gt 0 ] && return
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -P "$prefix" -f -- "${word#*=}")
            return
            ;;
    esac
    if _ddptrain_takes_value "$previous"; then
        mapfile -t COMPREPLY < <(compgen -W "$(_ddptrain_values "$previous")" -- "$word")
        [ ${#COMPREPLY[@]} -gt 0 ] && return
    elif [[ $word == -* ]]; then
        local options
        options=$(_ddptrain_options "$verb")
        [ ${#words[@]} -eq 1 ] && options="$options $(_ddptrain_information)"
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
        return
    elif [ ${#words[@]} -eq 1 ]; then
        mapfile -t COMPREPLY < <(compgen -W "@COMMANDS@" -- "$word")
    elif [ -n "$word" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_ddptrain_keys)" -- "$word")
        [ ${#COMPREPLY[@]} -gt 0 ] && compopt -o nospace 2>/dev/null
    fi
    local -a files
    mapfile -t files < <(compgen -f -- "$word")
    [ ${#files[@]} -gt 0 ] && compopt -o filenames 2>/dev/null
    COMPREPLY+=("${files[@]}")
}
complete -F _ddptrain ddptrain
