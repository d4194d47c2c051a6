#!/usr/bin/env bash
# Checks the subjects of commits: "area: imperative verb object", at most 72 characters.
#
#     scripts/check-commits.sh [REVISIONS]    default: all since the rule was made, up to HEAD
#
# A shallow clone or a tarball has nothing to check.
set -euo pipefail
cd "$(dirname "$0")/.."
first=1abf0a6 # the rule holds for what came after it
if [ $# -gt 0 ]; then
    range=$1
elif git cat-file -e "$first^{commit}" 2>/dev/null; then
    range=$first..HEAD
else
    echo "commit subjects: not checked, the history is not here"
    exit 0
fi
git log --no-merges --format='%h %s' "$range" | awk '
    { hash = $1; subject = substr($0, length($1) + 2); count++ }
    length(subject) > 72 { print hash ": the subject has " length(subject) " characters, more than 72: " subject; bad = 1 }
    subject !~ /^[A-Za-z0-9_.][A-Za-z0-9_.\/, -]*: [a-z]+ ?/ { print hash ": expected \"area: imperative verb object\": " subject; bad = 1 }
    subject ~ /: [a-z]+(ed|ing|s) / && subject !~ /: (embed|need|address|process|bypass|pass|compress|express|dismiss|guess|press|access|bias|focus|canvas|class|cross|discuss|string|bring|feed|seed|exceed|proceed|speed) / { print hash ": not an imperative: " subject; bad = 1 }
    END { if (!bad) print count " commit subjects checked"; exit bad }'
