// SPDX-License-Identifier: Apache-2.0
// The joined content of the captures of any number of nodes. Indices point into the vectors of
// Model; NONE points nowhere. Times are CLOCK_MONOTONIC nanoseconds of the object's host, unless
// the name says realtime.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collwire/node_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/wire_records.h"
#include "correlate/clocks/node_clocks.h"
#include "correlate/model/address.h"
#include "correlate/model/counters.h"
#include "correlate/model/known.h"
#include "correlate/model/pci_place.h"
#include "correlate/nccl/byte_series.h"
#include "correlate/nccl/nccl_facts.h"

namespace collwire::model {

// ---- captures, hosts and recordings

enum class CaptureEnd {
    Complete,   // ends with the END record
    Open,       // no END: the recorder was killed or still runs
    Damaged,    // used up to its last good block
    Unreadable, // not used
};

struct Capture {
    std::string path;
    Index session = NONE;
    std::uint32_t segment = 0;
    CaptureEnd end = CaptureEnd::Open;
    std::string message; // how it ended, or why it is not used
    std::uint64_t damaged_at_bytes = 0;
    std::uint64_t records = 0;
    std::uint64_t unknown_records = 0;
    // Before the node record, for undefined objects, with an impossible port number, or beyond the
    // limits of ingest.h.
    std::uint64_t unusable_records = 0;
    std::uint64_t events_left_out =
        0; // these five: beyond the limits; included in unusable_records
    std::uint64_t anchors_left_out = 0; // of clocks
    std::uint64_t gids_left_out = 0;
    std::uint64_t pci_functions_left_out = 0;
    std::uint64_t nccl_left_out = 0; // NCCL records; likewise
    std::uint64_t first_time_ns = 0;
    std::uint64_t last_time_ns = 0;
    std::optional<std::uint32_t> exit_status; // of the recorder
};

struct ClockAnchor {
    std::uint64_t monotonic_ns = 0;
    std::uint64_t realtime_ns = 0;
};

struct Host {
    std::string name; // host name; a suffix separates several boots or machines with one name
    std::string hostname;
    std::string boot_id;
    std::string machine_id; // empty: not known
    std::string kernel_release;
    std::vector<ClockAnchor> anchors; // in the order of time
    // How far its realtime clock is ahead of that of other hosts, if that is half a minute or more;
    // modulo 2^64.
    std::uint64_t rough_ahead_ns = 0;
    std::map<std::string, PciPlace> pci_places; // by address

    [[nodiscard]] std::uint64_t realtime_ns(std::uint64_t monotonic_ns) const;
    // Comparable with other hosts' to half a minute or so. 0: its clock was never read.
    [[nodiscard]] std::uint64_t rough_realtime_ns(std::uint64_t monotonic_ns) const {
        const std::uint64_t time_ns = realtime_ns(monotonic_ns);
        return time_ns == 0 ? 0 : time_ns - rough_ahead_ns;
    }
};

// Device index of source records that apply to the whole node.
inline constexpr std::uint32_t DEV_INDEX_NODE = ~0U;

struct SourceInfo {
    std::string name;
    Index device = NONE;                   // the whole node
    cw_source_state state = CW_SOURCE_OFF; // the worst of the recording
    std::string reason;
    std::uint64_t time_ns = 0;
};

struct Counter {
    Index device = NONE;
    std::uint32_t port = 0;
    std::uint16_t source = CW_COUNTER_PORT; // enum cw_counter_source, or of a newer version
    cw_counter_unit unit = CW_UNIT_UNKNOWN;
    std::string name;
    CounterSeries series;
};

// Whether posts were counted from a moment on: cw_post_slice.
struct PostSlice {
    std::uint64_t time_ns = 0;
    std::uint32_t tgid = 0;    // 0: of all processes
    std::uint32_t counted = 0; // enum cw_posts_counted
    std::uint64_t on_ns = 0;
    std::uint64_t period_ns = 0;
    friend auto operator<=>(const PostSlice &, const PostSlice &) = default;
};

// One recording of one host: one run of the recorder, in one or more segments.
struct Session {
    std::uint64_t id = 0;
    Index host = NONE;
    std::set<std::uint32_t> segments;
    std::uint32_t flags = 0; // enum cw_node_flags
    std::string tool_version;
    std::uint64_t begin_ns =
        0; // when all probes were attached, or the start of the first segment that is present
    std::uint64_t end_ns = 0;
    bool from_start = false;                // its first segment is present
    bool ended = false;                     // its END record is present
    bool excluded = false;                  // overlaps another recording of the host: in no sum
    std::uint64_t first_wire_sample_ns = 0; // 0: none
    std::uint64_t last_wire_sample_ns = 0;
    std::uint64_t first_counters_ns = 0; // when the counters of ports were read first; 0: never
    std::uint64_t probes_placed = 0;
    std::uint64_t sample_interval_ns = 0; // 0: not known
    // Without samples, in time order: start, end.
    std::vector<std::pair<std::uint64_t, std::uint64_t>> sample_gaps;
    std::map<std::pair<std::string, std::uint32_t>, SourceInfo> sources; // name, dev_index
    std::vector<Counter> counters;
    std::map<std::pair<std::uint32_t, std::uint16_t>, std::uint64_t> loss; // class, cpu
    std::map<std::uint32_t, std::uint64_t> first_loss_ns; // by class: time of the first report

