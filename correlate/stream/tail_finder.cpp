// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/tail_finder.h"

#include <algorithm>
#include <functional>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_launch_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"

namespace collwire::stream {

using capture::BlockDecoder;
using capture::BlockHeader;
using capture::FileHeader;
using capture::record_as;

template <typename Visit>
void TailFinder::visit(const Block &block, const capture::ReadAt &read, Visit &&visit_record) {
    BlockHeader header;
    const auto bytes = read(block.offset_bytes, sizeof(BlockHeader) + block.header.payload_bytes);
    if (decoder_.decode(bytes, block.header.sequence, header).empty())
        decoder_.visit_records(visit_record);
}

std::optional<TailFinder::Capture> TailFinder::open(std::size_t number, std::uint64_t file_bytes,
                                                    const capture::ReadAt &read) {
    if (!capture::read_file_header(read(0, sizeof(FileHeader))))
        return std::nullopt;
    Capture capture;
    for (std::uint64_t at = sizeof(FileHeader); at < file_bytes;) {
        const auto bytes = read(at, sizeof(BlockHeader));
        if (bytes.size() < sizeof(BlockHeader))
            break;
        const auto header = capture::load<BlockHeader>(bytes);
        if (!BlockDecoder::check_header(header, file_bytes - at).empty() ||
            !BlockDecoder::check_place(header, capture.blocks.size()).empty())
            break;
        capture.blocks.push_back({at, header});
        at += sizeof(BlockHeader) + header.payload_bytes;
    }
    if (capture.blocks.empty())
        return std::nullopt;
    visit(capture.blocks.front(), read,
          [&](const cw_header &header, std::span<const std::byte> record) {
              if (header.kind != CW_KIND_NODE || capture.of != nullptr)
                  return;
              const auto node = record_as<cw_node>(record);
              std::string boot(capture::text_of(node.boot_id));
              if (boot.empty())
                  boot = capture::text_of(node.hostname);
              Recording &recording = recordings_[{std::move(boot), node.session_id}];
              if (recording.captures.empty()) // the newest segment: the clock may have been set
                  recording.offset_ns =
                      static_cast<std::int64_t>(node.realtime_ns - header.time_ns);
              capture.of = &recording;
          });
    if (capture.of == nullptr)
        return std::nullopt;
    if (std::ranges::find(capture.of->captures, number) == capture.of->captures.end())
        capture.of->captures.push_back(number);
    return capture;
}

void TailFinder::add_call(Recording &recording, const Address &address,
                          std::uint64_t time_ns) const {
    if (to_ns_ != UINT64_MAX && time_ns + static_cast<std::uint64_t>(recording.offset_ns) >= to_ns_)
        return;
    std::uint64_t &newest_of_process = recording.newest_ns[address.first];
    newest_of_process = std::max(newest_of_process, time_ns);
    const auto found = recording.members.find(address);
    if (found == recording.members.end())
        return;
    std::vector<std::uint64_t> &newest = found->second.newest_ns;
    if (newest.size() == LEAST_CALLS && newest.back() >= time_ns)
        return;
    const auto at = std::ranges::lower_bound(newest, time_ns, std::greater<>());
    if (at != newest.end() && *at == time_ns)
        return;
    newest.insert(at, time_ns);
    if (newest.size() > LEAST_CALLS)
        newest.pop_back();
}

void TailFinder::add_state(Recording &recording, const cw_header &header,
                           std::span<const std::byte> record) {
    const bool is_later =
        to_ns_ != UINT64_MAX &&
        header.time_ns + static_cast<std::uint64_t>(recording.offset_ns) >= to_ns_;
    switch (header.kind) {
    case CW_KIND_CLOCK: {
        const auto clock = record_as<cw_clock>(record);
        if (clock.realtime_ns != 0)
            recording.offset_ns = static_cast<std::int64_t>(clock.realtime_ns - header.time_ns);
        break;
    }
    case CW_KIND_NCCL_COMM: {
        if (is_later)
            break;
        const auto comm = record_as<cw_nccl_comm>(record);
        Member &member = recording.members[{comm.tgid, comm.comm}];
        if (member.hash != comm.comm_hash || member.n_ranks != comm.n_ranks)
            member = {comm.comm_hash, comm.n_ranks, {}, header.time_ns};
        break;
    }
    case CW_KIND_NCCL_COMM_END: {
        const auto end = record_as<cw_nccl_comm_end>(record);
        const auto found = recording.members.find({end.tgid, end.comm});
        if (!is_later && found != recording.members.end() &&
            found->second.begin_ns <= header.time_ns)
            recording.members.erase(found);
        break;
    }
    case CW_KIND_NCCL_CALL: {
        const auto call = record_as<cw_nccl_call>(record);
        add_call(recording, {call.tgid, call.comm}, header.time_ns);
        break;
    }
    default:
        break;
    }
}

void TailFinder::read_state(Capture &capture, const capture::ReadAt &read) {
    for (const Block &block : capture.blocks)
        if ((block.header.flags & capture::BLOCK_WITHOUT_STATE) == 0)
            visit(block, read, [&](const cw_header &header, std::span<const std::byte> record) {
                add_state(*capture.of, header, record);
            });
    capture.of->has_state = true;
}

bool TailFinder::is_idle(const Recording &recording, const Address &address, const Member &member) {
    const auto newest = recording.newest_ns.find(address.first);
    return newest != recording.newest_ns.end() &&
           (member.newest_ns.empty() || member.newest_ns.front() + IDLE_NS < newest->second);
}

TailFinder::Active TailFinder::active() const {
    Active active;
    for (const auto &[key, recording] : recordings_)
        for (const auto &[address, member] : recording.members)
            if (member.n_ranks > 1 && !is_idle(recording, address, member))
                active.insert({member.hash, member.n_ranks});
    return active;
}

// Whether a block that ends at `before_ns` may have a call that is needed.
bool TailFinder::needs(const Recording &recording, std::uint64_t before_ns, const Active &active) {
    return std::ranges::any_of(recording.members, [&](const auto &one) {
        const auto &[address, member] = one;
        if (member.n_ranks < 2)
            return false;
        const auto newest = recording.newest_ns.find(address.first);
        if (newest == recording.newest_ns.end())
            return true;
        if (member.newest_ns.empty() && active.contains({member.hash, member.n_ranks}))
            return true;
        const bool has_enough =
            member.newest_ns.size() == LEAST_CALLS && member.newest_ns.back() >= before_ns;
        return !has_enough && before_ns + IDLE_NS >= newest->second;
    });
}

void TailFinder::read_backwards(Capture &capture, const capture::ReadAt &read,
                                const Active &active) {
    Recording &recording = *capture.of;
    for (auto block = capture.blocks.rbegin(); block != capture.blocks.rend(); ++block) {
        if (!needs(recording, block->header.last_time_ns, active))
            return;
        visit(*block, read, [&](const cw_header &header, std::span<const std::byte> record) {
            if (header.kind != CW_KIND_NCCL_CALL)
                return;
            const auto call = record_as<cw_nccl_call>(record);
            add_call(recording, {call.tgid, call.comm}, header.time_ns);
        });
    }
}

void TailFinder::look(std::size_t number, std::uint64_t file_bytes, const capture::ReadAt &read) {
    auto capture = open(number, file_bytes, read);
    if (!capture)
        return;
    if (!capture->of->has_state)
        read_state(*capture, read);
    read_backwards(*capture, read, {});
}

void TailFinder::look_deeper(std::size_t number, std::uint64_t file_bytes,
                             const capture::ReadAt &read) {
    if (auto capture = open(number, file_bytes, read))
        read_backwards(*capture, read, active());
}

std::vector<std::size_t> TailFinder::deeper() const {
    const Active all = active();
    std::vector<std::size_t> captures;
    for (const auto &[key, recording] : recordings_)
        if (std::ranges::any_of(recording.members, [&](const auto &one) {
                const Member &member = one.second;
                return member.newest_ns.empty() && all.contains({member.hash, member.n_ranks});
            }))
            captures.insert(captures.end(), recording.captures.begin(), recording.captures.end());
    return captures;
}

std::uint64_t TailFinder::from_ns(std::uint64_t margin_ns) const {
    const Active all = active();
    std::uint64_t from_ns = UINT64_MAX;
    for (const auto &[key, recording] : recordings_)
        for (const auto &[address, member] : recording.members) {
            if (!all.contains({member.hash, member.n_ranks}))
                continue;
            if (member.newest_ns.empty())
                return 0; // its last call is not recorded
            from_ns = std::min(from_ns, member.newest_ns.back() +
                                            static_cast<std::uint64_t>(recording.offset_ns));
        }
    return from_ns == UINT64_MAX ? 0 : from_ns - std::min(from_ns, margin_ns);
}

} // namespace collwire::stream
