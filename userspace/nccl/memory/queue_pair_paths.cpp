// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/queue_pair_paths.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

namespace collwire::nccl {

using source::QueuePairPath;

namespace {

using Gid = std::array<std::uint8_t, 16>;

constexpr std::int32_t MAX_DEVICES = 8;          // of a connection's end
constexpr std::uint64_t MAX_DEVICE_BYTES = 4096; // of what NCCL keeps of one
enum LinkLayer : std::uint8_t { INFINIBAND = 1, ETHERNET = 2 };
constexpr std::uint8_t LEAST_MTU = 1, MOST_MTU = 5; // enum ib_mtu

// A copy of a structure. A field that it does not have is empty.
class StructCopy {
public:
    explicit StructCopy(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

    template <typename T>
    [[nodiscard]] std::optional<T> at(std::optional<std::uint64_t> offset) const {
        if (!offset || *offset > bytes_.size() || bytes_.size() - *offset < sizeof(T))
            return std::nullopt;
        T value{};
        std::memcpy(&value, &bytes_[*offset], sizeof(T));
        return value;
    }

private:
    std::vector<std::byte> bytes_;
};

// Each structure is read as a whole: a reading of another process may take long.
class PathReader {
public:
    PathReader(const process::ProcessView &process, const LibraryLayout &layout,
               const cw_nccl_connection &connection)
        : process_(process), layout_(layout), connection_(connection),
          is_send_((connection.flags & CW_NCCL_CONNECTION_SEND) != 0) {}

    std::vector<QueuePairPath> run() {
        std::vector<QueuePairPath> paths;
        if (connection_.transport != CW_NCCL_TRANSPORT_IB || connection_.net_comm == 0)
            return paths;
        const auto n_remote_at = offset("ncclIbNetCommBase.nRemDevs");
        const auto n_remote = n_remote_at
                                  ? process_.read<std::int32_t>(connection_.net_comm + *n_remote_at)
                                  : std::nullopt;
        if (!n_remote || *n_remote < 1 || *n_remote > MAX_DEVICES)
            return paths;
        for (std::uint32_t i = 0; i < std::min<std::uint32_t>(connection_.n, CW_NCCL_ENDPOINTS);
             ++i) {
            const cw_nccl_endpoint &endpoint = connection_.endpoints[i];
            if (endpoint.role == CW_NCCL_ROLE_FLUSH || endpoint.address == 0)
                continue;
            if (auto path = read_path(endpoint, connection_.first + i, *n_remote))
                paths.push_back(*path);
        }
        return paths;
    }

private:
    [[nodiscard]] std::optional<std::uint64_t> offset(const char *name) const {
        const auto found = layout_.offsets.find(name);
        return found == layout_.offsets.end() ? std::nullopt : std::optional(found->second.value);
    }

    // An element of an array in the connection. Read once.
    const StructCopy *element(std::map<std::uint32_t, StructCopy> &known, const char *array,
                              const char *size, std::uint32_t index) {
        const auto found = known.find(index);
        if (found != known.end())
            return &found->second;
        const auto at = offset(array), bytes_each = offset(size);
        if (!at || !bytes_each || *bytes_each > MAX_DEVICE_BYTES)
            return nullptr;
        std::vector<std::byte> bytes(*bytes_each);
        if (!process_.read(connection_.net_comm + *at + index * *bytes_each, bytes))
            return nullptr;
        return &known.emplace(index, StructCopy(std::move(bytes))).first->second;
    }

    // The device of the other end; empty: not known which one.
    [[nodiscard]] std::optional<std::uint32_t> remote_device(std::uint32_t queue_pair,
                                                             std::int32_t n_remote) const {
        if (n_remote == 1)
            return 0;
        // Receivers of some versions leave it 0.
        const auto array = offset("ncclIbNetCommBase.qps"), size = offset("ncclIbQp"),
                   field = offset("ncclIbQp.remDevIdx");
        if (!is_send_ || !array || !size || !field)
            return std::nullopt;
        const auto device = process_.read<std::int32_t>(connection_.net_comm + *array +
                                                        queue_pair * *size + *field);
        if (!device || *device < 0 || *device >= n_remote)
            return std::nullopt;
        return static_cast<std::uint32_t>(*device);
    }

    std::optional<QueuePairPath> read_path(const cw_nccl_endpoint &endpoint,
                                           std::uint32_t queue_pair, std::int32_t n_remote) {
        const auto device = remote_device(queue_pair, n_remote);
        const StructCopy *info =
            device ? element(remote_, "ncclIbNetCommBase.remDevs", "ncclIbDevInfo", *device)
                   : nullptr;
        if (info == nullptr)
            return std::nullopt;
        const auto layer = info->at<std::uint8_t>(offset("ncclIbDevInfo.link_layer"));
        const auto mtu = info->at<std::uint32_t>(offset("ncclIbDevInfo.mtu"));
        const auto lid = info->at<std::uint32_t>(offset("ncclIbDevInfo.lid"));
        // In 2.20 and 2.21 it is in two halves.
        const auto gid = info->at<Gid>(offset(layout_.offsets.contains("ncclIbDevInfo.gid")
                                                  ? "ncclIbDevInfo.gid"
                                                  : "ncclIbDevInfo.spn"));
        // Zeroes: the connection is not made yet.
        if (!layer || !mtu || !lid || !gid || (*layer != INFINIBAND && *layer != ETHERNET) ||
            *mtu < LEAST_MTU || *mtu > MOST_MTU || (*layer == ETHERNET ? *gid == Gid{} : *lid == 0))
            return std::nullopt;
        QueuePairPath path;
        path.tgid = connection_.tgid;
        path.qpn = endpoint.number;
        path.address = endpoint.address;
        path.is_ethernet = *layer == ETHERNET;
        path.remote_gid = *gid;
        path.remote_lid = path.is_ethernet ? 0 : *lid;
        path.mtu = static_cast<std::uint8_t>(*mtu);
        read_local(path, endpoint.device);
        return path;
    }

    void read_local(QueuePairPath &path, std::uint32_t device) {
        if (device >= MAX_DEVICES)
            return;
        const StructCopy *own =
            is_send_ ? element(local_, "ncclIbSendComm.devs", "ncclIbSendCommDev", device)
                     : element(local_, "ncclIbRecvComm.devs", "ncclIbRecvCommDev", device);
        if (own == nullptr)
            return;
        path.local_gid =
            own->at<Gid>(offset("ncclIbNetCommDevBase.gidInfo.localGid")).value_or(Gid{});
        path.local_gid_index =
            own->at<std::int32_t>(offset("ncclIbNetCommDevBase.gidInfo.localGidIndex"))
                .value_or(-1);
    }

    const process::ProcessView &process_;
    const LibraryLayout &layout_;
    const cw_nccl_connection &connection_;
    bool is_send_;
    std::map<std::uint32_t, StructCopy> remote_, local_;
};

} // namespace

std::vector<QueuePairPath> read_queue_pair_paths(const process::ProcessView &process,
                                                 const LibraryLayout &layout,
                                                 const cw_nccl_connection &connection) {
    return PathReader(process, layout, connection).run();
}

} // namespace collwire::nccl
