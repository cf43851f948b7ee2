// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "userspace/nccl/layout/borrowed_layout.h"
#include "userspace/nccl/layout/bpf_layout.h"
#include "userspace/nccl/layout/check_layout.h"
#include "userspace/nccl/layout/exported_layout.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/find_nccl.h"
#include "userspace/nccl/layout/same_code.h"
#include "userspace/nccl/library/reader_process.h"

namespace collwire::nccl {
namespace {

// Finding functions by the names that they log takes half a second of CPU, and far more on an
// emulated one, for each build that is compared.
// The file has answered a moment before, to the question whether it is NCCL.
constexpr ReaderTimes OF_OTHERS{.silence = std::chrono::seconds{5},
                                .all = std::chrono::seconds{120},
                                .cpu = std::chrono::seconds{100}};
constexpr std::size_t MOST_LAYOUT_BYTES = 4UL << 20; // one has 100 KiB
constexpr char NCCL = '1';
constexpr char OTHER = '0';
constexpr char UNOPENED = '-';

bool defines_nccl(const LibraryFile &library) {
    constexpr std::array<std::string_view, 1> NAME{"ncclAllReduce"};
    const auto symbols = library.find(NAME);
    return std::ranges::any_of(symbols, [](const auto &symbol) { return symbol.second.function; });
}

// One line.
std::string check_of(const Result<elf::FileBytes> &file) {
    if (!file)
        return fmt::format("{}\n", UNOPENED);
    if (file->bytes().size() < LEAST_FILE_BYTES)
        return fmt::format("{}\n", OTHER);
    const auto library = LibraryFile::parse(file->bytes());
    if (!library || !defines_nccl(*library))
        return fmt::format("{}\n", OTHER);
    return fmt::format("{}{}\n", NCCL, library->build_id());
}

FileCheck check_from(std::string_view line) {
    using enum FileCheck::Verdict;
    if (line.starts_with(NCCL))
        return {Nccl, std::string{line.substr(1)}, {}};
    return {line.starts_with(UNOPENED) ? Unopened : Other, {}, {}};
}

// "P" and the layout, or "E", the kind of the error, and its message.
std::string answer_of(const Result<elf::FileBytes> &file, const std::string &path, bool with_code) {
    const auto refused = [](const Error &why) {
        return fmt::format("E{}{}", static_cast<int>(why.kind), why.message);
    };
    if (!file)
        return refused(file.failure());
    const auto library = LibraryFile::parse(file->bytes());
    if (!library)
        return refused(Error{library.failure()}.in(path));
    auto layout = make_layout(*library);
    if (!layout)
        return refused(Error{layout.failure()}.in(path));
    if (with_code && layout->has_symbol_table && layout->has_debug_types)
        add_code_identity(*library, *layout);
    add_exported_functions(*library, *layout);
    return "P" + render_json(*layout, "");
}

bool is_debug_file_of(const LibraryFile &library, const LibraryFile &debug) {
    return debug.build_id() == library.build_id() && debug.has_symbol_table() &&
           debug.has_debug_types();
}

Result<LibraryLayout> layout_in(std::span<const std::byte> bytes) {
    if (bytes.size() > MOST_LAYOUT_BYTES || bytes.empty() || bytes.front() != std::byte{'{'})
        return error(ErrorKind::BadInput, "not a layout");
    return parse_layout({reinterpret_cast<const char *>(bytes.data()), bytes.size()});
}

// The addresses come from the debug file, so the library's own starts of functions check them.
Result<LibraryLayout> layout_with(const LibraryFile &library, const LibraryFile &debug) {
    auto layout = make_layout(library, &debug);
    if (layout)
        if (auto checked = check_entries(*layout, library); !checked)
            return std::move(checked).failure();
    if (layout)
        layout->fits_by = "build-id, of its debug file";
    return layout;
}

// A layout that was saved from another copy of the library.
Result<LibraryLayout> saved_layout(const LibraryFile &library, std::span<const std::byte> bytes) {
    auto layout = layout_in(bytes);
    if (!layout)
        return layout;
    if (auto checked = check_layout(*layout, library); !checked)
        return std::move(checked).failure();
    for (Capability &capability : layout->capabilities)
        if (!capability.source.empty())
            capability.source =
                fmt::format("a saved layout of this build-id ({})", capability.source);
    layout->has_symbol_table = library.has_symbol_table();
    layout->has_debug_types = library.has_debug_types();
    layout->debug_link = library.debug_link();
    layout->code = {};
    layout->fits_by = "build-id";
    return layout;
}

// The layout of another build, from a saved layout or from a library with DWARF.
Result<LibraryLayout> other_build(const LibraryFile &library, std::span<const std::byte> bytes,
                                  Lender lender) {
    auto other = layout_in(bytes);
    if (other)
        return other;
    const auto file = LibraryFile::parse(bytes);
    if (!file || !file->has_symbol_table() || !file->has_debug_types() ||
        !can_lend(version_of(library), version_of(*file), lender))
        return error(ErrorKind::BadInput, "has no layout of another build");
    auto layout = make_layout(*file);
    if (layout && lender == Lender::SameVersion)
        add_code_identity(*file, *layout);
    return layout;
}

std::string found(std::size_t i, const LibraryLayout &layout) {
    return fmt::format("D{}\n{}", i, render_json(layout, ""));
}

// With the nearest earlier patch release, if its offsets equal those of the nearest later one.
std::string answer_with_patch_releases(const LibraryFile &library, std::uint32_t version,
                                       std::span<const Result<elf::FileBytes>> files) {
    std::optional<LibraryLayout> before, after;
    std::size_t index = 0;
    for (std::size_t i = 1; i < files.size(); ++i) {
        auto other = files[i] ? other_build(library, files[i]->bytes(), Lender::PatchRelease)
                              : Result<LibraryLayout>{files[i].failure()};
        const std::uint32_t of = other ? version_number(other->version) : 0;
        if (of == 0 || other->build_id == library.build_id() || !other->not_recorded.empty() ||
            !other->has_debug_types || !is_patch_release(version, of))
            continue;
        if (of < version && (!before || of > version_number(before->version))) {
            before = std::move(*other);
            index = i;
        } else if (of > version && (!after || of < version_number(after->version))) {
            after = std::move(*other);
        }
    }
    if (!before || !after || !have_same_offsets(*before, *after))
        return "N";
    const auto layout = borrow_layout(library, *before, Lender::PatchRelease);
    return layout ? found(index, *layout) : "N";
}

struct OtherBuild {
    std::size_t index; // of its file
    LibraryLayout layout;
};

std::string name_of(const LibraryLayout &other) {
    constexpr std::size_t DIGITS = 12; // of its build-id, that are shown
    return fmt::format("{} ({})", other.version, other.build_id.substr(0, DIGITS));
}

// With the first build of the same code, else with that which lends its offsets and has most in
// common with the file.
std::optional<std::string> answer_with_builds(const LibraryFile &library,
                                              std::span<const OtherBuild> builds) {
    CodeComparison comparison{library};
    for (const OtherBuild &build : builds)
        if (const auto layout = comparison.layout_from(build.layout))
            return found(build.index, *layout);
    std::vector<std::pair<const OtherBuild *, KnownFunctions>> lenders;
    lenders.reserve(builds.size());
    for (const OtherBuild &build : builds)
        lenders.emplace_back(&build, comparison.compare_known(build.layout));
    std::ranges::stable_sort(lenders, std::ranges::greater{},
                             [](const auto &lender) { return lender.second.n_same(); });
    for (const auto &[build, functions] : lenders) {
        auto layout = borrow_layout(library, build->layout);
        if (!layout)
            continue;
        layout->fits_by = fmt::format("the version of another build, {}", name_of(build->layout));
        if (const std::string same = text_of(functions); !same.empty()) {
            layout->fits_by += "; " + same;
            for (Capability &capability : layout->capabilities)
                if (!capability.source.empty())
                    capability.source += "; " + same;
        }
        return found(build->index, *layout);
    }
    return std::nullopt;
}

// The first file is the library. Uses the first other file that belongs to it, else the first of
// its version with the same code, else one of its version, else patch releases around it.
// Answers "D", the index of that file, a newline and the layout; "N": no file fits.
std::string answer_with_debug(std::span<const Result<elf::FileBytes>> files) {
    const auto library =
        files.front() ? LibraryFile::parse(files.front()->bytes()) : files.front().failure();
    if (!library)
        return "N";
    std::string refused = "N";
    for (std::size_t i = 1; i < files.size(); ++i) {
        if (!files[i])
            continue;
        const auto debug = LibraryFile::parse_debug(files[i]->bytes());
        const auto layout = debug && is_debug_file_of(*library, *debug)
                                ? layout_with(*library, *debug)
                                : saved_layout(*library, files[i]->bytes());
        if (layout && layout->not_recorded.empty())
            return found(i, *layout);
        if (layout && refused == "N") // another file may tell more
            refused = found(i, *layout);
    }
    const std::uint32_t version = version_of(*library);
    std::vector<OtherBuild> builds;
    for (std::size_t i = 1; i < files.size(); ++i) {
        if (!files[i])
            continue;
        auto other = other_build(*library, files[i]->bytes(), Lender::SameVersion);
        if (other && can_lend(version, version_number(other->version), Lender::SameVersion))
            builds.push_back({i, std::move(*other)});
    }
    if (auto answer = answer_with_builds(*library, builds))
        return *answer;
    // If builds of its version do not fit the file was patched, and other versions are no help.
    std::string answer =
        builds.empty() ? answer_with_patch_releases(*library, version, files) : "N";
    return answer == "N" ? refused : answer;
}

// Of a stripped file. Empty if no debug file, saved layout or other build fits.
std::optional<LibraryLayout> layout_with_debug_file(const std::string &path,
                                                    LibraryLayout &stripped,
                                                    const DebugPlaces &places) {
    std::vector<std::string> paths{path};
    std::ranges::copy(debug_file_paths(stripped.build_id, stripped.debug_link, places),
                      std::back_inserter(paths));
    std::ranges::copy(layout_paths(stripped.build_id, places), std::back_inserter(paths));
    std::ranges::copy(other_build_paths(places), std::back_inserter(paths));
    if (paths.size() == 1)
        return std::nullopt;
    const ReaderAnswer answer =
        ask_reader(paths, OF_OTHERS, [](int fd, std::span<const Result<elf::FileBytes>> files) {
            write_all(fd, answer_with_debug(files));
        });
    for (std::string *why : {&stripped.not_recorded, &stripped.calls_only})
        if (!answer.problem.empty() && !why->empty())
            *why +=
                fmt::format(". The search for debug files and layouts failed: {}", answer.problem);
    const std::size_t line_end = answer.text.find('\n');
    if (!answer.text.starts_with('D') || line_end == std::string::npos)
        return std::nullopt;
    std::size_t index = 0;
    std::from_chars(answer.text.data() + 1, answer.text.data() + line_end, index);
    auto layout = parse_layout(std::string_view{answer.text}.substr(line_end + 1));
    if (!layout || index == 0 || index >= paths.size() || layout->build_id != stripped.build_id)
        return std::nullopt;
    if (!layout->not_recorded.empty() && stripped.not_recorded.empty())
        return std::nullopt;
    layout->debug_file = paths[index];
    return std::move(*layout);
}

} // namespace

Result<LibraryLayout> layout_of_file(const std::string &path, const DebugPlaces &places,
                                     bool with_code, const ReaderTimes &times) {
    const ReaderAnswer answer =
        ask_reader({&path, 1}, times,
                   [&path, with_code](int fd, std::span<const Result<elf::FileBytes>> files) {
                       write_all(fd, answer_of(files.front(), path, with_code));
                   });
    if (!answer.ran)
        return error(ErrorKind::Failed, fmt::format("{}: {}", path, answer.problem));
    if (answer.text.starts_with('P')) {
        auto layout = parse_layout(std::string_view{answer.text}.substr(1));
        if (!layout)
            return std::move(layout).failure().in(path);
        if (!layout->has_symbol_table || !layout->has_debug_types)
            if (auto better = layout_with_debug_file(path, *layout, places))
                layout = std::move(*better);
        layout->file = path;
        return layout;
    }
    if (answer.text.size() > 2 && answer.text[0] == 'E')
        return error(static_cast<ErrorKind>(answer.text[1] - '0'), answer.text.substr(2));
    if (!answer.in_time || answer.is_cut)
        return error(
            ErrorKind::Failed,
            fmt::format(
                "{}: {}: its file system does not answer, every CPU is busy, or memory is short. "
                "Fix: record again, or name another copy",
                path, answer.problem));
    return error(
        ErrorKind::BadInput,
        fmt::format("{}: {}: not NCCL, or damaged. Fix: name another copy", path, answer.problem));
}

std::vector<FileCheck> check_for_nccl(std::span<const std::string> paths,
                                      const ReaderTimes &times) {
    const auto end = std::chrono::steady_clock::now() + times.all;
    std::vector<FileCheck> checks(paths.size());
    std::vector<std::size_t> left(paths.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    while (!left.empty()) {
        const auto time_left = std::chrono::duration_cast<std::chrono::milliseconds>(
            end - std::chrono::steady_clock::now());
        if (time_left.count() <= 0)
            break;
        std::vector<std::string> of_reader;
        of_reader.reserve(left.size());
        for (const std::size_t i : left)
            of_reader.push_back(paths[i]);
        const ReaderAnswer answer =
            ask_reader(of_reader, {times.silence, time_left, times.cpu},
                       [](int fd, std::span<const Result<elf::FileBytes>> files) {
                           for (const Result<elf::FileBytes> &file : files)
                               write_all(fd, check_of(file));
                       });
        if (!answer.ran)
            break;
        std::size_t n_checked = 0;
        std::string_view rest{answer.text};
        for (; n_checked < left.size() && rest.find('\n') != std::string_view::npos; ++n_checked) {
            checks[left[n_checked]] = check_from(rest.substr(0, rest.find('\n')));
            rest.remove_prefix(rest.find('\n') + 1);
        }
        const bool in_time = std::chrono::steady_clock::now() < end;
        // A file that ends a reader gets a fresh reader once. If that one ends, too, or cannot open
        // the file, the file is unreadable.
        const std::size_t culprit = answer.n_opened < left.size() ? answer.n_opened : n_checked;
        if ((in_time || answer.is_silent) && culprit < left.size() &&
            (culprit == 0 || answer.n_opened < left.size())) {
            checks[left[culprit]] = {answer.in_time ? FileCheck::Verdict::Unreadable
                                                    : FileCheck::Verdict::Silent,
                                     {},
                                     answer.problem};
            left.erase(left.begin() + static_cast<std::ptrdiff_t>(culprit));
        }
        left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(n_checked));
    }
    return checks;
}

} // namespace collwire::nccl
