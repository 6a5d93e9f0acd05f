# SPDX-License-Identifier: GPL-2.0-only
"""Each rule of the C style check finds its violations and accepts good code."""

from __future__ import annotations

import pytest

from checks import cstyle
from xsmmu_lab.setup import csource

GOOD = """\
/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A comment may say if(x){ or "y==z" as it likes.
 */
#include <linux/types.h>

#define pair(a, b)	((a) + (b))

static const u32 sizes[] = {
	1, 2, 3,
};

/**
 * struct thing - guarded by its own lock
 * @lock:	guards @count
 */
struct thing {
	spinlock_t lock;
	struct mutex other;	/* guards nothing yet */
	u32 count;
};

static int thing_add(struct thing *thing, u32 more, const char *name,
		     const char *why)
{
	if (!thing || more == 0)
		return -EINVAL;
	else if (more > 1)
		more = 1;

	for (;;) {
		if (name[0] == ' ')
			break;
	}
	do {
		thing->count += more;
	} while (thing->count < 10 && more);
	/* orders the count before the flag */
	smp_wmb();
	pr_info("a long message that stands on one line, so that people can search for it: %s %s\\n", name, why);
	return sizeof(*thing) * -1;
}
"""


def rules(text: str) -> set[str]:
    return {finding.rule for finding in cstyle.kernel_style(text)}


def test_good_code_has_no_findings() -> None:
    assert list(cstyle.kernel_style(GOOD)) == []


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("\tif(x)", "keyword-space"),
        ("\tif (x){", "brace-space"),
        ("\tx=1;", "operator-space"),
        ("\tif (x &&y)", "operator-space"),
        ("\tcall(a,b);", "comma-space"),
        ("\tcall( a);", "paren-space"),
        ("\tcall(a );", "paren-space"),
        ("\tstruct thing* thing;", "pointer-star"),
        ("\tif ((x = call()))", "assign-in-if"),
        ("\tif (x == NULL)", "null-compare"),
        ("\treturn (x);", "return-paren"),
        ("\tx = sizeof x;", "sizeof-paren"),
        ("\tunsigned x;", "bare-unsigned"),
        ('\tprintk("x");', "printk"),
        ("\tBUG_ON(x);", "bug-on"),
        ("\tvolatile int x;", "volatile"),
        ("\tstrcpy(x, y);", "old-string"),
        ("#if 0", "if-0"),
        ("\tx = 1; ", "trailing-space"),
        ("\tx \t= 1;", "space-before-tab"),
        ("        x = 1;", "tab-indent"),
        ("\t" + "x" * 93 + ";", "line-length"),
        ("\tx = 1; // why", "line-comment"),
        ("\tsmp_mb();", "barrier-comment"),
        ("\tspinlock_t lock;", "lock-comment"),
        ("int call(void) {", "function-brace"),
    ],
)
def test_each_line_rule_can_fail(line: str, rule: str) -> None:
    assert rule in rules(f"{line}\n")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("int x;", "end-of-file"),
        ("int x;\n\n\nint y;\n", "blank-lines"),
        ("int f(void)\n{\n\n\treturn 1;\n}\n", "blank-at-brace"),
        ("\tif (x)\n\t{\n", "brace-line"),
        ("\t}\n\telse {\n", "else-line"),
        ("/*\n * @other: x\n */\nstruct a {\n\tspinlock_t lock;\n};\n", "lock-comment"),
    ],
)
def test_each_rule_over_lines_can_fail(text: str, rule: str) -> None:
    assert rule in rules(text)


def test_asm_volatile_is_allowed() -> None:
    assert "volatile" not in rules('\tasm volatile("nop");\n')


def function(lines: int) -> str:
    body = "\tx();\n" * (lines - 4)
    return f"#include <a.h>\n\nstatic int\nlong_one(int a)\n{{\n{body}}}\n"


def test_function_length_counts_from_signature_to_brace() -> None:
    assert list(csource.functions(function(10))) == [(3, "long_one", 10)]


def test_function_length_limit() -> None:
    assert list(cstyle.long_functions(function(cstyle.FUNCTION_LINES))) == []
    (finding,) = cstyle.long_functions(function(cstyle.FUNCTION_LINES + 1))
    assert "long_one() has 61 lines" in finding.text


def test_data_is_not_a_function() -> None:
    assert list(csource.functions("struct a\n{\n\tint x;\n}\nint b[] =\n{\n\t1,\n}\n")) == []


@pytest.mark.parametrize(
    "line",
    [
        "#ifdef __KERNEL__",
        "#if LINUX_VERSION_CODE > 1",
        "#include <linux/types.h>",
        "#include <stdlib.h>",
        "#ifdef CONFIG_X86",
        "static double x;",
    ],
)
def test_engine_knows_no_world(line: str) -> None:
    assert [finding.line for finding in cstyle.freestanding(f"\n{line}\n")] == [2]


@pytest.mark.parametrize(
    "line",
    ["#include <xsmmu/space.h>", "#include <stdint.h>", "/* __KERNEL__ */", "#include <platform.h>", '#include "a.c"'],
)
def test_engine_may_use_its_own(line: str) -> None:
    assert list(cstyle.freestanding(f"{line}\n")) == []


def test_version_tests_are_found_in_code_only() -> None:
    assert [f.line for f in cstyle.version_tests("/* KERNEL_VERSION */\n#if LINUX_VERSION_CODE\n")] == [2]
