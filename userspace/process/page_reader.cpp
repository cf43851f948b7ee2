// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/page_reader.h"

#include <cstring>

namespace collwire::process {

void PageReader::forget() {
    pages_.clear();
    index_.clear();
    oldest_ = 0;
}

const PageReader::Page &PageReader::page_at(std::uint64_t address) {
    if (const auto found = index_.find(address); found != index_.end())
        return pages_[found->second];
    std::size_t at = pages_.size();
    if (at < max_pages_) {
        pages_.emplace_back();
    } else {
        at = oldest_;
        oldest_ = (oldest_ + 1) % max_pages_;
        index_.erase(pages_[at].address);
    }
    Page &page = pages_[at];
    page.address = address;
    page.is_there = process_.read(address, page.bytes);
    index_.emplace(address, at);
    return page;
}

bool PageReader::read(std::uint64_t address, std::span<std::byte> into) {
    const std::uint64_t in_page = address % PAGE_BYTES;
    if (in_page + into.size() > PAGE_BYTES)
        return process_.read(address, into);
    const Page &page = page_at(address - in_page);
    if (page.is_there)
        std::memcpy(into.data(), &page.bytes[in_page], into.size());
    return page.is_there;
}

} // namespace collwire::process
