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

# attended COMMAND ...: runs it and returns its status; a signal that ends this script, kill -9 too where the command is run without
# sudo, ends the command first.
attended() {
    trap 'end_attended 129' HUP
    trap 'end_attended 130' INT
    trap 'end_attended 143' TERM
    # Bash would start it with SIGINT ignored and no standard input.
    setpriv --pdeathsig TERM env --default-signal=INT,QUIT "$@" <&0 &
    attended_pid=$!
    local status=0
    wait "$attended_pid" || status=$?
    trap - HUP INT TERM
    return $status
}
end_attended() {
    trap '' HUP INT TERM
    # Only root may signal what sudo started.
    kill -TERM "$attended_pid" 2>/dev/null || sudo -n kill -TERM "$attended_pid" 2>/dev/null || true
    wait "$attended_pid" || true
    exit "$1"
}
