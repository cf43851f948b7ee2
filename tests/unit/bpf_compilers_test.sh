#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bpf_compilers_test.sh DIRECTORY FLAG...: fails unless each clang that is installed compiles the BPF programs of DIRECTORY, with stacks
# that the kernel accepts: what one inlines another does not.
set -euo pipefail
directory=$1
shift
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
n=0
for version in {14..30}; do
    compiler=clang-$version
    command -v "$compiler" >/dev/null || continue
    for source in "$directory"/*.bpf.c; do
        "$compiler" "$@" -c "$source" -o "$out/$(basename "$source" .c).o" || {
            echo "$compiler: not $source" >&2
            exit 1
        }
    done
    echo "$("$compiler" --version | head -n 1): compiles all"
    python3 "$(dirname "$0")/bpf_stack_test.py" "$out"
    n=$((n + 1))
done
[ $n -gt 1 ] || {
    echo "skip: no second clang. Fix: tools/install-deps test"
    exit 77
}
