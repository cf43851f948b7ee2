#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Epilog, as root on each node of a job: ends the recorder that the prolog started, and moves its captures to COLLWIRE_SHARED/JOB, if that is set.
# It never fails, and waits COLLWIRE_WAIT_S seconds at most for the recorder.
settings=${COLLWIRE_SETTINGS:-/etc/default/collwire-slurm}
COLLWIRE_DIR=/var/spool/collwire COLLWIRE_SHARED="" COLLWIRE_WAIT_S=20
# shellcheck source=/dev/null
[ ! -r "$settings" ] || . "$settings"
export PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin

say() {
    logger -t collwire-epilog -- "job ${SLURM_JOB_ID:-?}: $1" 2>/dev/null || true
    echo "collwire-epilog: job ${SLURM_JOB_ID:-?}: $1" >&2
}

# The process of the pid file, if it is still the same one and runs.
runs() {
    [ -n "$pid" ] && [ -n "$start" ] && [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f20)" = "$start" ] &&
        [ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d' ' -f1)" != Z ]
}

case ${SLURM_JOB_ID:-} in
'' | *[!0-9]*)
    say "no SLURM_JOB_ID. Fix: run this as Slurm's Epilog"
    exit 0
    ;;
esac
job=$COLLWIRE_DIR/$SLURM_JOB_ID
if [ ! -r "$job/pid" ]; then
    say "no recorder of this job"
    exit 0
fi
read -r pid start <"$job/pid"
if runs; then
    kill -TERM "$pid"
    waited=0
    while runs && [ "$waited" -lt "$COLLWIRE_WAIT_S" ]; do
        sleep 1
        waited=$((waited + 1))
    done
    if runs; then
        say "the recorder did not end within $COLLWIRE_WAIT_S s and is killed; its capture lacks the last second"
        kill -KILL "$pid"
    fi
else
    say "the recorder had ended before the job: $(tail -n 1 "$job/log" 2>/dev/null)"
fi
rm -f "$job/pid"
if [ -n "$COLLWIRE_SHARED" ]; then
    if mkdir -p "$COLLWIRE_SHARED/$SLURM_JOB_ID" && cp "$job"/*.cwc "$COLLWIRE_SHARED/$SLURM_JOB_ID/"; then
        # The captures are the job's own user's to read, if Slurm names one.
        [ -z "${SLURM_JOB_UID:-}" ] || chown -R "$SLURM_JOB_UID" "$COLLWIRE_SHARED/$SLURM_JOB_ID" || true
        rm -rf -- "$job"
    else
        say "captures stay in $job: they could not be copied to $COLLWIRE_SHARED"
    fi
fi
exit 0
