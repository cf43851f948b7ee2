// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "userspace/nccl/file_plan.h"
#include "userspace/nccl/find_nccl.h"
#include "userspace/nccl/reader_process.h"

namespace collwire::nccl {
namespace {

constexpr char NCCL = '1';
constexpr char OTHER = '0';
constexpr char UNOPENED = '-';

bool defines_nccl(const LibraryFile &library) {
    constexpr std::array<std::string_view, 1> NAME{"ncclAllReduce"};
    const auto symbols = library.find(NAME);
    return std::ranges::any_of(symbols, [](const auto &symbol) { return symbol.second.function; });
}

// A line.
std::string look_of(const Result<FileBytes> &file) {
    if (!file)
        return fmt::format("{}\n", UNOPENED);
    if (file->bytes().size() < LEAST_FILE_BYTES)
        return fmt::format("{}\n", OTHER);
    const auto library = LibraryFile::parse(file->bytes());
    if (!library || !defines_nccl(*library))
        return fmt::format("{}\n", OTHER);
    return fmt::format("{}{}\n", NCCL, library->build_id());
}

FileLook look_from(std::string_view line) {
    using enum FileLook::Verdict;
    if (line.starts_with(NCCL))
        return {Nccl, std::string{line.substr(1)}, {}};
    return {line.starts_with(UNOPENED) ? Unopened : Other, {}, {}};
}

// "P" and the plan, or "E", the kind of the error, and its message.
std::string answer_of(const Result<FileBytes> &file, const std::string &path) {
    const auto refused = [](const Error &why) {
        return fmt::format("E{}{}", static_cast<int>(why.kind), why.message);
    };
    if (!file)
        return refused(file.failure());
    const auto library = LibraryFile::parse(file->bytes());
    if (!library)
        return refused(Error{library.failure()}.in(path));
    const auto plan = make_plan(*library);
    if (!plan)
        return refused(Error{plan.failure()}.in(path));
    return "P" + render_json(*plan, "");
}

} // namespace

Result<Plan> plan_of_file(const std::string &path) {
    const ReaderAnswer answer =
        ask_reader({&path, 1}, {}, [&path](int fd, std::span<const Result<FileBytes>> files) {
            write_all(fd, answer_of(files.front(), path));
        });
    if (!answer.ran)
        return error(ErrorKind::Failed, answer.problem);
    if (answer.text.starts_with('P')) {
        auto plan = parse_plan(std::string_view{answer.text}.substr(1));
        if (!plan)
            return std::move(plan).failure().in(path);
        plan->file = path;
        return plan;
    }
    if (answer.text.size() > 2 && answer.text[0] == 'E')
        return error(static_cast<ErrorKind>(answer.text[1] - '0'), answer.text.substr(2));
    return error(ErrorKind::BadInput,
                 fmt::format("{}: {}: {}", path, answer.problem,
                             answer.in_time ? "not NCCL, or damaged. Fix: name another copy"
                                            : "its file system does not answer, or every CPU is "
                                              "busy. Fix: record again, or name another copy"));
}

std::vector<FileLook> look_for_nccl(std::span<const std::string> paths, const ReaderTimes &times) {
    const auto end = std::chrono::steady_clock::now() + times.all;
    std::vector<FileLook> looks(paths.size());
    std::vector<std::size_t> left(paths.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    while (!left.empty()) {
        const auto time_left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        if (time_left.count() <= 0)
            break;
        std::vector<std::string> of_reader;
        for (const std::size_t i : left)
            of_reader.push_back(paths[i]);
        const ReaderAnswer answer =
            ask_reader(of_reader, {times.silence, time_left},
                       [](int fd, std::span<const Result<FileBytes>> files) {
                           for (const Result<FileBytes> &file : files)
                               write_all(fd, look_of(file));
                       });
        if (!answer.ran)
            break;
        std::size_t n_looked = 0;
        std::string_view rest{answer.text};
        for (; n_looked < left.size() && rest.find('\n') != std::string_view::npos; ++n_looked) {
            looks[left[n_looked]] = look_from(rest.substr(0, rest.find('\n')));
            rest.remove_prefix(rest.find('\n') + 1);
        }
        const bool in_time = std::chrono::steady_clock::now() < end;
        // What ends a reader gets one that has read nothing before. It, or what cannot be opened,
        // is given up then.
        const std::size_t culprit = answer.n_opened < left.size() ? answer.n_opened : n_looked;
        if (in_time && culprit < left.size() && (culprit == 0 || answer.n_opened < left.size())) {
            looks[left[culprit]] = {FileLook::Verdict::Unreadable, {}, answer.problem};
            left.erase(left.begin() + static_cast<std::ptrdiff_t>(culprit));
        }
        left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(n_looked));
    }
    return looks;
}

} // namespace collwire::nccl
