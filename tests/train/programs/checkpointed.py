"""A program of tests/measures, FOLDER NAME, its model checkpointed by `checkpoint_blocks` if "ours" is said."""

import importlib
import sys


def main(folder: str, name: str, how: str, every: str = "1", keep: str = "") -> None:
    sys.path.insert(0, folder)
    program = importlib.import_module(name)
    if how == "ours":
        from dryfit.train import checkpoint_blocks

        own = program.Model.cuda

        def cuda(model):
            checkpoint_blocks(model, every=int(every), keep=keep or None)
            return own(model)

        program.Model.cuda = cuda
    program.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
