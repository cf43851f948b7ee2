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

# progress TEXT: passes standard input on to nothing, and prints a line every 5 s: TEXT with the last "[N/M]" that came.
progress() {
    local text=$1 line="" step="" last=$SECONDS status
    while true; do
        status=0
        IFS= read -r -t 2 line || status=$?
        if [ $status = 0 ] && [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]]; then
            step=": step ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]}"
        elif [ $status -gt 0 ] && [ $status -le 128 ]; then
            break
        fi
        if [ $((SECONDS - last)) -ge 5 ]; then
            say "  $text$step"
            last=$SECONDS
        fi
    done
}

# build PRESET [TARGET ...]: configures and builds; prints how far it is, and the log where it fails.
build() {
    local preset=$1 log began=$SECONDS
    shift
    log=$root_dir/build/$preset.log
    mkdir -p "$root_dir/build"
    say "building $preset (log: build/$preset.log)"
    if ! (cd "$root_dir" && forget_other_generator "$preset" && cmake --preset "$preset" &&
        cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}) 2>&1 | tee "$log" | progress "building $preset"; then
        tail -n 60 "$log" >&2
        fail "the $preset build failed; the whole log is build/$preset.log"
    fi
    # What the configure step found missing belongs in sight, not only in the log.
    grep -E '^-- .*\(fix: ' "$log" || true
    note_step "build $preset" "$began"
}

# forget_other_generator PRESET: cmake refuses a build folder that another generator made.
forget_other_generator() {
    local cache=$root_dir/build/$1/CMakeCache.txt
    if [ -f "$cache" ] && ! grep -q '^CMAKE_GENERATOR:INTERNAL=Ninja$' "$cache"; then
        rm -rf "$cache" "$root_dir/build/$1/CMakeFiles"
    fi
}

# note_step NAME BEGAN: a line of seconds for the closing table of tools/test, which sets steps_file.
note_step() {
    [ -z "${steps_file:-}" ] || echo "$((SECONDS - $2)) $1" >>"$steps_file"
}

# with_signs_of_life TEXT COMMAND ...: prints TEXT every 8 s while a silent command runs; returns its status.
with_signs_of_life() {
    local text=$1 status=0 began=$SECONDS signs
    shift
    setpriv --pdeathsig TERM bash -c 'while sleep 8; do printf "[%4d s]   %s\n" $((SECONDS + $2)) "$1"; done' - "$text" "$SECONDS" >&2 &
    signs=$!
    "$@" || status=$?
    kill "$signs" 2>/dev/null || true
    wait "$signs" 2>/dev/null || true
    return $status
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
