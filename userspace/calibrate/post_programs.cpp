// SPDX-License-Identifier: Apache-2.0
#include "userspace/calibrate/post_programs.h"

#include <utility>

#include <bpf/bpf.h>

#include "empty_uprobe.skel.h"
#include "userspace/loader/shared_maps.h"
#include "userspace/loader/skeleton.h"
#include "verbs_post.skel.h"

namespace collwire::calibrate {

struct PostPrograms::Loaded {
    loader::Skeleton<empty_uprobe> empty{"empty probe"};
    loader::Skeleton<verbs_post> ours{"post probes"};
};

PostPrograms::PostPrograms() : loaded_(std::make_unique<Loaded>()) {}
PostPrograms::~PostPrograms() = default;

Result<std::unique_ptr<PostPrograms>> PostPrograms::load() {
    auto maps = loader::SharedMaps::create({});
    if (!maps)
        return std::move(maps).failure();
    std::unique_ptr<PostPrograms> programs{new PostPrograms};
    auto &[empty, ours] = *programs->loaded_;
    auto ready = empty.open();
    if (ready)
        ready = empty.load(**maps);
    if (ready)
        ready = ours.open();
    if (ready) {
        const bool loop =
            libbpf_probe_bpf_helper(BPF_PROG_TYPE_KPROBE, BPF_FUNC_loop, nullptr) == 1;
        bpf_program__set_autoload(ours->progs.post_send_loop, loop);
        // Without bpf_loop one round covers the chains of 1 and 4, not those of 16.
        bpf_program__set_autoload(ours->progs.post_send_bounded, !loop);
        bpf_program__set_autoload(ours->progs.post_send_more, false);
        ready = ours.load(**maps);
    }
    if (!ready)
        return std::move(ready).failure();
    return programs;
}

bpf_program *PostPrograms::empty() const {
    return loaded_->empty->progs.nothing;
}

bpf_program *PostPrograms::ours() const {
    return bpf_program__autoload(loaded_->ours->progs.post_send_loop)
               ? loaded_->ours->progs.post_send_loop
               : loaded_->ours->progs.post_send_bounded;
}

} // namespace collwire::calibrate
