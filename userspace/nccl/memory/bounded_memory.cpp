// SPDX-License-Identifier: Apache-2.0
#include "userspace/nccl/memory/bounded_memory.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace collwire::nccl {
namespace {

constexpr std::size_t MAX_READS = 1'000'000; // about 2 s
constexpr std::size_t MAX_BYTES = 256U << 20U;
constexpr std::size_t WORDS_AT_ONCE = 1024; // IOV_MAX
constexpr std::size_t FEW_WORDS = 8;
// In one request they take as long: words of one page, and pages.
constexpr std::size_t WORDS_LIKE_A_READ = 64;
constexpr std::size_t PAGES_LIKE_A_READ = 8;
constexpr std::size_t READS_LIKE_A_FAILURE = 32; // the next requests are small
constexpr std::uint64_t PAGE_BYTES = 4096;

// For tests: COLLWIRE_TEST_FAIL_READ=memory:N makes the Nth read of a reader fail, once.
bool fails_on_purpose(std::size_t read) {
    static std::size_t failing = [] {
        constexpr std::string_view PREFIX = "memory:";
        const char *value = std::getenv("COLLWIRE_TEST_FAIL_READ");
        const std::string_view text = value == nullptr ? "" : value;
        return text.starts_with(PREFIX)
                   ? std::strtoul(text.substr(PREFIX.size()).data(), nullptr, 10)
                   : 0UL;
    }();
    return read == failing && std::exchange(failing, 0) != 0;
}

// Neighbours in one page are one.
std::size_t n_pages(std::span<const std::uint64_t> places) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < places.size(); ++i)
        n += i == 0 || places[i] / PAGE_BYTES != places[i - 1] / PAGE_BYTES ? 1 : 0;
    return n;
}

} // namespace

bool BoundedMemory::bytes(std::uint64_t address, std::span<std::byte> into) {
    return may_read(into.size()) && process_.read(address, into);
}

bool BoundedMemory::may_read(std::size_t n_bytes) {
    if (reads_ >= MAX_READS || n_bytes > MAX_BYTES - bytes_) {
        is_cut_ = true;
        return false;
    }
    ++reads_;
    bytes_ += n_bytes;
    return !fails_on_purpose(++requests_);
}

std::vector<std::uint64_t> BoundedMemory::words_of(std::span<const std::uint64_t> structs,
                                                   std::uint64_t offset) {
    std::vector<std::uint64_t> places, words(structs.size());
    places.reserve(structs.size());
    for (const std::uint64_t one : structs)
        places.push_back(one + offset);
    // Next to one that cannot be read there are others, and the kernel looks at all of a
    // request first.
    std::size_t at_once = WORDS_AT_ONCE;
    for (std::size_t first = 0; first < places.size();) {
        const std::size_t n = std::min(places.size() - first, at_once);
        if (!may_read(n * sizeof(std::uint64_t)))
            break;
        reads_ += n / WORDS_LIKE_A_READ +
                  n_pages(std::span{places}.subspan(first, n)) / PAGES_LIKE_A_READ;
        const std::size_t n_read = process_.read_words(std::span{places}.subspan(first, n),
                                                       std::span{words}.subspan(first, n));
        if (n_read < n) {
            words[first + n_read] = 0;
            reads_ += READS_LIKE_A_FAILURE;
        }
        at_once = n_read < n ? FEW_WORDS : std::min(2 * at_once, WORDS_AT_ONCE);
        first += n_read < n ? n_read + 1 : n; // skip one that cannot be read
    }
    return words;
}

void BoundedMemory::keep_where_set(std::vector<std::uint64_t> &structs, std::uint64_t offset) {
    const std::vector<std::uint64_t> words = words_of(structs, offset);
    std::size_t n = 0;
    for (std::size_t i = 0; i < structs.size(); ++i)
        if (static_cast<std::uint32_t>(words[i]) != 0)
            structs[n++] = structs[i];
    structs.resize(n);
}

} // namespace collwire::nccl
