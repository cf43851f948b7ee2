// SPDX-License-Identifier: Apache-2.0
#include "userspace/verbs/ops_layout.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

namespace collwire::verbs {
namespace {

struct SlotHistory {
    std::string_view name;
    int since;     // first release that has it, 17 or later
    int until = 0; // first release without it, 0: still there
};

// clang-format off
constexpr SlotHistory SLOTS[] = {
    {"advise_mr", 22}, {"alloc_buf", 64}, {"alloc_dm", 18}, {"alloc_dmah", 59}, {"alloc_mw", 17},
    {"alloc_null_mr", 20}, {"alloc_parent_domain", 17}, {"alloc_pd", 17}, {"alloc_td", 17},
    {"async_event", 17}, {"attach_counters_point_flow", 19}, {"attach_mcast", 17}, {"bind_mw", 17},
    {"close_xrcd", 17}, {"cq_event", 17}, {"create_ah", 17}, {"create_comp_cntr", 65},
    {"create_counters", 19}, {"create_cq", 17}, {"create_cq_ex", 17}, {"create_flow", 17},
    {"create_flow_action_esp", 18}, {"create_qp", 17}, {"create_qp_ex", 17},
    {"create_rwq_ind_table", 17}, {"create_srq", 17}, {"create_srq_ex", 17}, {"create_wq", 17},
    {"dealloc_dmah", 59}, {"dealloc_mw", 17}, {"dealloc_pd", 17}, {"dealloc_td", 17},
    {"dereg_mr", 17}, {"destroy_ah", 17}, {"destroy_comp_cntr", 65}, {"destroy_counters", 19},
    {"destroy_cq", 17}, {"destroy_flow", 17}, {"destroy_flow_action", 18}, {"destroy_qp", 17},
    {"destroy_rwq_ind_table", 17}, {"destroy_srq", 17}, {"destroy_wq", 17}, {"detach_mcast", 17},
    {"dm_export_dmabuf_fd", 62}, {"free_buf", 64}, {"free_context", 28}, {"free_dm", 18},
    {"get_srq_num", 17}, {"import_dm", 35}, {"import_mr", 31}, {"import_pd", 31},
    {"inc_comp_cntr", 65}, {"inc_err_comp_cntr", 65}, {"modify_cq", 17},
    {"modify_flow_action_esp", 18}, {"modify_qp", 17}, {"modify_qp_rate_limit", 18},
    {"modify_srq", 17}, {"modify_wq", 17}, {"open_qp", 17}, {"open_xrcd", 17}, {"poll_cq", 17},
    {"post_recv", 17}, {"post_send", 17}, {"post_srq_ops", 17}, {"post_srq_recv", 17},
    {"qp_attach_comp_cntr", 65}, {"query_comp_cntr_caps", 65}, {"query_device", 17, 33},
    {"query_device_ex", 17}, {"query_ece", 31}, {"query_port", 17}, {"query_port_speed", 62},
    {"query_qp", 17}, {"query_qp_data_in_order", 36}, {"query_rt_values", 17}, {"query_srq", 17},
    {"read_comp_cntr", 65}, {"read_counters", 19}, {"read_err_comp_cntr", 65}, {"reg_dm_mr", 18},
    {"reg_dmabuf_mr", 34}, {"reg_mr", 17}, {"reg_mr_ex", 59}, {"req_notify_cq", 17},
    {"rereg_mr", 17}, {"resize_cq", 17}, {"set_comp_cntr", 65}, {"set_ece", 31},
    {"set_err_comp_cntr", 65}, {"unimport_dm", 35}, {"unimport_mr", 31}, {"unimport_pd", 31},
};
// clang-format on

// Releases in which the order changed.
constexpr std::array RELEASES = {17, 18, 19, 20, 22, 28, 31, 33, 34, 35, 36, 59, 62, 64, 65};

// Private ABIs that outlived their release; before 34 each release had its own
// (IBVERBS_PABI_VERSION in rdma-core's CMakeLists.txt).
struct PrivateAbi {
    int number;
    int last_release;
};
constexpr PrivateAbi LASTING_ABIS[] = {{34, 56}, {57, 58}, {59, 63}};

std::vector<OpsLayout> make_layouts() {
    std::vector<OpsLayout> layouts;
    for (std::size_t i = 0; i < RELEASES.size(); ++i) {
        const int release = RELEASES[i];
        OpsLayout layout;
        layout.first_release = release;
        layout.last_release =
            i + 1 == RELEASES.size() ? std::numeric_limits<int>::max() : RELEASES[i + 1] - 1;
        layout.releases = i + 1 == RELEASES.size() ? fmt::format("{} and later", release)
                          : RELEASES[i + 1] == release + 1
                              ? fmt::format("{}", release)
                              : fmt::format("{} - {}", release, RELEASES[i + 1] - 1);
        for (const SlotHistory &slot : SLOTS) {
            if (slot.since <= release && (slot.until == 0 || release < slot.until)) {
                layout.slots.push_back(slot.name);
            }
        }
        layouts.push_back(std::move(layout));
    }
    return layouts;
}

} // namespace

std::optional<std::size_t> OpsLayout::index(std::string_view slot) const {
    const auto found = std::ranges::lower_bound(slots, slot);
    if (found == slots.end() || *found != slot) {
        return std::nullopt;
    }
    return static_cast<std::size_t>(found - slots.begin());
}

bool OpsLayout::possible_in(unsigned private_abi) const {
    const int number = static_cast<int>(std::min(private_abi, 1u << 30));
    if (number < RELEASES.front() || number > RELEASES.back()) {
        return true;
    }
    int last = number;
    for (const PrivateAbi &abi : LASTING_ABIS) {
        if (number >= abi.number && number <= abi.last_release) {
            last = abi.last_release;
        }
    }
    return first_release <= last && number <= last_release;
}

const std::vector<OpsLayout> &ops_layouts() {
    static const std::vector<OpsLayout> layouts = make_layouts();
    return layouts;
}

} // namespace collwire::verbs
