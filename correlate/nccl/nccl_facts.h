// SPDX-License-Identifier: Apache-2.0
// Results of the NCCL records: communicators, operations, connections, and the owners of bytes.
// Indices point into the vectors of NcclFacts or Model; NONE points nowhere.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/socket_records.h"
#include "correlate/model/known.h"
#include "correlate/nccl/call_joins.h"
#include "correlate/nccl/errors.h"
#include "correlate/nccl/gathered.h"
#include "correlate/nccl/gpu_kernels.h"
#include "correlate/nccl/lateness.h"
#include "correlate/nccl/local_traffic.h"
#include "correlate/nccl/nvlink_facts.h"
#include "correlate/nccl/op_bytes.h"
#include "correlate/nccl/op_messages.h"

namespace collwire::nccl {

// How the bytes were measured, weakest first.
enum class ByteSource : std::uint8_t {
    None,
    Derived, // computed from the operation's own fields
    Posted,  // work requests
    Wire,    // packets, or the kernel's counters of a socket
};
inline constexpr std::size_t BYTE_SOURCES = 4;

// What `seq` counts from, weakest first.
enum class SeqBase : std::uint8_t {
    Recording, // the first recorded call; differs between ranks
    Aligned,   // placed by other ranks' sequence of calls, see confidence
    Launched,  // NCCL's own count of collectives
    Creation,  // the communicator was recorded from its creation
};

enum class Role : std::uint8_t { None, Data, ClearToSend, Flush, Other };

// Collectives of an instance with consecutive numbers.
struct SeqRun {
    std::uint32_t first = 0; // of its collectives
    std::uint32_t n = 0;
    std::uint64_t seq = 0; // of the first
    SeqBase base = SeqBase::Recording;
};

// One rank's communicator in one recording.
struct Instance {
    Index stream = NONE;
    Index session = NONE;
    Index host = NONE;
    Index process = NONE;
    Index comm = NONE;
    Index parent = NONE; // instance
    cw_nccl_comm record{};
    std::uint32_t version = 0; // 22809; 0: not known
    // Best certainty with that build of NCCL.
    Rung operations_rung = Rung::Exact;
    Rung connections_rung = Rung::Exact;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;   // 0: not destroyed
    bool created = false;       // recorded from its creation
    bool from_start = false;    // likewise, or NCCL's counts show no earlier start
    bool ended = false;         // its end was recorded
    bool is_calls_only = false; // API-only: its launches were not recorded
    bool lacks_links = false;   // possibly: queue pairs of unknown owner exist
    // In its stream, in time order.
    std::uint32_t first_call = 0, n_calls = 0;
    std::uint32_t first_launch = 0, n_launches = 0;
    // From then on some may be missing: calls, launches, or records that these need.
    std::uint64_t calls_whole_until_ns = UINT64_MAX;
    std::uint64_t launches_whole_until_ns = UINT64_MAX;
    std::uint64_t whole_until_ns = UINT64_MAX;
    // Of the whole instance: the weakest base, the first number, and whether all of it is joined.
    SeqBase seq_base = SeqBase::Recording;
    std::uint64_t seq_of_first = 0; // seq of its first recorded collective
    double confidence = 0;          // for Aligned: 0 to 1
    bool is_joined = false;         // its calls are matched with those of other ranks
    std::vector<SeqRun> runs;       // the joined ones; empty: all of it, or nothing
    std::uint64_t n_collectives = 0;
    std::uint64_t failed_calls = 0;
    std::uint64_t returned_calls = 0; // whose return was recorded

