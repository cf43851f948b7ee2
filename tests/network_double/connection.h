// SPDX-License-Identifier: Apache-2.0
// One direction between two ranks over a queue pair. The receiver writes into the sender's memory
// where there is room; the sender writes there, with an immediate.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

namespace collwire::network_double {

struct Device {
    ibv_context *context = nullptr;
    ibv_pd *pd = nullptr;
    std::string name;
    std::uint64_t guid = 0;
    std::uint8_t gid_index = 0;
    ibv_gid gid{};
    ibv_mtu mtu = IBV_MTU_1024;
};

constexpr std::uint32_t SLOTS = 256; // messages under way

// Where a receiver has room. The last field is of all others: rdma_rxe copies what it receives, and
// may be seen in the middle of it.
struct Room {
    std::uint64_t address = 0;
    std::uint64_t number = 0; // of the message, from 1
    std::uint32_t rkey = 0;
    std::uint32_t bytes = 0;
    std::uint64_t check = 0;

    // As it is now, while a device may write it.
    [[nodiscard]] Room copy() const volatile { return {address, number, rkey, bytes, check}; }
    [[nodiscard]] std::uint64_t expected_check() const {
        return address ^ number * 0x9e3779b97f4a7c15U ^ (std::uint64_t{rkey} << 32U | bytes) ^ 1U;
    }
};

// What the two ends must know of each other.
struct End {
    std::uint32_t qpn = 0;
    std::uint32_t rooms_rkey = 0;
    std::uint64_t rooms_address = 0;
    ibv_gid gid{};
};

struct Request {
    class Connection *connection = nullptr;
    bool is_used = false;
    bool is_done = false;
    int bytes = 0;
};

class Connection {
public:
    // Null where a verb fails.
    static std::unique_ptr<Connection> make(const Device &device, bool is_sender);
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;
    ~Connection();

    [[nodiscard]] End end() const;
    bool connect_to(const End &other);
    // Of the two ends' socket, which it closes: the receiver stays there until the sender has
    // closed its end, but no longer than a moment. rdma_rxe notifies a receiver of a message before
    // it acknowledges it, which it cannot any more once the queue pair is gone.
    void keep_socket(int fd) { socket_ = fd; }
    // Null: not now.
    Request *send(void *data, std::uint32_t bytes, const ibv_mr &mr, bool &failed);
    Request *receive(void *data, std::uint32_t bytes, const ibv_mr &mr, bool &failed);
    bool poll();
    [[nodiscard]] ibv_pd *pd() const { return device_.pd; }

private:
    // A queue pair is further away than one pointer, as with plugins that have several rails.
    struct Rail {
        std::array<std::uint64_t, 16> reserved{};
        std::uintptr_t qp = 0; // see hide_queue_pairs
        ibv_cq *cq = nullptr;
    };

    Connection(const Device &device, bool is_sender) : device_(device), is_sender_(is_sender) {}
    bool open();
    [[nodiscard]] Rail &rail() const;
    [[nodiscard]] ibv_qp *qp() const;
    Request *next_request();
    bool post(ibv_send_wr &request);

    const Device &device_;
    bool is_sender_;
    std::uintptr_t rail_ = 0; // see hide_queue_pairs
    int socket_ = -1;
    ibv_mr *rooms_mr_ = nullptr;
    End other_;
    std::uint64_t n_messages_ = 0;
    std::array<Room, SLOTS> rooms_{}; // of a sender: written by the other end
    std::array<Request, SLOTS> requests_{};
};

// Pointers to queue pairs are kept in a way that no search of memory finds.
void hide_queue_pairs();

} // namespace collwire::network_double
