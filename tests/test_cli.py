"""The command line, through the app that users start; pictures are small, not square, and made here."""

import inspect
import json
import os
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageCms
from PIL.JpegImagePlugin import JpegImageFile

import randfield
from randfield import __main__, cli
from randfield.cli import app, show
from randfield.names import parse_local

WIDTH, HEIGHT = 53, 37


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as `augment` does for good; the pictures are small
    yield
    torch.set_num_threads(threads)


def run(*arguments: object) -> int:
    """The exit status of `randfield ARGUMENTS`."""
    with pytest.raises(SystemExit) as exit_:
        app([str(argument) for argument in arguments])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code


def picture(mode: str = "RGB", size: tuple[int, int] = (WIDTH, HEIGHT)) -> Image.Image:
    """Smooth colours that differ everywhere."""
    x, y = Image.linear_gradient("L").rotate(90), Image.linear_gradient("L")
    image = Image.merge("RGB", (x, y, Image.radial_gradient("L"))).resize(size)
    if mode == "I;16":
        values = [257 * v for v in image.convert("L").tobytes()]
        return Image.frombytes("I;16", size, b"".join(v.to_bytes(2, "little") for v in values))
    image = image.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.linear_gradient("L").resize(size))
    return image


def saved(path: Path, mode: str = "RGB", **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture(mode).save(path, **options)
    return path


def loaded(path: Path) -> Image.Image:
    with Image.open(path) as image:
        image.load()
        return image


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    for name in ("a.jpg", "cats/a.png", "cats/siam/tom.jpg"):
        saved(folder / name)
    return folder


# ------------------------------------------------------------------------------------------------------------- help


def test_help_says_what_this_is_what_it_can_do_and_how(capsys):
    assert run("--help") == 0
    out = capsys.readouterr().out
    for words in ("random field", "show", "augment", "randfield show photo.jpg", "randfield augment photos/"):
        assert words in out


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("show", "PHOTO --output -o --transform --gamma --alpha --n --seed --grid --size --overwrite --json"),
        ("augment", "SRC DST --transform --gamma --alpha --p --n --seed --workers --overwrite --resume --json"),
    ],
)
def test_help_of_a_command_names_its_options_and_defaults(capsys, command, options):
    assert run(command, "--help") == 0
    out = capsys.readouterr().out
    assert all(option in out for option in options.split())
    assert "[default: 7 10]" in out
    assert "translate+shear" in out or "joined by +" in out
    assert "Turn the settings" not in out  # the examples of the first page


def test_version(capsys):
    assert run("--version") == 0
    assert capsys.readouterr().out.strip() == randfield.__version__


def test_without_the_extra_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    monkeypatch.delitem(sys.modules, "randfield.cli")
    with pytest.raises(SystemExit, match=r"needs cyclopts; install it with: pip install 'randfield\[cli\]'"):
        __main__.main()


def test_ctrl_c_while_it_starts_ends_it_quietly(monkeypatch):
    class Interrupting:
        def find_spec(self, name, path=None, target=None):
            if name == "randfield.cli":
                raise KeyboardInterrupt

    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    monkeypatch.delitem(sys.modules, "randfield.cli")
    with pytest.raises(SystemExit) as exit_:
        __main__.main()
    assert exit_.value.code == 130


def test_a_broken_import_is_not_taken_for_a_missing_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "concurrent.futures.process", None)
    monkeypatch.delitem(sys.modules, "randfield.cli")
    with pytest.raises(ModuleNotFoundError, match=r"concurrent\.futures\.process"):
        __main__.main()


# ------------------------------------------------------------------------------------------------ names of transforms


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rotate", randfield.LocalRotate(gamma=8, alpha=0.2, p=0.5)),
        ("scale", randfield.LocalScale(gamma=8, alpha=0.2, p=0.5)),
        ("shear", randfield.LocalShear(gamma=8, alpha=0.2, p=0.5)),
        ("translate", randfield.LocalTranslate(gamma=8, alpha=0.2, p=0.5)),
        ("hue", randfield.LocalHue(gamma=8, alpha=0.2, p=0.5)),
        ("saturation", randfield.LocalSaturation(gamma=8, alpha=0.2, p=0.5)),
        ("value", randfield.LocalValue(gamma=8, alpha=0.2, p=0.5)),
        ("color", randfield.LocalColorJitter(gamma=8, hue=0.2, saturation=0.2, value=0.2, p=0.5)),
        (
            "translate+shear",  # the coin is tossed once for the whole
            randfield.LocalAffine(
                [randfield.LocalTranslate(gamma=8, alpha=0.2), randfield.LocalShear(gamma=8, alpha=0.2)], p=0.5
            ),
        ),
    ],
)
def test_names_of_transforms(name, expected):
    assert repr(parse_local(name, gamma=8, alpha=0.2, p=0.5)) == repr(expected)


