#!/usr/bin/env python3
"""Makes the tokenizer fixtures of tests/golden/tokenizers by Hugging Face's tokenizers, transformers and SentencePiece.

    python3 -m pip install -r tests/golden/requirements.txt
    python3 tests/golden/make_tokenizers.py                 trains them and encodes the texts
    python3 tests/golden/make_tokenizers.py --check         holds the committed ids against what the libraries say today
    python3 tests/golden/make_tokenizers.py --fuzz N --program PROGRAM [--seed S] [--directory DIRECTORY]...
                                                            N new texts a tokenizer, through PROGRAM (tests/formats/tokenizer_ids.cpp)
    python3 tests/golden/make_tokenizers.py --unicode       prints src/formats/tokenizer_unicode.inc; needs Python 3.11, whose
                                                            unicodedata is Unicode 14

texts.bin holds 1000 texts, for each its length in bytes and its UTF-8. Each folder holds a tokenizer as Hugging Face directories
do and ids.bin: for each text how many ids it has and the ids. All numbers are LEB128. Where --directory names folders (real
models), those are fuzzed instead.
"""

import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

HERE = pathlib.Path(__file__).resolve().parent / "tokenizers"
TEXTS = 1000

# Regular expressions beyond those of the tokenizers below; the first is looked for as it stands.
PATTERNS = [
    "ab", r"\w+", r"\W", r"\s", r"\S+", r"\d{2,3}", r"\D", r"\bword\b|\Ba", r"^.|.$", r"\A.|.\z", r"[^\w\s]|[\d_]+?", r"(?i:the|'S|k|[a-m]x)", r"(?i)THEY|world",
    r"[\p{Han}\p{Hiragana}]+|\p{Katakana}", r"\p{^L}|\p{Lu}(?=\p{Ll})", r"\P{M}\p{M}*", r"(?<=[.!?])\s+|(?<!\p{L})\p{N}", r"[\x{10000}-\x{10FFFF}]|\u00e9",
    r"(a|b|)c?", r"x*", r"(?>a+)b?|[ab]*+", r"(?m:.{1,5})", r"[\p{P}\p{S}]|[-+]|[\]a-]", r"\p{Hangul}|\p{Latin}+|\p{Greek}|\p{Thai}|\p{Hebrew}|\p{Bengali}",
    r"[^\S\n]+|\n", r"\p{Cc}|\p{Cf}|\p{Cn}|\p{Co}|\p{Zs}", r"{a|}b{,2}|\t\v\f\a\e", r"\$|\.|[.*+?(){}|^$]", "é+|中|[一-鿿]",
]

SENTENCES = """The quick brown fox jumps over the lazy dog, doesn't it? We've seen 1234 of them in 2024; they'll come again.
It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness.
def main(argc, argv):\n    for i in range(10):\n        print(f"{i}: {argv[i]!r}")\n\treturn 0\n
Les élèves français étaient là où l'été brûle; ça va? Größe, Übermut, straße und öffentliche Bäder.
Съешь же ещё этих мягких французских булок, да выпей чаю. Η γρήγορη καφέ αλεπού πηδάει.
我能吞下玻璃而不伤身体。東京特許許可局、いろはにほへと。다람쥐 헌 쳇바퀴에 타고파.
نص حكيم له سر قاطع וזה משפט בעברית क्षेत्र हिन्दी में लिखा ข้อความภาษาไทย
    indented    text\twith\ttabs\r\nand\r\nline\r\nends\n\n\n\nand blanks   \n   at the end of lines   \n
E = mc^2, x_1 + y_2 = 3.14159e-10; {"key": [1, 22, 333, 4444], "other": null} <html><body class="x">&amp;</body></html>
I'm you're he's we'd THEY'LL I'VE don't can't won't o'clock rock'n'roll 'tis ''quoted'' "double" (round) [square] {curly}
😀 😃 👍🏽 👩‍👩‍👧‍👦 🇩🇪🇫🇷 ❤️ ★ ☃ → ∑ ∞ ½ ² Ⅳ ① ﬁ ﬂ ＡＢＣ １２３ ẞ ı İ""".split("\n")
PAIRS = ["the", "of", "and", "to", "in", "is", "that", "for", "with", "was", "on", "as", "are", "this", "be", "by", "from", "have"]

GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2_PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK_PATTERN = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K_PATTERN = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


def corpus():
    rng = random.Random(1)
    lines = [line.encode().decode("unicode_escape").encode("latin-1").decode() if "\\" in line and line.isascii() else line
             for line in SENTENCES]
    return [" ".join(rng.choice(lines) if rng.random() < 0.3 else rng.choice(PAIRS) for _ in range(12)) for _ in range(400)] + lines


# ---- the tokenizers -------------------------------------------------------------------------------------------------------------

def special(*contents):
    return [AddedToken(content, special=True, normalized=False) for content in contents]


def trained(tokenizer, size, specials, alphabet=()):
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=list(alphabet), show_progress=False))
    return tokenizer


def byte_level(pre_tokenizer, size, specials, normalizer=None):
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return trained(tokenizer, size, specials, sorted(pre_tokenizers.ByteLevel.alphabet()))


def by_pattern(*patterns):
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    return pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def changed(tokenizer, change):
    file = json.loads(tokenizer.to_str())
    change(file)
    return Tokenizer.from_str(json.dumps(file))


def gpt2():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), 700, special("<|endoftext|>"))


def gpt2_prefix():
    """add_prefix_space, and added tokens with every flag."""
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), 300, special("<|endoftext|>"))
    tokenizer.add_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False), AddedToken("<right>", rstrip=True, normalized=True),
                          AddedToken("word", single_word=True, normalized=False), AddedToken("<m", normalized=False), AddedToken(" two ")])
    return tokenizer


def llama3():
    tokenizer = byte_level(by_pattern(LLAMA3_PATTERN), 700, [])
    tokenizer.add_special_tokens(special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"))
    bos = "<|begin_of_text|>"
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, tokenizer.token_to_id(bos))])])

    def change(file):
        file["model"]["ignore_merges"] = True
        # A token that no merges lead to, so that ignoring them can be seen.
        file["model"]["vocab"][" tokenizer".replace(" ", "Ġ")] = len(file["model"]["vocab"]) + 5
        for i, token in enumerate(file["added_tokens"]):
            token["id"] = len(file["model"]["vocab"]) + i
        file["model"]["vocab"]["Ġtokenizer"] = len(file["model"]["vocab"]) - 1
        file["post_processor"]["processors"][1]["special_tokens"][bos]["ids"] = [len(file["model"]["vocab"])]
    return changed(tokenizer, change)


def qwen2():
    tokenizer = byte_level(by_pattern(QWEN2_PATTERN), 700, [], normalizers.NFC())
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return tokenizer


def smollm2():
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return byte_level(digits, 600, special("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>", "<file_sep>"))


def deepseek():
    return byte_level(by_pattern(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_PATTERN), 320, special("<｜begin▁of▁sentence｜>"))


def o200k():
    return byte_level(by_pattern(O200K_PATTERN), 320, special("<|endoftext|>"))


def llama2_parts():
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    specials = special("<unk>", "<s>", "</s>") + [f"<0x{byte:02X}>" for byte in range(256)]
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    trained(tokenizer, 620, specials)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])

    def change(file):
        file["added_tokens"] = [token for token in file["added_tokens"] if token["id"] < 3]
    return changed(tokenizer, change)


def llama2():
    return llama2_parts()


def llama2_metaspace():
    """What transformers writes with legacy=false: only the very first part gets a prefix."""
    tokenizer = llama2_parts()
    tokenizer.normalizer = normalizers.Replace("\t", " ")
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)

    def change(file):  # the older spelling of merges
        file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
    return changed(tokenizer, change)


