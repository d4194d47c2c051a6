#compdef ddptrain
# Completion of ddptrain for zsh; written by: ddptrain --completion zsh
@FUNCTIONS@
_ddptrain() {
    local verb=train name word=${words[CURRENT]} previous=${words[CURRENT-1]}
    local -a verbs list
    verbs=(
@DESCRIPTIONS@
    )
    for name in ${verbs%%:*}; do [[ ${words[2]} == $name ]] && verb=$name; done
    if [[ $word == *=* ]]; then
        list=(${="$(_ddptrain_values ${word%%=*})"})
        compset -P '*='
        if (( $#list )); then compadd -- $list; else _files; fi
    elif _ddptrain_takes_value $previous; then
        list=(${="$(_ddptrain_values $previous)"})
        (( $#list )) && compadd -- $list
        [[ $#list -eq 0 || $previous == --checkpoint ]] && _files
    elif [[ $word == -* ]]; then
        list=(${="$(_ddptrain_options $verb)"})
        (( CURRENT == 2 )) && list+=(${="$(_ddptrain_information)"})
        compadd -- $list
    else
        (( CURRENT == 2 )) && _describe command verbs
        list=(${="$(_ddptrain_keys)"})
        (( CURRENT > 2 )) && [[ -n $word ]] && compadd -S '' -- $list
        _files
    fi
    return 0
}
if [[ $funcstack[1] == _ddptrain ]]; then _ddptrain "$@"; else compdef _ddptrain ddptrain; fi
