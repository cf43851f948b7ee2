// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/plugin_memory.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "userspace/process/page_reader.h"

namespace collwire::nccl {
namespace {

// A connection's object may have arrays of requests before its queue pairs.
constexpr std::size_t MAX_OBJECT_BYTES = 32768;
// Of an object of unknown size (not from the C library's malloc): the memory after it may belong to
// another connection.
constexpr std::size_t UNKNOWN_ROOT_BYTES = 4096;
constexpr std::size_t UNKNOWN_OBJECT_BYTES = 256;
constexpr std::size_t PAGE_BYTES = 4096;
// A queue pair further away belongs to an object that connections share.
constexpr std::uint8_t MAX_DEPTH = 3;
// Each costs a system call of a microsecond, and one more for each page.
constexpr std::size_t MAX_OBJECTS = 1024;
constexpr std::size_t MAX_PAGES = 1024;
// Of all objects together: a millisecond or two.
constexpr std::size_t MAX_READ_BYTES = 2U << 20U;

// struct ibv_qp of libibverbs: the part that programs read directly.
struct QpHead {
    std::uint64_t context;
    std::uint64_t qp_context;
    std::uint64_t pd;
    std::uint64_t send_cq;
    std::uint64_t recv_cq;
    std::uint64_t srq;
    std::uint32_t handle;
    std::uint32_t qp_num;
    std::uint32_t state;
    std::uint32_t qp_type;
};
static_assert(sizeof(QpHead) == 64);
constexpr std::uint32_t LAST_STATE = 7;  // IBV_QPS_UNKNOWN
constexpr std::uint32_t FIRST_TYPE = 2;  // IBV_QPT_RC
constexpr std::uint32_t LAST_TYPE = 255; // IBV_QPT_DRIVER

// glibc's malloc stores a word before each object (malloc.c, struct malloc_chunk): the size, with
// that word and in multiples of 16, and flags in the last three bits.
constexpr std::uint64_t CHUNK_FLAGS = 7;
constexpr std::uint64_t CHUNK_MULTIPLE = 16;
constexpr std::uint64_t MIN_CHUNK_BYTES = 32;
constexpr std::uint64_t MAX_CHUNK_BYTES = 1U << 20U;

class Search {
public:
    Search(const process::ProcessView &process, const std::unordered_set<std::uint32_t> &numbers)
        : pages_(process, MAX_PAGES), numbers_(numbers),
          words_(MAX_OBJECT_BYTES / sizeof(std::uint64_t)) {
        for (const process::Mapping &mapping : process.mappings())
            if (mapping.writable)
                writable_.emplace_back(mapping.begin, mapping.end);
        std::ranges::sort(writable_);
    }

    std::vector<PluginQp> run(std::uint64_t address) {
        std::vector<std::uint64_t> level;
        seen_.insert(address);
        read_pointers(address, UNKNOWN_ROOT_BYTES, level);
        for (std::uint8_t depth = 1; depth <= MAX_DEPTH && !level.empty(); ++depth) {
            std::vector<std::uint64_t> next;
            for (const std::uint64_t at : level) {
                if (found_.size() == MAX_PLUGIN_QPS)
                    return found_;
                look_at(at, depth, next);
            }
            level = std::move(next);
        }
        return found_;
    }

private:
    // Writable memory: where pointers can lead.
    [[nodiscard]] bool may_be_object(std::uint64_t address) const {
        if (address == 0 || address % alignof(std::uint64_t) != 0)
            return false;
        const auto next = std::ranges::upper_bound(writable_, address, {}, &Range::first);
        return next != writable_.begin() && address < std::prev(next)->second;
    }

    void look_at(std::uint64_t address, std::uint8_t depth, std::vector<std::uint64_t> &next) {
        const auto head = pages_.read<QpHead>(address);
        if (!head)
            return;
        if (is_qp(*head)) {
            // Pointers in it lead to the device, not to the connection.
            found_.push_back({address, head->qp_num, depth});
            return;
        }
        if (depth < MAX_DEPTH)
            read_pointers(address, UNKNOWN_OBJECT_BYTES, next);
    }

