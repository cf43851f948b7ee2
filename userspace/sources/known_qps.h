// SPDX-License-Identifier: Apache-2.0
// The live queue pairs of this node, as their events describe them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

#include "collwire/qp_records.h"
#include "userspace/source/source.h"

namespace collwire::sources {

struct QpKeyHash {
    std::size_t operator()(const cw_qp_key &key) const {
        return std::hash<std::uint64_t>{}(key.generation_ns ^
                                          (std::uint64_t{key.dev_index} << 24 | key.qpn) *
                                              0x9e3779b97f4a7c15);
    }
};
struct QpKeyEqual {
    bool operator()(const cw_qp_key &a, const cw_qp_key &b) const {
        return a.dev_index == b.dev_index && a.qpn == b.qpn && a.generation_ns == b.generation_ns;
    }
};
template <typename Value> using QpMap = std::unordered_map<cw_qp_key, Value, QpKeyHash, QpKeyEqual>;

// Of all queue pairs that live at one time on a node, one has this key.
inline std::uint64_t device_and_qpn(std::uint32_t dev_index, std::uint32_t qpn) {
    return std::uint64_t{dev_index} << 32 | qpn;
}

class KnownQps {
public:
    // A record of CW_KIND_QP_CREATE ... CW_KIND_QP_ERROR. A call that failed changes nothing.
    void take(const cw_qp_event &event);
    // A CW_KIND_QP_EXISTING for each one, with all that is known of it now.
    void append_all(source::RecordSink &sink) const;
    void forget(const std::function<bool(const cw_qp_event &)> &is_gone);
    [[nodiscard]] const QpMap<cw_qp_event> &all() const { return known_; }

    // Something went wrong: which queue pairs are in error is looked for with the next
    // append_errors. On hardware that is a command to the firmware for each queue pair of the node.
    void look_for_errors();
    void append_errors(source::RecordSink &sink);

private:
    std::vector<cw_qp_event> find_errors();

    QpMap<cw_qp_event> known_;            // the events' fields of each live queue pair
    std::vector<std::uint64_t> looks_ns_; // when to look for errors, the last first
};

} // namespace collwire::sources
