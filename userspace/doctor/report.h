// SPDX-License-Identifier: Apache-2.0
// The results of `collwire doctor`: one per check, and their meaning for each source of records.
// docs/doctor.md describes them; doctor_schema_version grows when a field changes meaning.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "userspace/doctor/codes.h"
#include "userspace/inventory/rdma_devices.h"
#include "userspace/netlink/attributes.h"

namespace collwire::doctor {

inline constexpr int doctor_schema_version = 1;

enum class CheckState {
    Ok,
    Limited, // works, with something missing or not tried
    Missing,
};

struct Check {
    std::string name;
    CheckState state = CheckState::Ok;
    std::string found;       // on this machine
    std::string effect;      // on traces; empty if ok
    std::string fix;         // the command, or what to ask for; empty if ok or nothing helps
    bool permission = false; // not ok because of a privilege
    Code code = Code::Ok;    // of the finding
};

// A source of records and whether it can work here.
struct SourceOutlook {
    std::string name;
    std::string what; // it records, for people
    CheckState state = CheckState::Ok;
    std::vector<std::string> because; // names of the checks that are in the way
};

struct OptionalCounters {
    std::string device;
    std::uint32_t port = 0;
    std::vector<netlink::OptionalCounter> counters;
};

struct DoctorReport {
    std::string host;
    std::string kernel;
    std::vector<Check> checks;
    std::vector<SourceOutlook> sources;
    std::vector<inventory::RdmaDevice> devices;
    std::vector<OptionalCounters> optional_counters;
    std::vector<std::string> unknown_modules; // foreign, and no BTF describes them
    int exit_status = 0;
};

std::string_view state_name(CheckState state);
const Check *find_check(const DoctorReport &report, std::string_view name);

// Every check, at most about 100 columns, colour if asked.
std::string render_text(const DoctorReport &report, bool colour);
// One screen: what can be recorded, what not, and the changes, the cheapest first.
std::string render_screen(const DoctorReport &report, bool colour);
// One JSON document, schema in docs/doctor.md.
std::string render_json(const DoctorReport &report, std::string_view tool_version);

} // namespace collwire::doctor
