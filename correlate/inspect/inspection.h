// SPDX-License-Identifier: Apache-2.0
// The state of one node's processes in NCCL at two samples, a moment apart: communicators,
// operations in flight, threads, NICs. Filled in from outside by userspace/inspect/, or from the
// JSON of docs/inspect.md. A value that could not be read is absent, never 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace collwire::inspect {

// What an operation waits for on one connection, by NCCL's own counters and buffers.
enum class Wait {
    Done,    // all steps are complete
    Queued,  // for an earlier operation on its connection
    Moving,  // a counter changed between the samples
    Gpu,     // this rank's kernel has not provided, or not taken, the next step
    Credit,  // the peer has not sent clear-to-send
    Sender,  // no data arrives: the peer has not sent, or the network has not delivered
    Network, // a send that the network has not completed
    Flush,   // received data is not yet visible to the GPU
    Proxy,   // the proxy thread has work to do and does not do it
    Unknown, // the deciding state could not be read
};

// Steps of an operation on a connection, each counted from its start.
struct Progress {
    std::uint64_t posted = 0;
    std::uint64_t received = 0; // of a receiver
    std::uint64_t transmitted = 0;
    std::uint64_t done = 0;
    friend bool operator==(const Progress &, const Progress &) = default;
};

// State of the next step's slot in a sender's buffer.
enum class Slot {
    Unknown,
    Empty,   // the kernel has not filled it
    Partial, // LL, LL128: not all of its flags are set
    Filled,
};

// A queue pair, or a socket, of a connection.
struct Endpoint {
    bool is_socket = false;
    std::uint32_t number = 0; // queue pair number, descriptor
    std::uint64_t inode = 0;  // of a socket; 0: not known
    std::string role;         // data, clear_to_send, flush, control
    std::string device;       // of a queue pair: mlx5_0; empty: not known
    std::uint32_t port = 0;   // of the device; 0: not known
    std::string state;        // RTS, ERR, ...; of a socket ESTABLISHED, ...; empty: not known
    std::optional<std::uint32_t> remote_qpn;
    std::string local, remote; // of a socket: address and port
    // Of a socket, at the second sample.
    std::optional<std::uint64_t> unread_bytes, unsent_bytes, unacked_segments;
    std::optional<std::uint64_t> timeouts; // in a row: retransmissions without an acknowledgement
    // And between the samples.
    std::optional<std::uint64_t> acked_bytes, received_bytes, retransmitted_bytes;
};

// An operation on one connection: NCCL's ncclProxySubArgs.
struct Transfer {
    bool is_send = false;
    std::int32_t rank = -1; // of the communicator that owns the connection
    std::int32_t peer = -1;
    std::int32_t channel = -1;
    std::int32_t conn_index = -1; // NCCL's own: 0 for collectives, 1 for sends and receives
    std::uint64_t connection = 0; // its address
    std::string transport;        // NET/IB, NET/Socket, ...
    std::uint64_t nsteps = 0;
    std::uint64_t base = 0;                // steps of the connection before this operation
    std::uint64_t max_depth = 8;           // most steps that the proxy keeps in flight
    std::optional<std::int64_t> nbytes;    // NCCL's own field: its meaning depends on the version
    std::optional<std::int64_t> loop_size; // from 2.24 on
    Progress first, last;                  // at the two samples
    bool was_there = false;                // at the first sample; else it started between them
    Slot slot = Slot::Unknown;             // of a sender
    std::optional<std::uint64_t> taken;    // of a receiver: steps that the kernel has taken
    std::optional<bool> has_credit;        // of a sender over NET/IB
    // For a receiver into user memory: whether the kernel has started; before that nothing may be
    // received.
    std::optional<bool> is_kernel_there;
    std::vector<Endpoint> endpoints;
    Wait wait = Wait::Unknown; // see judge()
};