def words():
    """Normalizers and pre-tokenizers of other models, unknown tokens that aren't fused, normalized added tokens."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip(),
                                                 normalizers.Replace(Regex(r"[\t ]{2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Split("ing", "merged_with_next"), pre_tokenizers.Split(Regex("[aeiou]+"), "contiguous", invert=True)])
    trained(tokenizer, 300, ["[UNK]"])
    tokenizer.add_tokens([AddedToken("[Day]", normalized=True), AddedToken("[night]", normalized=True, lstrip=True, special=True)])
    return tokenizer


def spaces():
    """Metaspace that splits, whitespace as word bounds, fused unknown tokens, NFD, and no decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.NFD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation("contiguous")])
    return trained(tokenizer, 300, ["<unk>"])


JSON_KINDS = {f.__name__: f for f in (gpt2, gpt2_prefix, llama3, qwen2, smollm2, deepseek, o200k, llama2, llama2_metaspace, words, spaces)}
CONFIGS = {
    "gpt2": {"eos_token": "<|endoftext|>", "bos_token": "<|endoftext|>"},
    "llama3": {"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|eot_id|>", "special": True}},
    "qwen2": {"eos_token": "<|im_end|>", "bos_token": None, "add_bos_token": False},
    "llama2": {"eos_token": "</s>", "bos_token": "<s>", "add_bos_token": True},
    "smollm2": {"eos_token": "<|im_end|>", "bos_token": "<|im_start|>"},
}
# One model and two ways to treat it.
SPM_KINDS = {"spm": False, "spm_legacy": True}


def spm_config(legacy):
    def entry(content, is_special):
        return {"content": content, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": is_special}
    added = {"0": entry("<unk>", True), "1": entry("<s>", True), "2": entry("</s>", True), "500": entry("<|im_start|>", True),
             "501": entry("<|im_end|>", False)}
    return {"tokenizer_class": "LlamaTokenizer", "legacy": legacy, "add_bos_token": True, "bos_token": "<s>", "eos_token": "</s>",
            "unk_token": "<unk>", "added_tokens_decoder": added}


def make_spm(folder):
    import sentencepiece
    with tempfile.TemporaryDirectory() as scratch:
        text = pathlib.Path(scratch, "text")
        text.write_text("\n".join(line.replace("\n", " ").replace("\r", "") for line in corpus()))
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(pathlib.Path(scratch, "m")), model_type="bpe", vocab_size=500, byte_fallback=True,
            normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=True, split_digits=True,
            character_coverage=0.98, allow_whitespace_only_pieces=True, pad_id=-1, minloglevel=2)
        (folder / "tokenizer.model").write_bytes(pathlib.Path(scratch, "m.model").read_bytes())


# ---- what the libraries say -----------------------------------------------------------------------------------------------------

class JsonOracle:
    def __init__(self, folder):
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()

    def encode(self, texts):
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, ids, skip):
        return self.tokenizer.decode(ids, skip_special_tokens=skip)


class SpmOracle:
    """legacy: SentencePiece itself between the added tokens; else transformers' LlamaTokenizer."""

    def __init__(self, folder):
        config = json.loads((folder / "tokenizer_config.json").read_text())
        self.legacy = config["legacy"]
        if self.legacy:
            import sentencepiece
            self.processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
            self.added = {token["content"]: int(i) for i, token in config["added_tokens_decoder"].items()}
        else:
            from transformers import AutoTokenizer
            self.tokenizer = AutoTokenizer.from_pretrained(folder)

    def encode(self, texts):
        if not self.legacy:
            return [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        import re
        pattern = re.compile("(" + "|".join(re.escape(content) for content in sorted(self.added, key=len, reverse=True)) + ")")
        out = []
        for text in texts:
            ids = []
            for part in pattern.split(text):
                if part in self.added:
                    ids.append(self.added[part])
                elif part:
                    ids += self.processor.encode(part)
            out.append(ids)
        return out

    def decode(self, ids, skip):
        if self.legacy:
            return None
        return self.tokenizer.decode(ids, skip_special_tokens=skip)


def oracle_of(folder):
    return JsonOracle(folder) if (folder / "tokenizer.json").exists() else SpmOracle(folder)


# ---- texts ----------------------------------------------------------------------------------------------------------------------

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<tool_call>", "</tool_call>",
            "<s>", "</s>", "<unk>", "<mask>", "<right>", "word", "<m", " two ", "[Day]", "[day]", "[NIGHT]", "<0x41>", "<|im_", "endoftext|>", "<repo_name>",
            "<｜begin▁of▁sentence｜>", " tokenizer", "[UNK]"]
