// SPDX-License-Identifier: Apache-2.0
// What the processes of one node were doing in NCCL at two looks, a moment apart: communicators,
// operations that are under way, threads, network cards. Filled in from the outside by
// userspace/inspect/, or from the JSON of docs/inspect.md. What could not be read is absent, never
// 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace collwire::inspect {

// What an operation waits for on one connection: what NCCL's own counters and buffers say.
enum class Wait {
    Done,    // all of its steps are
    Queued,  // an operation before it on its connection
    Moving,  // a counter changed between the looks
    Gpu,     // the kernel of this rank has not given, or not taken, the next step
    Credit,  // the peer has not said where there is room
    Sender,  // nothing arrives: the peer has not sent, or the network has not delivered
    Network, // what was given to the network is not done
    Flush,   // what arrived is not yet visible to the GPU
    Proxy,   // the proxy thread itself could go on, and does not
    Unknown, // what would tell could not be read
};

// Steps of an operation on a connection, each count from its begin on.
struct Progress {
    std::uint64_t posted = 0;
    std::uint64_t received = 0; // of a receiver
    std::uint64_t transmitted = 0;
    std::uint64_t done = 0;
    friend bool operator==(const Progress &, const Progress &) = default;
};

// What the next step's slot of a sender's buffer says.
enum class Slot {
    Unknown,
    Empty,   // the kernel has not given it
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
    // Of a socket, at the second look.
    std::optional<std::uint64_t> unread_bytes, unsent_bytes, unacked_segments;
    std::optional<std::uint64_t> timeouts; // in a row: what was sent again is not acknowledged
    // And between the looks.
    std::optional<std::uint64_t> acked_bytes, received_bytes, retransmitted_bytes;
};

// An operation on one connection: NCCL's ncclProxySubArgs.
struct Transfer {
    bool is_send = false;
    std::int32_t rank = -1; // of the communicator that the connection was made for
    std::int32_t peer = -1;
    std::int32_t channel = -1;
    std::int32_t conn_index = -1; // NCCL's own: 0 of collectives, 1 of sends and receives
    std::uint64_t connection = 0; // its address
    std::string transport;        // NET/IB, NET/Socket, ...
    std::uint64_t nsteps = 0;
    std::uint64_t base = 0;             // steps of the connection before this operation
    std::uint64_t max_depth = 8;        // steps that the proxy lets be under way
    std::optional<std::int64_t> nbytes; // NCCL's own field: what it bounds depends on the version
    std::optional<std::int64_t> loop_size; // from 2.24 on
    Progress first, last;                  // at either look
    bool was_there = false;                // at the first look; else it began between them
    Slot slot = Slot::Unknown;             // of a sender
    std::optional<std::uint64_t> taken;    // of a receiver: steps that the kernel has taken
    std::optional<bool> has_credit;        // of a sender over NET/IB
    // Of a receiver into memory of the program's own: whether the kernel has begun, before which
    // nothing may be received.
    std::optional<bool> is_kernel_there;
    std::vector<Endpoint> endpoints;
    Wait wait = Wait::Unknown; // see judge()
};

// NCCL's ncclProxyArgs: what a proxy works on together.
struct Operation {
    std::uint64_t address = 0;
    std::uint64_t op_count = 0; // NCCL's own number
    bool is_p2p = false;
    bool is_begun = false;         // else the proxy has it and did nothing of it yet
    bool is_queued = false;        // behind another operation on its connection
    std::uint64_t slice_steps = 1; // that a message has
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
    std::string bus_id;                    // 0000:1b:00.0
    std::uint64_t proxy_state = 0;         // equal: operations of these are not told apart
    bool is_shared = false;                // shares connections and counters with its parent
    std::optional<std::uint64_t> launched; // collectives, as NCCL counts them
    // From 2.26 on also by function: Broadcast, Reduce, AllGather, ReduceScatter, AllReduce.
    std::optional<std::array<std::uint64_t, 5>> launched_by_function;
    std::optional<std::uint64_t> starts; // of plans with something for the network
    std::string async_result;            // ncclSuccess, ...; empty: not read
    std::optional<bool> is_aborted, is_revoked, is_finalized;
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

// One end of a connection on which nothing is under way.
struct IdleConnection {
    bool is_send = false;
    std::int32_t rank = -1, peer = -1, channel = -1, conn_index = -1;
    std::uint64_t steps = 0; // that it has done in its life: both ends count alike
};

// A proxy of a process, and what it has to do.
struct Proxy {
    std::uint64_t address = 0;
    std::int32_t rank = -1;                          // of the communicator that it was made for
    std::uint32_t service_tid = 0, progress_tid = 0; // 0: not known
    std::string async_result;
    std::vector<Operation> operations; // at the second look
    std::vector<IdleConnection> idle;  // the other connections that did anything yet
    bool is_cut = false;               // there was more than is looked at
};

struct Thread {
    std::uint32_t tid = 0;
    std::string name;
    std::string role; // main, service, progress; empty: another one
    char state = '?'; // R running, S sleeping, D waits in the kernel, T stopped, Z ended, ...
    std::string wait_channel;       // empty: none, or not to be read
    std::vector<std::string> stack; // of the kernel, innermost first
    // Between the looks.
    std::optional<std::uint64_t> run_ns, runnable_ns; // on a CPU, waiting for one
};

// Of the cgroup of a process, or of one above it that was throttled most.
struct Throttling {
    std::string cgroup;
    std::uint64_t periods = 0;      // throttled ones, between the looks
    std::uint64_t throttled_ns = 0; // between the looks
};

struct Library {
    std::string path;
    std::string version;
    std::string build_id;
    std::string source;  // what its layouts are from
    std::string problem; // why nothing of it can be read; empty: all is
};

// A network plugin of a process: NCCL's own networks are none.
struct Network {
    std::string plugin;              // as it calls itself; empty: not known
    std::string file;                // that its functions are in; empty: not known
    std::uint64_t n_connections = 0; // ends of connections of the process
};

struct Process {
    std::uint32_t pid = 0;
    std::uint64_t start_ticks = 0; // since boot
    std::string command;
    std::string slurm_job, pod_uid;
    std::string problem; // why there is no more; empty: nothing is missing
    std::vector<Library> libraries;
    std::vector<Network> networks;
    std::vector<Communicator> communicators;
    std::vector<Proxy> proxies;
    std::vector<Thread> threads; // those that matter
    std::uint32_t n_threads = 0;
    std::optional<Throttling> throttling; // none: no cgroup of it is limited
    std::string last_error;               // NCCL's, of the process; empty: none
    bool was_scanned = false; // its memory was looked through for communicators: there is no list
    bool is_cut = false;      // there was more than is looked at
};

// Of an RDMA device.
struct Port {
    std::string device;
    std::uint32_t port = 0;
    std::string netdev;                              // empty: none
    std::string state;                               // ACTIVE, DOWN, ...; empty: not known
    std::optional<std::uint64_t> tx_bytes, rx_bytes; // between the looks
    struct Change {
        std::string counter;
        std::uint64_t by = 0;
    };
    std::vector<Change> changes; // of its other counters, between the looks
};

struct Inspection {
    std::string host;
    std::string boot_id;
    std::string tool_version;
    std::uint64_t realtime_ns = 0; // of the second look
    std::uint64_t between_ns = 0;  // the looks
    std::vector<Process> processes;
    std::vector<Port> ports;
};

} // namespace collwire::inspect
