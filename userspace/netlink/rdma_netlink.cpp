// SPDX-License-Identifier: Apache-2.0
#include "userspace/netlink/rdma_netlink.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <set>

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <netlink/handlers.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <rdma/rdma_netlink.h>

namespace collwire::netlink {
namespace {

// One chunk of a QP dump on hardware may take some 100 firmware commands; this is far beyond that.
constexpr timeval answer_timeout{.tv_sec = 10, .tv_usec = 0};
constexpr int dump_attempts = 5;
constexpr std::size_t receive_buffer_bytes = 64UL * 1024;

ErrorKind kind_of(int errnum) {
    switch (errnum) {
    case EPERM:
    case EACCES:
        return ErrorKind::NotPermitted;
    case EOPNOTSUPP:
    case EPROTONOSUPPORT:
    case ENODEV:
    case ENOENT:
    case EINVAL: // older kernels return this for an unknown command
        return ErrorKind::Unsupported;
    default:
        return ErrorKind::Failed;
    }
}

struct Exchange {
    const std::function<Result<void>(AttributeBytes)> &on_answer;
    std::optional<Error> failure{};
    std::size_t messages = 0;
    int kernel_errno = 0;
    bool done = false;
    bool interrupted = false;
};

int on_valid(nl_msg *message, void *argument) {
    auto &exchange = *static_cast<Exchange *>(argument);
    const nlmsghdr *header = nlmsg_hdr(message);
    if ((header->nlmsg_flags & NLM_F_DUMP_INTR) != 0)
        exchange.interrupted = true;
    ++exchange.messages;
    if (!exchange.failure) {
        auto taken = exchange.on_answer({static_cast<const std::byte *>(nlmsg_data(header)),
                                         static_cast<std::size_t>(nlmsg_datalen(header))});
        if (!taken)
            exchange.failure = std::move(taken).failure();
    }
    return NL_OK;
}

// Both the end of a dump and an acknowledgement start with 0 or -errno; libnl checks only the
// latter.
int on_done(nl_msg *message, void *argument) {
    auto &exchange = *static_cast<Exchange *>(argument);
    const nlmsghdr *header = nlmsg_hdr(message);
    int status = 0;
    if (nlmsg_datalen(header) >= static_cast<int>(sizeof(status)))
        std::memcpy(&status, nlmsg_data(header), sizeof(status));
    exchange.kernel_errno = status < 0 ? -status : 0;
    exchange.done = true;
    return NL_STOP;
}

int on_error(sockaddr_nl * /*address*/, nlmsgerr *answer, void *argument) {
    auto &exchange = *static_cast<Exchange *>(argument);
    exchange.kernel_errno = -answer->error;
    exchange.done = true;
    return NL_STOP;
}

struct FreeMessage {
    void operator()(nl_msg *message) const { nlmsg_free(message); }
};
struct FreeCallbacks {
    void operator()(nl_cb *callbacks) const { nl_cb_put(callbacks); }
};

} // namespace

struct RdmaNetlink::Request {
    std::string_view what;
    int command;
    bool dump = false;
    std::optional<std::uint32_t> dev_index{};
    std::optional<std::uint32_t> port{};
    std::string_view chardev_type{};
};

void RdmaNetlink::Close::operator()(nl_sock *socket) const {
    nl_socket_free(socket);
}

Result<RdmaNetlink> RdmaNetlink::open() {
    nl_sock *socket = nl_socket_alloc();
    if (socket == nullptr)
        return error(ErrorKind::Failed, "RDMA netlink: out of memory");
    RdmaNetlink opened(socket);
    if (const int status = nl_connect(socket, NETLINK_RDMA); status < 0)
        return error(ErrorKind::Unsupported,
                     std::string("RDMA netlink: ") + nl_geterror(status) +
                         ". Fix: load the RDMA subsystem (modprobe ib_uverbs)");
    if (setsockopt(nl_socket_get_fd(socket), SOL_SOCKET, SO_RCVTIMEO, &answer_timeout,
                   sizeof(answer_timeout)) != 0)
        return error(ErrorKind::Failed,
                     std::string("RDMA netlink: SO_RCVTIMEO: ") + std::strerror(errno));
    nl_socket_set_msg_buf_size(socket, receive_buffer_bytes);
    return opened;
}

Result<RdmaNetlink::Answered> RdmaNetlink::ask(const Request &request, const OnAnswer &on_answer) {
    const std::string what = "RDMA netlink: " + std::string(request.what);
    const int type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, request.command);
    const int flags = request.dump ? NLM_F_REQUEST | NLM_F_DUMP : NLM_F_REQUEST | NLM_F_ACK;
    const std::unique_ptr<nl_msg, FreeMessage> message(nlmsg_alloc_simple(type, flags));
    const std::unique_ptr<nl_cb, FreeCallbacks> callbacks(nl_cb_alloc(NL_CB_DEFAULT));
    bool built = message != nullptr && callbacks != nullptr;
    if (built && request.dev_index)
        built = nla_put_u32(message.get(), RDMA_NLDEV_ATTR_DEV_INDEX, *request.dev_index) == 0;
    if (built && request.port)
        built = nla_put_u32(message.get(), RDMA_NLDEV_ATTR_PORT_INDEX, *request.port) == 0;
    if (built && !request.chardev_type.empty())
        built = nla_put_string(message.get(), RDMA_NLDEV_ATTR_CHARDEV_TYPE,
                               std::string(request.chardev_type).c_str()) == 0;
    if (!built)
        return error(ErrorKind::Failed, what + ": out of memory");

