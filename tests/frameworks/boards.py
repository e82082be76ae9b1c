"""What TensorBoard was told."""

from pathlib import Path


def read_board(folder):
    """tag -> [(step, value)] of the one set of event files below ``folder``."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (events,) = {path.parent for path in Path(folder).rglob("events.out*")}
    board = EventAccumulator(str(events))
    board.Reload()
    return {tag: [(one.step, one.value) for one in board.Scalars(tag)] for tag in board.Tags()["scalars"]}
