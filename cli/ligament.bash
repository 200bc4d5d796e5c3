# Completion of `ligament` for bash; zsh reads it after `autoload -U bashcompinit; bashcompinit`.
# Commands and options come from the program's own help, models from `ligament ls`.

_ligament_commands() {
    "$1" --help 2>/dev/null | sed -n 's/^  \([a-z][a-z-]*\)  .*/\1/p'
}

_ligament_options() {
    "$1" "$2" --help 2>/dev/null | grep -oE -e '(^|[ ,])--?[a-z][a-z-]*' | tr -d ' ,'
}

_ligament_models() {
    "$1" ls --json "$2" 2>/dev/null |
        sed -n 's/.*"name": "\([^"\\]*\)".*/\1/p' | sed "s|^|$2#|"
}

_ligament() {
    local program=${COMP_WORDS[0]} current=${COMP_WORDS[COMP_CWORD]} IFS=$'\n'
    COMPREPLY=()
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "$(_ligament_commands "$program")" -- "$current"))
    elif [[ $current == -* ]]; then
        COMPREPLY=($(compgen -W "$(_ligament_options "$program" "${COMP_WORDS[1]}")" -- "$current"))
    elif [[ $current == *'#'* ]]; then
        COMPREPLY=($(compgen -W "$(_ligament_models "$program" "${current%%#*}")" -- "$current"))
    else
        COMPREPLY=($(compgen -f -- "$current"))
    fi
}

complete -o filenames -F _ligament ligament