    Exchange exchange{.on_answer = on_answer};
    nl_cb_set(callbacks.get(), NL_CB_VALID, NL_CB_CUSTOM, on_valid, &exchange);
    nl_cb_set(callbacks.get(), NL_CB_FINISH, NL_CB_CUSTOM, on_done, &exchange);
    nl_cb_set(callbacks.get(), NL_CB_ACK, NL_CB_CUSTOM, on_done, &exchange);
    nl_cb_err(callbacks.get(), NL_CB_CUSTOM, on_error, &exchange);
    if (const int status = nl_send_auto(socket_.get(), message.get()); status < 0)
        return error(ErrorKind::Failed, what + ": " + nl_geterror(status));
    while (!exchange.done) {
        const int status = nl_recvmsgs(socket_.get(), callbacks.get());
        if (status == -NLE_DUMP_INTR) {
            exchange.interrupted = true;
            continue;
        }
        if (status < 0 && !exchange.done)
            return error(ErrorKind::Failed, what + ": " + nl_geterror(status));
    }
    if (exchange.kernel_errno != 0)
        return error(kind_of(exchange.kernel_errno),
                     what + ": " + std::strerror(exchange.kernel_errno));
    if (exchange.failure)
        return std::move(*exchange.failure);
    return Answered{.messages = exchange.messages, .interrupted = exchange.interrupted};
}

Result<std::vector<NetlinkDevice>> RdmaNetlink::devices() {
    std::vector<NetlinkDevice> devices;
    auto listed = ask({.what = "list of devices", .command = RDMA_NLDEV_CMD_GET, .dump = true},
                      [&](AttributeBytes bytes) -> Result<void> {
                          auto device = parse_device(bytes);
                          if (!device)
                              return std::move(device).failure();
                          devices.push_back(std::move(device).value());
                          return {};
                      });
    if (!listed)
        return std::move(listed).failure();
    // Without uverbs the kernel would load it on this question: reading must not change the
    // machine.
    if (access("/sys/class/infiniband_verbs", F_OK) != 0)
        return devices;
    for (NetlinkDevice &device : devices) {
        auto answered = ask({.what = "driver of a device",
                             .command = RDMA_NLDEV_CMD_GET_CHARDEV,
                             .dev_index = device.dev_index,
                             .chardev_type = "uverbs"},
                            [&](AttributeBytes bytes) -> Result<void> {
                                auto id = parse_driver_id(bytes);
                                if (!id)
                                    return std::move(id).failure();
                                device.driver_id = *id;
                                return {};
                            });
        // A device without uverbs, or a kernel before 5.3: only sysfs knows its driver.
        if (!answered)
            device.driver_id.reset();
    }
    return devices;
}

