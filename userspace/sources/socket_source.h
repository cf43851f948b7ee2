// SPDX-License-Identifier: Apache-2.0
// Source "sockets": what NCCL's TCP sockets sent and received, as the kernel counts it. It asks the
// kernel, and takes the last counters from the records of source "socket_ends".
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "collwire/record.h"
#include "collwire/recorder_records.h"
#include "collwire/socket_records.h"
#include "userspace/netlink/sock_diag.h"
#include "userspace/source/record_buffer.h"
#include "userspace/source/source.h"
#include "userspace/sources/socket_bytes.h"

namespace collwire::sources {

struct SocketOptions {
    std::uint64_t interval_ns = 1'000'000'000;
    // Have the kernel report the last counters of sockets that end.
    bool end_notices = true;
    // Whether cw_tcp_socket_end records come; empty: no.
    std::function<bool()> has_end_records;
    std::function<std::uint64_t()> clock; // CLOCK_MONOTONIC in ns; empty: the machine's
};

class SocketSource : public source::Source {
public:
    explicit SocketSource(SocketOptions options);

    [[nodiscard]] std::string_view name() const override { return "sockets"; }
    Result<void> prepare() override;
    [[nodiscard]] std::vector<source::PlannedProbe> probe_list() const override { return {}; }
    Result<void> attach() override;
    [[nodiscard]] std::vector<source::SourceState> states() const override;
    // The sockets of a cw_nccl_connection are watched from now on. To be called also for those that
    // did not come through the ring buffer. A cw_tcp_socket_end ends one of them.
    void on_record(const cw_header &record) override;
    // Writes nothing before the interval is over, unless everything is asked for or after detach.
    void sample(source::RecordSink &sink, bool everything) override;
    [[nodiscard]] bool has_read_all() const override { return has_read_all_; }
    void baseline() override { read_now(); }
    // Of sockets that are there this is the last reading: more that they carry is in no sample.
    // Those of connections that are emitted later are in none at all.
    void end() override;
    void detach() override { last_sample_ = true; }

    // A TCP socket and the file descriptor that it has until it is closed; `connected`: made by
    // connect(), not by accept().
    void watch(std::uint32_t tgid, std::uint32_t fd, std::uint64_t inode, bool connected);
    [[nodiscard]] std::size_t n_watched() const;

private:
    struct Pending {
        std::uint32_t tgid = 0;
        std::uint32_t fd = 0;
        bool connected = false;
        unsigned tries = 0;
    };
    struct Watched {
        netlink::TcpSocketId id;
        SocketBytes bytes{false};
        cw_tcp_socket record{};
        bool has_counters = false;
        bool is_due = false;
        bool is_missing = false; // the kernel does not find it by its addresses any more
        bool was_waited_for = false;
        bool is_over = false; // it is not read any more
    };
    // Its namespace cannot be entered: only the kernel's record of its end has its counters.
    struct Unplaced {
        bool has_exited = false; // its process
        unsigned tries = 0;
    };
    // A network namespace. It lasts as long as sockets in it are watched.
    struct Place {
        explicit Place(netlink::SockDiag opened) : diag(std::move(opened)) {}
        netlink::SockDiag diag;
        std::optional<netlink::TcpEndNotices> notices;
        bool lost_notices = false; // since the last sample
        unsigned samples_with_loss = 0;
        std::uint64_t next_search_ns = 0;
        std::unordered_map<std::uint64_t, Pending> pending;       // by inode
        std::unordered_map<std::uint64_t, Watched> sockets;       // by cookie
        std::unordered_map<std::uint64_t, std::uint64_t> cookies; // of `sockets`, by inode
    };

    void add(std::uint32_t tgid, std::uint32_t fd, std::uint64_t inode, bool connected);
    void search_where_due();
    [[nodiscard]] bool has_end_records() const {
        return options_.has_end_records && options_.has_end_records();
    }
    // Null: its process has exited, or the namespace cannot be entered.
    Place *place_of(std::uint32_t tgid, bool &has_exited);
    void search(Place &place);
    void take_end(const cw_tcp_socket_end &end);
    void write_end(std::optional<Watched> known, const cw_tcp_socket_end &end);
    void forget(Place &place, std::uint64_t cookie);
    void adopt(Place &place, const netlink::TcpSocket &socket, const Pending &pending);
    void give_up(Place &place);
    void give_up_unplaced();
    void take_notices(source::RecordSink &sink, Place &place);
    void read_now();
    void read_counters(source::RecordSink &sink, Place &place, bool everything);
    void end_missing(source::RecordSink &sink, Place &place);
    void end(source::RecordSink &sink, Place &place, std::uint64_t cookie, std::uint32_t flags);
    // Whether it differs from what was written last.
    bool take_counters(Watched &watched, const netlink::TcpSocket &socket,
                       const SocketPayload &payload);
    static void write(source::RecordSink &sink, Watched &watched, std::uint32_t more_flags,
                      std::uint64_t time_ns);
    void fail(const Error &failure, std::string_view what);

    SocketOptions options_;
    std::map<std::uint64_t, Place> places_;                // by the inode of the namespace
    std::unordered_map<std::uint64_t, Unplaced> unplaced_; // by inode
    std::set<std::uint64_t> inodes_; // of all sockets that are watched or searched for
    std::uint64_t own_namespace_ = 0;
    std::string unavailable_;
    std::set<std::string> problems_;
    std::size_t n_closed_early_ = 0;
    std::size_t n_not_found_ = 0;
    std::uint64_t due_ns_ = 0;
    bool has_read_all_ = true;
    bool last_sample_ = false;
    bool has_ended_ = false;
    bool was_read_at_end_ = true;
    source::RecordBuffer kept_; // of the baseline, of the end
};

} // namespace collwire::sources
