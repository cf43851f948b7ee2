#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs RECORDED_JOB (a program of this folder) under a recorder that gets RECORD_OPTIONS.
set -eu
here=$(dirname "$(readlink -f "$0")")
# The programs of source mlx5 load and attach without the hardware.
modprobe mlx5_ib
# shellcheck disable=SC2086 # options are words
collwire record -o "$OUT/capture" ${RECORD_OPTIONS:-} -- "$here/$RECORDED_JOB"
