// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/help.h"

#include "correlate/capture/kinds.h"

namespace collwire::cli {
namespace {

constexpr std::size_t FOOTER_COLUMNS = 96;

} // namespace

const std::string_view HELP_COLLWIRE =
    R"(Examples:
  sudo collwire doctor                                         what can this node trace?
  sudo collwire record -o captures --duration 60s              on each node
  collwire report captures/                                    on any machine, for all nodes
  sudo collwire inspect --all                                  what does a hung job wait for?

record and inspect need root. doctor sees more as root. The other verbs need no privilege.

Exit status: 0 done, 1 failed, 2 usage, 3 not permitted, 4 unsupported, 5 done, but records were
lost. `collwire VERB --help` lists those of each verb.)";

const std::string_view HELP_DOCTOR =
    R"(Needs no privilege. As root it also tries the BPF features of this kernel. It changes nothing.

Examples:
  sudo collwire doctor
  collwire doctor --nccl /proc/PID/root/usr/lib/x86_64-linux-gnu/libnccl.so.2     of a container
  collwire doctor --nccl FILE --symbols FILE.debug --export-plan layouts/         for a stripped NCCL

Exit status: 0 everything works, 1 output cannot be written, 2 usage, 3 not permitted, 4 unsupported
or no RDMA device. With --nccl: 0 layout found, 1 no NCCL in the file, not readable or layout not
saved, 2 usage, 3 not permitted to read the file, 4 not x86-64.)";

const std::string_view HELP_RECORD =
    R"(Needs root and the machine's own pid namespace. --counters-only needs neither.

Examples:
  sudo collwire record -o captures --duration 60s              until Ctrl-C without --duration
  sudo collwire record -o captures -- ./train.sh               until the command exits
  sudo collwire record --dry-run                               which probes, at what cost
  sudo collwire record -o captures --gpu --duration 60s        GPU kernels, too, of jobs that were
      started with collwire run
  sudo collwire record -o captures --gpu --inject 4711,4712    of jobs that run without it, too:
      loads libcollwire_cupti.so into these processes. docs/inject.md
  sudo collwire record -o captures --container 0123456789ab    the processes of one container
  sudo collwire record -o /var/lib/collwire --keep 30m --max 2GiB
      A service: keeps the last half hour. After a restart the files of the earlier run stay until
      you delete them. docs/record.md has a systemd unit.

Attaches to running jobs; they need no restart. Bytes are counted from the line `recording` on.

Exit status: 0 done, 1 failed, 2 usage, or a command that cannot be executed, 3 not permitted,
4 unsupported: no BTF or no RDMA device, 5 done, but records were lost. With a command: the greater
of its exit status and the recorder's.)";

const std::string_view HELP_RUN =
    R"(Needs no privilege. Sets CUDA_INJECTION64_PATH to libcollwire_cupti.so and becomes the command. CUDA
loads the library into the command and its children. It stays dormant until a recorder arms it
(record --gpu), so a job may always be started so. docs/sources/gpu.md

With --nccl-profiler also NCCL_PROFILER_PLUGIN: where another tool has CUPTI, NCCL's profiler gives
the times of NCCL's kernels. Experimental: NCCL miscounts the marks of some kernels, and a
communicator that was traced may then not end. cupti/README.md

Example:
  srun collwire run -- python train.py

Exit status: the command's; 1 the library is not installed, 2 no command, one that cannot be
executed, or another tool's library is in its place.)";

const std::string_view HELP_TOPOLOGY =
    R"(Needs no privilege. docs/topology.md describes the file.

Examples:
  collwire topology import ibnetdiscover.txt -o fabric.json
  collwire topology check fabric.json
  collwire report --topology fabric.json captures/

Exit status: 0 done (with warnings, too), 1 a file cannot be used or written, 2 usage,
3 not permitted.)";

const std::string_view HELP_TOPOLOGY_CHECK =
    R"(Needs no privilege. Errors and warnings go to standard error.

Example:
  collwire topology check fabric.json

Exit status: 0 usable (with warnings, too), 1 not usable, 2 usage, 3 not permitted.)";

const std::string_view HELP_TOPOLOGY_SHOW =
    R"(Needs no privilege.

Example:
  collwire topology show fabric.json --host gpu-017

Exit status: 0 done, 1 the file cannot be used or has no such host, 2 usage, 3 not permitted.)";

const std::string_view HELP_TOPOLOGY_IMPORT =
    R"(Needs no privilege.

Examples:
  sudo ibnetdiscover > fabric.txt; collwire topology import fabric.txt -o fabric.json
  sudo lldpctl -f json0 > /shared/$(hostname -s).lldp          on each host, then, in /shared:
  collwire topology import $(for f in *.lldp; do echo --host ${f%.lldp} $f; done) -o fabric.json
      lldpctl shows leaf switches only: add `uplinks`, as docs/topology.md shows.

