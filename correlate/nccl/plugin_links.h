// SPDX-License-Identifier: Apache-2.0
// Which queue pairs are whose, of connections that go through a network plugin. Nothing of it is
// more than inferred.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "correlate/model/model.h"

namespace collwire::identity {

[[nodiscard]] inline bool is_found(const cw_nccl_connection &connection) {
    return (connection.flags & CW_NCCL_CONNECTION_FOUND) != 0;
}

// Of queue pairs that pointers lead to from several connections' objects: whose they are.
class PluginOwners {
public:
    // `depth`: how many pointers lead from the object `net_comm` to the queue pair.
    void add(Index qp, std::uint64_t net_comm, std::uint8_t depth);
    // From no other object do as few pointers lead there. False of NONE.
    [[nodiscard]] bool is_of(Index qp, std::uint64_t net_comm) const;

private:
    struct Owner {
        std::uint64_t net_comm = 0;
        std::uint8_t depth = 0;
        bool is_several = false;
    };
    std::unordered_map<Index, Owner> owners_;
};

// Gives connections of plugins that have no queue pairs the other ends of those that the connection
// has at its other end. Needs the connections of find_links.
void give_plugins_other_ends(model::Model &model);

// Gives those that have none yet those that the two processes have with
// one another: a queue pair that carried as many bytes as the operations on a connection come to.
// Where several connections come to the same, as many queue pairs as there are of them, in the
// order in which they were made: NCCL sets connections up by channel. Else none of these gets one.
// Needs the links of find_links, the bytes of read_shapes, and instances.
void give_plugins_queue_pairs(model::Model &model);

} // namespace collwire::identity
