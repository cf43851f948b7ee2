// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <unordered_map>

namespace collwire::nccl {

// Owners of queue pairs that several connections' objects point to.
class PluginOwners {
public:
    // `depth`: number of pointers from the object `net_comm` to the queue pair.
    void add(std::uint32_t qp, std::uint64_t net_comm, std::uint8_t depth) {
        const auto [found, is_new] = owners_.try_emplace(qp, Owner{net_comm, depth, false});
        Owner &owner = found->second;
        if (!is_new && depth < owner.depth)
            owner = {net_comm, depth, false};
        else if (depth == owner.depth && owner.net_comm != net_comm)
            owner.is_several = true;
    }
    // This object has the shortest pointer path to it. False if it was not added.
    [[nodiscard]] bool is_of(std::uint32_t qp, std::uint64_t net_comm) const {
        const auto found = owners_.find(qp);
        return found != owners_.end() && found->second.net_comm == net_comm &&
               !found->second.is_several;
    }

private:
    struct Owner {
        std::uint64_t net_comm = 0;
        std::uint8_t depth = 0;
        bool is_several = false;
    };
    std::unordered_map<std::uint32_t, Owner> owners_;
};

} // namespace collwire::nccl
