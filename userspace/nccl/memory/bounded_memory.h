// SPDX-License-Identifier: Apache-2.0
// Memory of a process, read up to a number of reads and bytes: what is there may lead anywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/process/page_reader.h"
#include "userspace/process/process_view.h"

namespace collwire::nccl {

class BoundedMemory {
public:
    explicit BoundedMemory(const process::ProcessView &process)
        : process_(process), pages_(process) {}

    template <typename T> std::optional<T> value(std::uint64_t address) {
        return may_read(sizeof(T)) ? pages_.read<T>(address) : std::nullopt;
    }
    // A field of the layout; no value if this build has no such field.
    template <typename T> std::optional<T> field(std::uint64_t base, std::uint32_t offset) {
        return offset == CW_NCCL_NO_FIELD ? std::nullopt : value<T>(base + offset);
    }
    bool bytes(std::uint64_t address, std::span<std::byte> into);
    // The words at `offset` of each structure; 0 where it cannot be read.
    std::vector<std::uint64_t> words_of(std::span<const std::uint64_t> structs,
                                        std::uint64_t offset);
    // Keeps the structures whose int at `offset` is not 0.
    void keep_where_set(std::vector<std::uint64_t> &structs, std::uint64_t offset);
    // value and field read anew from here on.
    void forget_pages() { pages_.forget(); }

    // Whether something was not read because of a limit: of this class, or of who called cut.
    [[nodiscard]] bool is_cut() const { return is_cut_; }
    void cut() { is_cut_ = true; }
    [[nodiscard]] const process::ProcessView &process() const { return process_; }

private:
    bool may_read(std::size_t n_bytes);

    const process::ProcessView &process_;
    process::PageReader pages_;
    std::size_t reads_ = 0;
    std::size_t requests_ = 0;
    std::size_t bytes_ = 0;
    bool is_cut_ = false;
};

} // namespace collwire::nccl
