// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/node.h"

#include <string>
#include <thread>

#include <fcntl.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/set_text.h"
#include "collwire/record.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/files.h"

namespace collwire::inventory {
namespace {

constexpr int clock_attempts = 5;
// PROC_UTS_INIT_INO, 0xEFFFFFFE (include/linux/proc_ns.h, since Linux 3.8).
constexpr std::string_view machines_uts = "uts:[4026531838]";

std::string own_hostname() {
    utsname name{};
    return uname(&name) == 0 ? name.nodename : "";
}

// A container that has the host's pids may still have a name of its own: then the machine's, which
// collwire on the host gives. Another thread enters its namespace, since that changes uname() for
// the thread alone. Process 2, a kernel thread, is there where 1 may not be read.
std::string machines_hostname(const std::string &root) {
    std::string name = own_hostname();
    if (read_link(root + "/proc/self/ns/uts") == machines_uts)
        return name;
    for (const char *process : {"/proc/1", "/proc/2"}) {
        const std::string link = root + process + "/ns/uts";
        if (read_link(link) != machines_uts)
            continue;
        const int space = open(link.c_str(), O_RDONLY | O_CLOEXEC);
        if (space < 0)
            continue;
        std::thread([&name, space] {
            if (setns(space, CLONE_NEWUTS) == 0)
                name = own_hostname();
        }).join();
        close(space);
        break;
    }
    return name;
}

} // namespace

cw_clock read_clock() {
    cw_clock best{};
    best.uncertainty_ns = UINT64_MAX;
    for (int attempt = 0; attempt < clock_attempts; ++attempt) {
        const std::uint64_t before = monotonic_ns();
        const std::uint64_t realtime = clock_ns(CLOCK_REALTIME);
        const std::uint64_t boottime = clock_ns(CLOCK_BOOTTIME);
        const std::uint64_t after = monotonic_ns();
        if (after - before >= best.uncertainty_ns)
            continue;
        best.realtime_ns = realtime;
        best.boottime_ns = boottime;
        best.uncertainty_ns = after - before;
        best.header.time_ns = before + (after - before) / 2;
    }
    best.header.length_bytes = sizeof(best);
    best.header.kind = CW_KIND_CLOCK;
    best.header.cpu = CW_CPU_USERSPACE;
    return best;
}

cw_node read_node(const std::string &root) {
    cw_node node{};
    const cw_clock clock = read_clock();
    node.header = {sizeof(node), CW_KIND_NODE, CW_CPU_USERSPACE, clock.header.time_ns};
    node.realtime_ns = clock.realtime_ns;
    node.boottime_ns = clock.boottime_ns;
    node.recorder_pid = static_cast<std::uint32_t>(getpid());
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    node.n_cpus = cpus > 0 ? static_cast<std::uint32_t>(cpus) : 0;
    utsname name{};
    if (uname(&name) == 0)
        set_text(node.kernel_release, name.release);
    set_text(node.hostname, machines_hostname(root));
    set_text(node.boot_id, read_line(root + "/proc/sys/kernel/random/boot_id").value_or(""));
    set_text(node.machine_id, read_line(root + "/etc/machine-id").value_or(""));
    return node;
}

} // namespace collwire::inventory