    // It uses the proxies and connections of its parent communicator, which have its ranks.
    [[nodiscard]] bool is_shared() const { return (record.flags & CW_NCCL_COMM_SHARED) != 0; }
};

struct Communicator {
    std::uint64_t hash = 0;
    std::int32_t n_ranks = 0;
    std::int32_t n_nodes = 0; // 0: not known
    std::string name;
    Index parent = NONE;
    bool parent_known = false;             // with parent NONE: it has no parent
    std::vector<Index> instances;          // by rank, then by time
    std::vector<Index> links;              // that only this communicator uses
    std::uint64_t created_realtime_ns = 0; // 0: not recorded
    std::uint64_t ended_realtime_ns = 0;   // 0: not recorded
};

enum OperationFlags : std::uint16_t {
    OPERATION_PARTIAL = 1 << 0, // a rank's part of it is missing or incomplete
    OPERATION_DATA_KNOWN = 1 << 1,
    OPERATION_PAYLOAD_KNOWN = 1 << 2,
    OPERATION_WIRE_KNOWN = 1 << 3,
    OPERATION_TRUNCATED = 1 << 4, // its launched operations were not all recorded
    OPERATION_LAUNCHED = 1 << 5,  // its launch was recorded
    OPERATION_CAPTURED = 1 << 6,  // into a CUDA graph
    OPERATION_DIFFERS = 1 << 7,   // ranks passed different arguments
    OPERATION_SENT = 1 << 8,      // p2p: the send was recorded
    OPERATION_RECEIVED = 1 << 9,  // p2p: the receive was recorded
    OPERATION_HAS_BYTES = 1 << 10,
    OPERATION_BOUND = 1 << 11,        // only a bound of some part is known
    OPERATION_DATA_UNKNOWN = 1 << 12, // for a part
    OPERATION_WIRE_UNKNOWN = 1 << 13,
    OPERATION_END_UNKNOWN = 1 << 14, // for a part
    OPERATION_LACKS_RECORDS =
        1 << 15, // possibly: some records of a rank were lost, or are never emitted
};

// A collective of a communicator, or a send with its receive.
struct Operation {
    std::uint64_t seq = 0; // p2p: ordinal
    std::uint64_t count = 0;
    std::uint64_t data_bytes = 0;
    std::uint64_t payload_bytes = 0;
    std::uint64_t wire_bytes = 0;
    std::uint64_t called_realtime_ns = 0;   // the first call
    std::uint64_t begin_realtime_ns = 0;    // the first launch; 0: none
    std::uint64_t launched_realtime_ns = 0; // the last launch; 0: none
    // Of the last part of the recorded ranks. 0: not known
    std::uint64_t end_after_realtime_ns = 0;
    std::uint64_t end_before_realtime_ns = 0;
    // Of the slowest rank, from its launch to its end, by its own clock: lower and upper bound.
    std::uint64_t least_duration_ns = 0;
    std::uint64_t most_duration_ns = 0;
    Index comm = NONE;
    std::uint32_t replay = NONE; // of a CUDA graph, from 0
    std::int32_t source = -1;    // p2p; -1 for a collective
    std::int32_t destination = -1;
    std::int32_t rank = -1; // the rank whose calls seq counts, if it is not shared: Recording
    std::int32_t root = -1;
    std::int32_t reduction = 0;
    std::uint32_t ranks = 0; // recorded ranks that called it
    std::uint16_t flags = 0;
    std::uint16_t n_channels = 0;
    std::uint16_t batch = 0; // operations in its launch
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t datatype = 0;
    std::uint8_t algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
    std::uint8_t protocol = CW_NCCL_PROTOCOL_UNKNOWN;
    Rung rung = Rung::Exact;
    SeqBase seq_base = SeqBase::Creation;
    std::uint8_t sources = 0; // bits by ByteSource
    std::uint8_t tiers = 0;   // bits by topology::Tier
    EndKnown end_known = EndKnown::No;
    bool crosses_nodes = false; // if launched, part of it uses the network

