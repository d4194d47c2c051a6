# Completion of ddptrain for fish; written by: ddptrain --completion fish
function __ddptrain_keys
@KEYS@
end
@COMMANDS@
@INFORMATION@
@OPTIONS@
complete -c ddptrain -n 'test -n "$(commandline -ct)"; and not __fish_use_subcommand' -a '(__ddptrain_keys)'
