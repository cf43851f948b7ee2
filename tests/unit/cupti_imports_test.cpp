// SPDX-License-Identifier: Apache-2.0
#include "cupti/imports.h"

#include "fake_cupti/fake_cupti.h"

#include <dlfcn.h>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <string>

namespace collwire::cupti {
namespace {

constexpr int OURS = 5'000;

int our_enable(int kind) {
    return OURS + kind;
}

// A loaded library, for as long as the object is there.
class LoadedLibrary {
public:
    explicit LoadedLibrary(const char *path) : handle_(dlopen(path, RTLD_LAZY | RTLD_LOCAL)) {
        EXPECT_NE(handle_, nullptr) << dlerror();
    }
    ~LoadedLibrary() {
        if (handle_)
            dlclose(handle_);
    }
    LoadedLibrary(const LoadedLibrary &) = delete;
    LoadedLibrary &operator=(const LoadedLibrary &) = delete;

    template <class Function> Function find(const char *name) const {
        auto function = reinterpret_cast<Function>(dlsym(handle_, name));
        EXPECT_NE(function, nullptr) << name;
        return function;
    }
    const FakeTool &tool() const { return *find<const FakeTool *(*)()>("fake_tool")(); }

private:
    void *handle_;
};

// The mappings of a file, with their rights.
std::string mappings_of(const std::string &path) {
    std::ifstream maps("/proc/self/maps");
    std::ostringstream found;
    for (std::string line; std::getline(maps, line);)
        if (line.ends_with(path))
            found << line << '\n';
    return found.str();
}

class CuptiImportsOfAll : public testing::Test {
protected:
    void SetUp() override {
        replacement_[0].theirs =
            reinterpret_cast<void *>(cupti_.find<int (*)(int)>("cuptiActivityEnable"));
    }

    LoadedLibrary cupti_ = LoadedLibrary(FAKE_LIBCUPTI);
    Replacement replacement_[1] = {
        {"cuptiActivityEnable", reinterpret_cast<void *>(our_enable), nullptr}};
};

class CuptiImports : public CuptiImportsOfAll, public testing::WithParamInterface<const char *> {};

TEST_P(CuptiImports, AreReplacedAndRestored) {
    const LoadedLibrary library(GetParam());
    const FakeTool &tool = library.tool();
    const std::string before = mappings_of(GetParam());
    EXPECT_FALSE(before.empty());
    EXPECT_EQ(replace_imports(replacement_, 1), 1U);
    EXPECT_EQ(tool.enable(10), OURS + 10);
    EXPECT_EQ(tool.disable(10), FAKE_CUPTI_DISABLE + 10); // another import
    EXPECT_EQ(mappings_of(GetParam()), before);           // read-only again
    EXPECT_EQ(replace_imports(replacement_, 1), 1U);      // as it is
    EXPECT_EQ(tool.enable(10), OURS + 10);
    restore_imports(replacement_, 1);
    EXPECT_EQ(tool.enable(10), FAKE_CUPTI_ENABLE + 10);
    EXPECT_EQ(mappings_of(GetParam()), before);
}

TEST_P(CuptiImports, AreReplacedAfterTheFirstCallToo) {
    const LoadedLibrary library(GetParam());
    const FakeTool &tool = library.tool();
    EXPECT_EQ(tool.enable(3), FAKE_CUPTI_ENABLE + 3);
    EXPECT_EQ(replace_imports(replacement_, 1), 1U);
    EXPECT_EQ(tool.enable(3), OURS + 3);
    restore_imports(replacement_, 1);
    EXPECT_EQ(tool.enable(3), FAKE_CUPTI_ENABLE + 3);
}

INSTANTIATE_TEST_SUITE_P(OfALibrary, CuptiImports,
                         testing::Values(FAKE_TOOL_LAZY, FAKE_TOOL_RELRO, FAKE_TOOL_RELRO_NOW,
                                         FAKE_TOOL_NO_PLT),
                         [](const auto &tested) {
                             const std::string path = tested.param;
                             const size_t begin = path.find("libfake_tool_") + 13;
                             return path.substr(begin, path.find(".so") - begin);
                         });

TEST_F(CuptiImportsOfAll, OfLaterFilesAreFoundAndThoseOfLibcuptiLeft) {
    const LoadedLibrary first(FAKE_TOOL_LAZY);
    EXPECT_EQ(replace_imports(replacement_, 1), 1U);
    const unsigned long long loads = loads_so_far();
    EXPECT_EQ(loads_so_far(), loads);
    const LoadedLibrary second(FAKE_TOOL_NO_PLT);
    EXPECT_NE(loads_so_far(), loads);
    EXPECT_EQ(second.tool().enable(1), FAKE_CUPTI_ENABLE + 1);
    EXPECT_EQ(replace_imports(replacement_, 1), 2U);
    EXPECT_EQ(first.tool().enable(1), OURS + 1);
    EXPECT_EQ(second.tool().enable(1), OURS + 1);
    EXPECT_EQ(cupti_.find<int (*)(int)>("fake_cupti_call_own_enable")(7), FAKE_CUPTI_ENABLE + 7);
    restore_imports(replacement_, 1);
    EXPECT_EQ(first.tool().enable(1), FAKE_CUPTI_ENABLE + 1);
    EXPECT_EQ(second.tool().enable(1), FAKE_CUPTI_ENABLE + 1);
}

// What another program put there stays.
TEST_F(CuptiImportsOfAll, ARestoreTouchesOnlyWhatWasReplaced) {
    const LoadedLibrary library(FAKE_TOOL_LAZY);
    Replacement foreign[] = {{"cuptiActivityEnable",
                              reinterpret_cast<void *>(+[](int kind) { return 9'000 + kind; }),
                              nullptr}};
    EXPECT_EQ(replace_imports(foreign, 1), 1U);
    restore_imports(replacement_, 1);
    EXPECT_EQ(library.tool().enable(1), 9'001);
}

TEST(CuptiImportsOfNone, WithoutAUserThereIsNone) {
    Replacement replacement[] = {
        {"cuptiActivityEnable", reinterpret_cast<void *>(our_enable), nullptr}};
    EXPECT_EQ(replace_imports(replacement, 1), 0U);
}

} // namespace
} // namespace collwire::cupti
