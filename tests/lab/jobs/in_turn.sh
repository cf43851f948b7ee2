#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the jobs of IN_TURN (programs of this folder, separated by spaces) one after the other: the first in $OUT, each later one in $OUT/NAME, NAME
# without its suffix. Node 0 announces NAME before it starts: all nodes have then ended the traffic of the job before.
set -eu
here=$(dirname "$(readlink -f "$0")")
top=$OUT
first=1
for job in $IN_TURN; do
	name=${job%.*}
	if [ $first = 0 ]; then
		export OUT=$top/$name
		mkdir "$OUT"
		[ "$NODE" != 0 ] || echo "EVENT $name" > "$LAB_CHANNEL"
	fi
	first=0
	"$here/$job"
done
