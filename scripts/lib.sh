# shellcheck shell=bash
# Shared by the scripts beside this; to be sourced.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# configure DIR OPTION...: a build directory with these options, made or brought up to date.
configure() {
  local dir=$1
  shift
  if [ -f "$dir/build.ninja" ]; then
    meson configure "$dir" "$@" >/dev/null
  else
    meson setup "$dir" "$root" "$@" >/dev/null
  fi
}

# build DIR: quiet unless something is wrong.
build() {
  ninja -C "$1" --quiet | { grep -v '^ninja: no work to do' || true; }
}
