# SPDX-License-Identifier: GPL-2.0-only
"""The check of the structure finds circles of files and counts moves between parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from checks import cnames, structure
from xsmmu.errors import UserError
from xsmmu_lab.project import PROJECT

SOURCE = """\
/*
#define COMMENTED 1
 */
#include "shared.h"
#define CALL(x)	\\
	called(x, named)
struct forward;
struct pair {
	u32 first, second;
	int (*pointed)(struct other *one);
};
enum kind { ONE, TWO = LAST };
typedef int (*call_t)(u64 start, struct pair *pair);
extern const struct pair pairs[COUNT];
static DEFINE_PER_CPU(struct list_head, lists);
DEFINE_MUTEX(mutex);
bool strict __ro_after_init = true;
static const struct pair table[] = {
	{ .first = COUNT, .second = 1 },
};
int prototype(struct pair *pair);
EXPORT_SYMBOL_GPL(exported);

#ifdef OLD
static int twice(void) { return old(); }
#else
static int twice(void)
{
	return new();
}
#endif

struct pair *made(struct pair *pair, call_t call)
{
	struct pair *last = pair->next, *other;
	typeof(pair->first) first = "named"[0];
	u64 *far = NULL;

	last->member = other;
	return call(first, twice() ? handed : NULL);
}
"""


def test_names_of_a_file() -> None:
    source = cnames.read(SOURCE)
    assert source.includes == ["shared.h"]
    assert source.declares == {"struct forward", "pairs", "prototype"}
    names = "CALL ONE TWO call_t kind lists made mutex pair strict table twice"
    assert sorted(name.removeprefix("struct ") for name in source.defines) == names.split()
    assert [made.name for made in source.defines.values() if made.is_function] == ["twice", "made"]
    assert {made.name for made in source.defines.values() if made.is_global} == {"made", "mutex", "strict"}


def test_names_that_definitions_use() -> None:
    source = cnames.read(SOURCE)
    assert source.defines["CALL"].uses == ["called", "named"]
    assert "COUNT" in source.defines["table"].uses
    assert "first" not in source.defines["table"].uses
    assert {"old", "new"} <= set(source.defines["twice"].uses)
    made = source.defines["made"].uses
    assert {"struct pair", "call_t", "twice", "handed"} <= set(made)
    assert {"pair", "last", "other", "first", "far", "call", "next", "member"}.isdisjoint(made)
    assert "pointed" not in source.defines["struct pair"].uses
    assert "exported" in source.uses


def circles(files: dict[str, str]) -> list[list[str]]:
    return [circle.units for circle in structure.Code(files).circles()]


def function(name: str, *calls: str) -> str:
    return f"void {name}(void)\n{{\n" + "".join(f"\t{call}();\n" for call in calls) + "}\n"


def test_a_circle_and_its_names() -> None:
    code = structure.Code(
        {
            "kmod/a.c": function("a", "b"),
            "kmod/b.c": function("b", "c") + function("b2"),
            "kmod/c.c": function("c", "a", "b2", "d"),
            "kmod/d.c": function("d", "printk"),
            "kmod/all.h": "void a(void);\nvoid b(void);\nvoid b2(void);\nvoid c(void);\nvoid d(void);\n",
        }
    )
    [circle] = code.circles()
    assert circle.units == ["kmod/a.c", "kmod/b.c", "kmod/c.c"]
    assert [(use.user, use.used, use.names) for use in circle.uses] == [
        ("kmod/a.c", "kmod/b.c", ["b"]),
        ("kmod/b.c", "kmod/c.c", ["c"]),
        ("kmod/c.c", "kmod/a.c", ["a"]),
        ("kmod/c.c", "kmod/b.c", ["b2"]),
    ]


def test_a_header_belongs_to_the_file_of_its_stem() -> None:
    files = {
        "kmod/a.h": "struct a { int x; };\nvoid a(void);\n",
        "kmod/a.c": '#include "b.h"\n' + function("a", "b"),
        "kmod/b.h": '#include "a.h"\nstruct b { struct a a; };\nvoid b(void);\n',
        "kmod/b.c": '#include "b.h"\n' + function("b"),
    }
    assert circles(files) == [["kmod/a.c", "kmod/b.c"]]
    files["kmod/b.h"] = "struct a;\nstruct b { struct a *a; };\nvoid b(void);\n"
    files["kmod/a.c"] = '#include "a.h"\n' + files["kmod/a.c"]
    assert circles(files) == []


def test_a_header_that_declares_names_of_another_file_is_a_unit() -> None:
    files = {
        "kmod/kinds.h": "struct kind { int x; };\nextern const struct kind one;\n",
        "kmod/kinds.c": '#include "kinds.h"\nstatic const struct kind *kinds[] = { &one };\n',
        "kmod/one.c": '#include "kinds.h"\nconst struct kind one = { 1 };\n',
    }
    assert circles(files) == []
    assert set(structure.Code(files).units.values()) == set(files)


def test_headers_of_the_engine_stand_elsewhere() -> None:
    files = {
        "core/include/xsmmu/a.h": "struct a { int x; };\n",
        "core/a.c": "#include <xsmmu/b.h>\nint a = B;\n",
        "core/include/xsmmu/b.h": "#include <xsmmu/a.h>\n#define B sizeof(struct a)\n",
    }
    assert circles(files) == [["core/a.c", "core/include/xsmmu/b.h"]]


def test_the_text_of_a_header_of_several_files_is_of_those_who_name_it() -> None:
    shared = "extern int table[4];\nvoid a(void);\nstatic inline int first(void)\n{\n\treturn table[0];\n}\n"
    files = {
        "kmod/shared.h": shared,
        "kmod/a.c": '#include "shared.h"\n' + function("a"),
        "kmod/table.c": '#include "shared.h"\nint table[4];\n' + function("fill", "a"),
    }
    assert circles(files) == []
    files["kmod/a.c"] = '#include "shared.h"\n' + function("a", "first")
    [circle] = structure.Code(files).circles()
    assert circle.uses[0].names == ["table by first"]


def test_static_names() -> None:
    files = {
        "kmod/a.c": "static " + function("set") + function("a", "b"),
        "kmod/b.c": "static " + function("get") + function("b", "set"),
    }
    assert circles(files) == []
    files["kmod/path.c"] = '#include "a.c"\n#include "b.c"\n'
    files["kmod/elsewhere.c"] = function("set")
    assert circles(files) == [["kmod/a.c", "kmod/b.c"]]
    files["kmod/b.c"] += "static " + function("set")
    assert circles(files) == []


WALKED = {
    "kmod/shared.h": "void b(void);\nvoid c(void);\nstatic inline " + function("short", "c"),
    "kmod/a.c": '#include "shared.h"\n#define B() b()\nstatic '
    + function("own", "b", "short")
    + "void xs_device_bind(void)\n{\n\town();\n\teach(list, own2);\n\tB();\n}\n"
    + function("own2", "xs_device_bind"),
    "kmod/b.c": '#include "shared.h"\n' + function("b", "c", "xs_engine_map"),
    "kmod/c.c": function("c") + function("other"),
}


def test_moves_of_a_walk() -> None:
    walk = structure.Code(WALKED).walk("xs_device_bind")
    assert (walk.file, walk.moves) == ("kmod/a.c", 4)
    assert walk.entries == {"kmod/b.c": 2, "kmod/c.c": 1, "kmod/a.c": 1}
    assert structure.Code(WALKED).walk("own2", "kmod/a.c").moves == 4
    assert structure.Code(WALKED).walk("c").moves == 0


def test_a_function_that_is_passed_is_called() -> None:
    files = {**WALKED, "kmod/a.c": "void xs_device_bind(void)\n{\n\teach(list, other);\n\tc();\n}\n"}
    assert structure.Code(files).walk("xs_device_bind").moves == 4


@pytest.mark.parametrize(("function", "file"), [("nowhere", None), ("c", "kmod/b.c"), ("set", None), ("B", None)])
def test_a_walk_from_no_single_function(function: str, file: str | None) -> None:
    twice = {f"kmod/{name}.c": "static void set(void)\n{\n}\n" for name in ("e", "f")}
    with pytest.raises(UserError, match=function):
        structure.Code({**WALKED, **twice}).walk(function, file)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in {**WALKED, "kmod/d.c": function("xs_group_choose"), "core/e.c": "int e;\n"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_findings(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(structure.findings(tree)) == []
    (tree / "kmod/c.c").write_text(function("c", "b"))
    monkeypatch.setattr(structure, "MOVES_MOST", {"xs_device_bind": 3, "xs_group_choose": 0})
    circle, moves = structure.findings(tree)
    assert circle.startswith("kmod/b.c, kmod/c.c: use each other;")
    assert moves == "kmod/a.c: xs_device_bind() moves between parts 4 times, the limit is 3"


def test_a_function_that_is_gone_is_a_finding(tree: Path) -> None:
    (tree / "kmod/d.c").write_text("int d;\n")
    [finding] = structure.findings(tree)
    assert finding.startswith("kmod: xs_group_choose: defined in no file;")


def test_output(tree: Path) -> None:
    (tree / "kmod/c.c").write_text(function("c", "b"))
    text = CliRunner().invoke(structure.report, ["--tree", str(tree)], catch_exceptions=False).output
    assert "kmod: 1 circles\n  kmod/b.c, kmod/c.c\n    kmod/b.c uses kmod/c.c: c\n" in text
    assert "core: 0 circles\nkmod/a.c:xs_device_bind: 4 moves\n    2 kmod/b.c\n" in text
    options = ["--tree", str(tree), "--json", "--from", "kmod/b.c:b"]
    found = json.loads(CliRunner().invoke(structure.report, options, catch_exceptions=False).output)
    assert found["circles"]["kmod"][0]["units"] == ["kmod/b.c", "kmod/c.c"]
    assert [walk["function"] for walk in found["walks"]] == ["b"]


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no C files"):
        list(structure.findings(tmp_path))


def test_the_walks_of_this_checkout_start_somewhere() -> None:
    code = structure.Code.of(PROJECT, structure.CHECKED)
    assert all(code.walk(function).moves > 0 for function in structure.MOVES_MOST)