    [[nodiscard]] bool is_qp(const QpHead &head) const {
        return numbers_.contains(head.qp_num) && head.state <= LAST_STATE &&
               head.qp_type >= FIRST_TYPE && head.qp_type <= LAST_TYPE &&
               may_be_object(head.context) && may_be_object(head.pd) &&
               may_be_object(head.send_cq) && may_be_object(head.recv_cq);
    }

    // The size of an object from the C library's malloc. Empty: not such an object.
    [[nodiscard]] std::optional<std::size_t> object_bytes(std::uint64_t address) {
        const auto word = pages_.read<std::uint64_t>(address - sizeof(std::uint64_t));
        if (!word || address % CHUNK_MULTIPLE != 0)
            return std::nullopt;
        const std::uint64_t bytes = *word & ~CHUNK_FLAGS;
        if (bytes % CHUNK_MULTIPLE != 0 || bytes < MIN_CHUNK_BYTES || bytes > MAX_CHUNK_BYTES)
            return std::nullopt;
        return static_cast<std::size_t>(bytes) - sizeof(std::uint64_t);
    }

    // Reads to the end of the object or of readable memory.
    void read_pointers(std::uint64_t address, std::size_t unknown,
                       std::vector<std::uint64_t> &into) {
        if (seen_.size() > MAX_OBJECTS)
            return; // no more are read
        const std::size_t most = std::min({object_bytes(address).value_or(unknown),
                                           MAX_OBJECT_BYTES, MAX_READ_BYTES - n_bytes_}) /
                                 sizeof(std::uint64_t) * sizeof(std::uint64_t);
        const auto bytes = std::as_writable_bytes(std::span{words_}).first(most);
        std::size_t n = 0;
        while (n < most) {
            const std::size_t to_page_end = PAGE_BYTES - (address + n) % PAGE_BYTES;
            const std::size_t part = std::min(to_page_end, most - n);
            if (!pages_.read(address + n, bytes.subspan(n, part)))
                break;
            n += part;
        }
        n_bytes_ += n;
        for (const std::uint64_t word : std::span{words_}.first(n / sizeof(std::uint64_t))) {
            if (seen_.size() > MAX_OBJECTS)
                return;
            if (may_be_object(word) && seen_.insert(word).second)
                into.push_back(word);
        }
    }

    using Range = std::pair<std::uint64_t, std::uint64_t>;

    process::PageReader pages_;
    const std::unordered_set<std::uint32_t> &numbers_;
    std::vector<std::uint64_t> words_; // of the object that is read
    std::vector<Range> writable_;      // in their order
    std::unordered_set<std::uint64_t> seen_;
    std::vector<PluginQp> found_;
    std::size_t n_bytes_ = 0; // read
};

} // namespace

std::vector<PluginQp> find_plugin_qps(const process::ProcessView &process, std::uint64_t address,
                                      const std::unordered_set<std::uint32_t> &numbers) {
    if (address % alignof(std::uint64_t) != 0 || numbers.empty())
        return {};
    return Search(process, numbers).run(address);
}

std::optional<PluginNetwork> read_plugin_network(const process::ProcessView &process,
                                                 std::uint64_t net) {
    struct Table {
        std::uint64_t name, init, devices;
    };
    const auto table = process.read<Table>(net);
    if (!table)
        return std::nullopt;
    PluginNetwork network;
    std::array<char, CW_NCCL_NETWORK_BYTES> name{};
    // It may end before an unmapped page.
    for (std::size_t i = 0; i + 1 < name.size(); ++i) {
        const auto letter = process.read<char>(table->name + i);
        if (!letter || *letter == '\0')
            break;
        name[i] = *letter;
    }
    network.name = name.data();
    const process::Mapping *mapping = process.mapping_of(table->devices);
    if (mapping != nullptr && mapping->executable)
        network.path = mapping->path;
    return network;
}

} // namespace collwire::nccl