Result<std::vector<NetlinkPort>> RdmaNetlink::ports(std::uint32_t dev_index) {
    std::vector<NetlinkPort> ports;
    auto listed = ask({.what = "ports of a device",
                       .command = RDMA_NLDEV_CMD_PORT_GET,
                       .dump = true,
                       .dev_index = dev_index},
                      [&](AttributeBytes bytes) -> Result<void> {
                          auto port = parse_port(bytes);
                          if (!port)
                              return std::move(port).failure();
                          ports.push_back(std::move(port).value());
                          return {};
                      });
    if (!listed)
        return std::move(listed).failure();
    return ports;
}

Result<std::vector<NetlinkQp>> RdmaNetlink::dump_qps(std::uint32_t dev_index) {
    std::vector<NetlinkQp> qps;
    std::set<std::uint32_t> known;
    for (int attempt = 0; attempt < dump_attempts; ++attempt) {
        std::vector<NetlinkQp> dump;
        auto dumped = ask({.what = "dump of queue pairs",
                           .command = RDMA_NLDEV_CMD_RES_QP_GET,
                           .dump = true,
                           .dev_index = dev_index},
                          [&](AttributeBytes bytes) { return parse_qps(bytes, dump); });
        if (!dumped)
            return std::move(dumped).failure();
        bool found_new = false;
        for (NetlinkQp &qp : dump) {
            if (known.insert(qp.lqpn).second) {
                qps.push_back(std::move(qp));
                found_new = true;
            }
        }
        if (!dumped->interrupted && (dumped->messages <= 1 || !found_new))
            break;
    }
    return qps;
}

Result<std::vector<OptionalCounter>> RdmaNetlink::optional_counters(std::uint32_t dev_index,
                                                                    std::uint32_t port) {
    std::vector<OptionalCounter> counters;
    auto listed = ask({.what = "optional counters",
                       .command = RDMA_NLDEV_CMD_STAT_GET_STATUS,
                       .dev_index = dev_index,
                       .port = port},
                      [&](AttributeBytes bytes) -> Result<void> {
                          auto parsed = parse_optional_counters(bytes);
                          if (!parsed)
                              return std::move(parsed).failure();
                          counters = std::move(parsed).value();
                          return {};
                      });
    if (!listed)
        return std::move(listed).failure();
    return counters;
}

Result<SystemMode> RdmaNetlink::system_mode() {
    SystemMode mode;
    auto asked = ask({.what = "system mode", .command = RDMA_NLDEV_CMD_SYS_GET},
                     [&](AttributeBytes bytes) -> Result<void> {
                         auto parsed = parse_system_mode(bytes);
                         if (!parsed)
                             return std::move(parsed).failure();
                         mode = *parsed;
                         return {};
                     });
    if (!asked)
        return std::move(asked).failure();
    return mode;
}

std::string_view qp_type_name(std::uint8_t type) {
    // enum ib_qp_type of rdma/ib_verbs.h
    constexpr std::array<std::string_view, 11> names = {
        "SMI",           "GSI",      "RC",         "UC",      "UD",     "RAW_IPV6",
        "RAW_ETHERTYPE", "UNKNOWN7", "RAW_PACKET", "XRC_INI", "XRC_TGT"};
    if (type == 7 || type >= names.size())
        return type == 0xff ? "DRIVER" : "unknown";
    return names[type];
}

std::string_view qp_state_name(std::uint8_t state) {
    constexpr std::array<std::string_view, 7> names = {"RESET", "INIT", "RTR", "RTS",
                                                       "SQD",   "SQE",  "ERR"};
    return state < names.size() ? names[state] : "unknown";
}

Result<std::vector<NetlinkQp>> dump_qps(std::uint32_t dev_index) {
    auto netlink = RdmaNetlink::open();
    if (!netlink)
        return std::move(netlink).failure();
    return netlink->dump_qps(dev_index);
}

} // namespace collwire::netlink