// NCCL's ncclProxyArgs: transfers that a proxy progresses together.
struct Operation {
    std::uint64_t address = 0;
    std::uint64_t op_count = 0; // NCCL's own number
    bool is_p2p = false;
    bool is_begun = false;         // else the proxy has not started it
    bool is_queued = false;        // after another operation on its connection
    std::uint64_t slice_steps = 1; // per message
    std::string function;          // AllReduce, ...; empty: not known
    std::string algorithm;         // before 2.24 not known
    std::string protocol;
    std::string datatype;
    std::string reduction;
    std::string pattern; // Ring, TreeUpDown, Send, ...
    std::vector<Transfer> transfers;
};

struct Communicator {
    std::uint64_t address = 0;
    std::uint64_t hash = 0;
    std::string name;
    std::int32_t rank = -1, n_ranks = 0;
    std::int32_t node = -1, n_nodes = 0, local_rank = -1, local_ranks = 0;
    std::int32_t device = -1;
    std::string bus_id;            // 0000:1b:00.0
    std::uint64_t proxy_state = 0; // equal for communicators whose operations cannot be separated
    bool is_shared = false;        // shares connections and counters with its parent
    std::optional<std::uint64_t> launched; // collectives, by NCCL's own count
    // From 2.26 on also by function: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce.
    std::optional<std::array<std::uint64_t, 5>> launched_by_function;
    std::optional<std::uint64_t> starts; // kernel plans with a network part
    std::optional<bool> has_launched;    // between the samples
    // Captured launches that CUDA graphs hold: NCCL does not end the communicator before.
    std::optional<std::uint64_t> graph_refs;
    std::string async_result; // ncclSuccess, ...; empty: not read
    std::optional<bool> is_aborted, is_revoked, is_finalized;
    std::optional<bool> is_destroyed; // the program has called ncclCommDestroy or ncclCommAbort
    std::uint64_t n_connections = 0;
    struct Ring {
        std::int32_t channel = -1, prev = -1, next = -1;
    };
    std::vector<Ring> rings;
    struct Tree {
        std::int32_t channel = -1, up = -1;
        std::array<std::int32_t, 3> down{-1, -1, -1};
    };
    std::vector<Tree> trees;
};

// One end of a connection with no operation in flight.
struct IdleConnection {
    bool is_send = false;
    std::int32_t rank = -1, peer = -1, channel = -1, conn_index = -1;
    std::uint64_t steps = 0; // completed since it was created: both ends count alike
};

// A proxy of a process and its operations.
struct Proxy {
    std::uint64_t address = 0;
    std::int32_t rank = -1;                          // of the communicator that owns it
    std::uint32_t service_tid = 0, progress_tid = 0; // 0: not known
    std::string async_result;
    std::vector<Operation> operations; // at the second sample
    std::vector<IdleConnection> idle;  // other connections that have been used
    bool is_cut = false;               // it has more operations than collwire reads
    // Whether the pool of proxy operations of a rank of this process is empty at both samples: the
    // rank waits in NCCL until the proxy returns operations.
    std::optional<bool> is_pool_empty;
};

// How far the making of a communicator has come.
enum class Phase {
    Unknown,
    Start,      // before the bootstrap: the GPU, the networks
    Root,       // asks the bootstrap root for its next rank in the ring
    Parent,     // exchanges with all ranks of its parent, then asks its next rank there
    Ring,       // connects to its neighbours in the ring
    Exchange,   // all ranks' addresses go around the ring
    Transports, // topology, channels, connections of the transports
};

// A rank without which the making of a communicator does not continue.
struct Awaited {
    std::int32_t rank = -1; // of the new communicator; -1: the bootstrap root
    std::string address;    // empty: not known
    std::string reason;     // without a full stop
};

