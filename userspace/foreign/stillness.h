// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace collwire::foreign {

// For how long a process made no progress, by somebody who looks at it again and again. A
// standstill of the one who looks, which a quota or a busy machine makes, is not that process's:
// each look counts for `longest_look_ns` at most.
class Stillness {
public:
    Stillness(std::uint64_t now_ns, std::uint64_t longest_look_ns)
        : looked_ns_(now_ns), longest_look_ns_(longest_look_ns) {}

    void look(std::uint64_t now_ns, bool has_moved) {
        still_ns_ = has_moved ? 0 : still_ns_ + std::min(now_ns - looked_ns_, longest_look_ns_);
        looked_ns_ = now_ns;
    }
    [[nodiscard]] std::uint64_t ns() const { return still_ns_; }

private:
    std::uint64_t looked_ns_;
    std::uint64_t longest_look_ns_;
    std::uint64_t still_ns_ = 0;
};

} // namespace collwire::foreign
