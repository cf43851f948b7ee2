// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cstdio>

#include "base/exit_status.h"
#include "tools/trace-gen/synthetic.h"

int main(int argc, char **argv) {
    using namespace collwire;
    trace_gen::SyntheticOptions options;
    CLI::App app{"collwire-trace-gen: writes captures of a cluster that does not exist"};
    app.add_option("--nodes", options.nodes, "Captures to write, one a node")
        ->capture_default_str();
    app.add_option("--qps", options.qps, "RC queue pairs on each node")->capture_default_str();
    app.add_option("--duration", options.duration_s, "Seconds, one sample each")
        ->capture_default_str();
    app.add_option("--collectives", options.collectives_a_second,
                   "AllGathers a second of a communicator with a rank on each node")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "Other numbers for another seed")->capture_default_str();
    app.add_option("-o,--out", options.directory, "Directory for the captures")
        ->capture_default_str();
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError &failure) {
        return app.exit(failure) == 0 ? EXIT_DONE : EXIT_USAGE;
    }
    const auto paths = trace_gen::write_synthetic(options);
    if (!paths) {
        fmt::print(stderr, "collwire-trace-gen: {}\n", paths.failure().message);
        return exit_status_of(paths.failure());
    }
    for (const std::string &path : *paths)
        fmt::print("{}\n", path);
    return EXIT_DONE;
}