BLANKS = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\n\n", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u2029", "\u0085", "\u180e", "\u200b", "\u202f",
          "\x0b", "\x0c", "\x1c", "\ufeff", "▁", "\u2003", " " * 9, "\n" * 7, "\t\t\t"]
PIECES = ["'s", "'S", "'ll", "'LL", "'Re", "'ſ", "don't", "İ", "ſ", "K", "ẞ", "ß", "ŉ", "ﬁ", "é", "e\u0301", "q\u0307\u0323", "q\u0323\u0307", "각", "\u1100\u1161\u11a8",
          "가\u11a8", "👩‍👩‍👧", "🇩🇪", "👍🏽", "❤️", "क्षि", "שָׁלוֹם", "العَرَبِيَّة", "\u202eabc\u202c", "Ω", "Ω", "Å", "½", "²", "Ⅳ", "٣٤٥", "１２３", "0", "12", "1234567", "3.14", "_a_b",
          "Ġ", "Ċ", "Ġthe", "<", ">", "|", "&&", "$$$", "http://a.b/c?d=e&f", "a\u200db", "\u0345", "\u0f73\u0f75", "\u1e9b\u0323", "\u2126", "\ufb1d", "\U0001d15e", "\U0001d160", "Ⓐ", "🄰", "x" * 17,
          "ab" * 12, "\x00", "\x01", "\x7f", "\u0378", "\U0010ffff", "\ufffe", "\ue000", "\u0897", "\U00010d50", "\U00010d4a", "\U0001e4ec", "\U00011938", "\U00011935\U00011930", "\u1abf\u0301", "\U0001ccf0", "\U00031350",
          "\u31ef", "\U0001fae9", "\u4e00\u9fa5", "\u3042\u30a2", "\u166d", "\u061d", "\u2e52", "\u00aa", "\u02b0", "\u01c5"]
WORDS = " ".join(SENTENCES).split() + PAIRS


def random_char(rng):
    kind = rng.random()
    if kind < 0.3:
        code = rng.randrange(0x20, 0x500)
    elif kind < 0.7:
        code = rng.randrange(0x10000)
    elif kind < 0.9:
        code = rng.randrange(0x10000, 0x20000)
    else:
        code = rng.randrange(0x110000)
    return chr(code) if not 0xD800 <= code < 0xE000 else "\ud7ff"


def random_text(rng, longest):
    parts = []
    for _ in range(rng.randrange(longest + 1)):
        kind = rng.random()
        if kind < 0.34:
            parts.append(rng.choice(WORDS))
        elif kind < 0.55:
            parts.append(rng.choice(BLANKS) if rng.random() < 0.6 else " ")
        elif kind < 0.72:
            parts.append(rng.choice(PIECES))
        elif kind < 0.80:
            parts.append(rng.choice(SPECIALS))
        elif kind < 0.90:
            parts.append("".join(random_char(rng) for _ in range(rng.randrange(1, 4))))
        elif kind < 0.93:
            parts.append("".join(chr(rng.choice([0x300, 0x301, 0x316, 0x323, 0x327, 0x334, 0x345, 0x5b0, 0x64b, 0x94d, 0x3099, 0x7fd, 0x898]))
                                 for _ in range(rng.randrange(1, 6))))
        elif kind < 0.96:
            parts.append(str(rng.randrange(10 ** rng.randrange(1, 12))))
        else:
            parts.append(rng.choice("aA .,!?-\n'") * rng.randrange(1, 12))
    return "".join(parts)


def fixed_texts():
    rng = random.Random(42)
    texts = ["", " ", "\n", "▁", "  a", " a", "a ", "<s>", " <s> a", "<s><s>", "a<mask> b", "a  <mask>  <mask> b", "a<right>  <right> b", "words word, word", "\r\n\r\n"]
    while len(texts) < TEXTS:
        texts.append(random_text(rng, 5))
    return texts


# ---- files ----------------------------------------------------------------------------------------------------------------------

