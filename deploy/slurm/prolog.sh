#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Prolog, as root on each node of a job: starts a recorder for the job. It never fails and never waits: a prolog that fails drains the node.
# Settings: /etc/default/collwire-slurm (README.md). slurm.conf: Prolog=/usr/local/lib/collwire/slurm/prolog.sh, Epilog= likewise.
settings=${COLLWIRE_SETTINGS:-/etc/default/collwire-slurm}
COLLWIRE_DIR=/var/spool/collwire COLLWIRE_MAX=1GiB COLLWIRE_ALL_JOBS_MIB=4096 COLLWIRE_OPTIONS="" COLLWIRE_BIN="" COLLWIRE_CPU_NICE=10
# shellcheck source=/dev/null
[ ! -r "$settings" ] || . "$settings"
export PATH=${COLLWIRE_BIN:+$COLLWIRE_BIN:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin

say() {
    logger -t collwire-prolog -- "job ${SLURM_JOB_ID:-?}: $1" 2>/dev/null || true
    echo "collwire-prolog: job ${SLURM_JOB_ID:-?}: $1" >&2
}

case ${SLURM_JOB_ID:-} in
'' | *[!0-9]*)
    say "no SLURM_JOB_ID; nothing is recorded. Fix: run this as Slurm's Prolog"
    exit 0
    ;;
esac
job=$COLLWIRE_DIR/$SLURM_JOB_ID
umask 077
# A job's prolog runs once a node, and again when a node is requeued.
if [ -e "$job/pid" ]; then
    say "a recorder of this job is there already"
    exit 0
fi
if ! command -v collwire >/dev/null || ! mkdir -p "$job"; then
    say "collwire is not installed, or $job cannot be made; nothing is recorded"
    exit 0
fi
# The directories of earlier jobs on this node, the oldest first, until all together fit.
used=$(du -sm "$COLLWIRE_DIR" | cut -f1)
for old in $(find "$COLLWIRE_DIR" -mindepth 1 -maxdepth 1 -type d -name '[0-9]*' -printf '%T@ %f\n' | sort -n | cut -d' ' -f2); do
    [ "$used" -gt "$COLLWIRE_ALL_JOBS_MIB" ] || break
    [ ! -e "$COLLWIRE_DIR/$old/pid" ] && [ "$old" != "$SLURM_JOB_ID" ] || continue
    rm -rf -- "${COLLWIRE_DIR:?}/$old"
    used=$(du -sm "$COLLWIRE_DIR" | cut -f1)
done
# shellcheck disable=SC2086  # options are words
setsid nice -n "$COLLWIRE_CPU_NICE" collwire record -o "$job" --max "$COLLWIRE_MAX" $COLLWIRE_OPTIONS </dev/null >"$job/log" 2>&1 &
# The start time makes the number unique: the epilog ends no other process.
echo "$! $(sed 's/.*) //' "/proc/$!/stat" 2>/dev/null | cut -d' ' -f20)" >"$job/pid"
exit 0
