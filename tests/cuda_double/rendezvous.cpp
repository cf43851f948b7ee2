// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/rendezvous.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

namespace {

// Nothing tells a client on another node when rank 0 listens.
constexpr auto kRetryAfter = std::chrono::milliseconds(20);

void write_id(const std::string &path, const ncclUniqueId &id) {
    const std::string whole = path + ".new";
    std::ofstream file(whole, std::ios::binary);
    file.write(id.internal, sizeof id.internal);
    file.close();
    if (!file || std::rename(whole.c_str(), path.c_str()) != 0)
        give_up(fmt::format("{}: {}. Fix: a path that can be written", path, std::strerror(errno)));
}

// Waits for write_id's rename.
ncclUniqueId read_id(const std::string &path) {
    const std::string directory = path.substr(0, path.rfind('/') + 1);
    const int watch = ::inotify_init1(IN_CLOEXEC);
    if (watch < 0 ||
        ::inotify_add_watch(watch, directory.empty() ? "." : directory.c_str(), IN_MOVED_TO) < 0)
        give_up(fmt::format("{}: {}. Fix: a path in a directory that can be read", path,
                            std::strerror(errno)));
    ncclUniqueId id;
    std::array<char, 4096> events;
    do {
        std::ifstream file(path, std::ios::binary);
        if (file.read(id.internal, sizeof id.internal)) {
            ::close(watch);
            return id;
        }
    } while (::read(watch, events.data(), events.size()) > 0 || errno == EINTR);
    give_up(fmt::format("{}: {}. Fix: look at the kernel's log", path, std::strerror(errno)));
}

void serve_id(int port, int clients, const ncclUniqueId &id) {
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (::bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 ||
        ::listen(listener, clients) != 0)
        give_up(
            fmt::format("port {}: {}. Fix: another port below 32768", port, std::strerror(errno)));
    for (int client = 0; client < clients; client++) {
        const int fd = ::accept(listener, nullptr, nullptr);
        const ssize_t written = ::write(fd, id.internal, sizeof id.internal);
        ::close(fd);
        if (written != sizeof id.internal)
            give_up("a rank went away. Fix: look at its own output");
    }
    ::close(listener);
}

std::optional<ncclUniqueId> ask_for_id(const std::string &host, const std::string &port) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo *found = nullptr;
    if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0)
        return std::nullopt;
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool connected = ::connect(fd, found->ai_addr, found->ai_addrlen) == 0;
    ::freeaddrinfo(found);
    ncclUniqueId id;
    const bool whole =
        connected && ::recv(fd, id.internal, sizeof id.internal, MSG_WAITALL) == sizeof id.internal;
    ::close(fd);
    return whole ? std::optional(id) : std::nullopt;
}

ncclUniqueId fetch_id(const std::string &host, const std::string &port) {
    for (;; std::this_thread::sleep_for(kRetryAfter)) {
        if (const auto id = ask_for_id(host, port))
            return *id;
    }
}

} // namespace

void give_up(const std::string &text) {
    fmt::print(stderr, "{}\n", text);
    std::exit(3);
}

void require(ncclResult_t result, const char *what) {
    if (result != ncclSuccess)
        give_up(fmt::format("{}: {} ({}). Fix: NCCL_DEBUG=INFO shows more", what,
                            ncclGetErrorString(result), ncclGetLastError(nullptr)));
}

ncclUniqueId agree_on_id(const std::string &place, int rank, int ranks) {
    ncclUniqueId id;
    if (rank == 0)
        require(ncclGetUniqueId(&id), "ncclGetUniqueId");
    const std::string kind = place.substr(0, place.find(':'));
    const std::string where = place.substr(std::min(place.size(), kind.size() + 1));
    if (kind == "file") {
        if (rank != 0)
            return read_id(where);
        write_id(where, id);
        return id;
    }
    const std::size_t colon = where.rfind(':');
    if (kind != "tcp" || colon == std::string::npos)
        give_up(
            fmt::format("--id {}: neither file:PATH nor tcp:HOST:PORT. Fix: one of them", place));
    const std::string port = where.substr(colon + 1);
    if (rank != 0)
        return fetch_id(where.substr(0, colon), port);
    serve_id(static_cast<int>(std::strtol(port.c_str(), nullptr, 10)), ranks - 1, id);
    return id;
}
