// SPDX-License-Identifier: Apache-2.0
// One process with NCCL in it, at two looks.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "correlate/inspect/inspection.h"
#include "userspace/inspect/endpoints.h"
#include "userspace/inspect/images.h"
#include "userspace/inspect/nccl_calls.h"
#include "userspace/inspect/proxy_reader.h"
#include "userspace/inspect/threads.h"
#include "userspace/nccl/memory/comm_copies.h"
#include "userspace/nccl/memory/live_comms.h"

namespace collwire::inspect {

class ProcessLook {
public:
    // `images` must outlive it.
    ProcessLook(pid_t pid, const std::vector<Image> &images, std::vector<UsedImage> used);

    // Communicators and connections: takes longest, and comes before the looks. Processes come
    // after those that they were forked from, whose communicators are in `copies`. Memory is
    // looked through for communicators no longer than until `scan_until`.
    void prepare(nccl::CommCopies &copies, std::chrono::steady_clock::time_point scan_until);
    void first_look();
    void second_look(const QueuePairs &queue_pairs);
    // Network plugins, and the queue pairs of what is under way through them: takes long, and comes
    // after the looks.
    void look_at_plugins(const QueuePairs &queue_pairs);

    [[nodiscard]] bool has_queue_pairs() const { return has_queue_pairs_; }
    // Nothing of NCCL is in it but the file.
    [[nodiscard]] bool is_bare() const {
        return process_.communicators.empty() && process_.problem.empty() &&
               process_.unready.empty() && process_.roots.empty() && process_.calls.empty();
    }
    [[nodiscard]] Process take() { return std::move(process_); }

private:
    struct Comm {
        std::size_t used = 0; // index of its image
        cw_nccl_comm comm{};
        std::optional<bool> was_pool_empty; // at the first look
    };
    struct LookedProxy {
        std::size_t used = 0;
        std::uint64_t address = 0;
        Proxy first;
        std::vector<cw_nccl_connection> connections; // one record of each
    };

    [[nodiscard]] const Image &image_of(std::size_t used) const {
        return images_[used_[used].image];
    }
    void add_comm(std::size_t used, const nccl::LiveComm &live);
    void read_rings(std::size_t used, const cw_nccl_comm &comm, Communicator &into);
    void read_comm_again(const Comm &comm, Communicator &into);
    void read_last_error(std::size_t used);
    void find_threads(const LookedProxy &looked, Proxy &proxy,
                      std::map<std::uint32_t, std::string> &roles);
    void read_idle(const LookedProxy &looked, Proxy &proxy);
    void read_calls();
    void read_pools();
    void read_networks();
    void describe_endpoints(Proxy &proxy, const QueuePairs &queue_pairs, const SocketLook &sockets);
    void say_why_empty();

    const std::vector<Image> &images_;
    std::vector<UsedImage> used_;
    process::ProcessView view_;
    Process process_;
    std::vector<Comm> comms_;
    std::vector<LookedProxy> proxies_;
    std::map<std::uint64_t, std::vector<Endpoint>> endpoints_; // by address of the connection
    std::vector<std::uint64_t> inodes_;
    bool has_queue_pairs_ = false;
    std::map<std::uint32_t, ThreadTimes> thread_times_;
    std::map<std::string, ThrottledTimes> throttled_;
    SocketLook sockets_;
    NcclCalls calls_;
    std::vector<std::uint64_t> scanned_; // addresses of communicators
};

} // namespace collwire::inspect
