// SPDX-License-Identifier: Apache-2.0
// A layout and a file with the same code, both damaged: the input is a list of changes to the
// file's exception table, to any of its bytes, and to the numbers in the layout.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/support/file_bytes.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/same_code.h"

namespace {

using namespace collwire::nccl;
using collwire::test::bytes_of;

constexpr std::size_t CHANGE_BYTES = 7; // a kind, a place, a value
constexpr std::size_t MOST_CHANGES = 16;

struct Double {
    Double() : stripped(bytes_of(SAME_CODE_DOUBLE ".stripped")) {
        const std::vector<std::byte> bytes = bytes_of(SAME_CODE_DOUBLE);
        const auto whole = LibraryFile::parse(bytes);
        const auto copy = LibraryFile::parse(stripped);
        auto made = whole ? make_layout(*whole) : whole.failure();
        if (!made || !copy)
            std::abort();
        layout = std::move(*made);
        add_code_identity(*whole, layout);
        table = *copy->code().file_offset(copy->exception_table());
        // Without changes it fits; else nothing behind the door is reached.
        if (!CodeComparison{*copy}.layout_from(layout))
            std::abort();
    }
    std::vector<std::byte> stripped;
    LibraryLayout layout;
    std::size_t table = 0; // offset of the exception table in `stripped`
};

template <typename Map> auto &nth(Map &map, std::size_t n) {
    return std::next(map.begin(), static_cast<std::ptrdiff_t>(n % map.size()))->second;
}

void change(std::span<const std::uint8_t, CHANGE_BYTES> text, std::span<std::byte> file,
            std::size_t table, LibraryLayout &layout) {
    std::uint16_t place = 0;
    std::uint32_t value = 0;
    std::memcpy(&place, &text[1], sizeof place);
    std::memcpy(&value, &text[3], sizeof value);
    CodeIdentity &code = layout.code;
    const std::size_t in_table = table + place % 1024;
    switch (text[0] % 8) {
    case 0:
        if (in_table + sizeof value <= file.size())
            std::memcpy(&file[in_table], &value, sizeof value);
        break;
    case 1:
        file[place % file.size()] = static_cast<std::byte>(value);
        break;
    case 2:
        nth(code.entries, place).number = value;
        break;
    case 3:
        nth(code.references, place).function = value;
        break;
    case 4:
        nth(code.references, place).offset_bytes = value;
        break;
    case 5:
        code.pointers[nth(layout.data, place)] = {value % 32, value >> 8};
        break;
    case 6:
        nth(layout.host_functions, place).front() = {layout.probes.front().entry, value};
        break;
    default:
        layout.probes[place % layout.probes.size()].address += value;
    }
}

} // namespace

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static const Double whole;
    std::vector<std::byte> file = whole.stripped;
    LibraryLayout layout = whole.layout;
    for (std::size_t i = 0; i < MOST_CHANGES && (i + 1) * CHANGE_BYTES <= size; ++i)
        change(std::span{data, size}.subspan(i * CHANGE_BYTES).first<CHANGE_BYTES>(), file,
               whole.table, layout);
    const auto library = LibraryFile::parse(file);
    if (!library)
        return 0;
    CodeComparison comparison{*library};
    (void)comparison.layout_from(layout);
    (void)text_of(comparison.compare_known(layout));
    return 0;
}
