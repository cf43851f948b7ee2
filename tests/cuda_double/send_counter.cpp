// SPDX-License-Identifier: Apache-2.0
// Preloaded: counts what the process gives to send(), and appends "<bytes> <calls>" to the file
// that SEND_COUNTER names when the process ends. Then "closed <type> <sockets> <bytes>": what it
// had given to those that it closed, by what NCCL says that they are for. The end that connected
// begins with a number of 8 bytes, and NCCL's number of the type. "closed_early <sockets> <bytes>":
// those that never got as far as that (2.22 closes some after the first 8 bytes). "messages
// <messages> <bytes> <missing>": of net_socket's connections where each has one socket, as by
// default: 4 bytes with a size, and so many of data. `missing`: what the last ones lack, of a
// connection of another kind, too.
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t MAX_SOCKETS = 65536;
constexpr std::size_t MAX_TYPES = 16;
constexpr unsigned long HEAD_BYTES = 12, TYPE_AT = 8;
constexpr unsigned long NUMBER_BYTES = 1; // of the socket among those of its connection
constexpr std::uint32_t NET_SOCKET = 3;

struct Socket {
    std::atomic<unsigned long> sent_bytes{0};
    std::atomic<unsigned long> head_bytes{0};
    std::atomic<bool> was_accepted{false};
    std::array<char, HEAD_BYTES> head{};
    std::array<unsigned char, 4> size{}; // of the message that comes
    unsigned long size_bytes = 0, data_left = 0;
};
struct Closed {
    std::atomic<unsigned long> sockets{0};
    std::atomic<unsigned long> sent_bytes{0};
};

std::atomic<unsigned long> sent_bytes{0};
std::atomic<unsigned long> calls{0};
std::atomic<unsigned long> messages{0};
std::atomic<unsigned long> message_bytes{0};
std::atomic<unsigned long> missing_bytes{0};
std::array<Socket, MAX_SOCKETS> sockets; // by descriptor
std::array<Closed, MAX_TYPES> closed;    // by type
Closed closed_early;

Socket *socket_of(int fd) {
    return fd >= 0 && static_cast<std::size_t>(fd) < sockets.size()
               ? &sockets[static_cast<std::size_t>(fd)]
               : nullptr;
}

// The end that receives first was connected to.
void add_to_head(Socket &socket, const void *data, unsigned long bytes, bool is_received) {
    const unsigned long begin = socket.head_bytes;
    if (begin == 0)
        socket.was_accepted = is_received;
    if (begin == HEAD_BYTES || socket.was_accepted != is_received)
        return;
    const unsigned long n = std::min(bytes, HEAD_BYTES - begin);
    std::memcpy(socket.head.data() + begin, data, n);
    socket.head_bytes = begin + n;
}

std::uint32_t type_of(const Socket &socket) {
    std::uint32_t type = 0;
    std::memcpy(&type, socket.head.data() + TYPE_AT, sizeof(type));
    return type;
}

// `begin`: what was sent there before.
void add_messages(Socket &socket, unsigned long begin, const void *data, unsigned long bytes) {
    if (socket.head_bytes != HEAD_BYTES || socket.was_accepted || type_of(socket) != NET_SOCKET)
        return;
    const auto *at = static_cast<const unsigned char *>(data);
    const unsigned char *end = at + bytes;
    const unsigned long before = HEAD_BYTES + NUMBER_BYTES;
    at += begin < before ? std::min(before - begin, bytes) : 0;
    while (at < end) {
        const auto left = static_cast<unsigned long>(end - at);
        if (socket.data_left != 0) {
            const unsigned long n = std::min(left, socket.data_left);
            socket.data_left -= n;
            message_bytes += n;
            at += n;
            continue;
        }
        socket.size[socket.size_bytes++] = *at++;
        if (socket.size_bytes != socket.size.size())
            continue;
        std::uint32_t size = 0;
        std::memcpy(&size, socket.size.data(), sizeof(size));
        socket.size_bytes = 0;
        socket.data_left = size;
        ++messages;
    }
}

unsigned long missing_of(const Socket &socket) {
    return socket.data_left + (socket.size_bytes == 0 ? 0 : socket.size.size() - socket.size_bytes);
}

bool is_tcp(int fd) {
    int protocol = 0, listens = 0;
    socklen_t bytes = sizeof(protocol);
    if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &bytes) != 0)
        return false;
    bytes = sizeof(listens);
    return protocol == IPPROTO_TCP &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) == 0 && listens == 0;
}

void add_closed(int fd, Socket &socket) {
    const std::uint32_t type = type_of(socket);
    if (socket.head_bytes == HEAD_BYTES && type < closed.size()) {
        ++closed[type].sockets;
        closed[type].sent_bytes += socket.sent_bytes;
    } else if (is_tcp(fd)) {
        ++closed_early.sockets;
        closed_early.sent_bytes += socket.sent_bytes;
    }
    socket.head_bytes = 0;
    socket.sent_bytes = 0;
    missing_bytes += missing_of(socket);
    socket.size_bytes = socket.data_left = 0;
}

__attribute__((destructor)) void write_counts() {
    const char *path = std::getenv("SEND_COUNTER");
    std::FILE *file = path != nullptr ? std::fopen(path, "a") : nullptr;
    if (file == nullptr)
        return;
    std::fprintf(file, "%lu %lu\n", sent_bytes.load(), calls.load());
    for (std::size_t type = 0; type < closed.size(); ++type)
        if (closed[type].sockets != 0)
            std::fprintf(file, "closed %zu %lu %lu\n", type, closed[type].sockets.load(),
                         closed[type].sent_bytes.load());
    std::fprintf(file, "closed_early %lu %lu\n", closed_early.sockets.load(),
                 closed_early.sent_bytes.load());
    for (const Socket &socket : sockets)
        missing_bytes += missing_of(socket);
    std::fprintf(file, "messages %lu %lu %lu\n", messages.load(), message_bytes.load(),
                 missing_bytes.load());
    std::fclose(file);
}

} // namespace

extern "C" __attribute__((visibility("default"))) ssize_t send(int fd, const void *data,
                                                               std::size_t bytes, int flags) {
    using Send = ssize_t (*)(int, const void *, std::size_t, int);
    static const auto real = reinterpret_cast<Send>(::dlsym(RTLD_NEXT, "send"));
    const ssize_t sent = real(fd, data, bytes, flags);
    if (sent > 0) {
        const auto n = static_cast<unsigned long>(sent);
        sent_bytes += n;
        calls++;
        if (Socket *socket = socket_of(fd)) {
            const unsigned long begin = socket->sent_bytes;
            socket->sent_bytes += n;
            add_to_head(*socket, data, n, false);
            add_messages(*socket, begin, data, n);
        }
    }
    return sent;
}

extern "C" __attribute__((visibility("default"))) ssize_t recv(int fd, void *data,
                                                               std::size_t bytes, int flags) {
    using Receive = ssize_t (*)(int, void *, std::size_t, int);
    static const auto real = reinterpret_cast<Receive>(::dlsym(RTLD_NEXT, "recv"));
    const ssize_t received = real(fd, data, bytes, flags);
    if (Socket *socket = received > 0 ? socket_of(fd) : nullptr)
        add_to_head(*socket, data, static_cast<unsigned long>(received), true);
    return received;
}

extern "C" __attribute__((visibility("default"))) int close(int fd) {
    using Close = int (*)(int);
    static const auto real = reinterpret_cast<Close>(::dlsym(RTLD_NEXT, "close"));
    // Its number may be another thread's at once.
    if (Socket *socket = socket_of(fd))
        add_closed(fd, *socket);
    return real(fd);
}
