"""The harness itself: fairness of the stopwatch, honesty of the report. No peer is needed, and nothing is measured."""

import ast
import doctest
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from benchmarks import accelerator, cases, report, scaling
from benchmarks.measure import (
    Case,
    Contender,
    Target,
    compare,
    judge,
    over,
    peak_bytes,
    set_threads,
)
from benchmarks.report import END, ROOT, START, Run

SUBJECTS = [cases.transforms, cases.color, cases.fields, cases.views, scaling.curves]
ENVIRONMENT = {
    "date": "2025-01-31T12:00:00+00:00",
    "command": "python -m benchmarks",
    "commit": "0123456789",
    "modified": False,
    "cpu": "an abacus",
    "cores": 2,
    "load": [0.0, 0.0, 0.0],
    "accelerator": None,
    "system": "a table",
    "python": "3.11",
    "versions": {"torch": "2.8"},
    "kernels": True,
}


class Machine:
    """A fake clock: a call takes what `costs` says, times a disturbance that lasts for whole rounds."""

    def __init__(self, costs, disturbance=lambda block: 1.0):
        self.costs = costs
        self.disturbance = disturbance
        self.blocks = []

    def contender(self, name, **options):
        def call():
            return name

        return Contender(name, lambda: call, **options)

    def stopwatch(self, call, calls):
        name = call()
        self.blocks.append((name, calls))
        return self.costs[name] * calls * self.disturbance(len(self.blocks))

    def run(self, *contenders, rounds=5, block=1.0, **options):
        case = Case("case", "A case", contenders, **options)
        return compare(case, rounds=rounds, block=block, stopwatch=self.stopwatch, threads=torch.get_num_threads())


def a_run(outcome):
    return Run(ENVIRONMENT, {"rounds": 5, "block": 1.0, "subjects": ["case"]}, [outcome])


@pytest.fixture
def outcome():
    machine = Machine({"ours": 2.0, "ours too": 3.0, "theirs": 4.0, "theirs at its best": 1.0})
    return machine.run(
        machine.contender("ours"),
        machine.contender("ours too"),
        machine.contender("theirs", library="peer"),
        machine.contender("theirs at its best", library="peer"),
        Contender("another", _missing, library="not_installed"),
        ours=("ours", "ours too"),
        targets=(
            Target("it", ("ours", "ours too"), ("theirs", "theirs at its best"), 0.9),
            Target("it", ("ours", "ours too"), ("theirs",), 0.9),
            Target("it", ("ours", "ours too"), ("another",), 0.9),
        ),
    )


def _missing():
    raise ModuleNotFoundError("No module named 'not_installed'\nand more lines")


# ----------------------------------------------------------------------------------------------------------- measuring


def test_noise_that_hits_all_alike_leaves_the_ratio_alone():
    machine = Machine({"ours": 0.001, "theirs": 0.002})
    machine.disturbance = lambda block: 10.0 if len(machine.blocks) % 8 > 4 else 1.0
    target = Target("ours", ("ours",), ("theirs",), 0.6)
    outcome = machine.run(machine.contender("ours"), machine.contender("theirs"), rounds=16, targets=(target,))
    assert len({round(s, 9) for r in outcome.results for s in r.seconds}) == 4  # each quiet and disturbed
    assert outcome.verdicts[0].ratio == pytest.approx(0.5)


def test_contenders_take_turns_in_changing_order():
    machine = Machine(dict.fromkeys("abcd", 1.0))
    machine.run(*map(machine.contender, "abcd"), rounds=6)
    names = [name for name, _ in machine.blocks][-24:]
    rounds = [tuple(names[i : i + 4]) for i in range(0, 24, 4)]
    assert all(sorted(each) == list("abcd") for each in rounds)
    assert len(set(rounds)) > 1


def test_blocks_are_filled_and_divided_by_the_items():
    machine = Machine({"quick": 0.01, "slow": 5.0})
    outcome = machine.run(machine.contender("quick", items=4), machine.contender("slow"), block=0.5)
    quick, slow = outcome.results
    assert quick.calls in (50, 51)
    assert slow.calls == 1
    assert quick.median == pytest.approx(0.01 / 4)
    assert machine.run(machine.contender("slow"), calls=16).results[0].calls == 16


def test_median_and_quartiles_are_of_the_rounds():
    machine = Machine({"a": 1.0})
    outcome = machine.run(machine.contender("a"), block=1.0)
    outcome.results[0].seconds = [5.0, 1.0, 2.0, 4.0, 3.0]
    assert outcome.results[0].median == 3.0
    assert outcome.results[0].quartiles == (2.0, 4.0)


