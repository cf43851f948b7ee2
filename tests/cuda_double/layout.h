// SPDX-License-Identifier: Apache-2.0
// Where NCCL's structures keep their members: read from the text file that nccl_layout wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace collwire::cuda_double {

class Field {
public:
    Field() = default; // of a version that lacks it
    Field(std::int64_t offset_bytes, std::int64_t size_bytes)
        : offset_bytes_(offset_bytes), size_bytes_(size_bytes) {}
    Field(std::int64_t first_bit, std::int64_t bits, bool /*is_bit_field*/)
        : offset_bytes_(first_bit / 8), first_bit_(first_bit), bits_(bits) {}

    explicit operator bool() const { return offset_bytes_ >= 0; }
    [[nodiscard]] std::int64_t offset_bytes() const { return offset_bytes_; }
    [[nodiscard]] std::int64_t size_bytes() const { return size_bytes_; }

    [[nodiscard]] std::uint64_t read(const void *structure) const;
    [[nodiscard]] std::int64_t read_signed(const void *structure) const;
    [[nodiscard]] int read_int(const void *structure) const {
        return static_cast<int>(read(structure));
    }
    template <class T> [[nodiscard]] T *pointer(const void *structure) const {
        return reinterpret_cast<T *>(read(structure));
    }
    // Not for bit fields. Other threads may read it: what was written before is seen before.
    void write(void *structure, std::uint64_t value) const;

private:
    std::int64_t offset_bytes_ = -1;
    std::int64_t size_bytes_ = 0;
    std::int64_t first_bit_ = -1;
    std::int64_t bits_ = 0;
};

class Layout {
public:
    // Fatal where the file cannot be read.
    static Layout read_file(const std::string &path);

    // "structure.member[.member...]"; an array's elements: "structure.member[].member".
    [[nodiscard]] Field field(const std::string &path) const;    // empty where it is missing
    [[nodiscard]] Field required(const std::string &path) const; // fatal
    [[nodiscard]] std::optional<std::int64_t> size_bytes(const std::string &structure) const;
    [[nodiscard]] std::int64_t required_size_bytes(const std::string &structure) const;
    [[nodiscard]] std::int64_t element_bytes(const std::string &array) const; // fatal

private:
    std::map<std::string, Field> fields_;
    std::map<std::string, std::int64_t> sizes_bytes_;
    std::map<std::string, std::int64_t> element_bytes_;
};

} // namespace collwire::cuda_double
