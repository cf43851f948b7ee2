// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/host_communicator.h"

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda_double/library.h"
#include "tests/cuda_double/own_memory.h"

namespace collwire::cuda_double {
namespace {

struct HostLayout {
    Field device, hash;
    std::vector<Field> handles; // versions differ
};

const HostLayout &host_layout() {
    static const HostLayout known = [] {
        const Layout &layout = library().layout();
        HostLayout found{layout.field("ncclComm.devComm"), layout.field("ncclComm.commHash"), {}};
        for (const char *member : {"workFifoBuf", "workFifoHeap", "memPool"}) {
            if (const Field field = layout.field(std::string("ncclComm.") + member))
                found.handles.push_back(field);
        }
        return found;
    }();
    return known;
}

struct Members {
    std::mutex mutex;
    std::map<const void *, std::uintptr_t> of_handle;
};

// Never destroyed: detached threads use it until the process ends.
Members &members() {
    static Members &kept = *new Members;
    return kept;
}

// A handle may also be kept elsewhere: what would be an ncclComm then is not one.
std::optional<std::uint64_t> try_read(std::uintptr_t structure, const Field &field) {
    return cuda_double::try_read(structure + static_cast<std::uintptr_t>(field.offset_bytes()));
}

} // namespace

void handle_written(const void *member, const void *handle) {
    const std::lock_guard lock(members().mutex);
    members().of_handle[handle] = reinterpret_cast<std::uintptr_t>(member);
}

void handle_released(const void *handle) {
    const std::lock_guard lock(members().mutex);
    members().of_handle.erase(handle);
}

std::optional<HostCommunicator> host_communicator_of(const Communicator &device) {
    const HostLayout &layout = host_layout();
    if (!layout.device || !layout.hash)
        return std::nullopt;
    const std::lock_guard lock(members().mutex);
    for (const auto &[handle, member] : members().of_handle) {
        for (const Field &field : layout.handles) {
            const auto host = member - static_cast<std::uintptr_t>(field.offset_bytes());
            if (try_read(host, layout.device) != reinterpret_cast<std::uintptr_t>(device.device()))
                continue;
            if (const auto hash = try_read(host, layout.hash))
                return HostCommunicator{host, *hash};
        }
    }
    return std::nullopt;
}

} // namespace collwire::cuda_double
