# SPDX-License-Identifier: GPL-2.0-only
"""Style checks of C source text: the kernel's coding style as far as lines show, and the project's limits.

Distributions do not ship checkpatch with their headers, so this module checks its relevant rules. Every check is a
function of a file's text that yields findings and decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xsmmu_lab.setup import csource

FUNCTION_LINES = 60
LINE_COLUMNS = 100


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule. Lines count from 1."""

    line: int
    rule: str
    text: str


def long_functions(text: str) -> Iterator[Finding]:
    """Functions of more than FUNCTION_LINES lines."""
    for line, name, length in csource.functions(text):
        if length > FUNCTION_LINES:
            yield Finding(line, "function-length", f"{name}() has {length} lines, the limit is {FUNCTION_LINES}")


# Rules on one line of code, comments and strings blanked.
_CODE_RULES = {
    "keyword-space": (r"\b(?:if|for|while|switch)\(", "space between the keyword and ("),
    "brace-space": (r"\)\{|\belse\{|\bdo\{", "space before {"),
    "operator-space": (
        r"[\w\])](?:[-+*/%&|^]?=|==|!=|<=|>=|&&|\|\|)[\w(\"'&*-]|[\w\])](?:=|==|!=|&&|\|\|)\s"
        r"|\s(?:==|!=|&&|\|\|)[\w(]",
        "spaces around the operator",
    ),
    "comma-space": (r",[^\s,)]", "space after the comma"),
    "paren-space": (r"\([ \t]+[^\s\\;]|[^\s;(,][ \t]+\)", "no space inside ()"),
    "pointer-star": (r"\b(?:struct \w+|[us](?:8|16|32|64)|void|char|int|long|bool)\*+\s*\w", "* stands at the name"),
    "assign-in-if": (r"\bif \(.*[^=!<>]=[^=]", "no assignment in a condition"),
    "null-compare": (r"[!=]= NULL\b|\bNULL [!=]=", "!x or x, not a comparison with NULL"),
    "return-paren": (r"\breturn \([^()]*\);", "no parentheses around a returned value"),
    "sizeof-paren": (r"\bsizeof\s+\w|\bsizeof \(", "sizeof(x)"),
    "bare-unsigned": (r"\bunsigned\s+(?!int\b|long\b|char\b|short\b)\w", "unsigned int"),
    "printk": (r"\bprintk\(", "pr_*() or dev_*()"),
    "bug-on": (r"\bBUG(?:_ON)?\(", "WARN_ON_ONCE() and recover"),
    "volatile": (r"(?<!asm )(?<!__asm__ )\bvolatile\b", "READ_ONCE()/WRITE_ONCE() or xs_load()/xs_store()"),
    "old-string": (r"\b(?:strcpy|strncpy|strlcpy|sprintf|simple_strto\w+)\(", "strscpy(), sysfs_emit(), kstrto*()"),
    "if-0": (r"^\s*#\s*if\s+[01]\b", "no dead code"),
}
_COMPILED = {rule: (re.compile(pattern), wanted) for rule, (pattern, wanted) in _CODE_RULES.items()}

_OWN_LINE_BRACE = re.compile(r"^\s+\{$")
_CONTROL = re.compile(r"^\s*(?:\}\s*)?(?:if|for|while|switch|else|do)\b.*[^;{]$")
_FUNCTION_SAME_LINE = re.compile(r"^(?!struct|union|enum|typedef|#|extern)[a-z]\w[\w\s*]*\w\([^;=]*\)\s*\{$")
_BARRIER = re.compile(r"\b(?:smp_|dma_)?(?:mb|rmb|wmb)\(\)")
_LOCK_MEMBER = re.compile(r"^\t+(?:spinlock_t|raw_spinlock_t|xs_lock_t|struct mutex)\s+(\w+);")


def kernel_style(text: str) -> Iterator[Finding]:
    """The kernel's coding style, line by line."""
    lines, code = text.split("\n"), csource.code_only(text).split("\n")
    for comment in csource.NOT_CODE.finditer(text):
        if comment[0].startswith("//") and "SPDX" not in comment[0]:
            yield Finding(text.count("\n", 0, comment.start()) + 1, "line-comment", "/* */ comments")
    if lines[-1]:
        yield Finding(len(lines), "end-of-file", "the last line has no newline")
    for index, (line, bare) in enumerate(zip(lines, code, strict=True)):
        yield from _whitespace(lines, index)
        yield from _braces(code, index)
        yield from _wanted_comments(lines, code, index)
        for rule, (pattern, wanted) in _COMPILED.items():
            if pattern.search(bare.rstrip()):
                yield Finding(index + 1, rule, f"{wanted}: {line.strip()}")