    // By source: since when its probes on operations, work requests or frames are off for --budget.
    std::map<std::string, std::uint64_t> taken_off_ns;
    std::vector<PostSlice> post_slices; // by time

    // Whether the posts of the process were counted from the one moment to the other, as far as
    // slices are concerned.
    [[nodiscard]] bool counted_posts(std::uint32_t tgid, std::uint64_t from_ns,
                                     std::uint64_t until_ns) const;

    // Until when that source counted. UINT64_MAX: until the end.
    [[nodiscard]] std::uint64_t counted_until_ns(const std::string &source) const;
    // If false, an absence of queue pairs is not evidence of none.
    [[nodiscard]] bool watched_queue_pairs() const;
    // The least time for which a counter was unchanged that was read at `from_ns`, and re-emitted,
    // or not until the end, at `until_ns`.
    [[nodiscard]] std::uint64_t unchanged_ns(std::uint64_t from_ns, std::uint64_t until_ns) const;
    // The earliest possible time of the last reading of a counter that was read at `from_ns` and
    // not re-emitted before `until_ns`. `from_ns`: no later reading is known.
    [[nodiscard]] std::uint64_t read_last_ns(std::uint64_t from_ns, std::uint64_t until_ns) const;
};

struct Device {
    Index host = NONE;
    std::string name;
    std::uint32_t flags = 0; // enum cw_device_flags
    std::string driver;
    std::string pci_address;
    std::int32_t numa_node = -1;
    std::uint32_t n_ports = 0;
    std::vector<Index> ports;

