// SPDX-License-Identifier: Apache-2.0
// Memory that never answers (userfaultfd), beside memory that does.
#include <array>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "userspace/foreign/foreign.h"

namespace collwire::foreign {
namespace {

constexpr std::size_t PAGE = 4096;
constexpr std::uint64_t WORD = 0x0123456789abcdef;
constexpr std::uint64_t NS_PER_S = 1'000'000'000;

// A child that has this page, which it fills, or which nobody fills.
class Neighbour {
public:
    Neighbour(void *page, bool answers) {
        std::array<int, 2> ends{};
        EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
        pid_ = fork();
        if (pid_ == 0)
            live(page, answers, ends[1]);
        close(ends[1]);
        char said = 0;
        is_there_ = read(ends[0], &said, 1) == 1;
        close(ends[0]);
    }
    Neighbour(const Neighbour &) = delete;
    Neighbour &operator=(const Neighbour &) = delete;
    ~Neighbour() {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    [[nodiscard]] pid_t pid() const { return pid_; }
    [[nodiscard]] bool is_there() const { return is_there_; }

private:
    [[noreturn]] static void live(void *page, bool answers, int said) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (answers) {
            *static_cast<std::uint64_t *>(page) = WORD;
        } else {
            const int faults = static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC));
            uffdio_api api{};
            api.api = UFFD_API;
            uffdio_register range{};
            range.range = {reinterpret_cast<std::uint64_t>(page), PAGE};
            range.mode = UFFDIO_REGISTER_MODE_MISSING;
            if (faults < 0 || ioctl(faults, UFFDIO_API, &api) != 0 ||
                ioctl(faults, UFFDIO_REGISTER, &range) != 0)
                _exit(1);
        }
        (void)!write(said, "1", 1);
        for (;;)
            pause();
    }

    pid_t pid_ = 0;
    bool is_there_ = false;
};

class ForeignMemory : public testing::Test {
protected:
    void SetUp() override {
        page_ = mmap(nullptr, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        ASSERT_NE(page_, MAP_FAILED);
    }
    void TearDown() override { munmap(page_, PAGE); }

    std::unique_ptr<Neighbour> neighbour(bool answers) {
        return std::make_unique<Neighbour>(page_, answers);
    }
    [[nodiscard]] bool reads(const Neighbour &of) const {
        std::uint64_t word = 0;
        return read_memory(of.pid(), reinterpret_cast<std::uint64_t>(page_),
                           std::as_writable_bytes(std::span{&word, 1})) &&
               word == WORD;
    }

    void *page_ = nullptr;
};

TEST_F(ForeignMemory, ThatDoesNotAnswerHoldsUpNobody) {
    std::vector<std::unique_ptr<Neighbour>> silent, answering;
    for (int i = 0; i < 40; ++i)
        silent.push_back(neighbour(false));
    for (int i = 0; i < 20; ++i)
        answering.push_back(neighbour(true));
    if (!silent.front()->is_there())
        GTEST_SKIP() << "userfaultfd is not permitted here";
    const std::uint64_t begin_ns = monotonic_ns();
    for (std::size_t i = 0; i < silent.size(); ++i) {
        EXPECT_FALSE(reads(*silent[i]));
        EXPECT_FALSE(answers(silent[i]->pid()));
        EXPECT_TRUE(reads(*answering[i % answering.size()]));
    }
    // 4 x 0.4 s, 4 x 0.2 s, 4 x 0.1 s, and 50 ms each; 25 ms more to look at each reader.
    EXPECT_LT(monotonic_ns() - begin_ns, 15 * NS_PER_S);
    // At once. This process may wait for a CPU during some of them.
    std::size_t n_waited = 0;
    for (const auto &one : silent) {
        const std::uint64_t again_ns = monotonic_ns();
        EXPECT_FALSE(reads(*one));
        n_waited += monotonic_ns() - again_ns > NS_PER_S / 40 ? 1 : 0;
    }
    EXPECT_LT(n_waited, silent.size() / 2);
    EXPECT_EQ(foreign::silent().size(), silent.size());
    const auto news = take_news();
    ASSERT_FALSE(news.empty());
    EXPECT_NE(news.front().find(std::to_string(silent.front()->pid())), std::string::npos);
    EXPECT_LT(news.size(), 10U);
    silent.clear();
    EXPECT_TRUE(foreign::silent().empty()) << "they have exited";
    for (const auto &one : answering)
        EXPECT_TRUE(reads(*one));
}

TEST_F(ForeignMemory, WordsAndFilesOfAProcessAreRead) {
    const auto one = neighbour(true);
    const auto at = reinterpret_cast<std::uint64_t>(page_);
    std::array<std::uint64_t, 3> words{};
    const std::array addresses{at, at, std::uint64_t{8}};
    EXPECT_EQ(read_words(one->pid(), addresses, words), 2U);
    EXPECT_EQ(words[1], WORD);
    const std::string folder = "/proc/" + std::to_string(one->pid());
    const auto maps = read_file(one->pid(), folder + "/maps", 1 << 20);
    ASSERT_TRUE(maps) << maps.failure().message;
    EXPECT_NE(maps->find("foreign_test"), std::string::npos);
    const auto executable = read_link(one->pid(), folder + "/exe");
    ASSERT_TRUE(executable);
    EXPECT_TRUE(executable->ends_with("foreign_test"));
    const int file = open_path(one->pid(), folder + "/exe");
    EXPECT_GE(file, 0);
    close(file);
    EXPECT_FALSE(read_file(one->pid(), folder + "/no_such_file", 1));
    const std::vector<std::string> paths{folder + "/exe", folder + "/none"};
    const auto found = statuses(one->pid(), paths);
    ASSERT_EQ(found.size(), 2U);
    EXPECT_TRUE(found[0] && found[0]->stx_size > PAGE);
    EXPECT_FALSE(found[1]);
}

TEST_F(ForeignMemory, WordsAreReadInAnyOrder) {
    void *const pages =
        mmap(nullptr, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    auto *const bytes = static_cast<unsigned char *>(pages);
    for (std::size_t i = 0; i < 3 * PAGE; ++i)
        bytes[i] = static_cast<unsigned char>(i * 31 + i / 251);
    ASSERT_EQ(mprotect(bytes + 2 * PAGE, PAGE, PROT_NONE), 0);
    const auto one = neighbour(true);
    // The fourth crosses into the second page, and the last into the one that cannot be read.
    const std::array<std::uint64_t, 10> offsets{16,       8, PAGE - 8,     PAGE - 4,    PAGE, PAGE,
                                                PAGE + 8, 3, 2 * PAGE - 8, 2 * PAGE - 4};
    std::array<std::uint64_t, 10> addresses{}, words{}, expected{};
    for (std::size_t i = 0; i < offsets.size(); ++i) {
        addresses[i] = reinterpret_cast<std::uint64_t>(bytes) + offsets[i];
        if (i + 1 < offsets.size())
            std::memcpy(&expected[i], bytes + offsets[i], sizeof(expected[i]));
    }
    EXPECT_EQ(read_words(one->pid(), addresses, words), 9U);
    words[9] = 0;
    EXPECT_EQ(words, expected);
    munmap(pages, 3 * PAGE);
}

TEST_F(ForeignMemory, ALargeFileIsReadWhole) {
    const std::string path = "/proc/" + std::to_string(getpid()) + "/exe";
    const auto text = read_file(NO_PROCESS, path, 64UL << 20U);
    const auto size = status(NO_PROCESS, path);
    ASSERT_TRUE(text && size);
    EXPECT_EQ(text->size(), size->stx_size);
}

} // namespace
} // namespace collwire::foreign
