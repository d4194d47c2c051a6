#!/bin/bash
# Written by ddptrain submit. Before the time limit the processes save and end with 75, and the script submits itself again; the job
# continues there.
#
#     flux batch @SCRIPT@
#flux: --job-name=@NAME@
#flux: --nodes=@NODES@
#flux: --nslots=@RANKS@
#flux: --time-limit=@SECONDS@s
#flux: --output=@NAME@-{{id}}.log
set -uo pipefail

export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# the program stops before this time, in seconds since 1970
export DDPTRAIN_END_TIME=$(($(date +%s) + @SECONDS@))
flux run --nodes=@NODES@ --ntasks=@RANKS@ --env=MASTER_ADDR="$(flux hostlist -n 0 local)" @COMMAND@
code=$?
if [ "$code" -eq 75 ]; then # stopped after saving
    echo "saved; back into the queue"
    flux --parent batch @SCRIPT@
fi
exit "$code"
