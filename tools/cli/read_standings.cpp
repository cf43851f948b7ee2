// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/read_standings.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <future>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "correlate/stream/node_standing.h"
#include "correlate/stream/standing_joiner.h"
#include "tools/cli/select_window.h"

namespace collwire::cli {
namespace {

constexpr std::size_t MOST_READERS = 8;

// The captures of one recording, from `begin` on.
std::size_t end_of_recording(const std::vector<ChosenCapture> &captures, std::size_t begin) {
    std::size_t end = begin + 1;
    while (end < captures.size() && captures[begin].order.session_id != 0 &&
           captures[end].order.session_id == captures[begin].order.session_id)
        ++end;
    return end;
}

struct Pauses {
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> hashes; // process, address
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> last_ns;
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::uint64_t> longest_ns; // process, hash
    bool is_wanted = false;                                                      // of such a host
};

void add_to(Pauses &pauses, const std::vector<std::string> &hosts, const cw_header &header,
            std::span<const std::byte> record) {
    if (header.kind == CW_KIND_NODE) {
        const auto node = capture::record_as<cw_node>(record);
        pauses.is_wanted = std::ranges::find(hosts, capture::text_of(node.hostname)) != hosts.end();
    } else if (!pauses.is_wanted) {
        return;
    } else if (header.kind == CW_KIND_NCCL_COMM) {
        const auto comm = capture::record_as<cw_nccl_comm>(record);
        std::uint64_t &hash = pauses.hashes[{comm.tgid, comm.comm}];
        if (hash != comm.comm_hash)
            pauses.last_ns.erase({comm.tgid, comm.comm});
        hash = comm.comm_hash;
    } else if (header.kind == CW_KIND_NCCL_CALL) {
        const auto call = capture::record_as<cw_nccl_call>(record);
        std::uint64_t &last_ns = pauses.last_ns[{call.tgid, call.comm}];
        if (const auto hash = pauses.hashes.find({call.tgid, call.comm});
            hash != pauses.hashes.end() && last_ns != 0 && header.time_ns > last_ns) {
            std::uint64_t &longest_ns = pauses.longest_ns[{call.tgid, hash->second}];
            longest_ns = std::max<std::uint64_t>(longest_ns, header.time_ns - last_ns);
        }
        last_ns = std::max<std::uint64_t>(last_ns, header.time_ns);
    }
}

// Whether its first block is of one of the hosts.
bool is_of_host(FileInParts &file, const std::vector<std::string> &hosts) {
    bool is_of = false;
    const auto summary = capture::read_chosen_blocks(
        file.size_bytes(),
        [&](std::uint64_t offset, std::size_t length) { return file.read(offset, length); },
        [](const capture::BlockHeader &block) { return block.sequence == 0; },
        [&](const cw_header &header, std::span<const std::byte> record) {
            if (header.kind == CW_KIND_NODE)
                is_of =
                    is_of ||
                    std::ranges::find(
                        hosts, capture::text_of(capture::record_as<cw_node>(record).hostname)) !=
                        hosts.end();
        });
    return summary && is_of;
}

// What the captures of one recording show.
struct ReadRecording {
    std::vector<std::string> messages;
    WindowCounts counts;
    std::size_t used = 0;
    std::optional<stream::NodeSeen> node; // no record of a node: absent
};

ReadRecording read_recording(std::span<const ChosenCapture> captures, const capture::Window *window,
                             const std::string &job) {
    ReadRecording read;
    stream::NodeStanding node(job);
    for (std::size_t i = 0; i < captures.size(); ++i) {
        const std::string &path = captures[i].path;
        auto file = FileInParts::open(path);
        if (!file) {
            read.messages.push_back(file.failure().message);
            continue;
        }
        // The same segment twice.
        const bool is_repeated = i > 0 && captures[i].order.session_id != 0 &&
                                 captures[i].order == captures[i - 1].order;
        bool has_node = false;
        const auto summary =
            read_part(*file, window, read.counts,
                      [&](const cw_header &header, std::span<const std::byte> record) {
                          has_node = has_node || header.kind == CW_KIND_NODE;
                          if (!is_repeated)
                              node.add(header, record);
                      });
        if (!summary) {
            read.messages.push_back(fmt::format("{}: {}", path, summary.failure().message));
            continue;
        }
        if (!is_repeated && has_node)
            node.end_capture(*summary);
        read.used += has_node ? 1 : 0;
        if (summary->cut || !has_node)
            read.messages.push_back(fmt::format("{}: {}", path, how_used(*summary, has_node)));
    }
    if (read.used != 0)
        read.node = node.finish();
    return read;
}

// Nodes that are read at once; each takes some MiB.
std::size_t readers() {
    return std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, MOST_READERS);
}

} // namespace

