// SPDX-License-Identifier: Apache-2.0
#include "userspace/inventory/command_line.h"

#include <algorithm>
#include <vector>

#include "userspace/inventory/files.h"

namespace collwire::inventory {
namespace {

constexpr std::size_t max_arguments = 256; // more options than anybody types before a script

// KornShell: zsh and ksh, which also take the argument of -o from the same word.
enum class Language { None, Python, Shell, KornShell, Perl, Node };

Language language_of(std::string_view program) {
    program = base_name(program);
    if (program.starts_with('-')) // a login shell
        program.remove_prefix(1);
    const std::string_view name = program.substr(0, program.find_first_of("0123456789."));
    if (name == "python" || name == "pypy")
        return Language::Python;
    if (name == "perl")
        return Language::Perl;
    for (const std::string_view shell : {"sh", "bash", "dash", "ash"}) {
        if (program == shell)
            return Language::Shell;
    }
    if (program == "zsh" || program == "ksh")
        return Language::KornShell;
    return program == "node" || program == "nodejs" ? Language::Node : Language::None;
}

// The options of an interpreter, enough to know where they end.
struct Grammar {
    std::string_view code;     // letters: the next argument, or the rest of this one, is code
    std::string_view module;   // letters: ... is the name of a module
    std::string_view argument; // letters: ... is an argument of no interest
    // long options whose argument is the next word
    std::vector<std::string_view> long_argument;
    std::vector<std::string_view> long_code;
};

Grammar grammar_of(Language language) {
    switch (language) {
    case Language::Python:
        return {"c", "m", "WXQ", {"--check-hash-based-pycs"}, {}};
    case Language::Shell:
    case Language::KornShell:
        return {"cs", "", "oO", {"--rcfile", "--init-file"}, {}};
    case Language::Perl:
        return {"eE", "", "IMm", {}, {}};
    case Language::Node:
        return {"ep",
                "",
                "rC",
                {"--require", "--import", "--loader", "--conditions"},
                {"--eval", "--print"}};
    case Language::None:
        break;
    }
    return {};
}

bool contains(const std::vector<std::string_view> &list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

std::vector<std::string_view> arguments_of(std::string_view cmdline) {
    std::vector<std::string_view> arguments;
    while (!cmdline.empty() && arguments.size() < max_arguments) {
        const std::size_t end = cmdline.find('\0');
        arguments.push_back(cmdline.substr(0, end));
        if (end == std::string_view::npos)
            break;
        cmdline.remove_prefix(end + 1);
    }
    return arguments;
}

std::string script_of(Language language, const std::vector<std::string_view> &arguments) {
    const Grammar grammar = grammar_of(language);
    const bool shell = language == Language::Shell || language == Language::KornShell;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        const std::string_view word = arguments[i];
        const auto next = [&] {
            return i + 1 < arguments.size() ? std::string(arguments[i + 1]) : std::string();
        };
        if (word == "-") // the script comes from the standard input
            return {};
        if (word == "--")
            return next();
        if (word.starts_with("--")) {
            if (contains(grammar.long_code, word.substr(0, word.find('='))))
                return {};
            if (contains(grammar.long_argument, word))
                ++i;
            continue;
        }
        if (!word.starts_with('-') && !(shell && word.starts_with('+')))
            return std::string(word);
        // A cluster of letters: the first with an argument ends it.
        std::size_t n_arguments = 0;
        for (std::size_t at = 1; at < word.size(); ++at) {
            const char letter = word[at];
            const std::string_view rest = word.substr(at + 1);
            if (grammar.code.find(letter) != std::string_view::npos)
                return {};
            if (grammar.module.find(letter) != std::string_view::npos)
                return rest.empty() ? next() : std::string(rest);
            if (grammar.argument.find(letter) != std::string_view::npos) {
                // The argument, or more letters: what comes after may be code.
                if (language == Language::KornShell && !rest.empty())
                    return {};
                // A shell takes the argument from the next word, and what follows in this one
                // are more letters: `-oc pipefail CODE`.
                if (rest.empty() || shell)
                    ++n_arguments;
                if (!shell)
                    break;
            }
        }
        i += n_arguments;
    }
    return {};
}

std::string value_of(std::string_view entry, std::string_view name) {
    constexpr std::size_t max_value_bytes = 20;
    if (!entry.starts_with(name) || entry.size() <= name.size() || entry[name.size()] != '=')
        return {};
    const std::string_view value = entry.substr(name.size() + 1);
    const bool plain = std::all_of(value.begin(), value.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z');
    });
    return plain && value.size() <= max_value_bytes ? std::string(value) : std::string();
}

} // namespace

Program program_of(std::string_view cmdline) {
    const auto arguments = arguments_of(cmdline);
    if (arguments.empty())
        return {};
    Program program;
    program.argv0 = arguments.front();
    const bool one_string =
        arguments.size() == 1 || std::all_of(arguments.begin() + 1, arguments.end(),
                                             [](std::string_view word) { return word.empty(); });
    if (one_string) {
        // A process that writes its own title puts its arguments into one string.
        program.argv0 = std::string(arguments.front().substr(0, arguments.front().find(' ')));
        return program;
    }
    const Language language = language_of(program.argv0);
    if (language != Language::None)
        program.script = script_of(language, arguments);
    return program;
}

std::string joined_command_line(std::string_view cmdline, std::size_t limit_bytes) {
    while (cmdline.ends_with('\0'))
        cmdline.remove_suffix(1);
    std::string joined(cmdline.substr(0, limit_bytes));
    std::replace(joined.begin(), joined.end(), '\0', ' ');
    return joined;
}

SlurmEnvironment slurm_environment(std::string_view environ) {
    SlurmEnvironment slurm;
    while (!environ.empty()) {
        const std::size_t end = environ.find('\0');
        const std::string_view entry = environ.substr(0, end);
        if (std::string job = value_of(entry, "SLURM_JOB_ID"); !job.empty())
            slurm.job = std::move(job);
        else if (std::string step = value_of(entry, "SLURM_STEP_ID"); !step.empty())
            slurm.step = std::move(step);
        if (end == std::string_view::npos)
            break;
        environ.remove_prefix(end + 1);
    }
    return slurm;
}

} // namespace collwire::inventory
