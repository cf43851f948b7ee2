// SPDX-License-Identifier: Apache-2.0
#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_status.h"
#include "correlate/topology/import/importer.h"
#include "correlate/topology/topology.h"
#include "tools/cli/topology_file.h"
#include "tools/cli/topology_text.h"
#include "tools/cli/verb.h"

namespace collwire::cli {
namespace {

struct TopologyOptions {
    std::string file;
    std::string host;
    std::string format;
    std::vector<std::string> files;
    std::vector<std::string> hosts;
    std::string out;
};

int fail(const Error &failure) {
    fmt::print(stderr, "collwire topology: {}\n", failure.message);
    return exit_status_of(failure);
}

void print_problems(const topology::Problems &problems, std::string_view prefix) {
    std::size_t errors = 0;
    std::size_t warnings = 0;
    for (const auto &problem : problems.kept()) {
        const bool is_error = problem.severity == topology::Severity::Error;
        (is_error ? errors : warnings)++;
        fmt::print(stderr, "{}: {}{}\n", is_error ? "error" : "warning", prefix, problem.message);
    }
    if (errors < problems.errors() || warnings < problems.warnings())
        fmt::print(stderr, "and {} more errors, {} more warnings\n", problems.errors() - errors,
                   problems.warnings() - warnings);
}

struct Loaded {
    topology::Checked checked;
    int status = EXIT_DONE;
};

Loaded load(const std::string &path) {
    Loaded loaded;
    const auto text = read_topology_text(path);
    if (!text) {
        loaded.status = fail(text.failure());
        return loaded;
    }
    loaded.checked = topology::check_topology(*text);
    if (loaded.checked.topology)
        return loaded;
    loaded.status = EXIT_FAILED;
    const std::string hint = other_format_hint(*text);
    if (hint.empty())
        print_problems(loaded.checked.problems, path + ": ");
    else
        fmt::print(stderr, "error: {}: {}\n", path, hint);
    return loaded;
}

int flushed(int status) {
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0)
        return status;
    fmt::print(stderr, "collwire topology: cannot write to standard output\n");
    return EXIT_FAILED;
}

int check(const TopologyOptions &options) {
    const Loaded loaded = load(options.file);
    if (!loaded.checked.topology)
        return loaded.status;
    print_problems(loaded.checked.problems, options.file + ": ");
    fmt::print("{}: good, {}\n", options.file, topology_counts(*loaded.checked.topology));
    return flushed(EXIT_DONE);
}

int show(const TopologyOptions &options) {
    const Loaded loaded = load(options.file);
    if (!loaded.checked.topology)
        return loaded.status;
    const auto &topology = *loaded.checked.topology;
    if (!options.host.empty()) {
        const std::string text = host_text(topology, options.host);
        if (text.empty())
            return fail(
                error(ErrorKind::Failed,
                      fmt::format(
                          "{}: has no host {}. Fix: see its hosts with `collwire topology show {}`",
                          options.file, topology::quote(options.host), options.file)));
        fmt::print("{}", text);
        return flushed(EXIT_DONE);
    }
    fmt::print("{}\n", topology_counts(topology));
    if (!topology.source().empty())
        fmt::print("source: {}\n", topology::quote(topology.source()));
    if (!topology.generated().empty())
        fmt::print("generated: {}\n", topology::quote(topology.generated()));
    fmt::print("\nSwitches\n{}\nTree\n{}\nHosts\n{}", switches_text(topology), tree_text(topology),
               hosts_text(topology));
    return flushed(EXIT_DONE);
}

// The format asked for, or the one that the first file looks like.
Result<const topology::Importer *> choose_importer(const TopologyOptions &options,
                                                   const std::string &first_text) {
    const auto *importer = options.format.empty() ? topology::detect_importer(first_text)
                                                  : topology::find_importer(options.format);
    if (importer != nullptr)
        return importer;
    std::string names;
    for (const auto &known : topology::importers())
        names += (names.empty() ? "" : " or ") + std::string(known.name);
    return error(ErrorKind::BadInput,
                 fmt::format("{}: {}. Fix: give what {} prints, or name its format with --format",
                             options.files.front(),
                             first_text.empty()
                                 ? "the file is empty"
                                 : "from offset 0 on in no format that can be imported",
                             names));
}

Result<void> write_text(const std::string &path, const std::string &text) {
    std::FILE *file = std::fopen(path.c_str(), "we");
    const bool written =
        file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    int failure = errno;
    if (file != nullptr && std::fclose(file) != 0 && written)
        failure = errno;
    else if (written)
        return {};
    return error(ErrorKind::Failed,
                 fmt::format("{}: cannot be written: {}. Fix: name another place with -o", path,
                             std::strerror(failure)));
}

int import(const TopologyOptions &options) {
    if (!options.hosts.empty() && options.hosts.size() != options.files.size())
        return fail(
            error(ErrorKind::Usage,
                  fmt::format("{} files but {} --host. Fix: give one --host for each file, in "
                              "their order",
                              options.files.size(), options.hosts.size())));
    std::vector<std::string> texts;
    for (const auto &path : options.files) {
        auto text = read_topology_text(path);
        if (!text)
            return fail(text.failure());
        texts.push_back(*std::move(text));
    }
    const auto importer = choose_importer(options, texts.front());
    if (!importer)
        return fail(importer.failure());
    std::vector<topology::ImportInput> inputs;
    for (std::size_t i = 0; i < texts.size(); i++)
        inputs.push_back(
            {options.files[i], texts[i], options.hosts.empty() ? std::string() : options.hosts[i]});
    const auto imported = topology::import_files(**importer, inputs);
    if (!imported)
        return fail(imported.failure());
    print_problems(imported->problems, "");

    const std::string json = topology::to_json(imported->document);
    const auto checked = topology::check_topology(json);
    print_problems(checked.problems, "result: ");
    if (!checked.topology)
        return fail(error(ErrorKind::BadInput,
                          "what was imported contradicts itself, nothing is written. Fix: correct "
                          "the input, or import fewer files at once"));
    fmt::print(stderr, "{}\n", import_counts(imported->counts));
    if (options.out.empty()) {
        fmt::print("{}", json);
        return flushed(EXIT_DONE);
    }
    if (const auto written = write_text(options.out, json); !written)
        return fail(written.failure());
    return EXIT_DONE;
}

} // namespace

