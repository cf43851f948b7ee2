// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "userspace/elf/file_bytes.h"
#include "userspace/nccl/layout/file_layout.h"

namespace collwire::nccl::test {

// The double's file, mapped as long as this lives.
class FakeNccl : public testing::Test {
protected:
    void SetUp() override {
        auto mapped = elf::FileBytes::open(FAKE_NCCL);
        ASSERT_TRUE(mapped.ok()) << mapped.failure().message;
        mapped_.emplace(std::move(*mapped));
        auto library = LibraryFile::parse(mapped_->bytes());
        ASSERT_TRUE(library.ok()) << library.failure().message;
        library_.emplace(std::move(*library));
    }

    [[nodiscard]] LibrarySymbol symbol(std::string_view name) const {
        const std::string_view names[] = {name};
        const auto found = library_->find(names);
        return found.empty() ? LibrarySymbol{} : found.begin()->second;
    }

    std::optional<elf::FileBytes> mapped_;
    std::optional<LibraryFile> library_;
};

} // namespace collwire::nccl::test
