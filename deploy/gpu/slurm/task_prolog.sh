#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's TaskProlog: what it prints as "export NAME=VALUE" is in the environment of the task. A job that has another tool there keeps it.
library=/usr/local/lib/collwire/libcollwire_cupti.so
if [ -z "${CUDA_INJECTION64_PATH:-}" ] && [ -r "$library" ]; then
    echo "export CUDA_INJECTION64_PATH=$library"
fi