    [[nodiscard]] bool has(std::uint16_t flag) const { return (flags & flag) != 0; }
};

inline constexpr std::uint8_t NO_CHANNEL = UINT8_MAX; // not known

struct ShapeOp {
    Index link = NONE;
    std::uint32_t task = 0; // index in the launch
    std::int32_t peer = -1;
    std::uint8_t channel = 0;
    bool is_local = false;             // its connection does not use the network
    bool is_known = false;             // the three below are
    bool is_bound = false;             // payload_bytes is an upper bound
    bool has_unknown_messages = false; // the number of messages is a guess
    bool is_grouped_broadcast = false; // of 2.29 and later: several tasks share the operation
    bool is_continued = false;         // part of the same proxy operation as the previous one
    std::uint8_t chunk_steps = 0;
    std::uint32_t nsteps = 0;
    Index connection = NONE; // in Gathered
    std::uint32_t kind = 0;  // of an assumed one: equal for equal arguments
    std::uint64_t payload_bytes = 0;
    std::uint64_t data_bytes = 0;
    std::uint64_t messages = 0;
    Index packets = NONE; // in NcclFacts, of NET/IB; NONE: not known
};

struct Shape {
    std::vector<cw_nccl_shape_task> tasks;
    std::vector<std::uint16_t> task_channels; // of each task's operations, in its first launch
    std::vector<ShapeOp> ops;
    bool is_complete = false;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN; // of its operations, if it has no tasks
    std::uint8_t algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
    std::uint8_t protocol = CW_NCCL_PROTOCOL_UNKNOWN;
    bool is_p2p = false;
    // Before 2.24 operations do not name their task: the tasks are made up, one for all collectives
    // and one for each peer and direction.
    bool is_older = false;
    bool is_assumed = false; // for a call whose launch was not recorded
    // Of collectives' operations, where ranks share a node: local_traffic.h.
    std::vector<KnownShare> known_shares;
    std::vector<OpFacts> older_facts; // of each operation, until calls are matched
};

enum class IntervalKind : std::uint8_t {
    Checked,  // measured and computed bytes are equal
    Single,   // one operation, which gets the measured bytes
    Excess,   // more bytes measured than computed
    Shortage, // fewer bytes measured than computed
    Unknown,  // the bytes of at least one operation are not known
    InFlight, // the recording ended before all was sent
    Derived,  // not measured
};

// A stretch of a flow's time at whose ends every launched operation was complete.
struct Interval {
    std::uint32_t begin = 0; // launch order
    std::uint32_t end = 0;
    std::uint64_t derived_bytes = 0; // of the known operations, net_socket's headers included
    std::uint64_t bound_bytes = 0;   // of the other operations
    std::uint64_t measured_bytes = 0;
    std::uint64_t wire_bytes = 0; // of the measured bytes, if frames were counted
    std::uint64_t most_bytes = 0; // of one operation
    std::uint32_t n_ops = 0;
    std::uint32_t n_unknown = 0;
    IntervalKind kind = IntervalKind::Derived;
    bool is_first = false; // of a pre-existing flow
    // An earlier launch was recorded incompletely: the measured bytes may include its bytes.
    bool is_disturbed = false;
    bool is_under_way = false; // the recording ended before it
    // Of an assumed flow: the bytes of each operation are known by kind.
    bool is_solved = false;
    // InFlight: the operation at which the measured bytes end.
    std::uint32_t last_order = 0;
    std::uint32_t last_op = 0;
    std::uint64_t last_bytes = 0;
};

// How the wire bytes of a connection's messages follow from their sizes; account_messages.h.
struct MessageWire {
    bool is_found = false; // the others are valid
    bool is_known = false;
    std::size_t mtu_class = 0; // in MessagePackets::packets
    std::uint64_t packet_bytes = 0;
    std::uint64_t plain_bytes = 0, immediate_bytes = 0; // of a request, more

    bool operator==(const MessageWire &) const = default;
};

// A flow: the queue pairs or sockets that carry the operations of one connection, or of several
// that share them.
struct Link {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint32_t transport = CW_NCCL_TRANSPORT_UNKNOWN;
    std::uint32_t flags = 0;        // enum cw_nccl_connection_flags, of all its connections
    std::vector<Index> connections; // in Gathered
    std::vector<Index> qps;         // in Model
    std::vector<Index> sockets;     // in Gathered: data, or control if there is no other
    bool has_size_headers = false;  // net_socket's, on the same sockets
    std::vector<Index> instances;   // that use it
    std::int32_t rank = -1; // in the connection's numbering: that of the owner of the resources
    std::int32_t peer = -1;
    std::vector<std::int32_t> channels;
    Rung rung = Rung::Exact;
    bool is_mirrored = false;   // known from the other end only
    bool is_by_bytes = false;   // its queue pairs were chosen by their bytes
    bool is_assumed = false;    // not recorded: by_lineage.h
    bool is_unsolvable = false; // operations on it are left out: assumed_launches.h
    std::map<std::uint32_t, std::uint64_t> bytes_of_kind; // of an assumed one: of each operation
    // The measured bytes may lack its last ones, or those of one of its sockets.
    bool is_cut_short = false;
    // By queue pair: tier and carried bytes.
    std::vector<std::pair<topology::Tier, std::uint64_t>> tiers;
    ByteSource source = ByteSource::None; // of the measured bytes
    std::uint64_t measured_bytes = 0;     // over its time in the recording
    std::uint64_t attributed_bytes = 0;   // of operations
    std::uint64_t attributed_wire_bytes = 0;
    MessagePackets packets;     // of the operations, by their sizes
    bool lacks_packets = false; // not known for one of them
    MessageWire message_wire;
    std::uint64_t attributed_header_bytes = 0; // net_socket's, with the operations' bytes
    std::uint64_t greeting_bytes = 0;          // net_socket's first bytes on a new socket
    Known wire_bytes;
    std::uint64_t begin_ns = 0;
    std::uint64_t measured_from_ns = 0;           // 0: from the start
    std::uint64_t measured_until_ns = UINT64_MAX; // launches, too: then probes were taken off
    std::vector<Interval> intervals;