def test_the_defaults_are_those_of_the_classes():
    assert repr(parse_local("translate")) == repr(randfield.LocalTranslate())
    assert repr(parse_local("color")) == repr(randfield.LocalColorJitter())


@pytest.mark.parametrize("name", ["", "twist", "Rotate", "translate+", "translate+hue", "rotate shear"])
def test_unknown_names(name):
    with pytest.raises(ValueError, match=r"expected one of rotate, scale, .* such as translate") as error:
        parse_local(name)
    assert repr(name) in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--transform", "twist"], ["'twist'", "expected one of rotate"]),
        (["--transform"], ["--transform"]),
        (["--alpha", "-0.1"], ["alpha", "-0.1", "at least 0"]),
        (["--alpha", "0.3", "0.1"], ["alpha", "0.3", "0.1", "swap"]),
        (["--alpha", "0", "0.1", "0.2"], ["alpha", "pair", "0.2"]),
        (["--alpha", "nan"], ["alpha", "nan", "finite"]),
        (["--gamma", "smooth"], ["--gamma", "smooth", "float"]),
        (["--gamma"], ["--gamma"]),
        (["--n", "0"], ["--n", "0", ">= 1"]),
        (["--n", "many"], ["--n", "many", "int"]),
        (["--sed", "1"], ["--sed", "Did you mean --seed"]),
    ],
)
@pytest.mark.parametrize("command", ["show", "augment"])
def test_wrong_arguments_are_named_before_anything_happens(tmp_path, capsys, command, arguments, words):
    source = saved(tmp_path / "a.jpg")
    places = [source, "--output", tmp_path / "s.png"] if command == "show" else [source, tmp_path / "out"]
    assert run(command, *places, *arguments) == 2
    err = " ".join(capsys.readouterr().err.split())
    assert all(word in err for word in words)
    assert list(tree(tmp_path)) == ["a.jpg"]


def test_wrong_arguments_of_augment_alone(tmp_path, capsys):
    source = saved(tmp_path / "a.jpg")
    for arguments, word in (
        (["--p", "1.5"], "1.5"),
        (["--workers", "0"], ">= 1"),
        (["--overwrite", "--resume"], "choose one"),
    ):
        assert run("augment", source, tmp_path / "out", *arguments) == 2
        assert word in capsys.readouterr().err


# ------------------------------------------------------------------------------------------------------------- show


def test_show_draws_every_transform_and_says_where(tmp_path, capsys):
    photo, sheet = saved(tmp_path / "a.jpg"), tmp_path / "new" / "sheet.png"
    assert run("show", photo, "-o", sheet, "--n", 2, "--size", 64, "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out.splitlines()[-1]) == {
        "out": str(sheet),
        "transforms": list(inspect.signature(show).parameters["transform"].default),
    }
    assert err == ""
    image = loaded(sheet)
    assert image.format == "PNG"
    assert image.height > 9 * 45  # nine rows of pictures 64 × 45
    assert [path.name for path in sheet.parent.iterdir()] == ["sheet.png"]


def shown(tmp_path: Path, *arguments: object) -> Image.Image:
    sheet = tmp_path / "sheet.png"
    assert run("show", tmp_path / "a.png", "-o", sheet, "--size", 64, "--overwrite", *arguments) == 0
    return loaded(sheet)


def last_draw(sheet: Image.Image, rows_up: int = 0) -> bytes:
    """The last picture of the last row; the text is 12 pixels high, the margin 24, the gap 6."""
    bottom = sheet.height - 24 - rows_up * (45 + 6)
    return sheet.crop((sheet.width - 24 - 64, bottom - 45, sheet.width - 24, bottom)).tobytes()


