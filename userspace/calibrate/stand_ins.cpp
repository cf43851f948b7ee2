// SPDX-License-Identifier: Apache-2.0
#include "userspace/calibrate/stand_ins.h"

using collwire::calibrate::WorkRequest;

extern "C" {
[[gnu::used, gnu::visibility("hidden")]] int stand_in_body(void *qp, WorkRequest *wr,
                                                           WorkRequest **bad_wr) {
    (void)bad_wr;
    // Like a driver under its lock: one write per request.
    auto *posted = static_cast<volatile std::uint64_t *>(qp) + 8;
    for (; wr != nullptr; wr = wr->next)
        *posted = wr->wr_id;
    return 0;
}
int stand_in_jmp(void *, WorkRequest *, WorkRequest **);
int stand_in_push(void *, WorkRequest *, WorkRequest **);
int stand_in_marked_jmp(void *, WorkRequest *, WorkRequest **);
int stand_in_marked_push(void *, WorkRequest *, WorkRequest **);
int stand_in_marked_sub(void *, WorkRequest *, WorkRequest **);
}

#define FUNCTION(name, body)                                                                       \
    asm(".text\n.p2align 4\n.type " name ",@function\n" name ":\n" body ".size " name              \
        ", . - " name "\n");

FUNCTION("stand_in_jmp", "jmp stand_in_body\n")
FUNCTION("stand_in_push", "push %r15\n pop %r15\n jmp stand_in_body\n")
FUNCTION("stand_in_marked_jmp", "endbr64\n jmp stand_in_body\n")
FUNCTION("stand_in_marked_push", "endbr64\n push %r15\n pop %r15\n jmp stand_in_body\n")
// Lengths 4, 7, 5, 3: the conditional jump is at offset 19.
FUNCTION("stand_in_marked_sub",
         "endbr64\n sub $0x98,%rsp\n mov %rdx,0x10(%rsp)\n test %rdx,%rdx\n je 1f\n"
         "1: add $0x98,%rsp\n jmp stand_in_body\n")

namespace collwire::calibrate {

std::span<const StandIn> stand_ins() {
    static constexpr StandIn ALL[] = {
        {"jmp", "libmlx5 of Debian 11 and 12", stand_in_jmp, {}},
        {"push %r15", "librxe of Debian 11 and 12", stand_in_push, {}},
        {"endbr64; jmp", "libmlx5 of Debian 13, Ubuntu 24.04", stand_in_marked_jmp, {}},
        {"endbr64; push", "librxe of Debian 13, Ubuntu 24.04", stand_in_marked_push, {}},
        {"endbr64; sub ... je", "librxe of rdma-core 65", stand_in_marked_sub, {}},
        {"endbr64; push", "the same, on its first instruction", stand_in_marked_push, 0},
        {"endbr64; sub ... je", "the same, on the second", stand_in_marked_sub, 4},
    };
    return ALL;
}

} // namespace collwire::calibrate
