// SPDX-License-Identifier: Apache-2.0
#include "userspace/sources/socket_source.h"

#include <algorithm>
#include <cerrno>
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
#include "userspace/sources/socket_end.h"
#include "userspace/sources/socket_record.h"

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
    if (record.kind == CW_KIND_TCP_SOCKET_END && record.length_bytes >= sizeof(cw_tcp_socket_end))
        return take_end(reinterpret_cast<const cw_tcp_socket_end &>(record));
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
    bool has_exited = false;
    Place *place = place_of(tgid, has_exited);
    if (place != nullptr) {
        inodes_.insert(inode);
        place->pending[inode] = {tgid, fd, connected};
    } else if (has_end_records()) {
        unplaced_[inode] = {has_exited};
    } else if (has_exited) {
        ++n_closed_early_;
    }
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

SocketSource::Place *SocketSource::place_of(std::uint32_t tgid, bool &has_exited) {
    const std::string path = fmt::format("/proc/{}/ns/net", tgid);
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        has_exited = errno == ENOENT || errno == ESRCH;
        if (!has_exited)
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
    for (const auto &[netns, each] : places_) {
        if (&each == &place)
            watched.record = new_record(socket.id, socket.inode, netns, {pending.tgid, pending.fd});
    }
    place.cookies[socket.inode] = socket.id.cookie;
}

// Its connection's record came before it: one that is not known here has ended for this source.
void SocketSource::take_end(const cw_tcp_socket_end &end) {
    if (unplaced_.erase(end.inode) != 0)
        return write_end({}, end);
    for (auto &[netns, place] : places_) {
        if (place.pending.erase(end.inode) != 0) {
            inodes_.erase(end.inode);
            return write_end({}, end);
        }
        const auto cookie = place.cookies.find(end.inode);
        if (cookie == place.cookies.end())
            continue;
        const auto watched = place.sockets.find(cookie->second);
        // Its last counters in this recording are read.
        if (watched->second.is_over)
            return;
        write_end(watched->second, end);
        return forget(place, cookie->second);
    }
}

void SocketSource::write_end(std::optional<Watched> known, const cw_tcp_socket_end &end) {
    const netlink::TcpSocket socket = socket_of(end);
    if (!known) {
        known.emplace();
        known->bytes = SocketBytes(end.connected != 0);
        known->record = new_record(socket.id, end.inode, end.netns, {end.tgid, end.fd});
    }
    static_cast<void>(take_counters(*known, socket, known->bytes.end(socket, fins_of(end))));
    known->record.state = static_cast<std::uint32_t>(netlink::TcpState::Close);
    write(kept_, *known, CW_TCP_SOCKET_GONE | CW_TCP_SOCKET_FINAL, end.header.time_ns);
}

void SocketSource::give_up(Place &place) {
    for (auto entry = place.pending.begin(); entry != place.pending.end();) {
        auto &[inode, pending] = *entry;
        const bool is_open = inventory::socket_inode(pending.tgid, pending.fd) == inode;
        // A closed one may still send: its end comes then.
        const bool may_end = !is_open && !last_sample_ && has_end_records();
        if ((is_open || may_end) && ++pending.tries < MOST_TRIES) {
            ++entry;
            continue;
        }
        ++(is_open ? n_not_found_ : n_closed_early_);
        inodes_.erase(inode);
        entry = place.pending.erase(entry);
    }
}

void SocketSource::give_up_unplaced() {
    for (auto entry = unplaced_.begin(); entry != unplaced_.end();) {
        if (++entry->second.tries < MOST_TRIES && !last_sample_) {
            ++entry;
            continue;
        }
        n_closed_early_ += entry->second.has_exited ? 1 : 0;
        entry = unplaced_.erase(entry);
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
    if (!everything)
        give_up_unplaced();
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
        Watched &watched = found->second;
        static_cast<void>(take_counters(watched, socket, watched.bytes.update(socket)));
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
            const SocketPayload payload = watched.bytes.update(*socket);
            watched.is_due = take_counters(watched, *socket, payload) || watched.is_due;
        });
    if (!read) {
        has_read_all_ = false;
        fail(read.failure(), "sockets are not counted");
    }
    for (auto &[cookie, watched] : place.sockets) {
        if (watched.is_due && watched.has_counters)
            write(sink, watched, 0, options_.clock());
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
    Watched &watched = place.sockets.at(cookie);
    if (watched.has_counters)
        write(sink, watched, flags, options_.clock());
    else
        ++n_closed_early_;
    forget(place, cookie);
}

void SocketSource::forget(Place &place, std::uint64_t cookie) {
    const auto found = place.sockets.find(cookie);
    inodes_.erase(found->second.record.inode);
    place.cookies.erase(found->second.record.inode);
    place.sockets.erase(found);
}

bool SocketSource::take_counters(Watched &watched, const netlink::TcpSocket &socket,
                                 const SocketPayload &payload) {
    if (!socket.info)
        return false;
    if (!socket.info->retransmitted_bytes)
        problems_.insert("sent and retransmitted bytes are unknown. Fix: use Linux 4.19 or later");
    cw_tcp_socket record = watched.record;
    set_counters(record, *socket.info, payload);
    const bool has_changed = !watched.has_counters || !has_same_counters(watched.record, record);
    watched.record = record;
    watched.has_counters = true;
    return has_changed;
}

// Never before the record before it: a socket may end while its sample is written.
void SocketSource::write(source::RecordSink &sink, Watched &watched, std::uint32_t more_flags,
                         std::uint64_t time_ns) {
    cw_tcp_socket &record = watched.record;
    record.header.time_ns = std::max<std::uint64_t>(record.header.time_ns, time_ns);
    record.flags |= more_flags;
    sink.append(record.header);
}

} // namespace collwire::sources
