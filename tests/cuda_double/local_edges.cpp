// SPDX-License-Identifier: Apache-2.0
// Puts launches that local_edges_test.py took from the double's log through collwire's model of
// the bytes inside a node. Reads and writes lines of words.
//
//   launch VERSION RANKS RANK P2P_CHANNELS     ->  edge TASK SENDER RECEIVER CHANNEL PAYLOAD DATA
//   channel NUMBER PREV NEXT INDEX UP DOWN DOWN DOWN
//   task FUNC ALGORITHM PROTOCOL COUNT DATATYPE BYTES ROOT CHANNELS
//   end                                        ->  not TASK REASON..., end
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "correlate/nccl/local_edges.h"

namespace {

using namespace collwire::nccl;

template <typename T> T word(std::istringstream &line) {
    long long value = 0;
    if (!(line >> value)) {
        fmt::print(stderr,
                   "local_edges: a number is missing. Fix: the lines that its source names\n");
        std::exit(1);
    }
    return static_cast<T>(value);
}

struct Launch {
    LocalComm comm;
    std::vector<cw_nccl_channel> channels;
    std::vector<cw_nccl_shape_task> tasks;
};

void read_channel(std::istringstream &line, Launch &launch) {
    cw_nccl_channel channel{};
    channel.channel = word<std::uint32_t>(line);
    channel.ring_prev = word<std::int32_t>(line);
    channel.ring_next = word<std::int32_t>(line);
    channel.ring_index = word<std::int32_t>(line);
    channel.tree_up = word<std::int32_t>(line);
    for (std::int32_t &down : channel.tree_down)
        down = word<std::int32_t>(line);
    launch.channels.push_back(channel);
}

void read_task(std::istringstream &line, Launch &launch) {
    cw_nccl_shape_task task{};
    task.func = task.api_func = word<std::uint8_t>(line);
    task.algorithm = word<std::uint8_t>(line);
    task.protocol = word<std::uint8_t>(line);
    task.count = word<std::uint64_t>(line);
    task.datatype = word<std::uint8_t>(line);
    task.bytes = word<std::uint64_t>(line);
    task.root = word<std::int32_t>(line);
    task.n_channels = word<std::uint8_t>(line);
    launch.tasks.push_back(task);
}

void answer(Launch &launch) {
    launch.comm.channels = launch.channels;
    const auto modelled = model_launch(launch.comm, launch.tasks);
    for (std::size_t task = 0; task < modelled.size(); ++task) {
        if (modelled[task].reason != NotModelled::No)
            fmt::print("not {} {}\n", task, name_of(modelled[task].reason));
        for (const LocalEdge &edge : modelled[task].edges)
            fmt::print("edge {} {} {} {} {} {}\n", task, edge.sender, edge.receiver,
                       edge.channel == ALL_CHANNELS ? -1 : int{edge.channel}, edge.payload_bytes,
                       edge.data_bytes);
    }
    fmt::print("end\n");
}

} // namespace

int main() {
    Launch launch;
    for (std::string text; std::getline(std::cin, text);) {
        std::istringstream line(text);
        std::string kind;
        line >> kind;
        if (kind == "launch") {
            launch = {};
            launch.comm.version = word<std::uint32_t>(line);
            launch.comm.n_ranks = word<std::int32_t>(line);
            launch.comm.rank = word<std::int32_t>(line);
            launch.comm.p2p_channels = word<std::uint32_t>(line);
            launch.comm.p2p_channels_per_peer = word<std::uint32_t>(line);
        } else if (kind == "channel") {
            read_channel(line, launch);
        } else if (kind == "task") {
            read_task(line, launch);
        } else if (kind == "end") {
            answer(launch);
        }
    }
    return 0;
}
