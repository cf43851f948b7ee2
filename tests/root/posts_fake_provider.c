// SPDX-License-Identifier: Apache-2.0
// A driver library that is a test double, see posts_fake_verbs.h. FAKE_ENTRY chooses what post_send
// begins with, after builds of real drivers.
#include "posts_fake_verbs.h"

#if FAKE_ENTRY == 1 // libmlx5 of rdma-core 44: a tail jump
#define ENTRY "jmp fake_post_send_body\n"
#elif FAKE_ENTRY == 2 // librxe of rdma-core 44
#define ENTRY "push %r15\n pop %r15\n jmp fake_post_send_body\n"
#elif FAKE_ENTRY == 3 // libmlx5 of rdma-core 56
#define ENTRY "endbr64\n jmp fake_post_send_body\n"
#elif FAKE_ENTRY == 4 // librxe of rdma-core 65: no push before the first branch
#define ENTRY                                                                                      \
    "endbr64\n sub $0x98,%rsp\n mov %rdx,0x10(%rsp)\n test %rdx,%rdx\n je 1f\n"                    \
    "1: add $0x98,%rsp\n jmp fake_post_send_body\n"
#elif FAKE_ENTRY == 5 // libmlx4 of rdma-core 65: the arguments move before the first push
#define ENTRY                                                                                      \
    "endbr64\n sub $0x98,%rsp\n mov %rdi,%rax\n xor %edi,%edi\n mov %rax,%rdi\n"                   \
    "add $0x98,%rsp\n jmp fake_post_send_body\n"
#endif

__asm__(".text\n"
        ".p2align 4\n"
        ".type fake_post_send,@function\n"
        "fake_post_send:\n" ENTRY ".size fake_post_send, . - fake_post_send\n");
__attribute__((visibility("hidden"))) extern int fake_post_send(void *, struct fake_wr *,
                                                                struct fake_wr **);

static void take(struct fake_qp *qp, uint64_t addr, uint64_t length) {
    const unsigned char *data = (const unsigned char *)addr;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < length; ++i)
        sum += data[i];
    __atomic_fetch_add(&qp->bytes, length, __ATOMIC_RELAXED);
    __atomic_fetch_add(&qp->checksum, sum, __ATOMIC_RELAXED);
}

__attribute__((visibility("hidden"), used)) int
fake_post_send_body(struct fake_qp *qp, struct fake_wr *wr, struct fake_wr **bad_wr) {
    (void)bad_wr;
    __atomic_fetch_add(&qp->posts, 1, __ATOMIC_RELAXED);
    if (qp->ignore_chain)
        return 0;
    for (; wr; wr = wr->next) {
        __atomic_fetch_add(&qp->wrs, 1, __ATOMIC_RELAXED);
        for (int i = 0; i < wr->num_sge; ++i)
            take(qp, wr->sg_list[i].addr, wr->sg_list[i].length);
    }
    return 0;
}

// The rest of a driver, as far as a table must have it. Each its own function.
// clang-format off
#define FUNCTION(name)                                                                             \
    static int fake_##name(void) {                                                                 \
        __asm__ volatile("");                                                                      \
        return __LINE__;                                                                           \
    }
FUNCTION(alloc_pd)
FUNCTION(create_ah)
FUNCTION(create_cq)
FUNCTION(create_qp) FUNCTION(dealloc_pd) FUNCTION(dereg_mr) FUNCTION(destroy_ah)
    FUNCTION(destroy_cq) FUNCTION(destroy_qp) FUNCTION(free_context) FUNCTION(modify_qp)
        FUNCTION(poll_cq) FUNCTION(post_recv) FUNCTION(query_device_ex) FUNCTION(query_port)
            FUNCTION(query_qp) FUNCTION(reg_mr) FUNCTION(req_notify_cq)

#define SLOT(index, name) [index] = (void *)fake_##name
                static void *const ops[76] = {
                    SLOT(5, alloc_pd),       SLOT(13, create_ah),  SLOT(15, create_cq),
                    SLOT(19, create_qp),     SLOT(26, dealloc_pd), SLOT(28, dereg_mr),
                    SLOT(29, destroy_ah),    SLOT(31, destroy_cq), SLOT(34, destroy_qp),
                    SLOT(39, free_context),  SLOT(47, modify_qp),  SLOT(53, poll_cq),
                    SLOT(54, post_recv),     SLOT(55, post_send),  SLOT(58, query_device_ex),
                    SLOT(60, query_port),    SLOT(61, query_qp),   SLOT(68, reg_mr),
                    SLOT(69, req_notify_cq),
};
// clang-format on

