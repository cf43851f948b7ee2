// SPDX-License-Identifier: Apache-2.0
#include "tools/trace-gen/job_damage.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <vector>

#include "correlate/capture/encoder.h"
#include "correlate/capture/format.h"

namespace collwire::trace_gen {
namespace {

using Bytes = std::vector<char>;

// The blocks of a file: the offset of each, and of the end.
std::vector<std::size_t> block_offsets(const Bytes &bytes) {
    std::vector<std::size_t> offsets;
    std::size_t at = sizeof(capture::FileHeader);
    while (at + sizeof(capture::BlockHeader) <= bytes.size()) {
        offsets.push_back(at);
        capture::BlockHeader header;
        std::memcpy(&header, bytes.data() + at, sizeof(header));
        at += sizeof(header) + header.payload_bytes;
    }
    offsets.push_back(at);
    return offsets;
}

void set_version(Bytes &bytes, bool is_major) {
    capture::FileHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (is_major)
        header.schema_major++;
    else
        header.schema_minor += 10;
    const auto encoded = capture::encode_file_header(header);
    std::memcpy(bytes.data(), encoded.data(), encoded.size());
}

} // namespace

Result<void> damage_capture(const std::string &path, Damage damage, CaptureTruth &truth) {
    std::error_code failure;
    truth.damage = damage;
    truth.size_bytes = truth.good_bytes = std::filesystem::file_size(path, failure);
    truth.paths = {path};
    if (!failure && damage == Damage::None)
        return {};
    const auto failed = [&] {
        return error(ErrorKind::Failed,
                     fmt::format("{}: cannot be damaged. Fix: give --out another "
                                 "directory",
                                 path));
    };
    if (damage == Damage::Missing) {
        std::filesystem::remove(path, failure);
        truth.paths.clear();
        truth.size_bytes = truth.good_bytes = truth.n_records = 0;
        return failure ? Result<void>(failed()) : Result<void>();
    }
    if (damage == Damage::Doubled) {
        const std::string copy = path.substr(0, path.size() - 4) + "-copy.cwc";
        std::filesystem::copy_file(path, copy, failure);
        truth.paths.push_back(copy);
        return failure ? Result<void>(failed()) : Result<void>();
    }
    std::ifstream in(path, std::ios::binary);
    Bytes bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const std::vector<std::size_t> offsets = block_offsets(bytes);
    const std::size_t block = offsets.size() / 2; // about the middle, never the first
    if (damage == Damage::Truncated) {
        truth.good_bytes = offsets[block];
        bytes.resize((offsets[block] + offsets[block + 1]) / 2);
    }
    if (damage == Damage::Corrupt) {
        truth.good_bytes = offsets[block];
        bytes[offsets[block] + sizeof(capture::BlockHeader) + 3] ^= 0x40;
    }
    if (damage == Damage::NewerMajor || damage == Damage::NewerMinor) {
        set_version(bytes, damage == Damage::NewerMajor);
        truth.good_bytes = damage == Damage::NewerMajor ? 0 : truth.good_bytes;
    }
    truth.size_bytes = bytes.size();
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    return in && out ? Result<void>() : Result<void>(failed());
}

} // namespace collwire::trace_gen
