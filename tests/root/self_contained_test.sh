#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# self_contained_test.sh BINARY: fails unless BINARY needs nothing but glibc, so that it can be copied to a node as it is.
set -euo pipefail
dynamic=$(LC_ALL=C readelf -d "$1")
needed=$(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic")
echo "$1 needs:" $needed
[ -n "$needed" ] || {
    echo "$1: no dynamic section that names libc; is it the collwire binary?" >&2
    exit 1
}
foreign=$(grep -vxE 'ld-linux-x86-64\.so\.2|lib(c|m|dl|rt|pthread)\.so\.[0-9]+' <<<"$needed" || true)
[ -z "$foreign" ] || {
    echo "$1 needs" $foreign "which a node may not have. Fix: link it statically (cmake/Dependencies.cmake)" >&2
    exit 1
}
! grep -E '\((RPATH|RUNPATH)\)' <<<"$dynamic" || {
    echo "$1 looks for libraries where it was built (above)" >&2
    exit 1
}
