#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bpf_compilers_test.sh DIRECTORY FLAG...: fails unless each clang that is installed compiles the BPF programs of DIRECTORY: what one
# inlines another does not.
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
        "$compiler" "$@" -c "$source" -o "$out/object" || {
            echo "$compiler: not $source" >&2
            exit 1
        }
    done
    echo "$("$compiler" --version | head -n 1): compiles all"
    n=$((n + 1))
done
[ $n -gt 1 ] || {
    echo "skip: no second clang. Fix: tools/install-deps test"
    exit 77
}
