// SPDX-License-Identifier: Apache-2.0
// What NCCL's records say: communicators, operations, connections, and which bytes are whose.
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
#include "correlate/nccl/errors.h"
#include "correlate/nccl/gathered.h"
#include "correlate/nccl/op_bytes.h"

namespace collwire::nccl {

// How it is known which operation bytes are of. The weakest first, numbered as enum cw_rung.
enum class Rung : std::uint8_t {
    Process,  // the process alone is known
    Inferred, // follows from an order with several candidates, or from the other end
    Exact,    // was read from NCCL's memory, or follows from its order with a single candidate
};
inline constexpr std::size_t RUNGS = 3;

// How many they are is known by. The weakest first.
enum class ByteSource : std::uint8_t {
    None,
    Derived, // computed from the operation's own fields
    Posted,  // work requests
    Wire,    // packets, or the kernel's counters of a socket
};
inline constexpr std::size_t BYTE_SOURCES = 4;

// What `seq` counts from. The weakest first.
enum class SeqBase : std::uint8_t {
    Recording, // the first call that was recorded; not the same on other ranks
    Aligned,   // found by the sequence of calls of other ranks, see confidence
    Launched,  // NCCL's own count of collectives
    Creation,  // the communicator was seen from its creation
};

enum class Role : std::uint8_t { None, Data, ClearToSend, Flush, Other };

// Collectives of an instance with numbers that follow each other.
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
    // What can be known of that build of NCCL.
    Rung operations_rung = Rung::Exact;
    Rung connections_rung = Rung::Exact;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;   // 0: lived on
    bool created = false;       // was seen from its creation
    bool from_start = false;    // that, or by NCCL's counts nothing was started before it was seen
    bool ended = false;         // its end was seen
    bool is_calls_only = false; // what it launched was not recorded
    bool lacks_links = false;   // perhaps: of queue pairs it is not known whose they are
    // In its stream, in the order of time.
    std::uint32_t first_call = 0, n_calls = 0;
    std::uint32_t first_launch = 0, n_launches = 0;
    // From then on some may be missing: calls, launches, anything that these need.
    std::uint64_t calls_whole_until_ns = UINT64_MAX;
    std::uint64_t launches_whole_until_ns = UINT64_MAX;
    std::uint64_t whole_until_ns = UINT64_MAX;
    // The whole of it: the weakest base, the first number, and whether all of it is joined.
    SeqBase seq_base = SeqBase::Recording;
    std::uint64_t seq_of_first = 0; // seq of its first collective here
    double confidence = 0;          // of Aligned: 0 to 1
    bool is_joined = false;         // its calls are put together with those of other ranks
    std::vector<SeqRun> runs;       // that are joined; none: all of it, or nothing
    std::uint64_t n_collectives = 0;
    std::uint64_t failed_calls = 0;
    std::uint64_t returned_calls = 0; // whose return was recorded
};

struct Communicator {
    std::uint64_t hash = 0;
    std::int32_t n_ranks = 0;
    std::int32_t n_nodes = 0; // 0: not known
    std::string name;
    Index parent = NONE;
    bool parent_known = false;             // of NONE: it has none
    std::vector<Index> instances;          // by rank, then by time
    std::vector<Index> links;              // that it uses alone
    std::uint64_t created_realtime_ns = 0; // 0: not seen
    std::uint64_t ended_realtime_ns = 0;   // 0: not seen
};

