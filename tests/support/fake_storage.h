// SPDX-License-Identifier: Apache-2.0
// A file system in memory that fills up, breaks and writes short when a test says so.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "userspace/capture/storage.h"

namespace collwire::test {

class FakeStorage : public capture::Storage {
public:
    struct Content {
        std::vector<std::byte> bytes;
        bool open = true;
    };

    std::map<std::string, Content> files;
    std::vector<std::string> order;       // of creation, of those that are there
    std::uint64_t capacity_bytes = ~0ULL; // of all files; beyond: ENOSPC
    std::size_t longest_write_bytes = ~std::size_t{0};
    bool keeps_part_of_failed_write = false; // the bytes that still fit stay, and the call fails
    int write_error = 0;                     // -errno of every write
    int truncate_error = 0;
    int create_error = 0;
    int remove_error = 0;
    int sync_error = 0;
    unsigned interrupts = 0;      // so many writes return -EINTR first
    std::uint64_t most_bytes = 0; // that were ever in files at once, each rounded up to 4 KiB
    unsigned writes = 0;

    [[nodiscard]] std::uint64_t used_bytes() const {
        std::uint64_t used = 0;
        for (const auto &[name, content] : files)
            used += content.bytes.size();
        return used;
    }

    int create(const std::string &name, std::unique_ptr<capture::StorageFile> &file) override {
        if (create_error != 0)
            return create_error;
        if (files.contains(name))
            return -EEXIST;
        files[name] = {};
        order.push_back(name);
        file = std::make_unique<File>(*this, name);
        return 0;
    }
    int remove(const std::string &name) override {
        if (remove_error != 0)
            return remove_error;
        std::erase(order, name);
        return files.erase(name) == 1 ? 0 : -ENOENT;
    }

private:
    class File : public capture::StorageFile {
    public:
        File(FakeStorage &storage, std::string name) : storage_(storage), name_(std::move(name)) {}
        std::int64_t write_at(std::span<const std::byte> bytes, std::uint64_t offset) override {
            return storage_.write(name_, bytes, offset);
        }
        int truncate(std::uint64_t size_bytes) override {
            if (storage_.truncate_error != 0)
                return storage_.truncate_error;
            storage_.files.at(name_).bytes.resize(size_bytes);
            return 0;
        }
        int sync() override { return storage_.sync_error; }
        int close() override {
            storage_.files.at(name_).open = false;
            return 0;
        }

    private:
        FakeStorage &storage_;
        std::string name_;
    };

    std::int64_t write(const std::string &name, std::span<const std::byte> bytes,
                       std::uint64_t offset) {
        writes++;
        if (interrupts > 0) {
            interrupts--;
            return -EINTR;
        }
        if (write_error != 0)
            return write_error;
        auto &file = files.at(name).bytes;
        const std::uint64_t free_bytes = capacity_bytes - std::min(capacity_bytes, used_bytes());
        const std::uint64_t room =
            file.size() - std::min<std::uint64_t>(offset, file.size()) + free_bytes;
        const std::size_t n =
            std::min({bytes.size(), longest_write_bytes,
                      static_cast<std::size_t>(std::min<std::uint64_t>(room, bytes.size()))});
        if (file.size() < offset + n)
            file.resize(offset + n);
        std::copy_n(bytes.begin(), n, file.begin() + static_cast<std::ptrdiff_t>(offset));
        std::uint64_t disk_bytes = 0;
        for (const auto &[each, content] : files)
            disk_bytes += (content.bytes.size() + 4095) / 4096 * 4096;
        most_bytes = std::max(most_bytes, disk_bytes);
        if (n < bytes.size() && n < longest_write_bytes && (n == 0 || keeps_part_of_failed_write))
            return -ENOSPC;
        return static_cast<std::int64_t>(n);
    }
};

} // namespace collwire::test
