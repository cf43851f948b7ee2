// SPDX-License-Identifier: Apache-2.0
// Checks a machine: what can be traced here, what cannot, why, and how to fix it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "userspace/doctor/report.h"
#include "userspace/doctor/trials.h"
#include "userspace/nvidia/nvlink_look.h"
#include "userspace/process/guest_library.h"

namespace collwire::doctor {

// What a recording of one NCCL library would have.
struct NcclLook {
    enum class Outcome { Exact, Inferred, Unknown, Unreadable };
    Outcome outcome = Outcome::Exact;
    std::string text; // "2.28.9, operations exact"
};

struct DoctorOptions {
    std::string root; // before every path; empty: the machine itself
    Trials trials = machine_trials();
    std::function<std::vector<std::string>()> guest_libraries = process::installed_guest_libraries;
    std::function<nvidia::NvlinkLook()> nvlink = [] { return nvidia::look_at_nvlink(); };
    std::function<inventory::NetlinkFacts()> netlink = inventory::read_netlink_facts;
    // Reads the library at this path; without it the libraries in use are not checked.
    std::function<NcclLook(const std::string &)> nccl_library;
    // (device index, port)
    std::function<Result<std::vector<netlink::OptionalCounter>>(std::uint32_t, std::uint32_t)>
        optional_counters;
};

// Needs no privilege; a check without permission says so. Changes nothing.
DoctorReport run_doctor(DoctorOptions options);

} // namespace collwire::doctor