def test_show_is_a_function_of_the_seed(tmp_path):
    saved(tmp_path / "a.png")
    first, again, other = (shown(tmp_path, "--seed", seed, "--transform", "scale") for seed in (1, 1, 2))
    assert first.tobytes() == again.tobytes()
    assert last_draw(first) != last_draw(other)


def test_show_draws_the_same_whatever_else_is_on_the_sheet(tmp_path):
    saved(tmp_path / "a.png")
    alone = shown(tmp_path, "--transform", "hue")
    among = shown(tmp_path, "--transform", "translate+shear", "color", "hue")
    assert last_draw(alone) == last_draw(among)
    assert last_draw(among, rows_up=1) != last_draw(among)


def test_show_at_zero_strength_shows_the_original(tmp_path):
    saved(tmp_path / "a.png")
    sheet = shown(tmp_path, "--n", 1, "--alpha", 0, "--transform", "translate+shear", "rotate", "color")
    left = sheet.width - 24 - 64
    original = sheet.crop((left, 24, left + 64, 24 + 45)).tobytes()
    assert [last_draw(sheet, rows_up) for rows_up in range(3)] == [original] * 3


def test_show_draws_the_grid_under_geometry_alone(tmp_path):
    saved(tmp_path / "a.png")
    arguments = ("--transform", "rotate", "hue")
    plain, gridded = shown(tmp_path, *arguments), shown(tmp_path, *arguments, "--grid")
    assert plain.size == gridded.size
    assert last_draw(plain) == last_draw(gridded)
    assert last_draw(plain, rows_up=1) != last_draw(gridded, rows_up=1)


def test_show_writes_each_alpha_where_it_varies(tmp_path):
    saved(tmp_path / "a.png")
    fixed = shown(tmp_path, "--transform", "translate+shear")
    varied = shown(tmp_path, "--transform", "translate+shear", "--alpha", 0, 0.3, "--gamma", 8)
    assert varied.height > fixed.height


@pytest.mark.parametrize("size", [(1, 1), (300, 2), (2, 300)])
@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "I;16"])
def test_show_takes_any_image(tmp_path, size, mode):
    picture(mode, size).save(tmp_path / "a.png")
    assert shown(tmp_path, "--grid", "--transform", "rotate", "color").width > 64


def test_show_does_not_overwrite_unasked(tmp_path, capsys):
    photo, sheet = saved(tmp_path / "a.png"), tmp_path / "sheet.png"
    sheet.write_text("precious")
    assert run("show", photo, "-o", sheet, "--transform", "hue") == 1
    err = capsys.readouterr().err
    assert f"{sheet} exists" in err
    assert "--overwrite" in err
    assert sheet.read_text() == "precious"
    assert run("show", photo, "-o", sheet, "--transform", "hue", "--overwrite") == 0
    assert loaded(sheet).format == "PNG"


def test_show_says_what_is_wrong_with_the_files(tmp_path, capsys):
    photo, text = saved(tmp_path / "a.png"), tmp_path / "text.jpg"
    text.write_text("not a photo")
    for arguments, status, words in (
        ((tmp_path / "none.jpg",), 1, ["none.jpg", "No such file"]),
        ((text,), 1, ["text.jpg", "not an image"]),
        ((photo, "-o", tmp_path / "sheet.doc"), 2, ["sheet.doc", "sheet.png"]),
        ((photo, "-o", text / "sheet.png", "--transform", "hue"), 1, ["cannot write", "sheet.png"]),
    ):
        assert run("show", *arguments) == status
        err = capsys.readouterr().err
        assert all(word in err for word in words)
        assert "Traceback" not in err


# ---------------------------------------------------------------------------------------------------------- augment


def test_the_same_seed_gives_the_same_files_whatever_the_number_of_workers(photos, tmp_path):
    """Through `python -m randfield`, which spawns; by one worker in this process."""
    command = [sys.executable, "-m", "randfield", "augment", photos, tmp_path / "two", "--n", "3", "--workers", "2"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"written": 9, "failed": [], "out": str(tmp_path / "two")}
    assert "3/3" in done.stderr  # progress

    assert run("augment", photos, tmp_path / "one", "--n", 3, "--workers", 1) == 0
    assert tree(tmp_path / "one") == tree(tmp_path / "two")
    assert sorted(tree(tmp_path / "one")) == sorted(
        f"{stem}-{k}{suffix}"
        for stem, suffix in (("a", ".jpg"), ("cats/a", ".png"), ("cats/siam/tom", ".jpg"))
        for k in range(3)
    )


