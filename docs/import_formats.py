"""The page of what `ratioscope import` reads, rendered from the tables of the importers."""

from collections.abc import Iterator

from ratioscope.ingest.importers.detection import BY_RECORD
from ratioscope.ingest.importers.formats import FORMATS
from ratioscope.ingest.importers.neighbours import NEIGHBOURS
from ratioscope.ingest.importers.scalars.agreement import agreements
from ratioscope.ingest.importers.scalars.sources import SOURCES
from ratioscope.ingest.importers.scalars.wandb_online import ONLINE
from ratioscope.ingest.importers.steps import STEPS
from ratioscope.ingest.importers.table import FileKind, Format
from ratioscope.metrics.logged_names import trainers

SHOWN = {
    "rollout_logprobs": "rollout", "old_logprobs": "old", "current_logprobs": "current", "reference_logprobs": "reference",
    "token_ids": "ids", "token_texts": "texts", "prompt_ids": "prompt ids", "mask": "mask", "rollout_versions": "versions",
    "rollout_version_min": "versions", "rewards": "rewards", "advantages": "advantages", "entropy": "entropy",
}  # fmt: skip
"""Column -> its word in the table of formats."""

INTRODUCTION = """# Import what exists

A run that is over, and was not recorded, has often left dumps or logs. `ratioscope import` makes an ordinary run of them:

    ratioscope import checkpoints/dump -o runs/last-week
    ratioscope report runs/last-week

The format of each file is detected. `--from NAME` names it. Every row is imported, or listed in `import/rejected.jsonl` of the
run with its file, row, field and reason; the exit code is 1 then. `--strict` stops at the first such row. `--no-text` leaves
prompts, token texts, texts among other values, and values that a reason quotes out of the run; ids stay. Files that trainers
keep beside their rows, such as settings and optimizer states, are named and fail nothing: a table below lists them. Links,
files of no known kind and empty files are named, too. An empty file with the name of a dump fails. A file of another name is
known by its content. Memory does not grow with the size of the source, but for `.pt`, `.pkl` and `.npz` files, which are read
one at a time. An import that is ended leaves no run behind. It writes units of some 16 million tokens, which end between two
steps, in a hidden folder beside the run. The same command goes on after the last whole unit: it reads the source again,
compares the rows of whole units with what was written, and writes the rest. The run is then equal to that of one import, to the
bit. If the source or an option has changed, it says so and begins anew; it also does so if no unit is whole. Files may be
compressed (`.gz`, `.zst`) and may lie in folders of folders. Files of slime and miles are joined by the number of the rollout
that they state, whatever their names. A log of numbers beside dumps is named; import it by itself.

Nothing of a file is run. `.pt` files and pickles are read without torch, and a short list of names becomes inert stand-ins;
[SECURITY.md](../SECURITY.md) says more. A child process decodes all files. `--most-memory GIB` bounds its memory: Linux refuses
it more, and elsewhere the import ends it. The import itself holds some rows at a time beside that. A line
of JSON lines that is longer than a sixteenth of it is listed as a rejected row. A file whose decoder is
ended, because it takes too much memory or 60 seconds without a row, or crashes, is listed by its name like a rejected row, and
the others are imported.

A file that holds the sampler's side alone becomes a run without a gap. OpenRLHF writes neither log-probs nor token ids to disk:
there is nothing to import, and `ratioscope attach` records both sides.

A format that rounds its log-probs, such as the 4 decimals of `verifiers`, says so in run.json as `resolution`. Metrics, pages
and reports then say "not available, because rollout holds 4 decimals" of a K3 or a tail that rounding alone could make.
Grades still know the size.

## A log of responses

A log of vLLM, SGLang or another server of OpenAI's form may lie by line, in one JSON list, or as a stream of parts, by event or
by line. Parts of one id become one response. A request beside the response (`request`, `request.body`, `body`, or `messages`
and `prompt` in the line itself) gives the prompt, as text with a line for each message or as ids, the turn, and the sampling
settings.
Tokens that the server counts and has no log-prob of are counted as "set aside". So is a response that the log holds twice.

## A run folder of prime-rl

    ratioscope import outputs/my-run -o runs/my-run

`monitors/file/traces` is read whole, also while the run goes on: the stream, sealed chunks of it, and `annotations/`, which
name traces of the stream. A row has the step that shipped its trace, the step that asked for it, the versions that sampled
it, its group, its advantages, and the trainer's log-probs and entropies. A batch trains on the weights of the step before it;
that is `trainer_version`. A sampled token to which the trainer gave no log-prob is masked out and counted: its loss left it
out, the trainer cut the branch, or the value was no number. A trace that no step has shipped yet is a row of the sampler's
side alone. Its step is the one that asked for it. Evaluations, agents that are not trained, episodes without a rollout, a
last line that does not end, and values of annotations that no column takes become no row: the report counts each kind as "set
aside". The stream alone has no trainer's side.

## A log of numbers

A log that a trainer wrote by step, without tokens, becomes a run too:

    ratioscope import wandb/offline-run-20261123_151445-abc -o runs/theirs --dialect verl@0.9.1
    ratioscope import wandb -o runs
    ratioscope import wandb://my-team/my-project/abc -o runs/theirs
    ratioscope import mlruns.db --run tonight -o runs/theirs
    ratioscope metrics runs/theirs --logged

Its metrics are drawn, graded and reported by step. The page Charts also draws the trainer's own numbers that you pick.
Pages about tokens say that the log holds none. A number is called a metric
of ours only if the trainer defines it as we do, in that version; a table below names each with its source. Every other number
keeps the trainer's name, and `--logged` says why. `--map mismatch/kl_k3=NAME` overrides that where you know better, and
`--map step=FIELD` names the step. NaN and infinities are kept. Steps that go back begin an attempt, as a restart does. A value
that is logged twice at one step counts once. A logged mean has no standard error, so a grade takes half of it, as it does of a
step with one sequence.

A folder with the logs of several runs, such as `wandb`, becomes a folder of runs, each with its own name. A log of it that cannot
be imported is told, and the others are imported. TensorBoard's event files of one folder are one run, with the hyperparameters
that PyTorch writes in a folder below.

The settings of a run are kept in run.json, without secrets and cut, as a collector keeps those of a recorded run: W&B's config,
trackio's config, MLflow's parameters, SwanLab's `files/config.yaml`, TensorBoard's hyperparameters, and those of its texts before
the first number that are a JSON object or one word. `info` then names known faults of these settings and the published range for
such a run, and `diff A B` lists the settings that differ, those first that are known to act on the gap.

## Two files of one side each

    ratioscope import --rollout samples.jsonl --train trainer.parquet --on sample_id,token_ids -o runs/joined

The rows of both files that agree in the fields of `--on` become one row; token ids may be such a field. `--map-rollout`
and `--map-train` are `--map` for one side. The report, also as `--json`, counts rows of one side only, duplicates, and pairs
whose tokens differ. The list of rejected rows has the place: the position, both ids and both lengths. Different ids of one sample
mean that one side has encoded the text anew. The rows of the first file wait on disk without a name, in the folder for temporary
files (`SQLITE_TMPDIR`, `TMPDIR`, else `/var/tmp`), so that nothing of them stays behind an import that is killed.
"""
BESIDE = """
## Files beside the rows

A folder may hold these files too. No step trains on what they hold. An import of the folder counts and names them, and does not
open them. Each expression is one of the end of the path. A file whose name is that of a dump is read all the same.

| file | name | written by |
| --- | --- | --- |"""
SPEED = """
## Speed and memory

`python benchmarks/importers.py` compares with pandas and with the loaders that the trainers use themselves. Megabytes of the file
per second of processor time, measured on two shared cores of an AMD EPYC with 24 GB that did other work, with files of 9 to
55 MB; only the ratios carry over to another machine. A loader reads values and nothing more. Reading also checks each row. An
import writes rows and statistics besides.

| file | trainer's loader | reading | import | peak memory: loader, reading, import |
| --- | --- | --- | --- | --- |
| NeMo-RL JSON lines, 22 MB | json.loads 57 MB/s | 30 MB/s, 0.52 times | 14 MB/s, 0.25 times | 53, 3, 161 MB |
| slime rollout `.pt`, 9 MB | torch.load 4.7 MB/s | 7.3 MB/s, 1.6 times | 5.5 MB/s, 1.2 times | 75, 87, 172 MB |
| slime train `.pt`, 26 MB | torch.load 53 MB/s | 68 MB/s, 1.3 times | 17 MB/s, 0.31 times | 35, 45, 187 MB |
| Parquet, 55 MB | pandas 93 MB/s | 77 MB/s, 0.83 times | 23 MB/s, 0.24 times | 195, 77, 241 MB |
| a log of numbers, 21 MB | pandas 73 MB/s | | 9.5 MB/s, 0.13 times | 142, 83 MB (import) |
"""
TABLES = """
## A table of your own

`--map COLUMN=FIELD` names the fields of a table in JSON lines, JSON, Parquet, Arrow (`.arrow`, `.feather`; a folder that Hugging
Face `datasets` saved is one table), CSV, npz, safetensors, `.pt` or `.pkl`, one row or entry for each sequence:

    ratioscope import rollouts.parquet -o runs/own --map rollout_logprobs=lp --map "old_logprobs=train_lp|span(mask)"

A table may also have one row for each token, as `ratioscope export --level token` writes it:

    ratioscope import tokens.parquet -o runs/own --map sequence_ids=sample --map rollout_logprobs=lp --map old_logprobs=train_lp

A row may also be a whole group, as data sets have it: its log-probs are a list with a list for each completion of one prompt.
Each completion becomes a row. Rewards, advantages, versions and other columns have an entry for each completion too, or one value
for all; `prompt_ids` may be one list. The row is the group where no `group_ids` is given. Wrong nesting is listed with what was
found. Sets that were saved as a dictionary of splits are read as one table: give the folder of the split that was trained on.

The rows of a sequence have one step and one sequence id, and follow one another; a field `position`, if the rows have it, goes
up by 1. A sequence that lacks a token, or whose rows differ in a value of the whole sequence, is listed with the reason.
The importer does not read weight, packing and router columns of an export by token; `push` or a copy of the folder keeps all.

Columns that have the names of [the Record](record.md) need no `--map`. The end of an import names each field with `logp` in its
name that may hold log-probs and goes to no column, with the `--map` that imports it.

A field is a name; `a.b` leads inside, `x or y` takes the first that is there, `^x` is a place in the whole file, `@step` a number
in the file's name, `@row` the number of the row, and `@source` the file's path, where the source has several.
Steps follow after `|`, from left to right:
"""


