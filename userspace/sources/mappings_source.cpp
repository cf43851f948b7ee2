// SPDX-License-Identifier: Apache-2.0
#include "mappings.skel.h"

#include "userspace/sources/mappings_source.h"

namespace collwire {
namespace {

Hook mmap_hook() {
    Hook hook;
    hook.function = "security_mmap_file";
    hook.parameters = 3;
    hook.fentry = "mmap_fentry";
    hook.kprobe = "mmap_kprobe";
    return hook;
}

} // namespace

MappingsSource::MappingsSource(const SharedMaps &maps, std::uint64_t least_file_bytes,
                               HookMode mode)
    : ProbedSource(maps, "mappings", {mmap_hook()}, mode), least_file_bytes_(least_file_bytes) {}

MappingsSource::~MappingsSource() = default;

bool MappingsSource::configure() {
    skeleton_->rodata->least_file_bytes = least_file_bytes_;
    return need("security_mmap_file");
}

} // namespace collwire