def test_copies_differ_by_seed_by_place_and_by_number(tmp_path):
    for name in ("a.png", "b.png"):
        saved(tmp_path / "src" / name)
    for out, seed, n in (("zero", 0, 2), ("one", 1, 2), ("more", 0, 3)):
        assert run("augment", tmp_path / "src", tmp_path / out, "--seed", seed, "--n", n) == 0
    zero, one, more = (tree(tmp_path / out) for out in ("zero", "one", "more"))
    assert len(set(zero.values()) | set(one.values())) == 8
    assert zero.items() <= more.items()  # asking for more copies does not change those one has


def test_one_file_gives_what_it_gives_in_its_folder(photos, tmp_path, capsys):
    assert run("augment", photos, tmp_path / "all") == 0
    assert run("augment", photos / "a.jpg", tmp_path / "one") == 0
    assert "Wrote 1 file" in capsys.readouterr().out
    assert tree(tmp_path / "one") == {"a-0.jpg": tree(tmp_path / "all")["a-0.jpg"]}


def test_unreadable_images_are_reported_and_the_others_written(photos, tmp_path, capsys):
    (photos / "b.jpg").write_text("not a photo")
    (photos / "cats" / "cut.png").write_bytes((photos / "cats" / "a.png").read_bytes()[:200])
    (photos / "empty.png").touch()
    assert run("augment", photos, tmp_path / "out", "--json") == 1
    out, err = capsys.readouterr()
    result = json.loads(out.splitlines()[-1])
    assert result["written"] == 3
    failed = {Path(failure["path"]).name: failure["reason"] for failure in result["failed"]}
    assert failed.keys() == {"b.jpg", "cut.png", "empty.png"}
    assert failed["b.jpg"] == "not an image that Pillow can read"
    assert all(f"cannot augment {photos / name}" in err for name in ("b.jpg", "cats/cut.png", "empty.png"))
    assert len(tree(tmp_path / "out")) == 3

    assert run("augment", photos, tmp_path / "again") == 1
    assert capsys.readouterr().out == f"Wrote 3 files to {tmp_path / 'again'}, 3 of 6 images failed.\n"


def test_existing_files_are_refused_kept_or_replaced(photos, tmp_path, capsys):
    out = tmp_path / "out"
    assert run("augment", photos, out, "--n", 2) == 0
    whole = tree(out)
    (out / "a-0.jpg").write_text("precious")
    (out / "cats" / "a-1.png").unlink()

    assert run("augment", photos, out, "--n", 2) == 1
    err = capsys.readouterr().err
    assert all(word in err for word in ("5 of 6 files", "a-0.jpg", "--overwrite", "--resume"))
    assert tree(out).keys() == whole.keys() - {"cats/a-1.png"}

    assert run("augment", photos, out, "--n", 2, "--resume") == 0
    assert "Wrote 1 file " in capsys.readouterr().out
    assert tree(out) == whole | {"a-0.jpg": b"precious"}

    assert run("augment", photos, out, "--n", 2, "--overwrite") == 0
    assert tree(out) == whole


def test_a_destination_inside_the_source_is_not_a_source(photos, capsys):
    out = photos / "augmented"
    assert run("augment", photos, out) == 0
    first = tree(out)
    assert run("augment", photos, out, "--overwrite") == 0
    assert tree(out) == first
    assert len(first) == 3
    assert run("augment", photos, photos) == 1
    assert "SRC itself" in capsys.readouterr().err


def test_names_that_differ_in_the_suffix_alone_do_not_collide(tmp_path):
    for suffix in ("jpg", "png", "JPG", "jpeg"):
        saved(tmp_path / "src" / f"a.{suffix}")
    assert run("augment", tmp_path / "src", tmp_path / "out") == 0
    assert sorted(tree(tmp_path / "out")) == ["a-0.JPG", "a-0.jpeg", "a-0.jpg", "a-0.png"]


def test_what_is_not_an_image_is_left_alone(photos, tmp_path):
    (photos / "notes.txt").write_text("hello")
    saved(photos / ".hidden.png")
    saved(photos / ".thumbnails" / "a.png")
    assert run("augment", photos, tmp_path / "out") == 0
    assert len(tree(tmp_path / "out")) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