void verbs_set_ops(struct fake_context *context, void *const *table);
void fake_open(struct fake_context *context);
void fake_open(struct fake_context *context) {
    context->abi_compat = ~(uint64_t)0;
    verbs_set_ops(context, ops);
}

// ibv_wr_*: work requests that count once their batch is complete
static struct fake_qp batch;

static void begin(void) {
    batch.wrs += 1;
}
static void wr_atomic_cmp_swp(struct fake_qp *qp, uint32_t rkey, uint64_t addr, uint64_t compare,
                              uint64_t swap) {
    (void)qp, (void)rkey, (void)addr, (void)compare, (void)swap;
    begin();
}
static void wr_atomic_fetch_add(struct fake_qp *qp, uint32_t rkey, uint64_t addr, uint64_t n) {
    (void)qp, (void)rkey, (void)addr, (void)n;
    begin();
}
static void wr_local_inv(struct fake_qp *qp, uint32_t rkey) {
    (void)qp, (void)rkey;
    begin();
}
static void wr_rdma_read(struct fake_qp *qp, uint32_t rkey, uint64_t addr) {
    (void)qp, (void)rkey, (void)addr;
    begin();
}
static void wr_rdma_write(struct fake_qp *qp, uint32_t rkey, uint64_t addr) {
    (void)qp, (void)rkey, (void)addr;
    begin();
}
static void wr_rdma_write_imm(struct fake_qp *qp, uint32_t rkey, uint64_t addr, uint32_t imm) {
    (void)qp, (void)rkey, (void)addr, (void)imm;
    begin();
}
static void wr_send(struct fake_qp *qp) {
    (void)qp;
    begin();
}
static void wr_send_imm(struct fake_qp *qp, uint32_t imm) {
    (void)qp, (void)imm;
    begin();
}
static void wr_send_inv(struct fake_qp *qp, uint32_t rkey) {
    (void)qp, (void)rkey;
    begin();
}
static void wr_atomic_write(struct fake_qp *qp, uint32_t rkey, uint64_t addr, const void *data) {
    (void)qp, (void)rkey, (void)addr;
    begin();
    take(&batch, (uint64_t)data, 8);
}
static void wr_flush(struct fake_qp *qp, uint32_t rkey, uint64_t addr, size_t length, uint8_t type,
                     uint8_t level) {
    (void)qp, (void)rkey, (void)addr, (void)length, (void)type, (void)level;
    begin();
}
static void wr_set_sge(struct fake_qp *qp, uint32_t lkey, uint64_t addr, uint32_t length) {
    (void)qp, (void)lkey;
    take(&batch, addr, length);
}
static void wr_set_sge_list(struct fake_qp *qp, size_t n, const struct fake_sge *list) {
    (void)qp;
    for (size_t i = 0; i < n; ++i)
        take(&batch, list[i].addr, list[i].length);
}
static void wr_set_inline_data(struct fake_qp *qp, void *addr, size_t length) {
    (void)qp;
    take(&batch, (uint64_t)addr, length);
}
static void wr_set_inline_data_list(struct fake_qp *qp, size_t n, const void *list) {
    const uint64_t *entries = list;
    (void)qp;
    for (size_t i = 0; i < n; ++i)
        take(&batch, entries[2 * i], entries[2 * i + 1]);
}
static void wr_start(struct fake_qp *qp) {
    (void)qp;
    __builtin_memset(&batch, 0, sizeof batch);
}
static int wr_complete(struct fake_qp *qp) {
    qp->posts += 1;
    qp->wrs += batch.wrs;
    qp->bytes += batch.bytes;
    qp->checksum += batch.checksum;
    return 0;
}
static void wr_abort(struct fake_qp *qp) {
    (void)qp;
    batch.wrs = 0;
}

void fake_extend(struct fake_qp *qp);
void fake_extend(struct fake_qp *qp) {
    qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
    qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
    qp->wr_local_inv = wr_local_inv;
    qp->wr_rdma_read = wr_rdma_read;
    qp->wr_rdma_write = wr_rdma_write;
    qp->wr_rdma_write_imm = wr_rdma_write_imm;
    qp->wr_send = wr_send;
    qp->wr_send_imm = wr_send_imm;
    qp->wr_send_inv = wr_send_inv;
    qp->wr_atomic_write = wr_atomic_write;
    qp->wr_flush = wr_flush;
    qp->wr_set_sge = wr_set_sge;
    qp->wr_set_sge_list = wr_set_sge_list;
    qp->wr_set_inline_data = wr_set_inline_data;
    qp->wr_set_inline_data_list = wr_set_inline_data_list;
    qp->wr_start = wr_start;
    qp->wr_complete = wr_complete;
    qp->wr_abort = wr_abort;
}
