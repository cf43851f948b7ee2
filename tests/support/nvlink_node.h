// SPDX-License-Identifier: Apache-2.0
// Records of NVLink in a capture.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "collwire/nvlink_records.h"
#include "tests/support/node_builder.h"

namespace collwire::test {

inline void nvlink_gpu(NodeBuilder &node, std::uint32_t gpu, std::uint64_t bus_id,
                       std::uint32_t links = 2) {
    auto record = make_record<cw_nvlink_gpu>(CW_KIND_NVLINK_GPU, seconds(10));
    record.gpu = gpu;
    record.epoch = 1;
    record.bus_id = bus_id;
    record.links = links;
    set_text(record.uuid, "GPU-1");
    set_text(record.name, "H100");
    node.add(record);
}

inline void nvlink_sample(NodeBuilder &node, double time, std::uint32_t gpu,
                          const std::vector<cw_nvlink_value> &values) {
    struct {
        cw_nvlink_sample head{};
        cw_nvlink_value values[64]{};
    } record;
    ASSERT_LE(values.size(), 64U);
    record.head.header = {static_cast<__u32>(sizeof record.head + values.size() * sizeof values[0]),
                          CW_KIND_NVLINK_SAMPLE, CW_CPU_USERSPACE, seconds(time)};
    record.head.read_begin_ns = seconds(time) - 100'000;
    record.head.gpu = gpu;
    record.head.epoch = 1;
    record.head.n = static_cast<__u32>(values.size());
    std::copy(values.begin(), values.end(), record.values);
    node.add_header(record.head.header);
}

inline cw_xid xid_record(double time, std::uint64_t sequence, std::uint64_t bus_id,
                         std::uint32_t xid, std::int32_t link = -1,
                         std::uint32_t flags = CW_XID_FATAL) {
    auto record = make_record<cw_xid>(CW_KIND_XID, seconds(time));
    record.after_ns = seconds(time) - 50'000'000;
    record.kernel_ns = seconds(time);
    record.sequence = sequence;
    record.bus_id = bus_id;
    record.xid = xid;
    record.link = link;
    record.flags = flags;
    if (xid == 149)
        set_text(record.unit, "NETIR_LINK_EVT");
    set_text(record.text, "Xid");
    return record;
}

} // namespace collwire::test
