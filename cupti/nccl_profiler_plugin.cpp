// SPDX-License-Identifier: Apache-2.0
// What NCCL looks for in the file that NCCL_PROFILER_PLUGIN names: it takes the newest version of
// the interface that it knows.
#include "injection.h"
#include "probes.h"

namespace collwire::cupti {
namespace {

constexpr const char *NAME = "collwire";

int begin(int version, void **context, int *mask, uint64_t comm_hash, int rank) {
    nccl_profiler().note_use();
    start_guest();
    if (!is_guest_process()) {
        *context = nullptr;
        *mask = 0;
        return 0;
    }
    // A recorder that waits for this process sees the first operation.
    poll_nccl_profiler();
    return nccl_profiler().init(version, context, mask, comm_hash, rank);
}

int init_3(void **context, int *mask) {
    return begin(3, context, mask, 0, 0);
}

int init_4(void **context, int *mask, const char *, uint64_t comm_hash, int, int, int rank,
           void *) {
    return begin(4, context, mask, comm_hash, rank);
}

template <int VERSION>
int init(void **context, uint64_t comm_hash, int *mask, const char *, int, int, int rank, void *) {
    return begin(VERSION, context, mask, comm_hash, rank);
}

template <int VERSION> int start(void *context, void **handle, const nccl::Description *event) {
    return nccl_profiler().start(VERSION, context, handle, *event);
}

int stop(void *handle) {
    return nccl_profiler().stop(handle);
}

template <int VERSION> int record(void *handle, int state, const nccl::StateArguments *arguments) {
    return nccl_profiler().record(VERSION, handle, state, arguments);
}

int finalize(void *context) {
    return nccl_profiler().finalize(context);
}

template <int VERSION>
constexpr nccl::Plugin<nccl::Init5> PLUGIN = {NAME, init<VERSION>,   start<VERSION>,
                                              stop, record<VERSION>, finalize};

} // namespace
} // namespace collwire::cupti

// The names are NCCL's. NOLINTBEGIN(readability-identifier-naming)
extern "C" {
using namespace collwire::cupti;
COLLWIRE_EXPORT extern const nccl::Plugin<nccl::Init3> ncclProfiler_v3;
COLLWIRE_EXPORT extern const nccl::Plugin<nccl::Init4> ncclProfiler_v4;
COLLWIRE_EXPORT extern const nccl::Plugin<nccl::Init5> ncclProfiler_v5, ncclProfiler_v6,
    ncclProfiler_v7;
const nccl::Plugin<nccl::Init3> ncclProfiler_v3 = {NAME, init_3,    start<3>,
                                                   stop, record<3>, finalize};
const nccl::Plugin<nccl::Init4> ncclProfiler_v4 = {NAME, init_4,    start<4>,
                                                   stop, record<4>, finalize};
const nccl::Plugin<nccl::Init5> ncclProfiler_v5 = PLUGIN<5>;
const nccl::Plugin<nccl::Init5> ncclProfiler_v6 = PLUGIN<6>;
const nccl::Plugin<nccl::Init5> ncclProfiler_v7 = PLUGIN<7>;
}
// NOLINTEND(readability-identifier-naming)
