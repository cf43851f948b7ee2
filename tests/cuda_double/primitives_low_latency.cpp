// SPDX-License-Identifier: Apache-2.0
// LL and LL128: data and flags share a slot, so a receiver needs no tail. The flag of a step is the
// step's number plus one.
#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tests/cuda_double/primitives.h"

namespace collwire::cuda_double {
namespace {

// LL: lines of 16 bytes, two words of data with a flag each.
class LowLatencyLines {
public:
    static constexpr std::int64_t kDataBytes = 8;
    static constexpr std::int64_t kWireBytes = 16;

    static bool is_filled(const char *line, std::uint64_t step) {
        const auto *words = reinterpret_cast<const std::uint32_t *>(line);
        const auto flag = static_cast<std::uint32_t>(step + 1);
        return __atomic_load_n(&words[1], __ATOMIC_ACQUIRE) == flag &&
               __atomic_load_n(&words[3], __ATOMIC_ACQUIRE) == flag;
    }
    static void unpack(const char *line, char *data) {
        std::memcpy(data, line, 4);
        std::memcpy(data + 4, line + 8, 4);
    }
    static void pack(const char *data, char *line, std::uint64_t step) {
        const auto flag = static_cast<std::uint32_t>(step + 1);
        auto *words = reinterpret_cast<std::uint32_t *>(line);
        std::memcpy(line, data, 4);
        std::memcpy(line + 8, data + 4, 4);
        __atomic_store_n(&words[1], flag, __ATOMIC_RELEASE);
        __atomic_store_n(&words[3], flag, __ATOMIC_RELEASE);
    }
};

// LL128: a warp's 2048 bytes are 16 lines of 128 bytes, whose last 8 are the flag; the 240 words of
// data lie in the order in which the warp's threads hold them in registers.
class LowLatency128Lines {
public:
    static constexpr std::int64_t kDataBytes = 1920;
    static constexpr std::int64_t kWireBytes = 2048;

    static bool is_filled(const char *slice, std::uint64_t step) {
        const auto *words = reinterpret_cast<const std::uint64_t *>(slice);
        for (std::size_t line = 0; line < kLines; line++) {
            if (__atomic_load_n(&words[line * kLineWords + kFlagWord], __ATOMIC_ACQUIRE) !=
                step + 1)
                return false;
        }
        return true;
    }
    static void unpack(const char *slice, char *data) {
        for (std::size_t word = 0; word < kDataWords; word++)
            std::memcpy(data + 8 * word, slice + 8 * wire_word(word), 8);
    }
    static void pack(const char *data, char *slice, std::uint64_t step) {
        for (std::size_t word = 0; word < kDataWords; word++)
            std::memcpy(slice + 8 * wire_word(word), data + 8 * word, 8);
        auto *words = reinterpret_cast<std::uint64_t *>(slice);
        for (std::size_t line = 0; line < kLines; line++)
            __atomic_store_n(&words[line * kLineWords + kFlagWord], step + 1, __ATOMIC_RELEASE);
    }

private:
    static constexpr std::size_t kLines = 16;
    static constexpr std::size_t kLineWords = 16;
    static constexpr std::size_t kFlagWord = 15;
    static constexpr std::size_t kDataWords = 240;

