"""`munjang export`: a model -> a folder for sentence-transformers, with an ONNX graph, or compact; verified."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from munjang import bundled
from munjang.cli.options import named_or_bundled, positive
from munjang.cli.progress import Reporter
from munjang.report.tables import table

if TYPE_CHECKING:
    from munjang.bi_encoder import BiEncoder
    from munjang.cross_encoder import CrossEncoder
    from munjang.exporting import Exported

# As munjang.exporting has them; that is imported when the command runs, for it brings torch.
_FORMATS = ("sentence-transformers", "onnx", "munjang")
_DTYPES = ("float32", "float16", "int8")
_EXAMPLES = f"""\
examples:
  munjang export -o ko-en                                    the bundled model, for sentence-transformers
  munjang export -o ko-en --dtype float16                    half the size
  munjang export -o ko-en-onnx --format onnx                 and onnx/model.onnx beside it
  munjang export -o ko-en-onnx --format onnx --dtype int8    a small graph, quick on CPUs
  munjang export {bundled.RERANKER} -o rerank --format onnx
  munjang export runs/sts/model -o small --format munjang    int8 weights, a quarter of the size, for munjang alone

formats:
  sentence-transformers  float32, float16   what sentence-transformers 3 to 6 and munjang load
  onnx                   float32, float16, int8
                         the same folder with onnx/model.onnx. It takes input_ids, attention_mask (and token_type_ids
                         where the tokenizer makes them), int64 [batch, length], and gives of a bi-encoder
                         token_embeddings (also as last_hidden_state, the name that optimum asks for) and
                         sentence_embedding (pooled, projected, normalised as the model does), of a cross-encoder
                         logits, before the activation. float16: weights in half precision, which the runtime computes
                         with in float32. int8: activations are quantised too, batch by batch, so that vectors differ a
                         little from the model's, and with the texts beside them.
                         Needs: pip install 'munjang[onnx]'
  munjang                int8

What is written is read again and compared with the model on Korean and English sentences; the lowest cosine, or the
largest difference of scores, is printed. An export that is too far from its model fails and leaves nothing behind.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser], common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "export",
        parents=[common],
        help="write a model for sentence-transformers, ONNX runtimes, or compactly",
        description="Write a bi-encoder or a cross-encoder to a folder that other programs read.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help=f"bundled name, folder or hub id (default: that of MUNJANG_MODEL, else {bundled.BI_ENCODER})",
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="folder to write")
    parser.add_argument("--format", choices=_FORMATS, default=_FORMATS[0], help="default: %(default)s")
    parser.add_argument("--dtype", choices=_DTYPES, help="of the weights (default: float32; for munjang int8)")
    parser.add_argument("--overwrite", action="store_true", help="replace a model that is there")
    parser.add_argument("--max-length", type=positive, metavar="N", help="cut texts to so many tokens")
    parser.add_argument("--truncate-dim", type=positive, metavar="N", help="keep the first N dimensions (Matryoshka)")
    parser.add_argument("--revision", help="branch, tag or commit of a hub model")
    parser.add_argument("--local-files-only", action="store_true", help="never ask the hub; use what is cached")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace, reporter: Reporter) -> None:
    """Load, export, print."""
    from munjang.exporting import ExportOptions, check_request, export, usage

    options = ExportOptions(args.format, args.dtype, overwrite=args.overwrite)
    check_request(args.output, options)
    model = _load(args, reporter)
    exported = export(model, args.output, options, tell=reporter.say)
    if args.json:
        print(json.dumps(asdict(exported), ensure_ascii=False, indent=2, default=str))
    else:
        print(_told(exported))
        print(f"\n{usage(exported, model)}", end="")


def _load(args: argparse.Namespace, reporter: Reporter) -> BiEncoder | CrossEncoder:
    """The model as what it was saved as, in float32 on the CPU: nothing is computed here but the check."""
    import munjang
    from munjang.checkpoint import is_cross, resolve
    from munjang.errors import InputError

    name = named_or_bundled(args.model, variable="MUNJANG_MODEL", own=bundled.BI_ENCODER, reporter=reporter)
    folder = resolve(name, revision=args.revision, local_files_only=args.local_files_only)
    if is_cross(folder):
        if args.truncate_dim is not None:
            raise InputError("--truncate-dim is for vectors: a cross-encoder makes none")
        return munjang.load_cross_encoder(folder, device="cpu", dtype="float32", max_length=args.max_length)
    model = munjang.load(folder, device="cpu", dtype="float32", max_length=args.max_length)
    if args.truncate_dim is not None:
        model.truncate_dim = args.truncate_dim
    return model


def _told(exported: Exported) -> str:
    """Which files, how large, how near to the model."""
    total = sum(exported.files.values())
    lines = [f"{exported.folder}: {exported.kind}, {exported.format}, {exported.dtype}, {_size(total)}", ""]
    lines.append(table([[f"  {name}", _size(size)] for name, size in exported.files.items()], right=(1,)))
    if exported.inputs:
        lines += ["", f"graph: {', '.join(exported.inputs)} -> {', '.join(exported.outputs)}"]
    lines += ["", *(f"checked: {check}" for check in exported.checks)]
    lines += [f"not checked: {line}" for line in exported.unchecked]
    return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"
