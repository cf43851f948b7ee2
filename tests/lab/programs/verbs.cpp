// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/programs/verbs.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>

namespace collwire::lab {
namespace {

ibv_qp_type qp_type(Transport transport) {
    switch (transport) {
    case Transport::Rc:
        return IBV_QPT_RC;
    case Transport::Uc:
        return IBV_QPT_UC;
    case Transport::Ud:
        return IBV_QPT_UD;
    }
    return IBV_QPT_RC;
}

uint64_t send_operations(Transport transport) {
    uint64_t flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
    if (transport != Transport::Ud) {
        flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
    }
    if (transport == Transport::Rc) {
        flags |= IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
    }
    return flags;
}

ibv_ah_attr address_vector(const Device &device, const ibv_gid &gid) {
    ibv_ah_attr attributes{};
    attributes.is_global = 1;
    attributes.port_num = device.port;
    attributes.grh.dgid = gid;
    attributes.grh.sgid_index = device.gid_index;
    attributes.grh.hop_limit = 64;
    return attributes;
}

} // namespace

Error verbs_error(const char *verb, const Device &device, int errno_value) {
    return error(ErrorKind::Failed,
                 fmt::format("{} on {}: {}", verb, device.name, std::strerror(errno_value)));
}

std::string gid_text(const ibv_gid &gid) {
    char text[INET6_ADDRSTRLEN] = {};
    (void)inet_ntop(AF_INET6, gid.raw, text, sizeof(text));
    return text;
}

bool parse_gid(const std::string &text, ibv_gid &gid) {
    return inet_pton(AF_INET6, text.c_str(), gid.raw) == 1;
}

uint32_t mtu_bytes(ibv_mtu mtu) {
    return 128U << mtu; // IBV_MTU_256 is 1
}

Result<Device> Device::open(const std::string &name, uint8_t port, uint8_t gid_index) {
    Device device;
    device.name = name;
    device.port = port;
    device.gid_index = gid_index;
    int count = 0;
    ibv_device **list = ibv_get_device_list(&count);
    for (int i = 0; i < count; i++) {
        if (name == ibv_get_device_name(list[i])) {
            device.context.reset(ibv_open_device(list[i]));
        }
    }
    if (list != nullptr) {
        ibv_free_device_list(list);
    }
    if (!device.context) {
        return error(
            ErrorKind::Failed,
            fmt::format("RDMA device {} not found or not opened. Fix: ibv_devices names those here",
                        name));
    }
    ibv_port_attr attributes{};
    if (const int failed = ibv_query_port(device.context.get(), port, &attributes); failed != 0) {
        return verbs_error("ibv_query_port", device, failed);
    }
    if (attributes.state != IBV_PORT_ACTIVE) {
        return error(ErrorKind::Failed, fmt::format("{} port {} is {}", name, port,
                                                    ibv_port_state_str(attributes.state)));
    }
    device.active_mtu = attributes.active_mtu;
    if (ibv_query_gid(device.context.get(), port, gid_index, &device.gid) != 0) {
        return verbs_error("ibv_query_gid", device, errno);
    }
    device.pd.reset(ibv_alloc_pd(device.context.get()));
    if (!device.pd) {
        return verbs_error("ibv_alloc_pd", device, errno);
    }
    return device;
}

Result<QpPtr> create_qp(const Device &device, ibv_cq *send_cq, ibv_cq *receive_cq,
                        const QpOptions &options) {
    ibv_qp_init_attr_ex attributes{};
    attributes.send_cq = send_cq;
    attributes.recv_cq = receive_cq;
    attributes.cap.max_send_wr = options.send_wrs;
    attributes.cap.max_recv_wr = options.receive_wrs;
    attributes.cap.max_send_sge = options.sges;
    attributes.cap.max_recv_sge = 1;
    attributes.cap.max_inline_data = options.inline_bytes;
    attributes.qp_type = qp_type(options.transport);
    attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
    attributes.pd = device.pd.get();
    if (options.extended) {
        attributes.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
        attributes.send_ops_flags = send_operations(options.transport);
    }
    QpPtr qp(ibv_create_qp_ex(device.context.get(), &attributes));
    if (!qp) {
        return verbs_error("ibv_create_qp_ex", device, errno);
    }
    return qp;
}

Result<void> connect_qp(const Device &device, ibv_qp *qp, const QpOptions &options,
                        uint32_t local_psn, const QpAddress &remote, ibv_mtu path_mtu) {
    const bool ud = options.transport == Transport::Ud;
    const bool rc = options.transport == Transport::Rc;
    ibv_qp_attr init{};
    init.qp_state = IBV_QPS_INIT;
    init.port_num = device.port;
    init.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    if (rc) {
        init.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    init.qkey = ud_qkey;
    const int init_mask =
        IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
    if (const int failed = ibv_modify_qp(qp, &init, init_mask); failed != 0) {
        return verbs_error("ibv_modify_qp to INIT", device, failed);
    }

    ibv_qp_attr rtr{};
    int rtr_mask = IBV_QP_STATE;
    rtr.qp_state = IBV_QPS_RTR;
    if (!ud) {
        rtr.path_mtu = path_mtu;
        rtr.dest_qp_num = remote.qpn;
        rtr.rq_psn = remote.psn;
        rtr.ah_attr = address_vector(device, remote.gid);
        rtr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    }
    if (rc) {
        rtr.max_dest_rd_atomic = 16;
        rtr.min_rnr_timer = 12;
        rtr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    }
    if (const int failed = ibv_modify_qp(qp, &rtr, rtr_mask); failed != 0) {
        return verbs_error("ibv_modify_qp to RTR", device, failed);
    }

    ibv_qp_attr rts{};
    int rts_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
    rts.qp_state = IBV_QPS_RTS;
    rts.sq_psn = local_psn;
    if (rc) {
        rts.timeout = options.timeout_exponent;
        rts.retry_cnt = 7;
        rts.rnr_retry = 7;
        rts.max_rd_atomic = 16;
        rts_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    }
    if (const int failed = ibv_modify_qp(qp, &rts, rts_mask); failed != 0) {
        return verbs_error("ibv_modify_qp to RTS", device, failed);
    }
    return {};
}

Result<AhPtr> create_address(const Device &device, const ibv_gid &gid) {
    ibv_ah_attr attributes = address_vector(device, gid);
    AhPtr address(ibv_create_ah(device.pd.get(), &attributes));
    if (!address) {
        return verbs_error("ibv_create_ah", device, errno);
    }
    return address;
}

} // namespace collwire::lab