def leb128(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def packed_texts(texts):
    return b"".join(leb128(len(text.encode())) + text.encode() for text in texts)


def packed_ids(ids):
    return b"".join(leb128(len(each)) + b"".join(map(leb128, each)) for each in ids)


def make():
    texts = fixed_texts()
    HERE.mkdir(exist_ok=True)
    (HERE / "texts.bin").write_bytes(packed_texts(texts))
    for name, build in JSON_KINDS.items():
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        tokenizer = build()
        file = json.loads(tokenizer.to_str())
        if name == "llama2_metaspace":
            file["model"]["merges"] = [" ".join(merge) for merge in file["model"]["merges"]]
        (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False, separators=(",", ":")) + "\n")
        if name in CONFIGS:
            (folder / "tokenizer_config.json").write_text(json.dumps(CONFIGS[name], ensure_ascii=False, indent=1) + "\n")
    for name, legacy in SPM_KINDS.items():
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        if legacy:
            (folder / "tokenizer.model").write_bytes((HERE / "spm" / "tokenizer.model").read_bytes())
        else:
            make_spm(folder)
        (folder / "tokenizer_config.json").write_text(json.dumps(spm_config(legacy), indent=1) + "\n")
    for name in [*JSON_KINDS, *SPM_KINDS]:
        (HERE / name / "ids.bin").write_bytes(packed_ids(oracle_of(HERE / name).encode(texts)))
    total = sum(path.stat().st_size for path in HERE.rglob("*") if path.is_file())
    print(f"{len(JSON_KINDS) + len(SPM_KINDS)} tokenizers, {len(texts)} texts, {total} bytes")


def check():
    texts = fixed_texts()
    failures = []
    if (HERE / "texts.bin").read_bytes() != packed_texts(texts):
        failures.append("texts.bin is not what this script makes")
    for name in [*JSON_KINDS, *SPM_KINDS]:
        if (HERE / name / "ids.bin").read_bytes() != packed_ids(oracle_of(HERE / name).encode(texts)):
            failures.append(f"{name}/ids.bin is not what the libraries say today")
    for failure in failures:
        print("FAILED:", failure)
    print(f"{len(JSON_KINDS) + len(SPM_KINDS)} tokenizers x {len(texts)} texts checked")
    return 1 if failures else 0


def run_program(program, folder, texts):
    data = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in texts)
    done = subprocess.run([program, str(folder)], input=data, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{program} {folder}: exit status {done.returncode}")
    out, at, results = done.stdout, 0, []
    for _ in texts:
        (count,) = struct.unpack_from("<I", out, at)
        ids = list(struct.unpack_from(f"<{count}i", out, at + 4))
        at += 4 + 4 * count
        decoded = []
        for _ in range(2):
            (size,) = struct.unpack_from("<I", out, at)
            decoded.append(out[at + 4:at + 4 + size])
            at += 4 + size
        results.append((ids, *decoded))
    return results


def write_pattern_tokenizers(folder):
    """Tokenizers that show where a Split cuts: each piece gets a prefix, and all characters are bytes."""
    for i, pattern in enumerate(PATTERNS):
        for behavior in ["isolated", "removed", "merged_with_previous", "merged_with_next", "contiguous"]:
            tokenizer = Tokenizer(models.BPE({f"<0x{byte:02X}>": byte for byte in range(256)} | {"▁": 256}, [], byte_fallback=True))
            tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
                pre_tokenizers.Split(pattern if i == 0 else Regex(pattern), behavior, invert=i % 3 == 1), pre_tokenizers.Metaspace(split=False)])
            tokenizer.decoder = decoders.ByteFallback()
            directory = folder / f"pattern-{i}-{behavior}"
            directory.mkdir()
            tokenizer.save(str(directory / "tokenizer.json"))
            yield directory


