// SPDX-License-Identifier: Apache-2.0
#include "correlate/stream/lockstep.h"

#include <algorithm>
#include <optional>

#include "collwire/node_records.h"
#include "collwire/record_kinds.h"

namespace collwire::stream {

std::size_t Lockstep::add(RecordStream stream) {
    captures_.push_back({std::move(stream)});
    return captures_.size() - 1;
}

// The captures of one boot come in the order of their beginning.
void Lockstep::sort_heads() {
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    for (std::size_t i = 0; i < captures_.size(); ++i)
        if (const capture::BlockHeader *next = captures_[i].stream.next(); next != nullptr)
            order.emplace_back(next->last_time_ns, i);
    std::ranges::sort(order, std::greater<>());
    for (const auto &[time_ns, capture] : order)
        heads_.push_back(capture);
}

bool Lockstep::place(std::size_t number) {
    Capture &capture = captures_[number];
    std::optional<cw_node> node;
    block_.decoder.visit_records([&](const cw_header &header, capture::ByteSpan record) {
        if (header.kind == CW_KIND_NODE && !node)
            node = capture::record_as<cw_node>(record);
    });
    const capture::ReadSummary &summary = capture.stream.summary();
    capture.begin_ns = node ? node->header.time_ns : summary.first_time_ns;
    const std::uint64_t realtime_ns = node ? node->realtime_ns : summary.start_realtime_ns;
    std::string boot = "?" + std::to_string(number);
    if (node) {
        boot = capture::text_of(node->boot_id);
        if (boot.empty())
            boot = capture::text_of(node->hostname);
    }
    const auto [found, is_first] = by_boot_.try_emplace(std::move(boot), hosts_.size());
    if (is_first)
        hosts_.emplace_back().offset_ns = static_cast<std::int64_t>(realtime_ns - capture.begin_ns);
    capture.host = found->second;
    Host &host = hosts_[capture.host];
    const std::uint64_t id = node ? node->session_id : 0;
    auto session = std::ranges::find(host.sessions, id, &Session::id);
    if (session == host.sessions.end())
        session = host.sessions.insert(session, {id, number, {}});
    session->captures.insert(session->captures.begin(), number);
    return is_first;
}

// The first block of each host. Later captures of a host have to wait for their turn.
std::size_t Lockstep::load_head() {
    while (!heads_.empty()) {
        const std::size_t number = heads_.back();
        heads_.pop_back();
        RecordStream &stream = captures_[number].stream;
        if (!stream.load(block_))
            continue;
        if (place(number)) {
            hosts_[captures_[number].host].last = number;
            return number;
        }
        stream.rewind();
    }
    return NONE;
}

// Segments of a recording follow each other. Recordings of one boot are mixed by their clock.
std::size_t Lockstep::next_of(Host &host, std::uint64_t &next_ns) {
    std::size_t best = NONE;
    for (Session &session : host.sessions)
        while (!session.captures.empty()) {
            Capture &capture = captures_[session.captures.back()];
            if (const capture::BlockHeader *next = capture.stream.next(); next != nullptr) {
                const std::uint64_t time_ns =
                    capture.stream.summary().blocks == 0
                        ? capture.begin_ns
                        : std::max<std::uint64_t>(capture.begin_ns, next->first_time_ns);
                if (best == NONE || time_ns < next_ns) {
                    best = session.captures.back();
                    next_ns = time_ns;
                }
                break;
            }
            session.captures.pop_back();
            if (session.captures.empty() && pace_ != nullptr)
                pace_->end(session.first);
        }
    std::erase_if(host.sessions, [](const Session &session) { return session.captures.empty(); });
    return best;
}

void Lockstep::queue(std::size_t number) {
    Host &host = hosts_[number];
    std::uint64_t next_ns = 0;
    if (next_of(host, next_ns) == NONE)
        return;
    host.due_ns = next_ns + static_cast<std::uint64_t>(host.offset_ns);
    if (pace_ != nullptr && pace_->is_ahead(host.last))
        held_.push_back(number);
    else
        due_.emplace(host.due_ns, number);
}

// The block that was loaded last may have what a host waited for.
void Lockstep::release() {
    const std::uint64_t level_ns =
        last_ == NONE ? 0 : hosts_[captures_[last_].host].due_ns; // of its next block
    std::erase_if(held_, [&](std::size_t number) {
        Host &host = hosts_[number];
        if (pace_->is_ahead(host.last))
            return false;
        if (level_ns > host.due_ns && level_ns - host.due_ns > APART_NS) {
            host.offset_ns += static_cast<std::int64_t>(level_ns - host.due_ns);
            host.due_ns = level_ns;
        }
        due_.emplace(host.due_ns, number);
        return true;
    });
}

// All wait for each other, or for ranks that are missing.
void Lockstep::give_up() {
    while (!held_.empty() && due_.empty()) {
        const auto least = std::ranges::min_element(held_, {}, [this](std::size_t number) {
            return std::pair(hosts_[number].due_ns, number);
        });
        const std::size_t number = *least;
        pace_->give_up(hosts_[number].last);
        if (pace_->is_ahead(hosts_[number].last))
            continue;
        held_.erase(least);
        due_.emplace(hosts_[number].due_ns, number);
    }
}

std::size_t Lockstep::load() {
    if (!has_heads_) {
        if (last_ == NONE)
            sort_heads();
        last_ = load_head();
        if (last_ != NONE)
            return last_;
        has_heads_ = true;
        for (std::size_t host = 0; host < hosts_.size(); ++host)
            queue(host);
    } else if (last_ != NONE) {
        queue(captures_[last_].host);
    }
    if (!held_.empty())
        release();
    for (;;) {
        if (due_.empty())
            give_up();
        if (due_.empty())
            break;
        const std::size_t number = due_.top().second;
        due_.pop();
        std::uint64_t next_ns = 0;
        const std::size_t next = next_of(hosts_[number], next_ns);
        if (next == NONE)
            continue;
        if (captures_[next].stream.load(block_)) {
            hosts_[number].last = last_ = next;
            return next;
        }
        queue(number); // damaged: the next one of the host
    }
    last_ = NONE;
    return captures_.size();
}

} // namespace collwire::stream