ReadStandings read_standings(const ChosenCaptures &chosen, const std::string &job) {
    ReadStandings all;
    for (const auto &refused : chosen.refused)
        all.messages.push_back(refused.failure.message);
    const capture::Window *window = chosen.selected ? &chosen.selected->window : nullptr;
    WindowCounts counts;
    stream::StandingJoiner joiner;
    // In the order of the captures.
    std::deque<std::future<ReadRecording>> reading;
    const std::span captures(chosen.captures);
    for (std::size_t begin = 0; joiner.needs_model().empty();) {
        while (begin < captures.size() && reading.size() < readers()) {
            const std::size_t end = end_of_recording(chosen.captures, begin);
            reading.push_back(std::async(std::launch::async, read_recording,
                                         captures.subspan(begin, end - begin), window, job));
            begin = end;
        }
        if (reading.empty())
            break;
        ReadRecording read = reading.front().get();
        reading.pop_front();
        counts.add(read.counts);
        all.read.used += read.used;
        std::ranges::move(read.messages, std::back_inserter(all.messages));
        if (read.node)
            joiner.add(std::move(*read.node));
    }
    all.read.all_used = chosen.refused.empty() && all.read.used == chosen.captures.size();
    if (joiner.needs_model().empty() && all.read.used != 0)
        all.standings = joiner.take();
    all.needs_model = joiner.needs_model();
    all.jobs = joiner.jobs();
    all.ahead_ns = joiner.clocks();
    all.has_network_signs = joiner.has_network_signs();
    all.has_errors = joiner.has_errors();
    all.may_be_too_short = joiner.may_be_too_short();
    all.unknown_ends = joiner.unknown_ends();
    all.unknown_pairs = joiner.unknown_pairs();
    if (window != nullptr && all.read.used != 0) {
        if (counts.records_inside == 0)
            all.needs_model = "nothing is in the window"; // which the other core says
        all.read.window = chosen.selected->facts;
        counts.put(*all.read.window);
    }
    return all;
}

void read_pauses(const ChosenCaptures &chosen, const std::vector<std::string> &hosts,
                 stall::Standings &standings) {
    std::map<std::uint64_t, Pauses> by_recording;
    for (const ChosenCapture &capture : chosen.all) {
        auto file = FileInParts::open(capture.path);
        if (!file || !is_of_host(*file, hosts))
            continue;
        WindowCounts counts;
        Pauses &pauses = by_recording[capture.order.session_id];
        (void)read_part(*file, nullptr, counts,
                        [&](const cw_header &header, std::span<const std::byte> record) {
                            add_to(pauses, hosts, header, record);
                        });
    }
    for (stall::Communicator &comm : standings.communicators)
        for (stall::Rank &rank : comm.ranks)
            for (const auto &[session, pauses] : by_recording)
                if (const auto found = pauses.longest_ns.find({rank.pid, comm.hash});
                    found != pauses.longest_ns.end() &&
                    std::ranges::find(hosts, rank.host) != hosts.end())
                    rank.longest_pause_ns = std::max(rank.longest_pause_ns, found->second);
}

} // namespace collwire::cli
