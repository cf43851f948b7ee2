// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "tools/pages/pages.h"

namespace collwire::pages {
namespace {

// Before: the words of the line up to the cursor are in COMP_WORDS. bash splits --posts=on at `=`.
constexpr std::string_view HEAD = R"(# SPDX-License-Identifier: Apache-2.0
# bash completion for collwire; made by the build from the declarations of its options.
_collwire() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} path="" word words="" i
    COMPREPLY=()
    if [[ $current == = ]]; then
        current=""
    elif [[ $previous == = ]] && ((COMP_CWORD > 2)); then
        previous=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word == -- ]]; then
            mapfile -t COMPREPLY < <(compgen -A command -- "$current")
            compopt -o default
            return
        fi
        case "$path/$word" in
)";

constexpr std::string_view TAIL = R"(    esac
    [[ $current == -* || -z $files ]] || words=""
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
    [[ -z $files || $current == -* ]] || compopt -o default
}
complete -F _collwire collwire
)";

// The value is one of few words: "auto|on|off".
bool has_choices(const cli::OptionEntry &option) {
    return option.value.find('|') != std::string::npos;
}

bool takes_path(const cli::OptionEntry &option) {
    return option.value == "FILE" || option.value == "DIR" || option.value == "PLACE";
}

std::string spaced(std::string choices) {
    for (char &character : choices)
        character = character == '|' ? ' ' : character;
    return choices;
}

struct Cases {
    std::string paths;  // which word leads to which verb
    std::string values; // of an option
    std::string words;  // verbs and options
};

void add_cases(const cli::CommandEntry &command, const std::string &path, Cases &cases) {
    std::string words;
    bool has_files = false;
    for (const cli::CommandEntry &verb : command.verbs) {
        words += (words.empty() ? "" : " ") + verb.name;
        cases.paths +=
            "            " + path + "/" + verb.name + ") path=" + path + "/" + verb.name + " ;;\n";
        add_cases(verb, path + "/" + verb.name, cases);
    }
    for (const cli::OptionEntry &option : command.options) {
        if (option.positional) {
            has_files = has_files || option.names[0] == "FILE" || option.names[0] == "PATH" ||
                        option.names[0] == "files";
            continue;
        }
        std::string patterns;
        for (const std::string &name : option.names) {
            words += (words.empty() ? "" : " ") + name;
            patterns += (patterns.empty() ? "" : " | ") + path + "/" + name;
        }
        if (option.value.empty() || option.value_optional)
            continue;
        cases.values += "    " + patterns + ") ";
        if (has_choices(option))
            cases.values += "words=\"" + spaced(option.value) + "\"";
        else
            cases.values += takes_path(option) ? "files=1" : "words=\"\"";
        cases.values += " ;;\n";
    }
    cases.words += "        " + (path.empty() ? std::string("\"\"") : path) + ") words=\"" + words +
                   "\"" + (has_files ? " files=1" : "") + " ;;\n";
}

} // namespace

std::string bash_completion(const cli::CommandEntry &program) {
    Cases cases;
    add_cases(program, "", cases);
    return std::string(HEAD) + cases.paths + "        esac\n    done\n    local files=\"\"\n" +
           "    case \"$path/$previous\" in\n" + cases.values +
           "    *)\n        case \"$path\" in\n" + cases.words + "        esac\n        ;;\n" +
           std::string(TAIL);
}

} // namespace collwire::pages
