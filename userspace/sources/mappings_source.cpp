// SPDX-License-Identifier: Apache-2.0
#include "mappings.skel.h"

#include "userspace/sources/mappings_source.h"

#include <algorithm>

#include <bpf/bpf.h>
#include <fmt/format.h>

#include "collwire/tables.h"

namespace collwire::sources {
namespace {

loader::Hook mmap_hook() {
    loader::Hook hook;
    hook.function = "security_mmap_file";
    hook.parameters = 3;
    hook.fentry = "mmap_fentry";
    hook.kprobe = "mmap_kprobe";
    hook.fentry_again = "mmap_fentry_again";
    return hook;
}

} // namespace

MappingsSource::MappingsSource(const loader::SharedMaps &maps, std::uint64_t least_file_bytes,
                               bool filter_by_tgid, loader::HookMode mode, bool guest_library,
                               bool libibverbs)
    : ProbedSource(maps, "mappings", {mmap_hook()}, mode), least_file_bytes_(least_file_bytes),
      filter_by_tgid_(filter_by_tgid), guest_library_(guest_library), libibverbs_(libibverbs) {}

MappingsSource::~MappingsSource() = default;

bool MappingsSource::configure() {
    skeleton_->rodata->least_file_bytes = least_file_bytes_;
    skeleton_->rodata->filter_by_tgid = filter_by_tgid_;
    skeleton_->rodata->wants_guest_library = guest_library_;
    skeleton_->rodata->wants_libibverbs = libibverbs_;
    return need("security_mmap_file");
}

// At most: a call that both programs missed is in both counts.
std::uint64_t MappingsSource::missed() const {
    return hooks_.missed() +
           std::min(hooks_.missed_by("mmap_fentry"), hooks_.missed_by("mmap_fentry_again"));
}

void MappingsSource::sample(source::RecordSink &, bool everything) {
    if (everything || !skeleton_.is_loaded())
        return;
    const auto now = missed();
    missed_lately_ = now != missed_before_;
    missed_before_ = now;
    if (now != 0)
        state_.reason = fmt::format("the kernel kept up to {} mappings from its probe: all "
                                    "processes were scanned instead",
                                    now);
}

void MappingsSource::emit_again(const std::set<std::uint64_t> &inodes) {
    if (!skeleton_.is_loaded() || inodes.empty())
        return;
    const int seen = bpf_map__fd(skeleton_->maps.seen_files);
    std::vector<cw_file_key> found;
    cw_file_key key = {};
    for (const cw_file_key *before = nullptr; bpf_map_get_next_key(seen, before, &key) == 0;
         before = &key)
        if (inodes.contains(key.inode))
            found.push_back(key);
    for (const cw_file_key &each : found)
        (void)bpf_map_delete_elem(seen, &each);
}

} // namespace collwire::sources