Exit status: 0 done (with warnings, too), 1 an input cannot be used or the output not written,
2 usage, 3 not permitted.)";

const std::string_view HELP_REPORT =
    R"(Needs no privilege beyond reading the captures (they are root's, mode 0600).

Examples:
  collwire report captures/                                    captures of one or all nodes
  collwire report captures/ --topology fabric.json             bytes by switch tier
  collwire report captures/ --json report.json --detail
  collwire report captures/ --sqlite report.sqlite             tables for SQL
  collwire report captures/ --job 4711 --from 03:10 --to 03:15  local time; 03:10Z is UTC
  collwire report captures/ --every 10s                        when did it become slow, and where
  collwire report captures/ --find 'WorkNCCL(SeqNum=...)'      a line of PyTorch's watchdog
  collwire report today/ --against yesterday/                  what is different, causes first

Exit status: 0 done, 1 an input could not be used (the others were) or the output not written,
2 usage, 5 done, but a recorder lost records: some totals are too low.)";

const std::string_view HELP_INSPECT =
    R"(Only reads: nothing is attached, stopped or written, and the job goes on. Needs root (or the right
to ptrace the process). Needs NCCL 2.21 or later. NCCL state in GPU memory cannot be read: with
GDRCopy a wait may be `unknown`.

Examples:
  sudo collwire inspect PID
  sudo collwire inspect --all
  sudo collwire inspect --container 0123456789ab               or --pod UID, or --job JOB
On all nodes of a hung job, then on one of them:
  srun --jobid=JOB --overlap -N NODES --ntasks-per-node=1 \
      sh -c 'sudo -n collwire inspect --all --json > /shared/hang.$(hostname).json'
  collwire diagnose /shared/hang.*.json

Exit status: 0 done, 1 a process given by PID could not be read, 2 usage.)";

const std::string_view HELP_DIAGNOSE =
    R"(Needs no privilege. Collect one file on each node within a minute, as root:
  srun --jobid=JOB --overlap -N NODES --ntasks-per-node=1 \
      sh -c 'sudo -n collwire inspect --all --json > /shared/hang.$(hostname).json'
Without Slurm:
  pdsh -f 128 -w HOSTS 'sudo -n collwire inspect --all --json > /shared/hang.$(hostname).json'

Examples:
  collwire diagnose /shared/hang.*.json
  collwire diagnose /shared/captures    the job is gone: from its captures (docs/diagnose.md)
  collwire diagnose /shared/captures --job 4711 --last 15m

Causes, from inspections:
  HOST         the process is stopped, in D state or throttled, or its proxy thread does not run
  APPLICATION  the rank has not launched the operation that others wait for; or its kernel has all
               its data and never completes
  GPU          the kernel does not go on, though the network has delivered what it needs
  NETWORK      sent data is not acknowledged, or NET/IB clear-to-send does not arrive
  MISMATCH     two ranks run different operations or sizes in the same place
  MISSING      no file covers a rank that others wait for: it exited, or its node was left out
  ERROR        NCCL reported an error or the communicator was aborted
  UNKNOWN      all ranks wait for each other, or the reason could not be read

Exit status: 0 done, 1 a file could not be used (the others were), 2 usage, 3 not permitted.)";

std::string help_dump() {
    std::string kinds = "Kinds:";
    for (const auto &kind : capture::kind_names())
        kinds += ' ' + std::string(kind.name);
    return R"(Needs no privilege beyond reading the captures (they are root's, mode 0600).
docs/capture-format.md describes every record.

Examples:
  collwire dump captures/ | less
  collwire dump captures/ --kind qp_create | jq .key.qpn

)" + wrapped(kinds, FOOTER_COLUMNS) +
           R"(

Exit status: 0 done, 1 an input could not be read (the others were), 2 usage, 3 not permitted,
5 a capture is cut short: the records before the cut were printed.)";
}

std::string wrapped(std::string_view text, std::size_t columns) {
    std::string result;
    std::size_t line = 0;
    while (!text.empty()) {
        const std::size_t end = text.find_first_of(" \n");
        const std::string_view word = text.substr(0, end);
        if (line != 0 && line + 1 + word.size() > columns) {
            result += '\n';
            line = 0;
        } else if (line != 0) {
            result += ' ';
            line++;
        }
        result += word;
        line += word.size();
        if (end == std::string_view::npos)
            break;
        if (text[end] == '\n') {
            result += '\n';
            line = 0;
        }
        text.remove_prefix(end + 1);
    }
    return result;
}

} // namespace collwire::cli
