// SPDX-License-Identifier: Apache-2.0
#include <string_view>

#include "tools/pages/pages.h"

namespace collwire::pages {
namespace {

// Plain text as roff: hyphens can be copied, no line is taken as a request.
std::string escaped(std::string_view text) {
    std::string out;
    bool starts_line = true;
    for (const char character : text) {
        if (starts_line && (character == '.' || character == '\''))
            out += "\\&";
        if (character == '\\')
            out += "\\e";
        else if (character == '-')
            out += "\\-";
        else
            out += character;
        starts_line = character == '\n';
    }
    return out;
}

std::string upper(std::string text) {
    for (char &character : text)
        character = character >= 'a' && character <= 'z' ? static_cast<char>(character - 'a' + 'A')
                                                         : character;
    return text;
}

std::string value_of(const cli::OptionEntry &option) {
    std::string text;
    if (option.value_optional)
        text += "[=\\fIVALUE\\fR]";
    else if (!option.value.empty())
        text += " \\fI" + escaped(option.value) + "\\fR";
    if (!option.default_value.empty())
        text += " (" + escaped(option.default_value) + ")";
    return text;
}

std::string described(const cli::OptionEntry &option) {
    std::string names;
    for (const std::string &name : option.names)
        names += (names.empty() ? "\\fB" : ", \\fB") + escaped(name) + "\\fR";
    return ".TP\n" + names + value_of(option) + "\n" + escaped(option.description) + "\n";
}

std::string synopsis(const cli::CommandEntry &command, const std::string &path) {
    std::string text = ".B " + escaped(path) + "\n";
    if (!command.verbs.empty())
        return text + ".I VERB\n[\\fIOPTIONS\\fR]\n";
    text += "[\\fIOPTIONS\\fR]\n";
    for (const cli::OptionEntry &option : command.options) {
        if (!option.positional)
            continue;
        // CLI11 calls the words after `--` a positional argument, too.
        const bool is_command = option.names[0] == "command";
        const std::string name = "\\fI" + escaped(upper(option.names[0])) + "\\fR ...";
        text += is_command        ? "[\\-\\- " + name + "]\n"
                : option.required ? name + "\n"
                                  : "[" + name + "]\n";
    }
    return text;
}

// Lines that are indented, and their neighbours, stay as they are; others are filled.
std::string notes(std::string_view footer) {
    return ".SH NOTES\n.nf\n" + escaped(footer) + "\n.fi\n";
}

void add_pages(const cli::CommandEntry &command, const std::string &parent,
               const std::string &version, std::vector<ManualPage> &pages) {
    const std::string path = parent.empty() ? command.name : parent + " " + command.name;
    std::string name = path;
    for (char &character : name)
        character = character == ' ' ? '-' : character;
    std::string text = ".\\\" SPDX-License-Identifier: Apache-2.0\n.TH " + upper(name) +
                       " 1 \"\" \"collwire " + version + "\" \"collwire\"\n.SH NAME\n" +
                       escaped(name) + " \\- " + escaped(command.description) + "\n.SH SYNOPSIS\n" +
                       synopsis(command, path);
    std::string arguments;
    std::string options;
    for (const cli::OptionEntry &option : command.options)
        (option.positional ? arguments : options) += described(option);
    if (!command.verbs.empty()) {
        text += ".SH VERBS\n";
        for (const cli::CommandEntry &verb : command.verbs)
            text += ".TP\n\\fB" + escaped(verb.name) + "\\fR\n" + escaped(verb.description) +
                    ". See\n.BR " + escaped(name + "-" + verb.name) + " (1).\n";
    }
    if (!arguments.empty())
        text += ".SH ARGUMENTS\n" + arguments;
    text += ".SH OPTIONS\n" + options + notes(command.footer);
    if (!parent.empty()) {
        std::string above = parent;
        for (char &character : above)
            character = character == ' ' ? '-' : character;
        text += ".SH SEE ALSO\n.BR " + escaped(above) + " (1)\n";
    }
    pages.push_back({name + ".1", text});
    for (const cli::CommandEntry &verb : command.verbs)
        add_pages(verb, path, version, pages);
}

} // namespace

std::vector<ManualPage> manual_pages(const cli::CommandEntry &program, const std::string &version) {
    std::vector<ManualPage> pages;
    add_pages(program, "", version, pages);
    return pages;
}

} // namespace collwire::pages
