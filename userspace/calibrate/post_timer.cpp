// SPDX-License-Identifier: Apache-2.0
#include "userspace/calibrate/post_timer.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include <unistd.h>

#include "base/clock.h"
#include "collwire/verbs.h"
#include "userspace/elf/elf_image.h"
#include "userspace/elf/probe_point.h"
#include "userspace/process/process_view.h"

namespace collwire::calibrate {
namespace {

constexpr int REPETITIONS = 5;
constexpr const char *OWN_FILE = "/proc/self/exe";

// The BPF programs read this as a libibverbs queue pair.
struct FakeQp {
    alignas(64) std::uint64_t words[64]{};
    std::uint64_t context[64]{};
    char device[128]{};
    FakeQp() {
        words[0] = reinterpret_cast<std::uint64_t>(context);
        const std::uint32_t qpn = 4711;
        std::memcpy(reinterpret_cast<char *>(words) + 52, &qpn, sizeof qpn);
        context[0] = reinterpret_cast<std::uint64_t>(device);
        std::strcpy(device + CW_IBV_DEVICE_NAME, "stand-in");
    }
};

struct Chain {
    explicit Chain(int n) : requests(static_cast<std::size_t>(n)), lists(requests.size()) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
            lists[i] = {0, 65536, 1};
            requests[i].sg_list = &lists[i];
            requests[i].num_sge = 1;
            requests[i].next = i + 1 < requests.size() ? &requests[i + 1] : nullptr;
        }
    }
    std::vector<WorkRequest> requests;
    std::vector<Sge> lists;
};

double cpu_time_ns() {
    return static_cast<double>(clock_ns(CLOCK_THREAD_CPUTIME_ID));
}

double measure_once_ns(PostSend function, FakeQp &qp, Chain &chain, int posts) {
    PostSend volatile call = function; // no inlining, no hoisting
    WorkRequest *bad = nullptr;
    const double begin = cpu_time_ns();
    for (int i = 0; i < posts; ++i)
        call(qp.words, chain.requests.data(), &bad);
    return (cpu_time_ns() - begin) / posts;
}

} // namespace

Result<OwnPoint> point_of(const StandIn &site) {
    process::ProcessView self{getpid()};
    if (auto read = self.refresh(); !read)
        return std::move(read).failure();
    const auto address = reinterpret_cast<std::uint64_t>(site.function);
    const process::Mapping *mapping = self.mapping_of(address);
    if (mapping == nullptr)
        return error(ErrorKind::Failed, "this program is missing in its own memory map");
    const std::uint64_t entry_offset = address - mapping->begin + mapping->file_offset;
    auto bytes = elf::read_library_file(OWN_FILE);
    auto image = bytes ? elf::ElfImage::parse(std::move(*bytes)) : std::move(bytes).failure();
    if (!image)
        return std::move(image).failure();
    const auto entry = image->address_of(entry_offset);
    if (!entry)
        return error(ErrorKind::Failed, "this program's code is not in its file");
    if (site.single_stepped_offset)
        return OwnPoint{entry_offset, entry_offset + *site.single_stepped_offset,
                        *site.single_stepped_offset == 0 ? "endbr64" : "sub $0x98,%rsp", false};
    auto chosen = choose_probe_point(image->code(), *entry, elf::ARGUMENT_1 | elf::ARGUMENT_2);
    if (!chosen)
        return std::move(chosen).failure();
    return OwnPoint{entry_offset, chosen->file_offset, chosen->instruction, chosen->emulated};
}

OwnProbe::OwnProbe(bpf_program *program, const OwnPoint &point, bool at_return)
    : link_(bpf_program__attach_uprobe(program, at_return, 0, OWN_FILE,
                                       at_return ? point.entry_offset : point.file_offset)) {}

OwnProbe::~OwnProbe() {
    if (link_ != nullptr)
        bpf_link__destroy(link_);
}

double best_post_ns(const StandIn &site, int chain_length, double measure_ns) {
    FakeQp qp;
    Chain chain{chain_length};
    const double each_ns = measure_once_ns(site.function, qp, chain, 100);
    const int posts = static_cast<int>(std::clamp(measure_ns / each_ns, 100.0, 1e7));
    double best_ns = std::numeric_limits<double>::max();
    for (int i = 0; i < REPETITIONS; ++i)
        best_ns = std::min(best_ns, measure_once_ns(site.function, qp, chain, posts));
    return best_ns;
}

} // namespace collwire::calibrate