def test_a_target_holds_our_slowest_against_their_fastest(outcome):
    strict, lenient, impossible = outcome.verdicts
    assert (strict.ours, strict.theirs, strict.met) == ("ours too", "theirs at its best", False)
    assert strict.ratio == pytest.approx(3.0)
    assert (lenient.ratio, lenient.met) == (pytest.approx(0.75), True)
    assert impossible.met is None
    assert outcome.us.name == "ours too"


def test_who_cannot_run_is_reported_with_the_reason(outcome):
    absent = outcome.results[-1]
    assert absent.seconds == []
    assert absent.unavailable == "ModuleNotFoundError: No module named 'not_installed'"
    assert all(r.seconds for r in outcome.results[:-1])


def test_no_verdict_without_all_of_ours(outcome):
    assert judge(Target("it", ("ours", "another"), ("theirs",), 0.9), outcome.results).met is None


def test_threads_are_set_and_read_back():
    before = torch.get_num_threads()
    try:
        assert set_threads(1)["torch"] == torch.get_num_threads() == 1
    finally:
        set_threads(before)


def test_inputs_are_taken_in_turn():
    call = over(lambda x: x, "abc")
    assert {call() for _ in range(3)} == set("abc")
    assert len({call() for _ in range(2)}) == 2


@pytest.mark.filterwarnings("ignore")  # the profiler's
def test_peak_memory_counts_temporaries_and_the_result():
    megabyte = 2**18  # floats

    def call():
        temporary = torch.ones(4 * megabyte)
        also = torch.ones(2 * megabyte)
        del temporary
        return also + 1

    call()
    assert peak_bytes(call) == pytest.approx(6 * 2**20, rel=0.01)


# ----------------------------------------------------------------------------------------------------------- the cases


@pytest.mark.parametrize("subject", SUBJECTS)
def test_targets_name_contenders(subject):
    for case in subject():
        keys = [f"{c.name} @ {c.x:g}" if c.x is not None else c.name for c in case.contenders]
        assert len(set(keys)) == len(keys)
        assert set(case.ours) <= set(keys)
        for target in case.targets:
            assert {*target.ours, *target.theirs} <= set(keys)


@pytest.mark.parametrize("subject", SUBJECTS[:4])
def test_what_stands_for_us_is_ours(subject):
    for case in subject():
        libraries = {c.name: c.library for c in case.contenders}
        assert case.ours
        assert {libraries[name] for name in case.ours} == {"randfield"}


@pytest.mark.parametrize("subject", [cases.transforms, cases.color, cases.fields])
def test_our_contenders_run(subject):
    for case in subject():
        for contender in case.contenders:
            if contender.library == "randfield":
                assert isinstance(contender.build()(), torch.Tensor)


def test_photographs_are_what_the_titles_say():
    assert cases.photograph().size == (640, 427)
    assert {image.size for image in cases.photographs(224)} == {(224, 224)}
    assert cases.batch(64, 5).shape == (5, 3, 64, 64)


def test_views_show_what_they_make_before_they_are_timed():
    with pytest.raises(RuntimeError, match="expected two float32 views"):
        cases._pair(lambda image: [torch.zeros(3, 224, 224)], None)
    same = [torch.zeros(8, 3, 224, 224)] * 2
    with pytest.raises(RuntimeError, match="own draw"):
        cases._batch_pair(lambda images: same, torch.zeros(8, 3, 8, 8))


# ----------------------------------------------------------------------------------------------------------- reporting


def test_json_keeps_everything(outcome, tmp_path):
    made = a_run(outcome)
    made.save(tmp_path / "run.json")
    loaded = Run.load(tmp_path / "run.json")
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "run.json").read_text() == (tmp_path / "again.json").read_text()
    assert loaded.outcomes[0].results == outcome.results
    assert report.page(loaded) == report.page(made)


def test_losses_and_absences_are_published(outcome):
    page = report.page(a_run(outcome))
    assert "theirs at its best takes 1000 ms, ours too 3000, 3 times as long." in page
    assert "Of 3 targets 1 are met, 1 are not, 1 could not be measured." in page
    assert "another: ModuleNotFoundError" in page
    assert report.losses(a_run(outcome)) == [line[2:] for line in page.splitlines() if "times as long" in line]