_LONG_STRING = re.compile(r'"[^"]{40,}"')
"""A message stays on one line, so that a search finds the message."""


def _columns(line: str) -> int:
    return len(line.expandtabs(8))


def _whitespace(lines: list[str], index: int) -> Iterator[Finding]:
    line, number = lines[index], index + 1
    if line != line.rstrip():
        yield Finding(number, "trailing-space", "white space at the end of the line")
    if " \t" in line:
        yield Finding(number, "space-before-tab", "a space before a tab")
    if re.match(r"\t* {8,}\S", line):
        yield Finding(number, "tab-indent", "tabs, not spaces, for indentation")
    if _columns(line) > LINE_COLUMNS and not _LONG_STRING.search(line):
        yield Finding(number, "line-length", f"{_columns(line)} columns, the limit is {LINE_COLUMNS}")
    if index and not line.strip() and not lines[index - 1].strip() and index < len(lines) - 1:
        yield Finding(number, "blank-lines", "one blank line is enough")
    inside = not line.strip() and 0 < index < len(lines) - 1
    if inside and (lines[index - 1].endswith("{") or re.match(r"\s*\}", lines[index + 1])):
        yield Finding(number, "blank-at-brace", "no blank line beside a brace")


def _braces(code: list[str], index: int) -> Iterator[Finding]:
    line = code[index].rstrip()
    if _OWN_LINE_BRACE.match(line) and index and _CONTROL.match(code[index - 1].rstrip()):
        yield Finding(index + 1, "brace-line", "{ on the line of its statement")
    if index and re.match(r"\s*else\b", line) and code[index - 1].strip() == "}":
        yield Finding(index + 1, "else-line", "else on the line of the closing brace")
    if _FUNCTION_SAME_LINE.match(line):
        yield Finding(index + 1, "function-brace", "a function's { has a line of its own")


def _wanted_comments(lines: list[str], code: list[str], index: int) -> Iterator[Finding]:
    """Code that needs a comment with its reason: barriers, and locks in structures."""
    commented = "/*" in lines[index] or (index > 0 and "*/" in lines[index - 1])
    if _BARRIER.search(code[index]) and not commented:
        yield Finding(index + 1, "barrier-comment", "a comment that says what the barrier orders")
    lock = _LOCK_MEMBER.match(code[index])
    if lock and not commented and f"@{lock[1]}" not in _comment_above(lines, index):
        yield Finding(index + 1, "lock-comment", "a comment that says what the lock guards")


def _comment_above(lines: list[str], index: int) -> str:
    """The comment directly above the structure that contains a line."""
    start = next((at for at in range(index, -1, -1) if lines[at][:1] not in ("", "\t", " ")), 0)
    above = "\n".join(lines[:start])
    return above[above.rfind("/*") :] if above.endswith("*/") else ""


_VERSION = re.compile(r"\b(?:LINUX_VERSION_CODE|KERNEL_VERSION)\b")
_ENGINE_WORDS = re.compile(r"\b(?:__KERNEL__|LINUX_VERSION_CODE|KERNEL_VERSION|CONFIG_\w+|float|double)\b")
_INCLUDE = re.compile(r'^\s*#\s*include\s*([<"][^>"]*[>"])')
_COMPILER_HEADERS = ("stdint", "stddef", "stdbool", "stdatomic", "limits", "stdalign", "stdarg", "stdnoreturn")
_ENGINE_INCLUDES = re.compile(rf'<(?:xsmmu/\w+\.h|platform\.h|(?:{"|".join(_COMPILER_HEADERS)})\.h)>|"\w+\.[ch]"')


def freestanding(text: str) -> Iterator[Finding]:
    """Forbidden knowledge of the engine: the kernel, its version and configuration, libc, floating point."""
    for number, (line, bare) in enumerate(zip(text.split("\n"), csource.code_only(text).split("\n"), strict=True), 1):
        for word in _ENGINE_WORDS.findall(bare):
            yield Finding(number, "freestanding", f"'{word}' has no place in the engine")
        include = _INCLUDE.match(line)
        if include and not _ENGINE_INCLUDES.fullmatch(include[1]):
            yield Finding(number, "freestanding", f"{include[1]} is neither the engine's nor the compiler's header")


def version_tests(text: str) -> Iterator[Finding]:
    """Tests of a kernel's version: kmod/compat probes for the wanted interface instead."""
    for number, bare in enumerate(csource.code_only(text).split("\n"), 1):
        for word in _VERSION.findall(bare):
            yield Finding(number, "version-test", f"'{word}': probe for what is wanted, in kmod/compat")


Check = Callable[[str], Iterator[Finding]]
