"""List the cards dryfit knows, or show everything it knows of one, with the source of every figure."""

from __future__ import annotations

import argparse
import json

NAME = "cards"
HELP = "list the cards dryfit knows, or show one with the source of every figure"

SCHEMA = "dryfit.cards/1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "card",
        nargs="*",
        metavar="NAME",
        help='one card: a name such as 4090 or "A100 80GB", or one given by hand as sm=90,sms=132,memory=141GB',
    )
    parser.add_argument("--json", action="store_true", help="print JSON; sizes are in bytes")


def run(arguments: argparse.Namespace) -> int:
    from dryfit.cards import all_cards, find_card, namesakes
    from dryfit.report.cards import print_card, print_list

    text = " ".join(arguments.card)
    if not text and arguments.json:
        _print_json({"cards": [card.to_dict() for card in all_cards()]})
    elif not text:
        print_list()
    elif arguments.json:
        _print_json({"card": find_card(text).to_dict(), "namesakes": [other.key for other in namesakes(text)]})
    else:
        print_card(find_card(text), namesakes(text))
    return 0


def _print_json(values: dict[str, object]) -> None:
    print(json.dumps({"schema": SCHEMA, **values}, indent=2, ensure_ascii=False))
