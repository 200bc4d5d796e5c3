"""python -m autopipe.partition TASK ...: partitions the model of a task and writes its stages to
models/partitioned/."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import torch

from ligament.compat.autopipe.autopipe import get_weight_functions
from ligament.compat.autopipe.autopipe.api import pipe_model
from ligament.compat.autopipe.autopipe.utils import move_tensors
from ligament.compat.autopipe.tasks import get_parser_and_partitioner
from ligament.errors import Error, InvalidError, NotFoundError, UnsupportedError

FOLDER = os.path.join("models", "partitioned")


def parse_cli() -> tuple[argparse.Namespace, dict[str, Any], Any]:
    """Returns the arguments, those that define the model, and the task."""
    first = argparse.ArgumentParser(prog="python -m autopipe.partition", add_help=False)
    first.add_argument("partitioning_task", help="the task to partition, such as vision")
    task, rest = first.parse_known_args()
    parser_class, task_class = get_parser_and_partitioner(task.partitioning_task)
    try:
        parser = parser_class()  # as FTPipe does: a task's constructor may take no arguments
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise NotFoundError(f"task {task.partitioning_task!r} cannot be used: {reason}") from None
    parser.prog = f"{first.prog} {task.partitioning_task}"
    args = parser.parse_args(rest)
    args.partitioning_task = task.partitioning_task
    groups = [group for group in parser._action_groups if group.title == "model_args"]
    model_args = {a.dest: getattr(args, a.dest, None) for g in groups for a in g._group_actions}
    return args, model_args, task_class(args)


def main(args: Any, model_args: dict[str, Any], task: Any, override_dict: Any = None) -> Any:
    """Partitions the model; returns (the simulated report or None, the path without .py)."""
    for name, value in (override_dict or {}).items():
        if name in model_args:
            raise ValueError(f"override_dict cannot change {name!r}, an argument of the model")
        setattr(args, name, value)
    if args.analysis_only:
        raise UnsupportedError("--analysis_only: a report needs the plan (partition the model)")
    model = task.get_model(args).train()
    positional, keywords = _arguments(task.get_input(args, analysis=False))
    task.register_functions()
    if args.profiles_cache_name and args.overwrite_profiles_cache:
        Path(args.profiles_cache_name).unlink(missing_ok=True)
    if not args.save_memory_mode:
        with torch.no_grad():
            model, positional, keywords = move_tensors((model, positional, keywords), args.device)
    node_weight, edge_weight = get_weight_functions(args, verbose=True)
    graph = pipe_model(
        model,
        task.batch_dim,
        model_args=positional,
        model_kwargs=keywords,
        n_iter=args.n_iter,
        nparts=args.n_partitions,
        depth=args.depth,
        basic_blocks=choose_blocks(model, args),
        node_weight_function=node_weight,
        edge_weight_function=edge_weight,
        output_file=args.output_file,
        generate_activation_propagation=not args.no_activation_propagation,
        recomputation=not args.no_recomputation,
        partitioning_method=args.partitioning_method,
        METIS_opt=args.METIS_opt,
        acyclic_opt=args.acyclic_opt,
        force_no_recomp_scopes=args.force_no_recomputation_scopes_fn,
        profile_ops=not args.disable_op_profiling,
        async_pipe=args.async_pipeline,
        profiles_cache_name=args.profiles_cache_name,
        dont_use_async_meta_alg=args.dont_use_async_meta_alg,
    )
    if args.dot:
        graph.save_as_pdf(args.output_file, "graphs", node_weight, edge_weight)
    if args.sanity_check and graph.plan:
        print(f"-I- {graph.plan.check()}")
    report = None if args.no_analysis or not graph.plan else graph.plan.report()
    _annotate(args, model_args, override_dict, str(report or ""))
    if hasattr(task, "record_transformer_cfg"):
        task.record_transformer_cfg(cmd_args=args)
    task.post_partitioning(args, graph, report, str(report or ""))
    print(f"-I- wrote {args.output_file}.py: {graph.plan}")
    return report, args.output_file


def _arguments(sample: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(sample, dict):
        return (), sample
    return (sample if isinstance(sample, tuple) else (sample,)), {}


def choose_blocks(model: Any, args: Any, blocks_arg_name: str = "basic_blocks") -> tuple[Any, ...]:
    """The classes of the model's modules with these names."""
    known = {kind.__name__: kind for m in model.modules() for kind in type(m).__mro__}
    names = getattr(args, blocks_arg_name) or []
    wrong = [name for name in names if name not in known]
    if wrong:
        found = ", ".join(sorted(known))
        raise InvalidError(f"invalid {blocks_arg_name} {', '.join(wrong)} (the model has {found})")
    return tuple(known[name] for name in names)


def _annotate(args: Any, model_args: dict[str, Any], overrides: Any, summary: str) -> None:
    """Adds the command before the written file, and the model's arguments and the report after
    it."""
    path = Path(f"{args.output_file}.py")
    command = " ".join(shlex.quote(word) for word in sys.argv[1:])
    head = f"# Generated by: python -m autopipe.partition {command}\n"
    lines = [path.read_text("utf-8"), "", f"model_args = {model_args!r}"]
    lines += [f"override_dict = {overrides!r}"] if overrides else []
    lines += ["", *(f"# {line}".rstrip() for line in summary.splitlines())]
    path.write_text(head + "\n".join(lines).rstrip() + "\n", "utf-8")


if __name__ == "__main__":
    try:
        given = parse_cli()
        given[0].output_file = os.path.join(FOLDER, given[0].output_file)
        main(*given)
    except Error as error:
        raise SystemExit(f"autopipe.partition: {error}") from None
