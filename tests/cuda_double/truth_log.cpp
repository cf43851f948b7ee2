// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/truth_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "tests/cuda_double/settings.h"
#include "tests/cuda_double/transport.h"

namespace collwire::cuda_double {
namespace {

std::FILE *log_file() {
    static std::FILE *file = [] {
        const std::string &path = settings().log_path;
        std::FILE *opened = path.empty() ? nullptr : std::fopen(path.c_str(), "a");
        if (opened == nullptr && !path.empty())
            fatal(fmt::format("COLLWIRE_CUDA_LOG={}: {}. Fix: a path that can be written", path,
                              std::strerror(errno)));
        return opened;
    }();
    return file;
}

std::string json_of(const WorkDescription &work) {
    const auto function = fmt::format(R"("function":"{}")", name_of(work.function));
    return work.function.operation == Operation::SendRecv
               ? fmt::format(R"({{{},"send_bytes":{},"receive_bytes":{}}})", function,
                             work.send_bytes, work.receive_bytes)
               : fmt::format(R"({{{},"bytes":{}}})", function, work.bytes);
}

const char *nvls_part(Direction direction, int connection) {
    const bool sends = direction == Direction::Send;
    if (connection == 0)
        return sends ? "broadcast" : "reduce";
    return sends ? "scatter" : "gather";
}

} // namespace

int KernelTruth::work_item(const std::string &key, const WorkDescription &description) {
    const auto [found, is_new] = numbers_.emplace(key, static_cast<int>(works_.size()));
    if (is_new)
        works_.push_back(description);
    return found->second;
}

void KernelTruth::add_transfer_bytes(int work, std::uint64_t sent, std::uint64_t received) {
    WorkDescription &description = works_[static_cast<std::size_t>(work)];
    description.send_bytes += sent;
    description.receive_bytes += received;
}

void KernelTruth::add(int work, int channel, int peer, Direction direction, int connection,
                      Protocol protocol, std::uint64_t step, std::uint64_t steps,
                      std::uint64_t bytes) {
    const Key key{work, channel, peer, direction, connection, protocol};
    const auto [found, is_new] = posted_.try_emplace(key);
    Posted &posted = found->second;
    if (is_new) {
        posted.first_step = step;
        if (host_ && log_file() != nullptr)
            posted.transport = transport_of(*host_, channel, peer, direction, connection);
    }
    posted.first_step = std::min(posted.first_step, step);
    posted.steps += steps;
    posted.posts++;
    posted.bytes += bytes;
}

// Peers from the number of ranks on are not ranks: CollNet's, then one for each head of NVLS.
std::string KernelTruth::connections(int ranks) const {
    std::string text;
    for (const auto &[key, posted] : posted_) {
        if (key.peer >= ranks)
            continue;
        text += fmt::format(
            R"({}{{"work":{},"channel":{},"peer":{},"direction":"{}","connection":{},)"
            R"("transport":{},"protocol":"{}","first_step":{},"steps":{},"posts":{},"bytes":{}}})",
            text.empty() ? "" : ",", key.work, key.channel, key.peer,
            key.direction == Direction::Send ? "send" : "receive", key.connection,
            posted.transport ? fmt::format(R"("{}")", *posted.transport) : "null",
            name_of(key.protocol), posted.first_step, posted.steps, posted.posts, posted.bytes);
    }
    return text;
}

std::string KernelTruth::nvls(int ranks) const {
    std::string text;
    for (const auto &[key, posted] : posted_) {
        if (key.peer >= ranks)
            text +=
                fmt::format(R"({}{{"work":{},"channel":{},"head":{},"part":"{}","first_step":{},)"
                            R"("steps":{},"bytes":{}}})",
                            text.empty() ? "" : ",", key.work, key.channel, key.peer - ranks - 1,
                            nvls_part(key.direction, key.connection), posted.first_step,
                            posted.steps, posted.bytes);
    }
    return text;
}

// What a rank has scattered, a head loads from it through the switch. What a rank gathers, a head
// has stored to it.
std::string KernelTruth::switched(int ranks) const {
    std::map<std::pair<int, int>, Crossed> crossed;
    for (const auto &[key, posted] : posted_) {
        if (key.peer < ranks)
            continue;
        Crossed &of_channel = crossed[{key.work, key.channel}];
        (key.direction == Direction::Send ? of_channel.to_switch : of_channel.from_switch) +=
            posted.bytes;
    }
    std::string text;
    for (const auto &[place, bytes] : crossed)
        text += fmt::format(R"({}{{"work":{},"channel":{},"to_bytes":{},"from_bytes":{}}})",
                            text.empty() ? "" : ",", place.first, place.second, bytes.to_switch,
                            bytes.from_switch);
    return text;
}

void KernelTruth::write(const Kernel &kernel) const {
    std::FILE *file = log_file();
    if (file == nullptr)
        return;
    std::string works;
    for (const WorkDescription &work : works_)
        works += (works.empty() ? "" : ",") + json_of(work);
    const int ranks = kernel.communicator.ranks();
    const std::string host =
        host_ ? fmt::format(R"("comm":"{:#x}","comm_hash":"{:#018x}")", host_->address, host_->hash)
              : R"("comm":null,"comm_hash":null)";
    const std::string line = fmt::format(
        R"({{"launched_ns":{},"begun_ns":{},"ended_ns":{},{},"device_comm":"{}","rank":{},)"
        R"("ranks":{},"kernel":"{}","channel_mask":"{:#x}","aborted":{},"works":[{}],)"
        R"("connections":[{}],"nvls":[{}],"switch":[{}]}})"
        "\n",
        kernel.launched_ns, kernel.begun_ns, now_ns(), host,
        static_cast<void *>(kernel.communicator.device()), kernel.communicator.rank(), ranks,
        kernel.name, kernel.channel_mask, kernel.is_aborted, works, connections(ranks), nvls(ranks),
        switched(ranks));
    std::fwrite(line.data(), 1, line.size(), file);
    std::fflush(file);
}

} // namespace collwire::cuda_double
