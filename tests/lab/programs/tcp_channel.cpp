// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/programs/tcp_channel.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nlohmann/json.hpp>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

namespace collwire::lab {
namespace {

constexpr uint32_t max_message_bytes = 16U << 20;

Error os_error(const char *what) {
    return error(ErrorKind::Failed, fmt::format("{}: {}", what, std::strerror(errno)));
}

Result<void> write_all(int fd, const char *bytes, std::size_t length) {
    while (length > 0) {
        const ssize_t done = ::send(fd, bytes, length, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return os_error("TCP to the peer");
        }
        bytes += done;
        length -= static_cast<std::size_t>(done);
    }
    return {};
}

Result<void> read_all(int fd, char *bytes, std::size_t length) {
    while (length > 0) {
        const ssize_t done = ::recv(fd, bytes, length, 0);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done < 0) {
            return os_error("TCP from the peer");
        }
        if (done == 0) {
            return error(ErrorKind::Failed, "the peer closed the TCP connection");
        }
        bytes += done;
        length -= static_cast<std::size_t>(done);
    }
    return {};
}

void no_delay(int fd) {
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

} // namespace

Result<TcpChannel> TcpChannel::accept_one(uint16_t port) {
    TcpChannel listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (listener.fd_ < 0) {
        return os_error("socket");
    }
    const int on = 1;
    (void)setsockopt(listener.fd_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    if (::bind(listener.fd_, reinterpret_cast<sockaddr *>(&address), sizeof(address)) != 0 ||
        ::listen(listener.fd_, 1) != 0) {
        return os_error(fmt::format("listening on TCP port {}", port).c_str());
    }
    const int fd = ::accept4(listener.fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
        return os_error("accept");
    }
    no_delay(fd);
    return TcpChannel(fd);
}

Result<TcpChannel> TcpChannel::connect_to(const std::string &peer, int patience_s) {
    const std::size_t colon = peer.rfind(':');
    if (colon == std::string::npos) {
        return error(ErrorKind::Usage, fmt::format("{}: not HOST:PORT", peer));
    }
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    const int failed =
        getaddrinfo(peer.substr(0, colon).c_str(), peer.substr(colon + 1).c_str(), &hints, &found);
    if (failed != 0) {
        return error(ErrorKind::Failed, fmt::format("{}: {}", peer, gai_strerror(failed)));
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(patience_s);
    Result<TcpChannel> result = error(ErrorKind::Failed, "not tried");
    for (;;) {
        TcpChannel channel(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        if (channel.fd_ >= 0 && ::connect(channel.fd_, found->ai_addr, found->ai_addrlen) == 0) {
            no_delay(channel.fd_);
            result = std::move(channel);
            break;
        }
        if (std::chrono::steady_clock::now() > deadline) {
            result = os_error(fmt::format("connecting to {}", peer).c_str());
            break;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50)); // between attempts
    }
    freeaddrinfo(found);
    return result;
}

TcpChannel::TcpChannel(TcpChannel &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

TcpChannel &TcpChannel::operator=(TcpChannel &&other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
}

TcpChannel::~TcpChannel() {
    if (fd_ >= 0) {
        ::close(fd_);
    }
}

Result<void> TcpChannel::send(const nlohmann::json &message) {
    const std::string text = message.dump();
    const uint32_t length = static_cast<uint32_t>(text.size());
    std::string framed(sizeof(length), '\0');
    std::memcpy(framed.data(), &length, sizeof(length));
    framed += text;
    return write_all(fd_, framed.data(), framed.size());
}

Result<nlohmann::json> TcpChannel::receive() {
    uint32_t length = 0;
    if (auto got = read_all(fd_, reinterpret_cast<char *>(&length), sizeof(length)); !got) {
        return std::move(got).failure();
    }
    if (length > max_message_bytes) {
        return error(ErrorKind::BadInput,
                     fmt::format("the peer announced a message of {} bytes", length));
    }
    std::string text(length, '\0');
    if (auto got = read_all(fd_, text.data(), text.size()); !got) {
        return std::move(got).failure();
    }
    auto message = nlohmann::json::parse(text, nullptr, false);
    if (message.is_discarded()) {
        return error(ErrorKind::BadInput, "the peer sent what is no JSON");
    }
    return message;
}

} // namespace collwire::lab
