// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/layout.h"

#include <fmt/format.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/cuda_double/settings.h"

namespace collwire::cuda_double {
namespace {

[[noreturn]] void refuse(const std::string &missing) {
    fatal(fmt::format("the layout lacks {}: this NCCL is of a shape that the double does not know. "
                      "Fix: a version that README.md lists",
                      missing));
}

template <class T> T load(const char *address) {
    T value;
    std::memcpy(&value, address, sizeof value);
    return value;
}

} // namespace

std::uint64_t Field::read(const void *structure) const {
    const auto *bytes = static_cast<const char *>(structure);
    if (first_bit_ >= 0) {
        std::uint64_t value = 0;
        for (std::int64_t bit = 0; bit < bits_; bit++) {
            const std::int64_t at = first_bit_ + bit;
            const auto byte = static_cast<unsigned char>(bytes[at / 8]);
            value |= static_cast<std::uint64_t>(byte >> (at % 8) & 1) << bit;
        }
        return value;
    }
    switch (size_bytes_) {
    case 1:
        return load<std::uint8_t>(bytes + offset_bytes_);
    case 2:
        return load<std::uint16_t>(bytes + offset_bytes_);
    case 4:
        return load<std::uint32_t>(bytes + offset_bytes_);
    case 8:
        return load<std::uint64_t>(bytes + offset_bytes_);
    default:
        refuse(fmt::format("a scalar of {} bytes", size_bytes_));
    }
}

std::int64_t Field::read_signed(const void *structure) const {
    const std::uint64_t value = read(structure);
    return size_bytes_ == 4 ? static_cast<std::int32_t>(value) : static_cast<std::int64_t>(value);
}

void Field::write(void *structure, std::uint64_t value) const {
    char *at = static_cast<char *>(structure) + offset_bytes_;
    if (size_bytes_ == 4)
        __atomic_store_n(reinterpret_cast<std::uint32_t *>(at), static_cast<std::uint32_t>(value),
                         __ATOMIC_RELEASE);
    else if (size_bytes_ == 8)
        __atomic_store_n(reinterpret_cast<std::uint64_t *>(at), value, __ATOMIC_RELEASE);
    else
        refuse(fmt::format("a word to write: this one has {} bytes", size_bytes_));
}

Layout Layout::read_file(const std::string &path) {
    std::ifstream file(path);
    if (!file)
        fatal(fmt::format("no layout file {}. Fix: nccl_layout <libnccl.so.2> <folder>, and set "
                          "COLLWIRE_CUDA_LAYOUTS to the folder",
                          path));
    Layout layout;
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string kind;
        std::string name;
        std::int64_t offset_bytes = 0;
        std::int64_t size_bytes = 0;
        std::int64_t first_bit = 0;
        std::int64_t bits = 0;
        words >> kind >> name;
        if (kind == "struct" && words >> size_bytes)
            layout.sizes_bytes_[name] = size_bytes;
        else if (kind == "elements" && words >> size_bytes)
            layout.element_bytes_[name] = size_bytes;
        else if (kind == "member" && words >> offset_bytes >> size_bytes)
            layout.fields_[name] = Field(offset_bytes, size_bytes);
        else if (kind == "bits" && words >> first_bit >> bits)
            layout.fields_[name] = Field(first_bit, bits, true);
        else if (kind != "build_id")
            fatal(fmt::format("{}: '{}' is no line of a layout. Fix: make it again with "
                              "nccl_layout",
                              path, line));
    }
    return layout;
}

Field Layout::field(const std::string &path) const {
    const auto found = fields_.find(path);
    return found != fields_.end() ? found->second : Field{};
}

Field Layout::required(const std::string &path) const {
    const auto found = fields_.find(path);
    if (found == fields_.end())
        refuse(path);
    return found->second;
}

std::optional<std::int64_t> Layout::size_bytes(const std::string &structure) const {
    const auto found = sizes_bytes_.find(structure);
    return found != sizes_bytes_.end() ? std::optional(found->second) : std::nullopt;
}

std::int64_t Layout::required_size_bytes(const std::string &structure) const {
    const auto found = sizes_bytes_.find(structure);
    if (found == sizes_bytes_.end())
        refuse(structure);
    return found->second;
}

std::int64_t Layout::element_bytes(const std::string &array) const {
    const auto found = element_bytes_.find(array);
    if (found == element_bytes_.end())
        refuse(array + "[]");
    return found->second;
}

} // namespace collwire::cuda_double
