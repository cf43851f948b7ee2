// SPDX-License-Identifier: Apache-2.0
// The built-in plans.
#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <map>

#include "tests/cuda_double/job/plan.h"

namespace collwire::job {
namespace {

// Neighbours share a model (tensor parallel); ranks of the same place in it share the data (data
// parallel) and are the stages of a pipeline as well, so that all three are at work at once. With 4
// ranks 2 x 2, with 8 ranks 2 x 4.
constexpr const char *kTraining = R"(
communicator tp block 2
communicator dp stride 2
communicator pp stride 2

loop
tp allreduce 256KiB bfloat16
pp forward 128KiB bfloat16
tp allreduce 256KiB bfloat16
pp backward 128KiB bfloat16
dp reducescatter 64KiB float32
dp allreduce 1MiB float32
dp allgather 64KiB float32
tp allreduce 4KiB float32 avg
wait
)";

// Everything once, with sizes that need no long time.
constexpr const char *kEverything = R"(
communicator half block 2
communicator other stride 2
communicator single alone

loop
world allreduce 300004B
world allreduce 64KiB inplace
world allreduce 4KiB float16 max
world allreduce 4KiB int32 min
world allreduce 1KiB int64 prod
world allreduce 4KiB avg
world allgather 40KiB
world allgather 40KiB inplace
world reducescatter 40KiB
world reducescatter 4KiB inplace
world broadcast 100KiB root 1
world broadcast 4KiB
world reduce 100KiB
world sendrecv 200KiB
world allpairs 16KiB
world selfsend 8KiB
world allreduce 0
world allgather 0
world sendrecv 0
wait
half allreduce 64KiB
other allgather 16KiB
half forward 32KiB
half backward 32KiB
single allreduce 4KiB
single selfsend 4KiB
wait
world alltoall 16KiB
world gather 16KiB
world scatter 16KiB
world allreduce 16KiB config
world allgather 16KiB config
world reducescatter 16KiB config
world broadcast 16KiB config
world reduce 16KiB config
world alltoall 16KiB config
world gather 16KiB config
world scatter 16KiB config
wait
group
    world allreduce 64KiB
    world allgather 16KiB
    world reducescatter 16KiB
    world allreduce 4KiB max
end
group
    half allreduce 64KiB
    other allreduce 64KiB
end
group
    world broadcast 16KiB root 0
    world broadcast 16KiB root 1
end
wait
capture world 3
    world allreduce 64KiB
    group
        world allreduce 4KiB
        world allgather 4KiB
    end
end
world error
destroy half
create half
half allreduce 64KiB
wait
abort other
create other
other allreduce 64KiB
wait
)";

// In the middle of an operation that the last rank of each half leaves out.
constexpr const char *kAbort = R"(
communicator half block 2

loop
half allreduce 64KiB
wait
abort half stuck
create half
half allreduce 64KiB
wait
)";

const std::map<std::string, const char *> kBuiltIn = {
    {"training", kTraining}, {"everything", kEverything}, {"abort", kAbort}};

} // namespace

std::string plan_text(const std::string &name_or_path) {
    const auto found = kBuiltIn.find(name_or_path);
    if (found != kBuiltIn.end())
        return found->second;
    std::ifstream file(name_or_path);
    if (!file)
        throw PlanError(fmt::format(
            "{}: no such file, and no built-in plan (training, everything, abort)", name_or_path));
    return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace collwire::job
