"""Folders of images: two layouts, one size, and every unusable file named."""

import os
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from secagg.data import open_dataset, partition
from secagg.errors import BadInput, BadRecord

RNG = np.random.default_rng(0)


def draw(path, size=(6, 4), mode="RGB"):
    """Write a random image of (height, width) and return its pixels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (*size, 3) if mode == "RGB" else size
    pixels = RNG.integers(0, 256, shape, dtype=np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


def opened(folder, **options):
    """All records of a folder, none held out."""
    return open_dataset(str(folder), split=False, **options)


def test_folders_are_classes(tmp_path):
    """Sorted folders are the classes, sorted files the records, pixel by pixel; hidden files are none."""
    pixels = [draw(tmp_path / name) for name in ("cat/1.png", "cat/2.PNG", "dog/0.png")]
    (tmp_path / ".cache").mkdir()
    (tmp_path / "cat" / ".DS_Store").write_bytes(b"x")
    data = opened(tmp_path)
    assert (data.kind, data.classes, data.schema, data.test) == ("images", ("cat", "dog"), None, None)
    assert (data.train.inputs == np.array(pixels)).all()
    assert data.train.inputs.dtype == np.uint8
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.bound == np.sqrt(6 * 4 * 3)
    assert data.train.columns == {}


def test_outer_folders_are_domains(tmp_path):
    """DOMAIN/CLASS/* gives a column `domain` that partitions by it; each domain is split on its own."""
    for domain in ("photo", "art"):
        for index in range(5):
            draw(tmp_path / domain / "cat" / f"{index}.png")
    draw(tmp_path / "art" / "dog" / "9.png")
    data = open_dataset(str(tmp_path))
    assert data.classes == ("cat", "dog")
    assert sorted(data.test.columns["domain"]) == ["art", "photo"]
    assert data.train.columns["domain"].tolist() == ["art"] * 5 + ["photo"] * 4
    parts = partition(data.train.labels, data.train.columns, "column:domain", None, 0)
    assert [len(part) for part in parts] == [5, 4]


def test_jpeg_palette_and_bilevel_are_read(tmp_path):
    """JPEG, palette and one-bit images enter as RGB or grey of 8 bits."""
    draw(tmp_path / "a" / "1.jpg")
    Image.fromarray(RNG.integers(0, 256, (6, 4), dtype=np.uint8)).convert("P").save(tmp_path / "a" / "2.png")
    Image.new("1", (4, 6), 1).save(tmp_path / "a" / "3.png")
    data = opened(tmp_path)
    assert data.train.inputs.shape == (3, 6, 4, 3)
    assert (data.train.inputs[2] == 255).all()


def test_grey_stays_grey_and_is_repeated_among_colours(tmp_path):
    """Only grey images are (n, h, w); one in colour makes all three channels, grey ones repeated."""
    grey = draw(tmp_path / "a" / "1.png", mode="L")
    assert (opened(tmp_path).train.inputs == grey[None]).all()
    draw(tmp_path / "b" / "1.png")
    inputs = opened(tmp_path).train.inputs
    assert inputs.shape == (2, 6, 4, 3)
    assert (inputs[0] == grey[:, :, None]).all()
    assert opened(tmp_path / ".." / tmp_path.name, image_size=(6, 4, 3)).train.inputs[0].tolist() == inputs[0].tolist()


@pytest.mark.parametrize("shape", [(6, 4), (6, 4, 1)])
def test_colour_is_refused_where_grey_is_asked_for(tmp_path, shape):
    """A plan for grey images takes grey files, in its own shape, and no others."""
    grey = draw(tmp_path / "a" / "1.png", mode="L")
    assert (opened(tmp_path, image_size=shape).train.inputs == grey.reshape(1, *shape)).all()
    draw(tmp_path / "a" / "2.png")
    with pytest.raises(BadRecord, match=r"2\.png: is in colour"):
        opened(tmp_path, image_size=shape)


def test_mixed_sizes_are_refused_by_name(tmp_path):
    """An image of another size than the first is named with both sizes and the way out."""
    draw(tmp_path / "a" / "1.png")
    draw(tmp_path / "b" / "2.png", (5, 4))
    with pytest.raises(BadRecord, match=r"b/2\.png: is 4 × 5 pixels, the first image is 4 × 6; .*--image-size"):
        opened(tmp_path)


@pytest.mark.parametrize(("size", "shape"), [((3,), (3, 3, 3)), ((2, 4, 3), (2, 4, 3)), ((8, 2, 3), (8, 2, 3))])
def test_given_size_scales_each_image_alone(tmp_path, size, shape):
    """With a size, images of every size fit, and one image's pixels do not depend on the others."""
    draw(tmp_path / "a" / "1.png")
    draw(tmp_path / "a" / "2.png", (50, 9))
    together = opened(tmp_path, image_size=size).train.inputs
    assert together.shape == (2, *shape)
    (tmp_path / "a" / "1.png").unlink()
    assert (opened(tmp_path, image_size=size).train.inputs[0] == together[1]).all()


def test_image_of_the_given_size_is_not_resampled(tmp_path):
    """Where the size fits already, pixels are those of the file."""
    pixels = draw(tmp_path / "a" / "1.png")
    assert (opened(tmp_path, image_size=(6, 4, 3)).train.inputs[0] == pixels).all()


def test_classes_of_a_plan_fix_the_labels(tmp_path):
    """A member without some class folder gets the plan's labels; a folder that is no class of it is refused."""
    draw(tmp_path / "dog" / "1.png")
    data = opened(tmp_path, classes=("cat", "dog"))
    assert (data.classes, data.train.labels.tolist()) == (("cat", "dog"), [1])
    draw(tmp_path / "eel" / "1.png")
    with pytest.raises(BadRecord, match="its folder is none of the classes"):
        opened(tmp_path, classes=("cat", "dog"))


@pytest.mark.parametrize("layout", ["{}", "north/{}"])
def test_folder_without_its_last_image_is_one_without_records(tmp_path, layout):
    """Where a plan fixes size and classes, taking the only record away leaves a data set, of no record."""
    image = tmp_path / layout.format("cat") / "1.png"
    draw(image)
    (tmp_path / layout.format("dog")).mkdir()
    found = []
    for _ in range(2):
        data = opened(tmp_path, image_size=(6, 4, 3), classes=("cat", "dog"), tolerant=True)
        found.append((len(data.train), data.train.inputs.shape[1:], data.classes, set(data.train.columns)))
        image.unlink(missing_ok=True)
    assert [each[0] for each in found] == [1, 0]
    assert found[0][1:] == found[1][1:]


@pytest.mark.parametrize(
    "given", [{"tolerant": True}, {"tolerant": True, "image_size": (6,), "classes": ("cat", "dog")},
              {"image_size": (6, 4, 3), "classes": ("cat", "dog")}, {"tolerant": True, "image_size": (6, 4, 3)}]
)  # fmt: skip
def test_folder_without_an_image_is_refused_where_nothing_says_what_it_holds(tmp_path, given):
    """Without noise, a size or classes, a folder in which no image is found is refused."""
    (tmp_path / "cat").mkdir()
    with pytest.raises(BadInput, match="holds no image"):
        opened(tmp_path, **given)


def claimed(width, height):
    """A PNG of a few bytes whose header claims a size."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def transparent_colour(path):
    """An RGB image one of whose colours is transparent."""
    Image.fromarray(RNG.integers(0, 256, (6, 4, 3), dtype=np.uint8)).save(path, transparency=(1, 2, 3))


BROKEN = {
    "text.txt": (lambda path: path.write_text("hello"), "has no name of an image"),
    "text.png": (lambda path: path.write_text("hello"), "is no PNG or JPEG"),
    "empty.jpg": (lambda path: path.write_bytes(b""), "is no PNG or JPEG"),
    "gif.png": (lambda path: Image.new("RGB", (4, 6)).save(path, "GIF"), "is no PNG or JPEG"),
    "bomb.png": (lambda path: path.write_bytes(claimed(9000, 9000)), "has 9000 × 9000 pixels, more than"),
    "large_bomb.png": (lambda path: path.write_bytes(claimed(60_000, 60_000)), "is no PNG or JPEG"),
    "hollow.png": (lambda path: path.write_bytes(claimed(4, 6)), "is broken"),
    "alpha.png": (lambda path: Image.new("RGBA", (4, 6)).save(path), "the mode RGBA"),
    "colour_key.png": (transparent_colour, "transparent pixels"),
    "deep.png": (lambda path: Image.new("I;16", (4, 6)).save(path), "the mode I;16"),
    "print.jpg": (lambda path: Image.new("CMYK", (4, 6)).save(path), "the mode CMYK"),
    "link.png": (lambda path: path.symlink_to(path.parent / "1.png"), "is a link"),
    "nowhere.png": (lambda path: path.symlink_to("/nowhere"), "is a link"),
    "pipe.txt": (os.mkfifo, "has no name of an image"),
}


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("size", [None, (6, 4, 3)])
def test_unusable_file_is_named_or_left_out(tmp_path, name, size):
    """What is no plain image is refused in one line by its file; tolerant, it is a bad record and spares the others."""
    make, words = BROKEN[name]
    pixels = [draw(tmp_path / "a" / "1.png"), draw(tmp_path / "b" / "1.png")]
    make(tmp_path / "a" / name)
    with pytest.raises(BadRecord, match=rf"a/{name}: ") as refusal:
        opened(tmp_path, image_size=size)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    records = opened(tmp_path, image_size=size, tolerant=True).train
    assert records.bad == 1
    assert sorted(records.labels.tolist()) == [-1, 0, 1]
    assert (records.inputs[records.labels >= 0] == np.array(pixels)).all()
    assert not records.inputs[records.labels < 0].any()


def test_half_a_photograph_is_refused(tmp_path):
    """A truncated JPEG is refused, not read in part."""
    draw(tmp_path / "a" / "1.jpg", (40, 40))
    content = (tmp_path / "a" / "1.jpg").read_bytes()
    (tmp_path / "a" / "1.jpg").write_bytes(content[: len(content) // 2])
    with pytest.raises(BadRecord, match=r"1\.jpg: is broken"):
        opened(tmp_path)


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("readme.txt", "is no folder"),
        ("art/readme.txt", "is no folder"),
        ("art/cat/more/2.png", "is a folder inside a class"),
    ],
)
def test_other_layout_is_refused(tmp_path, extra, words):
    """Files beside folders, and folders deeper than two, are named."""
    draw(tmp_path / "art" / "cat" / "1.png")
    (tmp_path / extra).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / extra).write_bytes(b"x")
    with pytest.raises(BadInput, match=words):
        opened(tmp_path)


def test_folder_that_is_a_link_is_refused(tmp_path):
    """A class that is a link to a folder elsewhere is not followed."""
    draw(tmp_path / "data" / "cat" / "1.png")
    draw(tmp_path / "secret" / "1.png")
    (tmp_path / "data" / "dog").symlink_to(tmp_path / "secret")
    with pytest.raises(BadInput, match="dog is a link"):
        opened(tmp_path / "data")


@pytest.mark.parametrize("folders", [[], ["a"], ["a/b"]])
def test_folder_without_images_is_refused(tmp_path, folders):
    """Empty folders are no data set."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
    with pytest.raises(BadInput, match="holds no"):
        opened(tmp_path)


def test_images_bring_their_own_labels(tmp_path):
    """A label column for a folder of images is refused."""
    draw(tmp_path / "a" / "1.png")
    with pytest.raises(BadInput, match="brings its own labels"):
        opened(tmp_path, label="a")


@pytest.mark.parametrize("size", [(4, 4, 4), (4, 4, 3, 2)])
def test_size_that_no_image_has_is_refused(tmp_path, size):
    """Shapes that a plan may have but no image gives are refused."""
    draw(tmp_path / "a" / "1.png")
    with pytest.raises(BadInput, match="1 or 3 channels"):
        opened(tmp_path, image_size=size)
