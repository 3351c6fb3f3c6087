"""The model card of a grown checkpoint directory: where it stands, what it says, and what it takes over."""

from __future__ import annotations

import json
import re
import time

import pytest
import yaml
from checkpoints import tiny_config
from graphs import MLP
from graphs import save as save_onnx
from huggingface_hub import ModelCard

import growc
from growc.cli.main import main
from growc.formats.model_card import front_matter, front_matter_of, is_own, sealed, write_card

WIDEN = "widen ffn to 2 * ffn with cyclic copy"
BOMB = "a0: &a0 {x: 1}\n" + "".join(
    f"a{i}: &a{i}\n  <<: [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
ALIASES = "b0: &b0 [x, x]\n" + "".join(f"b{i}: &b{i} [*b{i - 1}, *b{i - 1}]\n" for i in range(1, 90))


@pytest.fixture
def llama(save):
    return save("LlamaForCausalLM", tiny_config("Llama"))


def parsed(text):
    """The front matter of a card, as the Hub reads it, and its body."""
    card = ModelCard(text, ignore_metadata_errors=False)
    return card.data.to_dict(), card.text


def apply(source, out, recipe=WIDEN, **options):
    growc.apply(recipe, source, out, check=False, **options)
    return {p.name: p.read_text() for p in sorted(out.iterdir()) if p.suffix == ".md"}


def test_a_directory_without_a_card_gets_one(llama, tmp_path):
    recipe = f"# ````\n# LEMON, arXiv:2310.07999, https://example.org/a_b?c=1.\n{WIDEN}  # ```sh\n"
    done = apply(llama, tmp_path / "one", recipe)
    assert list(done) == ["README.md"]
    data, body = parsed(done["README.md"])
    assert data == {"tags": ["growc", "model-surgery"]}
    assert f"`````grow\n{recipe}`````\n" in body
    assert "- <https://arxiv.org/abs/2310.07999>\n- <https://example.org/a_b?c=1>\n" in body
    assert "Certificate: exact." in body
    assert re.search(r"^ffn +48 +96$", body, re.M)
    assert "from transformers import LlamaForCausalLM" in body
    assert "The outputs of both models were not compared." in body
    assert "growc apply recipe.grow SOURCE -o GROWN\n" in body
    assert str(tmp_path) not in body


def test_a_card_of_the_source_stays_and_lends_what_holds_true_of_the_result(llama, tmp_path):
    card = (
        "---\nlicense: mit\nlanguage: [en, no]\ntags: [a, growc]\npipeline_tag: text-generation\n"
        "library_name: transformers\nbase_model: x/y\nbase_model_relation: adapter\ndatasets: [d]\n"
        "model-index:\n- name: z\n---\n# Mine\n"
    )
    (llama / "README.md").write_text(card)
    done = apply(llama, tmp_path / "out")
    assert done["README.md"] == card
    data, _ = parsed(done["README.growc.md"])
    assert data == {
        "base_model": "x/y",
        "language": ["en", "no"],
        "library_name": "transformers",
        "license": "mit",
        "pipeline_tag": "text-generation",
        "tags": ["a", "growc", "model-surgery"],
    }


def test_the_card_can_be_left_out(llama, tmp_path):
    command = ["apply", "-e", WIDEN, str(llama), "-o", str(tmp_path / "two"), "--no-verify", "--no-card"]
    assert main(command) == 0
    assert not list((tmp_path / "two").glob("*.md"))


def test_growing_again_replaces_growcs_card_and_tells_of_both_growths(llama, tmp_path):
    apply(llama, tmp_path / "one", "widen ffn to 72 with cyclic copy  # arXiv:2310.07999")
    record = json.loads((tmp_path / "one/growc.json").read_text())
    said = {"source": "hf://owner/name@main"} | record | {"earlier": [record | {"source": "hf://` # Owned"}]}
    (tmp_path / "one/growc.json").write_text(json.dumps(said))
    done = apply(tmp_path / "one", tmp_path / "two", "widen ffn to 96 with cyclic copy")
    assert list(done) == ["README.md"]
    body = done["README.md"]
    assert body.index("widen ffn to 96") < body.index("## Earlier growths") < body.index("widen ffn to 72")
    assert body.count("# A grown") == 1
    assert "## Papers" not in body  # of this growth
    assert "From `hf://owner/name@main`:" in body
    assert "Owned" not in body


def cards(folder):
    return {p.name: p.read_text() for p in sorted(folder.iterdir())}


def test_a_card_of_growc_that_somebody_changed_is_theirs(tmp_path):
    write_card(tmp_path, "# Body\n", "")
    place = tmp_path / "README.md"
    place.write_text(changed := place.read_text().replace("# Body", "# Ours"))
    for body in ("# Second\n", "# Third\n"):
        assert write_card(tmp_path, body, "") == ""
        found = cards(tmp_path)
        assert found["README.md"] == changed
        assert body in found["README.growc.md"]
    assert write_card(tmp_path, None, "") == ""
    assert cards(tmp_path) == {"README.md": changed}


def test_no_card_of_growc_is_left_where_none_is_asked_for(tmp_path):
    write_card(tmp_path, "# Body\n", "")
    assert write_card(tmp_path, None, "") == ""
    assert cards(tmp_path) == {}


def test_no_file_of_the_source_is_overwritten(tmp_path):
    for name in ("README.md", "README.growc.md"):
        (tmp_path / name).write_text(name)
    told = write_card(tmp_path, "# Body\n", "")
    assert told == "no model card is written: `README.growc.md` is a file of the source"
    assert cards(tmp_path) == {name: name for name in ("README.md", "README.growc.md")}


def test_gaps_measurement_parameters_and_fields_are_told(save, tmp_path, capsys):
    source = save("BertForMaskedLM", tiny_config("Bert"))
    (tmp_path / "r.grow").write_text("let n = 40\nwiden ffn to n with random fill\n")
    command = ["apply", str(tmp_path / "r.grow"), str(source), "-p", "n=56", "--shard-size", "1GB"]
    assert main([*command, "--config", "classifier_dropout=0.5", "-o", str(tmp_path / "out")]) == 0, (
        capsys.readouterr()
    )
    body = (tmp_path / "out/README.md").read_text()
    assert "Certificate: not exact.\n  gap " in body
    assert re.search(r"Measured on \d+ cases that growc drew, the outputs differ by \d\.\de-\d\d of", body)
    assert "rounding explains" not in body
    assert "-p n=56 --config classifier_dropout=0.5 --shard-size 1GB\n" in body


HOSTILE = {
    "merge bomb": BOMB + "license: mit",
    "alias bomb": ALIASES + "license: mit",
    "python": "license: !!python/object/apply:os.system [touch /tmp/owned]",
    "deep": "a: " + "[" * 100_000,
    "no mapping": "- a\n- b",
    "unclosed": 'license: "mit',
    "recursive": "tags: &a [*a]",
    "mapping": "license: {a: b}\ntags: {x: y}",
    "control": 'license: "a\\e[2J"',
    "long": f"license: {'x' * 100_000}",
    "many": f"tags: [{', '.join(map(str, range(100_000)))}]",
    "injection": 'license: "mit\\n---\\n# Owned\\n"\ntags: ["a: b", "- c", "---", "<script>"]',
    "key twice": "license: a\nlicense: b",
    "nul": "license: a\0b",
    "null": "license: null\nlanguage: ~\npipeline_tag:",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_front_matter_breaks_nothing_and_adds_nothing(tmp_path, text):
    (tmp_path / "README.md").write_text(f"---\n{text}\n---\n# Mine\n")
    begun = time.perf_counter()
    assert write_card(tmp_path, "# Body\n", "owner/name") == ""
    assert time.perf_counter() - begun < 20
    card = (tmp_path / "README.growc.md").read_text()
    data, body = parsed(card)
    assert body.strip().startswith("# Body\n")
    assert "Owned" not in body
    assert data["base_model"] == "owner/name"
    assert data["tags"][-2:] == ["growc", "model-surgery"]
    assert set(data) <= {"base_model", "tags", "license"}
    assert card.isprintable() or not set(card) - {"\n"} & set(map(chr, range(32)))


@pytest.mark.parametrize(
    "word", ["no", "1.0", "2020-01-01", "a: b", "- x", "#x", "'", "日本語", "\u202e", "yes"]
)
def test_words_come_back_as_they_were(word):
    text = front_matter({"license": word, "tags": [word]}, "")
    data = yaml.safe_load(text.split("---\n")[1])
    assert data == {"license": word, "tags": [word, "growc", "model-surgery"]}


def test_a_card_that_cannot_be_read_lends_nothing(tmp_path):
    place = tmp_path / "README.md"
    assert front_matter_of(place) == {}
    place.write_bytes(b"\xff\xfe---\n")
    assert front_matter_of(place) == {}
    place.unlink()
    place.mkdir()
    assert front_matter_of(place) == {}
    assert write_card(tmp_path, "# Body\n", "") == ""
    assert is_own(tmp_path / "README.growc.md")


def test_a_seal_is_for_one_text():
    text = sealed("a")
    assert text != sealed("b")
    assert text.endswith(" -->\n")


def test_files_get_no_card(tmp_path):
    save_onnx(tmp_path / "mlp.onnx", MLP)
    growc.apply(WIDEN, tmp_path / "mlp.onnx", tmp_path / "out.onnx")
    assert not list(tmp_path.glob("*.md"))
