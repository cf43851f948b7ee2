#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs RECORDED_JOB (a program of this folder) under a recorder that gets RECORD_OPTIONS, after loading RECORDED_MODULES.
# SECOND_CAPTURE: the directory of a second recorder of the same job, with SECOND_OPTIONS.
# RECORDED_MAY_MISS_CALLS=1: on this kernel a probe may miss calls; the recorder's exit status for that is accepted.
set -eu
here=$(dirname "$(readlink -f "$0")")
# shellcheck disable=SC2086 # words
[ -z "${RECORDED_MODULES:-}" ] || modprobe -a $RECORDED_MODULES

# shellcheck disable=SC2206 # words
recorders=(collwire record -o "$OUT/capture" ${RECORD_OPTIONS:-} --)
# shellcheck disable=SC2206
[ -z "${SECOND_CAPTURE:-}" ] || recorders=(collwire record -o "$OUT/$SECOND_CAPTURE" ${SECOND_OPTIONS:-} -- "${recorders[@]}")
"${recorders[@]}" "$here/$RECORDED_JOB" || status=$?
if [ "${status:-0}" = 5 ] && [ "${RECORDED_MAY_MISS_CALLS:-0}" = 1 ]; then
	status=0 # the test checks the losses in the report
fi
exit "${status:-0}"