enum OperationFlags : std::uint16_t {
    OPERATION_PARTIAL = 1 << 0, // a rank's part of it is not here, or not all of it
    OPERATION_DATA_KNOWN = 1 << 1,
    OPERATION_PAYLOAD_KNOWN = 1 << 2,
    OPERATION_WIRE_KNOWN = 1 << 3,
    OPERATION_TRUNCATED = 1 << 4, // not all of what was launched for it was seen
    OPERATION_LAUNCHED = 1 << 5,  // its launch was seen
    OPERATION_CAPTURED = 1 << 6,  // into a CUDA graph
    OPERATION_DIFFERS = 1 << 7,   // ranks gave different arguments
    OPERATION_SENT = 1 << 8,      // p2p: the send is here
    OPERATION_RECEIVED = 1 << 9,  // p2p: the receive is here
    OPERATION_HAS_BYTES = 1 << 10,
    OPERATION_BOUND = 1 << 11,        // of a part no more is known than a bound
    OPERATION_DATA_UNKNOWN = 1 << 12, // of a part
    OPERATION_WIRE_UNKNOWN = 1 << 13,
    OPERATION_END_UNKNOWN = 1 << 14,   // of a part
    OPERATION_LACKS_RECORDS = 1 << 15, // perhaps: some of a rank were lost then, or are never made
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
    // Of the last part of those ranks that were recorded. 0: not known
    std::uint64_t end_after_realtime_ns = 0;
    std::uint64_t end_before_realtime_ns = 0;
    // Of the slowest rank, from its launch to its end, by its own clock: between these.
    std::uint64_t least_duration_ns = 0;
    std::uint64_t most_duration_ns = 0;
    Index comm = NONE;
    std::uint32_t replay = NONE; // of a CUDA graph, from 0
    std::int32_t source = -1;    // p2p; of a collective -1
    std::int32_t destination = -1;
    std::int32_t rank = -1; // whose calls seq counts, where those are of no other's: Recording
    std::int32_t root = -1;
    std::int32_t reduction = 0;
    std::uint32_t ranks = 0; // that called it, as far as it was recorded
    std::uint16_t flags = 0;
    std::uint16_t n_channels = 0;
    std::uint16_t batch = 0; // operations of its launch
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    std::uint8_t datatype = 0;
    std::uint8_t algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
    std::uint8_t protocol = CW_NCCL_PROTOCOL_UNKNOWN;
    Rung rung = Rung::Exact;
    SeqBase seq_base = SeqBase::Creation;
    std::uint8_t sources = 0; // bits by ByteSource
    std::uint8_t tiers = 0;   // bits by topology::Tier
    EndKnown end_known = EndKnown::No;
    bool crosses_nodes = false; // if it is launched, some of it goes over the network

    [[nodiscard]] bool has(std::uint16_t flag) const { return (flags & flag) != 0; }
};

// What became of a call.
struct CallJoin {
    Index operation = NONE;      // the first of the replays of a captured one
    std::uint32_t launch = NONE; // the first
    std::uint32_t launches = 0;
    Rung rung = Rung::Process;
};

inline constexpr std::uint8_t NO_CHANNEL = UINT8_MAX; // not known

struct ShapeOp {
    Index link = NONE;
    std::uint32_t task = 0; // index in the launch
    std::int32_t peer = -1;
    std::uint8_t channel = 0;
    bool is_local = false;             // its connection is not over the network
    bool is_known = false;             // the three below
    bool is_bound = false;             // payload_bytes is no more than a bound
    bool has_unknown_messages = false; // how many they are is a guess
    bool is_continued = false;         // of the same operation of the proxy as the one before
    std::uint8_t chunk_steps = 0;
    std::uint32_t nsteps = 0;
    Index connection = NONE; // in Gathered
    std::uint32_t kind = 0;  // of an assumed one: those with equal arguments have one
    std::uint64_t payload_bytes = 0;
    std::uint64_t data_bytes = 0;
    std::uint64_t messages = 0;
};

struct Shape {
    std::vector<cw_nccl_shape_task> tasks;
    std::vector<std::uint16_t> task_channels; // of the operations of each, in its first launch
    std::vector<ShapeOp> ops;
    bool is_complete = false;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN; // of its operations, where it has no tasks
    std::uint8_t algorithm = CW_NCCL_ALGORITHM_UNKNOWN;
    std::uint8_t protocol = CW_NCCL_PROTOCOL_UNKNOWN;
    bool is_p2p = false;
    // Before 2.24 operations do not say of which task they are: the tasks are made up, one for all
    // collectives and one for each peer and direction.
    bool is_older = false;
    bool is_assumed = false;          // of a call whose launch was not recorded
    std::vector<OpFacts> older_facts; // of each operation, until calls are matched
};

enum class IntervalKind : std::uint8_t {
    Checked,  // what was measured is what the operations make
    Single,   // one operation: what was measured is its
    Excess,   // more was measured than they make
    Shortage, // less was measured than they make
    Unknown,  // of one operation at least it is not known what it makes
    InFlight, // the recording ended before all was sent
    Derived,  // nothing was measured
};