def test_what_wavers_is_said_to(outcome):
    assert report.unsteady(a_run(outcome)) == []
    outcome.results[0].seconds = [1.0, 1.0, 2.0, 3.0, 3.0]
    assert report.unsteady(a_run(outcome)) == ["A case: ours."]
    assert "## What wavered" in report.page(a_run(outcome))


def test_readme_gets_its_table_between_the_markers(outcome):
    made = a_run(outcome)
    once = report.with_section(f"before\n{START}\nold\n{END}\nafter", made)
    assert once.startswith("before\n")
    assert once.endswith("\nafter")
    assert "old" not in once
    assert "an abacus" in once
    assert report.with_section(once, made) == once
    with pytest.raises(ValueError, match="README needs the lines"):
        report.with_section("nothing here", made)


def test_examples_in_the_report():
    assert doctest.testmod(report).failed == 0


def test_the_environment_is_written_down():
    found = report.environment()
    assert found["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert found.keys() == ENVIRONMENT.keys()
    json.dumps(found)


def test_charts_are_drawn(outcome, tmp_path):
    pytest.importorskip("matplotlib")
    from benchmarks import charts

    machine = Machine({"curve": 1.0})
    curve = machine.run(*(machine.contender("curve", x=x) for x in (1, 4, 64)), axis="x")
    made = a_run(outcome)
    made.outcomes.append(curve)
    charts.bars(made, tmp_path / "bars.png")
    charts.scaling(made, tmp_path / "scaling.png")
    assert all(path.stat().st_size > 10_000 for path in (tmp_path / "bars.png", tmp_path / "scaling.png"))
    assert charts.scaling(a_run(outcome), tmp_path / "none.png") is None


@pytest.mark.skipif(not (ROOT / "docs" / "benchmarks.json").exists(), reason="nothing published yet")
def test_what_is_published_is_what_was_measured():
    made = Run.load(ROOT / "docs" / "benchmarks.json")
    gpu = ROOT / "docs" / "accelerator.json"
    page = report.page(made, Run.load(gpu) if gpu.exists() else None)
    assert (ROOT / "docs" / "benchmarks.md").read_text() == page
    readme = (ROOT / "README.md").read_text()
    assert report.with_section(readme, made) == readme


# --------------------------------------------------------------------------------------------------------- accelerator


@pytest.mark.parametrize("module", ["__init__", "__main__", "accelerator", "measure", "report", "cases"])
def test_a_rented_machine_needs_torch_and_torchvision_alone(module):
    tree = ast.parse((ROOT / "benchmarks" / f"{module}.py").read_text())
    imported = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {n.module if isinstance(n, ast.ImportFrom) else a.name for n in imported for a in n.names}
    tops = {str(name).split(".")[0] for name in names}
    assert tops <= {*sys.stdlib_module_names, "torch", "torchvision", "PIL", "benchmarks"}


def test_host_traffic_is_found_without_a_device():
    shape = (2, 3, 8, 8)
    assert accelerator.host_traffic(lambda images: images.float() / 255, shape) == []
    assert accelerator.host_traffic(lambda images: images + images.new_tensor([1]), shape) != []
    with pytest.raises(Exception, match="local_scalar"):
        accelerator.host_traffic(lambda images: images if images.sum() > 0 else -images, shape)


def test_graph_breaks_are_found_without_a_device():
    def straight(images):
        return images.float() / 255

    def breaks(images):
        torch._dynamo.graph_break()
        return images

    assert accelerator.graph_break(straight, (2, 3, 8, 8)) is None
    assert "graph" in (accelerator.graph_break(breaks, (2, 3, 8, 8)) or "")


BATCHED = """
    import sys
    sys.path.insert(0, ".")
    from benchmarks.accelerator import graph_break, host_traffic
    from benchmarks.cases import ours, simclr_views

    for transform in (simclr_views(field=True, size=16), ours("LocalTranslate", per_sample=True)()):
        for side in (24, 20):  # the second size in one process, for which sizes would become symbols
            for look in (host_traffic, graph_break):
                found = look(transform, (4, 3, side, side + 3))
                assert not found, f"{type(transform).__name__}, {side}: {look.__name__}: {found}"
"""


def test_batches_on_a_device_compile_whole_and_never_ask_the_host():
    """From the drawing on, in a process without this suite's checks of shapes."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BATCHED)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.skipif(torch.cuda.is_available(), reason="would run it")
def test_without_a_device_nothing_is_measured(capsys, tmp_path):
    assert accelerator.main(["--out", str(tmp_path / "none.json")]) == 1
    assert "No CUDA device" in capsys.readouterr().out
    assert not list(Path(tmp_path).iterdir())
