#!/usr/bin/env bash
# Runs shellcheck over every shell script of the tree, known by its name or its first line:
# shell.sh SHELLCHECK ROOT
set -euo pipefail
cd "$2"
shebang='^#!.*[/ ](ba)?sh$'
scripts=()
while read -r file; do
  first=
  IFS= read -r -n 64 first 2>/dev/null <"$file" || true
  if [[ $file =~ \.(sh|bash)$ || $first =~ $shebang ]]; then
    scripts+=("$file")
  fi
done < <(find . \( -name 'build*' -o -name .git \) -prune -o -type f -size -100k -print | sort)
[ ${#scripts[@]} -gt 5 ]
echo "${scripts[@]}"
exec "$1" "${scripts[@]}"
