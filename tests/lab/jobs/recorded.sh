#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs RECORDED_JOB (a program of this folder) under a recorder that gets RECORD_OPTIONS, after loading RECORDED_MODULES.
set -eu
here=$(dirname "$(readlink -f "$0")")
# shellcheck disable=SC2086 # words
[ -z "${RECORDED_MODULES:-}" ] || modprobe -a $RECORDED_MODULES
# shellcheck disable=SC2086
collwire record -o "$OUT/capture" ${RECORD_OPTIONS:-} -- "$here/$RECORDED_JOB"
