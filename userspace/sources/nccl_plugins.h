// SPDX-License-Identifier: Apache-2.0
// Connections that go through a network plugin: which one, and which queue pairs are theirs. Read
// out of the plugin's own objects, without a probe, once each is known.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "collwire/records.h"

namespace collwire {

class NcclPlugins {
public:
    // Numbers of a process's queue pairs, as the kernel knows them.
    using QpNumbers = std::function<std::unordered_set<std::uint32_t>(std::uint32_t tgid)>;

    explicit NcclPlugins(QpNumbers qp_numbers) : qp_numbers_(std::move(qp_numbers)) {}

    // A connection of a plugin whose queue pairs are not known. `net`: address of the plugin's
    // table of functions; 0: not known.
    void note(const cw_nccl_connection &connection, std::uint32_t image_id, std::uint64_t net);

    struct Found {
        std::vector<cw_nccl_connection> connections; // with all their endpoints
        std::vector<cw_nccl_network> networks;
    };
    // Of those that were noted, as many as there is time for; the others are looked at with the
    // next call. One that leads to no queue pair is tried again, up to MAX_TRIES.
    Found look();
    // There is something to look at, and the last look was a while ago.
    [[nodiscard]] bool is_due() const;
    // All networks that were found, for a new segment of the capture.
    [[nodiscard]] std::vector<cw_nccl_network> networks() const;
    void forget(std::uint32_t tgid);

private:
    struct Noted {
        cw_nccl_connection connection{};
        unsigned tries = 0;
    };
    void look_at_process(std::uint32_t tgid, std::vector<Noted> &noted, std::uint64_t until_ns,
                         Found &found);

    QpNumbers qp_numbers_;
    std::uint64_t looked_ns_ = 0;
    std::map<std::uint32_t, std::vector<Noted>> noted_;                           // by process
    std::map<std::pair<std::uint32_t, std::uint64_t>, cw_nccl_network> networks_; // process, net
    std::set<std::pair<std::uint32_t, std::uint64_t>> unread_;                    // of networks_
};

} // namespace collwire
