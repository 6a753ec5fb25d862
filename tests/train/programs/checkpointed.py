"""A program of tests/measures, FOLDER NAME, its model checkpointed by `checkpoint_blocks` if "ours" is said."""

import importlib
import sys


def main(folder: str, name: str, how: str, every: str = "1", keep: str = "", verify: str = "") -> None:
    sys.path.insert(0, folder)
    program = importlib.import_module(name)
    if how == "ours":
        from dryfit.train import checkpoint_blocks

        own = program.Model.cuda

        def cuda(model):
            own(model)
            verified = {"verify": program.batch_of(1), "loss_of": program.loss_of} if verify else {}
            print(checkpoint_blocks(model, every=int(every), keep=keep or None, **verified).verified)
            return model

        program.Model.cuda = cuda
    program.main()


if __name__ == "__main__":
    main(*sys.argv[1:])
