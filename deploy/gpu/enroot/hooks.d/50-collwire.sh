#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Hook of enroot: the container's processes load the guest library. A job that has another tool there keeps it.
set -euo pipefail
library=/usr/local/lib/collwire/libcollwire_cupti.so
if [ -r "$library" ] && ! grep -q '^CUDA_INJECTION64_PATH=' "$ENROOT_ENVIRON"; then
    printf 'CUDA_INJECTION64_PATH=%s\n' "$library" >>"$ENROOT_ENVIRON"
fi