void add_topology(CLI::App &app, int &status) {
    auto options = std::make_shared<TopologyOptions>();
    CLI::App *verb =
        app.add_subcommand("topology", "Check, show or import the description of the fabric");
    verb->require_subcommand(1);

    CLI::App *check_verb = verb->add_subcommand("check", "Say what is wrong with a topology file");
    check_verb->add_option("FILE", options->file, "Topology file")->required();
    check_verb->callback([options, &status] { status = check(*options); });

    CLI::App *show_verb =
        verb->add_subcommand("show", "Print switches, the tree of them, and hosts");
    show_verb->add_option("FILE", options->file, "Topology file")->required();
    show_verb->add_option("--host", options->host, "Only this host's ports");
    show_verb->callback([options, &status] { status = show(*options); });

    CLI::App *import_verb =
        verb->add_subcommand("import", "Make a topology file from the output of other tools");
    std::vector<std::string> names;
    for (const auto &importer : topology::importers())
        names.emplace_back(importer.name);
    import_verb->add_option("FILE", options->files, "Output of the tool; several files become one")
        ->required();
    import_verb
        ->add_option("--format", options->format, "Which tool wrote it; found out if not given")
        ->check(CLI::IsMember(names));
    import_verb
        ->add_option("--host", options->hosts,
                     "Whose output it is, for lldpctl; once for each file")
        ->expected(1)
        ->take_all();
    import_verb->add_option("-o,--output", options->out,
                            "Where to write; standard output if not given");
    import_verb->callback([options, &status] { status = import(*options); });
}

} // namespace collwire::cli