def fuzz(count, program, seed, directories):
    with tempfile.TemporaryDirectory() as scratch:
        status = fuzz_each(count, program, seed, directories or [HERE / name for name in [*JSON_KINDS, *SPM_KINDS]])
        if not directories:
            status |= fuzz_each(count // 50, program, seed, write_pattern_tokenizers(pathlib.Path(scratch)))
    return status


def every_character():
    """Each character between letters, blanks and digits."""
    codes = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    return ["\n".join(f"x{c}y {c}{c}1{c}" for c in map(chr, codes[i:i + 64])) for i in range(0, len(codes), 64)]


def fuzz_each(count, program, seed, directories):
    status = 0
    for folder in directories:
        oracle = oracle_of(folder)
        rng = random.Random(f"{seed} {folder.name}")
        wrong = done = 0
        every = every_character() if count >= 50000 else []
        while done < count or every:
            texts = [random_text(rng, rng.choice([2, 6, 12, 40])) for _ in range(min(5000, count - done))] or every[:5000]
            every = every if done < count else every[5000:]
            done += len(texts)
            for text, expected, (ids, decoded, without) in zip(texts, oracle.encode(texts), run_program(program, folder, texts)):
                faults = []
                if ids != expected:
                    faults.append(("ids", expected, ids))
                elif done <= 10000:  # decoding one by one takes its time
                    for skip, found in ((False, decoded), (True, without)):
                        said = oracle.decode(ids, skip)
                        if said is not None and said != found.decode(errors="replace"):
                            faults.append((f"decoded, skip {skip}", said, found))
                wrong += bool(faults)
                for what, said, found in faults:
                    if wrong <= 5:
                        print(f"FAILED: {folder.name}: {text!r}: {what}: expected {said}, found {found}")
        print(f"{folder.name}: {done} texts, {wrong} wrong", flush=True)
        status |= wrong > 0
    return int(status)


# ---- the table of characters ----------------------------------------------------------------------------------------------------

def unicode_table():
    import bisect
    import unicodedata
    if unicodedata.unidata_version != "14.0.0":
        raise SystemExit("needs a Python with Unicode 14, that is 3.11")
    every = "".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000)

    def members(pattern):
        return {ord(c) for piece, _ in pre_tokenizers.Split(Regex(pattern), "removed", invert=True).pre_tokenize_str(every) for c in piece}
    categories = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cn Co".split()
    category = {code: name for name in categories for code in members(rf"\p{{{name}}}")}
    scripts = ["Bengali", "Greek", "Han", "Hangul", "Hebrew", "Hiragana", "Katakana", "Latin", "Thai"]
    script = {code: name for name in scripts for code in members(rf"\p{{{name}}}")}

    def kind(code):
        return category[code], script.get(code), len(chr(code).encode())
    young = {code for code in category if unicodedata.category(chr(code)) != category[code]} | {0x180E}
    old = {}
    for code in sorted(category):
        if code not in young:
            old.setdefault(kind(code), []).append(code)
    rows = []
    for code in sorted(young):
        if rows and rows[-1][1] == code - 1 and kind(rows[-1][0]) == kind(code):
            rows[-1][1] = code
            continue
        candidates = old[kind(code)]
        at = bisect.bisect(candidates, code)
        rows.append([code, code, min(candidates[max(0, at - 1):at + 1], key=lambda other: abs(other - code))])
    print("// {first, last, instead}: characters whose category changed after Unicode 14 (nearly all were unassigned), as Unicode 16 has them;")
    print("// U+180E, which PCRE2 takes for white space. Made by tests/golden/make_tokenizers.py --unicode; don't edit.")
    print("// clang-format off")
    line = ""
    for first, last, instead in rows:
        entry = f"{{0x{first:X}, 0x{last:X}, 0x{instead:X}}},"
        if len(line) + len(entry) + 1 > 130:
            print(line.rstrip())
            line = ""
        line += entry + " "
    print(line.rstrip())
    print("// clang-format on")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--fuzz", type=int)
    parser.add_argument("--program")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--directory", type=pathlib.Path, action="append")
    parser.add_argument("--unicode", action="store_true")
    wanted = parser.parse_args()
    if wanted.unicode:
        return unicode_table()
    if wanted.check:
        return check()
    if wanted.fuzz is not None:
        return fuzz(wanted.fuzz, wanted.program, wanted.seed, wanted.directory)
    return make()


if __name__ == "__main__":
    sys.exit(main())
