# Completions of tenure for fish. Written by `tenure completions fish`.
#
# This asks the tenure on the PATH, and never a program that is only typed: a key that completes
# must not start any program that lies in a folder.

function __tenure_complete
    # fish says that a command is missing, wherever its stderr goes.
    command -q tenure
    or return 0
    set -l before (commandline -opc)
    set -l typed (commandline -ct | string collect)
    set -l lines (command tenure completions fish -- $before "$typed" 2>/dev/null </dev/null)
    or return 0
    set -q lines[1]
    or return 0
    set -l kind (string split \t -- $lines[1])
    switch $kind[1]
        case words
            set -q lines[2]
            and printf '%s\n' $lines[2..-1]
        case files
            set -l path (string sub -s (math 1 + (string length -- "$kind[2]")) -- $typed)
            for file in (complete -C "tenure-files $path")
                printf '%s%s\n' $kind[2] $file
            end
        case folders
            set -l path (string sub -s (math 1 + (string length -- "$kind[2]")) -- $typed)
            for folder in (__fish_complete_directories "$path" folder)
                printf '%s%s\n' $kind[2] $folder
            end
        case 'command *'
            set -l begins (math 1 + (string replace 'command ' '' -- $kind[1]))
            complete -C (string join ' ' -- (string escape -- $before[$begins..-1]) $typed)
    end
    return 0
end

complete -c tenure -f -a '(__tenure_complete)'
