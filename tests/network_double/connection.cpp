// SPDX-License-Identifier: Apache-2.0
#include "connection.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>

namespace collwire::network_double {
namespace {

// What pointers to queue pairs are kept as differs from them by this.
std::uintptr_t mask = 0;

constexpr std::uint64_t ROOM_WR = UINT64_MAX;
constexpr std::uint8_t TIMEOUT = 20; // 4.3 s, as NCCL's own: virtual nodes stand still for long
constexpr std::uint8_t RETRIES = 7;
constexpr std::uint8_t RNR_TIMER = 12;
constexpr int MOST_AFTER_LAST_MS = 500;

ibv_send_wr signaled_write(std::uint64_t wr_id, ibv_sge &sge, std::uint64_t address,
                           std::uint32_t rkey) {
    ibv_send_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &sge;
    request.num_sge = sge.length == 0 ? 0 : 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma.remote_addr = address;
    request.wr.rdma.rkey = rkey;
    return request;
}

} // namespace

void hide_queue_pairs() {
    mask = ~std::uintptr_t{0};
}

Connection::Rail &Connection::rail() const {
    return *reinterpret_cast<Rail *>(rail_ ^ mask);
}

ibv_qp *Connection::qp() const {
    return reinterpret_cast<ibv_qp *>(rail().qp ^ mask);
}

std::unique_ptr<Connection> Connection::make(const Device &device, bool is_sender) {
    std::unique_ptr<Connection> connection(new Connection(device, is_sender));
    return connection->open() ? std::move(connection) : nullptr;
}

bool Connection::open() {
    auto *rail = new Rail;
    rail_ = reinterpret_cast<std::uintptr_t>(rail) ^ mask;
    rail->qp = mask; // none
    rail->cq = ibv_create_cq(device_.context, 4 * SLOTS, nullptr, nullptr, 0);
    if (rail->cq == nullptr)
        return false;
    ibv_qp_init_attr attributes{};
    attributes.qp_type = IBV_QPT_RC;
    attributes.send_cq = attributes.recv_cq = rail->cq;
    attributes.cap = {2 * SLOTS, 2 * SLOTS, 1, 1, sizeof(Room)};
    ibv_qp *made = ibv_create_qp(device_.pd, &attributes);
    if (made == nullptr)
        return false;
    rail->qp = reinterpret_cast<std::uintptr_t>(made) ^ mask;
    rooms_mr_ = ibv_reg_mr(device_.pd, rooms_.data(), sizeof(rooms_),
                           IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = 1;
    init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    return rooms_mr_ != nullptr &&
           ibv_modify_qp(made, &init,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0;
}

Connection::~Connection() {
    if (socket_ >= 0) {
        pollfd closed{socket_, POLLIN, 0};
        if (!is_sender_)
            static_cast<void>(::poll(&closed, 1, MOST_AFTER_LAST_MS));
        close(socket_);
    }
    if (rail_ == 0)
        return;
    if (qp() != nullptr)
        ibv_destroy_qp(qp());
    if (rail().cq != nullptr)
        ibv_destroy_cq(rail().cq);
    if (rooms_mr_ != nullptr)
        ibv_dereg_mr(rooms_mr_);
    delete &rail();
}

End Connection::end() const {
    return {qp()->qp_num, rooms_mr_->rkey, reinterpret_cast<std::uintptr_t>(rooms_.data()),
            device_.gid};
}

bool Connection::connect_to(const End &other) {
    other_ = other;
    ibv_qp_attr receive{};
    receive.qp_state = IBV_QPS_RTR;
    receive.path_mtu = device_.mtu;
    receive.dest_qp_num = other.qpn;
    receive.max_dest_rd_atomic = 1;
    receive.min_rnr_timer = RNR_TIMER;
    receive.ah_attr.is_global = 1;
    receive.ah_attr.port_num = 1;
    receive.ah_attr.grh.dgid = other.gid;
    receive.ah_attr.grh.sgid_index = device_.gid_index;
    receive.ah_attr.grh.hop_limit = 64;
    ibv_qp_attr send{};
    send.qp_state = IBV_QPS_RTS;
    send.timeout = TIMEOUT;
    send.retry_cnt = send.rnr_retry = RETRIES;
    send.max_rd_atomic = 1;
    return ibv_modify_qp(qp(), &receive,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
               0 &&
           ibv_modify_qp(qp(), &send,
                         IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                             IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0;
}

// Null: NCCL has as many under way as there is room for.
Request *Connection::next_request() {
    Request &request = requests_[n_messages_ % SLOTS];
    if (request.is_used)
        return nullptr;
    request = {this, true, false, 0};
    return &request;
}

Request *Connection::send(void *data, std::uint32_t bytes, const ibv_mr &mr, bool &failed) {
    const std::uint64_t slot = n_messages_ % SLOTS;
    // The device writes it.
    std::atomic_thread_fence(std::memory_order_acquire);
    const Room room = const_cast<const volatile Room &>(rooms_[slot]).copy();
    if (room.number != n_messages_ + 1 || room.check != room.expected_check() || room.bytes < bytes)
        return nullptr;
    Request *request = next_request();
    if (request == nullptr)
        return nullptr;
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(data), bytes, mr.lkey};
    ibv_send_wr write = signaled_write(slot, sge, room.address, room.rkey);
    write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.imm_data = static_cast<std::uint32_t>(slot);
    ibv_send_wr *bad = nullptr;
    failed = ibv_post_send(qp(), &write, &bad) != 0;
    request->bytes = static_cast<int>(bytes);
    ++n_messages_;
    return request;
}

Request *Connection::receive(void *data, std::uint32_t bytes, const ibv_mr &mr, bool &failed) {
    const std::uint64_t slot = n_messages_ % SLOTS;
    Request *request = next_request();
    if (request == nullptr)
        return nullptr;
    ibv_recv_wr for_immediate{};
    for_immediate.wr_id = slot;
    ibv_recv_wr *bad_receive = nullptr;
    failed = ibv_post_recv(qp(), &for_immediate, &bad_receive) != 0;
    Room room{reinterpret_cast<std::uintptr_t>(data), n_messages_ + 1, mr.rkey, bytes, 0};
    room.check = room.expected_check();
    ibv_sge sge{reinterpret_cast<std::uintptr_t>(&room), sizeof(room), 0};
    ibv_send_wr write =
        signaled_write(ROOM_WR, sge, other_.rooms_address + slot * sizeof(Room), other_.rooms_rkey);
    write.send_flags |= IBV_SEND_INLINE;
    ibv_send_wr *bad = nullptr;
    failed = ibv_post_send(qp(), &write, &bad) != 0 || failed;
    ++n_messages_;
    return request;
}

bool Connection::poll() {
    for (;;) {
        ibv_wc done{};
        const int n = ibv_poll_cq(rail().cq, 1, &done);
        if (n == 0)
            return true;
        if (n < 0 || done.status != IBV_WC_SUCCESS)
            return false;
        if (done.wr_id == ROOM_WR)
            continue;
        Request &request = requests_[done.wr_id % SLOTS];
        request.is_done = true;
        if (!is_sender_)
            request.bytes = static_cast<int>(done.byte_len);
    }
}

} // namespace collwire::network_double
