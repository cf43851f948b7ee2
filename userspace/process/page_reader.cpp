// SPDX-License-Identifier: Apache-2.0
#include "userspace/process/page_reader.h"

#include <algorithm>
#include <cstring>

namespace collwire::process {

const PageReader::Page *PageReader::page_at(std::uint64_t address) {
    const auto kept = std::span{pages_}.first(std::min(n_, MAX_PAGES));
    if (const auto found = std::ranges::find(kept, address, &Page::address); found != kept.end())
        return &*found;
    Page &page = pages_[n_ % MAX_PAGES];
    if (!process_.read(address, page.bytes)) {
        page.address = 1; // no page's
        return nullptr;
    }
    page.address = address;
    ++n_;
    return &page;
}

bool PageReader::read(std::uint64_t address, std::span<std::byte> into) {
    const std::uint64_t in_page = address % PAGE_BYTES;
    const Page *page = in_page + into.size() <= PAGE_BYTES ? page_at(address - in_page) : nullptr;
    if (page == nullptr)
        return process_.read(address, into);
    std::memcpy(into.data(), &page->bytes[in_page], into.size());
    return true;
}

} // namespace collwire::process
