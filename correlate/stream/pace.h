// SPDX-License-Identifier: Apache-2.0
// Who may be read on: what Lockstep asks of that which takes the records.
#pragma once

#include <cstddef>

namespace collwire::stream {

class Pace {
public:
    Pace() = default;
    Pace(const Pace &) = delete;
    Pace &operator=(const Pace &) = delete;
    virtual ~Pace() = default;

    // Whether the capture's node is ahead of others, and waits for one of them.
    [[nodiscard]] virtual bool is_ahead(std::size_t capture) = 0;
    // It gives up waiting for that one. It may be ahead of another one then.
    virtual void give_up(std::size_t capture) = 0;
    // The capture's node has no more records, so no node waits for it.
    virtual void end(std::size_t capture) = 0;
};

} // namespace collwire::stream