    [[nodiscard]] bool is_software() const { return (flags & CW_DEVICE_SOFTWARE) != 0; }
};

// A port's bytes by its own counter, compared with the bytes of its queue pairs.
struct PortBytes {
    Known tx_wire_bytes;
    Known rx_wire_bytes;
    Known explained_tx_bytes;
    Known explained_rx_bytes;
    Known uncertainty_bytes;
    std::string source; // "netdev", "port_counters", "none" ...
    std::string source_note;
    std::uint64_t counter_resets = 0;
    std::uint64_t qps_without_bytes = 0;
    Known self_tx_wire_bytes; // never reached the port
    // Payload of NCCL TCP sockets on its interface, retransmissions included. Of the counters
    // above only an interface's includes it.
    Known tcp_tx_bytes, tcp_rx_bytes;
};

struct Port {
    Index device = NONE;
    std::uint32_t number = 0;
    std::uint32_t link_layer = CW_LINK_UNKNOWN;
    std::uint32_t state = 0;
    std::uint32_t carrier = 2;
    std::uint32_t lid = 0;
    std::uint32_t active_mtu_bytes = 0;
    std::uint32_t ifindex = 0;
    std::uint64_t rate_mbps = 0;
    std::uint64_t subnet_prefix = 0;
    std::uint64_t info_ns = 0;
    std::uint64_t port_guid = 0;
    std::array<std::uint8_t, 6> mac{};
    std::string netdev;
    std::vector<Gid> gids;
    // Its place in the topology; empty: not given.
    std::optional<topology::PortRef> topology_port;
    std::string switch_id;
    std::string switch_port;
    std::optional<std::uint32_t> rail;
    PortBytes bytes;
};

struct Process {
    Index host = NONE;
    std::uint32_t pid = 0;
    std::uint64_t start_boottime_ns = 0;
    bool described = false; // has a process record; otherwise known from its queue pairs only
    std::uint32_t parent_pid = 0;
    std::uint32_t namespace_pid = 0; // 0: not known
    std::uint32_t uid = 0;
    std::int32_t numa_node = -1;
    std::string comm, executable, argv0, script, cmdline;
    std::string slurm_job, slurm_step, pod_uid, container_id, cgroup;
};

// ---- queue pairs

enum class BytesRung { None, Posted, Wire };
enum class Pairing {
    None,        // not of a connected type, or never connected
    Paired,      // the other end is in these captures
    NotCaptured, // the other end is not in these captures
    Ambiguous,   // several queue pairs could be the other end
};

struct StateChange {
    std::uint64_t time_ns = 0;
    std::uint16_t kind = 0; // enum cw_kind
    std::uint8_t old_state = 0xff;
    std::uint8_t new_state = 0xff;
    std::int32_t result = 0;
    std::uint32_t event = 0;
    bool is_found = false; // found by a later poll of its state
    friend bool operator==(const StateChange &, const StateChange &) = default;
    friend auto operator<=>(const StateChange &, const StateChange &) = default;
};

// Cumulative counts: the newest record, and the oldest if the recording's first segment is missing.
template <typename Counters> struct Snapshots {
    Counters last{};
    std::uint64_t last_ns = 0;
    std::unique_ptr<Counters> baseline;
    std::uint64_t baseline_ns = 0;
};

struct UdPeer {
    Gid dgid{};
    std::uint32_t dest_qpn = 0;
    std::uint64_t tx_frames = 0;
    std::uint64_t tx_wire_bytes = 0;
    std::uint64_t tx_payload_bytes = 0;
    std::uint64_t first_ns = 0; // of its first sample; 0: none
    std::uint64_t first_tx_wire_bytes = 0;
    Index remote_port = NONE;
    std::string remote_host; // empty: not known
    topology::Tier tier = topology::Tier::Unknown;
};

// A stretch of time in which a queue pair retransmitted, and the frames it received meanwhile.
struct Retransmission {
    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    std::uint64_t frames = 0;
    std::uint64_t rx_frames = 0; // 0: no frame came back
};

struct QpBytes {
    BytesRung rung = BytesRung::None;
    Known tx_payload_bytes;
    Known rx_payload_bytes;
    Known tx_wire_bytes;
    Known rx_wire_bytes;
    Known retransmitted_wire_bytes;
    Known tx_response_wire_bytes; // part of tx_wire_bytes
    Known tx_ack_wire_bytes;   // part of tx_wire_bytes; null where acknowledgements are not counted
    bool assumed_ipv4 = false; // if the posts of datagrams do not contain the address family
    bool rx_from_peer = false; // rx comes from the posts in the peer's capture
};

struct Qp {
    Index session = NONE;
    Index host = NONE;
    Index device = NONE;
    Index port = NONE;
    Index process = NONE;
    cw_qp_key key{};
    std::uint64_t destroyed_ns = 0; // 0: existed until the end
    std::uint32_t flags = 0;        // enum cw_qp_flags, of all its records
    std::uint32_t tgid = 0;
    std::uint32_t maker_tid = 0;   // the thread that created it; 0: not recorded
    std::uint64_t user_handle = 0; // address of struct ibv_qp in the process; 0: not known
    std::uint64_t start_boottime_ns = 0;
    std::string comm;
    std::uint8_t type = 0xff;
    std::uint8_t port_number = 0;
    std::uint8_t state = 0xff;
    bool has_events = false;
    cw_qp_event address{}; // each field of the address vector from the newest record that has it
    std::uint64_t address_ns = 0;     // of that record
    std::uint64_t readdressed_ns = 0; // when it was connected to another peer; 0: never
    std::uint64_t state_ns = 0;
    std::uint64_t connected_ns = 0; // first RTR or RTS; 0: not recorded
    std::vector<StateChange> states;
    std::unique_ptr<Snapshots<cw_wire_counters>> wire;
    std::uint64_t first_wire_ns = 0; // of its first sample; 0: none
    std::uint64_t first_tx_wire_bytes = 0;
    std::uint64_t first_rx_wire_bytes = 0;
    // Since the start of the recorded part; null after nccl::resolve().
    std::unique_ptr<cw_post_counters> posts;
    // Growth of both over time, if NCCL's operations were recorded.
    std::unique_ptr<nccl::ByteSeries> wire_series;
    std::unique_ptr<nccl::ByteSeries> post_series;
    std::vector<UdPeer> ud_peers;
    std::vector<Retransmission> retransmissions;

