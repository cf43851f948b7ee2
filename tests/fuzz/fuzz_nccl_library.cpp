// SPDX-License-Identifier: Apache-2.0
// A library; or a layout that was kept, and after a NUL the library that it would be of, or lend
// to.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "userspace/nccl/layout/borrowed_layout.h"
#include "userspace/nccl/layout/check_layout.h"
#include "userspace/nccl/layout/exported_layout.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/same_code.h"

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    using collwire::nccl::LibraryFile;
    const std::string_view input{reinterpret_cast<const char *>(data), size};
    const std::string_view text = input.substr(0, input.find('\0'));
    const auto layout = collwire::nccl::parse_layout(text);
    if (input.starts_with('{')) {
        data += std::min(text.size() + 1, size);
        size -= std::min(text.size() + 1, size);
    }
    // As aligned as a mapping is.
    std::vector<std::uint64_t> words((size + sizeof(std::uint64_t) - 1) / sizeof(std::uint64_t));
    std::copy(data, data + size, reinterpret_cast<std::uint8_t *>(words.data()));
    const auto bytes = std::as_bytes(std::span{words}).first(size);
    const auto library = LibraryFile::parse(bytes);
    const auto debug = LibraryFile::parse_debug(bytes);
    if (!library)
        return 0;
    if (auto made = collwire::nccl::make_layout(*library)) {
        collwire::nccl::add_code_identity(*library, *made);
        made->build_id += "0";
        collwire::nccl::CodeComparison comparison{*library};
        (void)comparison.layout_from(*made);
        (void)text_of(comparison.compare_known(*made));
        collwire::nccl::add_exported_functions(*library, *made);
    }
    if (debug)
        (void)collwire::nccl::make_layout(*library, &*debug);
    if (layout) {
        (void)collwire::nccl::check_layout(*layout, *library);
        collwire::nccl::CodeComparison comparison{*library};
        (void)comparison.layout_from(*layout);
        (void)text_of(comparison.compare_known(*layout));
        for (const auto lender :
             {collwire::nccl::Lender::SameVersion, collwire::nccl::Lender::PatchRelease})
            (void)collwire::nccl::borrow_layout(*library, *layout, lender);
    }
    return 0;
}
