// SPDX-License-Identifier: Apache-2.0
// The command line, its words apart by NUL. What the verbs would do is replaced: no file is read or
// written, nothing is recorded, no machine is looked at.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_status.h"
#include "tools/cli/command_line.h"
#include "tools/cli/read_file.h"
#include "userspace/doctor/doctor.h"
#include "userspace/inspect/inspect.h"
#include "userspace/nccl/layout/file_layout.h"
#include "userspace/nccl/layout/save_layout.h"
#include "userspace/record/recorder.h"

namespace collwire {

// Defined here, the real ones stay out of the program.
namespace record {

int run_record(const RecordOptions &options) {
    if (options.interval_ns < 10'000'000 || options.ring_bytes < 4096 ||
        options.ring_bytes > (1u << 30) || (options.ring_bytes & (options.ring_bytes - 1)) != 0)
        std::abort(); // the recorder relies on these
    return EXIT_DONE;
}

} // namespace record

namespace doctor {

// The declaration takes a copy. NOLINTNEXTLINE(performance-unnecessary-value-param)
DoctorReport run_doctor(DoctorOptions) {
    return {};
}
std::string render_json(const DoctorReport &, std::string_view) {
    return {};
}
std::string render_text(const DoctorReport &, bool) {
    return {};
}
std::string render_screen(const DoctorReport &, bool) {
    return {};
}

} // namespace doctor

namespace inspect {

Inspection inspect(const Options &options) {
    if (options.between.count() < 0 || options.between.count() > 60'000 ||
        std::ranges::any_of(options.pids, [](pid_t pid) { return pid < 1; }))
        std::abort(); // it relies on these
    return {};
}

} // namespace inspect

namespace nccl {

Result<LibraryLayout> layout_of_file(const std::string &path, const DebugPlaces &, bool,
                                     const ReaderTimes &) {
    return error(ErrorKind::BadInput, path + ": not read");
}

Result<std::string> save_layout(const LibraryLayout &, const std::string &, std::string_view) {
    return std::string{};
}

} // namespace nccl

namespace cli {

Result<std::vector<std::byte>> read_file(const std::string &path, std::size_t) {
    return error(ErrorKind::BadInput, path + ": not read");
}

Result<FileInParts> FileInParts::open(const std::string &path) {
    return error(ErrorKind::BadInput, path + ": not opened");
}
FileInParts::FileInParts(FileInParts &&) noexcept : fd_(-1), size_bytes_(0) {}
FileInParts::~FileInParts() = default;
std::span<const std::byte> FileInParts::read(std::uint64_t, std::size_t) {
    std::abort(); // none was opened
}

NamedCaptures expand_captures(const std::vector<std::string> &paths) {
    NamedCaptures named;
    for (const std::string &path : paths) {
        if (path.ends_with(".cwc"))
            named.files.push_back(path);
        else
            named.refused.push_back({path, error(ErrorKind::BadInput, path + ": not looked at")});
    }
    return named;
}

} // namespace cli
} // namespace collwire

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    // The verbs' own messages; the fuzzer has taken its stderr before.
    stderr = std::fopen("/dev/null", "we");
    stdout = std::fopen("/dev/null", "we");
    return 0;
}

// libFuzzer's name. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    std::vector<std::string> words = {"collwire"};
    std::string_view rest(reinterpret_cast<const char *>(data), size);
    while (!rest.empty()) {
        const std::size_t end = rest.find('\0');
        words.emplace_back(rest.substr(0, end));
        rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    std::vector<const char *> arguments;
    arguments.reserve(words.size());
    for (const std::string &word : words)
        arguments.push_back(word.c_str());
    std::ostringstream out;
    std::ostringstream err;
    const int status = collwire::cli::run_command_line(static_cast<int>(arguments.size()),
                                                       arguments.data(), out, err);
    if (status < collwire::EXIT_DONE || status > collwire::EXIT_LOSS)
        std::abort();
    if (status == collwire::EXIT_USAGE && out.str().size() > 0)
        std::abort(); // what is wrong with the words belongs on stderr
    return 0;
}