    [[nodiscard]] bool is_send() const { return (flags & CW_NCCL_CONNECTION_SEND) != 0; }
    // Whether operations can be assigned: for a plugin if its queue pairs are known, for an assumed
    // flow if it has some, for CollNet never.
    [[nodiscard]] bool is_followed() const {
        return transport == CW_NCCL_TRANSPORT_IB || transport == CW_NCCL_TRANSPORT_SOCKET ||
               (transport == CW_NCCL_TRANSPORT_PLUGIN && !qps.empty()) || is_assumed;
    }
    // Its queue pairs may be among those without a known connection, or of one that is known from
    // its other end.
    [[nodiscard]] bool lacks_queue_pairs() const {
        return transport == CW_NCCL_TRANSPORT_IB && !is_mirrored && (qps.empty() || is_cut_short);
    }
};

struct QpIdentity {
    Role role = Role::None;
    Rung rung = Rung::Process;
    Index link = NONE;
    bool is_of_nccl = false; // of a process that runs NCCL
    // Payload of the operations, if it was not measured and is the only queue pair of its
    // connection.
    Known derived_payload_bytes;
    // With the headers of its messages; also of a receiver, whose messages are clear-to-send.
    Known derived_wire_bytes;
};

struct SocketIdentity {
    Index link = NONE;                 // its connection; NONE: not known
    std::uint16_t role = 0;            // enum cw_nccl_role, of its connection
    Index peer = NONE;                 // in Gathered: the other end
    Index port = NONE;                 // in Model: the port whose interface has its address
    std::string remote_host;           // empty: not known
    std::uint64_t counted_from_ns = 0; // 0: from its start
    bool is_cut_short = false;         // closed before its last counters were read
    topology::Tier tier = topology::Tier::Unknown;
    Known tx_bytes; // that the other end has acknowledged
    Known rx_bytes;
    Known retransmitted_bytes;
};

struct MatrixKey {
    Index comm = NONE;
    std::int32_t source = -1;
    std::int32_t destination = -1;
    std::uint32_t transport = 0;
    topology::Tier tier = topology::Tier::Unknown;
    friend auto operator<=>(const MatrixKey &, const MatrixKey &) = default;
};
struct MatrixCell {
    std::uint64_t payload_bytes = 0;
    Known wire_bytes;              // of all of them
    bool lacks_wire_bytes = false; // unknown for some of them

