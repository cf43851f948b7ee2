// SPDX-License-Identifier: Apache-2.0
// The texts of /proc that a process can shape itself (its name, command line, environment, cgroup),
// and those of sysfs.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "userspace/inventory/cgroup.h"
#include "userspace/inventory/command_line.h"
#include "userspace/inventory/netdevs.h"
#include "userspace/inventory/pci_functions.h"
#include "userspace/inventory/process.h"
#include "userspace/inventory/rdma_devices.h"

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char *>(data), size);
    const collwire::inventory::CgroupFacts job = collwire::inventory::parse_cgroups(text);
    if (job.slurm_job.size() > 23 || job.slurm_step.size() > 23 || job.pod_uid.size() > 36 ||
        job.container_id.size() > 64)
        std::abort(); // longer than the record's fields
    collwire::inventory::CgroupFacts mounted;
    add_from_mounts(text, mounted);
    if (mounted.pod_uid.size() > 36 || mounted.container_id.size() > 64)
        std::abort();
    const collwire::inventory::Program program = collwire::inventory::program_of(text);
    if (program.argv0.size() > size || program.script.size() > size)
        std::abort();
    (void)collwire::inventory::joined_command_line(text, 100);
    (void)collwire::inventory::slurm_environment(text);
    (void)collwire::inventory::parse_process_stat(text);
    (void)collwire::inventory::parse_process_status(text);
    (void)collwire::inventory::parse_cpu_list(text);
    (void)collwire::inventory::parse_rate_mbps(text);
    (void)collwire::inventory::parse_state(text);
    (void)collwire::inventory::parse_guid(text);
    std::uint8_t gid[16];
    (void)collwire::inventory::parse_gid(text, gid);
    (void)collwire::inventory::pci_address_or_empty(std::string(text));
    if (collwire::inventory::pci_path(text).size() > size)
        std::abort();
    return 0;
}
