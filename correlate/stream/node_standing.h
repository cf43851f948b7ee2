// SPDX-License-Identifier: Apache-2.0
// Takes the records of one recording of a node, of the last part of it, and says where its ranks
// stood. Only for NCCL that counts its collectives in each launch (2.24 and later).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/record.h"
#include "correlate/capture/reader.h"
#include "correlate/model/model.h"
#include "correlate/nccl/connection_times.h"
#include "correlate/stream/rank_standing.h"

namespace collwire::stream {

class NodeStanding {
public:
    // `job`: only its processes; empty: all.
    explicit NodeStanding(std::string job) : job_(std::move(job)) {}

    // Captures of one recording, its segments in order.
    void add(const cw_header &header, std::span<const std::byte> record);
    void end_capture(const capture::ReadSummary &summary);

    // Nothing more comes.
    [[nodiscard]] NodeSeen finish();

private:
    using Address = std::pair<std::uint32_t, std::uint64_t>; // process; object in it
    struct Hash {
        std::size_t operator()(const Address &key) const {
            return static_cast<std::size_t>((key.second ^ (std::uint64_t{key.first} << 20U)) *
                                            0x9e3779b97f4a7c15U);
        }
    };
    struct Call {
        std::uint64_t time_ns = 0;
        std::int32_t reduction = 0;
        bool is_failed = false;
        CallArguments arguments;
    };
    struct Launch {
        std::uint64_t time_ns = 0;
        std::uint64_t shape = 0;
        std::uint64_t launched = 0;
        bool is_counted = false;
    };
    // At one address of a process: one communicator after the other.
    struct Place {
        std::vector<cw_nccl_comm> comms;
        std::vector<std::uint64_t> ends_ns;
        std::vector<Call> calls;
        std::vector<Launch> launches;
    };
    struct ShapeOp {
        std::uint64_t connection = 0;
        std::uint32_t nsteps = 0;
        std::uint32_t chunk_steps = 0;
        std::uint32_t task = 0;
        bool is_there = false;
        bool is_transfer = false;
        bool is_mark = false; // added for NCCL's profiler, carries no data
    };
    struct Shape {
        std::vector<std::uint8_t> funcs; // of tasks
        std::vector<std::int32_t> peers; // of tasks that are sends and receives
        // Of tasks, equal for equal ones. Empty: one task, or not known.
        std::vector<std::uint32_t> ids;
        std::vector<ShapeOp> ops;
    };
    struct Connection {
        bool is_local = false;
        std::uint32_t number = 0; // channel and index, the same at both ends
        std::vector<std::pair<std::uint64_t, std::uint64_t>> makers; // communicator, time
    };
    struct Live {
        Address address;
        const cw_nccl_comm *comm = nullptr;
        bool is_created = false;
        std::uint64_t begin_ns = 0; // calls from here on are its own
        RankStanding standing;
        using Peer = std::pair<std::int32_t, bool>; // and whether it sends
        std::map<Peer, std::vector<TransferCall>> transfers;
        std::map<Peer, std::vector<std::uint64_t>> transfers_ns; // by the node's own clock
        struct Step {
            std::uint64_t end = 0;
            std::uint32_t connection = 0;
        };
        std::map<std::pair<const Launch *, std::uint32_t>, Step> steps; // by task
        std::uint64_t steps_from_ns = 0;                                // of launches from here on
    };
    // The tasks of a kernel plan's last launch.
    struct PlanTasks {
        std::uint64_t launch_ns = 0;
        std::uint64_t shape = 0; // 0: its launch comes later
        std::size_t n_tasks = 0;
        std::vector<std::pair<std::uint32_t, std::uint32_t>> ids; // with the task's index
    };
    // The state of one connection while launches are gone through.
    struct Flow {
        nccl::ConnectionTimes times;
    };

    void add_node(std::span<const std::byte> record);
    void add_state(const cw_header &header, std::span<const std::byte> record);
    void add_nccl(const cw_header &header, std::span<const std::byte> record);
    void add_launch(std::span<const std::byte> record);
    void add_shape_task(std::span<const std::byte> record);
    PlanTasks &tasks_of_plan(std::uint32_t tgid, std::uint64_t plan, std::uint64_t launch_ns);
    void add_tasks(std::uint32_t tgid, PlanTasks &plan, std::uint32_t first,
                   std::span<const cw_nccl_task_ref> tasks);
    void add_shape_ops(std::span<const std::byte> record);
    void add_counters(std::span<const std::byte> record);
    void need_model(const char *why);
    [[nodiscard]] bool is_of_job(std::uint32_t tgid) const;
    [[nodiscard]] std::uint64_t until_ns(std::uint32_t tgid) const;
    [[nodiscard]] std::vector<Live> find_live();
    void check_version(const cw_nccl_comm &comm);
    void count_calls(Live &live);
    void add_transfer(Live &live, const Call &call) const;
    void find_turns(Live &live) const;
    void find_steps_from(Live &live) const;
    void put_steps(Live &live) const;
    void put_transfers(Live &live) const;
    void number_inside(std::vector<Live> &all) const;
    void find_in_flight(std::vector<Live *> &of_process);
    [[nodiscard]] std::vector<nccl::Birth> births_of(std::uint32_t tgid,
                                                     const Connection &connection) const;
    [[nodiscard]] std::optional<std::uint64_t> number_of(const Shape &shape, const Launch &launch,
                                                         std::uint32_t task) const;
    [[nodiscard]] bool uses_network(std::uint32_t tgid, const Shape &shape) const;
    void find_jobs(const std::vector<Live> &all, NodeSeen &seen) const;

    std::string job_;
    model::Host host_;
    model::Session session_;
    bool has_node_ = false;
    std::string needs_model_;
    bool has_network_signs_ = false, has_errors_ = false;
    std::map<std::uint32_t, std::pair<std::uint32_t, bool>> images_; // version, exact operations
    std::map<std::uint32_t, std::string> titles_;                    // of processes' jobs
    std::set<std::uint32_t> of_job_;                                 // processes
    struct Exit {
        std::uint64_t there_ns = 0, gone_ns = 0;
    };
    std::map<std::uint32_t, Exit> exits_;
    std::unordered_map<Address, Place, Hash> places_;
    std::unordered_map<Address, Shape, Hash> shapes_;
    std::unordered_map<Address, PlanTasks, Hash> plans_;
    std::unordered_map<Address, Connection, Hash> connections_;
    std::unordered_map<Address, std::vector<nccl::StepSample>, Hash> steps_;
    std::unordered_map<Address, std::vector<nccl::ProgressEvent>, Hash> progress_;
    std::set<std::string> queue_pairs_, counted_queue_pairs_;
    std::set<std::pair<std::uint64_t, std::uint64_t>> sockets_;
    std::set<std::pair<std::uint32_t, std::uint32_t>> ports_;
    struct Counter {
        bool is_watched = false, has_value = false;
        std::uint64_t value = 0;
    };
    std::unordered_map<std::uint32_t, Counter> counters_;
    Address last_address_{};
    Place *last_place_ = nullptr;
};

} // namespace collwire::stream