    void add(std::uint64_t payload, const Known &wire);
};

// First-transmission data payload on the connections of NET/IB and NET/Socket, and of plugins with
// known queue pairs; each byte counts once.
struct Totals {
    bool is_known = false;
    std::array<std::uint64_t, RUNGS> by_rung{};
    std::array<std::uint64_t, BYTE_SOURCES> by_source{};
    // Confirmed part of the inferred bytes: measured, and between two moments of completion equal
    // to the operations' computed bytes, or possible for the one operation with only a bound.
    // Excludes queue pairs that were chosen by that. For API-only recordings: other stretches of
    // the connection give the same bytes for such calls.
    std::uint64_t confirmed_bytes = 0;
    std::uint64_t links_not_measured = 0;
    // In none of these sums: bytes of queue pairs without a known connection, in processes whose
    // connections lack some. The sums may already include them.
    Known perhaps_counted_bytes;
};

// Sockets that NCCL closed. If there are none, their traffic is unknown.
struct ControlSockets {
    std::uint64_t sockets = 0;
    std::uint64_t payload_bytes = 0; // that they sent
};

// Control traffic.
struct Control {
    Known clear_to_send_payload_bytes, clear_to_send_wire_bytes;
    Known clear_to_send_derived_wire_bytes; // of queue pairs without a measurement: computed
    Known flush_payload_bytes, flush_wire_bytes;
    Known ack_wire_bytes;
    Known socket_header_bytes; // net_socket's size headers and connection greeting
    Known other_socket_bytes;  // of sockets that were tracked as a connection's and are not
    std::array<ControlSockets, CW_NCCL_SOCKET_TYPES> sockets; // by enum cw_nccl_socket_type
};

// Launches of no listed operation: no call was found for them, or they are unlisted replays.
struct UnlistedLaunches {
    Index instance = NONE;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    bool captured = false;
    std::uint64_t launches = 0;
    Known payload_bytes = 0; // of all of them
    Rung rung = Rung::Exact; // the weakest of those bytes
};

// In a slice, a connection's whole operations had other bytes than those computed.
struct PostDifference {
    Index link = NONE;
    std::uint64_t begin_ns = 0, end_ns = 0; // of the slice
    std::uint64_t operations = 0;
    std::uint64_t posted_bytes = 0;
    std::uint64_t derived_bytes = 0;
};

// Bytes computed from operations, checked against the posts of slices: verify_posts.h. A connection
// counts once for each slice.
struct PostVerification {
    std::uint64_t slices = 0;
    std::uint64_t slices_ns = 0; // all of them together
    std::uint64_t on_ns = 0, period_ns = 0;
    // Of NCCL operations whose posts were counted in slices.
    std::uint64_t derived_bytes = 0;
    std::uint64_t verified_bytes = 0; // equal
    std::uint64_t operations = 0;     // with these, one for each connection
    std::uint64_t connections_equal = 0;
    std::map<std::string, std::uint64_t> not_compared; // why, and how many
    std::vector<PostDifference> differences;
    // No NCCL connection has them, and their process posted in slices: their bytes are in no sum.
    std::uint64_t queue_pairs_not_counted = 0;
};

struct MessageDifference {
    Index link = NONE;
    std::uint64_t measured_wire_bytes = 0;
    std::uint64_t derived_wire_bytes = 0;
};

// Queue pairs whose wire bytes were measured, and computed as well: account_messages.h.
struct MessageComparison {
    std::uint64_t equal = 0;
    std::uint64_t equal_bytes = 0;
    std::uint64_t not_computed = 0;
    std::vector<MessageDifference> different;
};
struct MessageComparisons {
    MessageComparison data, clear_to_send;
};

struct Finding {
    std::string kind;
    std::string what; // a sentence
    std::vector<Index> communicators;
    std::vector<std::string> hosts;
    std::map<std::string, std::uint64_t> evidence;
};

struct NcclFacts {
    Gathered gathered;
    bool recorded = false; // a recording that counts recorded NCCL
    std::vector<Instance> instances;
    std::map<std::pair<Index, std::uint32_t>, std::vector<Index>>
        params_of_process;                   // session, tgid
    std::vector<Communicator> communicators; // by creation
    std::vector<Operation> collectives;      // by communicator, seq, replay
    std::vector<Operation> p2p;
    std::vector<CallJoins> call_joins;                  // by stream
    std::vector<std::vector<std::uint32_t>> task_calls; // by stream and task: call; NONE: not known
    std::vector<Shape> shapes;
    std::vector<MessagePackets> packets; // of the shapes' operations
    std::vector<Link> links;
    std::vector<QpIdentity> qps;         // by Model::qps
    std::vector<SocketIdentity> sockets; // by Gathered::sockets
    // Of operations that use several tiers: payload and wire bytes by tier. Key: p2p or not, index.
    std::map<std::pair<bool, Index>,
             std::array<std::pair<std::uint64_t, std::uint64_t>, model::TIERS>>
        bytes_by_tier;
    std::map<std::pair<Index, topology::Tier>, MatrixCell> tiers; // of communicators' operations
    std::map<MatrixKey, MatrixCell> matrix;
    Totals totals;
    Control control;
    PostVerification verified;
    MessageComparisons messages;
    std::vector<Lateness> lateness; // by instance
    GpuFacts gpu;
    LocalFacts local;
    NvlinkFacts nvlink;
    std::vector<UnlistedLaunches> unjoined; // without a known call
    std::vector<UnlistedLaunches> replays;  // beyond those that are listed as operations
    std::uint64_t ops_truncated = 0;        // launches with more operations than were recorded
    std::uint64_t launches_unreadable = 0;  // without a known shape
    std::uint64_t replays_left_out = 0;     // of captured operations: too many to list
    std::uint64_t orphans = 0;              // calls and launches without a known communicator
    std::vector<Finding> findings;          // by severity
    std::vector<NcclError> errors;          // by time
};

} // namespace collwire::nccl
