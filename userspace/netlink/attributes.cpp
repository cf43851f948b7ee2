// SPDX-License-Identifier: Apache-2.0
#include "userspace/netlink/attributes.h"

#include <array>
#include <climits>
#include <string_view>

#include <linux/netlink.h>
#include <netlink/attr.h>
#include <rdma/rdma_netlink.h>

namespace collwire::netlink {
namespace {

// The attributes of one level. Short or unterminated ones count as absent: drivers and kernels
// differ, so only a missing attribute that a record needs is an error.
class AttributeTable {
public:
    static Result<AttributeTable> parse(AttributeBytes bytes, std::string_view what) {
        AttributeTable table;
        if (bytes.size() > INT_MAX)
            return error(ErrorKind::BadInput, std::string(what) + ": answer too long");
        // libnl does not write through the head pointer; its prototype is older than const.
        auto *head = reinterpret_cast<nlattr *>(const_cast<std::byte *>(bytes.data()));
        if (!bytes.empty() && nla_parse(table.entries_.data(), RDMA_NLDEV_ATTR_MAX - 1, head,
                                        static_cast<int>(bytes.size()), nullptr) < 0)
            return error(ErrorKind::BadInput, std::string(what) + ": malformed netlink attributes");
        return table;
    }

    [[nodiscard]] std::optional<std::uint8_t> u8(int type) const {
        const nlattr *entry = sized(type, 1);
        return entry ? std::optional(nla_get_u8(entry)) : std::nullopt;
    }
    [[nodiscard]] std::optional<std::uint32_t> u32(int type) const {
        const nlattr *entry = sized(type, 4);
        return entry ? std::optional(nla_get_u32(entry)) : std::nullopt;
    }
    [[nodiscard]] std::optional<std::uint64_t> u64(int type) const {
        const nlattr *entry = sized(type, 8);
        return entry ? std::optional(nla_get_u64(entry)) : std::nullopt;
    }
    [[nodiscard]] std::string text(int type) const {
        const AttributeBytes bytes = payload(type);
        std::string_view view(reinterpret_cast<const char *>(bytes.data()), bytes.size());
        return std::string(view.substr(0, view.find('\0')));
    }
    [[nodiscard]] AttributeBytes payload(int type) const {
        const nlattr *entry = entries_.at(static_cast<std::size_t>(type));
        if (entry == nullptr)
            return {};
        return {static_cast<const std::byte *>(nla_data(entry)),
                static_cast<std::size_t>(nla_len(entry))};
    }
    [[nodiscard]] bool has(int type) const {
        return entries_.at(static_cast<std::size_t>(type)) != nullptr;
    }

private:
    [[nodiscard]] const nlattr *sized(int type, int bytes) const {
        const nlattr *entry = entries_.at(static_cast<std::size_t>(type));
        return entry != nullptr && nla_len(entry) >= bytes ? entry : nullptr;
    }

    std::array<nlattr *, RDMA_NLDEV_ATTR_MAX> entries_{};
};

// Calls each(entry attributes) for every nested attribute of this type.
template <typename Each>
Result<void> for_each_nested(AttributeBytes bytes, int type, std::string_view what, Each &&each) {
    auto *position = reinterpret_cast<nlattr *>(const_cast<std::byte *>(bytes.data()));
    int remaining = static_cast<int>(bytes.size());
    while (nla_ok(position, remaining)) {
        if (nla_type(position) == type) {
            auto entry = AttributeTable::parse({static_cast<const std::byte *>(nla_data(position)),
                                                static_cast<std::size_t>(nla_len(position))},
                                               what);
            if (!entry)
                return std::move(entry).failure();
            each(*entry);
        }
        position = nla_next(position, &remaining);
    }
    return {};
}

Error lacks(std::string_view what, std::string_view attribute) {
    return error(ErrorKind::BadInput,
                 std::string(what) + ": the answer has no " + std::string(attribute));
}

} // namespace

Result<NetlinkDevice> parse_device(AttributeBytes bytes) {
    constexpr std::string_view what = "RDMA netlink device";
    auto table = AttributeTable::parse(bytes, what);
    if (!table)
        return std::move(table).failure();
    const auto index = table->u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    if (!index)
        return lacks(what, "device index");
    NetlinkDevice device;
    device.dev_index = *index;
    device.name = table->text(RDMA_NLDEV_ATTR_DEV_NAME);
    if (device.name.empty())
        return lacks(what, "device name");
    device.n_ports = table->u32(RDMA_NLDEV_ATTR_PORT_INDEX).value_or(0);
    device.firmware = table->text(RDMA_NLDEV_ATTR_FW_VERSION);
    device.node_guid = table->u64(RDMA_NLDEV_ATTR_NODE_GUID);
    device.protocol = table->text(RDMA_NLDEV_ATTR_DEV_PROTOCOL);
    return device;
}

Result<NetlinkPort> parse_port(AttributeBytes bytes) {
    constexpr std::string_view what = "RDMA netlink port";
    auto table = AttributeTable::parse(bytes, what);
    if (!table)
        return std::move(table).failure();
    const auto index = table->u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    const auto port_number = table->u32(RDMA_NLDEV_ATTR_PORT_INDEX);
    if (!index || !port_number)
        return lacks(what, "device index or port number");
    NetlinkPort port;
    port.dev_index = *index;
    port.port = *port_number;
    port.subnet_prefix = table->u64(RDMA_NLDEV_ATTR_SUBNET_PREFIX);
    port.lid = table->u32(RDMA_NLDEV_ATTR_LID);
    port.sm_lid = table->u32(RDMA_NLDEV_ATTR_SM_LID);
    port.state = table->u8(RDMA_NLDEV_ATTR_PORT_STATE);
    port.phys_state = table->u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE);
    port.ifindex = table->u32(RDMA_NLDEV_ATTR_NDEV_INDEX).value_or(0);
    port.netdev = table->text(RDMA_NLDEV_ATTR_NDEV_NAME);
    return port;
}

