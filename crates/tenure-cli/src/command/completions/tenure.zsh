#compdef tenure
# Completions of tenure for zsh. Written by `tenure completions zsh`.
#
# This asks the tenure on the PATH, and never a program that is only typed: a key that completes
# must not start any program that lies in a folder.

_tenure() {
    local answer kind line word about
    local -a lines names shown
    answer=$(command tenure completions zsh -- "${(@Q)words[1,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null </dev/null) || return 1
    lines=("${(@f)answer}")
    kind=$lines[1]
    case $kind in
        words)
            for line in "${(@)lines[2,-1]}"; do
                word=${line%%$'\t'*}
                about=${line#*$'\t'}
                names+=("$word")
                if [[ -n $about ]]; then
                    shown+=("$word -- $about")
                else
                    shown+=("$word")
                fi
            done
            (( $#names )) && compadd -l -d shown -a names
            ;;
        files*)
            [[ -n ${kind#*$'\t'} ]] && compset -P 1 '*='
            _files
            ;;
        folders*)
            [[ -n ${kind#*$'\t'} ]] && compset -P 1 '*='
            _files -/
            ;;
        command*)
            (( CURRENT -= ${kind#command } ))
            shift ${kind#command } words
            _normal
            ;;
        *) return 1 ;;
    esac
}

if [[ $funcstack[1] == _tenure ]]; then
    _tenure "$@"
else
    compdef _tenure tenure
fi
