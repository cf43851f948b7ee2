// SPDX-License-Identifier: Apache-2.0
// The life of queue pairs, from ib_core (bpf/qp.bpf.c). docs/sources/qp.md
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "userspace/netlink/attributes.h"
#include "userspace/sources/probed_source.h"

struct qp; // the skeleton of bpf/qp.bpf.c

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

struct QpSourceOptions {
    bool filter_by_tgid = false; // only those given to SharedMaps::want_tgid
    std::string layout_unknown;  // of module_origin.h: why its modules must not be read
    loader::HookMode mode = loader::default_hook_mode();
};

// Attach this before any other source that looks at queue pairs: it fills the table of live ones.
class QpSource : public ProbedSource<qp> {
public:
    QpSource(const loader::SharedMaps &maps, QpSourceOptions options);
    ~QpSource() override;

    void on_record(const cw_header &header) override;
    // Queue pairs are events; there is something to append only when the whole state is asked for.
    void sample(source::RecordSink &sink, bool everything) override;

    // Something went wrong: which queue pairs are in error is looked for with the next samples. On
    // hardware that is a command to the firmware for each queue pair of the node.
    void look_for_errors();

private:
    bool applicable() override;
    bool configure() override;
    [[nodiscard]] bool indispensable() const override { return true; }
    [[nodiscard]] std::uint64_t missed() const override;
    // Dumps the queue pairs that exist, under our own probe, and checks what it read.
    Result<void> on_attached() override;
    void forget_destroyed();
    // Those that went into error since it was looked for last.
    std::vector<cw_qp_event> find_errors();
    void check_dump(const std::vector<netlink::NetlinkQp> &dumped);

    QpSourceOptions options_;
    QpMap<cw_qp_event> known_; // the events' fields of each live queue pair
    std::unordered_map<std::uint64_t, std::uint32_t> netlink_destinations_; // by device and QPN
    std::vector<std::uint64_t> looks_ns_; // when to look for errors, the last first
};

} // namespace collwire::sources
