"""Logs of trackers for tests: a database by MLflow's schema, event files by TensorBoard's own writer."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

# The columns that are read, as MLflow 3 declares them.
SCHEMA = """
create table experiments (experiment_id integer primary key, name varchar(256) not null, lifecycle_stage varchar(32));
create table runs (run_uuid varchar(32) primary key, name varchar(250), status varchar(9), start_time bigint,
    lifecycle_stage varchar(20), experiment_id integer);
create table metrics (key varchar(250) not null, value float not null, timestamp bigint not null,
    run_uuid varchar(32) not null, step bigint default 0 not null, is_nan boolean default 0 not null,
    constraint metric_pk primary key (key, timestamp, step, run_uuid, value, is_nan));
create table params (key varchar(250) not null, value varchar(8000) not null, run_uuid varchar(32) not null,
    constraint param_pk primary key (key, run_uuid));
insert into experiments values (1, 'pilots', 'active');
"""


def database(file: Path, runs: dict[str, dict[str, list[tuple[int, float]]]], params=(), deleted=()) -> Path:
    """A database with ``runs``: name -> metric -> (step, value) in the order of logging. Ids are id-NAME."""
    with sqlite3.connect(file) as connection:
        connection.executescript(SCHEMA)
        for start, (name, metrics) in enumerate(runs.items()):
            stage = "deleted" if name in deleted else "active"
            row = (f"id-{name}", name, "FINISHED", start, stage, 1)
            connection.execute("insert into runs values (?, ?, ?, ?, ?, ?)", row)
            for key, points in metrics.items():
                for time, (step, value) in enumerate(points):
                    nan = value != value
                    row = (key, 0.0 if nan else value, 1000 + time, f"id-{name}", step, nan)
                    connection.execute("insert into metrics values (?, ?, ?, ?, ?, ?)", row)
        connection.executemany("insert into params values (?, ?, ?)", params)
    connection.close()
    return file


def write_events(
    folder: Path, series: dict[str, dict[int, float]], *, tensors: bool = False, name: str = "a", **more
) -> Path:
    """One event file with ``series``, tag -> step -> value, by TensorBoard's writer; ``restart``: a session's start."""
    from tensorboard.compat.proto.event_pb2 import Event, SessionLog
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util.tensor_util import make_tensor_proto

    folder.mkdir(parents=True, exist_ok=True)
    before = set(folder.iterdir())
    writer = EventFileWriter(str(folder))
    if "restart" in more:
        writer.add_event(Event(step=more["restart"], session_log=SessionLog(status=SessionLog.START)))
    for tag, points in series.items():
        for step, value in points.items():
            if tensors:
                one = Summary.Value(tag=tag, tensor=make_tensor_proto(np.float32(value)))
            else:
                one = Summary.Value(tag=tag, simple_value=value)
            writer.add_event(Event(step=step, summary=Summary(value=[one])))
    writer.close()
    (made,) = set(folder.iterdir()) - before
    return made.rename(folder / f"events.out.tfevents.{name}")