// A stretch of a link's time at whose ends all that was launched was done.
struct Interval {
    std::uint32_t begin = 0; // order of launches
    std::uint32_t end = 0;
    std::uint64_t derived_bytes = 0; // of those that are known, net_socket's headers included
    std::uint64_t bound_bytes = 0;   // of the others
    std::uint64_t measured_bytes = 0;
    std::uint64_t wire_bytes = 0; // of those, where frames were counted
    std::uint64_t n_ops = 0;
    std::uint64_t n_unknown = 0;
    std::uint64_t most_bytes = 0; // of one operation
    IntervalKind kind = IntervalKind::Derived;
    bool is_first = false; // of a link that was there before the recording
    // A launch before its end was not seen whole: its bytes may be among those measured.
    bool is_disturbed = false;
    bool is_under_way = false; // the recording ended before it
    // Of an assumed link: what each of its operations carried is known by their kinds.
    bool is_solved = false;
    // InFlight: where the measured bytes end.
    std::uint32_t last_order = 0;
    std::uint32_t last_op = 0;
    std::uint64_t last_bytes = 0;
};

// What carries the operations of a connection, or of several: the same queue pairs or sockets.
struct Link {
    Index session = NONE;
    std::uint32_t tgid = 0;
    std::uint32_t transport = CW_NCCL_TRANSPORT_UNKNOWN;
    std::uint32_t flags = 0;        // enum cw_nccl_connection_flags, of all its connections
    std::vector<Index> connections; // in Gathered
    std::vector<Index> qps;         // in Model
    std::vector<Index> sockets;     // in Gathered: data, or control where there is no other
    bool has_size_headers = false;  // net_socket's, on the same sockets
    std::vector<Index> instances;   // that use it
    std::int32_t rank = -1;         // as its connections have it: of the owner of the resources
    std::int32_t peer = -1;
    std::vector<std::int32_t> channels;
    Rung rung = Rung::Exact;
    bool is_mirrored = false;   // known from the other end alone
    bool is_by_bytes = false;   // its queue pairs were chosen by what they carried
    bool is_assumed = false;    // no record tells of it: by_lineage.h
    bool is_unsolvable = false; // operations on it are left out: assumed_launches.h
    std::map<std::uint32_t, std::uint64_t> bytes_of_kind; // of an assumed one: of each operation
    // Its last bytes may be missing from what was measured, or those of one of its sockets.
    bool is_cut_short = false;
    // Of its queue pairs, and how many bytes of all it carried over each.
    std::vector<std::pair<topology::Tier, std::uint64_t>> tiers;
    ByteSource source = ByteSource::None; // of what was measured
    std::uint64_t measured_bytes = 0;     // of all its time in the recording
    std::uint64_t attributed_bytes = 0;   // of operations
    std::uint64_t attributed_wire_bytes = 0;
    std::uint64_t attributed_header_bytes = 0; // net_socket's, of what it carried of operations
    std::uint64_t greeting_bytes = 0;          // what net_socket says on a new socket
    Known wire_bytes;
    std::uint64_t begin_ns = 0;
    std::uint64_t measured_from_ns = 0; // 0: from the start
    std::vector<Interval> intervals;

    [[nodiscard]] bool is_send() const { return (flags & CW_NCCL_CONNECTION_SEND) != 0; }
    // What a plugin does is known where its queue pairs are, what is assumed has some, and of
    // CollNet never.
    [[nodiscard]] bool is_followed() const {
        return transport == CW_NCCL_TRANSPORT_IB || transport == CW_NCCL_TRANSPORT_SOCKET ||
               (transport == CW_NCCL_TRANSPORT_PLUGIN && !qps.empty()) || is_assumed;
    }
    // They may be among those of no known connection, or of one that is known from its other end.
    [[nodiscard]] bool lacks_queue_pairs() const {
        return transport == CW_NCCL_TRANSPORT_IB && !is_mirrored && (qps.empty() || is_cut_short);
    }
};

struct QpIdentity {
    Role role = Role::None;
    Rung rung = Rung::Process;
    Index link = NONE;
    bool is_of_nccl = false; // of a process that runs NCCL
    // Where nothing measured it, and its connection has no other: what the operations come to.
    Known derived_payload_bytes;
};