    // A thread holds two words in each of four registers. Every eighth thread's second word would
    // lie where the wire has the flag: in even registers it moves to the first place of the next
    // register, which has no data of its own in those threads.
    static std::array<std::uint16_t, kDataWords> make_order() {
        std::array<std::uint16_t, kDataWords> order{};
        for (unsigned reg = 0; reg < 4; reg++) {
            for (unsigned thread = 0; thread < 32; thread++) {
                const bool holds_flag = thread % 8 == 7;
                if (reg % 2 == 1 && holds_flag)
                    continue;
                const unsigned pair = reg * 32 - 4 * (reg / 2) + thread - (reg % 2) * (thread / 8);
                const unsigned first = reg * 64 + 2 * thread;
                order[2 * pair] = static_cast<std::uint16_t>(first);
                order[2 * pair + 1] =
                    static_cast<std::uint16_t>(holds_flag ? first + 64 : first + 1);
            }
        }
        return order;
    }
    static std::size_t wire_word(std::size_t word) {
        static const auto order = make_order();
        return order[word];
    }
};

// NCCL_LL_CLEAN_MASK: before the 32 bits of LL's flag wrap, every line of the slots is sent once,
// so that no old flag is ever taken for a new one.
bool is_cleaning_step(Protocol protocol, std::uint64_t step) {
    return protocol == Protocol::LL && (step & 0x7ffffff8) == 0x7ffffff8;
}

template <class Lines> class LowLatencyPrimitives : public Primitives {
public:
    explicit LowLatencyPrimitives(PrimitivesSetup setup)
        : Primitives(std::move(setup)), filled_lines_(setup_.receive.size(), 0) {}

private:
    Played play(const Primitive &primitive) override {
        const std::int64_t data_bytes =
            std::max<std::int64_t>(primitive.elements, 0) * element_bytes();
        const std::int64_t lines = (data_bytes + Lines::kDataBytes - 1) / Lines::kDataBytes;
        if (!is_ready(primitive, lines))
            return Played::Nothing;

        const std::int64_t whole_bytes = lines * Lines::kDataBytes;
        Sources sources;
        if (primitive.input != nullptr)
            sources.push_back(copy_input(primitive, data_bytes, whole_bytes));
        if (primitive.receives)
            unpack_received(lines, sources);
        result_.assign(static_cast<std::size_t>(whole_bytes), 0);
        combine(primitive, sources, {result_.data()}, whole_bytes / element_bytes());

        if (primitive.sends)
            send(primitive, lines);
        if (primitive.output != nullptr && data_bytes > 0)
            std::memcpy(primitive.output, result_.data(), static_cast<std::size_t>(data_bytes));
        if (primitive.receives)
            release_received(primitive, lines);
        return Played::All;
    }

    [[nodiscard]] char *slot_of(const Connection &connection) const {
        return connection.buffer(setup_.protocol) +
               static_cast<std::int64_t>(connection.step() % kFifoSlots) * setup_.slot_bytes;
    }

    bool is_ready(const Primitive &primitive, std::int64_t lines) {
        if (primitive.sends &&
            !std::all_of(setup_.send.begin(), setup_.send.end(),
                         [](Connection &connection) { return connection.has_free(1); }))
            return false;
        if (!primitive.receives)
            return true;
        for (std::size_t i = 0; i < setup_.receive.size(); i++) {
            const Connection &connection = setup_.receive[i];
            const char *slot = slot_of(connection);
            for (std::int64_t &line = filled_lines_[i]; line < lines; line++) {
                if (!Lines::is_filled(slot + line * Lines::kWireBytes, connection.step()))
                    return false;
            }
        }
        return true;
    }

    // To whole lines: the last one may go beyond the user's buffer.
    const char *copy_input(const Primitive &primitive, std::int64_t data_bytes,
                           std::int64_t whole_bytes) {
        input_.assign(static_cast<std::size_t>(whole_bytes), 0);
        if (data_bytes > 0)
            std::memcpy(input_.data(), primitive.input, static_cast<std::size_t>(data_bytes));
        return input_.data();
    }

    void unpack_received(std::int64_t lines, Sources &sources) {
        received_.resize(setup_.receive.size());
        for (std::size_t i = 0; i < setup_.receive.size(); i++) {
            received_[i].resize(static_cast<std::size_t>(lines * Lines::kDataBytes));
            const char *slot = slot_of(setup_.receive[i]);
            for (std::int64_t line = 0; line < lines; line++)
                Lines::unpack(slot + line * Lines::kWireBytes,
                              received_[i].data() + line * Lines::kDataBytes);
            sources.push_back(received_[i].data());
        }
    }

    void send(const Primitive &primitive, std::int64_t lines) {
        for (Connection &connection : setup_.send) {
            const bool cleans = is_cleaning_step(setup_.protocol, connection.step());
            const std::int64_t sent_lines = cleans ? setup_.slot_bytes / Lines::kWireBytes : lines;
            const std::int64_t wire_bytes = sent_lines * Lines::kWireBytes;
            connection.set_bytes(static_cast<std::uint64_t>(wire_bytes));
            result_.resize(static_cast<std::size_t>(sent_lines * Lines::kDataBytes));
            char *slot = slot_of(connection);
            for (std::int64_t line = 0; line < sent_lines; line++)
                Lines::pack(result_.data() + line * Lines::kDataBytes,
                            slot + line * Lines::kWireBytes, connection.step());
            log(primitive, connection, Direction::Send, 1, wire_bytes);
            connection.advance(1);
            // LL's proxy looks at the flags. LL128's has no flags in a network's staging buffer.
            if (setup_.protocol == Protocol::LL128 && connection.has_fifo())
                connection.post_tail();
        }
    }

    void release_received(const Primitive &primitive, std::int64_t lines) {
        for (Connection &connection : setup_.receive) {
            log(primitive, connection, Direction::Receive, 1, lines * Lines::kWireBytes);
            connection.advance(1);
            connection.post_head();
        }
        std::fill(filled_lines_.begin(), filled_lines_.end(), 0);
    }

    std::vector<std::int64_t> filled_lines_; // of each connection's current slot
    std::vector<char> input_;
    std::vector<std::vector<char>> received_;
    std::vector<char> result_;
};

} // namespace

std::unique_ptr<Primitives> make_low_latency(PrimitivesSetup setup) {
    if (setup.protocol == Protocol::LL)
        return std::make_unique<LowLatencyPrimitives<LowLatencyLines>>(std::move(setup));
    return std::make_unique<LowLatencyPrimitives<LowLatency128Lines>>(std::move(setup));
}

} // namespace collwire::cuda_double
