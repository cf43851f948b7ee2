// SPDX-License-Identifier: Apache-2.0
// NCCL's communicators, with their connections, rings and trees, as records: a new segment of the
// capture starts with all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "collwire/nccl_comm_records.h"
#include "collwire/nccl_connection_records.h"
#include "userspace/source/source.h"
#include "userspace/sources/nccl/libraries.h"
#include "userspace/sources/nccl/pending_records.h"

namespace collwire::sources {

struct CommAddress {
    std::uint32_t tgid = 0;
    std::uint64_t comm = 0; // address
    friend auto operator<=>(const CommAddress &, const CommAddress &) = default;
};

class CommRegistry {
public:
    CommRegistry(const NcclLibraries &libraries, PendingRecords &pending)
        : libraries_(libraries), pending_(pending) {}

    // A record of a communicator whose memory was read before replaces that one, and its
    // connections stay.
    void add(const cw_nccl_comm &record);
    void read_channels(const CommAddress &address);
    // Its connections inside the node may have changed: read_local_connections() reads them.
    void want_local_connections(const CommAddress &address);
    // Begins no further communicator after 50 ms: the others follow with the next call.
    void read_local_connections();
    // What a communicator started until now is not recorded: it counts as started before.
    void read_counts();
    // Nothing, if the communicator is unknown.
    void add_connection(const CommAddress &address, const cw_nccl_connection &connection);
    // Of a known communicator: a connection in the process of another rank's proxy. False: it was
    // added before.
    [[nodiscard]] bool add_pxn_connection(const CommAddress &address, std::uint64_t connection);
    void remove(const CommAddress &address);
    // Of an exited process: the communicators in one library.
    void remove_all(std::uint32_t tgid, std::uint32_t image_id, std::uint64_t start_boottime_ns);

    // Null: unknown. Valid until the next add or remove.
    [[nodiscard]] const cw_nccl_comm *find(const CommAddress &address) const;
    [[nodiscard]] bool has_connection(const CommAddress &address,
                                      const cw_nccl_connection &connection) const;
    [[nodiscard]] std::vector<cw_nccl_comm> all() const;

    void append_all(source::RecordSink &sink);
    void append_new_local_connections(source::RecordSink &sink);
    // Rings and trees that no sample had: some 64 MiB of them; all, if it is the last sample.
    void append_new_channels(source::RecordSink &sink, bool is_last);
    void on_pending_cleared();
    // Empty: all rings and trees were read.
    [[nodiscard]] std::string channels_problem() const;

private:
    struct Comm {
        cw_nccl_comm record{};
        std::vector<RecordBytes> channels; // and its place in NVLS
        bool has_new_channels = false;     // in no sample yet
        std::vector<cw_nccl_local> locals;
        bool wants_locals = false;
        bool has_new_locals = false; // in no sample yet
        std::map<std::tuple<std::uint64_t, std::uint32_t>, RecordBytes>
            connections; // by address and first endpoint
        std::set<std::uint64_t> pxn_connections;
    };

    void drop_channels(Comm &comm);

    const NcclLibraries &libraries_;
    PendingRecords &pending_;
    std::map<CommAddress, Comm> comms_;
    std::size_t channel_bytes_ = 0;         // of all communicators, and pending ones
    std::size_t pending_channel_bytes_ = 0; // of communicators that ended
    bool are_channels_cut_ = false;
};

} // namespace collwire::sources
