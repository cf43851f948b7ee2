// SPDX-License-Identifier: Apache-2.0
// Prints where the guest expects the fields of NCCL's profiler interface: a line for each, the
// version, the expression as NCCL names it, and its value (profiler_abi_test.py).
#include "cupti/nccl_profiler_abi.h"

#include <cstddef>
#include <cstdio>

using namespace collwire::cupti::nccl;

namespace {

void print(int version, const char *what, std::size_t value) {
    std::printf("%d %s %zu\n", version, what, value);
}

} // namespace

#define FIELD(version, theirs, ours) print(version, "descr " theirs, offsetof(Description, ours))
#define CALL(version, init, theirs, ours)                                                          \
    print(version, "plugin " theirs, offsetof(Plugin<init>, ours))

int main() {
    for (int version = FIRST_VERSION; version <= LAST_VERSION; ++version) {
        FIELD(version, "type", type);
        FIELD(version, "parentObj", parent);
        FIELD(version, "rank", rank);
        FIELD(version, "kernelCh.channelId", kernel.channel);
        if (version < FIRST_WITH_GPU_TIMES) {
            FIELD(version, "coll.commHash", collective_v3.comm_hash);
            FIELD(version, "coll.seqNumber", collective_v3.sequence);
            FIELD(version, "coll.func", collective_v3.function);
            FIELD(version, "coll.count", collective_v3.count);
            FIELD(version, "p2p.commHash", transfer_v3.comm_hash);
            FIELD(version, "p2p.func", transfer_v3.function);
            FIELD(version, "p2p.count", transfer_v3.count);
            FIELD(version, "p2p.peer", transfer_v3.peer);
        } else {
            FIELD(version, "kernelCh.pTimer", kernel.gpu_ns);
            FIELD(version, "coll.seqNumber", collective.sequence);
            FIELD(version, "coll.func", collective.function);
            FIELD(version, "coll.count", collective.count);
            FIELD(version, "coll.nChannels", collective.channels);
            FIELD(version, "p2p.func", transfer.function);
            FIELD(version, "p2p.count", transfer.count);
            FIELD(version, "p2p.peer", transfer.peer);
            FIELD(version, "p2p.nChannels", transfer.channels);
            print(version, "arguments kernelCh.pTimer", offsetof(StateArguments, gpu_ns));
            print(version, "value ncclProfilerKernelChStop", KERNEL_CHANNEL_STOP);
        }
        CALL(version, Init5, "name", name);
        CALL(version, Init5, "init", init);
        CALL(version, Init5, "startEvent", start);
        CALL(version, Init5, "stopEvent", stop);
        CALL(version, Init5, "recordEventState", record);
        CALL(version, Init5, "finalize", finalize);
        print(version, "size", sizeof(Plugin<Init5>));
        print(version, "value ncclProfileGroup", GROUP);
        print(version, "value ncclProfileColl", COLLECTIVE);
        print(version, "value ncclProfileP2p", TRANSFER);
        print(version, "value ncclProfileKernelCh", KERNEL_CHANNEL);
        if (version >= FIRST_WITH_API_EVENTS) {
            print(version, "value ncclProfileGroupApi", GROUP_API);
            print(version, "value ncclProfileKernelLaunch", KERNEL_LAUNCH);
        }
    }
}
