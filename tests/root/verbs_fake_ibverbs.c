// SPDX-License-Identifier: Apache-2.0
// A test double of libibverbs: the functions of its control path that providers call, with the
// arguments of the real ones. It makes no queue pair. FAKE_PUBLIC: another one, which has the
// public functions only.
#include <errno.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

// What the next call returns.
int fake_result;
static unsigned next_number = 100;

static int create(struct ibv_qp *qp, int result) {
    if (result == 0)
        qp->qp_num = next_number++;
    return result;
}

#ifndef FAKE_PUBLIC
struct ibv_command_buffer;
int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr);
int ibv_cmd_create_qp(struct ibv_pd *pd, struct ibv_qp *qp, struct ibv_qp_init_attr *attr) {
    (void)pd;
    (void)attr;
    return create(qp, fake_result);
}
int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct ibv_qp *qp, void *attr);
int ibv_cmd_create_qp_ex2(struct ibv_context *context, struct ibv_qp *qp, void *attr) {
    (void)context;
    (void)attr;
    return create(qp, fake_result);
}
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ibv_cmd_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    (void)qp;
    (void)attr;
    (void)mask;
    return fake_result;
}
int ibv_cmd_destroy_qp(struct ibv_qp *qp);
int ibv_cmd_destroy_qp(struct ibv_qp *qp) {
    (void)qp;
    return fake_result;
}
#else
#undef ibv_create_qp
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    struct ibv_qp *qp = calloc(1, sizeof(struct ibv_qp));
    qp->context = pd->context;
    qp->qp_type = attr->qp_type;
    (void)create(qp, 0);
    return qp;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    (void)qp;
    (void)attr;
    (void)mask;
    return fake_result;
}
int ibv_destroy_qp(struct ibv_qp *qp) {
    free(qp);
    return 0;
}
#endif

void ibv_ack_async_event(struct ibv_async_event *event) {
    (void)event;
}
