"""Bitwuzla as a program: SMT-LIB 2 commands on standard input, answers on standard output.

The package `bitwuzla` is a Python binding without the program that SymbiYosys looks for.
"""

import sys

import bitwuzla

__all__ = ["main"]


def _commands(lines):
    """Whole commands: lines joined until the parentheses close. Quoted names hold no parentheses here."""
    command, depth = "", 0
    for line in lines:
        text = line.split(";", 1)[0] if "|" not in line else line
        command += text
        depth += text.count("(") - text.count(")")
        if depth == 0 and command.strip():
            yield command.strip()
            command = ""


def main() -> None:
    """Answer until the input ends or ``(exit)`` comes."""
    manager, options = bitwuzla.TermManager(), bitwuzla.Options()
    options.set(bitwuzla.Option.PRODUCE_MODELS, True)
    parser = bitwuzla.Parser(manager, options)
    for command in _commands(iter(sys.stdin.readline, "")):
        if command == "(exit)":
            return
        parser.parse(command, parse_file=False)
        sys.stdout.flush()


if __name__ == "__main__":
    main()