    // Found by joining
    Pairing pairing = Pairing::None;
    Index peer = NONE; // queue pair
    // Several recordings of one host each hold a part of one end, so the counts of `peer` are not
    // what this end received.
    bool peer_in_parts = false;
    bool had_several_peers = false; // one after the other; its counts mix them
    Index remote_port = NONE;
    std::string remote_host; // empty: not known
    topology::Tier tier = topology::Tier::Unknown;
    QpBytes bytes;
    Known posted_tx_payload_bytes;       // additional to wire counts, if both were recorded
    std::vector<std::string> damaged_by; // losses that may have lowered its bytes

    [[nodiscard]] Gid sgid() const;
    [[nodiscard]] Gid dgid() const;
    [[nodiscard]] bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
    // RC, UC, XRC: has one peer.
    [[nodiscard]] bool is_connected_type() const;
    [[nodiscard]] bool is_datagram() const;             // UD, GSI, SMI
    [[nodiscard]] std::uint32_t path_mtu_bytes() const; // 0: not known
};

// Posts as user space reports them, before match_posts finds their queue pair.
struct Posts {
    Index session = NONE;
    cw_verbs_key key{};
    Snapshots<cw_post_counters> counters;
    std::uint64_t first_seen_ns = 0; // time of its cw_verbs_qp; 0: lost
    std::uint64_t start_boottime_ns = 0;
    std::string device;
    std::unique_ptr<nccl::ByteSeries> series;
};

// Posts without a queue pair in the captures.
struct UnmatchedPosts {
    Index host = NONE;
    std::uint32_t pid = 0;
    std::uint32_t qpn = 0;
    std::string device; // empty: not known
    std::uint64_t wrs = 0;
    std::uint64_t bytes = 0; // of all kinds of work requests
    std::string reason;
};

// ---- results

struct Event {
    std::uint64_t time_ns = 0;
    std::uint64_t realtime_ns = 0;
    std::uint64_t end_ns = 0; // 0: a moment
    Index session = NONE;
    Index host = NONE;
    Index device = NONE;
    Index port = NONE;
    std::uint32_t port_number = 0;
    std::string netdev;
    std::string pci_address;
    std::uint32_t qpn = 0; // 0: none
    Index qp = NONE;
    Index process = NONE;
    std::string kind;
    std::string what;
    std::uint32_t port_state = 0; // of kind port_state: the new one; else 0
    bool derived = false;         // concluded from counts, not recorded itself
    std::map<std::string, std::uint64_t> evidence;
    std::vector<std::string> peers; // hosts at the other end
};

// NCCL's TCP sockets, which are not queue pairs. Payload of TCP: all written bytes.
struct TcpSums {
    std::uint64_t sockets = 0;
    Known tx_payload_bytes; // that the other end has acknowledged
    Known rx_payload_bytes;
    Known retransmitted_bytes;
    // Sending connections without a counted socket: their number and the bytes of their operations.
    std::uint64_t connections_without_bytes = 0;
    Known derived_tx_payload_bytes;

