// SPDX-License-Identifier: Apache-2.0
// Reads the records of captures, in any number and any state, into a Model before it is joined.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collwire/node_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record.h"
#include "correlate/capture/reader.h"
#include "correlate/model/model.h"
#include "correlate/nccl/gather.h"

namespace collwire::model {

// Limits for one capture's list entries, far above what a recorder writes. A file of some KiB can
// hold millions of equal records.
inline constexpr std::uint64_t MAX_EVENTS = 100'000;
inline constexpr std::uint64_t MAX_CLOCK_ANCHORS = 100'000; // a recorder writes one a minute
inline constexpr std::size_t MAX_SAMPLE_GAPS = 100'000;     // of a recording
inline constexpr std::uint64_t MAX_GIDS = 100'000; // differing ones; a port has 256 at once
inline constexpr std::uint64_t MAX_PCI_FUNCTIONS = 100'000; // of different addresses
inline constexpr std::uint32_t MAX_PORT_NUMBER = 255;       // rdma_port_t of an adapter, and verbs'

// Files in any order; segments of one recording should come in ascending order (growth within a
// segment that comes late is not resolved). Adding a file twice changes nothing.
class Ingest {
public:
    void begin_capture(std::string path);
    // One record of the capture that was started last.
    void add(const cw_header &header, std::span<const std::byte> record);
    // False: the capture is not used, because it has no record of its node.
    bool end_capture(const capture::ReadSummary &summary);
    // Instead of end_capture, for content that is not a capture.
    void fail_capture(std::string message);
    // A file that is not used at all, and why.
    void unreadable(std::string path, std::string message);

    // The model; this object is empty afterwards.
    [[nodiscard]] Model take();

private:
    struct QpKey {
        Index session;
        std::uint32_t dev_index;
        std::uint32_t qpn;
        std::uint64_t generation_ns;
        friend bool operator==(const QpKey &, const QpKey &) = default;
    };
    struct UdKey {
        Index qp;
        std::uint32_t dest_qpn;
        Gid dgid;
        friend bool operator==(const UdKey &, const UdKey &) = default;
    };
    struct PostKey {
        Index session;
        std::uint32_t tgid, qpn, epoch;
        std::uint64_t context;
        friend bool operator==(const PostKey &, const PostKey &) = default;
    };
    struct ProcessKey {
        Index host;
        std::uint32_t pid;
        std::uint64_t start_boottime_ns;
        friend bool operator==(const ProcessKey &, const ProcessKey &) = default;
    };
    struct Hash {
        std::size_t operator()(const QpKey &key) const;
        std::size_t operator()(const UdKey &key) const;
        std::size_t operator()(const PostKey &key) const;
        std::size_t operator()(const ProcessKey &key) const;
        std::size_t operator()(const std::pair<Index, std::uint32_t> &key) const;
        std::size_t operator()(const std::pair<Index, std::uint64_t> &key) const;
    };
    struct UdCounts {
        std::uint64_t frames = 0, wire_bytes = 0, payload_bytes = 0;
        friend bool operator==(const UdCounts &, const UdCounts &) = default;
    };
    struct UdSnapshots {
        UdCounts baseline, last;
        std::uint64_t last_ns = 0;
        std::uint64_t first_ns = 0;
        std::uint64_t first_wire_bytes = 0;
    };

    void add_node(std::span<const std::byte> record);
    void add_device(std::span<const std::byte> record);
    void add_port(std::span<const std::byte> record);
    void add_gid(std::span<const std::byte> record);
    void add_pci_function(std::span<const std::byte> record);
    void add_process(std::span<const std::byte> record);
    void add_probe(const cw_probe &probe);
    void add_source(std::span<const std::byte> record);
    void add_loss(std::span<const std::byte> record);
    void add_sample_gap(std::uint64_t begin_ns, std::uint64_t end_ns);
    void add_qp_event(std::span<const std::byte> record);
    void add_qp_wire(std::span<const std::byte> record);
    void add_ud_peer(std::span<const std::byte> record);
    void add_qp_post(std::span<const std::byte> record);
    void add_verbs_qp(std::span<const std::byte> record);
    void add_post_slice(std::span<const std::byte> record);
    void add_counter_def(std::span<const std::byte> record);
    void add_counter_samples(std::span<const std::byte> record);
    void add_async_event(std::span<const std::byte> record);
    void add_carrier(std::span<const std::byte> record);
    void add_module_event(std::span<const std::byte> record);
    void add_device_gone(std::span<const std::byte> record);

    [[nodiscard]] Session &session() { return model_.sessions[session_]; }
    Index host_of(const cw_node &node);
    Index device_by_name(std::string_view name);
    Index device_by_index(std::uint32_t dev_index);
    Index port_of(Index device, std::uint32_t number);
    Index qp_of(const cw_qp_key &key);
    Index posts_of(const cw_verbs_key &key);
    void add_event(Event event);
    Event event_of_device(const cw_header &header, std::uint32_t dev_index,
                          std::string_view device);
    void add_anchor(std::uint64_t monotonic_ns, std::uint64_t realtime_ns);
    [[nodiscard]] Index device_with_port(std::uint32_t dev_index, std::uint32_t port);
    void finish_sessions();
    void finish_qps();
    void finish_ud();

    [[nodiscard]] bool keeps_series() { return (session().flags & CW_NODE_NCCL) != 0; }

    Model model_;
    nccl::Gather nccl_;
    Index session_ = NONE;          // of the capture that was started last
    bool segment_is_first_ = false; // counts start at 0 in it
    std::uint64_t segment_start_ns_ = 0;
    std::unordered_map<std::string, std::vector<Index>> hosts_; // boot id, or name without one
    std::unordered_map<std::pair<Index, std::uint64_t>, Index, Hash> sessions_; // host, id
    std::unordered_map<std::string, Index> devices_;                            // host and name
    std::unordered_map<std::pair<Index, std::uint32_t>, Index, Hash>
        devices_by_index_;                                                   // session, dev_index
    std::set<std::pair<Index, std::uint32_t>> gone_devices_;                 // session, dev_index
    std::unordered_map<std::pair<Index, std::uint32_t>, Index, Hash> ports_; // device, number
    std::unordered_map<QpKey, Index, Hash> qps_;
    std::unordered_map<UdKey, UdSnapshots, Hash> ud_;
    std::unordered_map<PostKey, Index, Hash> post_index_;
    std::unordered_map<ProcessKey, Index, Hash> processes_;
    std::unordered_map<std::string, Index> counters_;        // session, device, port, source, name
    std::unordered_map<std::uint32_t, Index> counter_by_id_; // of the capture that was started last
    std::set<std::pair<Index, Gid>> gids_;                   // port, address
    // Of the capture that was started last.
    std::uint64_t n_events_ = 0, n_anchors_ = 0, n_gids_ = 0, n_pci_functions_ = 0, n_probes_ = 0;
};

} // namespace collwire::model
