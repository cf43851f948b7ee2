// SPDX-License-Identifier: Apache-2.0
#include "correlate/capture/window_filter.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "collwire/nvlink_records.h"
#include "collwire/port_records.h"
#include "collwire/post_records.h"
#include "collwire/qp_records.h"
#include "collwire/record_kinds.h"
#include "collwire/socket_records.h"
#include "collwire/wire_records.h"
#include "correlate/capture/record_class.h"

namespace collwire::capture {
namespace {

using ByteSpan = std::span<const std::byte>;

class KeyText {
public:
    explicit KeyText(std::uint32_t kind) { add(kind); }
    template <typename T> KeyText &add(const T &value) {
        text_.append(reinterpret_cast<const char *>(&value), sizeof(value));
        return *this;
    }
    [[nodiscard]] std::string take() { return std::move(text_); }

private:
    std::string text_;
};

bool is_queue_pair(std::uint32_t kind) {
    return kind == CW_KIND_QP_CREATE || kind == CW_KIND_QP_STATE || kind == CW_KIND_QP_EXISTING ||
           kind == CW_KIND_QP_DESTROY;
}

std::string queue_pair_key(std::uint32_t kind, const cw_qp_key &key) {
    return KeyText(kind).add(key).take();
}

std::string counter_key(std::uint32_t kind, ByteSpan record) {
    KeyText key(kind);
    switch (kind) {
    case CW_KIND_QP_WIRE:
        return key.add(record_as<cw_qp_wire>(record).key).take();
    case CW_KIND_UD_PEER: {
        const auto peer = record_as<cw_ud_peer>(record);
        return key.add(peer.key).add(peer.dgid).add(peer.dest_qpn).take();
    }
    case CW_KIND_QP_POST:
        return key.add(record_as<cw_qp_post>(record).key).take();
    case CW_KIND_NCCL_STEPS: {
        const auto steps = record_as<cw_nccl_steps>(record);
        return key.add(steps.connection).add(steps.tgid).take();
    }
    case CW_KIND_TCP_SOCKET: {
        const auto socket = record_as<cw_tcp_socket>(record);
        return key.add(socket.inode).add(socket.netns).add(socket.tgid).take();
    }
    case CW_KIND_NVLINK_SAMPLE:
        return key.add(record_as<cw_nvlink_sample>(record).gpu).take();
    default: // counter_samples: one record has the same counters each time
        for (const cw_counter_sample &sample : samples_of(record))
            key.add(sample.id);
        return key.take();
    }
}

// 64-bit words: a record in it is aligned.
std::vector<std::uint64_t> stored(ByteSpan record) {
    std::vector<std::uint64_t> copy((record.size() + 7) / 8);
    std::memcpy(copy.data(), record.data(), record.size());
    return copy;
}

void emit(const std::vector<std::uint64_t> &record, const RecordVisitor &visit) {
    const ByteSpan bytes = std::as_bytes(std::span(record));
    const auto header = record_as<cw_header>(bytes);
    visit(header, bytes.first(header.length_bytes));
}

// Changes a field of the copy, if the record is long enough to have it.
template <typename T>
void put(std::vector<std::uint64_t> &record, std::size_t offset, const T &value) {
    if (offset + sizeof(value) <= record.size() * sizeof(std::uint64_t))
        std::memcpy(reinterpret_cast<std::byte *>(record.data()) + offset, &value, sizeof(value));
}

// The sample of a socket when it was opened.
std::vector<std::uint64_t> unused_socket(ByteSpan record, std::uint64_t time_ns) {
    std::vector<std::uint64_t> copy = stored(record);
    const auto of = record_as<cw_tcp_socket>(record);
    put(copy, offsetof(cw_header, time_ns), time_ns);
    put(copy, offsetof(cw_tcp_socket, flags),
        static_cast<std::uint32_t>(of.flags &
                                   ~std::uint32_t{CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL}));
    for (const std::size_t offset :
         {offsetof(cw_tcp_socket, sent_bytes), offsetof(cw_tcp_socket, acked_bytes),
          offsetof(cw_tcp_socket, received_bytes), offsetof(cw_tcp_socket, retransmitted_bytes),
          offsetof(cw_tcp_socket, unsent_bytes)})
        put(copy, offset, std::uint64_t{0});
    for (const std::size_t offset :
         {offsetof(cw_tcp_socket, sent_segments), offsetof(cw_tcp_socket, received_segments),
          offsetof(cw_tcp_socket, retransmitted_segments)})
        put(copy, offset, std::uint32_t{0});
    return copy;
}

} // namespace

std::uint64_t WindowFilter::monotonic_ns(std::uint64_t realtime_ns) const {
    if (realtime_ns == UINT64_MAX)
        return UINT64_MAX;
    const auto ahead_ns = static_cast<std::uint64_t>(realtime_minus_monotonic_ns_);
    if (realtime_minus_monotonic_ns_ >= 0)
        return realtime_ns - std::min(realtime_ns, ahead_ns);
    const std::uint64_t behind_ns = 0 - ahead_ns;
    return realtime_ns + std::min(behind_ns, UINT64_MAX - realtime_ns);
}

bool WindowFilter::needs(const BlockHeader &block) {
    if ((block.flags & BLOCK_WITHOUT_STATE) == 0 || !has_clock_)
        return true;
    if (block.first_time_ns >= to_ns())
        return is_shortly_after(block.first_time_ns);
    const std::uint64_t before_ns = INTERVALS_BEFORE * interval_ns_;
    if (block.last_time_ns >= from_ns() - std::min(from_ns(), before_ns))
        return true;
    before_.clear(); // a newer sample may be in the block that is left out
    return false;
}

bool WindowFilter::is_shortly_after(std::uint64_t time_ns) const {
    return !window_.is_one_of_many && time_ns >= to_ns() &&
           time_ns - to_ns() <= INTERVALS_AFTER * interval_ns_;
}

void WindowFilter::add(const cw_header &header, ByteSpan record, const RecordVisitor &visit) {
    if (header.kind == CW_KIND_NODE)
        return add_node(record, visit);
    if (header.kind == CW_KIND_CLOCK) {
        const auto clock = record_as<cw_clock>(record);
        if (clock.realtime_ns != 0 && !(window_.is_one_of_many && has_clock_)) {
            realtime_minus_monotonic_ns_ =
                static_cast<std::int64_t>(clock.realtime_ns - header.time_ns);
            has_clock_ = true;
        }
    }
    switch (record_class(header.kind)) {
    case RecordClass::State:
        return add_state(header, record, visit);
    case RecordClass::Counter:
        return add_counter(header, record, visit);
    case RecordClass::Event:
        if (header.time_ns < from_ns() || header.time_ns >= to_ns())
            return;
        release(visit);
        ++records_inside_;
        visit(header, record);
    }
}

void WindowFilter::add_node(ByteSpan record, const RecordVisitor &visit) {
    const auto node = record_as<cw_node>(record);
    if (node.realtime_ns != 0 && !(window_.is_one_of_many && has_clock_)) {
        realtime_minus_monotonic_ns_ =
            static_cast<std::int64_t>(node.realtime_ns - node.header.time_ns);
        has_clock_ = true;
    }
    if (node.sample_interval_ns != 0)
        interval_ns_ = std::min<std::uint64_t>(node.sample_interval_ns, 60 * DEFAULT_INTERVAL_NS);
    if (node_ns_ == 0)
        node_ns_ = std::max<std::uint64_t>(node.header.time_ns, node.record_start_ns);
    std::vector<std::uint64_t> copy = stored(record);
    if (node.header.time_ns < from_ns() && node_ns_ < from_ns()) {
        begin_ns_ = from_ns();
        put(copy, offsetof(cw_header, time_ns), begin_ns_);
        put(copy, offsetof(cw_node, flags),
            static_cast<std::uint32_t>(node.flags & ~std::uint32_t{CW_NODE_FIRST_SEGMENT}));
        if (node.realtime_ns != 0)
            put(copy, offsetof(cw_node, realtime_ns), window_.from_ns);
    }
    emit(copy, visit);
}

void WindowFilter::add_state(const cw_header &header, ByteSpan record, const RecordVisitor &visit) {
    if (header.time_ns >= to_ns() && !describes_earlier(header.kind))
        return;
    if (header.kind == CW_KIND_NCCL_COMM) {
        const auto comm = record_as<cw_nccl_comm>(record);
        if ((comm.flags & CW_NCCL_COMM_CREATED) == 0)
            joined_late_.insert(comm.tgid);
    }
    // A recording that starts inside the window is whole.
    const bool is_before = header.time_ns < from_ns() && node_ns_ < from_ns();
    if (!is_before || !(is_queue_pair(header.kind) || header.kind == CW_KIND_NCCL_COMM ||
                        header.kind == CW_KIND_NCCL_COMM_END))
        return visit(header, record);

    std::string key;
    bool is_end = header.kind == CW_KIND_QP_DESTROY;
    std::vector<std::uint64_t> copy = stored(record);
    if (is_queue_pair(header.kind)) {
        const auto event = record_as<cw_qp_event>(record);
        key = queue_pair_key(CW_KIND_QP_CREATE, event.key);
        is_end = is_end && event.result == 0;
        if (is_end)
            for (const std::uint32_t kind : {CW_KIND_QP_WIRE, CW_KIND_UD_PEER})
                forget_counters(queue_pair_key(kind, event.key));
    } else if (header.kind == CW_KIND_NCCL_COMM) {
        // Calls do not count from the creation: those before the window are not read.
        const auto comm = record_as<cw_nccl_comm>(record);
        key = KeyText(CW_KIND_NCCL_COMM).add(comm.tgid).add(comm.comm).take();
        put(copy, offsetof(cw_nccl_comm, flags),
            static_cast<std::uint32_t>(
                comm.flags & ~std::uint32_t{CW_NCCL_COMM_CREATED | CW_NCCL_COMM_LAUNCHED}));
    } else {
        const auto end = record_as<cw_nccl_comm_end>(record);
        key = KeyText(CW_KIND_NCCL_COMM).add(end.tgid).add(end.comm).take();
        is_end = true;
    }
    if (is_end && held_.erase(key) != 0)
        return;
    if (is_released_ || is_end)
        return emit(copy, visit);
    held_[key].records.push_back(std::move(copy));
}

void WindowFilter::forget_counters(const Key &prefix) {
    auto found = before_.lower_bound(prefix);
    while (found != before_.end() && found->first.starts_with(prefix))
        found = before_.erase(found);
}

// Whether all that it has counted was counted in the window.
bool WindowFilter::starts_inside(const cw_header &header, ByteSpan record) const {
    const auto is_inside = [&](std::uint64_t first_ns) {
        return first_ns == 0 || first_ns >= from_ns();
    };
    switch (header.kind) {
    case CW_KIND_QP_WIRE: {
        const auto wire = record_as<cw_qp_wire>(record);
        return is_inside(wire.counters.tx.first_ns) && is_inside(wire.counters.rx.first_ns);
    }
    case CW_KIND_QP_POST:
        return is_inside(record_as<cw_qp_post>(record).counters.first_ns);
    case CW_KIND_UD_PEER:
        return record_as<cw_ud_peer>(record).key.generation_ns >= from_ns();
    default:
        return false;
    }
}

// Of counters without a sample before the window, at the offset of their start: all that they have
// counted was sampled in the window first.
void WindowFilter::move_start(std::vector<std::uint64_t> &record, std::size_t offset) const {
    const std::uint64_t sampled_ns = (INTERVALS_BEFORE - 1) * interval_ns_;
    std::uint64_t first_ns = 0;
    if (offset + sizeof(first_ns) > record.size() * sizeof(std::uint64_t))
        return;
    std::memcpy(&first_ns, reinterpret_cast<const std::byte *>(record.data()) + offset,
                sizeof(first_ns));
    if (first_ns != 0 && first_ns < from_ns() && from_ns() - first_ns <= sampled_ns)
        put(record, offset,
            std::max(from_ns(), begin_ns_)); // a later clock reading moves the first
}

void WindowFilter::move_starts(std::vector<std::uint64_t> &record) const {
    const std::uint32_t kind = record_as<cw_header>(std::as_bytes(std::span(record))).kind;
    if (kind == CW_KIND_QP_WIRE) {
        move_start(record, offsetof(cw_qp_wire, counters.tx.first_ns));
        move_start(record, offsetof(cw_qp_wire, counters.rx.first_ns));
    } else if (kind == CW_KIND_QP_POST) {
        move_start(record, offsetof(cw_qp_post, counters.first_ns));
    }
}

// Of one without a sample before the window: a recording samples all sockets of the processes that
// it finds when it starts.
bool WindowFilter::is_new_socket(const cw_header &header, ByteSpan record) const {
    return header.kind == CW_KIND_TCP_SOCKET && node_ns_ != 0 &&
           !joined_late_.contains(record_as<cw_tcp_socket>(record).tgid) &&
           from_ns() - std::min(from_ns(), node_ns_) <= (INTERVALS_BEFORE - 1) * interval_ns_;
}

void WindowFilter::add_counter(const cw_header &header, ByteSpan record,
                               const RecordVisitor &visit) {
    if (header.time_ns >= to_ns()) {
        if (is_shortly_after(header.time_ns) &&
            after_.insert(counter_key(header.kind, record)).second) {
            release(visit);
            visit(header, record);
        }
        return;
    }
    if (node_ns_ >= from_ns()) {
        records_inside_ += header.time_ns >= from_ns() ? 1 : 0;
        return visit(header, record);
    }
    std::string key = counter_key(header.kind, record);
    if (header.time_ns < from_ns()) {
        if (is_released_)
            return; // the first sample of the window was read already
        const bool is_gone = header.kind == CW_KIND_TCP_SOCKET &&
                             (record_as<cw_tcp_socket>(record).flags & CW_TCP_SOCKET_GONE) != 0;
        if (is_gone)
            before_.erase(key);
        else
            before_[key] = stored(record);
        return;
    }
    const bool has_start = is_released_ ? seen_.contains(key) : before_.contains(key);
    if (!has_start && !seen_.contains(key) && header.kind != CW_KIND_NCCL_STEPS &&
        !starts_inside(header, record))
        ++without_start_;
    const bool is_first = window_.is_one_of_many && !has_start && !seen_.contains(key);
    release(visit);
    if (is_first && is_new_socket(header, record))
        emit(unused_socket(record, std::max(from_ns(), begin_ns_)), visit);
    else if (is_first)
        without_sample_.insert(key);
    seen_.insert(key);
    ++records_inside_;
    if (!without_sample_.contains(key))
        return visit(header, record);
    std::vector<std::uint64_t> copy = stored(record);
    move_starts(copy);
    emit(copy, visit);
}

void WindowFilter::release(const RecordVisitor &visit) {
    if (std::exchange(is_released_, true))
        return;
    for (const auto &[key, held] : held_)
        for (const Stored &record : held.records)
            emit(record, visit);
    for (const auto &[key, record] : before_) {
        emit(record, visit);
        seen_.insert(key);
    }
    held_.clear();
    before_.clear();
}

void WindowFilter::finish(const RecordVisitor &visit) {
    release(visit);
}

void WindowFilter::clip(ReadSummary &summary) const {
    if (!has_clock_)
        return;
    summary.first_time_ns = std::clamp(summary.first_time_ns, from_ns(), to_ns());
    summary.last_time_ns = std::clamp(summary.last_time_ns, from_ns(), to_ns());
    if (summary.end)
        summary.end->header.time_ns =
            std::clamp<std::uint64_t>(summary.end->header.time_ns, from_ns(), to_ns());
}

} // namespace collwire::capture