def test_links_to_folders_are_followed_but_not_in_circles(photos, tmp_path):
    saved(tmp_path / "elsewhere" / "dog.png")
    (photos / "dogs").symlink_to(tmp_path / "elsewhere")
    (photos / "cats" / "back").symlink_to(photos)
    assert run("augment", photos, tmp_path / "out") == 0
    assert len(tree(tmp_path / "out")) == 4
    assert "dogs/dog-0.png" in tree(tmp_path / "out")


@pytest.mark.skipif(sys.platform != "linux", reason="names are text there")
def test_names_of_files_need_not_be_text(tmp_path):
    source = tmp_path / os.fsdecode(b"src/\xff\xfe.png")
    saved(source)
    assert run("augment", tmp_path / "src", tmp_path / "out") == 0
    assert [os.fsencode(name) for name in tree(tmp_path / "out")] == [b"\xff\xfe-0.png"]


def test_sources_and_destinations_that_cannot_be(tmp_path, capsys):
    photo, empty = saved(tmp_path / "a.png"), tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "cats").write_text("a file where a folder should be")
    saved(tmp_path / "src" / "cats" / "tom.png")
    for arguments, words in (
        ((tmp_path / "none", tmp_path / "out"), ["none does not exist", "a folder of images"]),
        ((empty, tmp_path / "out"), ["no images in", "empty", ".jpg"]),
        ((photo, photo), ["a.png is not a folder"]),
        ((tmp_path / "src", tmp_path / "blocked"), ["cannot write", "tom-0.png"]),
    ):
        assert run("augment", *arguments) == 1
        err = capsys.readouterr().err
        assert all(word in err for word in words)
        assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("trouble", "status", "words"), [(KeyboardInterrupt, 130, "interrupted"), (BrokenProcessPool, 1, "fewer --workers")]
)
def test_a_run_that_is_stopped_says_how_to_go_on(photos, tmp_path, capsys, monkeypatch, trouble, status, words):
    whole = tmp_path / "whole"
    assert run("augment", photos, whole) == 0
    done: list[object] = []
    augment = cli._augment

    def stopped(*arguments):
        if done:
            raise trouble
        done.append(arguments)
        return augment(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(cli, "_augment", stopped)
        assert run("augment", photos, tmp_path / "out") == status
    err = capsys.readouterr().err
    assert words in err
    assert "--resume" in err
    assert len(tree(tmp_path / "out")) == 1
    assert run("augment", photos, tmp_path / "out", "--resume") == 0
    assert tree(tmp_path / "out") == tree(whole)


def test_no_file_is_ever_half_written(tmp_path, monkeypatch):
    source, out = saved(tmp_path / "a.png"), tmp_path / "out"
    assert run("augment", source, out) == 0
    before = tree(out)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    assert run("augment", source, out, "--seed", 1, "--overwrite") == 130
    assert tree(out) == before


# ------------------------------------------------------------------------------------------- formats, modes, metadata


def augmented(tmp_path: Path, source: Path, *arguments: object) -> Image.Image:
    assert run("augment", source, tmp_path / "out", "--overwrite", *arguments) == 0
    return loaded(tmp_path / "out" / f"{source.stem}-0{source.suffix}")


@pytest.mark.parametrize("suffix", ["jpg", "png", "webp", "tiff", "bmp", "gif"])
def test_formats_are_kept(tmp_path, suffix):
    source = saved(tmp_path / f"a.{suffix}")
    out = augmented(tmp_path, source)
    assert out.format == loaded(source).format
    assert out.size == (WIDTH, HEIGHT)


def test_the_format_is_what_the_file_holds_and_not_what_its_name_says(tmp_path):
    source = saved(tmp_path / "a.jpg", format="PNG", mode="RGBA")
    out = augmented(tmp_path, source)
    assert (out.format, out.mode) == ("PNG", "RGBA")


def test_jpeg_has_quality_95(tmp_path):
    out = augmented(tmp_path, saved(tmp_path / "a.jpg", quality=30))
    reference = loaded(saved(tmp_path / "95.jpg", quality=95))
    assert isinstance(out, JpegImageFile)
    assert isinstance(reference, JpegImageFile)
    assert out.quantization == reference.quantization


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [
        ("1", "png"),
        ("L", "jpg"),
        ("LA", "png"),
        ("P", "png"),
        ("RGBA", "png"),
        ("CMYK", "jpg"),
        ("I;16", "png"),
        ("I", "tiff"),
        ("F", "tiff"),
    ],
)
def test_geometry_keeps_any_mode(tmp_path, mode, suffix):
    source = saved(tmp_path / f"a.{suffix}", mode)
    out = augmented(tmp_path, source, "--transform", "translate+shear", "--alpha", 0.3)
    assert out.mode == loaded(source).mode == mode
    assert out.tobytes() != loaded(source).tobytes()


