// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/socket_source.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "collwire/nccl_connection_records.h"
#include "collwire/node_records.h"
#include "collwire/record_kinds.h"
#include "userspace/inventory/process.h"

namespace collwire::sources {
namespace {

constexpr unsigned MOST_TRIES = 3;
// A search walks all TCP sockets of the node: where that is long, it takes a tenth of the time.
constexpr std::uint64_t SHORT_SEARCH_NS = 200'000;
constexpr std::uint64_t REST_PER_SEARCH = 9;
// The kernel makes its notice in a queue of its own, some 10 us after the socket ended.
constexpr std::uint64_t NOTICE_NS = 20'000'000;
constexpr unsigned MOST_SAMPLES_WITH_LOSS = 5;

std::uint64_t inode_of(int fd) {
    struct stat status {};
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

bool is_ipv4(const netlink::TcpSocketId &id) {
    constexpr std::array<std::uint8_t, 12> MAPPED{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(MAPPED.begin(), MAPPED.end(), id.remote_address.begin());
}

// What changes with each look, and tells nothing by itself.
cw_tcp_socket counters_of(cw_tcp_socket record) {
    record.header = {};
    record.rtt_us = 0;
    record.mss_bytes = 0;
    return record;
}

} // namespace

SocketSource::SocketSource(SocketOptions options) : options_(std::move(options)) {
    if (!options_.clock)
        options_.clock = monotonic_ns;
}

Result<void> SocketSource::prepare() {
    if (const auto opened = netlink::SockDiag::open(); !opened)
        unavailable_ = opened.failure().message + ". Fix: boot a kernel with CONFIG_INET_TCP_DIAG";
    struct stat status {};
    if (stat("/proc/self/ns/net", &status) == 0)
        own_namespace_ = status.st_ino;
    return {};
}

// Not before: the question makes the kernel load its module for it.
Result<void> SocketSource::attach() {
    if (!unavailable_.empty())
        return {};
    auto diag = netlink::SockDiag::open();
    auto asked = diag ? diag->check() : Result<void>(std::move(diag).failure());
    if (!asked)
        unavailable_ = std::move(asked).failure().message +
                       ". Fix: modprobe tcp_diag (a kernel with CONFIG_INET_TCP_DIAG)";
    return {};
}

std::vector<source::SourceState> SocketSource::states() const {
    if (!unavailable_.empty())
        return {{CW_SOURCE_UNAVAILABLE, unavailable_, ~0u}};
    std::vector<source::SourceState> states;
    for (const std::string &problem : problems_)
        states.push_back({CW_SOURCE_DEGRADED, problem, ~0u});
    if (n_closed_early_ != 0)
        states.push_back(
            {CW_SOURCE_DEGRADED,
             fmt::format("{} sockets closed before their first sample: their bytes are not counted",
                         n_closed_early_),
             ~0u});
    if (n_not_found_ != 0)
        states.push_back({CW_SOURCE_DEGRADED,
                          fmt::format("{} sockets are not TCP sockets in the network namespace of "
                                      "their process: their bytes are not counted",
                                      n_not_found_),
                          ~0u});
    if (states.empty())
        states.push_back({CW_SOURCE_ON, "", ~0u});
    return states;
}

void SocketSource::on_record(const cw_header &record) {
    if (record.kind != CW_KIND_NCCL_CONNECTION || record.length_bytes < sizeof(cw_nccl_connection))
        return;
    const auto &connection = reinterpret_cast<const cw_nccl_connection &>(record);
    if (connection.transport != CW_NCCL_TRANSPORT_SOCKET)
        return;
    // NCCL's sender connects, its receiver accepts.
    const bool connected = (connection.flags & CW_NCCL_CONNECTION_SEND) != 0;
    const std::uint32_t n = std::min<std::uint32_t>(connection.n, CW_NCCL_ENDPOINTS);
    for (std::uint32_t i = 0; i < n; ++i)
        add(connection.tgid, connection.endpoints[i].number, connection.socket_inodes[i],
            connected);
    search_where_due();
}

void SocketSource::watch(std::uint32_t tgid, std::uint32_t fd, std::uint64_t inode,
                         bool connected) {
    add(tgid, fd, inode, connected);
    search_where_due();
}

void SocketSource::add(std::uint32_t tgid, std::uint32_t fd, std::uint64_t inode, bool connected) {
    if (!unavailable_.empty() || has_ended_ || static_cast<std::int32_t>(fd) < 0)
        return;
    if (inode == 0) {
        ++n_closed_early_;
        return;
    }
    if (inodes_.contains(inode))
        return;
    Place *place = place_of(tgid);
    if (place == nullptr)
        return;
    inodes_.insert(inode);
    place->pending[inode] = {tgid, fd, connected};
}

void SocketSource::search_where_due() {
    if (has_ended_)
        return;
    for (auto &[inode, place] : places_) {
        if (!place.pending.empty() && monotonic_ns() >= place.next_search_ns)
            search(place);
    }
}

std::size_t SocketSource::n_watched() const {
    std::size_t n = 0;
    for (const auto &[inode, place] : places_)
        n += place.sockets.size();
    return n;
}

SocketSource::Place *SocketSource::place_of(std::uint32_t tgid) {
    const std::string path = fmt::format("/proc/{}/ns/net", tgid);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT || errno == ESRCH)
            ++n_closed_early_;
        else
            problems_.insert(
                "cannot read network namespaces of processes of other users. Fix: run as root");
        return nullptr;
    }
    const std::uint64_t inode = inode_of(fd);
    auto found = places_.find(inode);
    if (found == places_.end()) {
        const int namespace_fd = inode == own_namespace_ ? -1 : fd;
        auto diag = netlink::SockDiag::open(namespace_fd);
        if (diag) {
            found = places_.emplace(inode, std::move(diag).value()).first;
            // Before the sockets are searched for: none of them ends in between.
            if (options_.end_notices) {
                auto notices = netlink::TcpEndNotices::open(namespace_fd);
                if (notices)
                    found->second.notices.emplace(std::move(notices).value());
                else
                    fail(notices.failure(),
                         "bytes after the last sample of a socket are not counted");
            }
        } else {
            fail(diag.failure(), "sockets in another network namespace are not counted");
        }
    }
    close(fd);
    return found == places_.end() ? nullptr : &found->second;
}

void SocketSource::fail(const Error &failure, std::string_view what) {
    std::string problem = fmt::format("{}: {}", what, failure.message);
    if (failure.kind == ErrorKind::NotPermitted)
        problem += ". Fix: run as root";
    problems_.insert(std::move(problem));
}

void SocketSource::search(Place &place) {
    const std::uint64_t begin_ns = monotonic_ns();
    for (const std::uint8_t family : {std::uint8_t{AF_INET}, std::uint8_t{AF_INET6}}) {
        if (place.pending.empty())
            break;
        const auto listed = place.diag.list(family, [&](const netlink::TcpSocket &socket) {
            const auto found = place.pending.find(socket.inode);
            if (found == place.pending.end())
                return;
            adopt(place, socket, found->second);
            place.pending.erase(found);
        });
        if (!listed)
            fail(listed.failure(), "sockets are not counted");
    }
    const std::uint64_t end_ns = monotonic_ns();
    if (end_ns - begin_ns > SHORT_SEARCH_NS)
        place.next_search_ns = end_ns + REST_PER_SEARCH * (end_ns - begin_ns);
}

void SocketSource::adopt(Place &place, const netlink::TcpSocket &socket, const Pending &pending) {
    const auto [entry, is_new] = place.sockets.try_emplace(socket.id.cookie);
    if (!is_new)
        return;
    Watched &watched = entry->second;
    watched.id = socket.id;
    watched.bytes = SocketBytes(pending.connected);
    cw_tcp_socket &record = watched.record;
    record.header = {sizeof(record), CW_KIND_TCP_SOCKET, CW_CPU_USERSPACE, 0};
    record.inode = socket.inode;
    record.tgid = pending.tgid;
    record.fd = pending.fd;
    static_assert(sizeof(record.local_address) == sizeof(socket.id.local_address));
    std::memcpy(record.local_address, socket.id.local_address.data(), sizeof(record.local_address));
    std::memcpy(record.remote_address, socket.id.remote_address.data(),
                sizeof(record.remote_address));
    record.local_port = socket.id.local_port;
    record.remote_port = socket.id.remote_port;
    record.flags = is_ipv4(socket.id) ? static_cast<std::uint32_t>(CW_TCP_SOCKET_IPV4) : 0U;
    for (const auto &[inode, each] : places_) {
        if (&each == &place)
            record.netns = inode;
    }
}

void SocketSource::give_up(Place &place) {
    for (auto entry = place.pending.begin(); entry != place.pending.end();) {
        auto &[inode, pending] = *entry;
        const bool is_open = inventory::socket_inode(pending.tgid, pending.fd) == inode;
        if (is_open && ++pending.tries < MOST_TRIES) {
            ++entry;
            continue;
        }
        ++(is_open ? n_not_found_ : n_closed_early_);
        inodes_.erase(inode);
        entry = place.pending.erase(entry);
    }
}

void SocketSource::read_now() {
    for (auto &[inode, place] : places_) {
        if (!place.pending.empty())
            search(place);
        read_counters(kept_, place, false);
    }
}

// One that is not there any more may have a notice on its way, with what it ended with. Counters
// of the others that are read later would be of what is not recorded.
void SocketSource::end() {
    has_read_all_ = true;
    read_now();
    was_read_at_end_ = has_read_all_;
    has_ended_ = true;
    for (auto &[inode, place] : places_)
        for (auto &[cookie, watched] : place.sockets)
            watched.is_over = !watched.is_missing;
}

void SocketSource::sample(source::RecordSink &sink, bool everything) {
    kept_.hand_over([&sink](const cw_header &record) { sink.append(record); });
    const std::uint64_t now = options_.clock();
    // A new segment's start may come at any time: the ticks go on as they were.
    if (!everything) {
        // A tick that comes a little early counts: else a jitter of 1 ms would double the interval.
        const bool is_due = last_sample_ || now + options_.interval_ns / 10 >= due_ns_;
        has_read_all_ = is_due && was_read_at_end_;
        if (!is_due)
            return;
        due_ns_ += options_.interval_ns;
        if (due_ns_ <= now)
            due_ns_ = now + options_.interval_ns;
    }
    for (auto entry = places_.begin(); entry != places_.end();) {
        Place &place = entry->second;
        place.lost_notices = false;
        if (!place.pending.empty()) {
            if (!has_ended_)
                search(place);
            give_up(place);
        }
        take_notices(sink, place);
        read_counters(sink, place, everything);
        end_missing(sink, place);
        entry = place.sockets.empty() && place.pending.empty() ? places_.erase(entry) : ++entry;
    }
}

void SocketSource::take_notices(source::RecordSink &sink, Place &place) {
    if (!place.notices)
        return;
    const auto taken = place.notices->take([&](const netlink::TcpSocket &socket) {
        const auto found = place.sockets.find(socket.id.cookie);
        if (found == place.sockets.end() || found->second.is_over)
            return;
        static_cast<void>(take_counters(found->second, socket));
        end(sink, place, socket.id.cookie,
            socket.info ? CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL
                        : static_cast<std::uint32_t>(CW_TCP_SOCKET_GONE));
    });
    if (taken && !taken->lost)
        return;
    place.lost_notices = true;
    problems_.insert(
        taken
            ? "sockets close faster than the kernel reports: the last bytes of some are not counted"
            : taken.failure().message);
}

void SocketSource::read_counters(source::RecordSink &sink, Place &place, bool everything) {
    std::vector<netlink::TcpSocketId> ids;
    ids.reserve(place.sockets.size());
    for (auto &[cookie, watched] : place.sockets) {
        watched.is_due = everything;
        if (!watched.is_missing && !watched.is_over)
            ids.push_back(watched.id);
    }
    const auto read =
        place.diag.read(ids, [&](std::size_t index, const netlink::TcpSocket *socket) {
            Watched &watched = place.sockets.at(ids[index].cookie);
            // What stands there without counters, in TIME_WAIT or as its like, is all that is left.
            watched.is_missing = socket == nullptr || !socket->info;
            if (watched.is_missing)
                return;
            watched.is_due = take_counters(watched, *socket) || watched.is_due;
        });
    if (!read) {
        has_read_all_ = false;
        fail(read.failure(), "sockets are not counted");
    }
    for (const auto &[cookie, watched] : place.sockets) {
        if (watched.is_due && watched.has_counters)
            write(sink, watched, 0);
    }
}

// One that was reset is found no more and has its last counters until its program closes it: then
// there is a notice.
void SocketSource::end_missing(source::RecordSink &sink, Place &place) {
    const auto closed = [&] {
        std::vector<std::uint64_t> cookies;
        for (const auto &[cookie, watched] : place.sockets) {
            const cw_tcp_socket &record = watched.record;
            if (watched.is_missing &&
                inventory::socket_inode(record.tgid, record.fd) != record.inode)
                cookies.push_back(cookie);
        }
        return cookies;
    };
    auto cookies = closed();
    const std::uint64_t until_ns = monotonic_ns() + NOTICE_NS;
    const auto is_waited_for = [&](std::uint64_t cookie) {
        const auto found = place.sockets.find(cookie);
        return found != place.sockets.end() && !found->second.was_waited_for;
    };
    while (place.notices && !place.lost_notices &&
           std::any_of(cookies.begin(), cookies.end(), is_waited_for)) {
        const std::uint64_t now_ns = monotonic_ns();
        if (now_ns >= until_ns)
            break;
        place.notices->wait(static_cast<int>((until_ns - now_ns) / 1'000'000) + 1);
        take_notices(sink, place);
    }
    for (const std::uint64_t cookie : cookies) {
        const auto found = place.sockets.find(cookie);
        if (found == place.sockets.end())
            continue;
        // It may be closed a little before its last packets are gone: one more interval.
        const bool may_come = place.notices && !place.lost_notices && !last_sample_;
        if (may_come && !found->second.was_waited_for)
            found->second.was_waited_for = true;
        else
            end(sink, place, cookie, CW_TCP_SOCKET_GONE);
    }
    place.samples_with_loss = place.lost_notices ? place.samples_with_loss + 1 : 0;
    if (place.samples_with_loss >= MOST_SAMPLES_WITH_LOSS)
        place.notices.reset();
}

void SocketSource::end(source::RecordSink &sink, Place &place, std::uint64_t cookie,
                       std::uint32_t flags) {
    const auto found = place.sockets.find(cookie);
    const Watched &watched = found->second;
    if (watched.has_counters)
        write(sink, watched, flags);
    else
        ++n_closed_early_;
    inodes_.erase(watched.record.inode);
    place.sockets.erase(found);
}

bool SocketSource::take_counters(Watched &watched, const netlink::TcpSocket &socket) {
    if (!socket.info)
        return false;
    const netlink::TcpInfo &info = *socket.info;
    const SocketPayload payload = watched.bytes.update(socket);
    cw_tcp_socket record = watched.record;
    record.acked_bytes = payload.acked_bytes;
    record.received_bytes = payload.received_bytes;
    record.unsent_bytes = payload.unsent_bytes;
    record.sent_bytes = info.sent_bytes.value_or(0);
    record.retransmitted_bytes = info.retransmitted_bytes.value_or(0);
    record.sent_segments = info.sent_segments.value_or(0);
    record.received_segments = info.received_segments.value_or(0);
    record.retransmitted_segments = info.retransmitted_segments.value_or(0);
    record.rtt_us = info.rtt_us.value_or(0);
    record.mss_bytes = info.mss_bytes.value_or(0);
    record.state = info.state;
    if (!info.retransmitted_bytes)
        problems_.insert("sent and retransmitted bytes are unknown. Fix: use Linux 4.19 or later");
    const cw_tcp_socket before = counters_of(watched.record);
    const cw_tcp_socket now = counters_of(record);
    const bool has_changed = !watched.has_counters || std::memcmp(&before, &now, sizeof(now)) != 0;
    watched.record = record;
    watched.has_counters = true;
    return has_changed;
}

void SocketSource::write(source::RecordSink &sink, const Watched &watched,
                         std::uint32_t more_flags) const {
    cw_tcp_socket record = watched.record;
    record.header.time_ns = options_.clock();
    record.flags |= more_flags;
    sink.append(record.header);
}

} // namespace collwire::sources
