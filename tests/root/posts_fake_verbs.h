/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test double of libibverbs' public structs and of a driver. The driver (posts_fake_provider.c)
 * has the shape of a real one: its post_send has no symbol and is reached through a table that it
 * gives to verbs_set_ops. It adds up what it is posted by itself, so that counts and data can be
 * compared.
 */
#ifndef POSTS_FAKE_VERBS_H
#define POSTS_FAKE_VERBS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fake_sge {
    uint64_t addr;
    uint32_t length;
    uint32_t lkey;
};

struct fake_wr {
    uint64_t wr_id;
    struct fake_wr *next;
    struct fake_sge *sg_list;
    int32_t num_sge;
    uint32_t opcode;
    uint32_t send_flags;
    uint32_t imm_data;
    uint64_t rest[11];
};

struct fake_device {
    uint64_t ops[3];
    char name[64];
};

struct fake_context {
    struct fake_device *device;
    uint64_t before_poll_cq[11];
    void *poll_cq; /* 96 */
    uint64_t before_post_send[13];
    int (*post_send)(void *qp, struct fake_wr *wr, struct fake_wr **bad_wr); /* 208 */
    void *post_recv;
    uint64_t before_abi_compat[12];
    uint64_t abi_compat; /* 320 */
};

struct fake_qp {
    struct fake_context *context;
    uint64_t pointers[5];
    uint32_t handle;
    uint32_t qp_num;
    uint32_t state;
    uint32_t qp_type;
    uint64_t before_functions[15];
    /* struct ibv_qp_ex from offset 184 */
    void (*wr_atomic_cmp_swp)(struct fake_qp *, uint32_t rkey, uint64_t addr, uint64_t, uint64_t);
    void (*wr_atomic_fetch_add)(struct fake_qp *, uint32_t rkey, uint64_t addr, uint64_t);
    void (*wr_bind_mw)(struct fake_qp *, void *, uint32_t, const void *);
    void (*wr_local_inv)(struct fake_qp *, uint32_t rkey);
    void (*wr_rdma_read)(struct fake_qp *, uint32_t rkey, uint64_t addr);
    void (*wr_rdma_write)(struct fake_qp *, uint32_t rkey, uint64_t addr);
    void (*wr_rdma_write_imm)(struct fake_qp *, uint32_t rkey, uint64_t addr, uint32_t imm);
    void (*wr_send)(struct fake_qp *);
    void (*wr_send_imm)(struct fake_qp *, uint32_t imm);
    void (*wr_send_inv)(struct fake_qp *, uint32_t rkey);
    void (*wr_send_tso)(struct fake_qp *, void *header, uint16_t size, uint16_t mss);
    void (*wr_set_ud_addr)(struct fake_qp *, void *ah, uint32_t qpn, uint32_t qkey);
    void (*wr_set_xrc_srqn)(struct fake_qp *, uint32_t srqn);
    void (*wr_set_inline_data)(struct fake_qp *, void *addr, size_t length);
    void (*wr_set_inline_data_list)(struct fake_qp *, size_t n, const void *list);
    void (*wr_set_sge)(struct fake_qp *, uint32_t lkey, uint64_t addr, uint32_t length);
    void (*wr_set_sge_list)(struct fake_qp *, size_t n, const struct fake_sge *list);
    void (*wr_start)(struct fake_qp *);
    int (*wr_complete)(struct fake_qp *);
    void (*wr_abort)(struct fake_qp *);
    void (*wr_atomic_write)(struct fake_qp *, uint32_t rkey, uint64_t addr, const void *data);
    void (*wr_flush)(struct fake_qp *, uint32_t rkey, uint64_t addr, size_t length, uint8_t,
                     uint8_t);
    /* the driver's own: the truth, and a switch not to look at the chain (it may be bad) */
    uint64_t ignore_chain;
    uint64_t posts;
    uint64_t wrs;
    uint64_t bytes;
    uint64_t checksum; /* of the data: every byte that was to be sent, added up */
};

/* A context of the driver, set up as verbs_open_device does. */
typedef void fake_open_function(struct fake_context *context);
/* Fills in the functions of ibv_wr_*. */
typedef void fake_extend_function(struct fake_qp *qp);

#ifdef __cplusplus
}
static_assert(offsetof(fake_device, name) == 24);
static_assert(offsetof(fake_context, poll_cq) == 96);
static_assert(offsetof(fake_context, post_send) == 208);
static_assert(offsetof(fake_context, abi_compat) == 320);
static_assert(offsetof(fake_qp, qp_num) == 52 && offsetof(fake_qp, qp_type) == 60);
static_assert(offsetof(fake_qp, wr_atomic_cmp_swp) == 184);
static_assert(offsetof(fake_qp, wr_start) == 320 && offsetof(fake_qp, wr_flush) == 352);
static_assert(sizeof(fake_wr) == 128);
#endif

#endif