Result<void> parse_qps(AttributeBytes bytes, std::vector<NetlinkQp> &qps) {
    constexpr std::string_view what = "RDMA netlink queue pairs";
    auto table = AttributeTable::parse(bytes, what);
    if (!table)
        return std::move(table).failure();
    const auto index = table->u32(RDMA_NLDEV_ATTR_DEV_INDEX);
    if (!index)
        return lacks(what, "device index");
    const std::string device = table->text(RDMA_NLDEV_ATTR_DEV_NAME);
    bool unnumbered = false;
    auto walked =
        for_each_nested(table->payload(RDMA_NLDEV_ATTR_RES_QP), RDMA_NLDEV_ATTR_RES_QP_ENTRY, what,
                        [&](const AttributeTable &entry) {
                            const auto lqpn = entry.u32(RDMA_NLDEV_ATTR_RES_LQPN);
                            if (!lqpn) {
                                unnumbered = true;
                                return;
                            }
                            NetlinkQp qp;
                            qp.dev_index = *index;
                            qp.device = device;
                            qp.lqpn = *lqpn;
                            qp.port = entry.u32(RDMA_NLDEV_ATTR_PORT_INDEX);
                            qp.rqpn = entry.u32(RDMA_NLDEV_ATTR_RES_RQPN);
                            qp.rq_psn = entry.u32(RDMA_NLDEV_ATTR_RES_RQ_PSN);
                            qp.sq_psn = entry.u32(RDMA_NLDEV_ATTR_RES_SQ_PSN);
                            qp.pdn = entry.u32(RDMA_NLDEV_ATTR_RES_PDN);
                            qp.type = entry.u8(RDMA_NLDEV_ATTR_RES_TYPE).value_or(0xff);
                            qp.state = entry.u8(RDMA_NLDEV_ATTR_RES_STATE).value_or(0xff);
                            qp.pid = entry.u32(RDMA_NLDEV_ATTR_RES_PID);
                            qp.kernel_name = entry.text(RDMA_NLDEV_ATTR_RES_KERN_NAME);
                            qps.push_back(std::move(qp));
                        });
    if (!walked)
        return std::move(walked).failure();
    if (unnumbered)
        return lacks(what, "number of a queue pair");
    return {};
}

Result<std::vector<OptionalCounter>> parse_optional_counters(AttributeBytes bytes) {
    constexpr std::string_view what = "RDMA netlink counter status";
    auto table = AttributeTable::parse(bytes, what);
    if (!table)
        return std::move(table).failure();
    std::vector<OptionalCounter> counters;
    auto walked = for_each_nested(
        table->payload(RDMA_NLDEV_ATTR_STAT_HWCOUNTERS), RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY, what,
        [&](const AttributeTable &entry) {
            // Only optional counters carry this attribute (nldev.c, since 5.16).
            const auto dynamic = entry.u8(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_DYNAMIC);
            std::string name = entry.text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME);
            if (dynamic && !name.empty())
                counters.push_back({std::move(name), *dynamic != 0});
        });
    if (!walked)
        return std::move(walked).failure();
    return counters;
}

Result<SystemMode> parse_system_mode(AttributeBytes bytes) {
    constexpr std::string_view what = "RDMA netlink system mode";
    auto table = AttributeTable::parse(bytes, what);
    if (!table)
        return std::move(table).failure();
    const auto mode = table->u8(RDMA_NLDEV_SYS_ATTR_NETNS_MODE);
    if (!mode)
        return lacks(what, "network namespace mode");
    return SystemMode{*mode != 0};
}

Result<std::optional<std::uint32_t>> parse_driver_id(AttributeBytes bytes) {
    auto table = AttributeTable::parse(bytes, "RDMA netlink character device");
    if (!table)
        return std::move(table).failure();
    return table->u32(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID);
}

} // namespace collwire::netlink
