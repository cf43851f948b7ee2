// SPDX-License-Identifier: Apache-2.0
// A network plugin for NCCL over verbs: a test double of those that sites load. README.md
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi.h"
#include "connection.h"

namespace collwire::network_double {
namespace {

std::vector<Device> devices;
std::mutex devices_mutex;

class Socket {
public:
    explicit Socket(int fd = -1) : fd_(fd) {}
    Socket(Socket &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
    Socket &operator=(Socket &&other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    ~Socket() {
        if (fd_ >= 0)
            close(fd_);
    }
    [[nodiscard]] int fd() const { return fd_; }
    [[nodiscard]] int release() { return std::exchange(fd_, -1); }
    static Socket open() {
        return Socket{socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    }

private:
    int fd_;
};

// The two ends send each other their addresses, and then that they are ready.
class Handshake {
public:
    enum class State { Busy, Done, Failed };

    Handshake(Socket socket, std::unique_ptr<Connection> connection)
        : socket_(std::move(socket)), connection_(std::move(connection)), own_(connection_->end()) {
    }

    State go_on() {
        if (!exchange(&own_, &other_, sizeof(End), 0))
            return is_failed_ ? State::Failed : State::Busy;
        if (!is_connected_ && !connection_->connect_to(other_))
            return State::Failed;
        is_connected_ = true;
        char ready = 1, other_is = 0;
        if (!exchange(&ready, &other_is, 1, sizeof(End)))
            return is_failed_ ? State::Failed : State::Busy;
        return State::Done;
    }
    std::unique_ptr<Connection> take() {
        connection_->keep_socket(socket_.release());
        return std::move(connection_);
    }

private:
    // Of both streams the part that begins at `begin`. False: not all of it yet.
    bool exchange(const void *own, void *others, std::size_t bytes, std::size_t begin) {
        while (sent_ < begin + bytes) {
            const ssize_t n = ::send(socket_.fd(), static_cast<const char *>(own) + (sent_ - begin),
                                     begin + bytes - sent_, MSG_NOSIGNAL);
            if (n <= 0)
                return note(n);
            sent_ += static_cast<std::size_t>(n);
        }
        while (received_ < begin + bytes) {
            const ssize_t n = recv(socket_.fd(), static_cast<char *>(others) + (received_ - begin),
                                   begin + bytes - received_, 0);
            if (n <= 0)
                return note(n);
            received_ += static_cast<std::size_t>(n);
        }
        return true;
    }
    bool note(ssize_t n) {
        is_failed_ = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != ENOTCONN &&
                                errno != EINPROGRESS);
        return false;
    }

    Socket socket_;
    std::unique_ptr<Connection> connection_;
    End own_, other_;
    std::size_t sent_ = 0, received_ = 0;
    bool is_connected_ = false, is_failed_ = false;
};

struct Handle {
    std::uint32_t address = 0; // of the network's order
    std::uint16_t port = 0;
    std::uint16_t reserved = 0;
    Handshake *handshake = nullptr; // of the end that connects
};
static_assert(sizeof(Handle) <= HANDLE_BYTES);

struct Listener {
    int device = 0;
    Socket socket;
    std::unique_ptr<Handshake> handshake;
};

// IPv4 in IPv6.
bool is_ipv4(const ibv_gid &gid) {
    return std::memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0;
}

void add_device(ibv_device *found, std::uint8_t gid_index) {
    Device device;
    device.name = ibv_get_device_name(found);
    device.gid_index = gid_index;
    device.context = ibv_open_device(found);
    ibv_port_attr port{};
    if (device.context == nullptr || ibv_query_port(device.context, 1, &port) != 0 ||
        port.state != IBV_PORT_ACTIVE ||
        ibv_query_gid(device.context, 1, gid_index, &device.gid) != 0 || !is_ipv4(device.gid))
        return;
    device.mtu = port.active_mtu;
    device.guid = ibv_get_device_guid(found);
    device.pd = ibv_alloc_pd(device.context);
    if (device.pd != nullptr)
        devices.push_back(device);
}

int init(void *) {
    const std::scoped_lock lock(devices_mutex);
    if (!devices.empty())
        return SUCCESS;
    if (std::getenv("COLLWIRE_NETWORK_DOUBLE_HIDE") != nullptr)
        hide_queue_pairs();
    const char *index = std::getenv("NCCL_IB_GID_INDEX");
    int n = 0;
    ibv_device **all = ibv_get_device_list(&n);
    for (int i = 0; i < n; ++i)
        add_device(all[i], static_cast<std::uint8_t>(index == nullptr ? 1 : std::atoi(index)));
    if (all != nullptr)
        ibv_free_device_list(all);
    return devices.empty() ? SYSTEM_ERROR : SUCCESS;
}

int count_devices(int *n) {
    *n = static_cast<int>(devices.size());
    return SUCCESS;
}

int properties(int device, Properties *into) {
    Device &of = devices[static_cast<std::size_t>(device)];
    *into = {.name = of.name.data(),
             .pci_path = nullptr,
             .guid = of.guid,
             .ptr_support = PTR_HOST,
             .reg_is_global = 0,
             .speed_mbps = 10000,
             .port = 1,
             .latency = 0,
             .max_comms = 65536,
             .max_receives = 1,
             .device_type = 0,
             .device_version = 0};
    return SUCCESS;
}

int listen_on(int device, void *handle, void **listener) {
    auto made = std::make_unique<Listener>();
    made->device = device;
    made->socket = Socket::open();
    sockaddr_in address{};
    address.sin_family = AF_INET;
    std::memcpy(&address.sin_addr, devices[static_cast<std::size_t>(device)].gid.raw + 12, 4);
    socklen_t size = sizeof(address);
    auto *generic = reinterpret_cast<sockaddr *>(&address);
    if (bind(made->socket.fd(), generic, size) != 0 || listen(made->socket.fd(), 16) != 0 ||
        getsockname(made->socket.fd(), generic, &size) != 0)
        return SYSTEM_ERROR;
    const Handle address_handle{address.sin_addr.s_addr, address.sin_port, 0, nullptr};
    std::memset(handle, 0, HANDLE_BYTES);
    std::memcpy(handle, &address_handle, sizeof(address_handle));
    *listener = made.release();
    return SUCCESS;
}

// Names the connection of each queue pair, a line each.
void log(const Connection &connection, bool sends) {
    const char *path = std::getenv("COLLWIRE_NETWORK_DOUBLE_LOG");
    const int fd =
        path == nullptr ? -1 : open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    const std::string line =
        "{\"net_comm\":" + std::to_string(reinterpret_cast<std::uintptr_t>(&connection)) +
        ",\"qpn\":" + std::to_string(connection.end().qpn) +
        ",\"sends\":" + (sends ? "true" : "false") + "}\n";
    static_cast<void>(write(fd, line.data(), line.size()) != 0);
    close(fd);
}

// What comes of another step of a handshake; it is over where `comm` is set or this is no success.
int step(Handshake &handshake, bool sends, void **comm) {
    switch (handshake.go_on()) {
    case Handshake::State::Busy:
        return SUCCESS;
    case Handshake::State::Failed:
        return SYSTEM_ERROR;
    case Handshake::State::Done:
        break;
    }
    auto connection = handshake.take();
    log(*connection, sends);
    *comm = connection.release();
    return SUCCESS;
}

int connect_to(int device, void *handle, void **comm, void **) {
    *comm = nullptr;
    Handle known;
    std::memcpy(&known, handle, sizeof(known));
    if (known.handshake == nullptr) {
        auto connection = Connection::make(devices[static_cast<std::size_t>(device)], true);
        Socket socket = Socket::open();
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = known.address;
        address.sin_port = known.port;
        if (!connection || (connect(socket.fd(), reinterpret_cast<const sockaddr *>(&address),
                                    sizeof(address)) != 0 &&
                            errno != EINPROGRESS))
            return SYSTEM_ERROR;
        known.handshake = new Handshake(std::move(socket), std::move(connection));
        std::memcpy(handle, &known, sizeof(known));
    }
    const int result = step(*known.handshake, true, comm);
    if (result != SUCCESS || *comm != nullptr)
        delete known.handshake;
    return result;
}

int accept_from(void *listener, void **comm, void **) {
    auto &from = *static_cast<Listener *>(listener);
    *comm = nullptr;
    if (!from.handshake) {
        Socket socket{accept4(from.socket.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
        if (socket.fd() < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK ? SUCCESS : SYSTEM_ERROR;
        auto connection = Connection::make(devices[static_cast<std::size_t>(from.device)], false);
        if (!connection)
            return SYSTEM_ERROR;
        from.handshake = std::make_unique<Handshake>(std::move(socket), std::move(connection));
    }
    const int result = step(*from.handshake, false, comm);
    if (result != SUCCESS || *comm != nullptr)
        from.handshake.reset();
    return result;
}

Connection &connection_of(void *comm) {
    return *static_cast<Connection *>(comm);
}

int reg_mr(void *comm, void *data, std::size_t size, int, void **mr) {
    *mr = ibv_reg_mr(connection_of(comm).pd(), data, size,
                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    return *mr == nullptr ? SYSTEM_ERROR : SUCCESS;
}

int reg_mr_dma_buf(void *, void *, std::size_t, int, std::uint64_t, int, void **) {
    return SYSTEM_ERROR;
}

int dereg_mr(void *, void *mr) {
    return ibv_dereg_mr(static_cast<ibv_mr *>(mr)) == 0 ? SUCCESS : SYSTEM_ERROR;
}

int isend(void *comm, void *data, int size, int, void *mr, void **request) {
    bool failed = false;
    *request = connection_of(comm).send(data, static_cast<std::uint32_t>(size),
                                        *static_cast<ibv_mr *>(mr), failed);
    return failed ? SYSTEM_ERROR : SUCCESS;
}

int irecv(void *comm, int n, void **data, int *sizes, int *, void **mrs, void **request) {
    if (n != 1)
        return SYSTEM_ERROR;
    bool failed = false;
    *request = connection_of(comm).receive(*data, static_cast<std::uint32_t>(*sizes),
                                           *static_cast<ibv_mr *>(*mrs), failed);
    return failed ? SYSTEM_ERROR : SUCCESS;
}

int iflush(void *, int, void **, int *, void **, void **request) {
    *request = nullptr; // the host wrote what it received
    return SUCCESS;
}

int test(void *request, int *done, int *sizes) {
    auto &of = *static_cast<Request *>(request);
    *done = 0;
    if (!of.is_done && !of.connection->poll())
        return SYSTEM_ERROR;
    if (!of.is_done)
        return SUCCESS;
    *done = 1;
    if (sizes != nullptr)
        *sizes = of.bytes;
    of.is_used = false;
    return SUCCESS;
}

int close_connection(void *comm) {
    delete static_cast<Connection *>(comm);
    return SUCCESS;
}

int close_listen(void *listener) {
    delete static_cast<Listener *>(listener);
    return SUCCESS;
}

} // namespace
} // namespace collwire::network_double

extern "C" __attribute__((visibility("default")))
const collwire::network_double::Network ncclNetPlugin_v8 = {
    .name = "collwire-double",
    .init = collwire::network_double::init,
    .devices = collwire::network_double::count_devices,
    .properties = collwire::network_double::properties,
    .listen = collwire::network_double::listen_on,
    .connect = collwire::network_double::connect_to,
    .accept = collwire::network_double::accept_from,
    .reg_mr = collwire::network_double::reg_mr,
    .reg_mr_dma_buf = collwire::network_double::reg_mr_dma_buf,
    .dereg_mr = collwire::network_double::dereg_mr,
    .isend = collwire::network_double::isend,
    .irecv = collwire::network_double::irecv,
    .iflush = collwire::network_double::iflush,
    .test = collwire::network_double::test,
    .close_send = collwire::network_double::close_connection,
    .close_recv = collwire::network_double::close_connection,
    .close_listen = collwire::network_double::close_listen,
    .device_mr = nullptr,
    .receive_consumed = nullptr,
};
