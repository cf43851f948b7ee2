// SPDX-License-Identifier: Apache-2.0
// The part of libibverbs that a driver calls.
#include "posts_fake_verbs.h"

enum { SLOTS = 76, POLL_CQ = 53, POST_RECV = 54, POST_SEND = 55 }; // rdma-core 36 to 58

void verbs_set_ops(struct fake_context *context, void *const *ops);
void verbs_set_ops(struct fake_context *context, void *const *ops) {
    if (ops[POLL_CQ])
        context->poll_cq = ops[POLL_CQ];
    if (ops[POST_RECV])
        context->post_recv = ops[POST_RECV];
    if (ops[POST_SEND]) {
        void *function = ops[POST_SEND];
        __builtin_memcpy(&context->post_send, &function, sizeof function);
    }
}
