// SPDX-License-Identifier: Apache-2.0
// JSON messages between the two ends of a test program, over TCP: each is a 32-bit little-endian
// length and the text.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace collwire::lab {

class TcpChannel {
public:
    // Waits for one connection.
    static Result<TcpChannel> accept_one(uint16_t port);
    // `peer` is HOST:PORT. Tries again while no process listens there, for `patience_s` seconds.
    static Result<TcpChannel> connect_to(const std::string &peer, int patience_s);

    TcpChannel(TcpChannel &&other) noexcept;
    TcpChannel &operator=(TcpChannel &&other) noexcept;
    TcpChannel(const TcpChannel &) = delete;
    TcpChannel &operator=(const TcpChannel &) = delete;
    ~TcpChannel();

    Result<void> send(const nlohmann::json &message);
    Result<nlohmann::json> receive();

private:
    explicit TcpChannel(int fd) : fd_(fd) {}
    int fd_ = -1;
};

} // namespace collwire::lab