LOGS = """
| `--from` | log | files | not there, beside tokens |
| --- | --- | --- | --- |"""
AGREED = """
| trainer | logged as | is | since | source |
| --- | --- | --- | --- | --- |"""


def import_page() -> Iterator[str]:
    yield INTRODUCTION
    yield "## Logs\n" + LOGS
    for source in (*SOURCES, ONLINE):
        files = ", ".join(f"`{pattern}`" for pattern in source.files.split()) or "`wandb://ENTITY/PROJECT/RUN`"
        yield f"| `{source.name}` | {source.title} | {files} | {source.lacks} |"
    yield "\nThese numbers are metrics of ours, because their definitions are the same. So is `ratioscope/<gap>/<metric>`, which"
    yield "`ratioscope wandb sync` writes.\n" + AGREED
    for each in agreements():
        yield f"| {each.trainer} | `{each.name}` | `{each.near}` | {each.since} | {each.source} |"
    yield "\nThe names of these trainers are known, also with the `train/` that callbacks of Hugging Face put before them."
    yield f"Numbers below `eval/` are no steps of training. {', '.join(trainers())}."
    yield "`ratioscope explain NAME@TRAINER` prints what a number measures, and why it is none of ours where it is not."
    yield ""
    yield "## Formats\n"
    yield "| `--from` | files | what is recovered | not there |\n| --- | --- | --- | --- |"
    for known in FORMATS:
        yield from dict.fromkeys(
            _row(known, part) for part in known.parts
        )  # one kind may lie in files of several forms
    yield BESIDE
    for each in NEIGHBOURS:
        yield "| " + " | ".join((each.what, f"`{each.files}`".replace("|", "\\|"), each.by)) + " |"
    yield SPEED
    yield TABLES
    yield "| step | result |\n| --- | --- |"
    for name, step in STEPS.items():
        yield f"| `{name}` | {(step.__doc__ or '').strip().splitlines()[0]} |"
    yield "\n## The tables\n"
    yield "Each line maps a field to a column. `!` marks a field without which a row is rejected. Columns `key.NAME`"
    yield "join two files of a format; columns `extra.NAME` are kept beside the row. Generated by `make docs`.\n"
    for known in FORMATS:
        tables = dict.fromkeys((part.what, part.columns) for part in known.parts if part.columns)
        for what, lines in tables:
            yield from _table(f"{known.title}: {what}", lines)
    yield from _table("A table whose columns have the names of the Record", BY_RECORD)


def _row(known: Format, part: FileKind) -> str:
    words = dict.fromkeys(SHOWN[line.into] for line in part.columns if line.into in SHOWN)
    refused = "joined to what it annotates" if part.annotates else "nothing: refused"
    recovered = ", ".join(words) if part.columns else refused
    lacks = (part.refused or part.lacks).replace("|", "\\|")
    return f"| `{known.name}` | {known.title}: {part.what} | {recovered} | {lacks} |"


def _table(title: str, lines: tuple[object, ...]) -> Iterator[str]:
    yield f"### {title}\n"
    yield "```"
    yield from map(str, lines)
    yield "```\n"
