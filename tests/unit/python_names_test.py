#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""python_names_test.py ROOT: what a Python file takes from another of this project is defined there, what it uses is defined at
all, and functions and classes get the arguments that they ask for.

Python says so only when the line runs, and many of these files run in the full matrix alone. Methods are not looked at.
"""
import ast
import builtins
import copy
import os
import sys

ROOMS = ("cmake", "tests", "tools")


def read_all(root):
    trees = {}
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room)):
            for path in (os.path.join(folder, name) for name in sorted(names) if name.endswith(".py")):
                with open(path, encoding="utf-8") as file:
                    trees[os.path.relpath(path, root)] = ast.parse(file.read(), path)
    return trees


def functions_of(tree):
    """The functions of a module, and how its classes are made."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.decorator_list:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    functions[node.name] = copy.deepcopy(method)
                    functions[node.name].name = node.name
                    del functions[node.name].args.args[0]
    return functions


def defined(tree):
    """The names that a module has once it is loaded."""
    names = {"__doc__", "__file__", "__name__"} | {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(ast.Module([node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))], [])):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).split(".")[0])
    return names


def variables_of(tree):
    return ({node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} |
            {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)})


def taken(tree, modules):
    """(node, module, name) of each name that a file takes from one of these modules, as an attribute or by `from`."""
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported.update({alias.asname or alias.name: alias.name for alias in node.names if alias.name in modules})
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            yield from ((node, node.module, alias.name) for alias in node.names if alias.name != "*")
    others = variables_of(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported and node.value.id not in others:
            yield node, imported[node.value.id], node.attr


def fault_of_call(call, function):
    """What is wrong with the arguments, or None. A function with a decorator may take anything, a call with ** may pass anything, and one with * any
    that have a place."""
    if function.decorator_list or any(word.arg is None for word in call.keywords):
        return None
    of = function.args
    positional = [argument.arg for argument in (*of.posonlyargs, *of.args)]
    words = {word.arg for word in call.keywords}
    required = {argument.arg for argument, default in zip(of.kwonlyargs, of.kw_defaults) if default is None}
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return f"no argument {', '.join(sorted(required - words))}" if required - words else None
    required |= set(positional[len(call.args):len(positional) - len(of.defaults)])
    if len(call.args) > len(positional) and not of.vararg:
        return f"{len(call.args)} arguments, it takes {len(positional)}"
    if required - words:
        return f"no argument {', '.join(sorted(required - words))}"
    unknown = words - {*positional[len(call.args):], *(argument.arg for argument in of.kwonlyargs)}
    return f"no parameter {', '.join(sorted(unknown))} left" if unknown and not of.kwarg else None


def name_of(node):
    """What a call or an attribute names: `function` or `module.function`; None for anything else."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def faults_of_names(tree):
    """(line, text) of each name that no line of the file defines."""
    known = variables_of(tree) | defined(tree) | set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            known.add(node.name)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).split(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            known.add(node.name)
    return [(node.lineno, f"{node.id} is not defined") for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id not in known]


def faults_of_calls(tree, functions_of_module):
    """(line, text) of each wrong call, and how many were looked at."""
    others = variables_of(tree)
    known = {name: function for name, function in functions_of(tree).items() if name not in others}
    known.update({name_of(node): functions_of_module[module][name] for node, module, name in taken(tree, functions_of_module)
                  if isinstance(node, ast.Attribute) and name in functions_of_module[module]})
    known.update({name: functions_of_module[module][name] for node, module, name in taken(tree, functions_of_module)
                  if isinstance(node, ast.ImportFrom) and name in functions_of_module[module] and name not in others})
    calls = [(node, known[name_of(node.func)]) for node in ast.walk(tree) if isinstance(node, ast.Call) and name_of(node.func) in known]
    faults = [(call.lineno, f"{function.name}: {fault}") for call, function in calls if (fault := fault_of_call(call, function))]
    return faults, len(calls)


def main():
    trees = read_all(sys.argv[1])
    names, functions, of_folder = {}, {}, {}
    for path, tree in trees.items():
        folder, module = os.path.dirname(path), os.path.splitext(os.path.basename(path))[0]
        # Two files may have one name: what either defines is known. Python takes the one in the folder of the file that asks for it.
        of_folder.setdefault(folder, {})[module] = functions_of(tree)
        functions[module] = {} if module in names else functions_of(tree)
        names.setdefault(module, set()).update(defined(tree))
    uses = [(path, *use) for path, tree in trees.items() for use in taken(tree, names)]
    wrong = [f"{path}:{node.lineno}: {module}.py defines no {name}" for path, node, module, name in uses if name not in names[module]]
    calls = 0
    for path, tree in trees.items():
        faults, looked_at = faults_of_calls(tree, {**functions, **of_folder[os.path.dirname(path)]})
        wrong += [f"{path}:{line}: {fault}" for line, fault in (*faults_of_names(tree), *faults)]
        calls += looked_at
    print("\n".join([*wrong, f"{len(trees)} files, {len(uses)} names of other files, {calls} calls, {len(wrong)} wrong"]))
    sys.exit(1 if wrong or min(len(trees), len(uses), calls) < 100 else 0)


if __name__ == "__main__":
    main()
