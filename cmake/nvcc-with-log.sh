#!/bin/sh
# Runs nvcc with its messages in LOG, from which tests/proof/gpu-kernels.py reads the registers of kernels, and prints them if it fails.
#
#     cmake/nvcc-with-log.sh LOG COMMAND ...
log=$1
shift
"$@" 2>"$log" && exit 0
code=$?
cat "$log" >&2
exit "$code"
