// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "base/exit_status.h"
#include "tools/program_options/program_options.h"
#include "tools/trace-gen/job_main.h"
#include "tools/trace-gen/synthetic.h"

int main(int argc, char **argv) {
    using namespace collwire;
    if (argc > 1 && std::string_view(argv[1]) == "job")
        return trace_gen::job_main(argc - 1, argv + 1);
    trace_gen::SyntheticOptions options;
    ProgramOptions program("collwire-trace-gen: writes synthetic captures of a made-up cluster. "
                           "`collwire-trace-gen job --help`: of a training job, with its truth");
    program.add("--nodes", options.nodes, "Captures to write, one per node").show_default();
    program.add("--qps", options.qps, "RC queue pairs on each node").show_default();
    program.add("--duration", options.duration_s, "Seconds; one sample per second").show_default();
    program
        .add("--collectives", options.collectives_a_second,
             "AllGathers per second of one communicator with a rank on each node")
        .show_default();
    program.add("--seed", options.seed, "Seed of the made-up numbers").show_default();
    program.add("-o,--out", options.directory, "Directory for the captures").show_default();
    if (const auto status = program.parse(argc, argv))
        return *status;
    const auto paths = trace_gen::write_synthetic(options);
    if (!paths) {
        fmt::print(stderr, "collwire-trace-gen: {}\n", paths.failure().message);
        return exit_status_of(paths.failure());
    }
    for (const std::string &path : *paths)
        fmt::print("{}\n", path);
    return EXIT_DONE;
}
