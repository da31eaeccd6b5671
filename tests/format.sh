#!/bin/sh
# All C sources as .clang-format has them: format.sh CLANG_FORMAT ROOT.
cd "$2" || exit 1
files=$(find include base sched text fs cuda client replay sim tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cc')
[ -n "$files" ] || exit 1
# shellcheck disable=SC2086 # no name has a space
exec "$1" --dry-run --Werror $files
