// SPDX-License-Identifier: Apache-2.0
// Arithmetic on all counts of posted work requests.
#pragma once

#include <cstddef>

#include "collwire/post_records.h"

namespace collwire::model {

// Sets each count of `to` to operation(count, same count of `other`). Times are unchanged.
template <typename Operation>
void combine(cw_post_counters &to, const cw_post_counters &other, Operation operation) {
    const auto apply = [&operation](auto &count, const auto &more) {
        count = operation(count, more);
    };
    apply(to.posts, other.posts);
    apply(to.truncated_posts, other.truncated_posts);
    apply(to.fault_posts, other.fault_posts);
    apply(to.aborted_wrs, other.aborted_wrs);
    for (std::size_t i = 0; i < CW_POST_CLASSES; ++i) {
        cw_post_class_counters &of_class = to.classes[i];
        const cw_post_class_counters &more = other.classes[i];
        apply(of_class.wrs, more.wrs);
        apply(of_class.zero_length_wrs, more.zero_length_wrs);
        apply(of_class.bytes, more.bytes);
        apply(of_class.pad_bytes, more.pad_bytes);
        for (std::size_t mtu = 0; mtu < CW_MTU_CLASSES; ++mtu)
            apply(of_class.packets[mtu], more.packets[mtu]);
    }
    for (std::size_t mtu = 0; mtu < CW_MTU_CLASSES; ++mtu)
        apply(to.multi_packet_reads[mtu], other.multi_packet_reads[mtu]);
}

} // namespace collwire::model
