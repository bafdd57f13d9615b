# Completions of tenure for bash. Written by `tenure completions bash`.
#
# This asks the tenure on the PATH, and never a program that is only typed: a key that completes
# must not start any program that lies in a folder.

_tenure() {
    local answer kind rest offset at=0 index line=$COMP_LINE
    COMPREPLY=()
    answer=$(command tenure completions bash -- "${COMP_LINE:0:COMP_POINT}" 2>/dev/null </dev/null) || return 0
    kind=${answer%%$'\n'*}
    case $kind in
        words)
            while [[ $answer == *$'\n'* ]]; do
                answer=${answer#*$'\n'}
                rest=${answer%%$'\n'*}
                COMPREPLY+=("$2${rest#+}")
            done
            ;;
        files*) compopt -o default 2>/dev/null ;;
        folders*) compopt -o dirnames 2>/dev/null ;;
        command*)
            # The word that begins there. bash has cut the line into more words than there are.
            offset=${kind#command }
            for ((index = 0; index < COMP_CWORD; index++)); do
                while [[ ${line:at:1} == [[:space:]] ]]; do ((at += 1)); done
                ((at < offset)) || break
                ((at += ${#COMP_WORDS[index]}))
            done
            if declare -F _comp_command_offset >/dev/null; then
                _comp_command_offset "$index"
            elif declare -F _command_offset >/dev/null; then
                _command_offset "$index"
            elif ((index == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$2")
            else
                compopt -o default 2>/dev/null
            fi
            ;;
    esac
    return 0
}

complete -F _tenure tenure
