#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# self_contained_test.sh BINARY: fails unless BINARY needs nothing but glibc, and none newer than OLDEST, so that it can be copied to a node as it is.
oldest=2.34 # RHEL 9; Ubuntu 22.04 has 2.35
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
# Versions of symbols, and requirements of the loader such as GLIBC_ABI_DT_RELR.
symbols=$(LC_ALL=C readelf -W --dyn-syms --version-info "$1" | grep -oE '([A-Za-z0-9_]+@+)?GLIBC_[A-Za-z0-9._]+' | sort -u)
[ -n "$symbols" ] || {
    echo "$1: no symbol versions; is it the collwire binary?" >&2
    exit 1
}
newer=$(while read -r symbol; do
    version=${symbol##*GLIBC_}
    [ "$(printf '%s\n' "$version" "$oldest" | sort -V | tail -n 1)" = "$oldest" ] || echo "$symbol"
done <<<"$symbols")
[ -z "$newer" ] || {
    echo "$1 does not start on glibc $oldest:" $newer "is newer. Fix: base/older_glibc.c" >&2
    exit 1
}
echo "$1 starts on glibc $oldest and later"
