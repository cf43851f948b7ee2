// SPDX-License-Identifier: Apache-2.0
// Operations at one end of a connection, in order: their places in the count of the connection, and
// times. A connection has many thousands, so a log keeps differences, some 12 bytes each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace collwire::nccl {

struct Passage {
    std::uint64_t base_steps = 0, end_steps = 0;
    std::uint64_t started_ns = 0;   // not later than its start; 0: not known
    std::uint64_t completed_ns = 0; // not earlier than its completion; 0: not known
    friend bool operator==(const Passage &, const Passage &) = default;
};

class PassageLog {
public:
    void push_back(const Passage &passage);
    [[nodiscard]] std::size_t size() const { return size_; }

    class Reader {
    public:
        explicit Reader(const PassageLog &log) : log_(log) {}
        // False: there are no more.
        [[nodiscard]] bool next(Passage &passage);

    private:
        std::uint64_t number();

        const PassageLog &log_;
        std::size_t at_ = 0;
        Passage before_;
    };

    template <typename Predicate> void erase_if(Predicate is_gone) {
        PassageLog kept;
        Reader all(*this);
        for (Passage passage; all.next(passage);)
            if (!is_gone(passage))
                kept.push_back(passage);
        *this = std::move(kept);
    }

private:
    void put(std::uint64_t number);

    std::vector<std::uint8_t> bytes_; // of each passage four numbers, seven bits a byte
    Passage last_;
    std::size_t size_ = 0;
};

} // namespace collwire::nccl
