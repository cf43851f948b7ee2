#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# installed_test.sh PACKAGE: on a bare machine (tools/bare-root DISTRIBUTION package): dpkg installs the .deb and nothing else, the service's command records
# while a job comes and goes, the report names the job's host, and purge leaves nothing.
set -euo pipefail
package=$1
say() { echo "installed: $*"; }
fail() {
    echo "installed: $*" >&2
    exit 1
}
# What is there, but for the data base of dpkg and what moves by itself.
tree() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /run -o -path /tmp -o -path /root -o -path /var/lib/dpkg -o -path /var/cache -o -path /var/log \) -prune -o -print | sort; }
# shellcheck source=/dev/null
. /etc/os-release
before=$(tree)
dpkg -i "$package"
[ "$(dpkg-query -W -f '${db:Status-Status}' collwire)" = installed ] || fail "not installed"
say "$PRETTY_NAME: $(collwire --version), $(ldd --version | head -n 1)"
collwire run -- env | grep -q '^CUDA_INJECTION64_PATH=/usr/lib/collwire/libcollwire_cupti.so$' || fail "the guest library is not found"
/usr/share/collwire/check-machine
collwire doctor || say "doctor: status $?"

unit=/usr/lib/systemd/system/collwire-record.service
state=/var/lib/collwire
mkdir -m 700 $state
capabilities=$(sed -n 's/^CapabilityBoundingSet=//p' $unit | tr 'A-Z' 'a-z' | sed 's/cap_/+/g; s/ /,/g')
read -ra words <<<"$(sed -n 's/^ExecStart=//p' $unit | sed 's/\${COLLWIRE_KEEP}/30m/; s/\${COLLWIRE_MAX}/2GiB/; s/ \$COLLWIRE_OPTIONS//')"
say "${words[*]}, with $capabilities"
collwire-trim $state 2048
setpriv --bounding-set="-all,$capabilities" --inh-caps=-all --no-new-privs "${words[@]}" 2>/tmp/said &
recorder=$!
for ((i = 0; i < 600; i++)); do
    ! grep -qx recording /tmp/said || break
    kill -0 $recorder || fail "the recorder ended: $(cat /tmp/said)"
    sleep 0.1
done
# A job: no NCCL is here.
sh -c 'i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); done'
kill -TERM $recorder
status=0
wait $recorder || status=$?
[ $status = 0 ] || [ $status = 5 ] || fail "the recorder ended with $status: $(cat /tmp/said)"
[ "$(stat -c %a $state/*.cwc)" = 600 ] || fail "rights of the capture"
status=0
collwire report $state >/tmp/report || status=$?
[ $status = 0 ] || [ $status = 5 ] || fail "report: $status"
grep -q "$(hostname)" /tmp/report || fail "the report does not name this host: $(cat /tmp/report)"
head -n 12 /tmp/report

dpkg --remove collwire
[ -n "$(ls $state)" ] || fail "remove deletes captures"
dpkg --purge collwire
left=$(diff <(echo "$before") <(tree) || true)
[ -z "$left" ] || fail "purge leaves: $left"
say "$PRETTY_NAME: installed, recorded, reported, purged; nothing is left"