    [[nodiscard]] bool is_used() const { return sockets != 0 || connections_without_bytes != 0; }
};

// Of queue pairs, except for tcp.
struct Sums {
    std::uint64_t qps = 0;
    std::uint64_t qps_without_bytes = 0;
    Known tx_wire_bytes;
    Known tx_payload_bytes;
    Known rx_wire_bytes;
    Known rx_payload_bytes;
    Known retransmitted_wire_bytes;
    Known rx_wire_bytes_from_uncaptured;
    std::array<Known, 3> tx_wire_bytes_by_rung; // by BytesRung
    // In none of the above: payload of NCCL operations on queue pairs without a measurement.
    Known derived_tx_payload_bytes;
    // With the headers of their messages; unknown if it is for one of the connections.
    Known derived_tx_wire_bytes;
    bool lacks_derived_wire_bytes = false;
    TcpSums tcp;
};

struct ProcessSums {
    Index process = NONE;
    Sums all;
    std::array<Known, TIERS> tx_wire_bytes_by_tier;
};

struct NodePair {
    std::string source;
    std::string destination; // host name, or the address of a host without a capture
    bool destination_captured = false;
    Sums all;
    std::array<Known, TIERS> tx_wire_bytes_by_tier;
};

// Offset between the realtime clocks of two hosts, measured on their connections.
struct ClockDifference {
    Index host_a = NONE;
    Index host_b = NONE;
    std::int64_t b_minus_a_ns = 0;
    std::uint64_t spread_ns = 0; // over the connections it was measured on
    std::uint64_t connections = 0;
};

struct LossEntry {
    Index host = NONE;
    std::string loss_class;
    std::uint16_t cpu = 0;
    std::uint64_t records = 0;
};

// What was read of the captures, where only a stretch of their time was asked for. CLOCK_REALTIME.
struct WindowFacts {
    std::uint64_t from_ns = 0, to_ns = 0;                   // as far as there are recordings
    std::uint64_t recorded_from_ns = 0, recorded_to_ns = 0; // of all captures together
    std::string local;                                      // both ends in local time
    std::uint64_t blocks = 0, blocks_left_out = 0;          // of the captures that were opened
    std::uint64_t segments_left_out = 0;                    // whole captures
    std::uint64_t records_inside = 0;                       // events and samples
    // Counters with a sample inside and none shortly before: what they counted up to it is unknown.
    std::uint64_t counters_without_start = 0;
};

struct Model {
    std::optional<WindowFacts> window; // absent: everything was read
    std::vector<Capture> captures;
    std::vector<Session> sessions;
    std::vector<Host> hosts;
    std::vector<Device> devices;
    std::vector<Port> ports;
    std::vector<Process> processes;
    std::vector<Qp> qps;     // by host, device, number, generation
    std::deque<Posts> posts; // until match_posts
    std::vector<UnmatchedPosts> unmatched_posts;
    std::vector<Event> events; // by realtime
    std::array<Sums, TIERS> tiers;
    Sums total;
    // Tier "unknown" although both ends are known: the topology lacks one or does not connect them.
    std::uint64_t unplaced_tx_wire_bytes = 0;
    std::vector<ProcessSums> process_sums;
    std::vector<NodePair> node_pairs;
    std::vector<ClockDifference> clock_differences;
    clocks::NodeClocks clocks; // by host; empty until operations were timed
    std::vector<LossEntry> loss;
    std::uint64_t lost_records = 0;
    std::vector<std::string> warnings; // by severity
    bool has_topology = false;
    std::string topology_source;
    nccl::NcclFacts nccl;

    // In every recording that counts, and at least one counts.
    [[nodiscard]] bool watched_queue_pairs() const;
};

} // namespace collwire::model
