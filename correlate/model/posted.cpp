// SPDX-License-Identifier: Apache-2.0
#include "correlate/model/posted.h"

namespace collwire::model {

namespace {
constexpr std::uint64_t ATOMIC_BYTES = 8;
} // namespace

PostedBytes posted_bytes(const Qp &, const Port *, const cw_post_counters &posts) {
    PostedBytes bytes;
    for (const cw_post_class sends : {CW_POST_SEND, CW_POST_SEND_IMM, CW_POST_SEND_INV,
                                      CW_POST_WRITE, CW_POST_WRITE_IMM, CW_POST_ATOMIC_WRITE})
        bytes.tx_payload_bytes = add_saturating(bytes.tx_payload_bytes, posts.classes[sends].bytes);
    bytes.read_payload_bytes =
        add_saturating(posts.classes[CW_POST_READ].bytes,
                       multiply_saturating(posts.classes[CW_POST_ATOMIC].wrs, ATOMIC_BYTES));
    return bytes;
}

} // namespace collwire::model