// A communicator that its process is making.
struct UnreadyComm {
    std::uint64_t address = 0;
    std::uint64_t hash = 0;  // 0: not set yet
    std::uint64_t magic = 0; // of its bootstrap, equal on all ranks; 0: not set yet
    std::int32_t rank = -1, n_ranks = 0;
    std::int32_t device = -1;
    Phase phase = Phase::Unknown;
    std::vector<Awaited> awaits;
    std::string root;                         // address of the bootstrap root; empty: not known
    std::uint64_t parent = 0;                 // address; 0: none, or not known
    std::optional<std::uint64_t> parent_hash; // of a split
    std::uint32_t tid = 0;                    // that makes it; 0: not known
    std::optional<std::uint64_t> for_ns;      // since NCCL started the thread that makes it
    std::string async_result;                 // ncclInProgress, ...; empty: not read
};

// A bootstrap root: the thread where the ranks of a new communicator report.
struct BootstrapRoot {
    std::uint32_t tid = 0;
    std::int32_t n_ranks = 0;              // 0: no rank has come, or not known
    std::optional<std::int32_t> last_rank; // that came
};

// A thread in NCCL's host code at both samples.
struct NcclCall {
    std::uint32_t tid = 0;
    std::string function;            // of nccl.h; empty: not known
    std::vector<std::string> inside; // functions of NCCL below it, innermost first
    std::uint64_t comm = 0;          // address of a communicator on its stack; 0: none
};

struct Thread {
    std::uint32_t tid = 0;
    std::string name;
    std::string role; // main, service, progress; empty: another one
    char state = '?'; // R running, S sleeping, D waits in the kernel, T stopped, Z exited, ...
    std::string wait_channel;       // empty: none, or not readable
    std::vector<std::string> stack; // of the kernel, innermost first
    // Between the samples.
    std::optional<std::uint64_t> run_ns, runnable_ns; // on a CPU, waiting for one
};

// Of a process's cgroup, or of its most throttled ancestor.
struct Throttling {
    std::string cgroup;
    std::uint64_t periods = 0;      // throttled ones, between the samples
    std::uint64_t throttled_ns = 0; // between the samples
};

struct Library {
    std::string path;
    std::string version;
    std::string build_id;
    std::string source;  // where its layout comes from
    std::string problem; // what could not be read, and why; empty: all was read
};

// A network plugin of a process; excludes NCCL's own networks.
struct Network {
    std::string plugin;              // by its own name; empty: not known
    std::string file;                // with its functions; empty: not known
    std::uint64_t n_connections = 0; // connection ends of the process
};

struct Process {
    std::uint32_t pid = 0;
    std::uint64_t start_ticks = 0; // since boot
    std::string command;
    std::uint32_t namespace_pid = 0; // its pid in its own namespace; 0: not known
    std::string slurm_job, slurm_step, pod_uid, container_id; // empty: none
    std::string problem; // why the rest is missing; empty: complete
    std::vector<Library> libraries;
    std::vector<Network> networks;
    std::vector<Communicator> communicators;
    std::vector<UnreadyComm> unready;
    std::vector<BootstrapRoot> roots;
    std::vector<NcclCall> calls;
    std::vector<Proxy> proxies;
    std::vector<Thread> threads; // the relevant ones
    std::uint32_t n_threads = 0;
    std::optional<Throttling> throttling; // absent: no CPU limit applies
    std::string last_error;               // NCCL's, of the process; empty: not known
    bool was_scanned = false; // its memory was searched for communicators: this NCCL has no list
    bool is_cut = false;      // it has more than collwire reads
};

// A port of an RDMA device.
struct Port {
    std::string device;
    std::uint32_t port = 0;
    std::string netdev;                              // empty: none
    std::string state;                               // ACTIVE, DOWN, ...; empty: not known
    std::optional<std::uint64_t> tx_bytes, rx_bytes; // between the samples
    struct Change {
        std::string counter;
        std::uint64_t by = 0;
    };
    std::vector<Change> changes; // of its other counters, between the samples
};

struct Inspection {
    std::string host;
    std::string boot_id;
    std::string tool_version;
    std::uint64_t realtime_ns = 0; // of the second sample
    std::uint64_t between_ns = 0;  // the two samples
    std::vector<Process> processes;
    std::vector<Port> ports;
};

} // namespace collwire::inspect