@pytest.mark.parametrize(
    ("transform", "grey"), [("hue", "RGB"), ("saturation", "RGB"), ("color", "RGB"), ("value", "L")]
)
def test_colours_write_as_rgb_what_is_not(tmp_path, transform, grey):
    for mode, suffix, expected in (
        ("L", "jpg", grey),
        ("CMYK", "jpg", "RGB"),
        ("P", "png", "RGB"),
        ("1", "png", "RGB"),
    ):
        source = saved(tmp_path / f"{mode}.{suffix}", mode)
        assert augmented(tmp_path, source, "--transform", transform).mode == expected


def test_colours_leave_transparency_alone(tmp_path):
    source = saved(tmp_path / "a.png", "RGBA")
    out = augmented(tmp_path, source, "--transform", "hue", "--alpha", 0.3)
    assert out.getchannel("A").tobytes() == picture("RGBA").getchannel("A").tobytes()
    assert out.convert("RGB").tobytes() != picture("RGBA").convert("RGB").tobytes()


@pytest.mark.parametrize(("mode", "suffix"), [("I;16", "png"), ("F", "tiff")])
def test_colours_of_more_than_8_bits_are_that_files_error(tmp_path, capsys, mode, suffix):
    source = saved(tmp_path / f"a.{suffix}", mode)
    assert run("augment", source, tmp_path / "out", "--transform", "hue") == 1
    err = capsys.readouterr().err
    assert all(word in err for word in (source.name, "LocalHue", mode, "geometric"))
    assert not (tmp_path / "out").exists()


def test_several_transforms_act_one_after_the_other(tmp_path):
    source = saved(tmp_path / "a.png")
    moved = augmented(tmp_path, source, "--transform", "translate")
    both = augmented(tmp_path, source, "--transform", "translate", "value")
    untouched = augmented(tmp_path, source, "--transform", "translate", "value", "--p", 0)
    assert moved.tobytes() != both.tobytes()
    assert untouched.tobytes() == picture().tobytes()
    # The value changes, where the pixels came from does not: hue is a function of the place alone.
    hue, moved_hue = (image.convert("HSV").getchannel("H") for image in (both, moved))
    off = [abs(a - b) for a, b in zip(hue.tobytes(), moved_hue.tobytes(), strict=True)]
    assert sorted(min(d, 255 - d) for d in off)[len(off) // 2] <= 2


def test_images_are_turned_upright(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright
    source = tmp_path / "a.png"
    picture().save(source, exif=exif)
    out = augmented(tmp_path, source, "--alpha", 0)
    assert out.size == (HEIGHT, WIDTH)
    assert out.tobytes() == picture().transpose(Image.Transpose.ROTATE_270).tobytes()
    assert 0x0112 not in out.getexif()


def test_what_the_numbers_mean_is_kept(tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    rgb = saved(tmp_path / "rgb.jpg", icc_profile=profile)
    assert augmented(tmp_path, rgb).info["icc_profile"] == profile
    grey = saved(tmp_path / "grey.jpg", "L", icc_profile=profile)
    assert "icc_profile" not in augmented(tmp_path, grey, "--transform", "hue").info  # it is RGB now
    palette = saved(tmp_path / "palette.png", "P", transparency=3)
    out = augmented(tmp_path, palette)
    assert out.info["transparency"] == 3
    assert out.getpalette() == loaded(palette).getpalette()


def test_a_format_that_cannot_be_written_is_that_files_error(tmp_path, capsys, monkeypatch):
    source = saved(tmp_path / "a.bmp")
    monkeypatch.delitem(Image.SAVE, "BMP")
    assert run("augment", source, tmp_path / "out") == 1
    assert "reads BMP but cannot write it" in capsys.readouterr().err
