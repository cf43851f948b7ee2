// SPDX-License-Identifier: Apache-2.0
// One RDMA device and the queue pairs of a test program. Errors name the verb and the device.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "tests/lab/programs/traffic_plan.h"

namespace collwire::lab {

template <typename T, int (*destroy)(T *)> struct VerbsDeleter {
    void operator()(T *object) const { destroy(object); }
};
using ContextPtr = std::unique_ptr<ibv_context, VerbsDeleter<ibv_context, ibv_close_device>>;
using PdPtr = std::unique_ptr<ibv_pd, VerbsDeleter<ibv_pd, ibv_dealloc_pd>>;
using CqPtr = std::unique_ptr<ibv_cq, VerbsDeleter<ibv_cq, ibv_destroy_cq>>;
using MrPtr = std::unique_ptr<ibv_mr, VerbsDeleter<ibv_mr, ibv_dereg_mr>>;
using QpPtr = std::unique_ptr<ibv_qp, VerbsDeleter<ibv_qp, ibv_destroy_qp>>;
using AhPtr = std::unique_ptr<ibv_ah, VerbsDeleter<ibv_ah, ibv_destroy_ah>>;

struct Device {
    ContextPtr context;
    PdPtr pd;
    std::string name;
    uint8_t port = 1;
    uint8_t gid_index = 0;
    ibv_gid gid{};
    ibv_mtu active_mtu = IBV_MTU_1024;

    static Result<Device> open(const std::string &name, uint8_t port, uint8_t gid_index);
};

// What the other end must know of a queue pair.
struct QpAddress {
    uint32_t qpn = 0;
    uint32_t psn = 0;
    ibv_gid gid{};
};

struct QpOptions {
    Transport transport = Transport::Rc;
    bool extended = false; // ibv_wr_* (a QP created by ibv_create_qp_ex with send_ops_flags)
    uint32_t send_wrs = 1;
    uint32_t receive_wrs = 1;
    uint32_t sges = 1;
    uint32_t inline_bytes = 0;
    uint8_t timeout_exponent = 16; // 4.096 us * 2^n until an RC retransmission
};

constexpr uint32_t ud_qkey = 0x11111111;

Result<QpPtr> create_qp(const Device &device, ibv_cq *send_cq, ibv_cq *receive_cq,
                        const QpOptions &options);
// RESET to RTS. UD ignores the remote address.
Result<void> connect_qp(const Device &device, ibv_qp *qp, const QpOptions &options,
                        uint32_t local_psn, const QpAddress &remote, ibv_mtu path_mtu);
Result<AhPtr> create_address(const Device &device, const ibv_gid &gid);

Error verbs_error(const char *verb, const Device &device, int errno_value);
std::string gid_text(const ibv_gid &gid);
bool parse_gid(const std::string &text, ibv_gid &gid);
uint32_t mtu_bytes(ibv_mtu mtu);

} // namespace collwire::lab