struct SocketIdentity {
    Index link = NONE;                 // its connection; NONE: none is known
    std::uint16_t role = 0;            // enum cw_nccl_role, of its connection
    Index peer = NONE;                 // in Gathered: the other end
    Index port = NONE;                 // in Model: whose interface has its address
    std::string remote_host;           // empty: not known
    std::uint64_t counted_from_ns = 0; // 0: from when it was opened
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
    bool lacks_wire_bytes = false; // of some they are not known

    void add(std::uint64_t payload, const Known &wire);
};

// First-transmission data payload on the connections of NCCL's own networks, and of plugins whose
// queue pairs are known, each byte once.
struct Totals {
    bool is_known = false;
    std::array<std::uint64_t, RUNGS> by_rung{};
    std::array<std::uint64_t, BYTE_SOURCES> by_source{};
    // Of those that are inferred: measured, and what was measured on the connection between two
    // moments at which all was done is what NCCL's own plan makes of the operations, or can be of
    // one alone of which it makes a bound. Not of queue pairs that were chosen by that. Where calls
    // alone were recorded: is what other stretches of the connection say of such calls.
    std::uint64_t confirmed_bytes = 0;
    std::uint64_t links_not_measured = 0;
    // In none of these sums: of queue pairs of no known connection, in processes whose connections
    // lack some. They may be bytes that are in the sums already.
    Known perhaps_counted_bytes;
};

// That NCCL closed. Without any it is not known what there was.
struct ControlSockets {
    std::uint64_t sockets = 0;
    std::uint64_t payload_bytes = 0; // that they sent
};

// Not data.
struct Control {
    Known clear_to_send_payload_bytes, clear_to_send_wire_bytes;
    Known flush_payload_bytes, flush_wire_bytes;
    Known ack_wire_bytes;
    Known socket_header_bytes; // net_socket's sizes, and what it says when it connects
    Known other_socket_bytes;  // of sockets that were watched as a connection's and are none
    std::array<ControlSockets, CW_NCCL_SOCKET_TYPES> sockets; // by enum cw_nccl_socket_type
};

// Launches of no operation: no call was found for them, or they are replays that are not listed.
struct UnlistedLaunches {
    Index instance = NONE;
    std::uint8_t func = CW_NCCL_FUNC_UNKNOWN;
    bool captured = false;
    std::uint64_t launches = 0;
    Known payload_bytes = 0; // of all of them
    Rung rung = Rung::Exact; // the weakest of those bytes
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
    bool recorded = false; // one of the recordings that are used recorded NCCL
    std::vector<Instance> instances;
    std::map<std::pair<Index, std::uint32_t>, std::vector<Index>>
        params_of_process;                   // session, tgid
    std::vector<Communicator> communicators; // by creation
    std::vector<Operation> collectives;      // by communicator, seq, replay
    std::vector<Operation> p2p;
    std::vector<std::vector<CallJoin>> call_joins;      // by stream and call
    std::vector<std::vector<std::uint32_t>> task_calls; // by stream and task: call; NONE: none
    std::vector<Shape> shapes;
    std::vector<Link> links;
    std::vector<QpIdentity> qps;         // by Model::qps
    std::vector<SocketIdentity> sockets; // by Gathered::sockets
    // Of operations over several tiers: payload and wire bytes by tier. Key: p2p or not, index.
    std::map<std::pair<bool, Index>,
             std::array<std::pair<std::uint64_t, std::uint64_t>, model::TIERS>>
        bytes_by_tier;
    std::map<std::pair<Index, topology::Tier>, MatrixCell> tiers; // of communicators' operations
    std::map<MatrixKey, MatrixCell> matrix;
    Totals totals;
    Control control;
    std::vector<UnlistedLaunches> unjoined; // of no known call
    std::vector<UnlistedLaunches> replays;  // beyond those of their calls that are operations
    std::uint64_t ops_truncated = 0;        // launches with more operations than were walked
    std::uint64_t launches_unreadable = 0;  // of no known shape
    std::uint64_t replays_left_out = 0;     // of captured operations: too many to be one each
    std::uint64_t orphans = 0;              // calls and launches of no known communicator
    std::vector<Finding> findings;          // the loudest first
    std::vector<NcclError> errors;          // by time
};

} // namespace collwire::nccl
