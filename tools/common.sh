# SPDX-License-Identifier: Apache-2.0
# Sourced by the scripts of this directory: where the project is, progress lines, building, becoming root.
# shellcheck shell=bash

root_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script_name=$(basename "$0")

# say TEXT: a progress line with the seconds since the script began.
say() {
    printf '[%4d s] %s\n' "$SECONDS" "$1"
}

# fail TEXT [STATUS]: one line: what, where, what to do.
fail() {
    echo "$script_name: $1" >&2
    exit "${2:-1}"
}

# build PRESET [TARGET ...]: configures and builds; the log is shown where it fails.
build() {
    local preset=$1 log
    shift
    log=$root_dir/build/$preset.log
    mkdir -p "$root_dir/build"
    say "building $preset (log: build/$preset.log)"
    if ! (cd "$root_dir" && cmake --preset "$preset" &&
        cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}) >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        fail "the $preset build failed; the whole log is build/$preset.log"
    fi
    # What the configure step found missing belongs in sight, not only in the log.
    grep -E '^-- .*\(fix: ' "$log" || true
}

# Sets as_root (for the script that sourced this file) to what runs a command as root: nothing, or sudo.
# shellcheck disable=SC2034
become_root() {
    as_root=()
    [ "$(id -u)" = 0 ] && return
    command -v sudo >/dev/null || fail "$1 needs root, and there is no sudo. Fix: run it as root" 3
    as_root=(sudo)
}
